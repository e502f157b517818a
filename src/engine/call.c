#include "engine/call.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "core/sampling.h"
#include "engine/generate.h"

/* ---------------------------------------------------------------------------------------------------------------------
 * Making a call, on the caller's thread. */

static di_status choose_seed(const struct di_sampling_params *params, uint64_t *seed, struct di_error *err)
{
    *seed = params->seed;
    if (!params->has_seed && getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed)
        return DI_FAIL(err, DI_ERR_IO, "no random seed from the system: %s", strerror(errno));
    return DI_OK;
}

/* The tokens that end the output, and the mask of those that are allowed. */
static di_status prepare_tokens(struct di_call *call, struct di_error *err)
{
    const struct di_sampling_params *p = &call->params;
    const int32_t vocab = call->engine->config->vocab_size, eos = call->engine->config->eos_token_id;
    call->ends = di_arena_alloc(&call->arena, p->n_stop_token_ids + 1, sizeof *call->ends);
    if (call->ends == NULL)
        return DI_FAIL_NOMEM(err, (p->n_stop_token_ids + 1) * sizeof *call->ends);
    for (size_t i = 0; i < p->n_stop_token_ids; i++)
        call->ends[call->n_ends++] = p->stop_token_ids[i];
    if (eos >= 0 && !p->ignore_eos)
        call->ends[call->n_ends++] = eos;
    if (p->n_allowed_token_ids == 0)
        return DI_OK;
    size_t words = ((size_t)vocab + 31) / 32;
    call->allowed = di_arena_alloc(&call->arena, words, sizeof *call->allowed);
    if (call->allowed == NULL)
        return DI_FAIL_NOMEM(err, words * sizeof *call->allowed);
    for (size_t i = 0; i < p->n_allowed_token_ids; i++)
        call->allowed[p->allowed_token_ids[i] / 32] |= 1U << (p->allowed_token_ids[i] % 32);
    return DI_OK;
}

static di_status prepare_choices(struct di_call *call, struct di_error *err)
{
    const struct di_engine *e = call->engine;
    int64_t room = di_engine_longest(e) - call->n_prompt;
    int32_t n = call->params.n;
    call->seqs = di_arena_alloc(&call->arena, (size_t)n, sizeof *call->seqs);
    if (call->seqs == NULL)
        return DI_FAIL_NOMEM(err, (size_t)n * sizeof *call->seqs);
    for (int32_t i = 0; i < n; i++) {
        struct di_seq *seq = &call->seqs[i];
        seq->call = call;
        seq->choice = i;
        seq->limit = (int32_t)(call->params.max_tokens < room ? call->params.max_tokens : room);
        seq->slot = -1;
        seq->stop_token = -1;
        seq->logprobs.top = call->params.logprobs;
        seq->n_token = seq->spoken = call->n_prompt;
        struct di_letter *letter = di_mailbox_blank(call->box);
        if (letter == NULL)
            return DI_FAIL_NOMEM(err, sizeof *letter);
        letter->next = call->last_letters;
        call->last_letters = letter;
        seq->task.prompt = seq->task.known = call->n_prompt;
        seq->task.priority = call->priority;
        seq->task.all_logits = i == 0 && call->params.prompt_logprobs >= 0;
        seq->task.state = DI_TASK_GONE;
        seq->task.held = i > 0; /* until the first choice has run the prompt */
    }
    call->n_open = call->users = n;
    return DI_OK;
}

static di_status fill_call(struct di_call *call, const struct di_request *r, struct di_error *err)
{
    call->n_prompt = (int64_t)r->n_prompt;
    call->priority = r->priority;
    call->stream = r->stream;
    call->prompt_logprobs.top = r->params.prompt_logprobs;
    DI_TRY(di_sampling_copy(&r->params, &call->arena, &call->params, err));
    call->prompt = di_arena_alloc(&call->arena, r->n_prompt, sizeof *call->prompt);
    if (call->prompt == NULL)
        return DI_FAIL_NOMEM(err, r->n_prompt * sizeof *call->prompt);
    memcpy(call->prompt, r->prompt, r->n_prompt * sizeof *call->prompt);
    DI_TRY(choose_seed(&call->params, &call->seed, err));
    if (call->params.n_stop > 0)
        DI_TRY(di_stop_set_open(call->params.stop, call->params.n_stop, call->params.include_stop_str_in_output,
                                &call->stops, err));
    DI_TRY(prepare_tokens(call, err));
    return prepare_choices(call, err);
}

void di_call_free(struct di_call *call)
{
    struct di_logprob_rows *rows = &call->prompt_logprobs;
    for (int32_t i = 0; call->seqs != NULL && i < call->params.n; i++)
        di_seq_clear(&call->seqs[i]);
    free(rows->logprob);
    free(rows->rank);
    free(rows->top_id);
    free(rows->top_logprob);
    while (call->last_letters != NULL) {
        struct di_letter *letter = call->last_letters;
        call->last_letters = letter->next;
        di_mailbox_return(call->box, letter);
    }
    free(call->id);
    di_stop_set_close(call->stops);
    di_arena_free(&call->arena);
    free(call);
}

di_status di_call_create(struct di_engine *e, const struct di_request *r, struct di_mailbox *box, struct di_call **out,
                         struct di_error *err)
{
    *out = NULL;
    DI_TRY(di_sampling_validate(&r->params, e->config->vocab_size, err));
    DI_TRY(di_check_prompt(e, r->prompt, r->n_prompt, 1, err));
    struct di_call *call = di_calloc(1, sizeof *call);
    if (call == NULL)
        return DI_FAIL_NOMEM(err, sizeof *call);
    call->engine = e;
    call->box = box;
    call->submitted = di_clock_seconds();
    di_status status = DI_OK;
    if (r->id != NULL && (call->id = di_strndup(r->id, strlen(r->id))) == NULL)
        status = DI_FAIL_NOMEM(err, strlen(r->id) + 1);
    if (status == DI_OK)
        status = fill_call(call, r, err);
    if (status != DI_OK) {
        di_call_free(call);
        return status;
    }
    *out = call;
    return DI_OK;
}

void di_call_drop(struct di_call *call)
{
    if (--call->users == 0)
        di_call_free(call);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * A choice that runs. */

di_status di_seq_begin(struct di_seq *seq, struct di_error *err)
{
    const struct di_call *call = seq->call;
    const struct di_sampling_params *p = &call->params;
    size_t room = (size_t)(call->n_prompt + seq->limit);
    seq->token = di_calloc(room, sizeof *seq->token);
    if (seq->token == NULL)
        return DI_FAIL_NOMEM(err, room * sizeof *seq->token);
    memcpy(seq->token, call->prompt, (size_t)call->n_prompt * sizeof *seq->token);
    if (p->repetition_penalty != 1.0 || p->frequency_penalty != 0.0 || p->presence_penalty != 0.0)
        DI_TRY(di_history_open(call->prompt, call->n_prompt, seq->limit, &seq->history, err));
    return di_detokenizer_open(call->engine->tokenizer, p->skip_special_tokens, &seq->detok, err);
}

void di_seq_clear(struct di_seq *seq)
{
    free(seq->token);
    di_history_close(&seq->history);
    free(seq->logprobs.logprob);
    free(seq->logprobs.rank);
    free(seq->logprobs.top_id);
    free(seq->logprobs.top_logprob);
    di_detokenizer_close(seq->detok);
    free(seq->text);
    seq->token = NULL;
    seq->logprobs = (struct di_logprob_rows){.top = -1};
    seq->detok = NULL;
    seq->text = NULL;
}

bool di_logprob_rows_add(struct di_logprob_rows *r, float logprob, int32_t rank, const int32_t *top_id,
                         const float *top_logprob)
{
    size_t n = (size_t)r->n + 1, top = (size_t)r->top;
    if (!di_letter_reserve((void **)&r->logprob, &r->capacity, n, sizeof *r->logprob) ||
        !di_letter_reserve((void **)&r->rank, &r->rank_capacity, n, sizeof *r->rank) ||
        !di_letter_reserve((void **)&r->top_id, &r->top_capacity, n * top, sizeof *r->top_id) ||
        !di_letter_reserve((void **)&r->top_logprob, &r->top_logprob_capacity, n * top, sizeof *r->top_logprob))
        return false;
    r->logprob[r->n] = logprob;
    r->rank[r->n] = rank;
    for (size_t i = 0; i < top; i++) {
        r->top_id[(n - 1) * top + i] = top_id != NULL ? top_id[i] : -1;
        r->top_logprob[(n - 1) * top + i] = top_logprob != NULL ? top_logprob[i] : -INFINITY;
    }
    r->n++;
    return true;
}

void di_seq_fail(struct di_seq *seq, const struct di_error *error)
{
    seq->ended = true;
    seq->finish_reason = "error";
    seq->error = *error;
}

static bool ends_with(const struct di_call *call, int32_t token)
{
    for (int32_t i = 0; i < call->n_ends; i++)
        if (call->ends[i] == token)
            return true;
    return false;
}

bool di_seq_append(struct di_seq *seq, int32_t token)
{
    struct di_error error = {0};
    if (token < 0) {
        if (token == DI_SAMPLE_NAN)
            (void)DI_FAIL(&error, DI_ERR_BACKEND, "the logits behind position %lld are not numbers",
                          (long long)seq->n_token - 1);
        else
            (void)DI_FAIL(&error, DI_ERR_INVALID, "no token is left to draw behind position %lld: all are forbidden",
                          (long long)seq->n_token - 1);
        di_seq_fail(seq, &error);
        return true;
    }
    seq->token[seq->n_token++] = token;
    if (seq->history.token != NULL)
        di_history_add(&seq->history, token);
    if (seq->first_token == 0.0)
        seq->first_token = di_clock_seconds();
    if (ends_with(seq->call, token)) {
        seq->finish_reason = "stop";
        seq->stop_token = token == seq->call->engine->config->eos_token_id ? -1 : token;
    } else if (di_seq_outputs(seq) >= seq->limit) {
        seq->finish_reason = "length";
    }
    seq->ended = seq->finish_reason != NULL;
    return seq->ended;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Text and events. */

static bool add_text(struct di_seq *seq, const char *text, size_t len)
{
    if (!di_letter_reserve((void **)&seq->text, &seq->text_capacity, seq->text_len + len + 1, 1))
        return false;
    memcpy(seq->text + seq->text_len, text, len);
    seq->text_len += len;
    seq->text[seq->text_len] = '\0';
    return true;
}

/* A piece of text passes the stop strings; true if one has ended the choice. */
static bool pass(struct di_seq *seq, const char *piece, size_t len, bool look)
{
    const struct di_call *call = seq->call;
    if (call->stops == NULL || !look) {
        (void)add_text(seq, piece, len);
        return false;
    }
    struct di_stop_text out = di_stop_feed(call->stops, &seq->stop, piece, len);
    (void)add_text(seq, out.held, out.n_held);
    (void)add_text(seq, piece, out.n_piece);
    if (out.found < 0)
        return false;
    seq->stop_string = call->params.stop[out.found];
    seq->finish_reason = "stop";
    seq->stop_token = -1;
    seq->ended = true;
    return true;
}

/* The text ends: incomplete characters and what may have become a stop string come out. */
static void finish_text(struct di_seq *seq)
{
    const char *text;
    size_t len;
    if (di_detokenizer_finish(seq->detok, &text, &len, NULL) == DI_OK && len > 0 && pass(seq, text, len, true))
        return;
    if (seq->call->stops != NULL) {
        struct di_stop_text out = di_stop_finish(seq->call->stops, &seq->stop);
        (void)add_text(seq, out.held, out.n_held);
    }
}

static bool detokenize(struct di_seq *seq)
{
    const struct di_call *call = seq->call;
    bool stopped = false;
    while (seq->spoken < seq->n_token && !stopped) {
        int32_t token = seq->token[seq->spoken++];
        const char *text = "";
        size_t len = 0;
        if (token < di_tokenizer_vocab_size(call->engine->tokenizer)) /* ids past the tokenizer's have no text */
            (void)di_detokenizer_feed(seq->detok, token, &text, &len, NULL);
        stopped = pass(seq, text, len, seq->spoken - call->n_prompt >= call->params.min_tokens);
    }
    return stopped;
}

static size_t fill_logprobs(struct di_letter *l, size_t at, const struct di_logprob_rows *rows, int64_t from,
                            const int32_t *token)
{
    for (int64_t i = from; i < rows->n; i++, at++) {
        size_t top = (size_t)rows->top;
        l->logprobs[at] = (struct di_token_logprob){
            .id = token[i],
            .logprob = rows->logprob[i],
            .rank = rows->rank[i],
        };
        for (size_t k = 0; k < top && rows->top_id[(size_t)i * top + k] >= 0; k++)
            l->logprobs[at].n_top++;
        if (top > 0) {
            memcpy(l->top_ids + at * DI_MAX_LOGPROBS, rows->top_id + (size_t)i * top, top * sizeof(int32_t));
            memcpy(l->top_logprobs + at * DI_MAX_LOGPROBS, rows->top_logprob + (size_t)i * top, top * sizeof(float));
        }
        l->logprobs[at].top_ids = l->top_ids + at * DI_MAX_LOGPROBS;
        l->logprobs[at].top_logprobs = l->top_logprobs + at * DI_MAX_LOGPROBS;
    }
    return at;
}

static bool copy_text(char **to, size_t *capacity, const char *text, size_t len)
{
    if (!di_letter_reserve((void **)to, capacity, len + 1, 1))
        return false;
    memcpy(*to, text, len);
    (*to)[len] = '\0';
    return true;
}

/* Everything new of a choice since its last event, as an event; false if memory ran out. */
static bool fill_letter(struct di_letter *l, struct di_seq *seq)
{
    struct di_call *call = seq->call;
    struct di_event *ev = &l->event;
    size_t n = (size_t)(di_seq_outputs(seq) - seq->sent_tokens);
    bool prompt = seq->choice == 0 && !call->prompt_sent && call->prompt_logprobs.n == call->n_prompt;
    size_t n_rows = (seq->logprobs.top >= 0 ? n : 0) + (prompt ? (size_t)call->n_prompt : 0);
    if (!di_letter_reserve((void **)&l->ids, &l->ids_capacity, n + 1, sizeof *l->ids) ||
        !copy_text(&l->text, &l->text_capacity, seq->text != NULL ? seq->text + seq->sent_text : "",
                   seq->text_len - seq->sent_text) ||
        !copy_text(&l->id, &l->id_capacity, call->id, strlen(call->id)))
        return false;
    if (n_rows > 0) {
        size_t capacity = l->top_capacity;
        if (!di_letter_reserve((void **)&l->logprobs, &l->logprobs_capacity, n_rows, sizeof *l->logprobs) ||
            !di_letter_reserve((void **)&l->top_ids, &capacity, n_rows * DI_MAX_LOGPROBS, sizeof *l->top_ids) ||
            !di_letter_reserve((void **)&l->top_logprobs, &l->top_capacity, n_rows * DI_MAX_LOGPROBS,
                               sizeof *l->top_logprobs))
            return false;
    }
    if (n > 0)
        memcpy(l->ids, seq->token + call->n_prompt + seq->sent_tokens, n * sizeof *l->ids);
    size_t at = 0;
    if (seq->logprobs.top >= 0 && n > 0) {
        at = fill_logprobs(l, 0, &seq->logprobs, seq->sent_tokens, seq->token + call->n_prompt);
        ev->logprobs = l->logprobs;
    }
    if (prompt) {
        (void)fill_logprobs(l, at, &call->prompt_logprobs, 0, call->prompt);
        ev->prompt_logprobs = l->logprobs + at;
        ev->n_prompt_logprobs = (size_t)call->n_prompt;
        call->prompt_sent = true;
    }
    ev->ticket = call->ticket;
    ev->id = l->id;
    ev->choice = seq->choice;
    ev->token_ids = l->ids;
    ev->n_tokens = n;
    ev->text = l->text;
    ev->text_len = seq->text_len - seq->sent_text;
    ev->seed = call->seed;
    seq->sent_tokens += (int64_t)n;
    seq->sent_text = seq->text_len;
    return true;
}

bool di_seq_speak(struct di_seq *seq)
{
    bool stopped = detokenize(seq);
    if (!seq->call->stream || seq->ended)
        return stopped;
    struct di_letter *l = di_mailbox_blank(seq->call->box);
    if (l == NULL)
        return stopped; /* it goes with the next one */
    l->event.kind = DI_EVENT_TOKENS;
    if (fill_letter(l, seq))
        di_mailbox_post(seq->call->box, l);
    else
        di_mailbox_return(seq->call->box, l);
    return stopped;
}

void di_seq_end(struct di_seq *seq)
{
    struct di_call *call = seq->call;
    struct di_letter *l = call->last_letters;
    double now = di_clock_seconds();
    call->last_letters = l->next;
    l->event = (struct di_event){.stop_token = -1};
    if (seq->detok != NULL && seq->stop_string == NULL)
        finish_text(seq);
    struct di_event *ev = &l->event;
    if (!fill_letter(l, seq)) { /* at least say so */
        *ev = (struct di_event){.ticket = call->ticket, .id = "", .choice = seq->choice, .text = ""};
        (void)DI_FAIL_NOMEM(&seq->error, (size_t)seq->n_token);
        seq->finish_reason = "error";
    }
    ev->kind = DI_EVENT_FINISHED;
    ev->finish_reason = seq->finish_reason;
    ev->stop_token = seq->stop_token;
    ev->error = seq->error;
    ev->n_prompt = (size_t)call->n_prompt;
    ev->n_output = (size_t)(seq->token != NULL ? di_seq_outputs(seq) : 0);
    ev->n_cached = (size_t)seq->cached;
    ev->n_preempted = seq->preempted;
    ev->queued_seconds = (seq->first_run > 0.0 ? seq->first_run : now) - call->submitted;
    ev->first_seconds = (seq->first_token > 0.0 ? seq->first_token : now) - call->submitted;
    ev->total_seconds = now - call->submitted;
    if (seq->stop_string != NULL &&
        copy_text(&l->stop_string, &l->stop_capacity, seq->stop_string, strlen(seq->stop_string)))
        ev->stop_string = l->stop_string;
    di_mailbox_post(call->box, l);
}
