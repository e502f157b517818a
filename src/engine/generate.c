#include "engine/generate.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "engine/session.h"

di_status di_check_prompt(const struct di_engine *e, const int32_t *prompt, size_t n_prompt, int64_t more,
                          struct di_error *err)
{
    if (n_prompt == 0)
        return DI_FAIL(err, DI_ERR_INVALID, "the prompt is empty; at least one token is needed");
    if (n_prompt > (uint64_t)e->max_model_len || (int64_t)n_prompt + more > e->max_model_len)
        return DI_FAIL(err, DI_ERR_LIMIT, "the prompt has %zu tokens and %lld more are wanted; max-model-len is %lld",
                       n_prompt, (long long)more, (long long)e->max_model_len);
    for (size_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= e->config->vocab_size)
            return DI_FAIL(err, DI_ERR_RANGE, "token id %d at index %zu of the prompt is outside the vocabulary of %d",
                           prompt[i], i, e->config->vocab_size);
    return DI_OK;
}

static di_status choose_seed(const struct di_sampling_params *params, uint64_t *seed, struct di_error *err)
{
    *seed = params->seed;
    if (!params->has_seed && getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed)
        return DI_FAIL(err, DI_ERR_IO, "no random seed from the system: %s", strerror(errno));
    return DI_OK;
}

/* Runs the prompt in steps of at most max_rows rows; the last one draws. */
static di_status prefill(struct di_engine *e, const int32_t *prompt, size_t n_prompt, float temperature, uint64_t seed,
                         struct di_error *err)
{
    size_t chunk = (size_t)e->max_rows;
    for (size_t at = 0; at < n_prompt; at += chunk) {
        size_t n = n_prompt - at < chunk ? n_prompt - at : chunk;
        struct di_feed feed = {
            .ids = prompt + at,
            .n = (int32_t)n,
            .logits = at + n == n_prompt ? DI_LOGITS_LAST : DI_LOGITS_NONE,
            .temperature = temperature,
            .seed = seed,
        };
        DI_TRY(di_session_feed(e->session, &feed, err));
    }
    return DI_OK;
}

/* Draws, reports and feeds tokens until something ends the request. */
static di_status decode(struct di_engine *e, di_detokenizer *detok, const struct di_sampling_params *params,
                        int64_t limit, di_token_fn on_token, void *user, struct di_generation *result,
                        struct di_error *err)
{
    for (;;) {
        int32_t token;
        DI_TRY(di_session_token(e->session, &token, err));
        bool end = token == e->config->eos_token_id && !params->ignore_eos;
        struct di_token_event event = {.id = token, .index = result->n_tokens++, .text = ""};
        if (token < di_tokenizer_vocab_size(e->tokenizer)) /* ids past the tokenizer's have no text */
            DI_TRY(di_detokenizer_feed(detok, token, &event.text, &event.text_len, err));
        bool go_on = on_token == NULL || on_token(user, &event);
        if (end || !go_on || (int64_t)result->n_tokens >= limit) {
            result->finish_reason = end ? "stop" : !go_on ? "abort" : "length";
            return DI_OK;
        }
        struct di_feed feed = {
            .ids = &token,
            .n = 1,
            .logits = DI_LOGITS_LAST,
            .temperature = (float)params->temperature,
            .seed = result->seed,
        };
        DI_TRY(di_session_feed(e->session, &feed, err));
    }
}

static di_status finish_text(di_detokenizer *detok, struct di_generation *result, struct di_error *err)
{
    const char *text;
    size_t len;
    DI_TRY(di_detokenizer_finish(detok, &text, &len, err));
    if (len >= sizeof result->tail)
        return DI_FAIL(err, DI_ERR_INTERNAL, "the detokeniser withheld %zu bytes", len);
    memcpy(result->tail, text, len);
    result->tail[len] = '\0';
    return DI_OK;
}

di_status di_generate_run(struct di_engine *e, const int32_t *prompt, size_t n_prompt,
                          const struct di_sampling_params *params, di_token_fn on_token, void *user,
                          struct di_generation *result, struct di_error *err)
{
    *result = (struct di_generation){.finish_reason = "error"};
    DI_TRY(di_check_prompt(e, prompt, n_prompt, 1, err));
    DI_TRY(choose_seed(params, &result->seed, err));
    int64_t room = e->max_model_len - (int64_t)n_prompt;
    int64_t limit = params->max_tokens < room ? params->max_tokens : room;
    di_detokenizer *detok;
    DI_TRY(di_detokenizer_open(e->tokenizer, true, &detok, err));
    double start = di_clock_seconds();
    di_status status = prefill(e, prompt, n_prompt, (float)params->temperature, result->seed, err);
    double between = di_clock_seconds();
    if (status == DI_OK)
        status = decode(e, detok, params, limit, on_token, user, result, err);
    if (status == DI_OK)
        status = finish_text(detok, result, err);
    result->prefill_seconds = between - start;
    result->decode_seconds = di_clock_seconds() - between;
    di_detokenizer_close(detok);
    di_session_reset(e->session); /* the engine is ready for the next request, also after a failure */
    return status;
}
