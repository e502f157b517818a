/* data.h - random data of the model's kinds: valid, never the same twice, far larger than the caches. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stdbool.h>

#include "base/threads.h"
#include "numerics/formats.h"

/* A team as the device opens its own: as many threads, placed alike. */
di_status bench_team_open(int32_t threads, struct di_team **out, struct di_error *err);

struct bench_random {
    uint64_t state;
};

uint64_t bench_random_bits(struct bench_random *random);
/* In [0, n). */
int64_t bench_random_below(struct bench_random *random, int64_t n);
/* Standard gaussian, or student-t with two degrees of freedom. */
float bench_random_normal(struct bench_random *random);
float bench_random_heavy(struct bench_random *random);
/* 0 .. count - 1 in random order. */
void bench_shuffle(struct bench_random *random, int64_t *list, int64_t count);

/* Weights of one format, as many as fit: matrices are cut from it at will. */
struct bench_pool {
    enum di_format format;
    size_t data_bytes, scale_bytes;
    unsigned char *data;
    uint8_t *scale;
};

/* Fills memory of the given sizes: all FP4 codes alike, FP8 as quantised gaussians without NaN codes, bf16 and f32
 * gaussians of deviation 0.02; scale codes of 2^-10 .. 2^-7. */
void bench_pool_fill(const struct bench_pool *pool, uint64_t seed, struct di_team *team);

/* Scale bytes that go with `data_bytes` of a format; for FP8_ROW and FP4 with columns that are multiples of 32. */
size_t bench_scale_bytes(enum di_format format, size_t data_bytes);

/* How many [rows, cols] matrices the pool holds, and number `index` of them. */
int64_t bench_pool_count(const struct bench_pool *pool, int64_t rows, int32_t cols);
struct di_weight bench_pool_weight(const struct bench_pool *pool, int64_t rows, int32_t cols, int64_t index);

/* Bytes of a matrix, scales included. */
int64_t bench_weight_bytes(enum di_format format, int64_t rows, int32_t cols);

#endif
