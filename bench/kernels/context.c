/* Families around the caches: rope, packing, compressor, indexer, attention, with rows at the end of a context of ENTRIES.
 * Each call meets another sequence. Their bytes are those of the operands, read and written. */
#include "bench.h"

#include <stdlib.h>

#include "numerics/quant.h"

static int64_t row_bytes(enum di_kv_format format, int32_t dim)
{
    return di_kv_data_bytes(format, dim) + di_kv_scale_bytes(format, dim);
}

static void call_rope(struct bench *b, struct bench_case *c)
{
    b->ops->rope(b->dev, &c->a.rope);
    int64_t values = (int64_t)c->m * HEADS * ROPE_DIM;
    bench_account(c, 2 * values * b->ops->act_bytes, 2 * values);
}

static void ready_rope(struct bench *b, struct bench_case *c)
{
    c->call = call_rope;
    c->a.rope = (struct di_rope_args){
        .rows = bench_rows(b, c),
        .heads = HEADS,
        .dim = HEAD_DIM,
        .rope_dim = ROPE_DIM,
        .inv_freq = bench_inv_freq(b),
        .x = bench_act(b, (int64_t)c->m * HEADS * HEAD_DIM),
    };
}

/* Packed window rows of the step, all different. */
static struct di_kv_rows step_rows(struct bench *b, int32_t n)
{
    struct di_kv_rows rows = {.format = DI_KV_FP8, .dim = HEAD_DIM};
    rows.data = bench_alloc(b, (size_t)n * (size_t)di_kv_data_bytes(rows.format, rows.dim));
    rows.scale = bench_alloc(b, (size_t)n * (size_t)di_kv_scale_bytes(rows.format, rows.dim));
    float x[HEAD_DIM];
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < HEAD_DIM; k++)
            x[k] = bench_random_normal(&b->random);
        di_kv_pack(rows.format, x, HEAD_DIM, di_kv_row_data(&rows, i), di_kv_row_scale(&rows, i));
    }
    return rows;
}

static void call_window_pack(struct bench *b, struct bench_case *c)
{
    b->ops->window_pack(b->dev, &c->a.window_pack);
    bench_account(c, c->m * (row_bytes(DI_KV_FP8, HEAD_DIM) + (int64_t)HEAD_DIM * b->ops->act_bytes), 0);
}

static void ready_window_pack(struct bench *b, struct bench_case *c)
{
    c->call = call_window_pack;
    c->a.window_pack = (struct di_window_pack_args){
        .rows = bench_rows(b, c),
        .rope_dim = ROPE_DIM,
        .inv_freq = bench_inv_freq(b),
        .kv = bench_act(b, (int64_t)c->m * HEAD_DIM),
        .out = step_rows(b, c->m),
    };
}

static void call_window_store(struct bench *b, struct bench_case *c)
{
    bench_next_slot(b, c);
    b->ops->window_store(b->dev, &c->a.window_store);
    bench_account(c, 2 * c->m * row_bytes(DI_KV_FP8, HEAD_DIM), 0);
}

static void ready_window_store(struct bench *b, struct bench_case *c)
{
    bench_context_open(b);
    c->call = call_window_store;
    c->a.window_store = (struct di_window_store_args){
        .rows = bench_rows(b, c),
        .in = step_rows(b, c->m),
        .ring = b->context.ring,
    };
}

static void call_compress(struct bench *b, struct bench_case *c)
{
    bench_next_slot(b, c);
    b->ops->compress(b->dev, &c->a.compress);
    int64_t values = (int64_t)c->m * HEAD_DIM;
    bench_account(c, values * (4 * 4 + b->ops->act_bytes), 2 * values);
}

static void ready_compress(struct bench *b, struct bench_case *c)
{
    bench_context_open(b);
    c->call = call_compress;
    c->a.compress = (struct di_compress_args){
        .rows = bench_rows(b, c),
        .value = bench_floats(b, (int64_t)c->m * HEAD_DIM, 1.0F),
        .gate = bench_floats(b, (int64_t)c->m * HEAD_DIM, 1.0F),
        .tail = b->context.tail,
        .out = bench_zero_act(b, (int64_t)c->m * HEAD_DIM),
    };
}

static void call_kv_append(struct bench *b, struct bench_case *c)
{
    bench_next_slot(b, c);
    b->ops->kv_append(b->dev, &c->a.kv_append);
    bench_account(c, c->m * (row_bytes(DI_KV_FP4_E4M3, HEAD_DIM) + (int64_t)HEAD_DIM * b->ops->act_bytes), 0);
}

static void ready_kv_append(struct bench *b, struct bench_case *c)
{
    bench_context_open(b);
    c->call = call_kv_append;
    c->a.kv_append = (struct di_kv_append_args){
        .rows = bench_rows(b, c),
        .rope_dim = ROPE_DIM,
        .inv_freq = bench_inv_freq(b),
        .latent = bench_act(b, (int64_t)c->m * HEAD_DIM),
        .cache = b->context.pages,
    };
}

static void call_index_append(struct bench *b, struct bench_case *c)
{
    bench_next_slot(b, c);
    b->ops->index_append(b->dev, &c->a.index_append);
    bench_account(c, c->m * (row_bytes(DI_KV_FP4_E8M0, INDEX_DIM) + (int64_t)INDEX_DIM * b->ops->act_bytes), 0);
}

static void ready_index_append(struct bench *b, struct bench_case *c)
{
    bench_context_open(b);
    c->call = call_index_append;
    c->a.index_append = (struct di_index_append_args){
        .rows = bench_rows(b, c),
        .rope_dim = ROPE_DIM,
        .inv_freq = bench_inv_freq(b),
        .key = bench_act(b, (int64_t)c->m * INDEX_DIM),
        .cache = b->context.pages,
    };
}

static void call_index_query(struct bench *b, struct bench_case *c)
{
    b->ops->index_query(b->dev, &c->a.index_query);
    bench_account(c, (int64_t)2 * c->m * INDEX_HEADS * INDEX_DIM * b->ops->act_bytes, 0);
}

static void ready_index_query(struct bench *b, struct bench_case *c)
{
    c->call = call_index_query;
    c->a.index_query = (struct di_index_query_args){
        .rows = bench_rows(b, c),
        .heads = INDEX_HEADS,
        .dim = INDEX_DIM,
        .rope_dim = ROPE_DIM,
        .inv_freq = bench_inv_freq(b),
        .format = DI_KV_FP4_E8M0,
        .q = bench_act(b, (int64_t)c->m * INDEX_HEADS * INDEX_DIM),
    };
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Index and attention. */

static void call_index_select(struct bench *b, struct bench_case *c)
{
    bench_next_slot(b, c);
    b->ops->index_select(b->dev, &c->a.index_select);
    /* All rows look at the same keys. */
    bench_account(c, ENTRIES * row_bytes(DI_KV_FP4_E8M0, INDEX_DIM), (int64_t)c->m * ENTRIES * INDEX_HEADS * INDEX_DIM);
}

static void ready_index_select(struct bench *b, struct bench_case *c)
{
    const int32_t topk_blocks = 2048;
    bench_context_open(b);
    c->call = call_index_select;
    c->a.index_select = (struct di_index_select_args){
        .rows = bench_rows(b, c),
        .heads = INDEX_HEADS,
        .q = bench_act(b, (int64_t)c->m * INDEX_HEADS * INDEX_DIM),
        .weight = bench_act(b, (int64_t)c->m * INDEX_HEADS),
        .cache = b->context.pages,
        .topk = INDEX_TOPK,
        .selected = bench_alloc(b, (size_t)c->m * INDEX_TOPK * sizeof(int32_t)),
        .n_selected = bench_alloc(b, (size_t)c->m * sizeof(int32_t)),
        .block_size = 8,
        .topk_blocks = topk_blocks,
        .blocks = bench_alloc(b, (size_t)c->m * (size_t)topk_blocks * sizeof(int32_t)),
        .n_blocks = bench_alloc(b, (size_t)c->m * sizeof(int32_t)),
    };
}

static void ready_index_blocks(struct bench *b, struct bench_case *c)
{
    ready_index_select(b, c);
    c->a.index_select.make_blocks = true;
}

static void call_attention(struct bench *b, struct bench_case *c)
{
    int32_t *selected = (int32_t *)(uintptr_t)c->a.attention.selected; /* ours */
    const int32_t share = ENTRIES / INDEX_TOPK;                        /* one of each: ascending, none twice */
    for (int32_t i = 0; i < c->m * INDEX_TOPK; i++)
        selected[i] = i % INDEX_TOPK * share + (int32_t)bench_random_below(&b->random, share - 1);
    bench_next_slot(b, c);
    b->ops->attention(b->dev, &c->a.attention);
    int64_t window_rows = WINDOW - 1 + c->m; /* rows share them; selections are each row's own */
    bench_account(c,
                  window_rows * row_bytes(DI_KV_FP8, HEAD_DIM) +
                      (int64_t)c->m * INDEX_TOPK * row_bytes(DI_KV_FP4_E4M3, HEAD_DIM) +
                      (int64_t)2 * c->m * HEADS * HEAD_DIM * b->ops->act_bytes,
                  (int64_t)2 * c->m * (WINDOW + INDEX_TOPK) * HEADS * HEAD_DIM);
}

static void ready_attention(struct bench *b, struct bench_case *c)
{
    bench_context_open(b);
    int32_t *n_selected = bench_alloc(b, (size_t)c->m * sizeof *n_selected);
    for (int32_t i = 0; i < c->m; i++)
        n_selected[i] = INDEX_TOPK;
    c->call = call_attention;
    c->a.attention = (struct di_attention_args){
        .rows = bench_rows(b, c),
        .heads = HEADS,
        .dim = HEAD_DIM,
        .rope_dim = ROPE_DIM,
        .window = WINDOW,
        .q = bench_act(b, (int64_t)c->m * HEADS * HEAD_DIM),
        .step = step_rows(b, c->m),
        .ring = b->context.ring,
        .cache = b->context.pages,
        .selected = bench_alloc(b, (size_t)c->m * INDEX_TOPK * sizeof(int32_t)),
        .n_selected = n_selected,
        .topk = INDEX_TOPK,
        .sink = bench_floats(b, HEADS, 1.0F),
        .inv_freq = bench_inv_freq(b),
        .out = bench_zero_act(b, (int64_t)c->m * HEADS * HEAD_DIM),
    };
}

#define M_ROWS {1, 8, 128, 0}
#define NO_POOL DI_FMT_COUNT, 0, 0, 0

static const struct bench_family families[] = {
    {"rope", "64 heads of 512", ready_rope, NO_POOL, M_ROWS},
    {"window_pack", "512", ready_window_pack, NO_POOL, M_ROWS},
    {"window_store", "512", ready_window_store, NO_POOL, M_ROWS},
    {"compress", "512", ready_compress, NO_POOL, M_ROWS},
    {"kv_append", "512", ready_kv_append, NO_POOL, M_ROWS},
    {"index_append", "128", ready_index_append, NO_POOL, M_ROWS},
    {"index_query", "32 heads of 128", ready_index_query, NO_POOL, M_ROWS},
    {"index_select", "65536 entries", ready_index_select, NO_POOL, {1, 8, 0}},
    {"index_select, blocks", "65536 entries", ready_index_blocks, NO_POOL, {1, 8, 0}},
    {"attention", "128 + 512 entries", ready_attention, NO_POOL, {1, 8, 32, 0}},
};

const struct bench_family *bench_context_families(int32_t *count)
{
    *count = (int32_t)(sizeof families / sizeof families[0]);
    return families;
}
