#include <math.h>

#include "core/config.h"

/* The greatest entry of an ascending list that is at most `layer`; -1 for none. Its ordinal goes to *ordinal. */
static int32_t source_of(const int32_t *ids, int32_t count, int32_t layer, int32_t *ordinal)
{
    int32_t found = -1;
    *ordinal = -1;
    for (int32_t i = 0; i < count && ids[i] <= layer; i++) {
        found = ids[i];
        *ordinal = i;
    }
    return found;
}

void di_layer_plan_derive(const struct di_config *c, struct di_layer_plan_list *plan)
{
    *plan = (struct di_layer_plan_list){.n_layers = c->num_hidden_layers, .n_kv = c->n_kv_sources};
    for (int32_t k = 0; k < c->n_kv_sources; k++) {
        plan->kv_layer[k] = c->kv_source_layer_ids[k];
        plan->kv_ratio[k] = c->compress_ratios[c->kv_source_layer_ids[k]];
    }
    int32_t candidates = c->candidate_source_layer_id;
    for (int32_t i = 0; i < c->num_hidden_layers; i++) {
        struct di_layer_plan *l = &plan->layer[i];
        int32_t ordinal, engram;
        *l = (struct di_layer_plan){.ratio = c->compress_ratios[i], .kv_source = -1, .kv_slot = -1, .index_source = -1};
        l->engram = source_of(c->engram_layer_ids, c->n_engram_layers, i, &engram) == i ? engram : -1;
        if (l->ratio == 0)
            continue;
        l->compress_rope = true;
        l->kv_source = source_of(c->kv_source_layer_ids, c->n_kv_sources, i, &l->kv_slot);
        l->index_source = source_of(c->index_source_layer_ids, c->n_index_sources, i, &ordinal);
        l->owns_kv = l->kv_source == i;
        l->owns_index = l->index_source == i;
        l->makes_candidates = candidates == i;
        l->uses_candidates = candidates >= 0 && i > candidates && l->owns_index;
    }
}

int32_t di_engram_columns(const struct di_config *c)
{
    return c->n_engram_layers == 0 ? 0 : (c->engram_max_ngram_size - 1) * c->engram_n_heads;
}

/* The dimension at which a rotation turns n times over the original context. Section 6. */
static double correction_dim(const struct di_config *c, double theta, double turns)
{
    double original = (double)c->rope_scaling.original_max_position_embeddings;
    return c->qk_rope_head_dim * log(original / (turns * 2.0 * 3.14159265358979323846)) / (2.0 * log(theta));
}

void di_rope_inv_freq(const struct di_config *c, bool compress, float *inv_freq)
{
    int32_t dim = c->qk_rope_head_dim;
    double theta = compress ? c->compress_rope_theta : c->rope_theta;
    bool yarn = compress && c->rope_scaling.present;
    double low = 0.0, high = 0.0;
    if (yarn) {
        low = floor(correction_dim(c, theta, c->rope_scaling.beta_fast));
        high = ceil(correction_dim(c, theta, c->rope_scaling.beta_slow));
        low = low < 0.0 ? 0.0 : low;
        high = high > dim - 1 ? dim - 1 : high;
    }
    for (int32_t i = 0; i < dim / 2; i++) {
        double f = pow(theta, -2.0 * i / dim);
        if (yarn) {
            double width = high == low ? 0.001 : high - low; /* as the vendor avoids the division by zero */
            double ramp = (i - low) / width;
            ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
            f = f / c->rope_scaling.factor * ramp + f * (1.0 - ramp);
        }
        inv_freq[i] = (float)f;
    }
}
