#include "engine/loop.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---------------------------------------------------------------------------------------------------------------------
 * Planning. */

/* Drafts go behind the known tokens of a decoding sequence, if somebody makes them and its last token is known. */
static void propose(struct di_loop *l, struct di_seq *seq)
{
    struct di_task *t = &seq->task;
    int64_t left = seq->limit - di_seq_outputs(seq) - 1;
    int32_t most = DI_MAX_DRAFT;
    most = most < left ? most : (int32_t)left;
    most = most < l->o.max_rows - 1 ? most : l->o.max_rows - 1;
    most = most < l->o.max_logits - 1 ? most : l->o.max_logits - 1;
    bool drafts = t->computed >= t->prompt && t->computed == seq->n_token - 1 && seq->in_flight == 0 && !t->held &&
                  seq->history.token == NULL;
    if (l->draft == NULL || !drafts || most < 1)
        return;
    seq->n_draft = l->draft(l->draft_user, seq, most, seq->draft);
    t->known = seq->n_token + seq->n_draft;
}

/* Drafts that were not planned are forgotten: they may be better next time, and the budget different. */
static void retract(struct di_loop *l)
{
    for (struct di_task *t = di_sched_first(l->sched, DI_TASK_RUNNING); t != NULL; t = t->next) {
        struct di_seq *seq = (struct di_seq *)(void *)t;
        if (seq->n_draft > 0 && seq->in_flight == 0) {
            seq->n_draft = 0;
            t->known = seq->n_token;
        }
    }
}

static const struct di_plan *make_plan(struct di_loop *l)
{
    if (l->draft != NULL)
        for (struct di_task *t = di_sched_first(l->sched, DI_TASK_RUNNING); t != NULL; t = t->next)
            propose(l, (struct di_seq *)(void *)t);
    return di_sched_plan(l->sched);
}

/* What is queued now counts as done for the next plan. */
static void commit(struct di_loop *l, const struct di_flight *f)
{
    double now = di_clock_seconds();
    for (int32_t i = 0; i < f->n_shares; i++) {
        const struct di_share *share = &f->shares[i];
        struct di_seq *seq = share->seq;
        struct di_task *t = &seq->task;
        t->computed = share->first + share->n;
        seq->call->users++;
        if (seq->first_run == 0.0)
            seq->first_run = now;
        if (t->split > 0 && t->computed == t->split)
            di_room_snapshot(l, seq, t->split);
        if (t->computed < seq->call->n_prompt) {
            di_room_publish(l, seq);
            continue;
        }
        seq->in_flight++;
        if (share->n_draft > 0) {
            t->held = true;
        } else if (l->draft == NULL && di_seq_outputs(seq) + seq->in_flight < seq->limit) {
            t->known = t->computed + 1; /* what this step draws; the last token of the output needs no row */
        }
        if (share->first < seq->call->n_prompt) {
            if (l->o.truncation != DI_TRUNCATION_COMPACT)
                di_room_snapshot(l, seq, seq->call->n_prompt - 1);
            di_results_release_choices(seq->call);
        }
    }
    retract(l);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Ends that do not come from a draw. */

static void end_list(struct di_loop *l, enum di_task_state state, bool all)
{
    struct di_task *next;
    for (struct di_task *t = di_sched_first(l->sched, state); t != NULL; t = next) {
        struct di_seq *seq = (struct di_seq *)(void *)t;
        next = t->next;
        if (l->failure.code != DI_OK && all) {
            di_seq_fail(seq, &l->failure);
        } else if (seq->call->aborted && !seq->ended) {
            seq->ended = true;
            seq->finish_reason = "abort";
        }
        if (seq->ended)
            di_results_end(l, seq);
    }
}

/* Aborted ones, those whose admission or swapping failed; all of them once the device has failed. */
static void end_others(struct di_loop *l, bool all)
{
    end_list(l, DI_TASK_RUNNING, all);
    end_list(l, DI_TASK_SWAPPED, all);
    end_list(l, DI_TASK_WAITING, all);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The pipeline. */

static void device_failed(struct di_loop *l, const struct di_error *error)
{
    if (l->failure.code == DI_OK)
        l->failure = *error;
}

/* The next step's forward pass; NULL if there is nothing to run. */
static struct di_flight *launch(struct di_loop *l, const struct di_flight *running)
{
    struct di_error error = {0};
    struct di_flight *f = &l->flights[l->turn];
    const struct di_plan *plan = make_plan(l);
    if (plan->n_items == 0) {
        retract(l);
        return NULL;
    }
    l->turn ^= 1;
    di_status status = di_stage_forward(l, plan, running, f, &error);
    if (status != DI_OK)
        device_failed(l, &error);
    commit(l, f);
    l->stats.steps++;
    return f;
}

/* Waits for a step's draw and takes its tokens; words() later makes their text. */
static void land(struct di_loop *l, struct di_flight *f)
{
    struct di_error error = {0};
    double before = di_clock_seconds();
    l->ops->wait(l->dev, f->event);
    l->stats.step_seconds += di_clock_seconds() - before;
    if (l->ops->failed(l->dev, &error) != DI_OK)
        device_failed(l, &error);
    if (l->failure.code == DI_OK)
        di_results_tokens(l, f);
    di_room_sweep(l, false);
}

static void draw(struct di_loop *l, struct di_flight *f)
{
    struct di_error error = {0};
    if (l->failure.code == DI_OK && di_stage_draw(l, f, &error) != DI_OK)
        device_failed(l, &error);
    if (l->failure.code != DI_OK)
        f->event = l->ops->record(l->dev);
    di_room_mark(l);
}

/* The engine closes: what has not finished ends now. */
static void abort_all(struct di_loop *l)
{
    for (int state = 0; state < DI_TASK_GONE; state++)
        for (struct di_task *t; (t = di_sched_first(l->sched, (enum di_task_state)state)) != NULL;) {
            struct di_seq *seq = (struct di_seq *)(void *)t;
            seq->ended = true;
            seq->call->aborted = true;
            seq->finish_reason = "abort";
            di_results_end(l, seq);
        }
}

static bool at_rest(const struct di_loop *l)
{
    return l->running == NULL && di_sched_count(l->sched, DI_TASK_RUNNING) == 0 &&
           di_sched_count(l->sched, DI_TASK_SWAPPED) == 0 && di_sched_count(l->sched, DI_TASK_WAITING) == 0;
}

bool di_loop_turn(struct di_loop *l, bool wait)
{
    if (!di_service_collect(l, wait && at_rest(l)))
        return false;
    struct di_flight *next = NULL, *done = l->running;
    end_others(l, false);
    if (l->o.async && l->failure.code == DI_OK)
        next = launch(l, done);
    if (done != NULL)
        land(l, done);
    if (!l->o.async) {
        if (done != NULL)
            di_results_words(l, done);
        done = NULL;
        end_others(l, false);
        if (l->failure.code == DI_OK)
            next = launch(l, NULL);
    }
    if (next != NULL)
        draw(l, next);
    if (done != NULL)
        di_results_words(l, done);
    if (l->failure.code != DI_OK)
        end_others(l, true);
    l->running = next;
    di_service_show(l);
    return true;
}

static void finish(struct di_loop *l)
{
    if (l->running != NULL) {
        land(l, l->running);
        di_results_words(l, l->running);
    }
    abort_all(l);
}

static void *loop_main(void *arg)
{
    struct di_loop *l = arg;
    while (di_loop_turn(l, true))
        ;
    finish(l);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Opening and closing. */

static di_status open_parts(struct di_loop *l, struct di_error *err)
{
    struct di_engine *e = l->engine;
    struct di_model_options model = {
        .max_rows = l->o.max_rows,
        .max_logit_rows = l->o.max_logits,
        .token_map = e->token_map,
        .window_format = e->layout.window_format,
        .draws = true,
    };
    struct di_sched_options sched = {
        .max_rows = l->o.max_rows,
        .max_logits = l->o.max_logits,
        .max_seqs = l->o.max_seqs,
        .hooks = {l, di_room_admit, di_room_grow, di_room_swap_in, di_room_swap_out},
    };
    DI_TRY(di_sched_open(&sched, &l->sched, err));
    DI_TRY(di_room_open(l, err));
    DI_TRY(di_model_open(e->config, &e->plan, &e->weights, l->ops, l->dev, &model, &l->model, err));
    DI_TRY(di_stage_open(l, err));
    return di_service_open(l, err);
}

di_status di_loop_open(struct di_engine *e, const struct di_loop_options *options, struct di_loop **out,
                       struct di_error *err)
{
    *out = NULL;
    struct di_loop *l = di_calloc(1, sizeof *l);
    if (l == NULL)
        return DI_FAIL_NOMEM(err, sizeof *l);
    l->engine = e;
    l->o = *options;
    l->ops = e->ops;
    l->dev = e->dev;
    l->opened = di_clock_seconds();
    di_status status = open_parts(l, err);
    if (status == DI_OK && !options->by_hand) {
        int code = pthread_create(&l->thread, NULL, loop_main, l);
        l->started = code == 0;
        if (code != 0)
            status = DI_FAIL(err, DI_ERR_NOMEM, "the engine's thread could not be started: %s", strerror(code));
    }
    if (status != DI_OK) {
        di_loop_close(l);
        return status;
    }
    *out = l;
    return DI_OK;
}

void di_loop_close(struct di_loop *l)
{
    if (l == NULL)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->news);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    } else if (l->sched != NULL && l->box != NULL) {
        finish(l);
    }
    di_service_close(l);
    di_stage_close(l);
    di_model_close(l->model);
    di_room_close(l);
    di_sched_close(l->sched);
    di_arena_free(&l->arena);
    free(l);
}
