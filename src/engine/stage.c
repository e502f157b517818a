/* A plan as the host arrays of a step, and of its draw. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/loop.h"

enum { CUT_ARRAYS = 6 }; /* index, position, slot, first, low, floor */

static di_status open_flight(struct di_loop *l, struct di_flight *f, struct di_error *err)
{
    const size_t n = (size_t)l->o.max_logits, top = n * DI_MAX_LOGPROBS;
    f->shares = di_arena_alloc(&l->arena, (size_t)l->o.max_seqs, sizeof *f->shares);
    f->host.token = l->ops->host_alloc(l->dev, n * sizeof *f->host.token);
    f->host.logprob = l->ops->host_alloc(l->dev, n * sizeof *f->host.logprob);
    f->host.rank = l->ops->host_alloc(l->dev, n * sizeof *f->host.rank);
    f->host.top_token = l->ops->host_alloc(l->dev, top * sizeof *f->host.top_token);
    f->host.top_logprob = l->ops->host_alloc(l->dev, top * sizeof *f->host.top_logprob);
    if (f->shares == NULL || f->host.token == NULL || f->host.logprob == NULL || f->host.rank == NULL ||
        f->host.top_token == NULL || f->host.top_logprob == NULL)
        return DI_FAIL_NOMEM(err, (3 * n + 2 * top) * sizeof(float));
    return DI_OK;
}

di_status di_stage_open(struct di_loop *l, struct di_error *err)
{
    const struct di_config *c = l->engine->config;
    const size_t rows = (size_t)l->o.max_rows;
    int32_t **arrays[] = {&l->position, &l->slot, &l->first, &l->low, &l->floor, &l->share_of};
    bool ok = true;
    l->ngram = c->n_engram_layers > 0 ? c->engram_max_ngram_size : 1;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ok = (*arrays[i] = di_arena_alloc(&l->arena, rows, sizeof(int32_t))) != NULL && ok;
    l->window = di_arena_alloc(&l->arena, rows * (size_t)l->ngram, sizeof *l->window);
    l->logit_row = di_arena_alloc(&l->arena, (size_t)l->o.max_logits, sizeof *l->logit_row);
    l->cuts = di_arena_alloc(&l->arena, (size_t)c->num_hidden_layers, sizeof *l->cuts);
    if (!ok || l->window == NULL || l->logit_row == NULL || l->cuts == NULL)
        return DI_FAIL_NOMEM(err, rows * (size_t)(8 + l->ngram) * sizeof(int32_t));
    DI_TRY(open_flight(l, &l->flights[0], err));
    DI_TRY(open_flight(l, &l->flights[1], err));
    return di_draw_builder_open(l->o.max_logits, c->vocab_size, &l->builder, err);
}

void di_stage_close(struct di_loop *l)
{
    for (int i = 0; i < 2; i++) {
        struct di_drawn *h = &l->flights[i].host;
        l->ops->host_release(l->dev, h->token);
        l->ops->host_release(l->dev, h->logprob);
        l->ops->host_release(l->dev, h->rank);
        l->ops->host_release(l->dev, h->top_token);
        l->ops->host_release(l->dev, h->top_logprob);
    }
    di_draw_builder_close(l->builder);
    free(l->cut_arrays);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Rows. */

/* The token at `position` as a row sees it: known, a draft, or the draw of the running step. */
static int32_t token_at(const struct di_seq *seq, int64_t position, int32_t running_logit)
{
    if (position < 0)
        return -1;
    if (position < seq->n_token)
        return seq->token[position];
    if (running_logit >= 0)
        return -2 - running_logit;
    return seq->draft[position - seq->n_token];
}

/* The logits row of the running step that draws the next token of `seq`; -1: none does. */
static int32_t running_logit(const struct di_flight *running, const struct di_seq *seq)
{
    if (running == NULL || seq->in_flight == 0)
        return -1;
    for (int32_t i = 0; i < running->n_shares; i++)
        if (running->shares[i].seq == seq)
            return running->shares[i].logit + running->shares[i].n_logits - 1;
    return -1;
}

static void stage_share(struct di_loop *l, const struct di_share *share, int32_t share_index, int32_t row,
                        int32_t drawn_by)
{
    const struct di_seq *seq = share->seq;
    for (int32_t i = 0; i < share->n; i++) {
        int64_t position = share->first + i;
        int32_t at = row + i;
        l->position[at] = (int32_t)position;
        l->slot[at] = seq->slot;
        l->first[at] = row;
        l->low[at] = (int32_t)seq->reach.low[0];
        l->floor[at] = (int32_t)seq->reach.floor;
        l->share_of[at] = share_index;
        for (int32_t back = 0; back < l->ngram; back++)
            l->window[(int64_t)at * l->ngram + back] = token_at(seq, position - back, drawn_by);
    }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Cuts: from layer to layer, the rows that the reach of their sequence lets go on. */

/* True if some rows may leave on their way. */
static bool needs_cuts(const struct di_loop *l, const struct di_flight *f)
{
    int32_t last = l->engine->plan.n_layers - 1;
    for (int32_t i = 0; i < f->n_shares; i++) {
        const struct di_reach *reach = &f->shares[i].seq->reach;
        if (f->shares[i].first < reach->first[last] || (reach->low[last] > 0 && reach->low[last] != reach->low[0]))
            return true;
    }
    return false;
}

struct cut_state {
    const int32_t *position; /* of the rows as they are now */
    const int32_t *share;
    int32_t n;
};

/* The rows that layer `layer` runs, of those before it. A cut is due if rows leave or windows change. */
static bool cut_at(struct di_loop *l, const struct di_flight *f, int32_t layer, struct cut_state *now, int32_t *arrays,
                   int32_t *share_of, struct di_cut *cut)
{
    const int32_t stride = f->n_rows;
    int32_t *index = arrays, *position = index + stride, *slot = position + stride, *first = slot + stride,
            *low = first + stride, *floor = low + stride, n = 0, begin = 0;
    bool due = false;
    for (int32_t i = 0; i < now->n; i++) {
        const struct di_share *share = &f->shares[now->share[i]];
        const struct di_reach *reach = &share->seq->reach;
        if (now->position[i] < reach->first[layer]) {
            due = true;
            continue;
        }
        due |= layer > 0 && reach->low[layer] != reach->low[layer - 1];
        if (n == 0 || share_of[n - 1] != now->share[i])
            begin = n;
        index[n] = i;
        position[n] = now->position[i];
        slot[n] = share->seq->slot;
        first[n] = begin;
        low[n] = (int32_t)reach->low[layer];
        floor[n] = (int32_t)reach->floor;
        share_of[n++] = now->share[i];
    }
    *cut = (struct di_cut){layer, n, index, position, slot, first, low, floor};
    (void)l;
    return due;
}

static di_status stage_cuts(struct di_loop *l, const struct di_flight *f, struct di_step *step, struct di_error *err)
{
    const int32_t layers = l->engine->plan.n_layers;
    const size_t rows = (size_t)f->n_rows, needed = (size_t)layers * (CUT_ARRAYS + 1) * rows;
    struct cut_state now = {l->position, l->share_of, f->n_rows};
    step->cuts = l->cuts;
    if (!needs_cuts(l, f))
        return DI_OK;
    if (needed > l->cut_capacity) {
        int32_t *grown = di_realloc_array(l->cut_arrays, needed, sizeof *grown);
        if (grown == NULL)
            return DI_FAIL_NOMEM(err, needed * sizeof *grown);
        l->cut_arrays = grown;
        l->cut_capacity = needed;
    }
    int32_t *arrays = l->cut_arrays;
    for (int32_t layer = 0; layer < layers && now.n > 0; layer++) {
        int32_t *share_of = arrays + CUT_ARRAYS * rows;
        struct di_cut *cut = &l->cuts[step->n_cuts];
        if (!cut_at(l, f, layer, &now, arrays, share_of, cut))
            continue;
        now = (struct cut_state){cut->position, share_of, cut->n_rows};
        step->n_cuts++;
        arrays += (CUT_ARRAYS + 1) * rows;
    }
    return DI_OK;
}

/* Row-layers of a step with its cuts. */
static uint64_t row_layers(const struct di_loop *l, const struct di_step *step)
{
    uint64_t sum = 0;
    int32_t n = step->n_rows, next = 0;
    for (int32_t layer = 0; layer < l->engine->plan.n_layers; layer++) {
        if (next < step->n_cuts && step->cuts[next].layer == layer)
            n = step->cuts[next++].n_rows;
        sum += (uint64_t)n;
    }
    return sum;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The step. */

/* Rows whose logits are wanted are the last of their shares; behind the cuts they are still there, at other places. */
static void stage_logits(struct di_loop *l, const struct di_flight *f, const struct di_step *step)
{
    const struct di_cut *cut = step->n_cuts > 0 ? &step->cuts[step->n_cuts - 1] : NULL;
    const int32_t n = cut != NULL ? cut->n_rows : step->n_rows;
    const int32_t *position = cut != NULL ? cut->position : l->position, *slot = cut != NULL ? cut->slot : l->slot;
    int32_t at = 0;
    for (int32_t i = 0; i < f->n_shares; i++) {
        const struct di_share *share = &f->shares[i];
        if (share->n_logits == 0)
            continue;
        int64_t wanted = share->first + share->n - share->n_logits;
        while (at < n && (slot[at] != share->seq->slot || position[at] != wanted))
            at++;
        for (int32_t k = 0; k < share->n_logits; k++)
            l->logit_row[share->logit + k] = at++;
    }
}

di_status di_stage_forward(struct di_loop *l, const struct di_plan *plan, const struct di_flight *running,
                           struct di_flight *f, struct di_error *err)
{
    f->n_shares = f->n_rows = f->n_logits = 0;
    f->drawn = false;
    bool low = false, floor = false;
    for (int32_t i = 0; i < plan->n_items; i++) {
        const struct di_plan_item *item = &plan->items[i];
        struct di_seq *seq = (struct di_seq *)(void *)item->task;
        struct di_share *share = &f->shares[f->n_shares];
        *share = (struct di_share){
            .seq = seq,
            .first = item->first,
            .n = item->n,
            .n_logits = item->n_logits,
            .logit = f->n_logits,
            .n_draft = item->first >= seq->call->n_prompt ? item->n - 1 : 0,
        };
        stage_share(l, share, f->n_shares, f->n_rows, running_logit(running, seq));
        low |= seq->reach.low[0] > 0;
        floor |= seq->reach.floor > 0;
        f->n_shares++;
        f->n_rows += item->n;
        f->n_logits += item->n_logits;
    }
    struct di_step step = {
        .n_rows = f->n_rows,
        .window = l->window,
        .position = l->position,
        .slot = l->slot,
        .first = l->first,
        .low = low ? l->low : NULL,
        .floor = floor ? l->floor : NULL,
        .n_logits = f->n_logits,
        .logit_row = l->logit_row,
    };
    DI_TRY(stage_cuts(l, f, &step, err));
    stage_logits(l, f, &step);
    l->stats.rows += (uint64_t)f->n_rows;
    uint64_t run = row_layers(l, &step);
    l->stats.row_layers += run;
    l->stats.row_layers_saved += (uint64_t)f->n_rows * (uint64_t)l->engine->plan.n_layers - run;
    return di_forward(l->model, l->store, &step, NULL, err);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The draw. */

static di_status add_prompt_rows(struct di_loop *l, const struct di_share *share, int32_t n, struct di_error *err)
{
    const struct di_call *call = share->seq->call;
    for (int32_t i = 0; i < n; i++) {
        int64_t position = share->first + share->n - share->n_logits + i;
        struct di_draw_row row = {
            .position = (int32_t)position,
            .wanted = call->params.prompt_logprobs,
            .scored = call->prompt[position + 1],
        };
        DI_TRY(di_draw_builder_add(l->builder, &row, err));
    }
    return DI_OK;
}

static di_status add_share(struct di_loop *l, const struct di_share *share, struct di_error *err)
{
    const struct di_seq *seq = share->seq;
    const struct di_call *call = seq->call;
    const struct di_sampling_params *p = &call->params;
    int64_t end = share->first + share->n, first = end - share->n_logits;
    int32_t prompt_rows = end < call->n_prompt     ? share->n_logits
                          : first < call->n_prompt ? (int32_t)(call->n_prompt - 1 - first)
                                                   : 0;
    DI_TRY(add_prompt_rows(l, share, prompt_rows, err));
    for (int32_t i = prompt_rows; i < share->n_logits; i++) {
        int64_t position = first + i;
        struct di_draw_row row = {
            .params = seq->ended ? NULL : p,
            .seed = call->seed,
            .choice = seq->choice,
            .position = (int32_t)position,
            .history = seq->history.token != NULL ? &seq->history : NULL,
            .allowed = call->allowed,
            .no_end = position + 1 - call->n_prompt < p->min_tokens,
            .ends = call->ends,
            .n_ends = call->n_ends,
            .wanted = seq->ended ? -1 : p->logprobs,
            .scored = -1,
        };
        DI_TRY(di_draw_builder_add(l->builder, &row, err));
    }
    return DI_OK;
}

di_status di_stage_draw(struct di_loop *l, struct di_flight *f, struct di_error *err)
{
    f->drawn = true;
    if (f->n_logits > 0) {
        di_draw_builder_begin(l->builder);
        for (int32_t i = 0; i < f->n_shares; i++)
            DI_TRY(add_share(l, &f->shares[i], err));
        const struct di_draw *draw = di_draw_builder_end(l->builder);
        DI_TRY(di_model_draw(l->model, draw, err));
        di_model_fetch(l->model, draw, &f->host);
        f->top = draw->top;
        f->reported = draw->wanted != NULL;
        l->stats.draws += (uint64_t)f->n_logits;
    }
    f->event = l->ops->record(l->dev);
    return DI_OK;
}
