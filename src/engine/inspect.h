/* engine/inspect.h - a loaded engine described as JSON. Private to engine/ and api/. */
#ifndef DI_ENGINE_INSPECT_H
#define DI_ENGINE_INSPECT_H

#include "engine/engine.h"

/* *json from malloc. Keys: docs/cli.md. */
di_status di_engine_describe(const struct di_engine *engine, const di_options *options, char **json,
                             struct di_error *err);

#endif
