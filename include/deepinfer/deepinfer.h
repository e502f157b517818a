/* deepinfer/deepinfer.h - the whole public API, and where to begin.
 *
 * Handles, their owners and their lives:
 *
 *   di_options    settings by name, filled from DEEPINFER_* variables, then by di_options_set(). Yours; free it when the
 *                 engine is open.
 *   di_engine     one model, mapped from its checkpoint folder and ready to run. Yours; close it last.
 *   di_tokenizer  text <-> ids. The engine owns one (di_engine_tokenizer()); or open one alone.
 *
 * From a prompt to text:
 *
 *     struct di_error err = {0};
 *     di_options *options;
 *     di_engine *engine;
 *     if (di_options_create(&options, &err) != DI_OK ||
 *         di_options_set(options, "mode", "native", &err) != DI_OK ||
 *         di_engine_open("models/tiny", options, &engine, &err) != DI_OK)
 *         fail(err.message);
 *     di_token_list ids = {0};
 *     di_tokenizer_encode(di_engine_tokenizer(engine), text, strlen(text), true, &ids, &err);
 *     struct di_sampling_params params = di_sampling_defaults();
 *     struct di_generation result;
 *     di_generate(engine, ids.ids, ids.count, &params, on_token, user, &result, &err);
 *
 * Functions that can fail return a di_status and describe the failure in a di_error (status.h). Nothing here prints,
 * exits or aborts. Strings are UTF-8. A handle is used by one thread at a time unless its header says otherwise.
 */
#ifndef DEEPINFER_DEEPINFER_H
#define DEEPINFER_DEEPINFER_H

#include "deepinfer/engine.h"
#include "deepinfer/introspect.h"
#include "deepinfer/options.h"
#include "deepinfer/request.h"
#include "deepinfer/sampling.h"
#include "deepinfer/status.h"
#include "deepinfer/tokenizer.h"

#define DI_VERSION "0.1.0"

#endif
