/* engine/trace.h - di_trace(): run a prompt, write its inner tensors. Private to engine/ and api/. */
#ifndef DI_ENGINE_TRACE_H
#define DI_ENGINE_TRACE_H

#include "deepinfer/introspect.h"

#include "engine/engine.h"

di_status di_trace_run(struct di_engine *engine, const struct di_trace_options *options, const char *out_path,
                       struct di_error *err);

#endif
