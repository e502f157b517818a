/* cache/store.h - the KV memory of an engine: a pool of pages and, per sequence slot, rings, tails and a page table.
 *
 *     di_kv_store_open        allocates device memory for max_seqs slots and n_pages pages
 *     di_kv_store_adopt       a new sequence begins with pages that others filled
 *     di_kv_store_reserve     before a step: pages for `length` tokens of a slot; the table goes to the device
 *     di_kv_store_ring / _paged / _tail   views for operations
 *     di_kv_store_save / _load    rings, tails and pages of a slot to host memory and back, in stream order
 *     di_kv_store_release     a sequence ended: its references on pages are dropped
 *
 * Host state (tables, references) belongs to the engine thread. Since everything on the device happens in stream order, a page
 * or a slot can be given to the next sequence at once, also while steps that write to it are still queued.
 */
#ifndef DI_CACHE_STORE_H
#define DI_CACHE_STORE_H

#include "cache/layout.h"
#include "cache/pages.h"
#include "ops/ops.h"

struct di_kv_store;

di_status di_kv_store_open(const struct di_ops *ops, struct di_device *dev, const struct di_cache_layout *layout,
                           int32_t max_seqs, int32_t n_pages, int32_t max_pages_per_seq, struct di_kv_store **out,
                           struct di_error *err);
void di_kv_store_close(struct di_kv_store *store);

/* Makes sure that slot `slot` owns pages for positions 0 .. length-1. DI_ERR_LIMIT when the pool is empty. */
di_status di_kv_store_reserve(struct di_kv_store *store, int32_t slot, int64_t length, struct di_error *err);
void di_kv_store_release(struct di_kv_store *store, int32_t slot);

/* An empty slot begins with n pages that others filled; takes a reference on each. */
di_status di_kv_store_adopt(struct di_kv_store *store, int32_t slot, const int32_t *pages, int32_t n,
                            struct di_error *err);
/* The pages of a slot, in order; *n of them. Borrowed until the next change. */
const int32_t *di_kv_store_pages(const struct di_kv_store *store, int32_t slot, int32_t *n);
struct di_pages *di_kv_store_pool(const struct di_kv_store *store);

/* Queues copies between a slot and host memory (ops->host_alloc): rings of layers 0 .. n_layers - 1, then all tails, then the slot's
 * pages first .. first + n_pages - 1, which the slot must own. */
struct di_kv_state {
    int32_t n_layers;
    int32_t first_page, n_pages;
};
size_t di_kv_store_state_bytes(const struct di_kv_store *store, const struct di_kv_state *what);
void di_kv_store_save(const struct di_kv_store *store, int32_t slot, const struct di_kv_state *what, void *memory);
void di_kv_store_load(const struct di_kv_store *store, int32_t slot, const struct di_kv_state *what,
                      const void *memory);

/* Recounts: every page of a table has a reference and lies in that table once. False with a sentence in `why`. For tests. */
bool di_kv_store_audit(const struct di_kv_store *store, char *why, size_t why_size);

struct di_ring_view di_kv_store_ring(const struct di_kv_store *store, int32_t layer);
struct di_paged_view di_kv_store_paged(const struct di_kv_store *store, int32_t kv_slot);
struct di_tail_view di_kv_store_tail(const struct di_kv_store *store, int32_t kv_slot);
/* Reads entry `entry` of a KV source back, unpacked (observation). main: [head_dim], index: [index_dim], host memory. */
di_status di_kv_store_read(const struct di_kv_store *store, int32_t kv_slot, int32_t slot, int32_t entry, float *main,
                           float *index, struct di_error *err);

#endif
