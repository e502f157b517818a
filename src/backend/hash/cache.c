/* What goes into the caches, and attention, which reads them. */
#include "backend/hash/operations.h"
#include "backend/hash/words.h"

void di_hash_window_pack(struct di_device *dev, const struct di_window_pack_args *a)
{
    (void)dev;
    uint64_t table = di_hash_rope_table(a->inv_freq, a->rope_dim);
    for (int64_t i = 0; i < a->rows.n; i++)
        di_hash_put_packed(&a->out, i,
                           di_hash_of(DI_HASH_WINDOW_PACK, table, (uint64_t)a->rows.position[i],
                                      di_hash_get(a->kv, i, a->out.dim), 0));
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Compressed entries. */

static float *tail_row(const struct di_tail_view *tail, int32_t slot, int32_t position)
{
    return tail->base + ((int64_t)slot * tail->tail_slots + position % tail->tail_slots) * 2 * tail->dim;
}

void di_hash_compress(struct di_device *dev, const struct di_compress_args *a)
{
    (void)dev;
    int32_t dim = a->tail.dim;
    for (int64_t i = 0; i < a->rows.n; i++) {
        int32_t position = a->rows.position[i];
        uint64_t value = 0;
        if (position % 2 == 1) {
            bool in_step = i > a->rows.first[i];
            const float *tail = tail_row(&a->tail, a->rows.slot[i], position - 1);
            uint64_t v0 = in_step ? di_hash_get_floats(a->value, i - 1, dim) : di_hash_get_floats(tail, 0, dim);
            uint64_t g0 = in_step ? di_hash_get_floats(a->gate, i - 1, dim) : di_hash_get_floats(tail, 1, dim);
            uint64_t before = di_hash_item((uint64_t)position - 1, v0 + g0 * (3 * DI_HASH_K));
            value = di_hash_of(DI_HASH_COMPRESS, (uint64_t)position, before, di_hash_get_floats(a->value, i, dim),
                               di_hash_get_floats(a->gate, i, dim));
        }
        di_hash_put(a->out, i, dim, value);
    }
    for (int64_t i = 0; i < a->rows.n; i++) {
        float *tail = tail_row(&a->tail, a->rows.slot[i], a->rows.position[i]);
        memcpy(tail, a->value + i * dim, (size_t)dim * sizeof *tail);
        memcpy(tail + dim, a->gate + i * dim, (size_t)dim * sizeof *tail);
    }
}

/* The value of row i as an entry of the cache; false where the row completes none. */
static bool entry_of(enum di_hash_op op, const struct di_rows *rows, int64_t i, int32_t ratio, uint64_t table,
                     const void *in, int32_t dim, int32_t *entry, uint64_t *value)
{
    int32_t position = rows->position[i];
    *entry = position / ratio;
    if ((position + 1) % ratio != 0 || (rows->floor != NULL && position < rows->floor[i]))
        return false;
    *value = di_hash_of(op, table, (uint64_t)*entry * (uint64_t)ratio, di_hash_get(in, i, dim), 0);
    return true;
}

void di_hash_kv_append(struct di_device *dev, const struct di_kv_append_args *a)
{
    (void)dev;
    uint64_t table = di_hash_rope_table(a->inv_freq, a->rope_dim), value;
    int32_t entry, row;
    for (int64_t i = 0; i < a->rows.n; i++)
        if (entry_of(DI_HASH_KV_APPEND, &a->rows, i, a->cache.ratio, table, a->latent, a->cache.main_dim, &entry,
                     &value)) {
            struct di_kv_rows page = di_paged_main_rows(&a->cache, a->rows.slot[i], entry, &row);
            di_hash_put_packed(&page, row, value);
        }
}

void di_hash_index_append(struct di_device *dev, const struct di_index_append_args *a)
{
    (void)dev;
    uint64_t table = di_hash_rope_table(a->inv_freq, a->rope_dim), value;
    int32_t entry, row;
    for (int64_t i = 0; i < a->rows.n; i++)
        if (entry_of(DI_HASH_INDEX_APPEND, &a->rows, i, a->cache.ratio, table, a->key, a->cache.index_dim, &entry,
                     &value)) {
            struct di_kv_rows page = di_paged_index_rows(&a->cache, a->rows.slot[i], entry, &row);
            di_hash_put_packed(&page, row, value);
        }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Attention. Keys are added up as items of their positions, so that neither the order nor the place in the batch counts. */

/* Window rows of row i: of this step from the sequence's first row on, of the ring before. */
static uint64_t window_keys(const struct di_attention_args *a, int64_t i, struct di_hash_packed size)
{
    int32_t position = a->rows.position[i];
    int32_t n_window = di_window_keys(&a->rows, i, a->window);
    struct di_kv_rows ring = di_ring_rows(&a->ring, a->rows.slot[i]);
    int64_t in_step = i - a->rows.first[i]; /* earlier rows of this step */
    int32_t at = position - n_window + 1, row = at % a->ring.ring_slots;
    uint64_t sum = 0;
    for (; at <= position; at++) {
        int32_t back = position - at;
        uint64_t key = back <= in_step ? di_hash_get_packed(size, a->step.data, a->step.scale, i - back)
                                       : di_hash_get_packed(size, ring.data, ring.scale, row);
        sum += di_hash_item((uint64_t)at, key);
        row = row + 1 == a->ring.ring_slots ? 0 : row + 1;
    }
    return sum;
}

/* Selected entries of row i, with the index keys that led to them. */
static uint64_t selected_entries(const struct di_attention_args *a, int64_t i)
{
    const int32_t *selected = a->selected + i * a->topk;
    struct di_hash_reader main = di_hash_reader(&a->cache, a->rows.slot[i], false);
    struct di_hash_reader index = di_hash_reader(&a->cache, a->rows.slot[i], true);
    uint64_t sum = 0;
    for (int32_t k = 0; k < a->n_selected[i]; k++)
        sum += di_hash_item((uint64_t)selected[k],
                            di_hash_read(&main, selected[k]) + di_hash_read(&index, selected[k]) * (13 * DI_HASH_K));
    return sum;
}

void di_hash_attention(struct di_device *dev, const struct di_attention_args *a)
{
    (void)dev;
    int64_t width = (int64_t)a->heads * a->dim;
    struct di_hash_packed size = di_hash_packed(a->ring.format, a->ring.dim);
    uint64_t constants = di_hash_rope_table(a->inv_freq, a->rope_dim) +
                         di_hash_get_floats(a->sink, 0, a->heads) * (3 * DI_HASH_K);
    for (int64_t i = 0; i < a->rows.n; i++) {
        uint64_t own = constants + (uint64_t)a->rows.position[i] * (5 * DI_HASH_K);
        di_hash_put(a->out, i, width,
                    di_hash_of(DI_HASH_ATTENTION, own, di_hash_get(a->q, i, width), window_keys(a, i, size),
                               a->cache.ratio != 0 ? selected_entries(a, i) : 0));
    }
}
