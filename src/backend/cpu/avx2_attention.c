/* Attention for AVX2 and FMA: packed keys to floats in the order of chains, scores of queries against keys (order F8), sums of
 * weighted keys. Tiles of four heads: a key's vector is loaded once for all of them.
 */
#include "backend/cpu/avx2.h"

#if defined(__x86_64__)
#include <math.h>

#include "numerics/codes.h"

enum { HEADS = 4, KEYS = 3 };

/* 16 bytes of e2m1 codes -> 2w of 32 elements, element 4l+j in lane l of vector j. */
INLINE void decode_e2m1(const uint8_t *codes, __m256 scale, __m256 out[4])
{
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)codes), nibble = _mm_set1_epi8(15);
    __m128i even = _mm_shuffle_epi8(twice, _mm_and_si128(bytes, nibble));
    __m128i odd = _mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
    __m256i all = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(even, odd)),
                                          _mm_unpackhi_epi8(even, odd), 1);
    out[0] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(all, 24), 24));
    out[1] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(all, 16), 24));
    out[2] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(all, 8), 24));
    out[3] = _mm256_cvtepi32_ps(_mm256_srai_epi32(all, 24));
    UNROLL
    for (int j = 0; j < 4; j++) /* halves are exact: the scale is not below 2^-126, or an e4m3 */
        out[j] = _mm256_mul_ps(_mm256_mul_ps(out[j], _mm256_set1_ps(0.5F)), scale);
}

/* One block of 32 elements; false where the plain road must be taken. */
INLINE bool decode_block(enum di_kv_format format, const uint8_t *data, const uint8_t *scale, int32_t block,
                         __m256 out[4])
{
    if (format == DI_KV_FP8) {
        __m256i bytes = di_load(data + 32 * block);
        uint32_t code = scale[block];
        if (code > 134 || di_any_nan(di_nan_mark(bytes)))
            return false;
        di_spread_e4m3(bytes, out);
        UNROLL
        for (int j = 0; j < 4; j++)
            out[j] = _mm256_mul_ps(out[j], _mm256_set1_ps(di_f32_from_bits((code + 120) << 23)));
        return true;
    }
    if (format == DI_KV_FP4_E4M3) { /* lanes of the lower half are the first 16 elements */
        const float *e4m3 = di_e4m3_table();
        __m128 low = _mm_set1_ps(e4m3[scale[2 * block]]), high = _mm_set1_ps(e4m3[scale[2 * block + 1]]);
        decode_e2m1(data + 16 * block, _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1), out);
        return true;
    }
    if (format == DI_KV_FP4_E8M0) {
        decode_e2m1(data + 16 * block, _mm256_set1_ps(di_e8m0_to_f32(scale[block])), out);
        return true;
    }
    return false;
}

TARGET void di_avx2_unpack_key(const struct di_kv_rows *rows, int32_t row, float *key)
{
    if (rows->dim % 32 != 0) {
        di_host_unpack_key(rows, row, key);
        return;
    }
    const uint8_t *data = di_kv_row_data(rows, row), *scale = di_kv_row_scale(rows, row);
    for (int32_t block = 0; block < rows->dim / 32; block++) {
        __m256 v[4];
        if (!decode_block(rows->format, data, scale, block, v)) {
            float plain[32];
            di_kv_unpack(rows->format, data + (int64_t)block * di_kv_data_bytes(rows->format, 32),
                         scale + (int64_t)block * di_kv_scale_bytes(rows->format, 32), 32, plain);
            di_load_chains(plain, v);
        }
        UNROLL
        for (int j = 0; j < 4; j++)
            _mm256_storeu_ps(key + 32 * block + 8 * j, v[j]);
    }
}

/* The last one again where fewer are left. */
static int32_t at_most(int32_t i, int32_t last)
{
    return i < last ? i : last;
}

TARGET static void score_tile(const float *const q[HEADS], const float *const key[KEYS], int32_t dim,
                              float out[HEADS][KEYS])
{
    __m256 acc[HEADS][KEYS];
    UNROLL
    for (int h = 0; h < HEADS; h++)
        UNROLL
    for (int k = 0; k < KEYS; k++)
        acc[h][k] = _mm256_setzero_ps();
    for (int32_t c = 0; c < dim; c += 8) {
        __m256 k0 = _mm256_loadu_ps(key[0] + c), k1 = _mm256_loadu_ps(key[1] + c), k2 = _mm256_loadu_ps(key[2] + c);
        UNROLL
        for (int h = 0; h < HEADS; h++) {
            __m256 x = _mm256_loadu_ps(q[h] + c);
            acc[h][0] = _mm256_fmadd_ps(x, k0, acc[h][0]);
            acc[h][1] = _mm256_fmadd_ps(x, k1, acc[h][1]);
            acc[h][2] = _mm256_fmadd_ps(x, k2, acc[h][2]);
        }
    }
    UNROLL
    for (int h = 0; h < HEADS; h++)
        UNROLL
    for (int k = 0; k < KEYS; k++)
        out[h][k] = di_sum_chains(acc[h][k]);
}

void di_avx2_scores(const float *queries, int32_t heads, const float *keys, int32_t count, int32_t dim, float *out,
                    int32_t out_stride)
{
    if (dim % 32 != 0) {
        di_host_scores(queries, heads, keys, count, dim, out, out_stride);
        return;
    }
    for (int32_t h = 0; h < heads; h += HEADS)
        for (int32_t k = 0; k < count; k += KEYS) {
            const float *q[HEADS], *key[KEYS];
            float tile[HEADS][KEYS];
            for (int32_t i = 0; i < HEADS; i++)
                q[i] = queries + (int64_t)at_most(h + i, heads - 1) * dim;
            for (int32_t i = 0; i < KEYS; i++)
                key[i] = keys + (int64_t)at_most(k + i, count - 1) * dim;
            score_tile(q, key, dim, tile);
            for (int32_t i = 0; i < HEADS && h + i < heads; i++)
                for (int32_t j = 0; j < KEYS && k + j < count; j++)
                    out[(int64_t)(h + i) * out_stride + k + j] = tile[i][j];
        }
}

/* Four heads x 16 channels over all keys. */
TARGET static void blend_tile(const float *const weights[HEADS], const float *keys, int32_t count, int32_t dim,
                              float *const sums[HEADS])
{
    __m256 a[HEADS], b[HEADS];
    UNROLL
    for (int h = 0; h < HEADS; h++) {
        a[h] = _mm256_loadu_ps(sums[h]);
        b[h] = _mm256_loadu_ps(sums[h] + 8);
    }
    for (int32_t k = 0; k < count; k++, keys += dim) {
        __m256 x = _mm256_loadu_ps(keys), y = _mm256_loadu_ps(keys + 8);
        UNROLL
        for (int h = 0; h < HEADS; h++) {
            __m256 w = _mm256_set1_ps(weights[h][k]);
            a[h] = _mm256_fmadd_ps(w, x, a[h]);
            b[h] = _mm256_fmadd_ps(w, y, b[h]);
        }
    }
    UNROLL
    for (int h = 0; h < HEADS; h++) {
        _mm256_storeu_ps(sums[h], a[h]);
        _mm256_storeu_ps(sums[h] + 8, b[h]);
    }
}

void di_avx2_blend(const float *weights, int32_t stride, int32_t heads, const float *keys, int32_t count, int32_t dim,
                   float *sums)
{
    int32_t fours = dim % 16 == 0 ? heads / HEADS * HEADS : 0;
    for (int32_t h = 0; h < fours; h += HEADS)
        for (int32_t c = 0; c < dim; c += 16) {
            const float *w[HEADS];
            float *sum[HEADS];
            for (int32_t i = 0; i < HEADS; i++) {
                w[i] = weights + (int64_t)(h + i) * stride;
                sum[i] = sums + (int64_t)(h + i) * dim + c;
            }
            blend_tile(w, keys + c, count, dim, sum);
        }
    for (int64_t h = fours; h < heads; h++)
        for (int64_t k = 0; k < count; k++)
            di_avx2_axpy(weights[h * stride + k], keys + k * dim, sums + h * dim, dim);
}

TARGET void di_avx2_restore(const float *x, int32_t dim, float *out)
{
    if (dim % 32 != 0) {
        di_host_restore(x, dim, out);
        return;
    }
    for (int32_t c = 0; c < dim; c += 32) { /* element 4l+j of the block lies in place 8j+l */
        __m256 v[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = _mm256_loadu_ps(x + c + 8 * j);
        __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
        __m256 d = _mm256_unpacklo_ps(v[2], v[3]), e = _mm256_unpackhi_ps(v[2], v[3]);
        __m256 r[4] = {_mm256_shuffle_ps(a, d, 0x44), _mm256_shuffle_ps(a, d, 0xee), _mm256_shuffle_ps(b, e, 0x44),
                       _mm256_shuffle_ps(b, e, 0xee)}; /* elements of chains i and i + 4 */
        UNROLL
        for (int i = 0; i < 4; i++) {
            _mm_storeu_ps(out + c + 4 * i, _mm256_castps256_ps128(r[i]));
            _mm_storeu_ps(out + c + 16 + 4 * i, _mm256_extractf128_ps(r[i], 1));
        }
    }
}
#endif
