#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "numerics/codes.h"

void bench_fail(const char *message)
{
    fprintf(stderr, "deepinfer-bench-kernels: %s\n", message);
    exit(1);
}

static void *device_memory(const struct bench *b, size_t bytes)
{
    struct di_error err = {0};
    void *memory;
    if (b->ops->alloc(b->dev, bytes, &memory, &err) != DI_OK)
        bench_fail(err.message);
    return memory;
}

void *bench_alloc(struct bench *b, size_t bytes)
{
    if (b->n_blocks == MAX_BLOCKS)
        bench_fail("a case asks for more blocks than MAX_BLOCKS");
    return b->block[b->n_blocks++] = device_memory(b, bytes);
}

static float draw(struct bench *b)
{
    return b->heavy_tails ? bench_random_heavy(&b->random) : bench_random_normal(&b->random);
}

void *bench_act(struct bench *b, int64_t count)
{
    void *out = bench_zero_act(b, count);
    for (int64_t i = 0; i < count; i++) {
        uint16_t value = di_bf16_from_f32(draw(b));
        if (b->ops->act_bytes == 2)
            ((uint16_t *)out)[i] = value;
        else
            ((float *)out)[i] = di_bf16_to_f32(value);
    }
    return out;
}

void *bench_zero_act(struct bench *b, int64_t count)
{
    return bench_alloc(b, (size_t)count * (size_t)b->ops->act_bytes);
}

float *bench_floats(struct bench *b, int64_t count, float deviation)
{
    float *out = bench_alloc(b, (size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++)
        out[i] = deviation * bench_random_normal(&b->random);
    return out;
}

float *bench_constant(struct bench *b, int64_t count, float value)
{
    float *out = bench_alloc(b, (size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
    return out;
}

struct di_weight bench_norm_weight(struct bench *b, int64_t rows, int32_t cols)
{
    uint16_t *data = bench_alloc(b, (size_t)rows * (size_t)cols * sizeof *data);
    for (int64_t i = 0; i < rows * cols; i++)
        data[i] = di_bf16_from_f32(1.0F + 0.1F * bench_random_normal(&b->random));
    return (struct di_weight){.format = DI_FMT_BF16, .cols = cols, .rows = rows, .data = data};
}

float *bench_inv_freq(struct bench *b)
{
    float *out = bench_alloc(b, ROPE_DIM / 2 * sizeof *out);
    for (int32_t i = 0; i < ROPE_DIM / 2; i++)
        out[i] = (float)pow(10000.0, (double)(-2 * i) / (double)ROPE_DIM);
    return out;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The pool. */

static void pool_close(struct bench *b)
{
    b->ops->release(b->dev, b->pool.data);
    b->ops->release(b->dev, b->pool.scale);
    b->pool = (struct bench_pool){.format = DI_FMT_COUNT};
}

static int32_t together(const struct bench_family *f)
{
    return f->together > 0 ? f->together : 1;
}

static void pool_open(struct bench *b, const struct bench_family *f)
{
    if (b->pool.format == f->format && bench_pool_count(&b->pool, f->rows, f->cols) >= together(f))
        return;
    pool_close(b);
    struct bench_pool pool = {.format = f->format};
    size_t least = (size_t)together(f) * di_format_data_bytes(f->format, f->rows, f->cols);
    pool.data_bytes = (size_t)(b->gigabytes * 1e9);
    pool.data_bytes = pool.data_bytes < least ? least : pool.data_bytes;
    pool.scale_bytes = bench_scale_bytes(f->format, pool.data_bytes);
    fprintf(stderr, "filling %.2f GB of %s\n", (double)pool.data_bytes * 1e-9, di_format_info(f->format)->name);
    pool.data = device_memory(b, pool.data_bytes);
    pool.scale = pool.scale_bytes == 0 ? NULL : device_memory(b, pool.scale_bytes);
    bench_pool_fill(&pool, bench_random_bits(&b->random), b->team);
    b->pool = pool;
}

struct di_weight bench_next_weight(const struct bench *b, struct bench_case *c)
{
    const struct bench_family *f = c->family;
    struct di_weight w = bench_pool_weight(&b->pool, f->rows, f->cols, c->order[c->at]);
    c->at = (c->at + 1) % c->n_order;
    return w;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Sequences. */

struct di_rows bench_rows(struct bench *b, struct bench_case *c)
{
    size_t bytes = (size_t)c->m * sizeof(int32_t);
    int32_t *position = bench_alloc(b, bytes), *first = bench_alloc(b, bytes);
    c->slots = bench_alloc(b, bytes);
    for (int32_t i = 0; i < c->m; i++)
        position[i] = ENTRIES - c->m + i;
    return (struct di_rows){.n = c->m, .position = position, .slot = c->slots, .first = first};
}

void bench_next_slot(struct bench *b, struct bench_case *c)
{
    c->at = (c->at + 1) % b->context.copies;
    for (int32_t i = 0; i < c->m; i++)
        c->slots[i] = (int32_t)c->at;
}

enum { PATTERNS = 256 }; /* packing is slow: rows are copies of this many */

struct patterns {
    struct di_kv_rows rows;
    size_t data_bytes, scale_bytes;
};

static struct patterns make_patterns(struct bench *b, enum di_kv_format format, int32_t dim)
{
    struct patterns p = {
        .rows = {.format = format, .dim = dim},
        .data_bytes = (size_t)di_kv_data_bytes(format, dim),
        .scale_bytes = (size_t)di_kv_scale_bytes(format, dim),
    };
    float x[HEAD_DIM];
    p.rows.data = bench_alloc(b, PATTERNS * p.data_bytes);
    p.rows.scale = bench_alloc(b, PATTERNS * p.scale_bytes);
    for (int32_t i = 0; i < PATTERNS; i++) {
        for (int32_t k = 0; k < dim; k++)
            x[k] = bench_random_normal(&b->random);
        di_kv_pack(format, x, dim, di_kv_row_data(&p.rows, i), di_kv_row_scale(&p.rows, i));
    }
    return p;
}

/* `count` rows at `to`: all data, then all scales. */
static void copy_patterns(struct bench *b, const struct patterns *p, int32_t count, uint8_t *to)
{
    uint8_t *scales = to + (size_t)count * p->data_bytes;
    for (int32_t i = 0; i < count; i++) {
        int64_t from = bench_random_below(&b->random, PATTERNS);
        memcpy(to + (size_t)i * p->data_bytes, di_kv_row_data(&p->rows, from), p->data_bytes);
        memcpy(scales + (size_t)i * p->scale_bytes, di_kv_row_scale(&p->rows, from), p->scale_bytes);
    }
}

static void context_pages(struct bench *b, struct bench_context *x)
{
    const int32_t per_copy = ENTRIES / PAGE_ROWS, count = per_copy * x->copies;
    struct patterns main = make_patterns(b, DI_KV_FP4_E4M3, HEAD_DIM);
    struct patterns index = make_patterns(b, DI_KV_FP4_E8M0, INDEX_DIM);
    size_t main_bytes = PAGE_ROWS * (main.data_bytes + main.scale_bytes);
    size_t page_bytes = main_bytes + PAGE_ROWS * (index.data_bytes + index.scale_bytes);
    uint8_t *pages = device_memory(b, (size_t)count * page_bytes);
    int32_t *table = device_memory(b, (size_t)count * sizeof *table);
    for (int32_t i = 0; i < count; i++) {
        copy_patterns(b, &main, PAGE_ROWS, pages + (size_t)i * page_bytes);
        copy_patterns(b, &index, PAGE_ROWS, pages + (size_t)i * page_bytes + main_bytes);
        int32_t j = (int32_t)bench_random_below(&b->random, i + 1); /* a random permutation, grown from the inside */
        table[i] = table[j];
        table[j] = i;
    }
    x->pages = (struct di_paged_view){
        .ratio = 1,
        .page_rows = PAGE_ROWS,
        .pages = pages,
        .page_bytes = page_bytes,
        .index_offset = main_bytes,
        .main_format = DI_KV_FP4_E4M3,
        .index_format = DI_KV_FP4_E8M0,
        .main_dim = HEAD_DIM,
        .index_dim = INDEX_DIM,
        .table = table,
        .max_pages = per_copy,
    };
}

void bench_context_open(struct bench *b)
{
    struct bench_context *x = &b->context;
    if (x->copies != 0)
        return;
    const double copy_bytes = (double)((int64_t)ENTRIES * (288 + 68)); /* rows of numerics/quant.h */
    double copies = b->gigabytes * 1e9 / copy_bytes;
    x->copies = copies < 1.0 ? 1 : copies > 64.0 ? 64 : (int32_t)copies;
    fprintf(stderr, "filling the caches of %d sequences of %d entries\n", x->copies, ENTRIES);
    context_pages(b, x);
    struct patterns window = make_patterns(b, DI_KV_FP8, HEAD_DIM);
    size_t ring_bytes = RING_SLOTS * (window.data_bytes + window.scale_bytes);
    x->ring = (struct di_ring_view){
        .format = DI_KV_FP8,
        .dim = HEAD_DIM,
        .ring_slots = RING_SLOTS,
        .base = device_memory(b, (size_t)x->copies * ring_bytes),
        .slot_stride = ring_bytes,
    };
    for (int32_t i = 0; i < x->copies; i++)
        copy_patterns(b, &window, RING_SLOTS, x->ring.base + (size_t)i * ring_bytes);
    int64_t floats = (int64_t)x->copies * TAIL_SLOTS * 2 * HEAD_DIM;
    x->tail = (struct di_tail_view){
        .dim = HEAD_DIM,
        .tail_slots = TAIL_SLOTS,
        .base = device_memory(b, (size_t)floats * sizeof(float)),
    };
    for (int64_t i = 0; i < floats; i++)
        x->tail.base[i] = bench_random_normal(&b->random);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Cases. */

void bench_case_open(struct bench *b, const struct bench_family *family, int32_t m, struct bench_case *out)
{
    *out = (struct bench_case){.family = family, .m = m};
    if (family->format != DI_FMT_COUNT) {
        pool_open(b, family);
        out->n_order = bench_pool_count(&b->pool, family->rows, family->cols) / together(family);
        out->order = di_calloc((size_t)out->n_order, sizeof *out->order);
        if (out->order == NULL)
            bench_fail("out of memory");
        bench_shuffle(&b->random, out->order, out->n_order);
    }
    family->ready(b, out);
}

void bench_case_close(struct bench *b, struct bench_case *c)
{
    for (int32_t i = 0; i < b->n_blocks; i++)
        b->ops->release(b->dev, b->block[i]);
    b->n_blocks = 0;
    free(c->order);
    free(c->experts);
}

void bench_close(struct bench *b)
{
    pool_close(b);
    b->ops->release(b->dev, b->context.pages.pages);
    b->ops->release(b->dev, (void *)(uintptr_t)b->context.pages.table);
    b->ops->release(b->dev, b->context.ring.base);
    b->ops->release(b->dev, b->context.tail.base);
    b->ops->close(b->dev);
}
