/* Compressor and indexer: pooling, entries, keys, scores, selections. spec/model.md sections 8 and 9. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

static float *tail_row(const struct di_tail_view *tail, int32_t slot, int32_t position)
{
    return tail->base + ((int64_t)slot * tail->tail_slots + position % tail->tail_slots) * 2 * tail->dim;
}

void di_host_compress(struct di_device *dev, const struct di_compress_args *a)
{
    int32_t dim = a->tail.dim;
    for (int64_t i = 0; i < a->rows.n; i++) {
        float *out = (float *)a->out + i * dim;
        int32_t position = a->rows.position[i];
        memset(out, 0, (size_t)dim * sizeof *out);
        if (position % 2 == 0)
            continue;
        bool in_step = i > a->rows.first[i];
        const float *tail = tail_row(&a->tail, a->rows.slot[i], position - 1);
        const float *v0 = in_step ? a->value + (i - 1) * dim : tail, *v1 = a->value + i * dim;
        const float *g0 = in_step ? a->gate + (i - 1) * dim : tail + dim, *g1 = a->gate + i * dim;
        for (int32_t c = 0; c < dim; c++) {
            float max = g0[c] > g1[c] ? g0[c] : g1[c];
            float e0 = di_host_exp(g0[c] - max), e1 = di_host_exp(g1[c] - max), sum = e0 + e1;
            out[c] = di_host_act(dev, fmaf(e1 / sum, v1[c], e0 / sum * v0[c]));
        }
    }
    for (int64_t i = 0; i < a->rows.n; i++) {
        float *tail = tail_row(&a->tail, a->rows.slot[i], a->rows.position[i]);
        memcpy(tail, a->value + i * dim, (size_t)dim * sizeof *tail);
        memcpy(tail + dim, a->gate + i * dim, (size_t)dim * sizeof *tail);
    }
}

/* Rotates at the group's first position and packs, for every row that completes a group. */
static void append(struct di_device *dev, const struct di_rows *rows, const struct di_paged_view *cache, bool index_key,
                   const float *in, int32_t rope_dim, const float *inv_freq)
{
    int32_t dim = index_key ? cache->index_dim : cache->main_dim;
    if (!di_host_reserve(dev, (size_t)dim * sizeof(float), 0))
        return;
    float *x = (void *)dev->shared;
    for (int64_t i = 0; i < rows->n; i++) {
        int32_t position = rows->position[i], row;
        if ((position + 1) % cache->ratio != 0 || (rows->floor != NULL && position < rows->floor[i]))
            continue;
        int32_t entry = position / cache->ratio;
        memcpy(x, in + i * dim, (size_t)dim * sizeof *x);
        di_host_rope(dev, x, 1, dim, rope_dim, inv_freq, entry * cache->ratio, 1.0F);
        struct di_kv_rows page = index_key ? di_paged_index_rows(cache, rows->slot[i], entry, &row)
                                           : di_paged_main_rows(cache, rows->slot[i], entry, &row);
        di_kv_pack(page.format, x, dim, di_kv_row_data(&page, row), di_kv_row_scale(&page, row));
    }
}

void di_host_kv_append(struct di_device *dev, const struct di_kv_append_args *a)
{
    append(dev, &a->rows, &a->cache, false, a->latent, a->rope_dim, a->inv_freq);
}

void di_host_index_append(struct di_device *dev, const struct di_index_append_args *a)
{
    append(dev, &a->rows, &a->cache, true, a->key, a->rope_dim, a->inv_freq);
}

void di_host_index_query(struct di_device *dev, const struct di_index_query_args *a)
{
    for (int64_t i = 0; i < a->rows.n; i++)
        for (int32_t h = 0; h < a->heads; h++) {
            float *q = (float *)a->q + (i * a->heads + h) * a->dim;
            di_host_rope(dev, q, 1, a->dim, a->rope_dim, a->inv_freq, a->rows.position[i], 1.0F);
            di_kv_fakequant(a->format, q, a->dim);
        }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Selection: greatest first, ties to the lowest index; -inf and NaN are never taken. */

struct candidate {
    float value;
    int32_t index;
};

static int better_first(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int by_index(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return a < b ? -1 : a > b;
}

/* Puts the worst of the heap's n candidates back to its root after the root has changed. */
static void sink_root(struct candidate *heap, int32_t n)
{
    int32_t at = 0;
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && better_first(&heap[child + 1], &heap[child]) > 0)
            child++;
        if (better_first(&heap[child], &heap[at]) < 0)
            return;
        struct candidate swapped = heap[at];
        heap[at] = heap[child];
        heap[child] = swapped;
        at = child;
    }
}

/* Writes the indices of the k greatest values, ascending, padded with -1; returns how many. One pass over the values, past a heap
 * of the k + 1 best so far, the worst at its root (one more than wanted, for the margin). work: [min(n, k + 1)] */
static int32_t select_top(const float *values, int32_t n, int32_t k, struct candidate *work, int32_t *out,
                          float *margin)
{
    int32_t count = 0;
    for (int32_t j = 0; j < n; j++) {
        struct candidate c = {values[j], j};
        if (!(values[j] > -INFINITY))
            continue;
        if (count <= k) {
            int32_t at = count++;
            for (; at > 0 && better_first(&c, &work[(at - 1) / 2]) > 0; at = (at - 1) / 2)
                work[at] = work[(at - 1) / 2];
            work[at] = c;
        } else if (values[j] > work[0].value) { /* equal ones lose to the lower index */
            work[0] = c;
            sink_root(work, count);
        }
    }
    qsort(work, (size_t)count, sizeof *work, better_first);
    int32_t kept = count < k ? count : k;
    for (int32_t j = 0; j < k; j++)
        out[j] = j < kept ? work[j].index : -1;
    qsort(out, (size_t)kept, sizeof *out, by_index);
    if (margin != NULL)
        *margin = count > k ? work[k - 1].value - work[k].value : INFINITY;
    return kept;
}

enum { KEYS = 64 }; /* unpacked at a time */

/* Scores of entries [begin, end) of row i. */
static void score_entries(const struct di_device *dev, const struct di_index_select_args *a, int64_t i, int32_t begin,
                          int32_t end, float *work, float *scores)
{
    int32_t dim = a->cache.index_dim, heads = a->heads;
    const float *q = (const float *)a->q + i * heads * dim, *weight = (const float *)a->weight + i * heads;
    float *queries = work, *keys = queries + (int64_t)heads * dim, *products = keys + (int64_t)KEYS * dim;
    float scale = (float)(1.0 / sqrt((double)dim) / sqrt((double)heads));
    for (int32_t h = 0; h < heads; h++)
        (void)dev->k->prepare(DI_RULE_F8, q + (int64_t)h * dim, dim, queries + (int64_t)h * dim);
    for (int32_t at = begin; at < end; at += KEYS) {
        int32_t count = end - at < KEYS ? end - at : KEYS;
        for (int32_t k = 0; k < count; k++) {
            int32_t row;
            struct di_kv_rows page = di_paged_index_rows(&a->cache, a->rows.slot[i], at + k, &row);
            dev->k->unpack_key(&page, row, keys + (int64_t)k * dim);
        }
        dev->k->scores(queries, heads, keys, count, dim, products, KEYS);
        for (int32_t k = 0; k < count; k++)
            scores[at + k] = 0.0F;
        for (int32_t h = 0; h < heads; h++)
            for (int32_t k = 0; k < count; k++) {
                float s = products[h * KEYS + k];
                scores[at + k] = fmaf(weight[h], s > 0.0F ? s : 0.0F, scores[at + k]);
            }
        for (int32_t k = 0; k < count; k++)
            scores[at + k] *= scale;
    }
}

/* Block scores are the greatest of their visible entries; the newest block is always kept. */
static void publish_blocks(const struct di_index_select_args *a, int64_t i, const float *scores, int32_t n_visible,
                           float *block_scores, struct candidate *work)
{
    int32_t n_blocks = (n_visible + a->block_size - 1) / a->block_size;
    for (int32_t b = 0; b < n_blocks; b++) {
        float best = -INFINITY;
        for (int32_t j = b * a->block_size; j < n_visible && j < (b + 1) * a->block_size; j++)
            best = scores[j] > best ? scores[j] : best;
        block_scores[b] = b == n_blocks - 1 ? INFINITY : best;
    }
    a->n_blocks[i] = select_top(block_scores, n_blocks, a->topk_blocks, work, a->blocks + i * a->topk_blocks,
                                a->block_margin != NULL ? &a->block_margin[i] : NULL);
}

static void mask_blocks(const struct di_index_select_args *a, int64_t i, float *scores, int32_t n_visible)
{
    const int32_t *blocks = a->blocks + i * a->topk_blocks;
    int32_t at = 0;
    for (int32_t j = 0; j < n_visible; j++) {
        int32_t block = j / a->block_size;
        while (at < a->n_blocks[i] && blocks[at] < block)
            at++;
        if (at >= a->n_blocks[i] || blocks[at] != block)
            scores[j] = -INFINITY;
    }
}

struct select_job {
    struct di_device *dev;
    const struct di_index_select_args *a;
    int64_t first;           /* row that the tables start with */
    int32_t entries;         /* capacity of a row's scores, a multiple of KEYS */
    int32_t parts;           /* pieces of KEYS entries in a row */
    float *scores;           /* [rows at a time, entries] */
    struct candidate *heaps; /* one for each member */
    int32_t heap;            /* candidates in each */
};

static int32_t visible(const struct di_index_select_args *a, int64_t i)
{
    return (a->rows.position[i] + 1) / a->cache.ratio;
}

static void score_parts(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct select_job *job = arg;
    const struct di_index_select_args *a = job->a;
    float *work = (void *)job->dev->member[member];
    for (int64_t at = begin; at < end;) { /* pieces of one row together */
        int64_t row = at / job->parts, stop = (row + 1) * job->parts < end ? (row + 1) * job->parts : end;
        int32_t n = visible(a, job->first + row), from = (int32_t)(at - row * job->parts) * KEYS;
        int32_t to = (int32_t)(stop - row * job->parts) * KEYS;
        if (from < n)
            score_entries(job->dev, a, job->first + row, from, to < n ? to : n, work, job->scores + row * job->entries);
        at = stop;
    }
}

static void select_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct select_job *job = arg;
    const struct di_index_select_args *a = job->a;
    struct candidate *work = job->heaps + (int64_t)member * job->heap;
    float *block_scores = (void *)job->dev->member[member];
    for (int64_t row = begin; row < end; row++) {
        float *scores = job->scores + row * job->entries;
        int64_t i = job->first + row;
        int32_t n_visible = visible(a, i);
        if (a->scores != NULL)
            for (int32_t j = 0; j < a->score_stride; j++)
                a->scores[i * a->score_stride + j] = j < n_visible ? scores[j] : -INFINITY;
        if (a->make_blocks)
            publish_blocks(a, i, scores, n_visible, block_scores, work);
        else if (a->use_blocks)
            mask_blocks(a, i, scores, n_visible);
        a->n_selected[i] = select_top(scores, n_visible, a->topk, work, a->selected + i * a->topk,
                                      a->margin != NULL ? &a->margin[i] : NULL);
    }
}

/* Rows whose scores are held at a time: 64 MB of them. */
static int64_t rows_at_a_time(int64_t n, int64_t entries)
{
    int64_t most = (16 << 20) / (entries > 0 ? entries : 1);
    return most < 1 ? 1 : most < n ? most : n;
}

void di_host_index_bytes(const struct di_device *dev, int32_t n, int64_t entries, int32_t heads, int32_t dim,
                         int32_t kept, size_t *shared, size_t *member)
{
    int64_t rounded = (entries + KEYS - 1) / KEYS * KEYS;
    size_t work = (size_t)(heads * dim + KEYS * dim + heads * KEYS);
    *shared = (size_t)(rows_at_a_time(n, rounded) * rounded) * sizeof(float) +
              (size_t)di_team_size(dev->team) * (size_t)(kept + 1) * sizeof(struct candidate);
    *member = (work > (size_t)rounded ? work : (size_t)rounded) * sizeof(float);
}

void di_host_index_select(struct di_device *dev, const struct di_index_select_args *a)
{
    int32_t last = 0, kept = a->topk > a->topk_blocks ? a->topk : a->topk_blocks;
    for (int32_t i = 0; i < a->rows.n; i++)
        last = visible(a, i) > last ? visible(a, i) : last;
    struct select_job job = {.dev = dev, .a = a, .parts = (last + KEYS - 1) / KEYS, .heap = kept + 1};
    size_t shared, member;
    di_host_index_bytes(dev, a->rows.n, last, a->heads, a->cache.index_dim, kept, &shared, &member);
    if (!di_host_reserve(dev, shared, member))
        return;
    job.entries = job.parts * KEYS;
    int64_t step = rows_at_a_time(a->rows.n, job.entries);
    job.scores = (void *)dev->shared;
    job.heaps = (void *)(job.scores + step * job.entries);
    for (; job.first < a->rows.n; job.first += step) {
        int64_t rows = a->rows.n - job.first < step ? a->rows.n - job.first : step;
        di_host_parallel(dev, rows * job.parts, score_parts, &job);
        di_host_elements(dev, rows, 8 * (int64_t)job.entries, select_rows, &job);
    }
}
