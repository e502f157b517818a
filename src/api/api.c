/* The public functions of engine.h, request.h and introspect.h: argument checks, then the engine. */
#include <stdlib.h>

#include "deepinfer/deepinfer.h"

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/inspect.h"
#include "engine/service.h"
#include "engine/trace.h"

di_status di_engine_open(const char *model, const di_options *options, di_engine **out, struct di_error *err)
{
    DI_TRY(di_engine_load(model, options, out, err));
    di_status status = di_engine_start(*out, err);
    if (status != DI_OK) {
        di_engine_close(*out);
        *out = NULL;
    }
    return status;
}

const di_tokenizer *di_engine_tokenizer(const di_engine *engine)
{
    return engine->tokenizer;
}

int64_t di_engine_max_model_len(const di_engine *engine)
{
    return engine->max_model_len;
}

int32_t di_engine_bos_token_id(const di_engine *engine)
{
    return engine->config->bos_token_id;
}

int32_t di_engine_eos_token_id(const di_engine *engine)
{
    return engine->config->eos_token_id;
}

int32_t di_engine_vocab_size(const di_engine *engine)
{
    return engine->config->vocab_size;
}

const char *di_engine_identity(const di_engine *engine)
{
    return engine->identity;
}

di_status di_generate(di_engine *engine, const int32_t *prompt, size_t n_prompt,
                      const struct di_sampling_params *params, di_token_fn on_token, void *user,
                      struct di_generation *result, struct di_error *err)
{
    return di_generate_run(engine, prompt, n_prompt, params, on_token, user, result, err);
}

di_status di_submit(di_engine *engine, const struct di_request *request, uint64_t *ticket, struct di_error *err)
{
    struct di_call *call;
    DI_TRY(di_call_create(engine, request, di_service_mailbox(engine->loop), &call, err));
    di_status status = di_service_submit(engine->loop, call, ticket, err);
    if (status != DI_OK)
        di_call_free(call);
    return status;
}

di_status di_next_event(di_engine *engine, double timeout, struct di_event **event, struct di_error *err)
{
    struct di_letter *letter = di_mailbox_take(di_service_mailbox(engine->loop), timeout);
    *event = letter != NULL ? &letter->event : NULL;
    return letter != NULL ? DI_OK : di_service_health(engine->loop, err);
}

void di_event_free(di_engine *engine, struct di_event *event)
{
    if (event != NULL)
        di_mailbox_return(di_service_mailbox(engine->loop), (struct di_letter *)(void *)event);
}

di_status di_abort(di_engine *engine, const char *id, struct di_error *err)
{
    return di_service_abort(engine->loop, id, 0, err);
}

di_status di_abort_ticket(di_engine *engine, uint64_t ticket, struct di_error *err)
{
    return di_service_abort(engine->loop, NULL, ticket, err);
}

void di_engine_get_stats(di_engine *engine, struct di_engine_stats *stats)
{
    di_service_stats(engine->loop, stats);
}

di_status di_inspect(const char *model, const di_options *options, char **json, struct di_error *err)
{
    struct di_engine *engine = NULL;
    di_options *own = NULL;
    *json = NULL;
    di_status status = DI_OK;
    if (options == NULL) {
        status = di_options_create(&own, err);
        options = own;
    }
    if (status == DI_OK)
        status = di_engine_load(model, options, &engine, err);
    if (status == DI_OK)
        status = di_engine_describe(engine, options, json, err);
    di_engine_close(engine);
    di_options_free(own);
    return status;
}

di_status di_trace(di_engine *engine, const struct di_trace_options *options, const char *out_path,
                   struct di_error *err)
{
    if (options->chunk < 0)
        return DI_FAIL(err, DI_ERR_RANGE, "chunk must be at least 0, not %d", options->chunk);
    if (options->greedy < 0)
        return DI_FAIL(err, DI_ERR_RANGE, "greedy must be at least 0, not %d", options->greedy);
    DI_TRY(di_check_prompt(engine, options->ids, options->n_ids, options->greedy, err));
    DI_TRY(di_service_rest(engine->loop, err));
    di_status status = di_trace_run(engine, options, out_path, err);
    di_service_wake(engine->loop);
    return status;
}
