/* core/config.h - di_config: what config.json says, checked once, and the layer plan derived from it.
 *
 * checkpoint/config_json.c fills a di_config from the released nested layout; di_config_validate() is then the only gate:
 * after it, every list has the length it needs, every id is in range and every divisibility that kernels rely on holds,
 * so code above never checks again. Nothing after the plan looks at the raw lists. Field names are those of config.json.
 * Meaning and released values: spec/model.md sections 1 and 2.
 */
#ifndef DI_CORE_CONFIG_H
#define DI_CORE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
    DI_MAX_LAYERS = 256,      /* backbone layers; a bound for fixed lists, far above the released 40 */
    DI_MAX_NGRAM = 8,         /* engram_max_ngram_size */
    DI_MAX_ENGRAM_LAYERS = 8, /* length of engram_layer_ids */
    DI_MAX_HC = 8,            /* hc_mult */
    DI_QUANT_BLOCK = 32,      /* K block of every quantised weight and of act_quant8 */
};

struct di_rope_scaling {
    bool present; /* rope_type "yarn"; no rope_scaling, {} or rope_type "default": false */
    double factor, beta_fast, beta_slow;
    int64_t original_max_position_embeddings;
};

struct di_config {
    /* top level */
    int32_t bos_token_id, eos_token_id, pad_token_id; /* -1 where absent */
    int32_t image_token_id;                           /* -1 where absent */

    /* text_config */
    int32_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads;
    int32_t head_dim, qk_rope_head_dim, q_lora_rank, o_lora_rank, o_groups;
    int32_t moe_intermediate_size, n_routed_experts, n_shared_experts, num_experts_per_tok;
    double routed_scaling_factor, gate_temp, swiglu_limit, rms_norm_eps;
    int64_t max_position_embeddings;
    int32_t sliding_window;
    double rope_theta, compress_rope_theta;
    struct di_rope_scaling rope_scaling;
    int32_t compress_ratios[DI_MAX_LAYERS];                         /* the backbone's entries only; 0 = window only */
    int32_t n_kv_sources, kv_source_layer_ids[DI_MAX_LAYERS];       /* ascending */
    int32_t n_index_sources, index_source_layer_ids[DI_MAX_LAYERS]; /* ascending */
    int32_t candidate_source_layer_id;                              /* -1: no candidate pool */
    int32_t candidate_topk_blocks, candidate_block_size;
    int32_t index_n_heads, index_head_dim, index_topk;
    int32_t hc_mult, hc_sinkhorn_iters;
    double hc_eps;
    int32_t n_engram_layers, engram_layer_ids[DI_MAX_ENGRAM_LAYERS]; /* ascending; 0: no Engram */
    int64_t engram_num_embeddings[DI_MAX_ENGRAM_LAYERS];             /* table rows, per Engram layer */
    int32_t engram_max_ngram_size, engram_n_heads, engram_head_dim;
    int64_t engram_vocab_size;            /* primes are drawn from here upwards */
    int32_t engram_pad_token_id;          /* a raw token id; mapped like every other */
    int32_t engram_compressed_vocab_size; /* entries of the compressed token map */

    /* draft model; its tensors are known to the checkpoint and ignored until speculation is built */
    int32_t num_nextn_predict_layers, dspark_block_size, dspark_noise_token_id, dspark_markov_rank;
    int32_t dspark_n_routed_experts, dspark_num_experts_per_tok;
    int32_t n_dspark_targets, dspark_target_layer_ids[DI_MAX_LAYERS];

    bool has_vision; /* vision_config present; the tower is not run by the text backbone */
};

/* Checks everything the engine relies on; the message names the field and the value. */
di_status di_config_validate(const struct di_config *config, struct di_error *err);

/* One layer of the backbone, resolved. */
struct di_layer_plan {
    int32_t ratio;         /* 0: window only; 1 or 2: also compressed entries, one per `ratio` tokens */
    int32_t kv_source;     /* layer whose compressed entries and index keys are read; -1 where ratio is 0 */
    int32_t kv_slot;       /* ordinal of kv_source among the KV sources (numbers the global caches); -1 */
    int32_t index_source;  /* layer whose top-k list is read; -1 where ratio is 0 */
    bool owns_kv;          /* has a compressor, indexer.wk and k_norm */
    bool owns_index;       /* has an indexer (wq_b, weights_proj) */
    bool makes_candidates; /* publishes the candidate blocks */
    bool uses_candidates;  /* its indexer chooses among the published blocks only */
    int32_t engram;        /* ordinal of its Engram table, -1 for none */
    bool compress_rope;    /* YaRN table with compress_rope_theta; else the main table */
};

struct di_layer_plan_list {
    int32_t n_layers, n_kv;
    struct di_layer_plan layer[DI_MAX_LAYERS];
    int32_t kv_layer[DI_MAX_LAYERS]; /* kv slot -> layer */
    int32_t kv_ratio[DI_MAX_LAYERS]; /* kv slot -> ratio */
};

/* Derives the plan from a validated config. Cannot fail. Source rule: the greatest source id <= layer (section 2). */
void di_layer_plan_derive(const struct di_config *config, struct di_layer_plan_list *plan);

/* Inverse frequencies (fp32, qk_rope_head_dim/2 values) of the main or the compress table (section 6). */
void di_rope_inv_freq(const struct di_config *config, bool compress, float *inv_freq);

/* Columns of one Engram lookup: (engram_max_ngram_size - 1) * engram_n_heads; 0 without Engram. */
int32_t di_engram_columns(const struct di_config *config);

#endif
