/* engine/record.h - collects the model's inner tensors while a prompt runs, for di_trace(). Private to engine/.
 *
 * docs/trace.md says which tensors there are. A tensor holds some positions of the prompt: all of them, the P listed ones,
 * the last 4 or the last 16. Rows are copied as steps pass, whatever the chunking.
 */
#ifndef DI_ENGINE_RECORD_H
#define DI_ENGINE_RECORD_H

#include "checkpoint/safetensors.h"
#include "engine/session.h"

struct di_recorder;

struct di_recorder_options {
    int64_t length;           /* S: positions of the prompt */
    const int32_t *positions; /* [n_positions] ascending; the P positions */
    int64_t n_positions;
};

di_status di_recorder_open(const struct di_engine *engine, const struct di_recorder_options *options,
                           struct di_recorder **out, struct di_error *err);
void di_recorder_close(struct di_recorder *recorder);

/* To be called from the observe hook; `start` is the position of the step's first row. */
di_status di_recorder_observe(struct di_recorder *recorder, const struct di_model *model, int64_t start, int32_t layer,
                              enum di_point point, const void *data, int32_t rows, int32_t width, struct di_error *err);

/* Hands everything recorded to the writer. */
di_status di_recorder_write(struct di_recorder *recorder, struct di_st_writer *writer, struct di_error *err);

/* The compressor outputs of KV source layer `layer` seen so far: [length / ratio, head_dim], NULL if there were none. */
const float *di_recorder_latents(const struct di_recorder *recorder, int32_t layer);

#endif
