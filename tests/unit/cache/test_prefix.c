/* The prefix cache against a naive model (lists of token prefixes, compared whole), with and without colliding hashes; the order of
 * eviction among many leaves; failing allocations; and that the audit, which runs after every step, sees damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/prefix.h"
#include "cache/prefix_tree.h"

enum {
    PAGE = DI_PAGE_TOKENS,
    DEPTH = 5, /* full pages of a sequence, at most */
    TOKENS = PAGE * DEPTH + PAGE - 1,
    POOL = 24,
    HOLDERS = 4,
    SNAPSHOTS = 4096, /* added in one run */
    BUDGET = 100,
    KINDS = 2,
};

struct known {
    bool in_tree;
    int32_t depth, page;
    uint64_t stamp;
    int32_t tokens[TOKENS];
};

struct shot {
    bool in_tree, freed;
    int32_t kind, pins;
    int64_t length;
    size_t bytes;
    uint64_t stamp;
    struct di_snapshot *handle; /* while pinned */
    int32_t tokens[TOKENS];
};

struct sequence {
    int32_t n, tokens[TOKENS];
};

struct world {
    struct di_pages *pages;
    struct di_prefix *tree;
    uint64_t seed, draws, clock;
    struct known known[POOL]; /* by page */
    struct shot *shots;
    int32_t n_shots;
    int32_t n_held[HOLDERS], held[HOLDERS][DEPTH];
    uint64_t lookups, hits, hit_tokens, evicted, evicted_shots, shot_lookups, shot_hits;
};

static int32_t draw(struct world *w, int32_t n)
{
    uint32_t out[4];
    di_philox4x32(w->seed, (uint32_t[4]){(uint32_t)w->draws++, 0, 0, 0}, out);
    return (int32_t)(out[0] % (uint32_t)n);
}

/* Three kinds of page, which differ in the first or the last token only; the same at every depth. */
static void fill_page(int32_t *tokens, int32_t kind)
{
    for (int32_t i = 0; i < PAGE; i++)
        tokens[i] = i;
    if (kind == 1)
        tokens[0] = 999;
    if (kind == 2)
        tokens[PAGE - 1] = 999;
}

static void draw_sequence(struct world *w, struct sequence *s)
{
    int32_t buffer[PAGE * (DEPTH + 1)];
    for (int32_t page = 0; page <= DEPTH; page++)
        fill_page(buffer + page * PAGE, draw(w, 3));
    const int32_t tails[] = {0, 0, 1, 5, PAGE - 1, draw(w, PAGE)}; /* few, so that equal lengths meet */
    s->n = draw(w, DEPTH + 1) * PAGE + tails[draw(w, 6)];
    memcpy(s->tokens, buffer, sizeof s->tokens);
}

static bool same(const int32_t *a, const int32_t *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static struct known *find_known(struct world *w, const int32_t *tokens, int32_t depth)
{
    for (int32_t id = 0; id < POOL; id++)
        if (w->known[id].in_tree && w->known[id].depth == depth && same(w->known[id].tokens, tokens, depth * PAGE))
            return &w->known[id];
    return NULL;
}

static int32_t references(const struct world *w, int32_t page)
{
    int32_t refs = w->known[page].in_tree;
    for (int32_t h = 0; h < HOLDERS; h++)
        for (int32_t i = 0; i < w->n_held[h]; i++)
            refs += w->held[h][i] == page;
    return refs;
}

/* Everything that can be seen of tree and pool is as in the model. */
static void compare(struct world *w)
{
    char why[300] = "";
    struct di_prefix_stats stats;
    if (!di_prefix_audit(w->tree, why, sizeof why))
        fail_msg("seed %llu, draw %llu: %s", (unsigned long long)w->seed, (unsigned long long)w->draws, why);
    int32_t nodes = 0, snapshots = 0;
    size_t bytes = 0;
    for (int32_t id = 0; id < POOL; id++) {
        assert_int_equal(di_pages_refs(w->pages, id), references(w, id));
        nodes += w->known[id].in_tree;
    }
    for (int32_t i = 0; i < w->n_shots; i++) {
        const struct shot *s = &w->shots[i];
        assert_int_equal(s->freed, !s->in_tree && s->pins == 0);
        snapshots += s->in_tree;
        bytes += s->in_tree ? s->bytes : 0;
    }
    di_prefix_stats(w->tree, &stats);
    assert_int_equal(stats.nodes, nodes);
    assert_int_equal(stats.snapshots, snapshots);
    assert_int_equal(stats.snapshot_bytes, bytes);
    assert_int_equal(stats.lookups, w->lookups);
    assert_int_equal(stats.hits, w->hits);
    assert_int_equal(stats.hit_tokens, w->hit_tokens);
    assert_int_equal(stats.snapshot_lookups, w->shot_lookups);
    assert_int_equal(stats.snapshot_hits, w->shot_hits);
    assert_int_equal(stats.evicted_pages, w->evicted);
    assert_int_equal(stats.evicted_snapshots, w->evicted_shots);
}

static int context_of_payloads;

static void free_shot(void *context, void *payload)
{
    struct shot *s = payload;
    assert_ptr_equal(context, &context_of_payloads);
    assert_false(s->freed);
    s->freed = true;
}

static struct di_prefix *open_tree(struct di_pages *pages, int32_t hash_bits)
{
    struct di_error err = {0};
    struct di_prefix *tree;
    struct di_prefix_options options = {.salt = "model",
                                        .salt_bytes = 5,
                                        .snapshot_bytes = BUDGET,
                                        .free_payload = free_shot,
                                        .free_context = &context_of_payloads,
                                        .hash_bits = hash_bits};
    assert_int_equal(di_prefix_open(pages, &options, &tree, &err), DI_OK);
    return tree;
}

static struct di_pages *open_pages(int32_t n)
{
    struct di_error err = {0};
    struct di_pages *pages;
    assert_int_equal(di_pages_open(n, &pages, &err), DI_OK);
    return pages;
}

static struct known *oldest_leaf(struct world *w)
{
    struct known *oldest = NULL;
    for (int32_t id = 0; id < POOL; id++) {
        struct known *k = &w->known[id];
        bool leaf = k->in_tree && references(w, id) == 1;
        for (int32_t other = 0; leaf && other < POOL; other++)
            leaf = !w->known[other].in_tree || w->known[other].depth != k->depth + 1 ||
                   !same(w->known[other].tokens, k->tokens, k->depth * PAGE);
        if (leaf && (oldest == NULL || k->stamp < oldest->stamp))
            oldest = k;
    }
    return oldest;
}

static void evict(struct world *w, int32_t wanted)
{
    int32_t freed = 0;
    struct known *leaf;
    while (freed < wanted && (leaf = oldest_leaf(w)) != NULL) {
        leaf->in_tree = false;
        freed++;
        for (int32_t i = 0; i < w->n_shots; i++) {
            struct shot *s = &w->shots[i];
            if (s->in_tree && s->length / PAGE == leaf->depth && same(s->tokens, leaf->tokens, leaf->depth * PAGE)) {
                s->in_tree = false;
                w->evicted_shots++;
            }
        }
    }
    w->evicted += (uint64_t)freed;
    assert_int_equal(di_prefix_evict(w->tree, wanted), freed);
}

/* Returns the pages found, named in `found`. */
static int32_t lookup(struct world *w, const struct sequence *s, int32_t max_pages, int32_t *found)
{
    struct di_prefix_hit hit = {.pages = found, .max_pages = max_pages, .n_pages = -1};
    di_prefix_lookup(w->tree, s->tokens, s->n, &hit);
    struct known *k;
    int32_t n = 0;
    w->clock++;
    while (n < max_pages && n < s->n / PAGE && (k = find_known(w, s->tokens, n + 1)) != NULL) {
        assert_true(n < hit.n_pages);
        assert_int_equal(found[n], k->page);
        k->stamp = w->clock;
        n++;
    }
    assert_int_equal(hit.n_pages, n);
    w->lookups++;
    w->hits += n > 0;
    w->hit_tokens += (uint64_t)(n * PAGE);
    return n;
}

static void let_go(struct world *w, int32_t h)
{
    while (w->n_held[h] > 0)
        di_pages_drop(w->pages, w->held[h][--w->n_held[h]]);
}

/* A request: reuses what it finds (or, racing with another, nothing), takes the rest, publishes, and may live on. */
static void serve(struct world *w)
{
    struct sequence s;
    int32_t h = draw(w, HOLDERS), *held = w->held[h];
    let_go(w, h);
    draw_sequence(w, &s);
    int32_t n = s.n / PAGE;
    if (draw(w, 4) != 0) {
        w->n_held[h] = lookup(w, &s, DEPTH, held);
        struct di_prefix_hit hit = {.pages = held, .n_pages = w->n_held[h]};
        di_prefix_hold(w->tree, &hit);
    }
    if (di_pages_free_count(w->pages) < n - w->n_held[h])
        evict(w, n - w->n_held[h] - di_pages_free_count(w->pages));
    while (w->n_held[h] < n && di_pages_free_count(w->pages) > 0)
        held[w->n_held[h]++] = di_pages_take(w->pages);
    n = draw(w, 4) == 0 ? draw(w, w->n_held[h] + 1) : w->n_held[h];
    assert_int_equal(di_prefix_publish(w->tree, s.tokens, n, held), n);
    w->clock++;
    for (int32_t i = 0; i < n; i++) {
        struct known *k = find_known(w, s.tokens, i + 1);
        if (k == NULL) {
            k = &w->known[held[i]];
            *k = (struct known){.in_tree = true, .depth = i + 1, .page = held[i]};
            memcpy(k->tokens, s.tokens, sizeof k->tokens);
        }
        k->stamp = w->clock;
    }
    if (draw(w, 2) == 0)
        let_go(w, h);
}

static bool model_add(struct world *w, const struct sequence *s, int64_t length, struct shot *out)
{
    struct shot *equal = NULL;
    size_t held = 0, bytes = 0;
    for (int32_t depth = 1; depth <= length / PAGE; depth++)
        if (find_known(w, s->tokens, depth) == NULL)
            return false;
    for (int32_t i = 0; i < w->n_shots; i++) {
        struct shot *other = &w->shots[i];
        if (!other->in_tree)
            continue;
        if (other->kind == out->kind && other->length == length && same(other->tokens, s->tokens, length)) {
            equal = other;
            continue;
        }
        bytes += other->bytes;
        held += other->pins > 0 ? other->bytes : 0;
    }
    if (length < 1 || held + out->bytes > BUDGET)
        return false;
    if (equal != NULL)
        equal->in_tree = false;
    while (bytes + out->bytes > BUDGET) {
        struct shot *oldest = NULL;
        for (int32_t i = 0; i < w->n_shots; i++) {
            struct shot *other = &w->shots[i];
            if (other->in_tree && other->pins == 0 && (oldest == NULL || other->stamp < oldest->stamp))
                oldest = other;
        }
        oldest->in_tree = false;
        bytes -= oldest->bytes;
        w->evicted_shots++;
    }
    out->in_tree = true;
    out->length = length;
    out->stamp = ++w->clock;
    memcpy(out->tokens, s->tokens, sizeof out->tokens);
    return true;
}

static void add_snapshot(struct world *w, bool out_of_memory)
{
    struct sequence s;
    draw_sequence(w, &s);
    if (w->n_shots == SNAPSHOTS)
        return;
    struct shot *shot = &w->shots[w->n_shots];
    *shot = (struct shot){.kind = draw(w, KINDS), .bytes = (size_t)draw(w, draw(w, 8) == 0 ? BUDGET + 20 : 30)};
    int64_t length = draw(w, 2) == 0 ? s.n : s.n - s.n % PAGE;
    if (out_of_memory) {
        di_mem_fail_after(1);
        bool added = di_prefix_add_snapshot(w->tree, s.tokens, length, shot->kind, shot, shot->bytes);
        di_mem_fail_after(0);
        assert_false(added);
        return;
    }
    bool expected = model_add(w, &s, length, shot);
    assert_int_equal(di_prefix_add_snapshot(w->tree, s.tokens, length, shot->kind, shot, shot->bytes), expected);
    w->n_shots += expected;
}

static void find_snapshot(struct world *w)
{
    struct sequence s;
    struct shot *best = NULL;
    int64_t length = -1;
    int32_t kind = draw(w, KINDS);
    draw_sequence(w, &s);
    int64_t limit = draw(w, 2) == 0 ? s.n : draw(w, TOKENS);
    for (int32_t i = 0; i < w->n_shots; i++) {
        struct shot *shot = &w->shots[i];
        if (shot->in_tree && shot->kind == kind && shot->length <= limit && shot->length <= s.n &&
            same(shot->tokens, s.tokens, shot->length) && (best == NULL || shot->length > best->length))
            best = shot;
    }
    struct di_snapshot *found = di_prefix_find_snapshot(w->tree, s.tokens, s.n, kind, limit, &length);
    w->shot_lookups++;
    w->shot_hits += best != NULL;
    assert_int_equal(length, best != NULL ? best->length : 0);
    assert_int_equal(found != NULL, best != NULL);
    if (found == NULL)
        return;
    assert_ptr_equal(di_snapshot_payload(found), best);
    best->stamp = ++w->clock;
    if (draw(w, 3) == 0) {
        di_snapshot_hold(found);
        best->handle = found;
        best->pins++;
    }
}

static void unpin(struct world *w)
{
    int32_t start = w->n_shots > 0 ? draw(w, w->n_shots) : 0;
    for (int32_t i = 0; i < w->n_shots; i++) {
        struct shot *shot = &w->shots[(start + i) % w->n_shots];
        if (shot->pins == 0)
            continue;
        shot->pins--;
        di_snapshot_drop(shot->handle);
        return;
    }
}

static void step(struct world *w)
{
    int32_t found[DEPTH];
    struct sequence s;
    switch (draw(w, 12)) {
    case 0:
    case 1:
        draw_sequence(w, &s);
        lookup(w, &s, draw(w, 4) == 0 ? draw(w, DEPTH) : DEPTH, found);
        break;
    case 2:
        evict(w, draw(w, 4));
        break;
    case 3:
        let_go(w, draw(w, HOLDERS));
        break;
    case 4:
    case 5:
        add_snapshot(w, false);
        break;
    case 6:
        add_snapshot(w, true);
        break;
    case 7:
    case 8:
        find_snapshot(w);
        break;
    case 9:
        unpin(w);
        break;
    default:
        serve(w);
    }
}

static void run(uint64_t seed, int32_t steps, int32_t hash_bits)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->seed = seed;
    w->shots = calloc(SNAPSHOTS, sizeof *w->shots);
    assert_non_null(w->shots);
    w->pages = open_pages(POOL);
    w->tree = open_tree(w->pages, hash_bits);
    for (int32_t i = 0; i < steps; i++) {
        step(w);
        compare(w);
    }
    /* the run has come by what it is for */
    assert_true(w->hits > 0 && w->evicted > 0 && w->evicted_shots > 0 && w->n_shots > 100);
    if (seed % 2 == 0) {
        for (int32_t h = 0; h < HOLDERS; h++)
            let_go(w, h);
        evict(w, POOL);
        compare(w);
        assert_int_equal(di_pages_free_count(w->pages), POOL);
    }
    di_prefix_close(w->tree);
    for (int32_t i = 0; i < w->n_shots; i++) {
        struct shot *s = &w->shots[i];
        assert_int_equal(s->freed, s->pins == 0); /* what is held outlives the tree */
        for (; s->pins > 0; s->pins--)
            di_snapshot_drop(s->handle);
        assert_true(s->freed);
    }
    for (int32_t h = 0; h < HOLDERS; h++)
        let_go(w, h);
    assert_int_equal(di_pages_free_count(w->pages), POOL);
    di_pages_close(w->pages);
    free(w->shots);
    free(w);
}

static void agrees_with_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run(seed, 4000, 0);
}

static void agrees_with_model_where_hashes_collide(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 14; seed++)
        run(seed, 3000, (int32_t)(seed - 10));
}

/* Every page its own leaf: they go in the order of their last use. */
static void many_leaves_go_by_age(void **state)
{
    (void)state;
    enum { N = 500 };
    static struct world w;
    w = (struct world){.seed = 21};
    struct di_pages *pages = open_pages(N);
    struct di_prefix *tree = open_tree(pages, 0);
    int32_t tokens[PAGE] = {0}, id, last_use[N] = {0};
    for (int32_t i = 0; i < N; i++) {
        tokens[5] = i;
        id = di_pages_take(pages);
        assert_int_equal(id, i);
        assert_int_equal(di_prefix_publish(tree, tokens, 1, &id), 1);
        last_use[i] = i;
        if (i % 7 != 0) /* every seventh stays with its taker */
            di_pages_drop(pages, id);
    }
    for (int32_t use = N; use < 4 * N; use++) {
        struct di_prefix_hit hit = {.pages = &id, .max_pages = 1};
        tokens[5] = draw(&w, N);
        di_prefix_lookup(tree, tokens, PAGE, &hit);
        assert_int_equal(hit.n_pages, 1);
        last_use[tokens[5]] = use;
    }
    for (int32_t left = N - (N + 6) / 7; left > 0; left--) {
        int32_t oldest = -1;
        for (int32_t i = 0; i < N; i++)
            if (i % 7 != 0 && di_pages_refs(pages, i) > 0 && (oldest < 0 || last_use[i] < last_use[oldest]))
                oldest = i;
        assert_int_equal(di_prefix_evict(tree, 1), 1);
        assert_int_equal(di_pages_refs(pages, oldest), 0);
        char why[300] = "";
        if (left % 16 == 0 && !di_prefix_audit(tree, why, sizeof why))
            fail_msg("%s", why);
    }
    assert_int_equal(di_prefix_evict(tree, 1), 0);
    di_prefix_close(tree);
    for (int32_t i = 0; i < N; i += 7)
        di_pages_drop(pages, i);
    assert_int_equal(di_pages_free_count(pages), N);
    di_pages_close(pages);
}

static void a_page_lies_in_the_tree_once(void **state)
{
    (void)state;
    struct di_pages *pages = open_pages(4);
    struct di_prefix *tree = open_tree(pages, 0);
    int32_t tokens[3 * PAGE] = {0}, ids[3];
    for (int32_t i = 0; i < 3; i++)
        ids[i] = di_pages_take(pages);
    assert_int_equal(di_prefix_publish(tree, tokens, 2, ids), 2);
    tokens[0] = 1;
    assert_int_equal(di_prefix_publish(tree, tokens, 3, (int32_t[]){ids[2], ids[1], ids[0]}), 1);
    char why[300] = "";
    assert_true(di_prefix_audit(tree, why, sizeof why));
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(di_pages_refs(pages, ids[i]), 2);
        di_pages_drop(pages, ids[i]);
    }
    di_prefix_close(tree);
    assert_int_equal(di_pages_free_count(pages), 4);
    di_pages_close(pages);
}

/* Keys tell apart what must not be shared. */
static void keys(void **state)
{
    (void)state;
    struct di_pages *pages = open_pages(2);
    struct di_prefix *tree = open_tree(pages, 0);
    int32_t tokens[2 * PAGE] = {0}, ids[2] = {di_pages_take(pages), di_pages_take(pages)};
    XXH128_hash_t a = di_prefix_root_key(tree, "oracle", 6), b = di_prefix_root_key(tree, "native", 6);
    assert_false(XXH128_isEqual(a, b));
    assert_false(XXH128_isEqual(a, di_prefix_root_key(tree, NULL, 0)));
    assert_int_equal(di_prefix_publish(tree, tokens, 2, ids), 2);
    assert_false(XXH128_isEqual(tree->nodes[ids[0]].key, tree->nodes[ids[1]].key)); /* the same tokens, deeper */
    assert_true(tree->nodes[ids[0]].key.high64 != 0);
    di_prefix_close(tree);
    di_pages_close(pages);
}

static void allocation_failures(void **state)
{
    (void)state;
    struct di_pages *pages = open_pages(8);
    struct di_prefix_options options = {0};
    uint64_t n = 1;
    for (di_status status = DI_ERR_NOMEM; status != DI_OK; n++) {
        struct di_prefix *tree;
        struct di_error err = {0};
        di_mem_fail_after(n);
        status = di_prefix_open(pages, &options, &tree, &err);
        di_mem_fail_after(0);
        assert_int_equal(status, tree != NULL ? DI_OK : DI_ERR_NOMEM);
        di_prefix_close(tree);
    }
    assert_true(n > 4);
    di_pages_close(pages);
}

static void audit_sees_damage(void **state)
{
    (void)state;
    struct di_pages *pages = open_pages(8);
    struct di_prefix *tree = open_tree(pages, 0);
    struct shot shots[2] = {{0}};
    int32_t tokens[2 * PAGE] = {0}, ids[4];
    char why[300] = "";
    for (int32_t i = 0; i < 4; i++)
        ids[i] = di_pages_take(pages);
    assert_int_equal(di_prefix_publish(tree, tokens, 2, ids), 2);
    assert_true(di_prefix_add_snapshot(tree, tokens, PAGE + 3, 0, &shots[0], 5));
    assert_true(di_prefix_add_snapshot(tree, tokens, PAGE + 2, 0, &shots[1], 5));
    tokens[PAGE] = 1;
    assert_int_equal(di_prefix_publish(tree, tokens, 2, ids + 2), 2);
    assert_true(di_prefix_audit(tree, why, sizeof why));
    struct di_prefix_node *node = &tree->nodes[ids[1]], *parent = &tree->nodes[ids[0]];
    struct di_snapshot *s = tree->oldest;
    int32_t *numbers[] = {&node->parent,  &node->depth,     &node->heap_at, &node->tokens[9],  &parent->n_children,
                          &tree->n_nodes, &tree->leaves[0], &s->node,       &tree->n_snapshots};
    uint64_t *words[] = {&node->stamp, &node->key.low64, &node->key.high64, &s->stamp};
    size_t *sizes[] = {&tree->snapshot_bytes, &tree->held_bytes, &s->bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i] += 1;
        assert_false(di_prefix_audit(tree, why, sizeof why));
        *numbers[i] -= 1;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        uint64_t was = *words[i];
        *words[i] = was + 1000;
        assert_false(di_prefix_audit(tree, why, sizeof why));
        *words[i] = was;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *sizes[i] += 1;
        assert_false(di_prefix_audit(tree, why, sizeof why));
        *sizes[i] -= 1;
    }
    for (size_t at = 0; at <= tree->mask; at++) { /* a node that the table lost */
        int32_t was = tree->table[at];
        tree->table[at] = 0;
        assert_int_equal(di_prefix_audit(tree, why, sizeof why), was == 0);
        tree->table[at] = was;
    }
    assert_true(di_prefix_audit(tree, why, sizeof why));
    di_prefix_close(tree);
    di_pages_close(pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_model),
        cmocka_unit_test(agrees_with_model_where_hashes_collide),
        cmocka_unit_test(many_leaves_go_by_age),
        cmocka_unit_test(a_page_lies_in_the_tree_once),
        cmocka_unit_test(keys),
        cmocka_unit_test(allocation_failures),
        cmocka_unit_test(audit_sees_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
