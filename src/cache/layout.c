#include "cache/layout.h"

static size_t rows_bytes(enum di_kv_format format, int32_t dim, int32_t rows)
{
    return (size_t)rows * (size_t)(di_kv_data_bytes(format, dim) + di_kv_scale_bytes(format, dim));
}

void di_cache_layout_make(const struct di_config *config, const struct di_layer_plan_list *plan, bool quantised,
                          struct di_cache_layout *out)
{
    *out = (struct di_cache_layout){
        .window_format = quantised ? DI_KV_FP8 : DI_KV_F32,
        .main_format = quantised ? DI_KV_FP4_E4M3 : DI_KV_F32,
        .index_format = quantised ? DI_KV_FP4_E8M0 : DI_KV_F32,
        .head_dim = config->head_dim,
        .index_dim = config->index_head_dim,
        .n_layers = plan->n_layers,
        .n_kv = plan->n_kv,
        .ring_slots = config->sliding_window + DI_STEP_BACK,
        .tail_slots = DI_STEP_BACK + 2,
    };
    out->ring_bytes = rows_bytes(out->window_format, out->head_dim, out->ring_slots);
    out->tail_bytes = (size_t)out->tail_slots * 2 * (size_t)out->head_dim * sizeof(float);
    for (int32_t k = 0; k < plan->n_kv; k++) {
        out->ratio[k] = plan->kv_ratio[k];
        int32_t rows = DI_PAGE_TOKENS / out->ratio[k];
        out->main_offset[k] = out->page_bytes;
        out->page_bytes += rows_bytes(out->main_format, out->head_dim, rows);
        out->index_offset[k] = out->page_bytes;
        out->page_bytes += rows_bytes(out->index_format, out->index_dim, rows);
    }
}

double di_cache_bytes_per_token(const struct di_cache_layout *layout)
{
    return (double)layout->page_bytes / (double)DI_PAGE_TOKENS;
}

size_t di_cache_private_bytes(const struct di_cache_layout *layout)
{
    size_t bytes = layout->ring_bytes * (size_t)layout->n_layers;
    for (int32_t k = 0; k < layout->n_kv; k++)
        bytes += layout->ratio[k] == 2 ? layout->tail_bytes : 0;
    return bytes;
}
