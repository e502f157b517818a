#include "core/reach.h"

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int32_t di_reach_decoder(const struct di_layer_plan_list *plan)
{
    return plan->n_kv > 0 ? plan->kv_layer[plan->n_kv - 1] : plan->n_layers;
}

/* Layers `top` - 1 down to 0, of which rows `out` and later are wanted; returns the first row that has to enter layer 0. */
static int64_t walk_down(const struct di_config *config, const struct di_layer_plan_list *plan, int32_t top,
                         int64_t out, int64_t have, struct di_reach *reach)
{
    for (int32_t l = top - 1; l >= 0; l--) {
        reach->first[l] = greater(0, out - (config->sliding_window - 1));
        out = plan->layer[l].owns_kv ? lesser(reach->first[l], have) : reach->first[l];
    }
    return out;
}

void di_reach_derive(const struct di_config *config, const struct di_layer_plan_list *plan,
                     const struct di_reach_args *args, struct di_reach *out)
{
    int32_t decoder = di_reach_decoder(plan), n = plan->n_layers;
    int64_t have = args->have, start = 0;
    *out = (struct di_reach){.floor = have};
    if (args->truncation == DI_TRUNCATION_COMPACT) {
        int64_t kept = greater(0, args->length - args->keep);
        for (int32_t l = decoder; l < n; l++)
            out->first[l] = out->low[l] = kept;
        start = walk_down(config, plan, decoder, decoder < n ? lesser(have, kept) : args->length - 1, have, out);
    } else {
        /* One row more than the result's own, so that the state after the prompt also serves a prompt of one token less. */
        start = walk_down(config, plan, n, greater(0, args->length - 2), have, out);
    }
    if (args->state >= 0) {
        start = args->state;
    } else if (args->bounded && have > 0) {
        int64_t enter = decoder < n ? lesser(have, out->first[decoder]) : have;
        start = greater(0, lesser(have - config->sliding_window, enter));
        for (int32_t l = 0; l < decoder; l++) {
            out->first[l] = start;
            out->low[l] = start;
        }
        out->approximate = start > 0;
    }
    out->start = start;
    for (int32_t l = 0; l < n; l++)
        out->first[l] = args->truncation == DI_TRUNCATION_OFF && have == 0 ? 0 : greater(out->first[l], start);
}

int64_t di_reach_row_layers(const struct di_reach *reach, int32_t n_layers, int64_t length)
{
    int64_t sum = 0;
    for (int32_t l = 0; l < n_layers; l++)
        sum += greater(0, length - greater(reach->first[l], reach->start));
    return sum;
}
