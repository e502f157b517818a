#include "cache/store.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

struct di_kv_store {
    const struct di_ops *ops;
    struct di_device *dev;
    struct di_cache_layout layout;
    int32_t max_seqs, n_pages, max_pages;
    struct di_pages *pool;
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
    s->owned = di_calloc((size_t)max_seqs, sizeof *s->owned);
    s->table = di_calloc((size_t)max_seqs * (size_t)max_pages_per_seq, sizeof *s->table);
    di_status status = DI_OK;
    if (s->owned == NULL || s->table == NULL)
        status = DI_FAIL_NOMEM(err, (size_t)max_seqs * (size_t)max_pages_per_seq * sizeof *s->table);
    if (status == DI_OK)
        status = di_pages_open(n_pages, &s->pool, err);
    if (status == DI_OK)
        status = alloc_device(s, err);
    if (status != DI_OK) {
        di_kv_store_close(s);
        return status;
    }
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
    di_pages_close(s->pool);
    free(s->owned);
    free(s->table);
    free(s);
}

/* The table of a slot from page `from` on goes to the device. */
static di_status upload_table(struct di_kv_store *s, int32_t slot, int32_t from, struct di_error *err)
{
    const int32_t *row = s->table + (int64_t)slot * s->max_pages;
    size_t offset = ((size_t)slot * (size_t)s->max_pages + (size_t)from) * sizeof *row;
    return s->ops->upload(s->dev, (char *)s->device_table + offset, row + from,
                          (size_t)(s->owned[slot] - from) * sizeof *row, err);
}

di_status di_kv_store_reserve(struct di_kv_store *s, int32_t slot, int64_t length, struct di_error *err)
{
    if (s->layout.n_kv == 0)
        return DI_OK;
    int64_t needed = (length + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS;
    int32_t before = s->owned[slot];
    if (needed <= before)
        return DI_OK;
    int32_t n_free = di_pages_free_count(s->pool);
    if (needed > s->max_pages || needed - before > n_free)
        return DI_FAIL(err, DI_ERR_LIMIT, "KV pages ran out: a sequence of %lld tokens needs %lld more, %d are free",
                       (long long)length, (long long)(needed - before), n_free);
    int32_t *row = s->table + (int64_t)slot * s->max_pages;
    while (s->owned[slot] < needed)
        row[s->owned[slot]++] = di_pages_take(s->pool);
    return upload_table(s, slot, before, err);
}

di_status di_kv_store_adopt(struct di_kv_store *s, int32_t slot, const int32_t *pages, int32_t n, struct di_error *err)
{
    if (n > s->max_pages || s->owned[slot] != 0)
        return DI_FAIL(err, DI_ERR_INTERNAL, "slot %d with %d pages cannot adopt %d of %d", slot, s->owned[slot], n,
                       s->max_pages);
    int32_t *row = s->table + (int64_t)slot * s->max_pages;
    for (int32_t i = 0; i < n; i++) {
        di_pages_hold(s->pool, pages[i]);
        row[i] = pages[i];
    }
    s->owned[slot] = n;
    return upload_table(s, slot, 0, err);
}

void di_kv_store_release(struct di_kv_store *s, int32_t slot)
{
    int32_t *row = s->table + (int64_t)slot * s->max_pages;
    while (s->owned[slot] > 0)
        di_pages_drop(s->pool, row[--s->owned[slot]]);
}

const int32_t *di_kv_store_pages(const struct di_kv_store *s, int32_t slot, int32_t *n)
{
    *n = s->owned[slot];
    return s->table + (int64_t)slot * s->max_pages;
}

struct di_pages *di_kv_store_pool(const struct di_kv_store *s)
{
    return s->pool;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * State of a slot. */

static bool has_tail(const struct di_kv_store *s, int32_t k)
{
    return s->layout.ratio[k] == 2;
}

size_t di_kv_store_state_bytes(const struct di_kv_store *s, const struct di_kv_state *what)
{
    size_t bytes = (size_t)what->n_layers * s->layout.ring_bytes + (size_t)what->n_pages * s->layout.page_bytes;
    for (int32_t k = 0; k < s->layout.n_kv; k++)
        bytes += has_tail(s, k) ? s->layout.tail_bytes : 0;
    return bytes;
}

/* One piece of a slot's state: the device's side, the host's, and which way. */
static void move_piece(const struct di_kv_store *s, void *device, char **host, size_t bytes, bool out)
{
    if (out)
        s->ops->copy(s->dev, *host, device, bytes);
    else
        s->ops->copy(s->dev, device, *host, bytes);
    *host += bytes;
}

static void move_state(const struct di_kv_store *s, int32_t slot, const struct di_kv_state *what, char *host, bool out)
{
    const size_t at = (size_t)slot;
    const int32_t *row = s->table + (int64_t)slot * s->max_pages;
    for (int32_t layer = 0; layer < what->n_layers; layer++)
        move_piece(s, (char *)s->rings[layer] + at * s->layout.ring_bytes, &host, s->layout.ring_bytes, out);
    for (int32_t k = 0; k < s->layout.n_kv; k++)
        if (has_tail(s, k))
            move_piece(s, (char *)s->tails[k] + at * s->layout.tail_bytes, &host, s->layout.tail_bytes, out);
    for (int32_t i = what->first_page; i < what->first_page + what->n_pages; i++)
        move_piece(s, (char *)s->pages + (size_t)row[i] * s->layout.page_bytes, &host, s->layout.page_bytes, out);
}

void di_kv_store_save(const struct di_kv_store *s, int32_t slot, const struct di_kv_state *what, void *memory)
{
    move_state(s, slot, what, memory, true);
}

void di_kv_store_load(const struct di_kv_store *s, int32_t slot, const struct di_kv_state *what, const void *memory)
{
    move_state(s, slot, what, (char *)(uintptr_t)memory, false);
}

bool di_kv_store_audit(const struct di_kv_store *s, char *why, size_t why_size)
{
    for (int32_t slot = 0; slot < s->max_seqs; slot++) {
        const int32_t *row = s->table + (int64_t)slot * s->max_pages;
        for (int32_t i = 0; i < s->owned[slot]; i++) {
            if (di_pages_refs(s->pool, row[i]) < 1) {
                snprintf(why, why_size, "slot %d: page %d at %d has no reference", slot, row[i], i);
                return false;
            }
            for (int32_t j = 0; j < i; j++)
                if (row[j] == row[i]) {
                    snprintf(why, why_size, "slot %d: page %d stands at %d and %d", slot, row[i], j, i);
                    return false;
                }
        }
    }
    return di_pages_audit(s->pool, why, why_size);
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
