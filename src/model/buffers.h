/* model/buffers.h - the activations of one step, in device memory. Private to model/. */
#ifndef DI_MODEL_BUFFERS_H
#define DI_MODEL_BUFFERS_H

#include "core/config.h"
#include "ops/ops.h"

/* Shapes: R = max_rows, M = max_logit_rows; other letters as in ops/ops.h. act unless said otherwise. */
struct di_buffers {
    /* the step itself, uploaded */
    int32_t *window, *position, *slot, *first, *low, *floor;            /* [R, ngram], [R] each */
    int32_t *cut_position, *cut_slot, *cut_first, *cut_low, *cut_floor; /* [R] of the rows behind the last cut */
    int32_t *cut_index;                                                 /* [R] */
    int32_t *logit_row;                                                 /* [M] */
    float *temperature;                                                 /* [M] */
    uint64_t *seed;                                                     /* [M] */
    /* residual streams and coefficients */
    void *x;                                       /* [R, hc, D] */
    float *pre, *attn_pre, *attn_post, *attn_comb; /* [R, hc], comb [R, hc, hc] */
    float *ffn_pre, *ffn_post, *ffn_comb;
    void *collapsed, *normed, *out; /* [R, D] */
    /* attention */
    void *q_low, *q, *kv, *attn, *o_low;                /* [R, q_lora], [R, H*hd], [R, hd], [R, H*hd], [R, G*rank] */
    uint8_t *window_data, *window_scale;                /* R packed window rows */
    float *value, *gate;                                /* [R, hd] compressor, ratio 2 */
    void *latent, *index_key, *index_q, *index_w;       /* [R, hd], [R, ihd], [R, ih*ihd], [R, ih] */
    int32_t *selected, *n_selected, *blocks, *n_blocks; /* [R, topk], [R], [R, topk_blocks], [R] */
    /* experts */
    int32_t *expert_ids;   /* [R, k] */
    float *expert_weights; /* [R, k] */
    void *slots, *shared;  /* [R, k, D], [R, D] */
    /* Engram */
    int32_t *hash_ids;             /* [R, columns] */
    void *engram_rows, *engram_kv; /* [R, columns*ehd], [R, (hc+1)*D] */
    float *engram_gate;            /* [R, hc] */
    /* head */
    void *final_x;                      /* [M, hc, D] */
    float *final_pre;                   /* [M, hc] */
    void *final_collapsed, *final_norm; /* [M, D] */
    float *logits;                      /* [M, vocab] */
    int32_t *token;                     /* [M] */
    /* draw, if wanted: parameters [M] each, then results */
    int32_t *draw_row, *draw_position, *top_k, *mask_row, *seen_offset, *bias_offset, *wanted,
        *scored; /* offsets [M + 1] */
    float *repetition, *frequency, *presence, *top_p, *min_p;
    uint32_t *choice;
    float *logprob, *top_logprob;
    int32_t *rank, *top_token; /* top_*: [M, DI_MAX_LOGPROBS] */
    /* observation only, else NULL */
    float *scores, *index_margin, *block_margin, *router_margin; /* [R, score_stride], [R] each */
};

struct di_buffer_sizes {
    const struct di_config *config;
    int32_t act_bytes, max_rows, max_logit_rows;
    enum di_kv_format window_format;
    int32_t score_stride; /* 0: not observing */
    bool draws;
};

uint64_t di_buffers_bytes(const struct di_buffer_sizes *sizes);
/* On failure everything allocated so far is released by di_buffers_free. */
di_status di_buffers_alloc(const struct di_buffer_sizes *sizes, const struct di_ops *ops, struct di_device *dev,
                           struct di_buffers *out, struct di_error *err);
void di_buffers_free(const struct di_ops *ops, struct di_device *dev, struct di_buffers *buffers);

#endif
