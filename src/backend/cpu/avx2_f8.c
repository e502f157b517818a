/* Order F8 for AVX2 and FMA: FP8, BF16 and F32 weights, and FP4 in mode oracle.
 *
 * One input: weights are decoded in registers, four rows at once; per 32 FP8 weights 9 operations to decode, 2 to look for NaN
 * codes and 4 multiply-adds, so that memory is the limit. Two or three inputs: eight rows are decoded into L1 and meet each
 * input. More: 24 rows x 256 columns are decoded into L1 and meet four inputs at a time in tiles of 4 x 3 chains-of-eight, 12
 * multiply-adds for 7 loads.
 *
 * FP8 without a table: the bits of an e4m3 code, moved to the place of a bf16's, are its value x 2^-120, also where it is
 * subnormal. The missing 2^120 and the scale go into the inputs (one input) or the decoded weights (more). Where that could leave
 * float's range, and for NaN codes, rows take the plain road: decode_any().
 */
#include "backend/cpu/avx2.h"

#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "numerics/codes.h"

enum { CHUNK = 256, TILE_M = 4, TILE_N = 3, NB = 24, MOST = 128, FEW = 8, AHEAD = 24 * 1024 };

/* Scale code of a row's block of 32 columns. */
INLINE uint8_t scale_code(const struct di_weight *w, int64_t row, int32_t block)
{
    return w->scale[(w->format == DI_FMT_FP8 ? row / 32 : row) * (w->cols / 32) + block];
}

/* 32 elements of 16 bits, bf16. */
INLINE void load_bf16(const uint16_t *codes, __m256 out[4])
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000U);
    const __m128i *at = (const void *)codes;
    __m256i x = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at)), _mm_loadu_si128(at + 2), 1);
    __m256i y = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at + 1)), _mm_loadu_si128(at + 3), 1);
    __m256 fx = _mm256_castsi256_ps(x), fy = _mm256_castsi256_ps(y);
    __m256i first = _mm256_castps_si256(_mm256_shuffle_ps(fx, fy, 0x88));
    __m256i second = _mm256_castps_si256(_mm256_shuffle_ps(fx, fy, 0xdd));
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(first, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(first, high));
    out[2] = _mm256_castsi256_ps(_mm256_slli_epi32(second, 16));
    out[3] = _mm256_castsi256_ps(_mm256_and_si256(second, high));
}

/* 32 elements from column `col` on, any format, any scale, any code. */
INLINE void decode_any(const struct di_weight *w, int64_t row, int32_t col, __m256 out[4])
{
    float plain[32];
    int64_t at = row * w->cols + col;
    if (w->format == DI_FMT_BF16) {
        load_bf16((const uint16_t *)w->data + at, out);
    } else if (w->format == DI_FMT_F32) {
        di_load_chains((const float *)w->data + at, out);
    } else {
        di_weight_decode(w, row, col, 32, plain);
        di_load_chains(plain, out);
    }
}

INLINE void decode_block(const struct di_weight *w, int64_t row, int32_t col, __m256 out[4])
{
    if (w->format == DI_FMT_FP8 || w->format == DI_FMT_FP8_ROW) {
        __m256i bytes = di_load((const uint8_t *)w->data + row * w->cols + col);
        uint32_t code = scale_code(w, row, col / 32);
        if (code <= 134 && !di_any_nan(di_nan_mark(bytes))) {
            __m256 scale = _mm256_set1_ps(di_f32_from_bits((code + 120) << 23));
            di_spread_e4m3(bytes, out);
            UNROLL
            for (int j = 0; j < 4; j++)
                out[j] = _mm256_mul_ps(out[j], scale);
            return;
        }
    }
    decode_any(w, row, col, out);
}

/* ---- one input ---- */

/* The row to read where fewer than four are left: the last one again. */
INLINE int64_t row_or_last(int64_t row, int64_t end)
{
    return row < end ? row : end - 1;
}

INLINE void finish_rows(const __m256 acc[4], int64_t row, int64_t end, float *out)
{
    for (int r = 0; r < 4 && row + r < end; r++)
        out[row + r] = di_sum_chains(acc[r]);
}

/* Rows of any format. */
TARGET static void gemv_any(const struct di_weight *w, int64_t begin, int64_t end, const float *x, float *out)
{
    for (int64_t row = begin; row < end; row += 4) {
        __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int32_t col = 0; col < w->cols; col += 32)
            UNROLL
        for (int r = 0; r < 4; r++) {
            __m256 v[4];
            decode_block(w, row_or_last(row + r, end), col, v);
            UNROLL
            for (int j = 0; j < 4; j++)
                acc[r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + col + 8 * j), v[j], acc[r]);
        }
        finish_rows(acc, row, end, out);
    }
}

/* Whether every x * scale * 2^120 of these 32 rows stays within float's range. */
TARGET static bool folds(const struct di_weight *w, int64_t row, float largest)
{
    const uint8_t *codes = w->scale + row / 32 * (w->cols / 32);
    uint32_t most = 0;
    for (int32_t b = 0; b < w->cols / 32; b++)
        most = codes[b] > most ? codes[b] : most;
    return most <= 134 && largest * di_f32_from_bits((most + 120) << 23) < INFINITY;
}

TARGET static void fold_input(const struct di_weight *w, int64_t row, const float *x, float *out)
{
    for (int32_t col = 0; col < w->cols; col += 32) {
        __m256 scale = _mm256_set1_ps(di_f32_from_bits((scale_code(w, row, col / 32) + 120U) << 23));
        UNROLL
        for (int j = 0; j < 4; j++)
            _mm256_storeu_ps(out + col + 8 * j, _mm256_mul_ps(scale, _mm256_loadu_ps(x + col + 8 * j)));
    }
}

/* Four rows times an input that holds the scales. False where a NaN code was met: the sums are then wrong. */
TARGET static bool gemv_fp8_rows(const uint8_t *const rows[4], int32_t cols, const float *x, __m256 acc[4])
{
    const uint8_t *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    __m256i marks = _mm256_setzero_si256();
#define ROW(r, a)                                                        \
    do {                                                                 \
        __m256 v[4];                                                     \
        __m256i bytes = di_load((r) + col);                              \
        marks = _mm256_max_epu8(marks, di_nan_mark(bytes));              \
        di_spread_e4m3(bytes, v);                                        \
        (a) = _mm256_fmadd_ps(_mm256_loadu_ps(x + col), v[0], (a));      \
        (a) = _mm256_fmadd_ps(_mm256_loadu_ps(x + col + 8), v[1], (a));  \
        (a) = _mm256_fmadd_ps(_mm256_loadu_ps(x + col + 16), v[2], (a)); \
        (a) = _mm256_fmadd_ps(_mm256_loadu_ps(x + col + 24), v[3], (a)); \
    } while (0)
    int64_t fours = 4 * (int64_t)cols; /* bytes of four rows, which mostly lie behind one another */
    const char *next = (const char *)r0 + (AHEAD + fours - 1) / fours * fours;
    for (int32_t col = 0; col < cols; col += 32) {
        _mm_prefetch(next + 4 * (int64_t)col, _MM_HINT_T0);
        _mm_prefetch(next + 4 * (int64_t)col + 64, _MM_HINT_T0);
        ROW(r0, a0);
        ROW(r1, a1);
        ROW(r2, a2);
        ROW(r3, a3);
    }
#undef ROW
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
    return !di_any_nan(marks);
}

TARGET static void gemv_fp8(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_input *in,
                            float *out, float *folded)
{
    while (begin < end) {
        int64_t stop = (begin / 32 + 1) * 32 < end ? (begin / 32 + 1) * 32 : end;
        if (!folds(w, begin, in->largest)) {
            gemv_any(w, begin, stop, in->f, out);
            begin = stop;
            continue;
        }
        fold_input(w, begin, in->f, folded);
        for (int64_t row = begin; row < stop; row += 4) {
            const uint8_t *rows[4];
            __m256 acc[4];
            for (int r = 0; r < 4; r++)
                rows[r] = (const uint8_t *)w->data + row_or_last(row + r, stop) * w->cols;
            if (gemv_fp8_rows(rows, w->cols, folded, acc))
                finish_rows(acc, row, stop, out);
            else
                gemv_any(w, row, row + 4 < stop ? row + 4 : stop, in->f, out);
        }
        begin = stop;
    }
}

/* ---- two or three inputs ---- */

TARGET static void few(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs,
                       int32_t n, float *rows)
{
    int32_t k = w->cols;
    for (int64_t row = begin; row < end; row += FEW) {
        for (int r = 0; r < FEW; r++)
            for (int32_t col = 0; col < k; col += 32) {
                __m256 v[4];
                decode_block(w, row_or_last(row + r, end), col, v);
                UNROLL
                for (int j = 0; j < 4; j++)
                    _mm256_storeu_ps(rows + (int64_t)r * k + col + 8 * j, v[j]);
            }
        for (int32_t i = 0; i < n; i++) {
            const float *x = pairs[i].in->f;
            __m256 acc[FEW];
            UNROLL
            for (int r = 0; r < FEW; r++)
                acc[r] = _mm256_setzero_ps();
            for (int32_t col = 0; col < k; col += 8) {
                __m256 v = _mm256_loadu_ps(x + col);
                UNROLL
                for (int r = 0; r < FEW; r++)
                    acc[r] = _mm256_fmadd_ps(v, _mm256_loadu_ps(rows + (int64_t)r * k + col), acc[r]);
            }
            for (int r = 0; r < FEW && row + r < end; r++)
                pairs[i].out[row + r] = di_sum_chains(acc[r]);
        }
    }
}

/* ---- four inputs and more ---- */

/* 4 inputs x 3 rows over `k` columns; the sums live in `acc` between chunks. */
TARGET static void tile(const float *const x[TILE_M], const float *rows, int32_t k, float *acc)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const float *w0 = rows, *w1 = rows + CHUNK, *w2 = rows + 2 * CHUNK;
    __m256 a00 = _mm256_loadu_ps(acc), a01 = _mm256_loadu_ps(acc + 8), a02 = _mm256_loadu_ps(acc + 16);
    __m256 a10 = _mm256_loadu_ps(acc + 24), a11 = _mm256_loadu_ps(acc + 32), a12 = _mm256_loadu_ps(acc + 40);
    __m256 a20 = _mm256_loadu_ps(acc + 48), a21 = _mm256_loadu_ps(acc + 56), a22 = _mm256_loadu_ps(acc + 64);
    __m256 a30 = _mm256_loadu_ps(acc + 72), a31 = _mm256_loadu_ps(acc + 80), a32 = _mm256_loadu_ps(acc + 88);
    for (int32_t i = 0; i < k; i += 8) {
        __m256 v0 = _mm256_loadu_ps(w0 + i), v1 = _mm256_loadu_ps(w1 + i), v2 = _mm256_loadu_ps(w2 + i);
        __m256 a = _mm256_loadu_ps(x0 + i);
        a00 = _mm256_fmadd_ps(a, v0, a00);
        a01 = _mm256_fmadd_ps(a, v1, a01);
        a02 = _mm256_fmadd_ps(a, v2, a02);
        a = _mm256_loadu_ps(x1 + i);
        a10 = _mm256_fmadd_ps(a, v0, a10);
        a11 = _mm256_fmadd_ps(a, v1, a11);
        a12 = _mm256_fmadd_ps(a, v2, a12);
        a = _mm256_loadu_ps(x2 + i);
        a20 = _mm256_fmadd_ps(a, v0, a20);
        a21 = _mm256_fmadd_ps(a, v1, a21);
        a22 = _mm256_fmadd_ps(a, v2, a22);
        a = _mm256_loadu_ps(x3 + i);
        a30 = _mm256_fmadd_ps(a, v0, a30);
        a31 = _mm256_fmadd_ps(a, v1, a31);
        a32 = _mm256_fmadd_ps(a, v2, a32);
    }
    _mm256_storeu_ps(acc, a00);
    _mm256_storeu_ps(acc + 8, a01);
    _mm256_storeu_ps(acc + 16, a02);
    _mm256_storeu_ps(acc + 24, a10);
    _mm256_storeu_ps(acc + 32, a11);
    _mm256_storeu_ps(acc + 40, a12);
    _mm256_storeu_ps(acc + 48, a20);
    _mm256_storeu_ps(acc + 56, a21);
    _mm256_storeu_ps(acc + 64, a22);
    _mm256_storeu_ps(acc + 72, a30);
    _mm256_storeu_ps(acc + 80, a31);
    _mm256_storeu_ps(acc + 88, a32);
}

enum { TILE = TILE_M * TILE_N * 8 }; /* floats of a tile's sums */

TARGET static void decode_chunk(const struct di_weight *w, int64_t row, int64_t end, int32_t col, int32_t k,
                                float *rows)
{
    for (int r = 0; r < NB && row + r < (end + TILE_N - 1) / TILE_N * TILE_N + TILE_N; r++)
        for (int32_t i = 0; i < k; i += 32) {
            __m256 v[4];
            decode_block(w, row_or_last(row + r, end), col + i, v);
            UNROLL
            for (int j = 0; j < 4; j++)
                _mm256_storeu_ps(rows + r * CHUNK + i + 8 * j, v[j]);
        }
}

/* At most MOST inputs. */
TARGET static void many(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs,
                        int32_t n, float *rows)
{
    float *sums = rows + NB * CHUNK;
    for (int64_t row = begin; row < end; row += NB) {
        int32_t here = end - row < NB ? (int32_t)(end - row) : NB, tiles = (here + TILE_N - 1) / TILE_N;
        int32_t quads = (n + TILE_M - 1) / TILE_M;
        memset(sums, 0, (size_t)quads * (NB / TILE_N) * TILE * sizeof *sums);
        for (int32_t col = 0; col < w->cols; col += CHUNK) {
            int32_t k = w->cols - col < CHUNK ? w->cols - col : CHUNK;
            decode_chunk(w, row, end, col, k, rows);
            for (int32_t q = 0; q < quads; q++) {
                const float *x[TILE_M];
                for (int32_t m = 0; m < TILE_M; m++)
                    x[m] = pairs[q * TILE_M + m < n ? q * TILE_M + m : n - 1].in->f + col;
                for (int32_t t = 0; t < tiles; t++)
                    tile(x, rows + t * TILE_N * CHUNK, k, sums + (q * (NB / TILE_N) + t) * TILE);
            }
        }
        for (int32_t i = 0; i < n; i++)
            for (int32_t r = 0; r < here; r++)
                pairs[i].out[row + r] = di_sum_chains(_mm256_loadu_ps(
                    sums + (i / TILE_M * (NB / TILE_N) + r / TILE_N) * TILE + (i % TILE_M * TILE_N + r % TILE_N) * 8));
    }
}

size_t di_avx2_bytes_f8(int32_t cols, int32_t n)
{
    size_t few_rows = FEW * (size_t)cols, inputs = n < MOST ? (size_t)n : MOST;
    size_t chunks = NB * CHUNK + (inputs + TILE_M - 1) / TILE_M * (NB / TILE_N) * TILE;
    return (few_rows > chunks ? few_rows : chunks) * sizeof(float);
}

void di_avx2_products_f8(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs,
                         int32_t n, void *scratch)
{
    if (n == 1 && w->format == DI_FMT_FP8)
        gemv_fp8(w, begin, end, pairs->in, pairs->out, scratch);
    else if (n == 1)
        gemv_any(w, begin, end, pairs->in->f, pairs->out);
    else if (n < TILE_M)
        few(w, begin, end, pairs, n, scratch);
    else
        for (int32_t i = 0; i < n; i += MOST)
            many(w, begin, end, pairs + i, n - i < MOST ? n - i : MOST, scratch);
}
#endif
