/* engine/call.h - a request inside the engine: what was asked for, and what has come of each of its choices. Private to engine/.
 *
 * A call owns copies of everything that was submitted. Its choices (struct di_seq) are what the scheduler, the caches and the steps
 * work on; tokens are appended to them by the pipeline (loop.c), text and events are made here.
 *
 *     di_call_create       checked and copied, on the caller's thread
 *     di_seq_begin         a choice is admitted: memory for its tokens
 *     di_seq_append        one more token was drawn: what ends the choice, as far as tokens tell
 *     di_seq_speak         the text of what was appended; stop strings; an event
 *     di_seq_end           the last event
 *     di_call_drop         one user less; the last frees it
 */
#ifndef DI_ENGINE_CALL_H
#define DI_ENGINE_CALL_H

#include "deepinfer/request.h"

#include "base/mem.h"
#include "core/reach.h"
#include "engine/engine.h"
#include "engine/mailbox.h"
#include "sample/history.h"
#include "sched/sched.h"
#include "text/stop.h"

/* Log-probabilities of consecutive tokens, `top` most likely ones each. */
struct di_logprob_rows {
    int32_t n, top;
    float *logprob;
    int32_t *rank;
    int32_t *top_id;
    float *top_logprob;
    size_t capacity, rank_capacity, top_capacity, top_logprob_capacity;
};

bool di_logprob_rows_add(struct di_logprob_rows *rows, float logprob, int32_t rank, const int32_t *top_id,
                         const float *top_logprob);

struct di_call;

struct di_seq {
    struct di_task task; /* first: hooks get its address */
    struct di_call *call;
    int32_t choice;
    /* tokens */
    int32_t *token;    /* [n_prompt + limit] prompt, then what was drawn */
    int64_t n_token;   /* known */
    int32_t limit;     /* most tokens of the output */
    int32_t in_flight; /* queued steps whose draws are its next tokens */
    struct di_history history;
    struct di_logprob_rows logprobs;
    /* drafts of its next rows, right behind the known tokens */
    int32_t draft[DI_MAX_DRAFT], n_draft;
    /* caches (room.c) */
    int32_t slot; /* -1: none */
    struct di_reach reach;
    int32_t published; /* full pages that the prefix cache knows */
    void *saved;       /* state while swapped out */
    int32_t saved_pages;
    int64_t cached;    /* prompt tokens that did not have to be run */
    bool snapshot_due; /* of the prompt, once its last row is queued */
    /* the end */
    bool ended;
    const char *finish_reason, *stop_string;
    int32_t stop_token;
    struct di_error error;
    int32_t preempted;
    double first_run, first_token;
    /* text */
    di_detokenizer *detok;
    struct di_stop stop;
    char *text;
    size_t text_len, text_capacity;
    int64_t spoken; /* tokens whose text was made */
    int64_t sent_tokens;
    size_t sent_text;
};

struct di_call {
    struct di_engine *engine;
    uint64_t ticket;
    char *id;
    struct di_arena arena;
    struct di_sampling_params params;
    int32_t *prompt;
    int64_t n_prompt;
    int32_t priority;
    bool stream;
    uint64_t seed;
    uint32_t *allowed;         /* mask of allowed_token_ids, or NULL */
    struct di_stop_set *stops; /* NULL: none */
    int32_t *ends;             /* tokens that end the output */
    int32_t n_ends;
    struct di_logprob_rows prompt_logprobs;
    bool prompt_sent;
    struct di_mailbox *box;
    struct di_letter
        *last_letters; /* one for the last event of each choice, taken beforehand: it cannot fail to come */
    double submitted;
    struct di_seq *seqs;               /* [params.n] */
    int32_t n_open;                    /* choices that have not ended */
    int32_t users;                     /* choices that have not ended, and steps that carry rows of it */
    bool abort_asked, aborted;         /* by another thread, under the lock; seen by the engine thread */
    struct di_call *next, *next_of_id; /* in the inbox; in the registry */
};

/* Checks the request against the engine and copies it. box: where its events go. */
di_status di_call_create(struct di_engine *engine, const struct di_request *request, struct di_mailbox *box,
                         struct di_call **out, struct di_error *err);
void di_call_drop(struct di_call *call);
void di_call_free(struct di_call *call); /* one that was never submitted */

di_status di_seq_begin(struct di_seq *seq, struct di_error *err);
/* Memory of a choice that has ended and that no step carries. */
void di_seq_clear(struct di_seq *seq);

static inline int64_t di_seq_outputs(const struct di_seq *seq)
{
    return seq->n_token - seq->call->n_prompt;
}

/* Appends a drawn token (DI_SAMPLE_NAN and DI_SAMPLE_NONE are errors of the choice). True if the choice has ended with it: `finish_reason`
 * is set then. */
bool di_seq_append(struct di_seq *seq, int32_t token);

/* Makes the text of the tokens since the last call, looks for stop strings, posts an event if the request streams. True if a stop
 * string has ended the choice. */
bool di_seq_speak(struct di_seq *seq);

/* Posts the last event. */
void di_seq_end(struct di_seq *seq);
/* Ends a choice for a reason that does not lie in its tokens. */
void di_seq_fail(struct di_seq *seq, const struct di_error *error);

#endif
