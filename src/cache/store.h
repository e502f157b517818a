/* cache/store.h - the KV memory of an engine: a pool of pages and, per sequence slot, rings, tails and a page table.
 *
 *     di_kv_store_open        allocates device memory for max_seqs slots and n_pages pages
 *     di_kv_store_reserve     before a step: pages for `length` tokens of a slot; the table goes to the device
 *     di_kv_store_ring / _paged / _tail   views for operations
 *     di_kv_store_release     a sequence ended: its pages return to the pool
 *
 * Host state (tables, free list) belongs to the engine thread.
 */
#ifndef DI_CACHE_STORE_H
#define DI_CACHE_STORE_H

#include "cache/layout.h"
#include "ops/ops.h"

struct di_kv_store;

di_status di_kv_store_open(const struct di_ops *ops, struct di_device *dev, const struct di_cache_layout *layout,
                           int32_t max_seqs, int32_t n_pages, int32_t max_pages_per_seq, struct di_kv_store **out,
                           struct di_error *err);
void di_kv_store_close(struct di_kv_store *store);

/* Makes sure that slot `slot` owns pages for positions 0 .. length-1. DI_ERR_LIMIT when the pool is empty. */
di_status di_kv_store_reserve(struct di_kv_store *store, int32_t slot, int64_t length, struct di_error *err);
void di_kv_store_release(struct di_kv_store *store, int32_t slot);

struct di_ring_view di_kv_store_ring(const struct di_kv_store *store, int32_t layer);
struct di_paged_view di_kv_store_paged(const struct di_kv_store *store, int32_t kv_slot);
struct di_tail_view di_kv_store_tail(const struct di_kv_store *store, int32_t kv_slot);
/* Reads entry `entry` of a KV source back, unpacked (observation). main: [head_dim], index: [index_dim], host memory. */
di_status di_kv_store_read(const struct di_kv_store *store, int32_t kv_slot, int32_t slot, int32_t entry, float *main,
                           float *index, struct di_error *err);

#endif
