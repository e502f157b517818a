/* core/reach.h - which rows of a prompt a layer has to run: those that can still reach the result.
 *
 * A row of layer l is read by the rows up to window - 1 behind it in layer l + 1, through their windows, and by every later row
 * where a KV source makes a global entry of it. Going down from the rows whose result is wanted, each layer therefore needs
 * window - 1 rows more than the one above it, and all rows below a KV source that are not in the global caches yet
 * (spec/runtime.md sections 2.1 and 2.3). Rows that a layer runs for their window row only come to nothing that is read.
 */
#ifndef DI_CORE_REACH_H
#define DI_CORE_REACH_H

#include "core/config.h"

enum di_truncation {
    DI_TRUNCATION_OFF,   /* every layer runs every row */
    DI_TRUNCATION_EXACT, /* what cannot reach the result is left out: the same bits */
    DI_TRUNCATION_COMPACT, /* from the last KV source's attention on, the prompt's last rows only: other bits (section 2.3) */
};

struct di_reach_args {
    enum di_truncation truncation;
    int64_t keep;   /* compact: rows that go on, at least the window */
    int64_t length; /* of the prompt: >= 1 */
    int64_t have;   /* positions below are in the global caches; even, or `exact` state is at hand */
    int64_t state;  /* rings and tails are exact for this length (a snapshot; 0 for a cold start); -1: they are not */
    bool
        bounded; /* without state: replay one window before `have` with cut-off windows, instead of what exactness takes */
};

struct di_reach {
    int64_t start; /* first position to run */
    int64_t floor; /* positions below leave the global caches alone */
    int64_t first
        [DI_MAX_LAYERS]; /* layer l runs position p from its window row on if p >= first[l]; ascending over layers */
    int64_t low[DI_MAX_LAYERS]; /* its windows reach down to here; 0: to the start */
    bool approximate;           /* pages and states made downstream are not those of a cold run */
};

/* length >= 1; 0 <= have, state < length. With state >= 0: state <= have. */
void di_reach_derive(const struct di_config *config, const struct di_layer_plan_list *plan,
                     const struct di_reach_args *args, struct di_reach *out);

/* Rows that all layers run together, of positions start .. length - 1: what truncation saves. */
int64_t di_reach_row_layers(const struct di_reach *reach, int32_t n_layers, int64_t length);

/* The layer from whose attention on compact mode keeps the prompt's end only; n_layers where there is no KV source. */
int32_t di_reach_decoder(const struct di_layer_plan_list *plan);

#endif
