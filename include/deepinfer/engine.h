/* deepinfer/engine.h - open a model. Part of deepinfer/deepinfer.h. */
#ifndef DEEPINFER_ENGINE_H
#define DEEPINFER_ENGINE_H

#include <stdint.h>

#include "deepinfer/options.h"
#include "deepinfer/status.h"
#include "deepinfer/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_engine di_engine;

/* Opens a checkpoint. `model` is a folder in the released layout (config.json, safetensors, tokenizer.json) or a hub id
 * found in the local Hugging Face cache; NULL means the option "model" (variable DEEPINFER_HF_MODEL_DIR), whose default is
 * the released hub id. The checkpoint is mapped and used in place: no conversion, no copy. Everything about it is checked
 * here: the config, every tensor's name, type and shape, the tokenizer. `options` may be NULL (defaults and environment)
 * and can be freed afterwards. The caller closes *out. */
DI_API di_status di_engine_open(const char *model, const di_options *options, di_engine **out, struct di_error *err);
DI_API void di_engine_close(di_engine *engine);

/* Owned by the engine. */
DI_API const di_tokenizer *di_engine_tokenizer(const di_engine *engine);

/* The longest sequence, prompt and output together: the lesser of the model's context and the option max-model-len. */
DI_API int64_t di_engine_max_model_len(const di_engine *engine);

/* Ids of the model's config.json; -1 where it names none. */
DI_API int32_t di_engine_bos_token_id(const di_engine *engine);
DI_API int32_t di_engine_eos_token_id(const di_engine *engine);
DI_API int32_t di_engine_vocab_size(const di_engine *engine);

/* The numeric identity: everything that decides the bits of a result besides the request itself (backend, numeric mode,
 * cache formats, version). Two engines with equal identities and checkpoints give equal tokens. Owned by the engine. */
DI_API const char *di_engine_identity(const di_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
