/* cache/prefix.h - the prefix cache: which token prefixes lie in pages, and snapshots for exact resume (spec/runtime.md 3.3, 3.4).
 *
 * A radix tree. The edge to a node is one full page of DI_PAGE_TOKENS tokens, the node remembers the page that holds their global
 * rows, and the root stands for the empty prefix. A snapshot hangs on the node of the last full page before its length, together
 * with the length % DI_PAGE_TOKENS tokens that follow.
 *
 *     di_prefix_open            over a pool of pages
 *   a request arrives
 *     di_prefix_lookup          the pages that it can reuse; di_prefix_hold makes them its own
 *     di_prefix_find_snapshot   where it can resume; di_snapshot_hold while the payload is being copied
 *     di_prefix_evict           where the pool is short of pages
 *   it has run
 *     di_prefix_publish         its full pages become known
 *     di_prefix_add_snapshot    so does its state at some length
 *     di_prefix_close
 *
 * What lookup and find_snapshot name is safe only until the next evict or add_snapshot, unless it is held.
 *
 * EXACTNESS. A node is found by a 128-bit hash chain, key = H(key of the parent, the page's tokens), key of the root = H(salt).
 * The hash only leads there: parent and tokens are compared, so that two pages of one key live side by side and a wrong answer
 * cannot come of it. Whoever publishes answers for the contents: rows depend on the tokens before them and on what the salt says
 * (model, numeric mode, pictures), on nothing else.
 *
 * OWNERSHIP. The tree has one reference on every page that it names. Payloads are opaque; the tree frees them with the function
 * given at open once it has no use for them and nobody holds them. That function must not call back into the tree.
 *
 * AGE is a counter of calls, never a clock: equal calls evict equally. Memory of the nodes (600 bytes a page) is taken at open, only
 * add_snapshot allocates. One thread. */
#ifndef DI_CACHE_PREFIX_H
#define DI_CACHE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cache/layout.h"
#include "cache/pages.h"

struct di_prefix;
struct di_snapshot;

struct di_prefix_options {
    const void *salt; /* everything but the tokens that alters rows; read at open only */
    size_t salt_bytes;
    size_t snapshot_bytes; /* what the payloads in the tree may add up to; 0: no snapshots */
    void (*free_payload)(void *context, void *payload);
    void *free_context;
    int32_t hash_bits; /* tests: so many bits of a key stay, 1 .. 63; 0: all of them */
};

/* `pages` is borrowed until close. *out is the caller's to close; NULL on failure. */
di_status di_prefix_open(struct di_pages *pages, const struct di_prefix_options *options, struct di_prefix **out,
                         struct di_error *err);
/* Drops the references and frees the payloads; a snapshot that is held stays until its last drop. NULL is allowed. */
void di_prefix_close(struct di_prefix *tree);

struct di_prefix_hit {
    int32_t *pages;    /* [max_pages], the caller's: the page of each full page of the prefix */
    int32_t max_pages; /* no more than these are looked up */
    int32_t n_pages;   /* found */
};

/* The longest chain of full pages that tokens[0 .. n) begins with; a caller that needs a token left to run gives n - 1. The nodes on
 * the way become young. Takes no reference. */
void di_prefix_lookup(struct di_prefix *tree, const int32_t *tokens, int64_t n, struct di_prefix_hit *hit);
/* One reference on each page of the hit, for the caller to drop (di_pages_drop). */
void di_prefix_hold(struct di_prefix *tree, const struct di_prefix_hit *hit);

/* Makes tokens[0 .. n_pages * DI_PAGE_TOKENS) known. Where a prefix is known already its page stays (the first wins), otherwise the
 * tree takes a reference on page_ids[i], which the caller must hold. A page lies in the tree once: the chain ends before one that
 * the tree has elsewhere. The nodes of the chain become young. Returns the pages of the chain that are known now. */
int32_t di_prefix_publish(struct di_prefix *tree, const int32_t *tokens, int32_t n_pages, const int32_t *page_ids);

/* Frees pages that nobody but the tree holds, leaves first, the least recently used first, with their snapshots: until `wanted` are
 * free or none is left. Returns how many. Costs O(log nodes) per page and per leaf that is held, which are as many as there are
 * holders. */
int32_t di_prefix_evict(struct di_prefix *tree, int32_t wanted);

/* The state behind tokens[0 .. length) becomes known under `kind` (the caller's numbering). The tree owns the payload if this returns
 * true; an equal snapshot is replaced, and the least recently used that nobody holds make room. False, and nothing has changed: the
 * full pages of the prefix are not known, length < 1, memory ran out, or there is no room for `bytes` beside those that are held. */
bool di_prefix_add_snapshot(struct di_prefix *tree, const int32_t *tokens, int64_t length, int32_t kind, void *payload,
                            size_t bytes);
/* The longest snapshot of the kind with a length of at most max_length that tokens[0 .. n) begins with; it becomes young. NULL, and
 * *length 0, if there is none. */
struct di_snapshot *di_prefix_find_snapshot(struct di_prefix *tree, const int32_t *tokens, int64_t n, int32_t kind,
                                            int64_t max_length, int64_t *length);
void *di_snapshot_payload(const struct di_snapshot *snapshot);
/* While held a payload is not freed. It may still leave the tree (its node is evicted, an equal one replaces it): then the last drop
 * frees it, and till then its bytes count nowhere. */
void di_snapshot_hold(struct di_snapshot *snapshot);
void di_snapshot_drop(struct di_snapshot *snapshot);

struct di_prefix_stats {
    int32_t nodes, snapshots; /* in the tree now */
    size_t snapshot_bytes;
    uint64_t lookups, hits; /* hits: lookups that found a page */
    uint64_t hit_tokens;    /* DI_PAGE_TOKENS per page found */
    uint64_t snapshot_lookups, snapshot_hits;
    uint64_t evicted_pages;
    uint64_t evicted_snapshots; /* to make room for others, or with their page */
};

void di_prefix_stats(const struct di_prefix *tree, struct di_prefix_stats *out);

/* Recounts everything; false with a sentence in `why` if something is wrong. For tests: takes time and memory. */
bool di_prefix_audit(const struct di_prefix *tree, char *why, size_t why_size);

#endif
