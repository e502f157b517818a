#include "text/bpe.h"

#include <stdlib.h>

#include "base/mem.h"

/* Hash table of pairs, open addressing, capacity a power of two at least twice the number of merges. */
struct merge {
    int32_t left, right; /* left -1: free */
    int32_t rank, merged;
};

struct di_bpe {
    int32_t byte_id[256];
    struct merge *table;
    size_t mask;
    int32_t n_merges;
};

/* One symbol per byte of the piece to begin with. A symbol that spans several bytes lies at its first; its length stands at
 * its first and its last byte, so that both neighbours are found without links. */
struct symbol {
    int32_t id;  /* -1: part of a symbol further left */
    int32_t len; /* bytes */
};

/* Candidates of one rank: left symbols, in a chain of nodes. A merge never makes a new candidate of its own rank (the new
 * token is longer than both parts), so a bucket is complete when its turn comes. */
struct bucket {
    int32_t first, last; /* nodes, 1 and up; first 0: empty, so that zeroed memory needs no touching */
    bool sorted;         /* positions ascend along the chain */
};

struct node {
    int32_t at, next;
};

struct di_bpe_run {
    const struct di_bpe *bpe;
    struct symbol *symbols;
    int32_t size;       /* bytes of this piece */
    struct node *nodes; /* [3 * capacity + 1], the first unused */
    size_t capacity;    /* of symbols */
    int32_t n_nodes,
        free_node;          /* free_node: chain of nodes given back, 0 for none; reuse keeps the working set small */
    struct bucket *buckets; /* [n_merges] */
    int32_t *ranks;         /* heap of the ranks whose buckets are not empty; [n_merges] */
    int32_t n_ranks;
    int32_t *order; /* for sorting a bucket; [capacity] */
};

di_status di_bpe_open(size_t merges, struct di_bpe **out, struct di_error *err)
{
    size_t capacity = 16;
    while (capacity < 2 * merges)
        capacity *= 2;
    *out = NULL;
    struct di_bpe *bpe = di_calloc(1, sizeof *bpe);
    if (bpe != NULL)
        bpe->table = di_calloc(capacity, sizeof *bpe->table);
    if (bpe == NULL || bpe->table == NULL) {
        free(bpe);
        return DI_FAIL_NOMEM(err, capacity * sizeof(struct merge));
    }
    bpe->mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++)
        bpe->table[i].left = -1;
    *out = bpe;
    return DI_OK;
}

void di_bpe_close(struct di_bpe *bpe)
{
    if (bpe == NULL)
        return;
    free(bpe->table);
    free(bpe);
}

void di_bpe_set_byte(struct di_bpe *bpe, uint8_t byte, int32_t id)
{
    bpe->byte_id[byte] = id;
}

/* The pair's slot, or the free one where it would go. */
static struct merge *slot_of(const struct di_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15U;
    size_t at = (size_t)(hash >> 32) & bpe->mask;
    while (bpe->table[at].left >= 0 && (bpe->table[at].left != left || bpe->table[at].right != right))
        at = (at + 1) & bpe->mask;
    return &bpe->table[at];
}

void di_bpe_add_merge(struct di_bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    struct merge *slot = slot_of(bpe, left, right);
    *slot = (struct merge){left, right, bpe->n_merges++, merged};
}

di_status di_bpe_begin(const struct di_bpe *bpe, struct di_bpe_run **out, struct di_error *err)
{
    *out = di_calloc(1, sizeof **out);
    if (*out == NULL)
        return DI_FAIL_NOMEM(err, sizeof **out);
    (*out)->bpe = bpe;
    (*out)->buckets = di_calloc((size_t)bpe->n_merges, sizeof *(*out)->buckets);
    (*out)->ranks = di_calloc((size_t)bpe->n_merges, sizeof *(*out)->ranks);
    if ((*out)->buckets == NULL || (*out)->ranks == NULL) {
        di_bpe_end(*out);
        *out = NULL;
        return DI_FAIL_NOMEM(err, (size_t)bpe->n_merges * sizeof(struct bucket));
    }
    return DI_OK;
}

void di_bpe_end(struct di_bpe_run *run)
{
    if (run == NULL)
        return;
    free(run->symbols);
    free(run->nodes);
    free(run->buckets);
    free(run->ranks);
    free(run->order);
    free(run);
}

static di_status reserve(struct di_bpe_run *run, size_t len, struct di_error *err)
{
    if (len <= run->capacity)
        return DI_OK;
    size_t capacity = len < 128 ? 128 : len + len / 2;
    free(run->symbols);
    free(run->nodes);
    free(run->order);
    run->capacity = 0;
    run->symbols = di_calloc(capacity, sizeof *run->symbols);
    /* At most len - 1 pairs to begin with, and two new ones per merge, of which there are at most len - 1. */
    run->nodes = di_calloc(3 * capacity + 1, sizeof *run->nodes);
    run->order = di_calloc(capacity, sizeof *run->order);
    if (run->symbols == NULL || run->nodes == NULL || run->order == NULL)
        return DI_FAIL_NOMEM(err, 3 * capacity * sizeof *run->nodes);
    run->capacity = capacity;
    return DI_OK;
}

static void push_rank(struct di_bpe_run *run, int32_t rank)
{
    int32_t at = run->n_ranks++;
    while (at > 0 && rank < run->ranks[(at - 1) / 2]) {
        run->ranks[at] = run->ranks[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    run->ranks[at] = rank;
}

static void pop_rank(struct di_bpe_run *run)
{
    int32_t item = run->ranks[--run->n_ranks], at = 0;
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= run->n_ranks)
            break;
        if (child + 1 < run->n_ranks && run->ranks[child + 1] < run->ranks[child])
            child++;
        if (item <= run->ranks[child])
            break;
        run->ranks[at] = run->ranks[child];
        at = child;
    }
    run->ranks[at] = item;
}

/* Queues the merge of symbol `at` with its right neighbour, if there is one. */
static void consider(struct di_bpe_run *run, int32_t at)
{
    int32_t next = at + run->symbols[at].len;
    if (next >= run->size)
        return;
    const struct merge *m = slot_of(run->bpe, run->symbols[at].id, run->symbols[next].id);
    if (m->left < 0)
        return;
    struct bucket *bucket = &run->buckets[m->rank];
    int32_t node = run->free_node;
    if (node != 0)
        run->free_node = run->nodes[node].next;
    else
        node = run->n_nodes++;
    run->nodes[node] = (struct node){at, 0};
    if (bucket->first == 0) {
        *bucket = (struct bucket){node, node, true};
        push_rank(run, m->rank);
        return;
    }
    bucket->sorted = bucket->sorted && run->nodes[bucket->last].at <= at;
    run->nodes[bucket->last].next = node;
    bucket->last = node;
}

static int ascending(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return a < b ? -1 : a > b;
}

static void sort_bucket(struct di_bpe_run *run, struct bucket *bucket)
{
    int32_t count = 0;
    for (int32_t node = bucket->first; node != 0; node = run->nodes[node].next)
        run->order[count++] = run->nodes[node].at; /* a pair is queued once per place and rank: fits */
    qsort(run->order, (size_t)count, sizeof *run->order, ascending);
    count = 0;
    for (int32_t node = bucket->first; node != 0; node = run->nodes[node].next)
        run->nodes[node].at = run->order[count++];
    bucket->sorted = true;
}

/* Merges symbol `at` with its right neighbour if that is still the pair of this rank. */
static void merge_at(struct di_bpe_run *run, int32_t at, int32_t rank)
{
    struct symbol *s = run->symbols;
    int32_t next = at + s[at].len;
    if (s[at].id < 0 || next >= run->size)
        return;
    const struct merge *m = slot_of(run->bpe, s[at].id, s[next].id);
    if (m->left < 0 || m->rank != rank) /* one of the two has changed since */
        return;
    int32_t len = s[at].len + s[next].len;
    s[next].id = -1;
    s[at] = (struct symbol){m->merged, len};
    s[at + len - 1].len = len;
    if (at > 0)
        consider(run, at - s[at - 1].len);
    consider(run, at);
}

/* Lowest rank first, within a rank from left to right; a merge may open a lower rank, which then goes first. */
static void merge_all(struct di_bpe_run *run)
{
    while (run->n_ranks > 0) {
        int32_t rank = run->ranks[0];
        struct bucket *bucket = &run->buckets[rank];
        if (!bucket->sorted)
            sort_bucket(run, bucket);
        while (bucket->first != 0 && run->ranks[0] == rank) {
            int32_t node = bucket->first, at = run->nodes[node].at;
            bucket->first = run->nodes[node].next;
            run->nodes[node].next = run->free_node;
            run->free_node = node;
            if (bucket->first == 0)
                pop_rank(run);
            merge_at(run, at, rank);
        }
    }
}

di_status di_bpe_encode(struct di_bpe_run *run, const char *piece, size_t len, di_token_list *out, struct di_error *err)
{
    if (len > INT32_MAX / 4)
        return DI_FAIL(err, DI_ERR_LIMIT, "a piece of %zu bytes without a break is longer than %d", len, INT32_MAX / 4);
    DI_TRY(reserve(run, len, err));
    int32_t n = (int32_t)len;
    run->size = n;
    for (int32_t i = 0; i < n; i++)
        run->symbols[i] = (struct symbol){run->bpe->byte_id[(uint8_t)piece[i]], 1};
    run->n_nodes = 1;
    run->free_node = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        consider(run, i);
    merge_all(run);
    for (int32_t i = 0; i < n; i += run->symbols[i].len)
        DI_TRY(di_token_list_push(out, run->symbols[i].id, err));
    return DI_OK;
}
