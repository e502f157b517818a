/* What a draw means for its sequences: tokens, then words, then the end. */
#include <math.h>

#include "engine/loop.h"

#include "base/clock.h"

static void add_logprobs(const struct di_flight *f, struct di_logprob_rows *rows, int32_t at)
{
    int32_t ids[DI_MAX_LOGPROBS];
    float logprobs[DI_MAX_LOGPROBS];
    for (int32_t k = 0; k < rows->top; k++) { /* the draw's lists have as many columns as its widest row wants */
        ids[k] = f->host.top_token[at * f->top + k];
        logprobs[k] = f->host.top_logprob[at * f->top + k];
    }
    (void)di_logprob_rows_add(rows, f->host.logprob[at], f->host.rank[at], ids, logprobs);
}

/* Prompt rows come first among the share's logits rows; returns how many there are. */
static int32_t prompt_rows(struct di_flight *f, const struct di_share *share)
{
    struct di_call *call = share->seq->call;
    struct di_logprob_rows *rows = &call->prompt_logprobs;
    int64_t first = share->first + share->n - share->n_logits;
    int32_t n = 0;
    if (rows->top >= 0 && first < call->n_prompt && rows->n == 0)
        (void)di_logprob_rows_add(rows, (float)NAN, 0, NULL, NULL); /* nothing precedes the first token */
    for (; n < share->n_logits && first + n < call->n_prompt - 1; n++)
        add_logprobs(f, rows, share->logit + n);
    return n;
}

/* The draws of a share, one after the other as long as drafts agree with them. */
static void take_tokens(struct di_loop *l, struct di_flight *f, const struct di_share *share)
{
    struct di_seq *seq = share->seq;
    int32_t at = prompt_rows(f, share), taken = 0;
    for (; at < share->n_logits && !seq->ended; at++) {
        int32_t token = f->host.token[share->logit + at];
        if (token >= 0 && seq->logprobs.top >= 0)
            add_logprobs(f, &seq->logprobs, share->logit + at);
        l->stats.output_tokens += token >= 0;
        if (di_seq_append(seq, token))
            break;
        if (taken == share->n_draft || seq->draft[taken] != token)
            break;
        taken++;
    }
    if (share->n_draft > 0) { /* rows of drafts that were wrong are taken back */
        seq->task.computed = seq->n_token - 1;
        seq->task.known = seq->n_token;
        seq->task.held = false;
        seq->n_draft = 0;
    } else if (seq->task.known < seq->n_token && di_seq_outputs(seq) < seq->limit) {
        seq->task.known = seq->n_token;
    }
}

void di_results_tokens(struct di_loop *l, struct di_flight *f)
{
    for (int32_t i = 0; i < f->n_shares; i++) {
        struct di_share *share = &f->shares[i];
        struct di_seq *seq = share->seq;
        if (share->n_logits == 0)
            continue;
        seq->in_flight -= share->first + share->n >= seq->call->n_prompt;
        if (seq->ended) {
            l->stats.zombie_rows += (uint64_t)share->n;
            continue;
        }
        take_tokens(l, f, share);
        if (!seq->ended)
            di_room_publish(l, seq);
    }
}

void di_results_release_choices(const struct di_call *call)
{
    for (int32_t i = 1; i < call->params.n; i++)
        if (call->seqs[i].task.state == DI_TASK_WAITING)
            call->seqs[i].task.held = false;
}

void di_results_end(struct di_loop *l, struct di_seq *seq)
{
    struct di_call *call = seq->call;
    bool good = seq->error.code == DI_OK;
    /* The state behind the output: what a conversation goes on from. The last token drawn has not been fed (or, as a zombie, has). */
    if (good && seq->slot >= 0 && seq->n_token > call->n_prompt && seq->task.computed >= seq->n_token - 1 &&
        !call->aborted)
        di_room_snapshot(l, seq, seq->n_token - 1);
    di_sched_remove(l->sched, &seq->task);
    di_room_leave(l, seq);
    if (seq->choice == 0)
        di_results_release_choices(call);
    l->stats.finished++;
    l->stats.failed += !good;
    l->stats.aborted += seq->finish_reason[0] == 'a';
    if (--call->n_open == 0)
        di_service_finished(l, call);
    di_seq_end(seq);
    di_call_drop(call); /* steps that carry its rows still hold it */
}

void di_results_words(struct di_loop *l, struct di_flight *f)
{
    for (int32_t i = 0; i < f->n_shares; i++) {
        struct di_seq *seq = f->shares[i].seq;
        bool gone = seq->task.state == DI_TASK_GONE; /* ended before */
        if (!gone && f->shares[i].n_logits > 0)
            (void)di_seq_speak(seq);
        if (!gone && seq->ended)
            di_results_end(l, seq);
        di_call_drop(seq->call);
    }
    f->n_shares = 0;
}
