/* model/forward.h - the text backbone: one step of rows through all layers (spec/model.md sections 4 to 13).
 *
 *     di_model_open      constants and the activations of a step, in device memory
 *     di_forward         queues a whole step: embedding, layers, head. No host branch on device data
 *     di_model_draw      queues the draw from its logits, with every rule a request may have (draw.c)
 *     di_model_fetch     queues the copy of what was drawn to the host
 *     di_model_close
 *
 * A step is a flat list of rows (ops/ops.h, di_rows); the rows listed in `logit_row` go through the head. Host arrays are
 * uploaded here; results are read with ops->download after it.
 */
#ifndef DI_MODEL_FORWARD_H
#define DI_MODEL_FORWARD_H

#include "cache/store.h"
#include "core/config.h"
#include "model/weights.h"
#include "ops/draw.h"
#include "ops/ops.h"

struct di_model;

struct di_model_options {
    int32_t max_rows;                /* rows that a step may carry */
    int32_t max_logit_rows;          /* of them through the head */
    const int32_t *token_map;        /* [vocab] compressed ids for Engram; NULL without Engram */
    enum di_kv_format window_format; /* as in the cache layout */
    bool draws;                      /* di_model_draw will be called */
    bool observe;                    /* keep what only observers need (scores, margins) */
    int64_t observe_length;          /* longest sequence then */
};

/* The pointers must outlive the model. */
di_status di_model_open(const struct di_config *config, const struct di_layer_plan_list *plan,
                        const struct di_weights *weights, const struct di_ops *ops, struct di_device *dev,
                        const struct di_model_options *options, struct di_model **out, struct di_error *err);
void di_model_close(struct di_model *model);

/* Bytes of step activations for so many rows; what di_model_open will allocate. */
uint64_t di_model_workspace_bytes(const struct di_config *config, int32_t act_bytes, int32_t max_rows,
                                  int32_t max_logit_rows);

/* From one layer on only some of the rows go on: those that can still reach a result. The layer's compressor sees all rows that
 * enter the layer, everything behind it (window rows, attention, experts) the kept ones. */
struct di_cut {
    int32_t layer, n_rows;
    const int32_t *index;                                 /* [n_rows] ascending, into the rows before the cut */
    const int32_t *position, *slot, *first, *low, *floor; /* low, floor: as in di_step */
};

/* Host arrays, valid during the call. */
struct di_step {
    int32_t n_rows;
    /* [n_rows, engram_max_ngram_size or 1] token ids looking back, [i][0] the row's own; -1 before the start; -2 - j for what
     * row j of the draw before this step gave */
    const int32_t *window;
    const int32_t *position, *slot, *first; /* [n_rows] */
    const int32_t *low, *floor;             /* [n_rows] as in di_rows; NULL: 0 */
    int32_t n_cuts;
    const struct di_cut *cuts; /* [n_cuts] by ascending layer */
    int32_t n_logits;
    const int32_t *logit_row; /* [n_logits] rows (behind the last cut) whose logits are wanted */
    /* A plain draw right away, from [n_logits] values each; NULL: none, di_model_draw() may follow. */
    const float *temperature;
    const uint64_t *seed;
};

/* Named places in the forward pass, in the order in which they are reached within a layer. */
enum di_point {
    DI_POINT_STREAMS_IN,       /* act [n, hc, D] before Engram */
    DI_POINT_PRE_IN,           /* f32 [n, hc] */
    DI_POINT_ENGRAM_HASH,      /* i32 [n, columns] */
    DI_POINT_ENGRAM_GATE,      /* f32 [n, hc] */
    DI_POINT_ENGRAM_STREAMS,   /* act [n, hc, D] */
    DI_POINT_COLLAPSED,        /* act [n, D] input of attn_norm */
    DI_POINT_ATTN_PRE,         /* f32 [n, hc] */
    DI_POINT_ATTN_POST,        /* f32 [n, hc] */
    DI_POINT_ATTN_COMB,        /* f32 [n, hc, hc] */
    DI_POINT_ATTN_IN,          /* act [n, D] */
    DI_POINT_LATENT,           /* act [n, hd]; rows that complete no group are meaningless */
    DI_POINT_Q_RESIDUAL,       /* act [n, q_lora_rank] */
    DI_POINT_WINDOW_KV,        /* packed rows: read them through di_model_window_rows() */
    DI_POINT_INDEX_SCORES,     /* f32 [n, observe stride] */
    DI_POINT_CANDIDATES,       /* i32 [n, topk_blocks] */
    DI_POINT_CANDIDATE_MARGIN, /* f32 [n] */
    DI_POINT_SELECTED,         /* i32 [n, topk] */
    DI_POINT_INDEX_MARGIN,     /* f32 [n] */
    DI_POINT_ATTN_OUT,         /* act [n, D] */
    DI_POINT_FFN_PRE,          /* f32 */
    DI_POINT_FFN_POST,
    DI_POINT_FFN_COMB,
    DI_POINT_FFN_IN,         /* act [n, D] */
    DI_POINT_ROUTER_IDS,     /* i32 [n, k] */
    DI_POINT_ROUTER_WEIGHTS, /* f32 [n, k] */
    DI_POINT_ROUTER_MARGIN,  /* f32 [n] */
    DI_POINT_FFN_OUT,        /* act [n, D] */
    DI_POINT_STREAMS_OUT,    /* act [n, hc, D] */
    /* once a step, layer -1, rows = the step's logit rows: */
    DI_POINT_FINAL_STREAMS,   /* act [m, hc, D] */
    DI_POINT_FINAL_PRE,       /* f32 [m, hc] */
    DI_POINT_FINAL_COLLAPSED, /* act [m, D] */
    DI_POINT_FINAL_NORM,      /* act [m, D] */
    DI_POINT_LOGITS,          /* f32 [m, vocab] */
    DI_POINT_COUNT
};

/* Watches and replaces. Both may be NULL. `data` is device memory: [rows, width] of act, f32 or i32 as the point says. */
struct di_forward_hooks {
    void *user;
    /* After the value is queued; download it to read it. */
    di_status (*observe)(void *user, int32_t layer, enum di_point point, const void *data, int32_t rows, int32_t width,
                         struct di_error *err);
    /* Before layer `layer` (or, with layer = number of layers, before the final collapse): may overwrite the streams
     * [n, hc, D] act and the pre mix [n, hc] f32 by uploads. */
    di_status (*enter)(void *user, int32_t layer, void *streams, void *pre, const struct di_step *step,
                       struct di_error *err);
};

/* Queues one step. Pages for all positions are reserved by the caller. */
di_status di_forward(struct di_model *model, const struct di_kv_store *store, const struct di_step *step,
                     const struct di_forward_hooks *hooks, struct di_error *err);

/* Queues a draw behind the last step, and the copy of its results. */
di_status di_model_draw(struct di_model *model, const struct di_draw *draw, struct di_error *err);
void di_model_fetch(struct di_model *model, const struct di_draw *draw, const struct di_drawn *out);

/* Results of the last step, device memory: [n_logits, vocab] f32 and [n_logits] i32 (-1 where logits were NaN). */
const float *di_model_logits(const struct di_model *model);
const int32_t *di_model_tokens(const struct di_model *model);

/* For observers: the window rows of the layer just observed. Device memory. */
struct di_kv_rows di_model_window_rows(const struct di_model *model);

#endif
