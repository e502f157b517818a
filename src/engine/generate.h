/* engine/generate.h - one request from prompt to end, through the engine thread. Private to engine/ and api/. */
#ifndef DI_ENGINE_GENERATE_H
#define DI_ENGINE_GENERATE_H

#include "deepinfer/request.h"

#include "engine/engine.h"

di_status di_generate_run(struct di_engine *engine, const int32_t *prompt, size_t n_prompt,
                          const struct di_sampling_params *params, di_token_fn on_token, void *user,
                          struct di_generation *result, struct di_error *err);

/* Prompt checks shared with traces: not empty, every id in the vocabulary, room for `more` tokens behind it. */
di_status di_check_prompt(const struct di_engine *engine, const int32_t *prompt, size_t n_prompt, int64_t more,
                          struct di_error *err);

#endif
