/* model/weights.h - the tensors of a checkpoint bound to their roles.
 *
 * di_weights_bind() is the only place that knows tensor names (spec/model.md section 18). Each tensor is taken from the
 * checkpoint with its type and shape checked, handed to the backend (place) and stored under its role; what is left on
 * purpose is recorded with the reason; anything else left over is an error.
 */
#ifndef DI_MODEL_WEIGHTS_H
#define DI_MODEL_WEIGHTS_H

#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "ops/ops.h"

/* One hyper-connection site. */
struct di_hc_weights {
    struct di_weight fn; /* [(2 + hc) * hc, hc * D] f32 */
    const float *base;   /* [(2 + hc) * hc] */
    const float *scale;  /* [3] */
};

struct di_compressor_weights {         /* KV sources only */
    struct di_weight wkv, wgate, norm; /* wgate: ratio 2 only */
    struct di_weight index_wk, index_k_norm;
};

struct di_indexer_weights { /* index sources only */
    struct di_weight wq_b, weights_proj;
};

struct di_engram_weights { /* Engram layers only */
    struct di_weight table, wkv, q_weight, k_weight;
};

struct di_layer_weights {
    struct di_hc_weights hc_attn, hc_ffn;
    struct di_weight attn_norm, ffn_norm;
    struct di_weight wq_a, q_norm, wq_b, wkv, kv_norm, wo_a, wo_b;
    const float *attn_sink; /* [H] */
    struct di_compressor_weights compressor;
    struct di_indexer_weights indexer;
    struct di_engram_weights engram;
    struct di_weight gate;
    const float *gate_bias;    /* [E] */
    struct di_expert *experts; /* [E], host array */
    struct di_expert shared;
};

struct di_weights {
    struct di_weight embed, head, norm;
    struct di_layer_weights *layers; /* [num_hidden_layers] */
    struct di_arena arena;
};

/* Binds every tensor of `ckpt`. On failure *out holds nothing that needs freeing beyond di_weights_free(). */
di_status di_weights_bind(struct di_checkpoint *ckpt, const struct di_layer_plan_list *plan, const struct di_ops *ops,
                          struct di_device *dev, struct di_weights *out, struct di_error *err);
void di_weights_free(struct di_weights *weights);

#endif
