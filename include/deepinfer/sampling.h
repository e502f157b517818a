/* deepinfer/sampling.h - how the tokens of a request are chosen and what ends it. Part of deepinfer/deepinfer.h.
 *
 * Names and meanings are those of vLLM's SamplingParams. Begin with the defaults and change what you need:
 *
 *     struct di_sampling_params params = di_sampling_defaults();
 *     params.temperature = 0.6;
 *     params.top_p = 0.95;
 *     params.stop = (const char *const[]){"\n\n"};
 *     params.n_stop = 1;
 *
 * A row of logits passes through: penalties; logit_bias, allowed_token_ids, bad_token_ids, min_tokens; temperature; top_k; top_p;
 * min_p; the draw. Log-probabilities are those of the logits before all of these. Lists and strings belong to the caller and are
 * only read; an empty list is NULL or any pointer with a count of 0.
 */
#ifndef DEEPINFER_SAMPLING_H
#define DEEPINFER_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deepinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DI_MAX_STOP = 64,         /* stop strings of a request */
    DI_MAX_STOP_BYTES = 1024, /* of one */
    DI_MAX_CHOICES = 64,      /* n */
    DI_MAX_LOGPROBS = 20,
};

/* Added to the token's logit. */
struct di_logit_bias {
    int32_t token;
    float bias; /* -100 .. 100, or -INFINITY: the token is forbidden */
};

struct di_sampling_params {
    /* 0 .. FLT_MAX; below 1e-5 the most likely token is taken. Default 1 */
    double temperature;
    /* Only the k most likely tokens; 0 or -1: all. Default 0 */
    int32_t top_k;
    /* Above 0, at most 1: only the fewest most likely tokens that have so much probability. Default 1: all */
    double top_p;
    /* 0 .. 1: only tokens at least so likely, relative to the likeliest. Default 0: all */
    double min_p;
    /* FLT_MIN .. FLT_MAX: for tokens of prompt and output, divides positive logits and multiplies others. Default 1: none */
    double repetition_penalty;
    /* -2 .. 2: subtracted for every time that a token is in the output, and once if it is. Default 0 */
    double frequency_penalty, presence_penalty;
    /* Each token once. */
    const struct di_logit_bias *logit_bias;
    size_t n_logit_bias;
    /* If there are any, all others are forbidden. */
    const int32_t *allowed_token_ids;
    size_t n_allowed_token_ids;
    /* Forbidden. */
    const int32_t *bad_token_ids;
    size_t n_bad_token_ids;

    /* At least 1: most tokens of the output. Default 256 */
    int32_t max_tokens;
    /* 0 .. max_tokens: before so many, the end-of-sequence token and stop_token_ids are forbidden, and stop strings are not looked
     * for. Default 0 */
    int32_t min_tokens;
    /* Do not stop at the end-of-sequence token. Default false */
    bool ignore_eos;
    /* Strings that end the output where one first completes in its text: UTF-8, 1 .. DI_MAX_STOP_BYTES bytes each, at most
     * DI_MAX_STOP of them. */
    const char *const *stop;
    size_t n_stop;
    /* The text then ends behind the stop string, not before it. Default false */
    bool include_stop_str_in_output;
    /* Tokens that end the output as the end-of-sequence token does. */
    const int32_t *stop_token_ids;
    size_t n_stop_token_ids;

    /* 1 .. DI_MAX_CHOICES: so many outputs, drawn independently. Default 1 */
    int32_t n;
    /* Log-probabilities of the token drawn and of so many most likely ones, 0 .. DI_MAX_LOGPROBS; -1: none. Default -1 */
    int32_t logprobs;
    /* The same for every token of the prompt. Default -1 */
    int32_t prompt_logprobs;
    /* Leave special tokens out of the text. Default true */
    bool skip_special_tokens;
    /* Same prompt, parameters and seed: same tokens. has_seed false (default): one is drawn, and reported in the result. */
    bool has_seed;
    uint64_t seed;
};

DI_API struct di_sampling_params di_sampling_defaults(void);

/* Checks every field; the message names the parameter and its value. Refused too: parameters that leave no token to draw. With
 * vocab_size 0 (not known yet) token ids are only checked for their sign. */
DI_API di_status di_sampling_validate(const struct di_sampling_params *params, int32_t vocab_size,
                                      struct di_error *err);

#ifdef __cplusplus
}
#endif
#endif
