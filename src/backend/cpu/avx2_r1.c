/* Order R1 for AVX2 and FMA: FP4 weights, exact integer sums per block of 32.
 *
 * A weight is a nibble, looked up as 2w + 12, an unsigned byte; an activation is one signed byte (mode fast) or two or three
 * (mode native: "limbs"). vpmaddubsw multiplies and adds pairs; the sums start from -12 x the activations, so that they fit in 16
 * bits: 16 products of at most 12 x 128. Then vpmaddwd joins the limbs in 32 bits, and the conversion to float is the one
 * rounding.
 *
 * One to three inputs: lanes are eight rows of W, transposed as dwords in registers. More: lanes are 16 inputs, and 32 rows x 8
 * blocks of W are decoded into L1, from where a dword of four weights is broadcast.
 */
#include "backend/cpu/r1.h"

#if defined(__x86_64__)
#include <string.h>

#include "numerics/codes.h"

/* A compiler may reorder integer sums and share loads between limbs; it then runs out of registers and is half as fast. This
 * keeps eight sums and the loads of a quad where they stand. */
#define KEEP_ORDER(a, b, c, d, e, f, g, h) \
    __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h) : : "memory")

INLINE __m256i table(void)
{
    return _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15, 16, 18, 20, 24,
                            12, 11, 10, 9, 8, 6, 4, 0);
}

/* e8m0 codes in eight lanes -> floats; 0 is 2^-127, 255 is NaN. */
INLINE __m256 scales_of(__m256i codes)
{
    __m256i ends = _mm256_or_si256(_mm256_cmpeq_epi32(codes, _mm256_setzero_si256()),
                                   _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(255)));
    return _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_slli_epi32(codes, 23), _mm256_and_si256(ends, _mm256_set1_epi32(0x00400000))));
}

/* What vpmaddwd multiplies limb `plane` of `planes` by. */
INLINE __m256i weight_of(int planes, int plane)
{
    return _mm256_set1_epi16((short)(plane == 0 ? 1 : planes == 2 ? 256 : plane == 1 ? 128 : 16384));
}

/* ---- one to three inputs ---- */

/* 16 bytes of eight rows -> eight vectors of 2w + 12, lane n holding row n: quads of even elements in 0 .. 3, of odd ones in
 * 4 .. 7. */
INLINE void decode_panel(const uint8_t *const rows[8], int64_t at, __m256i out[8])
{
    const __m256i nibble = _mm256_set1_epi8(15), values = table();
    __m256i x[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        x[i] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(rows[i] + at))),
            _mm_loadu_si128((const __m128i *)(const void *)(rows[i + 4] + at)), 1);
    __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
    __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi64(a, c);
    x[1] = _mm256_unpackhi_epi64(a, c);
    x[2] = _mm256_unpacklo_epi64(b, d);
    x[3] = _mm256_unpackhi_epi64(b, d);
    UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_shuffle_epi8(values, _mm256_and_si256(x[i], nibble));
        out[i + 4] = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(x[i], 4), nibble));
    }
}

/* Exact sums of eight rows over a block, each limb's in turn. */
INLINE __m256i sum_panel(int planes, const __m256i w[8], const int8_t *limbs, const int32_t *corrections)
{
    __m256i total = _mm256_setzero_si256();
    UNROLL
    for (int p = 0; p < planes; p++) {
        __m256i sum = di_broadcast(corrections + p);
        UNROLL
        for (int q = 0; q < 8; q++)
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[q], di_broadcast(limbs + 32 * p + 4 * q)));
        sum = _mm256_madd_epi16(sum, weight_of(planes, p));
        total = p == 0 ? sum : _mm256_add_epi32(total, sum);
    }
    return total;
}

INLINE __m256 add_block(bool int8, const struct di_host_input *in, int32_t b, const __m256i w[8], __m256 scale,
                        __m256 acc)
{
    __m256i sum;
    float unit = 0x1p-7F;
    if (int8) {
        sum = sum_panel(1, w, in->limbs + 32 * b, in->corrections + b);
        unit = 0.5F;
    } else {
        const int8_t *limbs = in->limbs + (int64_t)b * DI_PLANES * 32;
        const int32_t *corrections = in->corrections + (int64_t)b * DI_PLANES;
        if (in->wide[b] != 0) {
            sum = sum_panel(3, w, limbs + 32 * DI_WIDE, corrections + DI_WIDE);
            unit = 0x1p-10F;
        } else {
            sum = sum_panel(2, w, limbs, corrections);
        }
    }
    __m256 p = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(unit));
    return _mm256_fmadd_ps(p, _mm256_mul_ps(_mm256_set1_ps(in->s[b]), scale), acc);
}

INLINE void store_rows(__m256 acc, int32_t count, float *out)
{
    float rows[8];
    if (count == 8) {
        _mm256_storeu_ps(out, acc);
        return;
    }
    _mm256_storeu_ps(rows, acc);
    memcpy(out, rows, (size_t)count * sizeof *rows);
}

/* `n` inputs, 1 to 3; rows begin .. begin + count, at most eight. */
INLINE void panel(bool int8, const struct di_weight *w, int64_t begin, int32_t count, const struct di_host_pair *pairs,
                  int n)
{
    int32_t blocks = w->cols / 32;
    const uint8_t *codes[8], *scales[8];
    __m256 acc[3] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int r = 0; r < 8; r++) {
        int64_t row = begin + (r < count ? r : count - 1);
        codes[r] = (const uint8_t *)w->data + row * (w->cols / 2);
        scales[r] = w->scale + row * blocks;
    }
    const char *next = (const char *)codes[0] + 4 * (int64_t)w->cols; /* the panel behind this one lies right there */
    for (int32_t first = 0; first < blocks; first += 8) {
        uint8_t table_of_codes[64];
        di_r1_scales(scales, first, blocks, table_of_codes);
        int32_t last = first + 8 < blocks ? first + 8 : blocks;
        for (int32_t b = first; b < last; b++) {
            __m256i v[8];
            _mm_prefetch(next + 128 * (int64_t)b, _MM_HINT_T0);
            _mm_prefetch(next + 128 * (int64_t)b + 64, _MM_HINT_T0);
            decode_panel(codes, 16 * (int64_t)b, v);
            __m256 scale = scales_of(_mm256_cvtepu8_epi32(
                _mm_loadl_epi64((const __m128i *)(const void *)(table_of_codes + 8 * (b - first)))));
            UNROLL
            for (int i = 0; i < n; i++)
                acc[i] = add_block(int8, pairs[i].in, b, v, scale, acc[i]);
        }
    }
    for (int i = 0; i < n; i++)
        store_rows(acc[i], count, pairs[i].out + begin);
}

#define PANELS(name, int8, n)                                                                                        \
    TARGET static void name(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs) \
    {                                                                                                                \
        for (int64_t row = begin; row < end; row += 8)                                                               \
            panel((int8), w, row, end - row < 8 ? (int32_t)(end - row) : 8, pairs, (n));                             \
    }
PANELS(native_1, false, 1)
PANELS(native_2, false, 2)
PANELS(native_3, false, 3)
PANELS(int8_1, true, 1)
PANELS(int8_2, true, 2)
PANELS(int8_3, true, 3)

/* ---- four inputs and more ---- */

/* Dword j of row i -> dword i of row j. */
INLINE void transpose(__m256i r[8])
{
    __m256i t[8], u[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

/* Gathers block b of up to 16 inputs; missing ones are zeros. */
TARGET static void fill_slab(bool int8, const struct di_host_pair *pairs, int32_t n, int32_t b, struct di_r1_slab *slab)
{
    bool wide = false;
    for (int32_t i = 0; i < n; i++)
        wide |= pairs[i].in->wide[b] != 0;
    int32_t planes = int8 ? 1 : wide ? 3 : 2, stride = int8 ? 1 : DI_PLANES, first = wide ? DI_WIDE : DI_NARROW;
    slab->planes = planes;
    float scales[DI_R1_WIDTH] = {0};
    for (int32_t i = 0; i < n; i++)
        scales[i] = pairs[i].in->s[b];
    memcpy(slab->scales, scales, sizeof scales);
    for (int32_t p = 0; p < planes; p++) {
        int64_t at = (int64_t)b * stride + first + p;
        int32_t corrections[DI_R1_WIDTH] = {0};
        for (int32_t v = 0; v < 2; v++) {
            __m256i r[8];
            UNROLL
            for (int32_t i = 0; i < 8; i++) {
                bool there = 8 * v + i < n;
                r[i] = there ? di_load(pairs[8 * v + i].in->limbs + 32 * at) : _mm256_setzero_si256();
                corrections[8 * v + i] = there ? pairs[8 * v + i].in->corrections[at] : 0;
            }
            transpose(r);
            UNROLL
            for (int q = 0; q < 8; q++)
                slab->limbs[p][q][v] = r[q];
        }
        memcpy(slab->corrections[p], corrections, sizeof corrections);
    }
}

/* 32 rows x up to 8 blocks of 2w + 12, in the order of inputs, and their scales. */
TARGET static void decode_rows(const struct di_weight *w, int64_t row, int32_t rows, int32_t first, int32_t blocks,
                               uint8_t *out, float *scales)
{
    const __m256i nibble = _mm256_set1_epi8(15), values = table(), shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    for (int32_t r = 0; r < DI_R1_ROWS; r++) {
        int64_t from = row + (r < rows ? r : rows - 1);
        const uint8_t *codes = (const uint8_t *)w->data + from * (w->cols / 2) + 16 * (int64_t)first;
        for (int32_t b = 0; b < blocks; b++) {
            __m256i both = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * b)));
            both = _mm256_and_si256(_mm256_srlv_epi32(both, shift), nibble);
            _mm256_storeu_si256((__m256i *)(void *)(out + (r * DI_R1_BLOCKS + b) * 32),
                                _mm256_shuffle_epi8(values, both));
        }
        uint8_t codes_of_scales[8] = {0};
        memcpy(codes_of_scales, w->scale + from * (w->cols / 32) + first, (size_t)blocks);
        __m128i eight = _mm_loadl_epi64((const __m128i *)(const void *)codes_of_scales);
        _mm256_storeu_ps(scales + r * DI_R1_BLOCKS, scales_of(_mm256_cvtepu8_epi32(eight)));
    }
}

/* Sums of one limb for 4 rows x 2 vectors of inputs, or 8 rows x 1; w: the rows' bytes of this block, 32 x DI_R1_BLOCKS apart. */
INLINE void limb_tile(int vectors, const uint8_t *w, const struct di_r1_slab *slab, int plane, __m256i s[8])
{
    enum { STRIDE = 32 * DI_R1_BLOCKS };
    __m256i s0 = slab->corrections[plane][0], s1 = slab->corrections[plane][vectors - 1];
    __m256i s2 = s0, s3 = s1, s4 = s0, s5 = s1, s6 = s0, s7 = s1;
    const uint8_t *w4 = w + 4 * STRIDE;
#define ADD(sum, byte, a) (sum) = _mm256_add_epi16((sum), _mm256_maddubs_epi16((byte), (a)))
    UNROLL
    for (int q = 0; q < 8; q++) {
        __m256i a = slab->limbs[plane][q][0], c;
        if (vectors == 2) {
            __m256i b = slab->limbs[plane][q][1];
            c = di_broadcast(w + 4 * q);
            ADD(s0, c, a);
            ADD(s1, c, b);
            c = di_broadcast(w + STRIDE + 4 * q);
            ADD(s2, c, a);
            ADD(s3, c, b);
            c = di_broadcast(w + 2 * STRIDE + 4 * q);
            ADD(s4, c, a);
            ADD(s5, c, b);
            c = di_broadcast(w + 3 * STRIDE + 4 * q);
            ADD(s6, c, a);
            ADD(s7, c, b);
        } else {
            ADD(s0, di_broadcast(w + 4 * q), a);
            ADD(s1, di_broadcast(w + STRIDE + 4 * q), a);
            ADD(s2, di_broadcast(w + 2 * STRIDE + 4 * q), a);
            ADD(s3, di_broadcast(w + 3 * STRIDE + 4 * q), a);
            ADD(s4, di_broadcast(w4 + 4 * q), a);
            ADD(s5, di_broadcast(w4 + STRIDE + 4 * q), a);
            ADD(s6, di_broadcast(w4 + 2 * STRIDE + 4 * q), a);
            ADD(s7, di_broadcast(w4 + 3 * STRIDE + 4 * q), a);
        }
        KEEP_ORDER(s0, s1, s2, s3, s4, s5, s6, s7);
    }
#undef ADD
    s[0] = s0;
    s[1] = s1;
    s[2] = s2;
    s[3] = s3;
    s[4] = s4;
    s[5] = s5;
    s[6] = s6;
    s[7] = s7;
}

/* One block of 4 rows x 16 inputs, or 8 x 8, into acc[row][16]; scales: of the rows, DI_R1_BLOCKS apart. */
INLINE void block_tile(int vectors, int planes, float unit, const uint8_t *w, const struct di_r1_slab *slab,
                       const float *scales, float *acc)
{
    __m256i total[8], limb[8];
    UNROLL
    for (int p = 0; p < planes; p++) {
        limb_tile(vectors, w, slab, p, p == 0 ? total : limb);
        UNROLL
        for (int i = 0; i < 8; i++)
            total[i] = p == 0 ? _mm256_madd_epi16(total[i], weight_of(planes, 0))
                              : _mm256_add_epi32(total[i], _mm256_madd_epi16(limb[i], weight_of(planes, p)));
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        int row = i / vectors, vector = i % vectors;
        float *at = acc + row * DI_R1_WIDTH + 8 * vector;
        __m256 p = _mm256_mul_ps(_mm256_cvtepi32_ps(total[i]), _mm256_set1_ps(unit));
        __m256 s = _mm256_mul_ps(slab->scales[vector], _mm256_set1_ps(scales[row * DI_R1_BLOCKS]));
        _mm256_storeu_ps(at, _mm256_fmadd_ps(p, s, _mm256_loadu_ps(at)));
    }
}

/* 4 rows and up to 16 inputs, or 8 and up to 8. */
INLINE void tile(int vectors, bool int8, const uint8_t *w, const struct di_r1_slab *slabs, const float *scales,
                 int32_t blocks, float *acc)
{
    for (int32_t b = 0; b < blocks; b++) {
        if (int8)
            block_tile(vectors, 1, 0.5F, w + 32 * b, slabs + b, scales + b, acc);
        else if (slabs[b].planes == 2)
            block_tile(vectors, 2, 0x1p-7F, w + 32 * b, slabs + b, scales + b, acc);
        else
            block_tile(vectors, 3, 0x1p-10F, w + 32 * b, slabs + b, scales + b, acc);
    }
}

TARGET static void tile_8(bool int8, const uint8_t *w, const struct di_r1_slab *slabs, const float *scales,
                          int32_t blocks, float *acc)
{
    tile(1, int8, w, slabs, scales, blocks, acc);
}

TARGET static void tile_16(bool int8, const uint8_t *w, const struct di_r1_slab *slabs, const float *scales,
                           int32_t blocks, float *acc)
{
    tile(2, int8, w, slabs, scales, blocks, acc);
}

TARGET static void tiles(bool int8, int32_t n, const struct di_r1_work *k, int32_t group,
                         const struct di_r1_slab *slabs, int32_t rows, int32_t blocks)
{
    int32_t step = n <= 8 ? 8 : 4;
    for (int32_t r = 0; r < rows; r += step)
        (n <= 8 ? tile_8 : tile_16)(int8, k->weights + r * DI_R1_BLOCKS * 32, slabs, k->scales + r * DI_R1_BLOCKS,
                                    blocks, k->acc + (group * DI_R1_ROWS + r) * DI_R1_WIDTH);
}

/* At most DI_R1_MOST inputs. */
TARGET static void many(bool int8, const struct di_weight *w, int64_t begin, int64_t end,
                        const struct di_host_pair *pairs, int32_t n, const struct di_r1_work *k,
                        di_r1_tiles_fn run_tiles)
{
    int32_t blocks = w->cols / 32, groups = (n + DI_R1_WIDTH - 1) / DI_R1_WIDTH;
    for (int32_t g = 0; g < groups; g++)
        for (int32_t b = 0; b < blocks; b++)
            fill_slab(int8, pairs + g * DI_R1_WIDTH,
                      n - g * DI_R1_WIDTH < DI_R1_WIDTH ? n - g * DI_R1_WIDTH : DI_R1_WIDTH, b,
                      &k->slabs[(int64_t)g * blocks + b]);
    for (int64_t row = begin; row < end; row += DI_R1_ROWS) {
        int32_t rows = end - row < DI_R1_ROWS ? (int32_t)(end - row) : DI_R1_ROWS;
        memset(k->acc, 0, (size_t)groups * DI_R1_ROWS * DI_R1_WIDTH * sizeof *k->acc);
        for (int32_t first = 0; first < blocks; first += DI_R1_BLOCKS) {
            int32_t here = blocks - first < DI_R1_BLOCKS ? blocks - first : DI_R1_BLOCKS;
            decode_rows(w, row, rows, first, here, k->weights, k->scales);
            for (int32_t g = 0; g < groups; g++)
                run_tiles(int8, n - g * DI_R1_WIDTH, k, g, &k->slabs[(int64_t)g * blocks + first], rows, here);
        }
        for (int32_t i = 0; i < n; i++)
            for (int32_t r = 0; r < rows; r++)
                pairs[i].out[row + r] = k->acc[(i / DI_R1_WIDTH * DI_R1_ROWS + r) * DI_R1_WIDTH + i % DI_R1_WIDTH];
    }
}

static size_t carve(int32_t cols, int32_t n, unsigned char *memory, struct di_r1_work *k)
{
    size_t inputs = n < DI_R1_MOST ? (size_t)n : DI_R1_MOST, groups = (inputs + DI_R1_WIDTH - 1) / DI_R1_WIDTH;
    size_t slabs = groups * (size_t)(cols / 32) * sizeof(struct di_r1_slab);
    size_t acc = groups * DI_R1_ROWS * DI_R1_WIDTH * sizeof(float), weights = DI_R1_ROWS * DI_R1_BLOCKS * 32;
    if (k != NULL) {
        k->slabs = (void *)memory;
        k->acc = (void *)(memory + slabs);
        k->weights = memory + slabs + acc;
        k->scales = (void *)(memory + slabs + acc + weights);
    }
    return slabs + acc + weights + DI_R1_ROWS * DI_R1_BLOCKS * sizeof(float);
}

size_t di_avx2_bytes_r1(int32_t cols, int32_t n)
{
    return carve(cols, n, NULL, NULL);
}

void di_r1_many(bool int8, const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs,
                int32_t n, void *scratch, di_r1_tiles_fn run_tiles)
{
    struct di_r1_work k;
    carve(w->cols, n, scratch, &k);
    for (int32_t i = 0; i < n; i += DI_R1_MOST)
        many(int8, w, begin, end, pairs + i, n - i < DI_R1_MOST ? n - i : DI_R1_MOST, &k, run_tiles);
}

void di_avx2_products_r1(bool int8, const struct di_weight *w, int64_t begin, int64_t end,
                         const struct di_host_pair *pairs, int32_t n, void *scratch)
{
    static void (*const panels[2][3])(const struct di_weight *, int64_t, int64_t, const struct di_host_pair *) = {
        {native_1, native_2, native_3}, {int8_1, int8_2, int8_3}};
    if (n <= 3)
        panels[int8][n - 1](w, begin, end, pairs);
    else
        di_r1_many(int8, w, begin, end, pairs, n, scratch, tiles);
}
#endif
