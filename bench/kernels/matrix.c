/* Families with weights of gigabytes: dense products, experts, router, head. Their bytes are those of the weights. */
#include "bench.h"

#include <stdlib.h>

#include "base/mem.h"

/* ---------------------------------------------------------------------------------------------------------------------
 * linear, group_linear, gate, hc_mix: one weight a call. */

static void account_weight(struct bench_case *c, int64_t macs)
{
    const struct bench_family *f = c->family;
    bench_account(c, bench_weight_bytes(f->format, f->rows, f->cols), macs);
}

static int64_t product_macs(const struct bench_case *c)
{
    return c->m * c->family->rows * c->family->cols;
}

static void call_linear(struct bench *b, struct bench_case *c)
{
    c->a.linear.weight = bench_next_weight(b, c);
    b->ops->linear(b->dev, &c->a.linear);
    account_weight(c, product_macs(c));
}

static void ready_linear_as(struct bench *b, struct bench_case *c, bool f32_out)
{
    const struct bench_family *f = c->family;
    c->call = call_linear;
    c->a.linear = (struct di_linear_args){
        .n = c->m,
        .x = bench_act(b, (int64_t)c->m * f->cols),
        .f32_out = f32_out,
        .out = bench_alloc(b, (size_t)c->m * (size_t)f->rows * sizeof(float)),
    };
}

static void ready_linear(struct bench *b, struct bench_case *c)
{
    ready_linear_as(b, c, false);
}

static void ready_linear_f32(struct bench *b, struct bench_case *c)
{
    ready_linear_as(b, c, true);
}

static void call_group_linear(struct bench *b, struct bench_case *c)
{
    c->a.group_linear.weight = bench_next_weight(b, c);
    b->ops->group_linear(b->dev, &c->a.group_linear);
    account_weight(c, product_macs(c));
}

static void ready_group_linear(struct bench *b, struct bench_case *c)
{
    const struct bench_family *f = c->family;
    const int32_t groups = 8;
    c->call = call_group_linear;
    c->a.group_linear = (struct di_group_linear_args){
        .n = c->m,
        .groups = groups,
        .x = bench_act(b, (int64_t)c->m * groups * f->cols),
        .out = bench_zero_act(b, c->m * f->rows),
    };
}

static void call_gate(struct bench *b, struct bench_case *c)
{
    c->a.gate.weight = bench_next_weight(b, c);
    b->ops->gate(b->dev, &c->a.gate);
    account_weight(c, product_macs(c));
}

static void ready_gate(struct bench *b, struct bench_case *c)
{
    size_t chosen = (size_t)c->m * EXPERT_TOPK;
    c->call = call_gate;
    c->a.gate = (struct di_gate_args){
        .n = c->m,
        .topk = EXPERT_TOPK,
        .x = bench_act(b, (int64_t)c->m * HIDDEN),
        .bias = bench_floats(b, EXPERTS, 0.1F),
        .temp = 1.0F,
        .scaling = 1.5F,
        .ids = bench_alloc(b, chosen * sizeof(int32_t)),
        .weights = bench_alloc(b, chosen * sizeof(float)),
    };
}

static void call_hc_mix(struct bench *b, struct bench_case *c)
{
    c->a.hc_mix.fn = bench_next_weight(b, c);
    b->ops->hc_mix(b->dev, &c->a.hc_mix);
    account_weight(c, product_macs(c));
}

static void ready_hc_mix(struct bench *b, struct bench_case *c)
{
    const int32_t hc = STREAMS_HC;
    c->call = call_hc_mix;
    c->a.hc_mix = (struct di_hc_mix_args){
        .n = c->m,
        .hc = hc,
        .dim = HIDDEN,
        .sinkhorn_iters = SINKHORN_ITERS,
        .x = bench_act(b, (int64_t)c->m * hc * HIDDEN),
        .base = bench_floats(b, (2 + hc) * hc, 0.1F),
        .scale = bench_constant(b, 3, 0.5F),
        .eps = 1e-6F,
        .norm_eps = 1e-20F,
        .pre = bench_constant(b, (int64_t)c->m * hc, 0.0F),
        .post = bench_constant(b, (int64_t)c->m * hc, 0.0F),
        .comb = bench_constant(b, (int64_t)c->m * hc * hc, 0.0F),
    };
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Experts: three weights each, equally large. */

static struct di_expert expert_at(const struct bench *b, int64_t index)
{
    return (struct di_expert){
        .w1 = bench_pool_weight(&b->pool, INNER, HIDDEN, 3 * index),
        .w3 = bench_pool_weight(&b->pool, INNER, HIDDEN, 3 * index + 1),
        .w2 = bench_pool_weight(&b->pool, HIDDEN, INNER, 3 * index + 2),
    };
}

static int64_t expert_bytes(const struct bench_case *c)
{
    return 3 * bench_weight_bytes(c->family->format, INNER, HIDDEN);
}

static const int64_t expert_macs = (int64_t)3 * INNER * HIDDEN;

/* Every row chooses its experts at random, none twice; an expert that several rows chose is read once. */
static int32_t choose_experts(struct bench *b, int32_t rows, int32_t *ids)
{
    bool seen[EXPERTS] = {false};
    int32_t distinct = 0;
    for (int32_t i = 0; i < rows; i++) {
        int32_t *row = ids + (int64_t)i * EXPERT_TOPK;
        for (int32_t k = 0; k < EXPERT_TOPK; k++) {
            bool again;
            do {
                row[k] = (int32_t)bench_random_below(&b->random, EXPERTS);
                again = false;
                for (int32_t j = 0; j < k; j++)
                    again = again || row[j] == row[k];
            } while (again);
            distinct += seen[row[k]] ? 0 : 1;
            seen[row[k]] = true;
        }
    }
    return distinct;
}

static void call_experts(struct bench *b, struct bench_case *c)
{
    int32_t *ids = (int32_t *)(uintptr_t)c->a.experts.ids; /* ours */
    int32_t distinct = choose_experts(b, c->m, ids);
    b->ops->experts(b->dev, &c->a.experts);
    bench_account(c, distinct * expert_bytes(c), c->m * EXPERT_TOPK * expert_macs);
}

/* Where the pool holds fewer than all experts, several ids share weights: still far more than the caches hold. */
static void ready_experts(struct bench *b, struct bench_case *c)
{
    int64_t chosen = (int64_t)c->m * EXPERT_TOPK;
    c->experts = di_calloc(EXPERTS, sizeof *c->experts);
    if (c->experts == NULL)
        bench_fail("out of memory");
    for (int32_t e = 0; e < EXPERTS; e++)
        c->experts[e] = expert_at(b, c->order[e % c->n_order]);
    c->call = call_experts;
    c->a.experts = (struct di_experts_args){
        .n = c->m,
        .topk = EXPERT_TOPK,
        .dim = HIDDEN,
        .inner = INNER,
        .x = bench_act(b, (int64_t)c->m * HIDDEN),
        .ids = bench_alloc(b, (size_t)chosen * sizeof(int32_t)),
        .weights = bench_constant(b, chosen, 0.25F),
        .experts = c->experts,
        .n_experts = EXPERTS,
        .limit = 10.0F,
        .out = bench_zero_act(b, chosen * HIDDEN),
    };
}

static void call_shared_expert(struct bench *b, struct bench_case *c)
{
    c->a.shared_expert.expert = expert_at(b, c->order[c->at]);
    c->at = (c->at + 1) % c->n_order;
    b->ops->shared_expert(b->dev, &c->a.shared_expert);
    bench_account(c, expert_bytes(c), c->m * expert_macs);
}

static void ready_shared_expert(struct bench *b, struct bench_case *c)
{
    c->call = call_shared_expert;
    c->a.shared_expert = (struct di_shared_expert_args){
        .n = c->m,
        .dim = HIDDEN,
        .inner = INNER,
        .x = bench_act(b, (int64_t)c->m * HIDDEN),
        .limit = 10.0F,
        .out = bench_zero_act(b, (int64_t)c->m * HIDDEN),
    };
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Ordered by format: a pool serves all families of one. */

#define M_DENSE {1, 8, 32, 128, 0}

static const struct bench_family families[] = {
    {"fp4 expert w1,w3", "[2304,5120]", ready_linear, DI_FMT_FP4, 2304, 5120, 1, M_DENSE},
    {"fp4 expert w2", "[5120,2304]", ready_linear, DI_FMT_FP4, 5120, 2304, 1, M_DENSE},
    {"experts", "384 x 3 fp4, top 6", ready_experts, DI_FMT_FP4, 2304, 5120, 3, {1, 8, 128, 0}},
    {"fp8 wo_b", "[5120,8192]", ready_linear, DI_FMT_FP8, 5120, 8192, 1, M_DENSE},
    {"fp8 wq_a", "[1280,5120]", ready_linear, DI_FMT_FP8, 1280, 5120, 1, M_DENSE},
    {"fp8 wq_b", "[32768,1280]", ready_linear, DI_FMT_FP8, 32768, 1280, 1, M_DENSE},
    {"fp8 wkv", "[512,5120]", ready_linear, DI_FMT_FP8, 512, 5120, 1, M_DENSE},
    {"fp8 indexer wq_b", "[4096,1280]", ready_linear, DI_FMT_FP8, 4096, 1280, 1, M_DENSE},
    {"fp8 engram wkv", "[25600,6144]", ready_linear, DI_FMT_FP8, 25600, 6144, 1, M_DENSE},
    {"group_linear fp8 wo_a", "8 x [1024,4096]", ready_group_linear, DI_FMT_FP8, 8192, 4096, 1, M_DENSE},
    {"shared_expert fp8", "3 x [2304,5120]", ready_shared_expert, DI_FMT_FP8, 2304, 5120, 3, M_DENSE},
    {"bf16 head", "[129280,5120]", ready_linear_f32, DI_FMT_BF16, VOCAB, HIDDEN, 1, M_DENSE},
    {"bf16 compressor wkv", "[512,5120]", ready_linear_f32, DI_FMT_BF16, 512, 5120, 1, M_DENSE},
    {"bf16 indexer wk", "[128,512]", ready_linear, DI_FMT_BF16, 128, 512, 1, M_DENSE},
    {"bf16 indexer weights", "[32,5120]", ready_linear, DI_FMT_BF16, 32, 5120, 1, M_DENSE},
    {"gate bf16", "[384,5120]", ready_gate, DI_FMT_BF16, EXPERTS, HIDDEN, 1, M_DENSE},
    {"hc_mix f32", "[24,20480]", ready_hc_mix, DI_FMT_F32, 24, STREAMS_HC *HIDDEN, 1, {1, 8, 128, 0}},
};

const struct bench_family *bench_matrix_families(int32_t *count)
{
    *count = (int32_t)(sizeof families / sizeof families[0]);
    return families;
}
