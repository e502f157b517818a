/* cache/prefix_tree.h - nodes of the prefix tree: finding, adding, removing, and the order in which leaves go. Private to cache/.
 *
 * A node has the number of its page, since a page lies in the tree once; the root has the number behind the last page. So nodes are
 * one array, and links are numbers. Two more structures lead to them:
 *
 *     table    open addressing by key, linear probing, at most half full; numbers + 1, 0 for empty
 *     leaves   a binary heap of the nodes without children, the oldest stamp on top; numbers
 *
 * A call that touches nodes gives all of them, a chain from the root, one new stamp. So a parent is never older than its child, and
 * no two leaves have the same stamp: the order of eviction is one order. */
#ifndef DI_CACHE_PREFIX_TREE_H
#define DI_CACHE_PREFIX_TREE_H

#include <xxhash.h>

#include "cache/prefix.h"

struct di_prefix_node {
    XXH128_hash_t key;
    uint64_t stamp;
    struct di_snapshot *snapshots; /* list, in no order */
    int32_t parent, n_children;
    int32_t depth;   /* pages of the prefix; 0 for the root */
    int32_t heap_at; /* place among the leaves; -1: none */
    int32_t aside;   /* evict's list of leaves that are held */
    bool used;
    int32_t tokens[DI_PAGE_TOKENS];
};

struct di_snapshot {
    struct di_prefix *tree;            /* NULL when it has left */
    struct di_snapshot *next;          /* in the node's list */
    struct di_snapshot *older, *newer; /* in the tree's list */
    void *payload;
    void (*free_payload)(void *context, void *payload);
    void *free_context;
    size_t bytes;
    uint64_t stamp;
    int64_t length;
    int32_t node, kind;
    int32_t refs;   /* the tree's, and the holders' */
    int32_t tail[]; /* the last length % DI_PAGE_TOKENS tokens */
};

struct di_prefix {
    struct di_pages *pages;
    struct di_prefix_node *nodes; /* [root + 1] */
    int32_t root, n_nodes;        /* n_nodes without the root */
    int32_t *table;               /* [mask + 1] */
    size_t mask;
    uint64_t key_mask;
    int32_t *leaves; /* [root], n_leaves of them */
    int32_t n_leaves;
    uint64_t clock; /* the last stamp given */
    struct di_snapshot *oldest, *newest;
    int32_t n_snapshots;
    size_t snapshot_bytes, held_bytes, snapshot_limit; /* held: of those in the tree that have a holder too */
    void (*free_payload)(void *context, void *payload);
    void *free_context;
    struct di_prefix_stats counts; /* what only grows; the rest is filled in by di_prefix_stats */
};

/* Key of the root, and of a page behind `parent`. Tokens are hashed in the machine's byte order. */
XXH128_hash_t di_prefix_root_key(const struct di_prefix *tree, const void *salt, size_t salt_bytes);
XXH128_hash_t di_prefix_page_key(const struct di_prefix *tree, int32_t parent, const int32_t *tokens);

/* The child of `parent` under this page of tokens, whose key is `key`; -1: none. */
int32_t di_prefix_child(const struct di_prefix *tree, int32_t parent, XXH128_hash_t key, const int32_t *tokens);
/* `id` is not in use; the stamp is the parent's. No reference is taken. */
void di_prefix_insert(struct di_prefix *tree, int32_t id, int32_t parent, XXH128_hash_t key, const int32_t *tokens);
/* `id` is a leaf without snapshots. No reference is dropped. */
void di_prefix_remove(struct di_prefix *tree, int32_t id);
/* Stamps only grow. */
void di_prefix_touch(struct di_prefix *tree, int32_t id, uint64_t stamp);

void di_prefix_leaf_push(struct di_prefix *tree, int32_t id);
void di_prefix_leaf_remove(struct di_prefix *tree, int32_t id);

/* Out of the tree; freed unless somebody holds it. */
void di_snapshot_leave(struct di_snapshot *snapshot);

#endif
