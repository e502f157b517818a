/* Slots, pages, prefix cache, snapshots, swapping: where a sequence lives. design: docs/engine.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/loop.h"

static int64_t pages_for(int64_t tokens)
{
    return (tokens + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS;
}

static struct di_pages *pool(const struct di_loop *l)
{
    return di_kv_store_pool(l->store);
}

/* Snapshots hold the rings of these layers: of all, or in compact mode of those whose rows depend on the tokens alone. */
static int32_t snapshot_layers(const struct di_loop *l)
{
    return l->o.truncation == DI_TRUNCATION_COMPACT ? di_reach_decoder(&l->engine->plan) : l->engine->plan.n_layers;
}

/* The page that is begun at `length` goes along. */
static struct di_kv_state snapshot_state(const struct di_loop *l, int64_t length)
{
    return (struct di_kv_state){
        .n_layers = snapshot_layers(l),
        .first_page = (int32_t)(length / DI_PAGE_TOKENS),
        .n_pages = l->engine->layout.n_kv > 0 && length % DI_PAGE_TOKENS != 0 ? 1 : 0,
    };
}

static struct di_kv_state whole_state(const struct di_loop *l, int32_t pages)
{
    return (struct di_kv_state){.n_layers = l->engine->plan.n_layers, .n_pages = pages};
}

/* ---------------------------------------------------------------------------------------------------------------------
 * What is released later. */

static void throw_away(struct di_loop *l, void *memory, struct di_snapshot *snapshot)
{
    if (memory == NULL && snapshot == NULL)
        return;
    if (l->n_trash == l->trash_capacity) {
        int32_t capacity = 2 * l->trash_capacity + 16;
        struct di_trash *grown = realloc(l->trash, (size_t)capacity * sizeof *grown);
        if (grown == NULL) { /* no room to remember it: wait for the stream instead */
            l->ops->wait(l->dev, l->ops->record(l->dev));
            l->ops->host_release(l->dev, memory);
            if (snapshot != NULL)
                di_snapshot_drop(snapshot);
            return;
        }
        l->trash = grown;
        l->trash_capacity = capacity;
    }
    l->trash[l->n_trash++] = (struct di_trash){.memory = memory, .snapshot = snapshot};
}

void di_room_mark(struct di_loop *l)
{
    uint64_t event = 0;
    bool any = false;
    for (int32_t i = 0; i < l->n_trash; i++)
        if (!l->trash[i].marked) {
            event = any ? event : l->ops->record(l->dev);
            any = true;
            l->trash[i].event = event;
            l->trash[i].marked = true;
        }
}

void di_room_sweep(struct di_loop *l, bool all)
{
    for (int32_t i = 0; i < l->n_trash;) {
        struct di_trash t = l->trash[i];
        if (!all && (!t.marked || !l->ops->passed(l->dev, t.event))) {
            i++;
            continue;
        }
        l->trash[i] = l->trash[--l->n_trash];
        l->ops->host_release(l->dev, t.memory);
        if (t.snapshot != NULL)
            di_snapshot_drop(t.snapshot); /* may add to the list */
    }
}

/* Called by the prefix cache. A snapshot that is still being written must not be freed before. */
static void free_payload(void *context, void *payload)
{
    throw_away(context, payload, NULL);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Opening. */

di_status di_room_open(struct di_loop *l, struct di_error *err)
{
    struct di_engine *e = l->engine;
    size_t seqs = (size_t)l->o.max_seqs, longest = (size_t)pages_for(l->o.max_length);
    DI_TRY(di_kv_store_open(l->ops, l->dev, &e->layout, l->o.max_seqs, (int32_t)l->o.pool_pages, (int32_t)longest,
                            &l->store, err));
    l->free_slots = di_arena_alloc(&l->arena, seqs, sizeof *l->free_slots);
    l->slot_seq = di_arena_alloc(&l->arena, seqs, sizeof *l->slot_seq);
    l->hit_pages = di_arena_alloc(&l->arena, longest, sizeof *l->hit_pages);
    if (l->free_slots == NULL || l->slot_seq == NULL || l->hit_pages == NULL)
        return DI_FAIL_NOMEM(err, (seqs * 2 + longest) * sizeof *l->hit_pages);
    for (int32_t i = l->o.max_seqs; i-- > 0;)
        l->free_slots[l->n_free_slots++] = i;
    if (!l->o.prefix_cache)
        return DI_OK;
    struct di_prefix_options prefix = {
        .salt = e->identity,
        .salt_bytes = strlen(e->identity),
        .snapshot_bytes = l->o.snapshot_bytes,
        .free_payload = free_payload,
        .free_context = l,
    };
    return di_prefix_open(pool(l), &prefix, &l->prefix, err);
}

void di_room_close(struct di_loop *l)
{
    di_prefix_close(l->prefix);
    di_room_sweep(l, true);
    free(l->trash);
    di_kv_store_close(l->store);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Pages. */

/* Makes sure that so many pages are free, at the cost of what only the prefix cache holds. */
static bool free_pages(struct di_loop *l, int64_t wanted)
{
    int64_t missing = wanted - di_pages_free_count(pool(l));
    if (missing <= 0)
        return true;
    return l->prefix != NULL && missing <= l->o.pool_pages && di_prefix_evict(l->prefix, (int32_t)missing) >= missing;
}

bool di_room_grow(void *loop, struct di_task *task, int64_t length)
{
    struct di_loop *l = loop;
    struct di_seq *seq = (struct di_seq *)(void *)task;
    int32_t owned;
    if (l->engine->layout.n_kv == 0)
        return true;
    (void)di_kv_store_pages(l->store, seq->slot, &owned);
    if (!free_pages(l, pages_for(length) - owned))
        return false;
    return di_kv_store_reserve(l->store, seq->slot, length, NULL) == DI_OK;
}

void di_room_publish(struct di_loop *l, struct di_seq *seq)
{
    int64_t fed = seq->task.computed < seq->n_token ? seq->task.computed : seq->n_token;
    int32_t full = (int32_t)(fed / DI_PAGE_TOKENS), owned;
    if (l->prefix == NULL || seq->slot < 0 || full <= seq->published || seq->reach.approximate)
        return;
    const int32_t *pages = di_kv_store_pages(l->store, seq->slot, &owned);
    if (full > owned) /* no layer keeps global rows */
        return;
    (void)di_prefix_publish(l->prefix, seq->token, full, pages);
    seq->published = full;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Snapshots. */

void di_room_snapshot(struct di_loop *l, struct di_seq *seq, int64_t length)
{
    if (l->prefix == NULL || l->o.snapshot_bytes == 0 || seq->reach.approximate || length < 1 || seq->slot < 0)
        return;
    struct di_kv_state what = snapshot_state(l, length);
    size_t bytes = di_kv_store_state_bytes(l->store, &what);
    di_room_publish(l, seq);
    if (bytes > l->o.snapshot_bytes || seq->published < (int32_t)(length / DI_PAGE_TOKENS))
        return;
    void *memory = l->ops->host_alloc(l->dev, bytes);
    if (memory == NULL)
        return;
    di_kv_store_save(l->store, seq->slot, &what, memory);
    if (!di_prefix_add_snapshot(l->prefix, seq->token, length, 0, memory, bytes))
        throw_away(l, memory, NULL);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Admission. */

/* Where a sequence can begin, and what its prefix needs. */
struct beginning {
    struct di_reach reach;
    struct di_snapshot *snapshot;
    int32_t pages; /* of the prefix cache: l->hit_pages */
    int64_t rows;  /* left to run */
};

static struct di_reach_args reach_args(const struct di_loop *l, const struct di_seq *seq)
{
    return (struct di_reach_args){
        .truncation = seq->task.all_logits ? DI_TRUNCATION_OFF : l->o.truncation,
        .keep = l->o.keep,
        .length = seq->call->n_prompt,
    };
}

static void derive(const struct di_loop *l, const struct di_reach_args *args, struct beginning *b)
{
    di_reach_derive(l->engine->config, &l->engine->plan, args, &b->reach);
    b->rows = args->length - b->reach.start;
}

/* The cheapest of: from cold, from a snapshot, from cached pages and what has to be replayed before them. */
static void choose_beginning(struct di_loop *l, const struct di_seq *seq, struct beginning *best)
{
    struct di_reach_args args = reach_args(l, seq);
    int64_t n = seq->call->n_prompt;
    *best = (struct beginning){0};
    derive(l, &args, best);
    if (l->prefix == NULL || seq->task.all_logits || n < 2)
        return;
    struct di_prefix_hit hit = {.pages = l->hit_pages, .max_pages = (int32_t)pages_for(l->o.max_length)};
    di_prefix_lookup(l->prefix, seq->call->prompt, n - 1, &hit);
    bool compact = l->o.truncation == DI_TRUNCATION_COMPACT;
    int64_t length, last = compact ? (n - l->o.keep > 0 ? n - l->o.keep : 0) : n - 1;
    struct di_snapshot *snapshot = di_prefix_find_snapshot(l->prefix, seq->call->prompt, n, 0, last, &length);
    if (snapshot != NULL) {
        struct beginning b = {.snapshot = snapshot, .pages = (int32_t)(length / DI_PAGE_TOKENS)};
        args.have = args.state = length;
        derive(l, &args, &b);
        if (b.rows < best->rows)
            *best = b;
    }
    if (hit.n_pages > 0) {
        struct beginning b = {.pages = hit.n_pages};
        args.have = (int64_t)hit.n_pages * DI_PAGE_TOKENS;
        args.state = -1;
        args.bounded = l->o.bounded_replay;
        derive(l, &args, &b);
        if (b.rows < best->rows)
            *best = b;
    }
}

/* Pages that should stay free beside a new sequence, so that those that run can grow. */
static int64_t watermark(const struct di_loop *l)
{
    int64_t share = l->o.pool_pages / 100;
    return di_sched_count(l->sched, DI_TASK_RUNNING) == 0 ? 0 : share > 1 ? share : 1;
}

static void take_slot(struct di_loop *l, struct di_seq *seq)
{
    seq->slot = l->free_slots[--l->n_free_slots];
    l->slot_seq[seq->slot] = seq;
}

static di_status enter_slot(struct di_loop *l, struct di_seq *seq, const struct beginning *b, struct di_error *err)
{
    DI_TRY(di_seq_begin(seq, err));
    take_slot(l, seq);
    seq->reach = b->reach;
    seq->published = b->pages;
    seq->cached = b->reach.start;
    l->stats.cached_tokens += (uint64_t)b->reach.start;
    seq->task.computed = b->reach.start;
    seq->task.split = l->o.truncation == DI_TRUNCATION_COMPACT && l->prefix != NULL && l->o.snapshot_bytes > 0
                          ? seq->call->n_prompt - l->o.keep
                          : 0;
    if (b->pages > 0 && l->engine->layout.n_kv > 0)
        DI_TRY(di_kv_store_adopt(l->store, seq->slot, l->hit_pages, b->pages, err));
    if (b->snapshot == NULL)
        return DI_OK;
    struct di_kv_state what = snapshot_state(l, b->reach.start);
    DI_TRY(di_kv_store_reserve(l->store, seq->slot, b->reach.start, err));
    di_kv_store_load(l->store, seq->slot, &what, di_snapshot_payload(b->snapshot));
    return DI_OK;
}

bool di_room_admit(void *loop, struct di_task *task)
{
    struct di_loop *l = loop;
    struct di_seq *seq = (struct di_seq *)(void *)task;
    struct beginning b;
    struct di_error error = {0};
    if (l->n_free_slots == 0 || seq->ended)
        return false;
    choose_beginning(l, seq, &b);
    /* What was found must survive the eviction that makes room for the rest. */
    struct di_prefix_hit hit = {.pages = l->hit_pages, .max_pages = b.pages, .n_pages = b.pages};
    if (b.snapshot != NULL)
        di_snapshot_hold(b.snapshot);
    if (b.pages > 0)
        di_prefix_hold(l->prefix, &hit);
    int64_t needed = l->engine->layout.n_kv > 0 ? pages_for(seq->call->n_prompt + 1) - b.pages : 0;
    bool fits = free_pages(l, needed + watermark(l));
    if (fits && enter_slot(l, seq, &b, &error) != DI_OK)
        di_seq_fail(seq, &error); /* the loop finds it */
    for (int32_t i = 0; i < b.pages; i++)
        di_pages_drop(pool(l), l->hit_pages[i]);
    throw_away(l, NULL, b.snapshot);
    return fits;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Leaving: for good, or for a while. */

static void leave_slot(struct di_loop *l, struct di_seq *seq)
{
    if (seq->slot < 0)
        return;
    di_kv_store_release(l->store, seq->slot);
    l->slot_seq[seq->slot] = NULL;
    l->free_slots[l->n_free_slots++] = seq->slot;
    seq->slot = -1;
}

void di_room_leave(struct di_loop *l, struct di_seq *seq)
{
    leave_slot(l, seq);
    throw_away(l, seq->saved, NULL);
    seq->saved = NULL;
}

void di_room_swap_out(void *loop, struct di_task *task)
{
    struct di_loop *l = loop;
    struct di_seq *seq = (struct di_seq *)(void *)task;
    (void)di_kv_store_pages(l->store, seq->slot, &seq->saved_pages);
    struct di_kv_state what = whole_state(l, seq->saved_pages);
    size_t bytes = di_kv_store_state_bytes(l->store, &what);
    seq->saved = l->ops->host_alloc(l->dev, bytes);
    if (seq->saved == NULL) {
        struct di_error error = {0};
        (void)DI_FAIL_NOMEM(&error, bytes);
        di_seq_fail(seq, &error);
    } else {
        di_kv_store_save(l->store, seq->slot, &what, seq->saved);
    }
    leave_slot(l, seq);
    seq->preempted++;
    l->stats.preemptions++;
}

bool di_room_swap_in(void *loop, struct di_task *task)
{
    struct di_loop *l = loop;
    struct di_seq *seq = (struct di_seq *)(void *)task;
    /* One page more than it had: else it would be the first to go again. */
    int64_t alone = di_sched_count(l->sched, DI_TASK_RUNNING) == 0 ? 0 : 1;
    if (l->n_free_slots == 0 || seq->ended || !free_pages(l, seq->saved_pages + alone))
        return false;
    struct di_kv_state what = whole_state(l, seq->saved_pages);
    take_slot(l, seq);
    if (di_kv_store_reserve(l->store, seq->slot, (int64_t)seq->saved_pages * DI_PAGE_TOKENS, &seq->error) != DI_OK) {
        di_seq_fail(seq, &(struct di_error){.code = DI_ERR_INTERNAL, .message = "pages that were free are not"});
        return true;
    }
    di_kv_store_load(l->store, seq->slot, &what, seq->saved);
    throw_away(l, seq->saved, NULL);
    seq->saved = NULL;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The audit: every reference on a page has a holder that can be named. */

bool di_room_audit(struct di_loop *l, char *why, size_t why_size)
{
    if (!di_kv_store_audit(l->store, why, why_size))
        return false;
    if (l->prefix != NULL && !di_prefix_audit(l->prefix, why, why_size))
        return false;
    int64_t held = 0, references = 0;
    for (int32_t slot = 0; slot < l->o.max_seqs; slot++) {
        int32_t n;
        (void)di_kv_store_pages(l->store, slot, &n);
        if (n > 0 && l->slot_seq[slot] == NULL) {
            snprintf(why, why_size, "slot %d is free and has %d pages", slot, n);
            return false;
        }
        held += n;
    }
    struct di_prefix_stats stats = {0};
    if (l->prefix != NULL)
        di_prefix_stats(l->prefix, &stats);
    for (int32_t page = 0; page < di_pages_total(pool(l)); page++)
        references += di_pages_refs(pool(l), page);
    if (references == held + stats.nodes)
        return true;
    snprintf(why, why_size, "%lld references on pages, but slots hold %lld and the prefix cache %d",
             (long long)references, (long long)held, stats.nodes);
    return false;
}
