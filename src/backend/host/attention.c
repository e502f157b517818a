/* Rotation, window KV and sparse attention. spec/model.md sections 6 and 7. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

enum { CHUNK = 64 }; /* keys merged at a time */

void di_host_rope(const struct di_device *dev, float *x, int32_t dim, int32_t rope_dim, const float *inv_freq,
                  int32_t position, float sign)
{
    float *pair = x + dim - rope_dim;
    for (int32_t i = 0; i < rope_dim / 2; i++, pair += 2) {
        float sine, cosine;
        di_host_sincos((float)position * inv_freq[i], &sine, &cosine);
        sine *= sign;
        float a = pair[0], b = pair[1];
        pair[0] = di_host_act(dev, a * cosine - b * sine);
        pair[1] = di_host_act(dev, a * sine + b * cosine);
    }
}

void di_host_rope_op(struct di_device *dev, const struct di_rope_args *a)
{
    for (int64_t i = 0; i < a->rows.n; i++)
        for (int32_t h = 0; h < a->heads; h++)
            di_host_rope(dev, (float *)a->x + (i * a->heads + h) * a->dim, a->dim, a->rope_dim, a->inv_freq,
                         a->rows.position[i], 1.0F);
}

void di_host_window_pack(struct di_device *dev, const struct di_window_pack_args *a)
{
    int32_t dim = a->out.dim;
    if (!di_host_reserve(dev, (size_t)dim * sizeof(float), 0))
        return;
    float *x = (void *)dev->shared;
    for (int64_t i = 0; i < a->rows.n; i++) {
        memcpy(x, (const float *)a->kv + i * dim, (size_t)dim * sizeof *x);
        di_host_rope(dev, x, dim, a->rope_dim, a->inv_freq, a->rows.position[i], 1.0F);
        di_kv_pack(a->out.format, x, dim, di_kv_row_data(&a->out, i), di_kv_row_scale(&a->out, i));
    }
}

void di_host_window_store(struct di_device *dev, const struct di_window_store_args *a)
{
    (void)dev;
    size_t data = (size_t)di_kv_data_bytes(a->in.format, a->in.dim);
    size_t scale = (size_t)di_kv_scale_bytes(a->in.format, a->in.dim);
    for (int64_t i = 0; i < a->rows.n; i++) { /* ascending: of rows that share a ring row the last one stays */
        struct di_kv_rows ring = di_ring_rows(&a->ring, a->rows.slot[i]);
        int32_t row = a->rows.position[i] % a->ring.ring_slots;
        memcpy(di_kv_row_data(&ring, row), di_kv_row_data(&a->in, i), data);
        memcpy(di_kv_row_scale(&ring, row), di_kv_row_scale(&a->in, i), scale);
    }
}

/* The keys of one row in their fixed order: window by ascending position, then selected entries. */
static void load_key(const struct di_attention_args *a, int64_t i, int32_t n_window, int32_t index, float *key)
{
    struct di_kv_rows rows;
    int32_t row, position = a->rows.position[i], slot = a->rows.slot[i];
    if (index < n_window) {
        int32_t at = position - n_window + 1 + index, back = position - at;
        if (i - back >= a->rows.first[i]) { /* of this step */
            rows = a->step;
            row = (int32_t)(i - back);
        } else {
            rows = di_ring_rows(&a->ring, slot);
            row = at % a->ring.ring_slots;
        }
    } else {
        int32_t entry = a->selected[i * a->topk + index - n_window];
        rows = di_paged_main_rows(&a->cache, slot, entry, &row);
    }
    di_kv_unpack(rows.format, di_kv_row_data(&rows, row), di_kv_row_scale(&rows, row), a->dim, key);
}

struct attention_job {
    struct di_device *dev;
    const struct di_attention_args *a;
};

/* Merges one chunk of keys into the running (max, denominator, sum) of one head. */
static void merge_chunk(const struct di_device *dev, const float *q, const float *keys, int32_t count, int32_t dim,
                        float scale, float *max, float *den, float *sum)
{
    float score[CHUNK], top = *max;
    for (int32_t k = 0; k < count; k++) {
        score[k] = dev->k->dot(q, keys + (int64_t)k * dim, dim) * scale;
        top = score[k] > top ? score[k] : top;
    }
    float keep = di_host_exp(*max - top);
    *den *= keep;
    for (int32_t c = 0; c < dim; c++)
        sum[c] *= keep;
    for (int32_t k = 0; k < count; k++) {
        float p = di_host_exp(score[k] - top);
        *den += p;
        dev->k->axpy(p, keys + (int64_t)k * dim, sum, dim);
    }
    *max = top;
}

static void attention_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct attention_job *job = arg;
    const struct di_attention_args *a = job->a;
    struct di_device *dev = job->dev;
    int32_t dim = a->dim, heads = a->heads;
    float *keys = (void *)dev->member[member];
    float *sum = keys + (int64_t)CHUNK * dim, *max = sum + (int64_t)heads * dim, *den = max + heads;
    float scale = (float)(1.0 / sqrt((double)dim));
    for (int64_t i = begin; i < end; i++) {
        int32_t position = a->rows.position[i];
        int32_t n_window = position + 1 < a->window ? position + 1 : a->window;
        int32_t total = n_window + (a->cache.ratio != 0 ? a->n_selected[i] : 0);
        const float *q = (const float *)a->q + i * heads * dim;
        float *out = (float *)a->out + i * heads * dim;
        memset(sum, 0, (size_t)heads * (size_t)dim * sizeof *sum);
        for (int32_t h = 0; h < heads; h++) {
            max[h] = -1e30F;
            den[h] = 0.0F;
        }
        for (int32_t at = 0; at < total; at += CHUNK) {
            int32_t count = total - at < CHUNK ? total - at : CHUNK;
            for (int32_t k = 0; k < count; k++)
                load_key(a, i, n_window, at + k, keys + (int64_t)k * dim);
            for (int32_t h = 0; h < heads; h++)
                merge_chunk(dev, q + (int64_t)h * dim, keys, count, dim, scale, &max[h], &den[h],
                            sum + (int64_t)h * dim);
        }
        for (int32_t h = 0; h < heads; h++) {
            float *o = out + (int64_t)h * dim, d = den[h] + di_host_exp(a->sink[h] - max[h]);
            for (int32_t c = 0; c < dim; c++)
                o[c] = di_host_act(dev, sum[(int64_t)h * dim + c] / d);
            di_host_rope(dev, o, dim, a->rope_dim, a->inv_freq, position, -1.0F);
        }
    }
}

void di_host_attention(struct di_device *dev, const struct di_attention_args *a)
{
    size_t floats = ((size_t)CHUNK + (size_t)a->heads) * (size_t)a->dim + 2 * (size_t)a->heads;
    if (!di_host_reserve(dev, 0, floats * sizeof(float)))
        return;
    struct attention_job job = {dev, a};
    di_host_parallel(dev, a->rows.n, attention_rows, &job);
}
