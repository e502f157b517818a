/* cache/layout.h - how many bytes each cache kind takes and where they lie. Data only, no memory.
 *
 * Global rows live in pages of DI_PAGE_TOKENS tokens. One page id serves all KV sources and both kinds:
 *
 *     page: | source 0 main data | main scales | index data | index scales | source 1 main data | ... |
 *
 * with page_tokens / ratio rows a source. Window rings and compressor tails are private to a sequence:
 *
 *     rings: layer-major, [layer][sequence]: ring_slots data rows, then ring_slots scale rows
 *     tails: [source with ratio 2][sequence][tail_slots][value, gate][head_dim] floats
 *
 * A ring holds the window and what two steps in flight may have to take back: window + 2 * (draft length + 1) slots
 * (spec/runtime.md section 1.7).
 */
#ifndef DI_CACHE_LAYOUT_H
#define DI_CACHE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config.h"
#include "numerics/quant.h"

enum {
    DI_PAGE_TOKENS = 128,
    DI_MAX_DRAFT = 5,                      /* longest draft that a step may have to take back */
    DI_STEP_BACK = 2 * (DI_MAX_DRAFT + 1), /* rows of two steps in flight */
};

struct di_cache_layout {
    enum di_kv_format window_format, main_format, index_format;
    int32_t head_dim, index_dim;
    int32_t n_layers, n_kv;
    int32_t ratio[DI_MAX_LAYERS];      /* per KV source */
    size_t main_offset[DI_MAX_LAYERS]; /* in a page, per KV source */
    size_t index_offset[DI_MAX_LAYERS];
    size_t page_bytes;
    int32_t ring_slots, tail_slots;
    size_t ring_bytes; /* of one layer of one sequence */
    size_t tail_bytes; /* of one source of one sequence; 0 for ratio 1 */
};

/* quantised false stores plain floats everywhere (mode oracle with the cache quantisers off). */
void di_cache_layout_make(const struct di_config *config, const struct di_layer_plan_list *plan, bool quantised,
                          struct di_cache_layout *out);

/* Bytes of global rows per token, averaged over a page: 890 for the released model. */
double di_cache_bytes_per_token(const struct di_cache_layout *layout);
/* Private bytes of one sequence: all rings and tails. */
size_t di_cache_private_bytes(const struct di_cache_layout *layout);

#endif
