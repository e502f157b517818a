#include "ops/ops.h"

static struct di_kv_rows rows_at(uint8_t *base, int32_t count, enum di_kv_format format, int32_t dim)
{
    return (struct di_kv_rows){
        .format = format,
        .dim = dim,
        .data = base,
        .scale = base + (size_t)count * (size_t)di_kv_data_bytes(format, dim),
    };
}

struct di_kv_rows di_ring_rows(const struct di_ring_view *ring, int32_t slot)
{
    return rows_at(ring->base + (size_t)slot * ring->slot_stride, ring->ring_slots, ring->format, ring->dim);
}

static uint8_t *page_of(const struct di_paged_view *view, int32_t slot, int32_t entry, int32_t *row)
{
    int64_t page = view->table[(int64_t)slot * view->max_pages + entry / view->page_rows];
    *row = entry % view->page_rows;
    return view->pages + (size_t)page * view->page_bytes;
}

struct di_kv_rows di_paged_main_rows(const struct di_paged_view *view, int32_t slot, int32_t entry, int32_t *row)
{
    uint8_t *page = page_of(view, slot, entry, row);
    return rows_at(page + view->main_offset, view->page_rows, view->main_format, view->main_dim);
}

struct di_kv_rows di_paged_index_rows(const struct di_paged_view *view, int32_t slot, int32_t entry, int32_t *row)
{
    uint8_t *page = page_of(view, slot, entry, row);
    return rows_at(page + view->index_offset, view->page_rows, view->index_format, view->index_dim);
}

const char *di_mode_name(enum di_mode mode)
{
    return mode == DI_MODE_ORACLE ? "oracle" : mode == DI_MODE_FAST ? "fast" : "native";
}
