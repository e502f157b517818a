/* Families that work row by row: norms, streams, Engram, embedding, sampling. Their bytes are those of the operands, read
 * and written. */
#include "bench.h"

static int64_t act_bytes(const struct bench *b, int64_t values)
{
    return values * b->ops->act_bytes;
}

static void call_norm(struct bench *b, struct bench_case *c)
{
    b->ops->norm(b->dev, &c->a.norm);
    int64_t values = (int64_t)c->m * HIDDEN;
    bench_account(c, act_bytes(b, 2 * values), 2 * values);
}

static void ready_norm(struct bench *b, struct bench_case *c)
{
    c->call = call_norm;
    c->a.norm = (struct di_norm_args){
        .n = c->m,
        .dim = HIDDEN,
        .x = bench_act(b, (int64_t)c->m * HIDDEN),
        .weight = bench_norm_weight(b, 1, HIDDEN),
        .eps = 1e-20F,
        .out = bench_zero_act(b, (int64_t)c->m * HIDDEN),
    };
}

static void call_collapse(struct bench *b, struct bench_case *c)
{
    b->ops->hc_collapse(b->dev, &c->a.hc_collapse);
    int64_t values = (int64_t)c->m * HIDDEN;
    bench_account(c, act_bytes(b, (STREAMS_HC + 1) * values), STREAMS_HC * values);
}

static void ready_collapse(struct bench *b, struct bench_case *c)
{
    c->call = call_collapse;
    c->a.hc_collapse = (struct di_hc_collapse_args){
        .n = c->m,
        .hc = STREAMS_HC,
        .dim = HIDDEN,
        .x = bench_act(b, (int64_t)c->m * STREAMS_HC * HIDDEN),
        .pre = bench_constant(b, (int64_t)c->m * STREAMS_HC, 0.25F),
        .out = bench_zero_act(b, (int64_t)c->m * HIDDEN),
    };
}

static void call_expand(struct bench *b, struct bench_case *c)
{
    b->ops->hc_expand(b->dev, &c->a.hc_expand);
    int64_t values = (int64_t)c->m * HIDDEN;
    bench_account(c, act_bytes(b, (2 * STREAMS_HC + 1) * values), STREAMS_HC * (STREAMS_HC + 1) * values);
}

/* In place: coefficients whose repetition settles, at post / (1 - 0.8) times o. */
static void ready_expand(struct bench *b, struct bench_case *c)
{
    c->call = call_expand;
    c->a.hc_expand = (struct di_hc_expand_args){
        .n = c->m,
        .hc = STREAMS_HC,
        .dim = HIDDEN,
        .o = bench_act(b, (int64_t)c->m * HIDDEN),
        .post = bench_constant(b, (int64_t)c->m * STREAMS_HC, 0.5F),
        .comb = bench_constant(b, (int64_t)c->m * STREAMS_HC * STREAMS_HC, 0.2F),
        .x = bench_act(b, (int64_t)c->m * STREAMS_HC * HIDDEN),
    };
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Engram. */

static void call_engram_hash(struct bench *b, struct bench_case *c)
{
    b->ops->engram_hash(b->dev, &c->a.engram_hash);
    bench_account(c, (int64_t)c->m * 4 * (ENGRAM_NGRAM + ENGRAM_COLUMNS), 0);
}

static void ready_engram_hash(struct bench *b, struct bench_case *c)
{
    struct di_engram_consts *consts = bench_alloc(b, sizeof *consts);
    int32_t *map = bench_alloc(b, VOCAB * sizeof *map);
    int32_t *window = bench_alloc(b, (size_t)c->m * ENGRAM_NGRAM * sizeof *window);
    consts->columns = ENGRAM_COLUMNS;
    for (int32_t i = 0; i < ENGRAM_NGRAM; i++)
        consts->multipliers[i] = 2 * bench_random_below(&b->random, 46539438283891) + 1;
    for (int32_t i = 0; i < ENGRAM_COLUMNS; i++) { /* odd numbers of the size of the primes divide just as slowly */
        consts->primes[i] = 16000057 + 20 * i;
        consts->offsets[i] = consts->rows;
        consts->rows += consts->primes[i];
    }
    for (int32_t i = 0; i < VOCAB; i++)
        map[i] = (int32_t)bench_random_below(&b->random, 99092);
    for (int32_t i = 0; i < c->m * ENGRAM_NGRAM; i++)
        window[i] = (int32_t)bench_random_below(&b->random, VOCAB);
    c->call = call_engram_hash;
    c->a.engram_hash = (struct di_engram_hash_args){
        .n = c->m,
        .ngram = ENGRAM_NGRAM,
        .heads = ENGRAM_HEADS,
        .window = window,
        .map = map,
        .pad = 2,
        .consts = consts,
        .ids = bench_alloc(b, (size_t)c->m * ENGRAM_COLUMNS * sizeof(int32_t)),
    };
}

static void call_engram_lookup(struct bench *b, struct bench_case *c)
{
    int32_t *ids = (int32_t *)(uintptr_t)c->a.engram_lookup.ids; /* ours */
    int32_t count = c->m * ENGRAM_COLUMNS;
    for (int32_t i = 0; i < count; i++)
        ids[i] = (int32_t)bench_random_below(&b->random, c->a.engram_lookup.table.rows);
    b->ops->engram_lookup(b->dev, &c->a.engram_lookup);
    bench_account(c, count * (bench_weight_bytes(DI_FMT_FP8_ROW, 1, ENGRAM_DIM) + act_bytes(b, ENGRAM_DIM)), 0);
}

static void ready_engram_lookup(struct bench *b, struct bench_case *c)
{
    int32_t count = c->m * ENGRAM_COLUMNS;
    c->call = call_engram_lookup;
    c->a.engram_lookup = (struct di_engram_lookup_args){
        .n = c->m,
        .columns = ENGRAM_COLUMNS,
        .ids = bench_alloc(b, (size_t)count * sizeof(int32_t)),
        .table = bench_pool_weight(&b->pool, c->n_order, ENGRAM_DIM, 0),
        .out = bench_zero_act(b, (int64_t)count * ENGRAM_DIM),
    };
}

static void call_engram_mix(struct bench *b, struct bench_case *c)
{
    b->ops->engram_mix(b->dev, &c->a.engram_mix);
    int64_t values = (int64_t)c->m * HIDDEN;
    bench_account(c, act_bytes(b, (3 * STREAMS_HC + 1) * values), 6 * STREAMS_HC * values);
}

static void ready_engram_mix(struct bench *b, struct bench_case *c)
{
    c->call = call_engram_mix;
    c->a.engram_mix = (struct di_engram_mix_args){
        .n = c->m,
        .hc = STREAMS_HC,
        .dim = HIDDEN,
        .x = bench_act(b, (int64_t)c->m * STREAMS_HC * HIDDEN),
        .kv = bench_act(b, (int64_t)c->m * (STREAMS_HC + 1) * HIDDEN),
        .q_weight = bench_norm_weight(b, STREAMS_HC, HIDDEN),
        .k_weight = bench_norm_weight(b, STREAMS_HC, HIDDEN),
        .eps = 1e-20F,
        .gate = bench_constant(b, (int64_t)c->m * STREAMS_HC, 0.0F),
    };
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Both ends, and what only moves rows. */

static void call_embed(struct bench *b, struct bench_case *c)
{
    int32_t *token = (int32_t *)(uintptr_t)c->a.embed.token; /* ours */
    for (int32_t i = 0; i < c->m; i++)
        token[i] = (int32_t)bench_random_below(&b->random, VOCAB);
    b->ops->embed(b->dev, &c->a.embed);
    int64_t values = (int64_t)c->m * HIDDEN;
    bench_account(c, 2 * values + act_bytes(b, STREAMS_HC * values), 0);
}

static void ready_embed(struct bench *b, struct bench_case *c)
{
    c->call = call_embed;
    c->a.embed = (struct di_embed_args){
        .n = c->m,
        .hc = STREAMS_HC,
        .dim = HIDDEN,
        .token = bench_alloc(b, (size_t)c->m * sizeof(int32_t)),
        .token_stride = 1,
        .table = bench_pool_weight(&b->pool, VOCAB, HIDDEN, 0),
        .x = bench_zero_act(b, (int64_t)c->m * STREAMS_HC * HIDDEN),
        .pre = bench_constant(b, (int64_t)c->m * STREAMS_HC, 0.0F),
    };
}

static void call_combine(struct bench *b, struct bench_case *c)
{
    b->ops->combine(b->dev, &c->a.combine);
    int64_t values = (int64_t)c->m * HIDDEN;
    bench_account(c, act_bytes(b, (EXPERT_TOPK + 2) * values), (EXPERT_TOPK + 1) * values);
}

static void ready_combine(struct bench *b, struct bench_case *c)
{
    c->call = call_combine;
    c->a.combine = (struct di_combine_args){
        .n = c->m,
        .topk = EXPERT_TOPK,
        .dim = HIDDEN,
        .slots = bench_act(b, (int64_t)c->m * EXPERT_TOPK * HIDDEN),
        .shared = bench_act(b, (int64_t)c->m * HIDDEN),
        .out = bench_zero_act(b, (int64_t)c->m * HIDDEN),
    };
}

static void call_gather(struct bench *b, struct bench_case *c)
{
    b->ops->gather(b->dev, &c->a.gather);
    bench_account(c, 2 * c->m * (int64_t)c->a.gather.row_bytes, 0);
}

static void ready_gather(struct bench *b, struct bench_case *c)
{
    int32_t *index = bench_alloc(b, (size_t)c->m * sizeof *index);
    for (int32_t i = 0; i < c->m; i++)
        index[i] = c->m - 1 - i;
    c->call = call_gather;
    c->a.gather = (struct di_gather_args){
        .n = c->m,
        .row_bytes = (size_t)STREAMS_HC * HIDDEN * (size_t)b->ops->act_bytes,
        .x = bench_act(b, (int64_t)c->m * STREAMS_HC * HIDDEN),
        .index = index,
        .out = bench_zero_act(b, (int64_t)c->m * STREAMS_HC * HIDDEN),
    };
}

static void call_sample(struct bench *b, struct bench_case *c)
{
    uint64_t *seed = (uint64_t *)(uintptr_t)c->a.sample.seed; /* ours */
    for (int32_t i = 0; i < c->m; i++)
        seed[i] = bench_random_bits(&b->random);
    b->ops->sample(b->dev, &c->a.sample);
    bench_account(c, (int64_t)4 * c->m * VOCAB, (int64_t)c->m * VOCAB);
}

static void ready_sample(struct bench *b, struct bench_case *c)
{
    size_t bytes = (size_t)c->m * sizeof(int32_t);
    int32_t *row = bench_alloc(b, bytes), *position = bench_alloc(b, bytes);
    for (int32_t i = 0; i < c->m; i++) {
        row[i] = i;
        position[i] = ENTRIES + i;
    }
    c->call = call_sample;
    c->a.sample = (struct di_sample_args){
        .n = c->m,
        .vocab = VOCAB,
        .logits = bench_floats(b, (int64_t)c->m * VOCAB, 3.0F),
        .temperature = bench_constant(b, c->m, 0.7F),
        .seed = bench_alloc(b, (size_t)c->m * sizeof(uint64_t)),
        .row = row,
        .position = position,
        .token = bench_alloc(b, bytes),
    };
}

#define M_ROWS {1, 8, 128, 0}
#define NO_POOL DI_FMT_COUNT, 0, 0, 0

static const struct bench_family families[] = {
    {"embed bf16", "[129280,5120]", ready_embed, DI_FMT_BF16, VOCAB, HIDDEN, 1, M_ROWS},
    {"engram_lookup fp8-row", "24 x 256", ready_engram_lookup, DI_FMT_FP8_ROW, 1, ENGRAM_DIM, 1, M_ROWS},
    {"engram_hash", "24 columns", ready_engram_hash, NO_POOL, M_ROWS},
    {"engram_mix", "4 x 5120", ready_engram_mix, NO_POOL, M_ROWS},
    {"hc_collapse", "4 x 5120", ready_collapse, NO_POOL, M_ROWS},
    {"hc_expand", "4 x 5120", ready_expand, NO_POOL, M_ROWS},
    {"norm", "5120", ready_norm, NO_POOL, M_ROWS},
    {"combine", "6 x 5120", ready_combine, NO_POOL, M_ROWS},
    {"gather", "4 x 5120", ready_gather, NO_POOL, M_ROWS},
    {"sample", "129280", ready_sample, NO_POOL, {1, 8, 0}},
};

const struct bench_family *bench_row_families(int32_t *count)
{
    *count = (int32_t)(sizeof families / sizeof families[0]);
    return families;
}
