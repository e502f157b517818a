/* ops/draw.h - a draw as the host describes it, and its results: what sample/ builds and model/ sends to the device. */
#ifndef DI_OPS_DRAW_H
#define DI_OPS_DRAW_H

#include "deepinfer/sampling.h"

#include "ops/ops.h"

/* A draw from the logits of the last step, one a logits row. Host arrays, valid during the call; rules and report as in
 * di_sample_args, but with host arrays, and without outputs. */
struct di_draw {
    int32_t n;
    const float *temperature;
    const uint64_t *seed;
    const int32_t *position; /* of the rows; the tokens drawn stand one further */
    struct di_sample_rules rules;
    int32_t n_masks;       /* rows of rules.mask */
    int32_t top;           /* columns of top_token and top_logprob, at most DI_MAX_LOGPROBS */
    const int32_t *wanted; /* as in di_sample_report; NULL: no report */
    const int32_t *scored;
};

/* Where a draw's results go: memory from ops->host_alloc, complete once an event recorded after di_model_fetch() has passed. */
struct di_drawn {
    int32_t *token;            /* [n] */
    float *logprob;            /* [n], with a report */
    int32_t *rank, *top_token; /* [n], [n, top] */
    float *top_logprob;        /* [n, top] */
};

#endif
