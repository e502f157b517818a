/* backend/cpu/avx2.h - what the AVX2 kernels share. Needs AVX2 and FMA.
 *
 * Order F8 has eight chains; a block of 32 elements is held as four vectors, vector j holding element 4l+j of every chain l in
 * lane l. A prepared input of order F8 lies in memory in that form.
 *
 * Order R1 is integer: 2w + 12 as a byte, the activation as up to three signed limbs of a byte. A block of 32 lies as its 16
 * even elements, then its 16 odd ones: the order in which nibbles come out of their bytes.
 */
#ifndef DI_CPU_AVX2_H
#define DI_CPU_AVX2_H

#include "backend/host/host.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 8")

/* Limb planes of a prepared R1 input: two for blocks whose 512 a are multiples of 8 (64 a = low + 256 high), and three that
 * hold every block (512 a = low + 128 middle + 16384 high). In mode fast there is one. */
enum { DI_NARROW = 0, DI_WIDE = 2, DI_PLANES = 5 };

INLINE __m256i di_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Element 4l+j of 32 floats -> lane l of vector j; its own inverse up to the order of memory. */
INLINE void di_load_chains(const float *x, __m256 v[4])
{
    __m256 r[4];
    UNROLL
    for (int j = 0; j < 4; j++)
        r[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 4 * j)), _mm_loadu_ps(x + 16 + 4 * j), 1);
    __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    v[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(c)));
    v[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(c)));
    v[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(b), _mm256_castps_pd(d)));
    v[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(b), _mm256_castps_pd(d)));
}

/* ((c0+c4) + (c2+c6)) + ((c1+c5) + (c3+c7)) */
INLINE float di_sum_chains(__m256 acc)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(acc), _mm256_extractf128_ps(acc, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* 32 e4m3 codes -> four vectors of value x 2^-120: the bits of a code, moved to the place of a bf16's. */
INLINE void di_spread_e4m3(__m256i bytes, __m256 out[4])
{
    const __m256i keep = _mm256_set1_epi16((short)0x87f0), high = _mm256_set1_epi32((int)0xffff0000U);
    __m256i odd = _mm256_and_si256(_mm256_srai_epi16(bytes, 4), keep);
    __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 4), keep);
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(even, 16));
    out[1] = _mm256_castsi256_ps(_mm256_slli_epi32(odd, 16));
    out[2] = _mm256_castsi256_ps(_mm256_and_si256(even, high));
    out[3] = _mm256_castsi256_ps(_mm256_and_si256(odd, high));
}

/* 255 in a byte of the result stands for a NaN code: 0x7f or 0xff. */
INLINE __m256i di_nan_mark(__m256i bytes)
{
    return _mm256_or_si256(bytes, _mm256_set1_epi8((char)0x80));
}

INLINE bool di_any_nan(__m256i marks)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(marks, _mm256_set1_epi8(-1))) != 0;
}

void di_avx2_products_f8(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs,
                         int32_t n, void *scratch);
size_t di_avx2_bytes_f8(int32_t cols, int32_t n);
void di_avx2_products_r1(bool int8, const struct di_weight *w, int64_t begin, int64_t end,
                         const struct di_host_pair *pairs, int32_t n, void *scratch);
size_t di_avx2_bytes_r1(int32_t cols, int32_t n);
/* Slots of the kernel table that AVX-512 takes over as they are. */
float di_avx2_dot(const float *a, const float *w, int32_t k);
void di_avx2_axpy(float a, const float *x, float *y, int32_t n);
struct di_host_input di_avx2_prepare_any(enum di_host_rule rule, const float *x, int32_t cols, void *room);
size_t di_avx2_product_bytes(int32_t cols, int32_t n);

void di_avx2_unpack_key(const struct di_kv_rows *rows, int32_t row, float *key);
void di_avx2_scores(const float *queries, int32_t heads, const float *keys, int32_t count, int32_t dim, float *out,
                    int32_t out_stride);
void di_avx2_blend(const float *weights, int32_t stride, int32_t heads, const float *keys, int32_t count, int32_t dim,
                   float *sums);
void di_avx2_restore(const float *x, int32_t dim, float *out);

/* cols a multiple of 32 */
struct di_host_input di_avx2_prepare(enum di_host_rule rule, const float *x, int32_t cols, void *room);

#endif
#endif
