/* config.json, from any bytes; a config that passes must give a plan without surprises. */
#include <stdlib.h>

#include "cache/layout.h"
#include "checkpoint/checkpoint.h"
#include "core/engram.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct di_config config;
    static struct di_layer_plan_list plan;
    static float inv_freq[1024];
    struct di_cache_layout layout;
    struct di_error err = {0};
    if (di_config_parse((const char *)data, size, "fuzz", &config, &err) != DI_OK)
        return 0;
    di_layer_plan_derive(&config, &plan);
    for (int32_t i = 0; i < plan.n_layers; i++)
        if (plan.layer[i].ratio != 0 && (plan.layer[i].kv_slot < 0 || plan.layer[i].index_source < 0))
            abort();
    di_rope_inv_freq(&config, true, inv_freq);
    di_cache_layout_make(&config, &plan, true, &layout);
    return 0;
}
