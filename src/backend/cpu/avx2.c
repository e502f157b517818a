/* Kernels for AVX2 and FMA.
 *
 * Order F8 has eight chains, one per lane. Chain l of a block of 32 elements takes elements 4l .. 4l+3, so a block is held as
 * four vectors, vector j holding element 4l+j of every chain. Lanes stand for the chains 0 2 4 6 1 3 5 7: in that order a block
 * of floats is transposed within 128-bit halves, and the final sum ((c0+c4)+(c2+c6)) + ((c1+c5)+(c3+c7)) adds like places.
 * Weight rows are decoded into that form in L1, eight rows at a time, and meet every input: 16 multiply-adds a cycle at best.
 *
 * Order R1 is integer: 2w as 16-bit, 512 a as two 16-bit limbs (512 * high + low), products summed exactly in 32 bits.
 */
#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { GROUP = 8 }; /* weight rows at once */

/* Rows 2i and 2i+1 of four in register i -> column j of all eight in register j. */
INLINE void transpose_block(__m256 v[4])
{
    __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
    __m256 c = _mm256_unpacklo_ps(v[2], v[3]), d = _mm256_unpackhi_ps(v[2], v[3]);
    v[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(c)));
    v[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(c)));
    v[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(b), _mm256_castps_pd(d)));
    v[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(b), _mm256_castps_pd(d)));
}

/* Lanes c0 c2 c4 c6 | c1 c3 c5 c7. */
INLINE float sum_chains(__m256 acc)
{
    __m128 even = _mm256_castps256_ps128(acc), odd = _mm256_extractf128_ps(acc, 1);
    __m128 e = _mm_add_ps(even, _mm_movehl_ps(even, even)); /* c0+c4, c2+c6 */
    __m128 o = _mm_add_ps(odd, _mm_movehl_ps(odd, odd));
    float e0 = _mm_cvtss_f32(e), e1 = _mm_cvtss_f32(_mm_shuffle_ps(e, e, 1));
    float o0 = _mm_cvtss_f32(o), o1 = _mm_cvtss_f32(_mm_shuffle_ps(o, o, 1));
    return (e0 + e1) + (o0 + o1);
}

TARGET static float dot_avx2(const float *a, const float *w, int32_t k)
{
    if (k % 32 != 0)
        return di_host_dot(a, w, k);
    __m256 acc = _mm256_setzero_ps();
    for (int32_t i = 0; i < k; i += 32) {
        __m256 x[4], y[4];
        for (int32_t j = 0; j < 4; j++) {
            x[j] = _mm256_loadu_ps(a + i + 8 * j);
            y[j] = _mm256_loadu_ps(w + i + 8 * j);
        }
        transpose_block(x);
        transpose_block(y);
        for (int32_t j = 0; j < 4; j++)
            acc = _mm256_fmadd_ps(x[j], y[j], acc);
    }
    return sum_chains(acc);
}

TARGET static void axpy_avx2(float a, const float *x, float *y, int32_t n)
{
    __m256 scale = _mm256_set1_ps(a);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(scale, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Inputs. */

TARGET static void arrange_avx2(struct di_host_input *in, int32_t cols, bool limbs, void *room)
{
    if (limbs) {
        int16_t *high = room, *low = high + cols;
        for (int32_t i = 0; i < cols; i++) {
            high[i] = (int16_t)(in->q[i] >> 9); /* -448 .. 448 */
            low[i] = (int16_t)(in->q[i] & 511);
        }
        in->high = high;
        in->low = low;
        return;
    }
    float *out = room;
    for (int32_t i = 0; i < cols; i += 32) {
        __m256 v[4];
        for (int32_t j = 0; j < 4; j++)
            v[j] = _mm256_loadu_ps(in->f + i + 8 * j);
        transpose_block(v);
        for (int32_t j = 0; j < 4; j++)
            _mm256_storeu_ps(out + i + 8 * j, v[j]);
    }
    in->arranged = out;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * F8: decode a row into arranged floats, then multiply. */

/* 32 e4m3 bytes -> four vectors. The bits of a code, moved to a float's place, are its value x 2^-120, also for subnormals;
 * NaN codes (0x7f, 0xff) are put right. */
INLINE void decode_e4m3(const uint8_t *codes, float scale, __m256 out[4])
{
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m256 up = _mm256_set1_ps(0x1p120F), s = _mm256_set1_ps(scale), nan = _mm256_set1_ps(NAN);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i *)(const void *)codes), order);
    for (int32_t j = 0; j < 4; j++) {
        __m256i code = _mm256_and_si256(_mm256_srl_epi32(bytes, _mm_cvtsi32_si128(8 * j)), _mm256_set1_epi32(0xff));
        __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
        __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
        __m256i bits = _mm256_or_si256(_mm256_slli_epi32(magnitude, 20), sign);
        __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(bits), up);
        __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
        value = _mm256_blendv_ps(value, nan, _mm256_castsi256_ps(is_nan));
        out[j] = _mm256_mul_ps(value, s);
    }
}

TARGET static void decode_row(const struct di_weight *w, int64_t row, float *out)
{
    const struct di_format_info *f = di_format_info(w->format);
    for (int32_t i = 0; i < w->cols; i += 32) {
        __m256 v[4];
        if (w->format == DI_FMT_FP8) {
            const uint8_t *codes = (const uint8_t *)w->data + row * w->cols + i;
            decode_e4m3(codes, di_e8m0_to_f32(w->scale[row / f->block_rows * (w->cols / 32) + i / 32]), v);
        } else if (w->format == DI_FMT_BF16) {
            const uint16_t *codes = (const uint16_t *)w->data + row * w->cols + i;
            for (int32_t j = 0; j < 4; j++) {
                __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(codes + 8 * j));
                v[j] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
            }
            transpose_block(v);
        } else { /* F32, and FP4 in mode oracle */
            float plain[32];
            di_weight_decode(w, row, i, 32, plain);
            for (int32_t j = 0; j < 4; j++)
                v[j] = _mm256_loadu_ps(plain + 8 * j);
            transpose_block(v);
        }
        for (int32_t j = 0; j < 4; j++)
            _mm256_storeu_ps(out + i + 8 * j, v[j]);
    }
}

/* One arranged input times `count` decoded rows; the rows' chains run side by side. */
TARGET static void dot_rows(const float *x, const float *rows, int32_t count, int32_t k, float *out)
{
    __m256 acc[GROUP];
    for (int32_t r = 0; r < GROUP; r++)
        acc[r] = _mm256_setzero_ps();
    if (count == GROUP) {
        for (int32_t i = 0; i < k; i += 8) {
            __m256 v = _mm256_loadu_ps(x + i);
            for (int32_t r = 0; r < GROUP; r++)
                acc[r] = _mm256_fmadd_ps(v, _mm256_loadu_ps(rows + (int64_t)r * k + i), acc[r]);
        }
    } else {
        for (int32_t r = 0; r < count; r++)
            for (int32_t i = 0; i < k; i += 8)
                acc[r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(rows + (int64_t)r * k + i), acc[r]);
    }
    for (int32_t r = 0; r < count; r++)
        out[r] = sum_chains(acc[r]);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * R1. */

/* 16 bytes of codes -> 2w of 32 elements as two vectors of 16-bit integers, in order. */
INLINE void decode_fp4(const uint8_t *codes, __m256i out[2])
{
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)codes), nibble = _mm_set1_epi8(15);
    __m128i even = _mm_shuffle_epi8(twice, _mm_and_si128(bytes, nibble));
    __m128i odd = _mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
    out[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(even, odd));
    out[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(even, odd));
}

/* The exact sum over a block, left in eight partial sums. */
INLINE __m256i block_partials(const __m256i w[2], const int16_t *high, const int16_t *low)
{
    __m256i h0 = _mm256_loadu_si256((const __m256i *)(const void *)high);
    __m256i h1 = _mm256_loadu_si256((const __m256i *)(const void *)(high + 16));
    __m256i l0 = _mm256_loadu_si256((const __m256i *)(const void *)low);
    __m256i l1 = _mm256_loadu_si256((const __m256i *)(const void *)(low + 16));
    __m256i h = _mm256_add_epi32(_mm256_madd_epi16(w[0], h0), _mm256_madd_epi16(w[1], h1));
    __m256i l = _mm256_add_epi32(_mm256_madd_epi16(w[0], l0), _mm256_madd_epi16(w[1], l1));
    return _mm256_add_epi32(_mm256_slli_epi32(h, 9), l);
}

INLINE int32_t sum_partials(__m256i p)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(p), _mm256_extracti128_si256(p, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

TARGET static void products_r1(const struct di_weight *w, int64_t begin, int64_t end,
                               const struct di_host_input *inputs, int32_t n, int32_t step, float *out, int64_t stride)
{
    int32_t blocks = w->cols / 32;
    for (int64_t i = 0; i < n; i++) {
        const struct di_host_input *x = &inputs[i * step];
        for (int64_t row = begin; row < end; row++) {
            const uint8_t *codes = (const uint8_t *)w->data + row * (int64_t)(w->cols / 2);
            const uint8_t *scales = w->scale + row * blocks;
            float acc = 0.0F;
            for (int32_t b = 0; b < blocks; b++) {
                __m256i v[2];
                decode_fp4(codes + 16 * b, v);
                int32_t sum = sum_partials(block_partials(v, x->high + 32 * b, x->low + 32 * b));
                acc = fmaf((float)sum * 0x1p-10F, x->s[b] * di_e8m0_to_f32(scales[b]), acc);
            }
            out[i * stride + row] = acc;
        }
    }
}

TARGET static void products_avx2(const struct di_device *dev, const struct di_weight *w, int64_t begin, int64_t end,
                                 const struct di_host_input *inputs, int32_t n, int32_t step, float *out,
                                 int64_t stride, void *scratch)
{
    if (w->cols % 32 != 0) {
        di_host_products(dev, w, begin, end, inputs, n, step, out, stride, scratch);
        return;
    }
    if (w->format == DI_FMT_FP4 && dev->mode == DI_MODE_NATIVE) {
        products_r1(w, begin, end, inputs, n, step, out, stride);
        return;
    }
    float *rows = scratch;
    for (int64_t row = begin; row < end; row += GROUP) {
        int32_t count = end - row < GROUP ? (int32_t)(end - row) : GROUP;
        for (int32_t r = 0; r < count; r++)
            decode_row(w, row + r, rows + (int64_t)r * w->cols);
        for (int64_t i = 0; i < n; i++)
            dot_rows(inputs[i * step].arranged, rows, count, w->cols, out + i * stride + row);
    }
}

const struct di_host_kernels di_cpu_avx2_kernels = {
    .name = "cpu-avx2",
    .dot = dot_avx2,
    .axpy = axpy_avx2,
    .products = products_avx2,
    .arrange = arrange_avx2,
};
#endif
