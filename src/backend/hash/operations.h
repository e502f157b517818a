/* backend/hash/operations.h - the operations of this folder, finished when their call returns; hash.c puts them on the stream.
 * Those that only move bytes or compute integers are host/'s own: engram_hash, window_store, gather. */
#ifndef DI_HASH_OPERATIONS_H
#define DI_HASH_OPERATIONS_H

#include "ops/ops.h"

/* rows.c: what a row makes of itself alone */
void di_hash_embed(struct di_device *, const struct di_embed_args *);
void di_hash_engram_lookup(struct di_device *, const struct di_engram_lookup_args *);
void di_hash_engram_mix(struct di_device *, const struct di_engram_mix_args *);
void di_hash_hc_mix(struct di_device *, const struct di_hc_mix_args *);
void di_hash_hc_collapse(struct di_device *, const struct di_hc_collapse_args *);
void di_hash_hc_expand(struct di_device *, const struct di_hc_expand_args *);
void di_hash_norm(struct di_device *, const struct di_norm_args *);
void di_hash_linear(struct di_device *, const struct di_linear_args *);
void di_hash_group_linear(struct di_device *, const struct di_group_linear_args *);
void di_hash_rope(struct di_device *, const struct di_rope_args *);
void di_hash_gate(struct di_device *, const struct di_gate_args *);
void di_hash_experts(struct di_device *, const struct di_experts_args *);
void di_hash_shared_expert(struct di_device *, const struct di_shared_expert_args *);
void di_hash_combine(struct di_device *, const struct di_combine_args *);

/* cache.c: what goes into the caches, and attention, which reads them */
void di_hash_window_pack(struct di_device *, const struct di_window_pack_args *);
void di_hash_compress(struct di_device *, const struct di_compress_args *);
void di_hash_kv_append(struct di_device *, const struct di_kv_append_args *);
void di_hash_index_append(struct di_device *, const struct di_index_append_args *);
void di_hash_attention(struct di_device *, const struct di_attention_args *);

/* select.c */
void di_hash_index_query(struct di_device *, const struct di_index_query_args *);
void di_hash_index_select(struct di_device *, const struct di_index_select_args *);
size_t di_hash_select_bytes(int64_t entries); /* scratch for so many visible entries */

/* sample.c */
void di_hash_sample(struct di_device *, const struct di_sample_args *);

#endif
