#include "engine/generate.h"

#include <string.h>

#include "engine/loop.h"

di_status di_check_prompt(const struct di_engine *e, const int32_t *prompt, size_t n_prompt, int64_t more,
                          struct di_error *err)
{
    if (n_prompt == 0)
        return DI_FAIL(err, DI_ERR_INVALID, "the prompt is empty; at least one token is needed");
    int64_t longest = di_engine_longest(e);
    if (n_prompt > (uint64_t)e->max_model_len || (int64_t)n_prompt + more > e->max_model_len)
        return DI_FAIL(err, DI_ERR_LIMIT, "the prompt has %zu tokens and %lld more are wanted; max-model-len is %lld",
                       n_prompt, (long long)more, (long long)e->max_model_len);
    if ((int64_t)n_prompt + more > longest)
        return DI_FAIL(err, DI_ERR_LIMIT,
                       "the prompt has %zu tokens and %lld more are wanted; kv-cache-tokens makes pages for %lld",
                       n_prompt, (long long)more, (long long)longest);
    for (size_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= e->config->vocab_size)
            return DI_FAIL(err, DI_ERR_RANGE, "token id %d at index %zu of the prompt is outside the vocabulary of %d",
                           prompt[i], i, e->config->vocab_size);
    return DI_OK;
}

/* Tells the caller of an event's tokens, one by one; text goes with the last. False once the caller wants no more. */
static bool report(const struct di_event *ev, di_token_fn on_token, void *user, size_t *index)
{
    for (size_t i = 0; i < ev->n_tokens; i++) {
        bool last = i + 1 == ev->n_tokens;
        struct di_token_event event = {
            .id = ev->token_ids[i],
            .index = (*index)++,
            .text = last ? ev->text : "",
            .text_len = last ? ev->text_len : 0,
        };
        if (on_token != NULL && !on_token(user, &event))
            return false;
    }
    return true;
}

static void fill(struct di_generation *result, const struct di_event *ev)
{
    *result = (struct di_generation){
        .finish_reason = ev->finish_reason,
        .n_tokens = ev->n_output,
        .seed = ev->seed,
        .prefill_seconds = ev->first_seconds - ev->queued_seconds,
        .decode_seconds = ev->total_seconds - ev->first_seconds,
        .n_cached = ev->n_cached,
    };
}

/* Takes events until the last one. */
static di_status follow(struct di_loop *loop, struct di_mailbox *box, uint64_t ticket, di_token_fn on_token, void *user,
                        struct di_generation *result, struct di_error *err)
{
    size_t index = 0;
    bool wanted = true;
    for (;;) {
        struct di_letter *l = di_mailbox_take(box, -1.0);
        if (l == NULL)
            return DI_FAIL(err, DI_ERR_ABORTED, "the engine closed while the request ran");
        const struct di_event *ev = &l->event;
        bool finished = ev->kind == DI_EVENT_FINISHED;
        if (wanted && !report(ev, on_token, user, &index)) {
            wanted = false;
            if (!finished)
                (void)di_service_abort(loop, NULL, ticket, NULL); /* or it ends at this moment */
        }
        if (finished) {
            di_status status = ev->error.code;
            /* text that was withheld until the end */
            if (wanted && ev->n_tokens == 0 && ev->text_len > 0 && on_token != NULL && status == DI_OK)
                (void)on_token(user, &(struct di_token_event){
                                         .id = -1, .index = index, .text = ev->text, .text_len = ev->text_len});
            fill(result, ev);
            if (!wanted) {
                result->finish_reason = "abort";
                result->n_tokens = index;
            }
            if (status != DI_OK && err != NULL)
                *err = ev->error;
            di_mailbox_return(box, l);
            return status;
        }
        di_mailbox_return(box, l);
    }
}

di_status di_generate_run(struct di_engine *e, const int32_t *prompt, size_t n_prompt,
                          const struct di_sampling_params *params, di_token_fn on_token, void *user,
                          struct di_generation *result, struct di_error *err)
{
    struct di_request request = {.prompt = prompt, .n_prompt = n_prompt, .params = *params, .stream = true};
    struct di_mailbox *box;
    struct di_call *call;
    uint64_t ticket;
    *result = (struct di_generation){.finish_reason = "error"};
    if (params->n != 1)
        return DI_FAIL(err, DI_ERR_INVALID, "n must be 1 here, not %d: submit the request instead", params->n);
    DI_TRY(di_mailbox_open(&box, err));
    di_status status = di_call_create(e, &request, box, &call, err);
    if (status == DI_OK) {
        status = di_service_submit(e->loop, call, &ticket, err);
        if (status == DI_OK)
            status = follow(e->loop, box, ticket, on_token, user, result, err);
        else
            di_call_free(call);
    }
    di_mailbox_close(box);
    return status;
}
