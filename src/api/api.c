/* The public functions of engine.h, request.h and introspect.h: argument checks, then the engine. */
#include <stdlib.h>

#include "deepinfer/deepinfer.h"

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/inspect.h"
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

/* What the engine does not do yet is refused, never ignored. */
static di_status check_supported(const struct di_sampling_params *p, struct di_error *err)
{
    const struct {
        const char *name;
        bool wanted;
    } checks[] = {
        {"top_k", p->top_k > 0},
        {"top_p", p->top_p < 1.0},
        {"min_p", p->min_p > 0.0},
        {"repetition_penalty", p->repetition_penalty < 1.0 || p->repetition_penalty > 1.0},
        {"frequency_penalty", p->frequency_penalty < 0.0 || p->frequency_penalty > 0.0},
        {"presence_penalty", p->presence_penalty < 0.0 || p->presence_penalty > 0.0},
        {"logit_bias", p->n_logit_bias > 0},
        {"allowed_token_ids", p->n_allowed_token_ids > 0},
        {"bad_token_ids", p->n_bad_token_ids > 0},
        {"min_tokens", p->min_tokens > 0},
        {"stop", p->n_stop > 0},
        {"stop_token_ids", p->n_stop_token_ids > 0},
        {"n", p->n > 1},
        {"logprobs", p->logprobs >= 0},
        {"prompt_logprobs", p->prompt_logprobs >= 0},
        {"skip_special_tokens", !p->skip_special_tokens},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (checks[i].wanted)
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s is not supported yet; leave it at its default", checks[i].name);
    return DI_OK;
}

di_status di_generate(di_engine *engine, const int32_t *prompt, size_t n_prompt,
                      const struct di_sampling_params *params, di_token_fn on_token, void *user,
                      struct di_generation *result, struct di_error *err)
{
    DI_TRY(di_sampling_validate(params, engine->config->vocab_size, err));
    DI_TRY(check_supported(params, err));
    return di_generate_run(engine, prompt, n_prompt, params, on_token, user, result, err);
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
    return di_trace_run(engine, options, out_path, err);
}
