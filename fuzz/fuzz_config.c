/* Fuzzes config.json: from what validates, the layer plan, the rotation tables, Engram's constants and the cache layout must
 * follow. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "cache/layout.h"
#include "checkpoint/checkpoint.h"
#include "core/engram.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_plan(const struct di_config *c, const struct di_layer_plan_list *plan)
{
    for (int32_t i = 0; i < plan->n_layers; i++) {
        const struct di_layer_plan *l = &plan->layer[i];
        if (l->ratio == 0) {
            if (l->kv_source != -1 || l->index_source != -1 || l->owns_kv || l->owns_index || l->uses_candidates)
                abort();
            continue;
        }
        if (l->kv_source < 0 || l->kv_source > i || l->index_source < l->kv_source || l->index_source > i ||
            plan->kv_layer[l->kv_slot] != l->kv_source || plan->kv_ratio[l->kv_slot] != l->ratio ||
            plan->layer[l->index_source].kv_source != l->kv_source)
            abort();
        if (l->uses_candidates && plan->layer[c->candidate_source_layer_id].kv_source != l->kv_source)
            abort();
    }
}

static void check_tables(const struct di_config *c)
{
    float inv_freq[512]; /* head_dim is at most 1024 */
    for (int compress = 0; compress < 2; compress++) {
        di_rope_inv_freq(c, compress != 0, inv_freq);
        for (int32_t i = 0; i < c->qk_rope_head_dim / 2; i++)
            if (!isfinite(inv_freq[i]) || inv_freq[i] < 0.0F)
                abort();
    }
    for (int32_t t = 0; t < c->n_engram_layers; t++) {
        struct di_engram_consts consts;
        int32_t window[DI_MAX_NGRAM];
        int64_t ids[DI_MAX_ENGRAM_COLUMNS];
        if (di_engram_consts_derive(c, t, &consts, NULL) != DI_OK)
            abort();
        for (int32_t i = 0; i < DI_MAX_NGRAM; i++)
            window[i] = c->engram_compressed_vocab_size - 1;
        di_engram_hash(&consts, c->engram_max_ngram_size, c->engram_n_heads, window, 0, ids);
        for (int32_t i = 0; i < consts.columns; i++)
            if (ids[i] < consts.offsets[i] || ids[i] >= consts.offsets[i] + consts.primes[i])
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct di_layer_plan_list plan;
    struct di_config config;
    struct di_error err = {0};
    di_status status = di_config_parse((const char *)data, size, "fuzz/config.json", &config, &err);
    if (status == DI_OK) {
        di_layer_plan_derive(&config, &plan);
        check_plan(&config, &plan);
        check_tables(&config);
        struct di_cache_layout layout;
        for (int packed = 0; packed < 2; packed++) /* its sums must not overflow at the bounds of validation */
            di_cache_layout_make(&config, &plan, packed != 0, &layout);
    } else if (err.code != status || err.message[0] == '\0') {
        abort();
    }
    return 0;
}
