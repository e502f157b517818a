/* model/model.h - an open model, as the files of this folder see it. Private to model/. */
#ifndef DI_MODEL_MODEL_H
#define DI_MODEL_MODEL_H

#include "model/buffers.h"
#include "model/forward.h"

struct di_model {
    const struct di_config *config;
    const struct di_layer_plan_list *plan;
    const struct di_weights *weights;
    const struct di_ops *ops;
    struct di_device *dev;
    struct di_buffers b;
    struct di_buffer_sizes sizes;
    float *inv_freq[2]; /* main, compress */
    int32_t *token_map;
    int32_t pad;                        /* compressed pad id */
    void *engram[DI_MAX_ENGRAM_LAYERS]; /* struct di_engram_consts of each table */
    /* lists of a draw: they grow as requests need it (draw.c) */
    struct di_growing {
        void *memory;
        size_t bytes;
    } seen_token, seen_count, bias_token, bias, mask;
};

/* Releases the lists of a draw. */
void di_draw_close(struct di_model *model);

#endif
