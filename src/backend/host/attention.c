/* Rotation, window KV and sparse attention. spec/model.md sections 6 and 7. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

enum { CHUNK = 64 }; /* keys merged at a time */

void di_host_rope(const struct di_device *dev, float *x, int32_t heads, int32_t dim, int32_t rope_dim,
                  const float *inv_freq, int32_t position, float sign)
{
    for (int32_t i = 0; i < rope_dim / 2; i++) {
        float sine, cosine, *pair = x + dim - rope_dim + 2 * (int64_t)i;
        di_host_sincos((float)position * inv_freq[i], &sine, &cosine);
        sine *= sign;
        for (int32_t h = 0; h < heads; h++, pair += dim) {
            float a = pair[0], b = pair[1];
            pair[0] = di_host_act(dev, a * cosine - b * sine);
            pair[1] = di_host_act(dev, a * sine + b * cosine);
        }
    }
}

struct rope_job {
    struct di_device *dev;
    const struct di_rope_args *a;
};

static void rope_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct rope_job *job = arg;
    const struct di_rope_args *a = job->a;
    for (int64_t at = begin; at < end; at++)
        di_host_rope(job->dev, (float *)a->x + at * a->heads * a->dim, a->heads, a->dim, a->rope_dim, a->inv_freq,
                     a->rows.position[at], 1.0F);
}

void di_host_rope_op(struct di_device *dev, const struct di_rope_args *a)
{
    struct rope_job job = {dev, a};
    di_host_elements(dev, a->rows.n, (int64_t)a->heads * a->rope_dim + 32 * a->rope_dim, rope_rows, &job);
}

void di_host_window_pack(struct di_device *dev, const struct di_window_pack_args *a)
{
    int32_t dim = a->out.dim;
    if (!di_host_reserve(dev, (size_t)dim * sizeof(float), 0))
        return;
    float *x = (void *)dev->shared;
    for (int64_t i = 0; i < a->rows.n; i++) {
        memcpy(x, (const float *)a->kv + i * dim, (size_t)dim * sizeof *x);
        di_host_rope(dev, x, 1, dim, a->rope_dim, a->inv_freq, a->rows.position[i], 1.0F);
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
static void load_key(const struct di_device *dev, const struct di_attention_args *a, int64_t i, int32_t n_window,
                     int32_t index, float *key)
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
    dev->k->unpack_key(&rows, row, key);
}

struct attention_job {
    struct di_device *dev;
    const struct di_attention_args *a;
    int32_t parts; /* groups of heads that a row is divided into */
};

/* Scratch of a member, for `heads` heads. */
struct attention_work {
    float *keys;      /* [CHUNK, dim] in the kernels' order, like queries and sums */
    float *queries;   /* [heads, dim] */
    float *sums;      /* [heads, dim] */
    float *scores;    /* [heads, CHUNK] */
    float *max, *den; /* [heads] */
};

static size_t carve(struct attention_work *w, float *memory, size_t heads, size_t dim)
{
    size_t at[6] = {0, CHUNK * dim, heads * dim, heads * dim, heads * CHUNK, heads};
    for (int i = 1; i < 6; i++)
        at[i] += at[i - 1];
    if (w != NULL)
        *w = (struct attention_work){memory,         memory + at[1], memory + at[2],
                                     memory + at[3], memory + at[4], memory + at[5]};
    return at[5] + heads;
}

DI_VECTOR static void scale_all(float *x, int32_t n, float factor)
{
    for (int32_t c = 0; c < n; c++)
        x[c] *= factor;
}

DI_VECTOR static void divide_all(float *x, int32_t n, float divisor)
{
    for (int32_t c = 0; c < n; c++)
        x[c] /= divisor;
}

/* Merges the scores of one chunk of keys into a head's running (max, denominator); they become the keys' weights. Returns what
 * the head's sum is to be multiplied by first. */
static float merge_scores(float *score, int32_t count, float scale, float *max, float *den)
{
    float top = *max;
    for (int32_t k = 0; k < count; k++) {
        score[k] *= scale;
        top = score[k] > top ? score[k] : top;
    }
    float keep = di_host_exp(*max - top);
    *den *= keep;
    for (int32_t k = 0; k < count; k++)
        score[k] -= top;
    di_host_exp_all(score, count);
    for (int32_t k = 0; k < count; k++)
        *den += score[k];
    *max = top;
    return keep;
}

/* Heads first .. first + heads - 1 of row i. */
static void attend(const struct di_device *dev, const struct di_attention_args *a, int64_t i, int32_t first,
                   int32_t heads, const struct attention_work *w)
{
    int32_t dim = a->dim, position = a->rows.position[i], n_window = di_window_keys(&a->rows, i, a->window);
    int32_t total = n_window + (a->cache.ratio != 0 ? a->n_selected[i] : 0);
    float scale = (float)(1.0 / sqrt((double)dim));
    const float *q = (const float *)a->q + (i * a->heads + first) * dim;
    memset(w->sums, 0, (size_t)heads * (size_t)dim * sizeof *w->sums);
    for (int32_t h = 0; h < heads; h++) {
        (void)dev->k->prepare(DI_RULE_F8, q + (int64_t)h * dim, dim, w->queries + (int64_t)h * dim);
        w->max[h] = -1e30F;
        w->den[h] = 0.0F;
    }
    for (int32_t at = 0; at < total; at += CHUNK) {
        int32_t count = total - at < CHUNK ? total - at : CHUNK;
        for (int32_t k = 0; k < count; k++)
            load_key(dev, a, i, n_window, at + k, w->keys + (int64_t)k * dim);
        dev->k->scores(w->queries, heads, w->keys, count, dim, w->scores, CHUNK);
        for (int32_t h = 0; h < heads; h++)
            scale_all(w->sums + (int64_t)h * dim, dim,
                      merge_scores(w->scores + (int64_t)h * CHUNK, count, scale, &w->max[h], &w->den[h]));
        dev->k->blend(w->scores, CHUNK, heads, w->keys, count, dim, w->sums);
    }
    for (int32_t h = 0; h < heads; h++) {
        float *o = (float *)a->out + (i * a->heads + first + h) * dim;
        dev->k->restore(w->sums + (int64_t)h * dim, dim, o);
        divide_all(o, dim, w->den[h] + di_host_exp(a->sink[first + h] - w->max[h]));
        di_host_acts(dev, o, dim);
    }
    di_host_rope(dev, (float *)a->out + (i * a->heads + first) * dim, heads, dim, a->rope_dim, a->inv_freq, position,
                 -1.0F);
}

static void attention_parts(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct attention_job *job = arg;
    const struct di_attention_args *a = job->a;
    struct attention_work w;
    carve(&w, (float *)(void *)job->dev->member[member], (size_t)a->heads, (size_t)a->dim);
    for (int64_t at = begin; at < end; at++) {
        int32_t part = (int32_t)(at % job->parts), first = a->heads * part / job->parts;
        attend(job->dev, a, at / job->parts, first, a->heads * (part + 1) / job->parts - first, &w);
    }
}

size_t di_host_attention_bytes(int32_t heads, int32_t dim)
{
    return carve(NULL, NULL, (size_t)heads, (size_t)dim) * sizeof(float);
}

void di_host_attention(struct di_device *dev, const struct di_attention_args *a)
{
    if (!di_host_reserve(dev, 0, di_host_attention_bytes(a->heads, a->dim)))
        return;
    /* Few rows: members share a row's heads, and each unpacks the keys for itself. */
    int32_t members = di_team_size(dev->team), parts = a->rows.n >= 2 * members ? 1 : members;
    struct attention_job job = {dev, a, parts < a->heads ? parts : a->heads};
    di_host_parallel(dev, (int64_t)a->rows.n * job.parts, attention_parts, &job);
}

void di_host_unpack_key(const struct di_kv_rows *rows, int32_t row, float *key)
{
    di_kv_unpack(rows->format, di_kv_row_data(rows, row), di_kv_row_scale(rows, row), rows->dim, key);
}

void di_host_scores(const float *queries, int32_t heads, const float *keys, int32_t count, int32_t dim, float *out,
                    int32_t out_stride)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t k = 0; k < count; k++)
            out[h * out_stride + k] = di_host_dot(queries + h * dim, keys + k * dim, dim);
}

void di_host_blend(const float *weights, int32_t stride, int32_t heads, const float *keys, int32_t count, int32_t dim,
                   float *sums)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t k = 0; k < count; k++)
            di_host_axpy(weights[h * stride + k], keys + k * dim, sums + h * dim, dim);
}

void di_host_restore(const float *x, int32_t dim, float *out)
{
    memcpy(out, x, (size_t)dim * sizeof *x);
}
