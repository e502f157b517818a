/* deepinfer/introspect.h - look inside: plans as JSON, and traces of named tensors. Part of deepinfer/deepinfer.h. */
#ifndef DEEPINFER_INTROSPECT_H
#define DEEPINFER_INTROSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deepinfer/engine.h"
#include "deepinfer/options.h"
#include "deepinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a checkpoint holds and how the engine would run it, as one JSON object (keys: model, config, layers, tensors,
 * ignored, memory, identity, options; documented in docs/cli.md). Nothing large is allocated. *json is zero-terminated;
 * the caller frees it with free(). */
DI_API di_status di_inspect(const char *model, const di_options *options, char **json, struct di_error *err);

struct di_trace_options {
    const int32_t *ids; /* the prompt, position 0 first */
    size_t n_ids;
    int32_t chunk;    /* prefill in pieces of this many tokens; 0: whole */
    int32_t greedy;   /* then this many greedy tokens, one a step; no stop at the end-of-sequence token */
    const char *feed; /* NULL, or a safetensors file: every layer L for which it has layers.L.streams_in and
                           layers.L.pre_in starts from them instead of from layer L-1's output; likewise
                           final.streams_in, final.pre_in before the head */
    const char *like; /* NULL, or a safetensors file whose `positions` says which positions the per-position tensors
                           hold, and whose layers.L.compressed.groups say which entries; NULL with feed: the feed file;
                           NULL without: all */
};

/* Runs the prompt and writes the model's inner tensors to a safetensors file (names, shapes and dtypes: docs/trace.md). */
DI_API di_status di_trace(di_engine *engine, const struct di_trace_options *options, const char *out_path,
                          struct di_error *err);

#ifdef __cplusplus
}
#endif
#endif
