/* Snapshots of the prefix tree (prefix.h): each in two lists, its node's and that of all by age. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/prefix_tree.h"

static int32_t tail_tokens(const struct di_snapshot *s)
{
    return (int32_t)(s->length % DI_PAGE_TOKENS);
}

static void age_unlink(struct di_prefix *t, struct di_snapshot *s)
{
    *(s->older != NULL ? &s->older->newer : &t->oldest) = s->newer;
    *(s->newer != NULL ? &s->newer->older : &t->newest) = s->older;
}

static void age_append(struct di_prefix *t, struct di_snapshot *s)
{
    s->stamp = ++t->clock;
    s->older = t->newest;
    s->newer = NULL;
    *(t->newest != NULL ? &t->newest->newer : &t->oldest) = s;
    t->newest = s;
}

/* Into both lists and the sums. */
static void enter(struct di_prefix *t, struct di_snapshot *s)
{
    struct di_snapshot **list = &t->nodes[s->node].snapshots;
    s->tree = t;
    s->next = *list;
    *list = s;
    age_append(t, s);
    t->n_snapshots++;
    t->snapshot_bytes += s->bytes;
}

void di_snapshot_leave(struct di_snapshot *s)
{
    struct di_prefix *t = s->tree;
    struct di_snapshot **link = &t->nodes[s->node].snapshots;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    age_unlink(t, s);
    t->n_snapshots--;
    t->snapshot_bytes -= s->bytes;
    if (s->refs > 1)
        t->held_bytes -= s->bytes;
    s->tree = NULL;
    di_snapshot_drop(s);
}

void di_snapshot_hold(struct di_snapshot *s)
{
    if (s->refs++ == 1 && s->tree != NULL)
        s->tree->held_bytes += s->bytes;
}

void di_snapshot_drop(struct di_snapshot *s)
{
    s->refs--;
    if (s->refs == 1 && s->tree != NULL)
        s->tree->held_bytes -= s->bytes;
    if (s->refs > 0)
        return;
    if (s->free_payload != NULL)
        s->free_payload(s->free_context, s->payload);
    free(s);
}

void *di_snapshot_payload(const struct di_snapshot *s)
{
    return s->payload;
}

/* The node of the full pages of tokens[0 .. length); -1: not known. */
static int32_t find_node(const struct di_prefix *t, const int32_t *tokens, int64_t length)
{
    int32_t id = t->root;
    for (int64_t at = 0; id >= 0 && length - at >= DI_PAGE_TOKENS; at += DI_PAGE_TOKENS)
        id = di_prefix_child(t, id, di_prefix_page_key(t, id, tokens + at), tokens + at);
    return id;
}

/* The snapshot of a node with exactly these tokens behind it. */
static struct di_snapshot *find_equal(const struct di_prefix *t, int32_t id, const int32_t *tail, int64_t length,
                                      int32_t kind)
{
    struct di_snapshot *s = t->nodes[id].snapshots;
    while (s != NULL && (s->kind != kind || s->length != length ||
                         memcmp(s->tail, tail, (size_t)tail_tokens(s) * sizeof *tail) != 0))
        s = s->next;
    return s;
}

/* `held` bytes in use leave room for so many more. */
static void make_room(struct di_prefix *t, size_t bytes)
{
    struct di_snapshot *s = t->oldest;
    while (s != NULL && t->snapshot_bytes > t->snapshot_limit - bytes) {
        struct di_snapshot *newer = s->newer;
        if (s->refs == 1) {
            di_snapshot_leave(s);
            t->counts.evicted_snapshots++;
        }
        s = newer;
    }
}

bool di_prefix_add_snapshot(struct di_prefix *t, const int32_t *tokens, int64_t length, int32_t kind, void *payload,
                            size_t bytes)
{
    int32_t id = length > 0 ? find_node(t, tokens, length) : -1;
    if (id < 0)
        return false;
    int32_t n_tail = (int32_t)(length % DI_PAGE_TOKENS);
    const int32_t *tail = tokens + (length - n_tail);
    struct di_snapshot *equal = find_equal(t, id, tail, length, kind);
    size_t held = t->held_bytes - (equal != NULL && equal->refs > 1 ? equal->bytes : 0);
    if (bytes > t->snapshot_limit || held > t->snapshot_limit - bytes)
        return false;
    struct di_snapshot *s = di_calloc(1, sizeof *s + (size_t)n_tail * sizeof *tail);
    if (s == NULL)
        return false;
    s->payload = payload;
    s->free_payload = t->free_payload;
    s->free_context = t->free_context;
    s->bytes = bytes;
    s->length = length;
    s->node = id;
    s->kind = kind;
    s->refs = 1;
    memcpy(s->tail, tail, (size_t)n_tail * sizeof *tail);
    if (equal != NULL)
        di_snapshot_leave(equal);
    make_room(t, bytes);
    enter(t, s);
    return true;
}

struct di_snapshot *di_prefix_find_snapshot(struct di_prefix *t, const int32_t *tokens, int64_t n, int32_t kind,
                                            int64_t max_length, int64_t *length)
{
    struct di_snapshot *best = NULL;
    int64_t limit = n < max_length ? n : max_length;
    *length = 0;
    for (int64_t at = 0, id = t->root;; at += DI_PAGE_TOKENS) {
        for (struct di_snapshot *s = t->nodes[id].snapshots; s != NULL; s = s->next) {
            size_t tail = (size_t)tail_tokens(s) * sizeof *tokens;
            if (s->kind == kind && s->length <= limit && s->length > *length &&
                memcmp(s->tail, tokens + at, tail) == 0) {
                best = s;
                *length = s->length;
            }
        }
        if (limit - at < DI_PAGE_TOKENS)
            break;
        id = di_prefix_child(t, (int32_t)id, di_prefix_page_key(t, (int32_t)id, tokens + at), tokens + at);
        if (id < 0)
            break;
    }
    t->counts.snapshot_lookups++;
    if (best != NULL) {
        t->counts.snapshot_hits++;
        age_unlink(t, best);
        age_append(t, best);
    }
    return best;
}
