/* The prefix tree recounted: every number and link is derived a second time from what it should follow from. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/prefix_tree.h"

struct report {
    char *why;
    size_t size;
};

/* false, with the sentence. */
DI_PRINTF(2, 3) static bool wrong(const struct report *report, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(report->why, report->size, fmt, args);
    va_end(args);
    return false;
}

/* Links up, keys, ages, references of one node. Depths rule out circles. */
static bool audit_node(const struct di_prefix *t, int32_t id, const struct report *report)
{
    const struct di_prefix_node *node = &t->nodes[id];
    if (node->parent < 0 || node->parent > t->root || !t->nodes[node->parent].used)
        return wrong(report, "node %d: its parent %d is not in the tree", id, node->parent);
    const struct di_prefix_node *parent = &t->nodes[node->parent];
    if (node->depth != parent->depth + 1)
        return wrong(report, "node %d: depth %d under depth %d", id, node->depth, parent->depth);
    if (node->stamp > parent->stamp || node->stamp > t->clock)
        return wrong(report, "node %d: stamp %llu, its parent's %llu, clock %llu", id, (unsigned long long)node->stamp,
                     (unsigned long long)parent->stamp, (unsigned long long)t->clock);
    if (!XXH128_isEqual(node->key, di_prefix_page_key(t, node->parent, node->tokens)))
        return wrong(report, "node %d: its key is not that of its tokens", id);
    if (di_prefix_child(t, node->parent, node->key, node->tokens) != id)
        return wrong(report, "node %d: the table leads to %d", id,
                     di_prefix_child(t, node->parent, node->key, node->tokens));
    if (di_pages_refs(t->pages, id) < 1)
        return wrong(report, "node %d: its page is free", id);
    bool leaf = node->heap_at >= 0 && node->heap_at < t->n_leaves && t->leaves[node->heap_at] == id;
    if (leaf != (node->n_children == 0))
        return wrong(report, "node %d: %d children, place %d among the leaves", id, node->n_children, node->heap_at);
    return true;
}

static bool audit_leaves(const struct di_prefix *t, const struct report *report)
{
    for (int32_t at = 0; at < t->n_leaves; at++) {
        int32_t id = t->leaves[at];
        if (id < 0 || id >= t->root || !t->nodes[id].used || t->nodes[id].heap_at != at)
            return wrong(report, "place %d among the leaves has %d, which is not in the tree or elsewhere", at, id);
        if (at > 0 && t->nodes[t->leaves[(at - 1) / 2]].stamp >= t->nodes[id].stamp)
            return wrong(report, "leaf %d at place %d is not younger than the one above it", id, at);
    }
    return true;
}

/* `children`: [root + 1] zeroes. */
static bool audit_nodes(const struct di_prefix *t, int32_t *children, const struct report *report)
{
    int32_t nodes = 0, slots = 0;
    for (int32_t id = 0; id < t->root; id++) {
        if (!t->nodes[id].used) {
            if (t->nodes[id].snapshots != NULL || t->nodes[id].n_children != 0 || t->nodes[id].heap_at >= 0)
                return wrong(report, "node %d has something although it is not in the tree", id);
            continue;
        }
        if (!audit_node(t, id, report))
            return false;
        children[t->nodes[id].parent]++;
        nodes++;
    }
    for (size_t at = 0; at <= t->mask; at++)
        slots += t->table[at] != 0;
    if (nodes != t->n_nodes || nodes != slots)
        return wrong(report, "%d nodes, counted as %d, %d in the table", nodes, t->n_nodes, slots);
    for (int32_t id = 0; id <= t->root; id++)
        if (children[id] != t->nodes[id].n_children)
            return wrong(report, "node %d: %d children, counted as %d", id, children[id], t->nodes[id].n_children);
    return audit_leaves(t, report);
}

static bool equal(const struct di_snapshot *a, const struct di_snapshot *b)
{
    return a->kind == b->kind && a->length == b->length &&
           memcmp(a->tail, b->tail, (size_t)(a->length % DI_PAGE_TOKENS) * sizeof *a->tail) == 0;
}

/* The list of one node; adds to *count. */
static bool audit_list(const struct di_prefix *t, int32_t id, int32_t *count, const struct report *report)
{
    for (const struct di_snapshot *s = t->nodes[id].snapshots; s != NULL; s = s->next) {
        if (++*count > t->n_snapshots)
            return wrong(report, "node %d: more snapshots than there are", id);
        if (s->tree != t || s->node != id)
            return wrong(report, "node %d: a snapshot of node %d is in its list", id, s->node);
        if (s->length < 1 || s->length / DI_PAGE_TOKENS != t->nodes[id].depth)
            return wrong(report, "node %d: depth %d, a snapshot of length %lld", id, t->nodes[id].depth,
                         (long long)s->length);
        for (const struct di_snapshot *other = s->next; other != NULL; other = other->next)
            if (equal(s, other))
                return wrong(report, "node %d: two equal snapshots of length %lld", id, (long long)s->length);
    }
    return true;
}

static bool audit_snapshots(const struct di_prefix *t, const struct report *report)
{
    int32_t listed = 0, count = 0;
    size_t bytes = 0, held = 0;
    for (int32_t id = 0; id <= t->root; id++)
        if (!audit_list(t, id, &listed, report))
            return false;
    const struct di_snapshot *older = NULL;
    for (const struct di_snapshot *s = t->oldest; s != NULL; older = s, s = s->newer) {
        if (++count > t->n_snapshots || s->older != older || s->refs < 1 || s->stamp > t->clock)
            return wrong(report, "the list of snapshots is torn at number %d", count);
        if (older != NULL && older->stamp >= s->stamp)
            return wrong(report, "snapshot number %d is not younger than the one before", count);
        bytes += s->bytes;
        held += s->refs > 1 ? s->bytes : 0;
    }
    if (t->newest != older)
        return wrong(report, "the list of snapshots ends before the newest");
    if (count != t->n_snapshots || count != listed)
        return wrong(report, "%d snapshots, %d at nodes, counted as %d", count, listed, t->n_snapshots);
    if (bytes != t->snapshot_bytes || held != t->held_bytes || bytes > t->snapshot_limit)
        return wrong(report, "snapshots of %zu bytes, %zu held, counted as %zu and %zu, of %zu permitted", bytes, held,
                     t->snapshot_bytes, t->held_bytes, t->snapshot_limit);
    return true;
}

bool di_prefix_audit(const struct di_prefix *t, char *why, size_t why_size)
{
    struct report report = {why, why_size};
    int32_t *children = di_calloc((size_t)t->root + 1, sizeof *children);
    if (children == NULL)
        return wrong(&report, "no memory for the audit");
    bool sound = audit_nodes(t, children, &report) && audit_snapshots(t, &report);
    free(children);
    return sound && di_pages_audit(t->pages, why, why_size);
}
