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

/* One symbol of a piece, in a doubly linked list by index. */
struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
};

/* A merge that was possible when it was queued. */
struct candidate {
    int32_t rank, at, merged; /* `at`: left symbol */
};

struct di_bpe_run {
    const struct di_bpe *bpe;
    struct symbol *symbols;
    struct candidate *heap;
    size_t capacity, heap_size; /* capacity of symbols; the heap has twice that */
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
    int32_t rank = bpe->n_merges++;
    if (slot->left < 0)
        *slot = (struct merge){left, right, rank, merged};
}

di_status di_bpe_begin(const struct di_bpe *bpe, struct di_bpe_run **out, struct di_error *err)
{
    *out = di_calloc(1, sizeof **out);
    if (*out == NULL)
        return DI_FAIL_NOMEM(err, sizeof **out);
    (*out)->bpe = bpe;
    return DI_OK;
}

void di_bpe_end(struct di_bpe_run *run)
{
    if (run == NULL)
        return;
    free(run->symbols);
    free(run->heap);
    free(run);
}

static di_status reserve(struct di_bpe_run *run, size_t len, struct di_error *err)
{
    if (len <= run->capacity)
        return DI_OK;
    size_t capacity = len < 128 ? 128 : len + len / 2;
    free(run->symbols);
    free(run->heap);
    run->capacity = 0;
    run->symbols = di_calloc(capacity, sizeof *run->symbols);
    /* At most len - 1 pairs to begin with, and two new ones per merge, of which there are at most len - 1. */
    run->heap = di_calloc(3 * capacity, sizeof *run->heap);
    if (run->symbols == NULL || run->heap == NULL)
        return DI_FAIL_NOMEM(err, 3 * capacity * sizeof *run->heap);
    run->capacity = capacity;
    return DI_OK;
}

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct di_bpe_run *run, struct candidate item)
{
    size_t at = run->heap_size++;
    while (at > 0 && before(&item, &run->heap[(at - 1) / 2])) {
        run->heap[at] = run->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    run->heap[at] = item;
}

static struct candidate heap_pop(struct di_bpe_run *run)
{
    struct candidate top = run->heap[0], item = run->heap[--run->heap_size];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= run->heap_size)
            break;
        if (child + 1 < run->heap_size && before(&run->heap[child + 1], &run->heap[child]))
            child++;
        if (!before(&run->heap[child], &item))
            break;
        run->heap[at] = run->heap[child];
        at = child;
    }
    run->heap[at] = item;
    return top;
}

/* Queues the merge of symbol `at` with its right neighbour, if there is one. */
static void consider(struct di_bpe_run *run, int32_t at)
{
    if (at < 0 || run->symbols[at].next < 0)
        return;
    const struct merge *m = slot_of(run->bpe, run->symbols[at].id, run->symbols[run->symbols[at].next].id);
    if (m->left >= 0)
        heap_push(run, (struct candidate){m->rank, at, m->merged});
}

static void merge_all(struct di_bpe_run *run)
{
    struct symbol *s = run->symbols;
    while (run->heap_size > 0) {
        struct candidate top = heap_pop(run);
        int32_t next = s[top.at].id >= 0 ? s[top.at].next : -1;
        if (next < 0)
            continue;
        const struct merge *now = slot_of(run->bpe, s[top.at].id, s[next].id);
        if (now->left < 0 || now->merged != top.merged) /* one of the two has changed since */
            continue;
        s[top.at].id = top.merged;
        s[top.at].next = s[next].next;
        s[next].id = -1;
        if (s[top.at].next >= 0)
            s[s[top.at].next].prev = top.at;
        consider(run, s[top.at].prev);
        consider(run, top.at);
    }
}

di_status di_bpe_encode(struct di_bpe_run *run, const char *piece, size_t len, di_token_list *out, struct di_error *err)
{
    if (len > INT32_MAX / 4)
        return DI_FAIL(err, DI_ERR_LIMIT, "a piece of %zu bytes without a break is longer than %d", len, INT32_MAX / 4);
    DI_TRY(reserve(run, len, err));
    int32_t n = (int32_t)len;
    for (int32_t i = 0; i < n; i++)
        run->symbols[i] = (struct symbol){run->bpe->byte_id[(uint8_t)piece[i]], i - 1, i + 1 < n ? i + 1 : -1};
    run->heap_size = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        consider(run, i);
    merge_all(run);
    for (int32_t i = 0; i >= 0 && i < n; i = run->symbols[i].next)
        DI_TRY(di_token_list_push(out, run->symbols[i].id, err));
    return DI_OK;
}
