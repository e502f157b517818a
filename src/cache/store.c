#include "cache/store.h"

#include <stdlib.h>

#include "base/mem.h"

struct di_kv_store {
    const struct di_ops *ops;
    struct di_device *dev;
    struct di_cache_layout layout;
    int32_t max_seqs, n_pages, max_pages;
    int32_t *free_pages; /* stack, n_free of them */
    int32_t n_free;
    int32_t *table; /* [max_seqs, max_pages], host copy */
    int32_t *owned; /* [max_seqs] pages in a slot's table */
    /* device memory */
    void *pages, *device_table;
    void *rings[DI_MAX_LAYERS]; /* [max_seqs] rings */
    void *tails[DI_MAX_LAYERS]; /* per KV source, NULL for ratio 1 */
};

static di_status alloc_device(struct di_kv_store *s, struct di_error *err)
{
    size_t bytes;
    size_t seqs = (size_t)s->max_seqs;
    if (s->layout.n_kv != 0) {
        if (!di_mul_size((size_t)s->n_pages, s->layout.page_bytes, &bytes))
            return DI_FAIL(err, DI_ERR_LIMIT, "%d KV pages of %zu bytes: more than can be addressed", s->n_pages,
                           s->layout.page_bytes);
        DI_TRY(s->ops->alloc(s->dev, bytes, &s->pages, err));
        DI_TRY(s->ops->alloc(s->dev, seqs * (size_t)s->max_pages * sizeof(int32_t), &s->device_table, err));
    }
    for (int32_t layer = 0; layer < s->layout.n_layers; layer++)
        DI_TRY(s->ops->alloc(s->dev, seqs * s->layout.ring_bytes, &s->rings[layer], err));
    for (int32_t k = 0; k < s->layout.n_kv; k++)
        if (s->layout.ratio[k] == 2)
            DI_TRY(s->ops->alloc(s->dev, seqs * s->layout.tail_bytes, &s->tails[k], err));
    return DI_OK;
}

di_status di_kv_store_open(const struct di_ops *ops, struct di_device *dev, const struct di_cache_layout *layout,
                           int32_t max_seqs, int32_t n_pages, int32_t max_pages_per_seq, struct di_kv_store **out,
                           struct di_error *err)
{
    *out = NULL;
    struct di_kv_store *s = di_calloc(1, sizeof *s);
    if (s == NULL)
        return DI_FAIL_NOMEM(err, sizeof *s);
    s->ops = ops;
    s->dev = dev;
    s->layout = *layout;
    s->max_seqs = max_seqs;
    s->n_pages = n_pages;
    s->max_pages = max_pages_per_seq;
    s->free_pages = di_calloc((size_t)n_pages, sizeof *s->free_pages);
    s->owned = di_calloc((size_t)max_seqs, sizeof *s->owned);
    s->table = di_calloc((size_t)max_seqs * (size_t)max_pages_per_seq, sizeof *s->table);
    di_status status = DI_OK;
    if (s->free_pages == NULL || s->owned == NULL || s->table == NULL)
        status = DI_FAIL_NOMEM(err, (size_t)n_pages * sizeof *s->free_pages);
    else
        status = alloc_device(s, err);
    if (status != DI_OK) {
        di_kv_store_close(s);
        return status;
    }
    for (int32_t i = 0; i < n_pages; i++) /* popped from the end: page 0 first */
        s->free_pages[s->n_free++] = n_pages - 1 - i;
    *out = s;
    return DI_OK;
}

void di_kv_store_close(struct di_kv_store *s)
{
    if (s == NULL)
        return;
    s->ops->release(s->dev, s->pages);
    s->ops->release(s->dev, s->device_table);
    for (int32_t layer = 0; layer < s->layout.n_layers; layer++)
        s->ops->release(s->dev, s->rings[layer]);
    for (int32_t k = 0; k < s->layout.n_kv; k++)
        s->ops->release(s->dev, s->tails[k]);
    free(s->free_pages);
    free(s->owned);
    free(s->table);
    free(s);
}

di_status di_kv_store_reserve(struct di_kv_store *s, int32_t slot, int64_t length, struct di_error *err)
{
    if (s->layout.n_kv == 0)
        return DI_OK;
    int64_t needed = (length + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS;
    int32_t before = s->owned[slot];
    if (needed <= before)
        return DI_OK;
    if (needed > s->max_pages || needed - before > s->n_free)
        return DI_FAIL(err, DI_ERR_LIMIT, "KV pages ran out: a sequence of %lld tokens needs %lld more, %d are free",
                       (long long)length, (long long)(needed - before), s->n_free);
    int32_t *row = s->table + (int64_t)slot * s->max_pages;
    while (s->owned[slot] < needed)
        row[s->owned[slot]++] = s->free_pages[--s->n_free];
    size_t offset = ((size_t)slot * (size_t)s->max_pages + (size_t)before) * sizeof *row;
    return s->ops->upload(s->dev, (char *)s->device_table + offset, row + before,
                          (size_t)(needed - before) * sizeof *row, err);
}

void di_kv_store_release(struct di_kv_store *s, int32_t slot)
{
    int32_t *row = s->table + (int64_t)slot * s->max_pages;
    while (s->owned[slot] > 0)
        s->free_pages[s->n_free++] = row[--s->owned[slot]];
}

struct di_ring_view di_kv_store_ring(const struct di_kv_store *s, int32_t layer)
{
    return (struct di_ring_view){
        .format = s->layout.window_format,
        .dim = s->layout.head_dim,
        .ring_slots = s->layout.ring_slots,
        .base = s->rings[layer],
        .slot_stride = s->layout.ring_bytes,
    };
}

struct di_paged_view di_kv_store_paged(const struct di_kv_store *s, int32_t kv_slot)
{
    return (struct di_paged_view){
        .ratio = s->layout.ratio[kv_slot],
        .page_rows = DI_PAGE_TOKENS / s->layout.ratio[kv_slot],
        .pages = s->pages,
        .page_bytes = s->layout.page_bytes,
        .main_offset = s->layout.main_offset[kv_slot],
        .index_offset = s->layout.index_offset[kv_slot],
        .main_format = s->layout.main_format,
        .index_format = s->layout.index_format,
        .main_dim = s->layout.head_dim,
        .index_dim = s->layout.index_dim,
        .table = s->device_table,
        .max_pages = s->max_pages,
    };
}

struct di_tail_view di_kv_store_tail(const struct di_kv_store *s, int32_t kv_slot)
{
    return (struct di_tail_view){
        .dim = s->layout.head_dim,
        .tail_slots = s->layout.tail_slots,
        .base = s->tails[kv_slot],
    };
}

static di_status read_row(const struct di_kv_store *s, const struct di_kv_rows *rows, int32_t row, float *out,
                          struct di_error *err)
{
    uint8_t data[4096], scale[256]; /* index_head_dim and head_dim are at most 1024 */
    DI_TRY(s->ops->download(s->dev, data, di_kv_row_data(rows, row), (size_t)di_kv_data_bytes(rows->format, rows->dim),
                            err));
    DI_TRY(s->ops->download(s->dev, scale, di_kv_row_scale(rows, row),
                            (size_t)di_kv_scale_bytes(rows->format, rows->dim), err));
    di_kv_unpack(rows->format, data, scale, rows->dim, out);
    return DI_OK;
}

di_status di_kv_store_read(const struct di_kv_store *s, int32_t kv_slot, int32_t slot, int32_t entry, float *main,
                           float *index, struct di_error *err)
{
    struct di_paged_view view = di_kv_store_paged(s, kv_slot);
    int32_t row;
    view.table = s->table; /* addresses are computed here, on the host */
    struct di_kv_rows rows = di_paged_main_rows(&view, slot, entry, &row);
    DI_TRY(read_row(s, &rows, row, main, err));
    rows = di_paged_index_rows(&view, slot, entry, &row);
    return read_row(s, &rows, row, index, err);
}
