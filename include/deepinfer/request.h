/* deepinfer/request.h - requests: submit, receive events, abort. Part of deepinfer/deepinfer.h.
 *
 * The engine runs on threads of its own and serves all requests at once:
 *
 *     di_submit        hands over a prompt and its sampling parameters; returns at once
 *     di_next_event    the next thing that happened to any request: new tokens, or its end
 *     di_event_free
 *     di_abort         asks for a request's end; its last event says "abort"
 *     di_engine_stats  counters
 *     di_generate      one request from beginning to end on the calling thread's time, with a callback per token
 *
 * THREADS. Each of these may be called from any thread at any time between di_engine_open() and di_engine_close(). Events of one
 * request arrive in order; an event goes to one caller of di_next_event(). Every submitted request gets exactly one
 * DI_EVENT_FINISHED per choice, whatever happens to it.
 *
 * A request's tokens depend on its prompt, its parameters and its seed alone: not on the other requests, on the moment it came, or
 * on whether its prefix was cached (docs/engine.md).
 */
#ifndef DEEPINFER_REQUEST_H
#define DEEPINFER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deepinfer/engine.h"
#include "deepinfer/sampling.h"
#include "deepinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copied by di_submit; nothing of it has to stay. */
struct di_request {
    const char *id;        /* a name, unique among the requests that have not finished; NULL: the engine makes one up */
    const int32_t *prompt; /* [n_prompt] token ids, at least one */
    size_t n_prompt;
    struct di_sampling_params params; /* di_sampling_defaults(), then what is wanted */
    int32_t priority;                 /* lower values run first; equal ones in the order of their coming. Default 0 */
    bool stream;                      /* an event per step with what is new; false: everything in the last event */
};

/* Errors, with nothing submitted: empty prompt, an id outside the vocabulary (names index and id), a prompt that leaves no room for
 * a token in the context, a request that could never fit in the KV pages, parameters out of range, an id in use. max_tokens past
 * the context is no error: the request ends there with finish_reason "length". *ticket (may be NULL) numbers the request for ever. */
DI_API di_status di_submit(di_engine *engine, const struct di_request *request, uint64_t *ticket, struct di_error *err);

enum di_event_kind { DI_EVENT_TOKENS, DI_EVENT_FINISHED };

/* One sampled (or prompt) token and its log-probability, with the most likely ones if they were asked for. */
struct di_token_logprob {
    int32_t id;
    float logprob; /* natural logarithm, of the model's distribution before penalties, filters and temperature */
    int32_t rank;  /* 1: the most likely */
    int32_t n_top;
    const int32_t *top_ids; /* [n_top], most likely first */
    const float *top_logprobs;
};

struct di_event {
    enum di_event_kind kind;
    uint64_t ticket;
    const char *id; /* the request's */
    int32_t choice; /* 0 .. n - 1 */
    /* What is new since the last event of this choice; with stream false, all of it. */
    const int32_t *token_ids;
    size_t n_tokens;
    const char *text; /* UTF-8, zero-terminated; never part of a stop string */
    size_t text_len;
    const struct di_token_logprob *logprobs; /* [n_tokens], or NULL if none were asked for */
    const struct di_token_logprob
        *prompt_logprobs; /* [n_prompt_logprobs], with the first event of choice 0; entry 0 has no
                                                     * logprob (NaN): nothing precedes it */
    size_t n_prompt_logprobs;
    /* DI_EVENT_FINISHED only: */
    const char *finish_reason; /* "stop", "length", "abort", "error"; static */
    const char *stop_string;   /* that ended it, or NULL */
    int32_t stop_token;        /* that ended it, or -1 */
    struct di_error error;     /* with "error" */
    uint64_t seed;             /* the seed in force */
    size_t n_prompt, n_output; /* tokens; n_output counts those of this choice */
    size_t n_cached;           /* prompt tokens whose rows did not have to be run */
    int32_t n_preempted;       /* times it had to make room for others */
    double queued_seconds;     /* from submission until it first ran */
    double first_seconds;      /* from submission until its first token */
    double total_seconds;      /* from submission until its end */
};

/* Waits at most `timeout` seconds (0: does not wait; negative: for ever) for an event; *event is NULL if none came. The caller frees
 * it. DI_ERR_BACKEND once the engine has failed and everything was delivered; DI_ERR_ABORTED while it is closing. */
DI_API di_status di_next_event(di_engine *engine, double timeout, struct di_event **event, struct di_error *err);
DI_API void di_event_free(di_engine *engine, struct di_event *event);

/* Asks for the end of all choices of a request. DI_ERR_NOT_FOUND if no request of that id (or ticket) is unfinished. */
DI_API di_status di_abort(di_engine *engine, const char *id, struct di_error *err);
DI_API di_status di_abort_ticket(di_engine *engine, uint64_t ticket, struct di_error *err);

/* Counters since opening, and the state of the moment. */
struct di_engine_stats {
    uint64_t steps, rows, draws;
    uint64_t row_layers;       /* rows, counted in every layer that ran them */
    uint64_t row_layers_saved; /* in every layer that truncation spared them */
    uint64_t requests, finished, aborted, failed, preemptions;
    uint64_t prompt_tokens, output_tokens, cached_tokens;
    uint64_t zombie_rows; /* rows run for a choice that had ended one step before */
    int32_t waiting, running, swapped;
    int32_t pages_total, pages_free, pages_cached; /* cached: held by the prefix cache alone or with others */
    uint64_t snapshots, snapshot_bytes;
    double seconds;        /* since opening */
    double engine_seconds; /* CPU time of the engine thread */
    double step_seconds;   /* wall time with steps running */
};
DI_API void di_engine_get_stats(di_engine *engine, struct di_engine_stats *stats);

/* ---- one request ---- */

/* What a request yields, token by token. Pointers are valid during the call only. */
struct di_token_event {
    int32_t id;       /* the sampled token; -1: none, but text that was withheld until the end */
    size_t index;     /* 0 for the first token after the prompt */
    const char *text; /* text that became certain with this token, perhaps empty */
    size_t text_len;
};

/* Return false to stop; the request then ends with finish_reason "abort". */
typedef bool (*di_token_fn)(void *user, const struct di_token_event *event);

struct di_generation {
    const char *finish_reason; /* "stop", "length", "abort"; static */
    size_t n_tokens;           /* sampled tokens, the end-of-sequence token included */
    uint64_t seed;             /* the seed in force */
    double prefill_seconds, decode_seconds;
    size_t n_cached;
};

/* Runs one request (n must be 1) to its end and calls on_token (may be NULL) on the calling thread. Errors as for di_submit; a request
 * that fails while it runs gives its error. */
DI_API di_status di_generate(di_engine *engine, const int32_t *prompt, size_t n_prompt,
                             const struct di_sampling_params *params, di_token_fn on_token, void *user,
                             struct di_generation *result, struct di_error *err);

#ifdef __cplusplus
}
#endif
#endif
