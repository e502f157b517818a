#include "data.h"

#include <math.h>
#include <string.h>

#include "numerics/codes.h"

di_status bench_team_open(int32_t threads, struct di_team **out, struct di_error *err)
{
    return di_team_open(threads, NULL, out, err);
}

/* SplitMix64's step: a counter through a mixing function. */
uint64_t bench_random_bits(struct bench_random *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

int64_t bench_random_below(struct bench_random *random, int64_t n)
{
    return (int64_t)(bench_random_bits(random) % (uint64_t)n);
}

/* In (0, 1). */
static double uniform(struct bench_random *random)
{
    return ((double)(bench_random_bits(random) >> 11) + 0.5) * 0x1p-53;
}

float bench_random_normal(struct bench_random *random)
{
    double radius = sqrt(-2.0 * log(uniform(random)));
    return (float)(radius * cos(6.283185307179586 * uniform(random)));
}

/* Two degrees of freedom have a closed quantile function. */
float bench_random_heavy(struct bench_random *random)
{
    double u = uniform(random);
    return (float)((2.0 * u - 1.0) / sqrt(2.0 * u * (1.0 - u)));
}

void bench_shuffle(struct bench_random *random, int64_t *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        list[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = bench_random_below(random, i + 1), kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Pools. Elements are drawn from a table of 65,536 samples: gigabytes in seconds. */

enum { SAMPLES = 65536, FILL_BLOCK = 1 << 20 };

struct fill_job {
    const struct bench_pool *pool;
    uint64_t seed;
    uint8_t fp8[SAMPLES];
    uint16_t bf16[SAMPLES];
    float f32[SAMPLES];
};

static uint64_t word_of(const struct fill_job *job, uint64_t random)
{
    uint64_t word = 0;
    switch (job->pool->format) {
    case DI_FMT_FP8:
    case DI_FMT_FP8_ROW: {
        uint64_t other = (random ^ (random >> 29)) * 0x9E3779B97F4A7C15U; /* eight codes from one draw */
        for (int32_t i = 0; i < 4; i++) {
            word |= (uint64_t)job->fp8[(random >> (16 * i)) & 0xffffU] << (16 * i);
            word |= (uint64_t)job->fp8[(other >> (16 * i)) & 0xffffU] << (16 * i + 8);
        }
        return word;
    }
    case DI_FMT_BF16:
        for (int32_t i = 0; i < 4; i++)
            word |= (uint64_t)job->bf16[(random >> (16 * i)) & 0xffffU] << (16 * i);
        return word;
    case DI_FMT_F32:
        for (int32_t i = 0; i < 2; i++)
            word |= (uint64_t)di_f32_bits(job->f32[(random >> (16 * i)) & 0xffffU]) << (32 * i);
        return word;
    case DI_FMT_FP4:
    case DI_FMT_COUNT:
        break;
    }
    return random;
}

static void fill_data(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct fill_job *job = arg;
    const struct bench_pool *pool = job->pool;
    for (int64_t block = begin; block < end; block++) {
        struct bench_random random = {job->seed + ((uint64_t)block << 32)};
        size_t at = (size_t)block * FILL_BLOCK;
        size_t stop = at + FILL_BLOCK < pool->data_bytes ? at + FILL_BLOCK : pool->data_bytes;
        for (; at < stop; at += sizeof(uint64_t)) {
            uint64_t word = word_of(job, bench_random_bits(&random));
            memcpy(pool->data + at, &word, stop - at < sizeof word ? stop - at : sizeof word);
        }
    }
}

static void fill_scales(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct fill_job *job = arg;
    struct bench_random random = {~job->seed + (uint64_t)begin};
    for (int64_t i = begin; i < end; i++)
        job->pool->scale[i] = (uint8_t)(117 + bench_random_below(&random, 4));
}

void bench_pool_fill(const struct bench_pool *pool, uint64_t seed, struct di_team *team)
{
    static struct fill_job job; /* large */
    job.pool = pool;
    job.seed = seed;
    struct bench_random random = {seed};
    for (int32_t i = 0; i < SAMPLES; i++) {
        float x = bench_random_normal(&random);
        job.fp8[i] = di_e4m3_from_f32(x * 96.0F); /* saturates, so no NaN code comes out */
        job.bf16[i] = di_bf16_from_f32(x * 0.02F);
        job.f32[i] = x * 0.02F;
    }
    di_team_run(team, (int64_t)((pool->data_bytes + FILL_BLOCK - 1) / FILL_BLOCK), fill_data, &job);
    if (pool->scale_bytes != 0)
        di_team_run(team, (int64_t)pool->scale_bytes, fill_scales, &job);
}

size_t bench_scale_bytes(enum di_format format, size_t data_bytes)
{
    const struct di_format_info *f = di_format_info(format);
    if (f->block_rows == 0)
        return 0;
    /* A matrix whose rows are no multiple of the block has a scale row more in proportion: twice is plenty. */
    return 2 * (data_bytes * 8 / (size_t)f->bits / (size_t)(f->block_rows * f->block_cols)) + 64;
}

int64_t bench_pool_count(const struct bench_pool *pool, int64_t rows, int32_t cols)
{
    int64_t count = (int64_t)(pool->data_bytes / di_format_data_bytes(pool->format, rows, cols));
    uint64_t scales = di_format_scale_bytes(pool->format, rows, cols);
    int64_t with_scales = scales == 0 ? count : (int64_t)(pool->scale_bytes / scales);
    return count < with_scales ? count : with_scales;
}

struct di_weight bench_pool_weight(const struct bench_pool *pool, int64_t rows, int32_t cols, int64_t index)
{
    uint64_t scales = di_format_scale_bytes(pool->format, rows, cols);
    return (struct di_weight){
        .format = pool->format,
        .cols = cols,
        .rows = rows,
        .data = pool->data + (uint64_t)index * di_format_data_bytes(pool->format, rows, cols),
        .scale = scales == 0 ? NULL : pool->scale + (uint64_t)index * scales,
    };
}

int64_t bench_weight_bytes(enum di_format format, int64_t rows, int32_t cols)
{
    return (int64_t)(di_format_data_bytes(format, rows, cols) + di_format_scale_bytes(format, rows, cols));
}
