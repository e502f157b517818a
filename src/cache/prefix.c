#include "cache/prefix.h"

#include <stdlib.h>

#include "base/mem.h"
#include "cache/prefix_tree.h"

di_status di_prefix_open(struct di_pages *pages, const struct di_prefix_options *options, struct di_prefix **out,
                         struct di_error *err)
{
    *out = NULL;
    struct di_prefix *t = di_calloc(1, sizeof *t);
    if (t == NULL)
        return DI_FAIL_NOMEM(err, sizeof *t);
    t->pages = pages;
    t->root = di_pages_total(pages);
    size_t n = (size_t)t->root, slots = 2;
    while (slots < 2 * n)
        slots *= 2;
    t->mask = slots - 1;
    t->nodes = di_calloc(n + 1, sizeof *t->nodes); /* the system maps what is written to, no more */
    t->table = di_calloc(slots, sizeof *t->table);
    t->leaves = di_calloc(n, sizeof *t->leaves);
    if (t->nodes == NULL || t->table == NULL || t->leaves == NULL) {
        free(t->nodes);
        free(t->table);
        free(t->leaves);
        free(t);
        return DI_FAIL_NOMEM(err, (n + 1) * sizeof *t->nodes + slots * sizeof *t->table);
    }
    t->key_mask = options->hash_bits != 0 ? (UINT64_C(1) << options->hash_bits) - 1 : UINT64_MAX;
    for (int32_t id = 0; id <= t->root; id++)
        t->nodes[id].heap_at = -1;
    t->nodes[t->root].key = di_prefix_root_key(t, options->salt, options->salt_bytes);
    t->nodes[t->root].parent = -1;
    t->nodes[t->root].used = true;
    t->snapshot_limit = options->snapshot_bytes;
    t->free_payload = options->free_payload;
    t->free_context = options->free_context;
    *out = t;
    return DI_OK;
}

void di_prefix_close(struct di_prefix *t)
{
    if (t == NULL)
        return;
    while (t->oldest != NULL)
        di_snapshot_leave(t->oldest);
    for (int32_t id = 0; id < t->root; id++)
        if (t->nodes[id].used)
            di_pages_drop(t->pages, id);
    free(t->nodes);
    free(t->table);
    free(t->leaves);
    free(t);
}

void di_prefix_lookup(struct di_prefix *t, const int32_t *tokens, int64_t n, struct di_prefix_hit *hit)
{
    uint64_t now = ++t->clock;
    int32_t id = t->root;
    hit->n_pages = 0;
    di_prefix_touch(t, id, now);
    while (hit->n_pages < hit->max_pages && n - (int64_t)hit->n_pages * DI_PAGE_TOKENS >= DI_PAGE_TOKENS) {
        const int32_t *page = tokens + (int64_t)hit->n_pages * DI_PAGE_TOKENS;
        id = di_prefix_child(t, id, di_prefix_page_key(t, id, page), page);
        if (id < 0)
            break;
        di_prefix_touch(t, id, now);
        hit->pages[hit->n_pages++] = id;
    }
    t->counts.lookups++;
    t->counts.hits += hit->n_pages > 0;
    t->counts.hit_tokens += (uint64_t)hit->n_pages * DI_PAGE_TOKENS;
}

void di_prefix_hold(struct di_prefix *t, const struct di_prefix_hit *hit)
{
    for (int32_t i = 0; i < hit->n_pages; i++)
        di_pages_hold(t->pages, hit->pages[i]);
}

int32_t di_prefix_publish(struct di_prefix *t, const int32_t *tokens, int32_t n_pages, const int32_t *page_ids)
{
    uint64_t now = ++t->clock;
    int32_t parent = t->root;
    di_prefix_touch(t, parent, now);
    for (int32_t i = 0; i < n_pages; i++) {
        const int32_t *page = tokens + (int64_t)i * DI_PAGE_TOKENS;
        XXH128_hash_t key = di_prefix_page_key(t, parent, page);
        int32_t id = di_prefix_child(t, parent, key, page);
        if (id >= 0) {
            di_prefix_touch(t, id, now);
        } else {
            id = page_ids[i];
            if (t->nodes[id].used)
                return i;
            di_prefix_insert(t, id, parent, key, page);
            di_pages_hold(t->pages, id);
        }
        parent = id;
    }
    return n_pages;
}

int32_t di_prefix_evict(struct di_prefix *t, int32_t wanted)
{
    int32_t freed = 0, aside = -1;
    while (freed < wanted && t->n_leaves > 0) {
        int32_t id = t->leaves[0];
        struct di_prefix_node *node = &t->nodes[id];
        if (di_pages_refs(t->pages, id) > 1) {
            di_prefix_leaf_remove(t, id);
            node->aside = aside;
            aside = id;
            continue;
        }
        for (; node->snapshots != NULL; t->counts.evicted_snapshots++)
            di_snapshot_leave(node->snapshots);
        di_prefix_remove(t, id);
        di_pages_drop(t->pages, id);
        freed++;
    }
    for (; aside >= 0; aside = t->nodes[aside].aside)
        di_prefix_leaf_push(t, aside);
    t->counts.evicted_pages += (uint64_t)freed;
    return freed;
}

void di_prefix_stats(const struct di_prefix *t, struct di_prefix_stats *out)
{
    *out = t->counts;
    out->nodes = t->n_nodes;
    out->snapshots = t->n_snapshots;
    out->snapshot_bytes = t->snapshot_bytes;
}
