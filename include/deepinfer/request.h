/* deepinfer/request.h - one request: generation. Part of deepinfer/deepinfer.h. */
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

/* What a request yields, token by token. Pointers are valid during the call only. */
struct di_token_event {
    int32_t id;   /* the sampled token */
    size_t index; /* 0 for the first token after the prompt */
    const char
        *text; /* text that became complete with this token, valid UTF-8, perhaps empty; special tokens left out */
    size_t text_len;
};

/* Return false to stop; the request then ends with finish_reason "abort". */
typedef bool (*di_token_fn)(void *user, const struct di_token_event *event);

struct di_generation {
    const char *finish_reason; /* "stop" (end-of-sequence token), "length", "abort"; static */
    size_t n_tokens;           /* sampled tokens, the end-of-sequence token included */
    uint64_t seed;             /* the seed in force */
    double prefill_seconds, decode_seconds;
    char tail[8]; /* text withheld until the end: an incomplete character, as U+FFFD; zero-terminated */
};

/* Runs one request to its end on the calling thread. `prompt` is n_prompt token ids (at least one). on_token may be NULL.
 * Errors before anything runs: empty prompt, an id outside the vocabulary (names index and id), a prompt that leaves no
 * room in the context, parameters out of range, or ones that are not supported yet: of sampling.h those beside temperature,
 * max_tokens, ignore_eos and the seed must have their defaults. max_tokens past the context ends with finish_reason "length" there. */
DI_API di_status di_generate(di_engine *engine, const int32_t *prompt, size_t n_prompt,
                             const struct di_sampling_params *params, di_token_fn on_token, void *user,
                             struct di_generation *result, struct di_error *err);

#ifdef __cplusplus
}
#endif
#endif
