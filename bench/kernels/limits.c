#include "limits.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#endif

enum {
    STREAMS = 4,        /* that a thread reads side by side: one stream leaves bandwidth unused */
    LINE = 64,          /* bytes */
    AHEAD = 16 * LINE,  /* software prefetch, in bytes per stream */
    ACCUMULATORS = 12,  /* more than latency x ports (2 x 4 or 5) */
    FMA_STEPS = 100000, /* of all accumulators, per call */
    LANES = 8,
};

struct bench_limits {
    struct di_team *team;
    unsigned char *memory;
    size_t chunk; /* one loop of the team reads this much */
    int32_t chunks, next;
    float *sink; /* LINE bytes a member, so that no result is unused */
};

static bool have_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

const char *bench_limits_kind(void)
{
    return have_avx2() ? "AVX2" : "plain C";
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Reading. Both forms take `lines` lines from each of STREAMS streams that lie one behind the other. */

#if defined(__x86_64__)
#define READ_LINE(stream, sum)                                                                  \
    do {                                                                                        \
        _mm_prefetch((const char *)((stream) + at + AHEAD), _MM_HINT_T0);                       \
        (sum) = _mm256_xor_si256((sum), _mm256_load_si256((const void *)((stream) + at)));      \
        (sum) = _mm256_xor_si256((sum), _mm256_load_si256((const void *)((stream) + at + 32))); \
    } while (0)

TARGET static float read_avx2(const unsigned char *from, size_t lines)
{
    const size_t stride = lines * LINE;
    const unsigned char *s0 = from, *s1 = s0 + stride, *s2 = s1 + stride, *s3 = s2 + stride;
    __m256i sum0 = _mm256_setzero_si256(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (size_t at = 0; at < stride; at += LINE) { /* by hand: at -O2 not every compiler keeps an array in registers */
        READ_LINE(s0, sum0);
        READ_LINE(s1, sum1);
        READ_LINE(s2, sum2);
        READ_LINE(s3, sum3);
    }
    sum0 = _mm256_xor_si256(_mm256_xor_si256(sum0, sum1), _mm256_xor_si256(sum2, sum3));
    return (float)_mm256_extract_epi32(sum0, 0);
}
#endif

static float read_plain(const unsigned char *from, size_t lines)
{
    uint64_t sum[STREAMS] = {0};
    for (size_t at = 0; at < lines * LINE; at += sizeof(uint64_t)) {
        for (int32_t i = 0; i < STREAMS; i++) {
            uint64_t word;
            memcpy(&word, from + (size_t)i * lines * LINE + at, sizeof word);
            sum[i] ^= word;
        }
    }
    return (float)(sum[0] ^ sum[1] ^ sum[2] ^ sum[3]);
}

struct read_job {
    const struct bench_limits *limits;
    const unsigned char *from;
};

/* Range of lines of one stream; a member's streams lie one behind the other in its part of the chunk. */
static void read_range(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct read_job *job = arg;
    const unsigned char *from = job->from + (size_t)begin * STREAMS * LINE;
    size_t lines = (size_t)(end - begin);
    float sum;
#if defined(__x86_64__)
    sum = have_avx2() ? read_avx2(from, lines) : read_plain(from, lines);
#else
    sum = read_plain(from, lines);
#endif
    job->limits->sink[member * (LINE / (int32_t)sizeof(float))] += sum;
}

double bench_read_rate(struct bench_limits *l, double seconds)
{
    double start = di_clock_seconds(), elapsed;
    double bytes = 0.0;
    do {
        struct read_job job = {l, l->memory + (size_t)l->next * l->chunk};
        di_team_run(l->team, (int64_t)(l->chunk / (STREAMS * LINE)), read_range, &job);
        l->next = (l->next + 1) % l->chunks;
        bytes += (double)l->chunk;
        elapsed = di_clock_seconds() - start;
    } while (elapsed < seconds);
    return bytes / elapsed;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Multiply-adds. acc = acc * a + b moves towards b / (1 - a): no infinity, no subnormal. */

#if defined(__x86_64__)
TARGET static float fma_avx2(int32_t steps)
{
    float start = 1.0F, factor = 0.5F;
    __asm__ volatile("" : "+x"(start), "+x"(factor)); /* unknown to the compiler */
    const __m256 a = _mm256_set1_ps(factor), b = _mm256_set1_ps(start);
    __m256 c0 = b, c1 = b, c2 = b, c3 = b, c4 = b, c5 = b, c6 = b, c7 = b, c8 = b, c9 = b, c10 = b, c11 = b;
    for (int32_t i = 0; i < steps; i++) {
        c0 = _mm256_fmadd_ps(c0, a, b);
        c1 = _mm256_fmadd_ps(c1, a, b);
        c2 = _mm256_fmadd_ps(c2, a, b);
        c3 = _mm256_fmadd_ps(c3, a, b);
        c4 = _mm256_fmadd_ps(c4, a, b);
        c5 = _mm256_fmadd_ps(c5, a, b);
        c6 = _mm256_fmadd_ps(c6, a, b);
        c7 = _mm256_fmadd_ps(c7, a, b);
        c8 = _mm256_fmadd_ps(c8, a, b);
        c9 = _mm256_fmadd_ps(c9, a, b);
        c10 = _mm256_fmadd_ps(c10, a, b);
        c11 = _mm256_fmadd_ps(c11, a, b);
        /* Twelve chains, not one computed twelve times. */
        __asm__("" : "+x"(c0), "+x"(c1), "+x"(c2), "+x"(c3), "+x"(c4), "+x"(c5));
        __asm__("" : "+x"(c6), "+x"(c7), "+x"(c8), "+x"(c9), "+x"(c10), "+x"(c11));
    }
    c0 = _mm256_add_ps(_mm256_add_ps(c0, c1), _mm256_add_ps(c2, c3));
    c4 = _mm256_add_ps(_mm256_add_ps(c4, c5), _mm256_add_ps(c6, c7));
    c8 = _mm256_add_ps(_mm256_add_ps(c8, c9), _mm256_add_ps(c10, c11));
    c0 = _mm256_add_ps(c0, _mm256_add_ps(c4, c8));
    return _mm256_cvtss_f32(c0);
}
#endif

static float fma_plain(int32_t steps)
{
    volatile float start = 1.0F, factor = 0.5F;
    float a = factor, b = start, c[ACCUMULATORS * LANES], sum = 0.0F;
    for (int32_t k = 0; k < ACCUMULATORS * LANES; k++)
        c[k] = b + (float)k;
    for (int32_t i = 0; i < steps; i++)
        for (int32_t k = 0; k < ACCUMULATORS * LANES; k++)
            c[k] = c[k] * a + b;
    for (int32_t k = 0; k < ACCUMULATORS * LANES; k++)
        sum += c[k];
    return sum;
}

static void fma_range(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct bench_limits *l = arg;
    for (int64_t i = begin; i < end; i++) {
        float sum;
#if defined(__x86_64__)
        sum = have_avx2() ? fma_avx2(FMA_STEPS) : fma_plain(FMA_STEPS);
#else
        sum = fma_plain(FMA_STEPS);
#endif
        l->sink[member * (LINE / (int32_t)sizeof(float))] += sum;
    }
}

double bench_fma_rate(struct bench_limits *l, double seconds)
{
    int32_t members = di_team_size(l->team);
    double start = di_clock_seconds(), elapsed;
    double macs = 0.0;
    do {
        di_team_run(l->team, members, fma_range, l); /* one unit a member */
        macs += (double)((int64_t)members * FMA_STEPS * ACCUMULATORS * LANES);
        elapsed = di_clock_seconds() - start;
    } while (elapsed < seconds);
    return macs / elapsed;
}

/* ---------------------------------------------------------------------------------------------------------------------
 */

static void touch_range(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    memset((unsigned char *)arg + begin, 1, (size_t)(end - begin)); /* zero pages would all be one cached page */
}

di_status bench_limits_open(struct di_team *team, size_t bytes, struct bench_limits **out, struct di_error *err)
{
    *out = NULL;
    struct bench_limits *l = di_calloc(1, sizeof *l);
    if (l == NULL)
        return DI_FAIL_NOMEM(err, sizeof *l);
    l->team = team;
    l->chunk = (size_t)500009 * STREAMS * LINE; /* 128 MB, and no stream a power of two from the next: they would meet
                                                   in the same sets of the caches */
    l->chunks = (int32_t)((bytes + l->chunk - 1) / l->chunk);
    l->memory = di_aligned_calloc((size_t)l->chunks, l->chunk);
    l->sink = di_aligned_calloc((size_t)di_team_size(team), LINE);
    if (l->memory == NULL || l->sink == NULL) {
        bench_limits_close(l);
        return DI_FAIL_NOMEM(err, bytes);
    }
    di_team_run(team, (int64_t)((size_t)l->chunks * l->chunk), touch_range, l->memory);
    *out = l;
    return DI_OK;
}

void bench_limits_close(struct bench_limits *l)
{
    if (l == NULL)
        return;
    free(l->memory);
    free(l->sink);
    free(l);
}
