#include "cache/prefix_tree.h"

#include <string.h>

static XXH128_hash_t truncated(const struct di_prefix *t, XXH128_hash_t key)
{
    key.low64 &= t->key_mask;
    if (t->key_mask != UINT64_MAX)
        key.high64 = 0;
    return key;
}

XXH128_hash_t di_prefix_root_key(const struct di_prefix *t, const void *salt, size_t salt_bytes)
{
    return truncated(t, XXH3_128bits(salt_bytes != 0 ? salt : "", salt_bytes));
}

XXH128_hash_t di_prefix_page_key(const struct di_prefix *t, int32_t parent, const int32_t *tokens)
{
    struct {
        uint64_t low, high;
        int32_t tokens[DI_PAGE_TOKENS];
    } text = {.low = t->nodes[parent].key.low64, .high = t->nodes[parent].key.high64};
    memcpy(text.tokens, tokens, sizeof text.tokens);
    return truncated(t, XXH3_128bits(&text, sizeof text));
}

static size_t home(const struct di_prefix *t, int32_t id)
{
    return (size_t)t->nodes[id].key.low64 & t->mask;
}

int32_t di_prefix_child(const struct di_prefix *t, int32_t parent, XXH128_hash_t key, const int32_t *tokens)
{
    for (size_t at = (size_t)key.low64 & t->mask; t->table[at] != 0; at = (at + 1) & t->mask) {
        int32_t id = t->table[at] - 1;
        const struct di_prefix_node *node = &t->nodes[id];
        if (XXH128_isEqual(node->key, key) && node->parent == parent &&
            memcmp(node->tokens, tokens, sizeof node->tokens) == 0)
            return id;
    }
    return -1;
}

static void table_add(struct di_prefix *t, int32_t id)
{
    size_t at = home(t, id);
    while (t->table[at] != 0)
        at = (at + 1) & t->mask;
    t->table[at] = id + 1;
}

/* Closes the gap with later entries of the run that may lie there, so that no probe ends early. */
static void table_remove(struct di_prefix *t, int32_t id)
{
    size_t gap = home(t, id);
    while (t->table[gap] != id + 1)
        gap = (gap + 1) & t->mask;
    for (size_t at = (gap + 1) & t->mask; t->table[at] != 0; at = (at + 1) & t->mask) {
        size_t from_home = (at - home(t, t->table[at] - 1)) & t->mask, from_gap = (at - gap) & t->mask;
        if (from_home >= from_gap) {
            t->table[gap] = t->table[at];
            gap = at;
        }
    }
    t->table[gap] = 0;
}

static void place(struct di_prefix *t, int32_t at, int32_t id)
{
    t->leaves[at] = id;
    t->nodes[id].heap_at = at;
}

static uint64_t stamp_at(const struct di_prefix *t, int32_t at)
{
    return t->nodes[t->leaves[at]].stamp;
}

/* Puts `id` at `at` or above. */
static void sift_up(struct di_prefix *t, int32_t at, int32_t id)
{
    while (at > 0 && stamp_at(t, (at - 1) / 2) > t->nodes[id].stamp) {
        place(t, at, t->leaves[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(t, at, id);
}

/* Puts `id` at `at` or below. */
static void sift_down(struct di_prefix *t, int32_t at, int32_t id)
{
    while (at < t->n_leaves / 2) { /* it has a child */
        int32_t child = 2 * at + 1;
        if (child + 1 < t->n_leaves && stamp_at(t, child + 1) < stamp_at(t, child))
            child++;
        if (stamp_at(t, child) >= t->nodes[id].stamp)
            break;
        place(t, at, t->leaves[child]);
        at = child;
    }
    place(t, at, id);
}

void di_prefix_leaf_push(struct di_prefix *t, int32_t id)
{
    sift_up(t, t->n_leaves++, id);
}

void di_prefix_leaf_remove(struct di_prefix *t, int32_t id)
{
    int32_t at = t->nodes[id].heap_at, last = t->leaves[--t->n_leaves];
    t->nodes[id].heap_at = -1;
    if (last == id)
        return;
    if (at > 0 && stamp_at(t, (at - 1) / 2) > t->nodes[last].stamp)
        sift_up(t, at, last);
    else
        sift_down(t, at, last);
}

void di_prefix_touch(struct di_prefix *t, int32_t id, uint64_t stamp)
{
    t->nodes[id].stamp = stamp;
    if (t->nodes[id].heap_at >= 0)
        sift_down(t, t->nodes[id].heap_at, id);
}

void di_prefix_insert(struct di_prefix *t, int32_t id, int32_t parent, XXH128_hash_t key, const int32_t *tokens)
{
    struct di_prefix_node *node = &t->nodes[id], *above = &t->nodes[parent];
    node->key = key;
    node->stamp = above->stamp;
    node->parent = parent;
    node->depth = above->depth + 1;
    node->used = true;
    memcpy(node->tokens, tokens, sizeof node->tokens);
    table_add(t, id);
    above->n_children++;
    if (above->heap_at >= 0)
        di_prefix_leaf_remove(t, parent);
    di_prefix_leaf_push(t, id);
    t->n_nodes++;
}

void di_prefix_remove(struct di_prefix *t, int32_t id)
{
    int32_t parent = t->nodes[id].parent;
    di_prefix_leaf_remove(t, id);
    table_remove(t, id);
    t->nodes[id].used = false;
    t->n_nodes--;
    if (--t->nodes[parent].n_children == 0 && parent != t->root)
        di_prefix_leaf_push(t, parent);
}
