/* The indexer: queries, and a selection that is as arbitrary as a hash and as lawful as the contract asks. */
#include <math.h>
#include <stdlib.h>

#include "backend/hash/operations.h"
#include "backend/hash/words.h"
#include "backend/host/host.h"

void di_hash_index_query(struct di_device *dev, const struct di_index_query_args *a)
{
    (void)dev;
    int64_t width = (int64_t)a->heads * a->dim;
    uint64_t table = di_hash_rope_table(a->inv_freq, a->rope_dim);
    for (int64_t i = 0; i < a->rows.n; i++)
        di_hash_put(a->q, i, width,
                    di_hash_of(DI_HASH_INDEX_QUERY, table, (uint64_t)a->rows.position[i], di_hash_get(a->q, i, width),
                               (uint64_t)a->format));
}

/* Scores are integers of 24 bits, which floats hold exactly. */
enum { NEVER = -1, FORCED = 1 << 24, BUCKETS = 257, STEP = 4096 };

static float as_float(int32_t score)
{
    return score == NEVER ? -INFINITY : score == FORCED ? INFINITY : (float)score * 0x1p-20F - 8.0F;
}

/* Less is better: higher score, then lower index. */
static uint64_t rank_of(int32_t score, int32_t index)
{
    return (uint64_t)(uint32_t)(FORCED - score) << 32 | (uint32_t)index;
}

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* The rank of the k-th best of n scores, of which more than k may be chosen: a histogram finds the bucket that it lies in, a sort
 * of that bucket the one. work: [n] */
static uint64_t kth_rank(const int32_t *scores, int32_t n, int32_t k, uint64_t *work)
{
    int32_t count[BUCKETS] = {0}, bucket = BUCKETS - 1, in_bucket = 0;
    for (int32_t j = 0; j < n; j++)
        if (scores[j] != NEVER)
            count[scores[j] >> 16]++;
    for (; count[bucket] < k; bucket--)
        k -= count[bucket];
    for (int32_t j = 0; j < n; j++)
        if (scores[j] != NEVER && scores[j] >> 16 == bucket)
            work[in_bucket++] = rank_of(scores[j], j);
    qsort(work, (size_t)in_bucket, sizeof *work, ascending);
    return work[k - 1];
}

/* Writes the indices of the k best, ascending, padded with -1; returns how many. */
static int32_t select_top(const int32_t *scores, int32_t n, int32_t k, uint64_t *work, int32_t *out, float *margin)
{
    int32_t choices = 0, taken = 0, worst = FORCED, dropped = NEVER;
    for (int32_t j = 0; j < n; j++)
        choices += scores[j] != NEVER;
    uint64_t last = choices > k ? kth_rank(scores, n, k, work) : UINT64_MAX;
    for (int32_t j = 0; j < n; j++) {
        if (scores[j] == NEVER)
            continue;
        if (rank_of(scores[j], j) <= last) {
            out[taken++] = j;
            worst = scores[j] < worst ? scores[j] : worst;
        } else {
            dropped = scores[j] > dropped ? scores[j] : dropped;
        }
    }
    for (int32_t j = taken; j < k; j++)
        out[j] = -1;
    if (margin != NULL)
        *margin = dropped == NEVER ? INFINITY : worst == dropped ? 0.0F : as_float(worst) - as_float(dropped);
    return taken;
}

struct scratch {
    int32_t *scores, *blocks; /* [entries] each */
    uint64_t *work;           /* [entries] */
};

static int32_t visible(const struct di_index_select_args *a, int64_t i)
{
    return (a->rows.position[i] + 1) / a->cache.ratio;
}

/* Leaves only the entries of the row's published blocks. */
static void mask_blocks(const struct di_index_select_args *a, int64_t i, int32_t *scores, int32_t n)
{
    const int32_t *blocks = a->blocks + i * a->topk_blocks;
    int32_t next = 0;
    for (int32_t b = 0; b < a->n_blocks[i]; b++) {
        for (; next < n && next < blocks[b] * a->block_size; next++)
            scores[next] = NEVER;
        next = (blocks[b] + 1) * a->block_size;
    }
    for (; next < n; next++)
        scores[next] = NEVER;
}

/* scores: NEVER for entries that may not be chosen, which are not read either. */
static void score(const struct di_index_select_args *a, int64_t i, int32_t *scores, int32_t n)
{
    struct di_hash_reader keys = di_hash_reader(&a->cache, a->rows.slot[i], true);
    uint64_t all = 0;
    for (int32_t j = 0; j < n; j++)
        if (scores[j] != NEVER)
            all += di_hash_item((uint64_t)j, di_hash_read(&keys, j));
    uint64_t query = di_hash_of(DI_HASH_SCORE, (uint64_t)a->rows.position[i],
                                di_hash_get(a->q, i, (int64_t)a->heads * a->cache.index_dim),
                                di_hash_get(a->weight, i, a->heads), all);
    for (int32_t j = 0; j < n; j++)
        if (scores[j] != NEVER)
            scores[j] = (int32_t)(di_hash_item((uint64_t)j, query) >> 40);
}

/* The blocks that later indexers may choose from: those of the best entries, and always the latest one. */
static void publish_blocks(const struct di_index_select_args *a, int64_t i, int32_t n, const struct scratch *s)
{
    int32_t n_blocks = (n + a->block_size - 1) / a->block_size;
    for (int32_t b = 0; b < n_blocks; b++) {
        int32_t best = NEVER;
        for (int32_t j = b * a->block_size; j < n && j / a->block_size == b; j++)
            best = s->scores[j] > best ? s->scores[j] : best;
        s->blocks[b] = b == n_blocks - 1 ? FORCED : best;
    }
    a->n_blocks[i] = select_top(s->blocks, n_blocks, a->topk_blocks, s->work, a->blocks + i * a->topk_blocks,
                                a->block_margin != NULL ? &a->block_margin[i] : NULL);
}

static void select_row(const struct di_index_select_args *a, int64_t i, const struct scratch *s)
{
    int32_t n = visible(a, i), n_blocks = a->make_blocks ? (n + a->block_size - 1) / a->block_size : 0;
    memset(s->scores, 0, (size_t)n * sizeof *s->scores);
    if (a->use_blocks && !a->make_blocks)
        mask_blocks(a, i, s->scores, n);
    /* Where everything is chosen, scores have no part in it. */
    if (a->scores != NULL || n > a->topk || n_blocks > a->topk_blocks)
        score(a, i, s->scores, n);
    if (a->scores != NULL)
        for (int32_t j = 0; j < a->score_stride; j++)
            a->scores[i * a->score_stride + j] = as_float(j < n ? s->scores[j] : NEVER);
    if (a->make_blocks)
        publish_blocks(a, i, n, s);
    a->n_selected[i] = select_top(s->scores, n, a->topk, s->work, a->selected + i * a->topk,
                                  a->margin != NULL ? &a->margin[i] : NULL);
}

/* Rounded up, so that sequences may grow for long before the scratch does. */
static int64_t rounded(int64_t entries)
{
    return (entries + STEP) / STEP * STEP;
}

size_t di_hash_select_bytes(int64_t entries)
{
    return (size_t)rounded(entries) * (sizeof(uint64_t) + 2 * sizeof(int32_t));
}

void di_hash_index_select(struct di_device *dev, const struct di_index_select_args *a)
{
    int32_t most = 0;
    for (int32_t i = 0; i < a->rows.n; i++)
        most = visible(a, i) > most ? visible(a, i) : most;
    if (!di_host_reserve(dev, di_hash_select_bytes(most), 0))
        return;
    struct scratch s = {.work = (void *)dev->shared};
    s.scores = (void *)(s.work + rounded(most));
    s.blocks = s.scores + rounded(most);
    for (int64_t i = 0; i < a->rows.n; i++)
        select_row(a, i, &s);
}
