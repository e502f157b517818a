/* Order R1 for AVX-512 with VNNI: vpdpbusd multiplies four bytes and adds them in 32 bits, so that limbs need no room to spare.
 * Sixteen rows of W a vector for one to three inputs, sixteen inputs for more; everything else as in avx2_r1.c.
 */
#include "backend/cpu/kernels.h"
#include "backend/cpu/r1.h"

#if defined(__x86_64__)

#undef TARGET
#undef INLINE
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* Keeps the loads of a quad where they stand, as in avx2_r1.c. */
#define KEEP_ORDER(a, b, c, d, e, f, g, h) \
    __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h) : : "memory")

/* Both 16-bit halves of what the sums start from. */
INLINE __m512i start_of(int32_t correction)
{
    return _mm512_set1_epi32((int16_t)correction + (int16_t)(correction >> 16));
}

/* e8m0 codes in sixteen lanes -> floats; 0 is 2^-127, 255 is NaN. */
INLINE __m512 scales_of(__m512i codes)
{
    __mmask16 ends = _mm512_cmpeq_epi32_mask(codes, _mm512_setzero_si512()) |
                     _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
    __m512i bits = _mm512_slli_epi32(codes, 23);
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, ends, bits, _mm512_set1_epi32(0x00400000)));
}

/* The limbs' sums -> the block's: low + 256 high, or low + 128 middle + 16384 high. */
INLINE __m512i join(int planes, __m512i low, __m512i middle, __m512i high)
{
    if (planes == 1)
        return low;
    if (planes == 2)
        return _mm512_add_epi32(low, _mm512_slli_epi32(middle, 8));
    return _mm512_add_epi32(low, _mm512_slli_epi32(_mm512_add_epi32(middle, _mm512_slli_epi32(high, 7)), 7));
}

/* 16 bytes of sixteen rows -> eight vectors of 2w + 12, lane n holding row n; order as in avx2_r1.c. */
INLINE void decode_panel(const uint8_t *const rows[16], int64_t at, __m512i out[8])
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i values = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    __m512i x[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8_t *const *r = rows + i;
        x[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(r[0] + at)));
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(const void *)(r[4] + at)), 1);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(const void *)(r[8] + at)), 2);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(const void *)(r[12] + at)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    __m512i c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi64(a, c);
    x[1] = _mm512_unpackhi_epi64(a, c);
    x[2] = _mm512_unpacklo_epi64(b, d);
    x[3] = _mm512_unpackhi_epi64(b, d);
    UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = _mm512_shuffle_epi8(values, _mm512_and_si512(x[i], nibble));
        out[i + 4] = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srli_epi16(x[i], 4), nibble));
    }
}

INLINE __m512i quad_of(const int8_t *limbs)
{
    int32_t v;
    memcpy(&v, limbs, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE __m512i sum_panel(int planes, const __m512i w[8], const int8_t *limbs, const int32_t *corrections)
{
    __m512i sums[3] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    UNROLL
    for (int p = 0; p < planes; p++) {
        __m512i even = start_of(corrections[p]), odd = _mm512_setzero_si512();
        UNROLL
        for (int q = 0; q < 8; q += 2) {
            even = _mm512_dpbusd_epi32(even, w[q], quad_of(limbs + 32 * p + 4 * q));
            odd = _mm512_dpbusd_epi32(odd, w[q + 1], quad_of(limbs + 32 * p + 4 * q + 4));
        }
        sums[p] = _mm512_add_epi32(even, odd);
    }
    return join(planes, sums[0], sums[1], sums[2]);
}

INLINE __m512 add_block(bool int8, const struct di_host_input *in, int32_t b, const __m512i w[8], __m512 scale,
                        __m512 acc)
{
    __m512i sum;
    float unit = 0x1p-7F;
    const int8_t *limbs = in->limbs + (int64_t)b * (int8 ? 1 : DI_PLANES) * 32;
    const int32_t *corrections = in->corrections + (int64_t)b * (int8 ? 1 : DI_PLANES);
    if (int8) {
        sum = sum_panel(1, w, limbs, corrections);
        unit = 0.5F;
    } else if (in->wide[b] != 0) {
        sum = sum_panel(3, w, limbs + 32 * DI_WIDE, corrections + DI_WIDE);
        unit = 0x1p-10F;
    } else {
        sum = sum_panel(2, w, limbs, corrections);
    }
    __m512 p = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(unit));
    return _mm512_fmadd_ps(p, _mm512_mul_ps(_mm512_set1_ps(in->s[b]), scale), acc);
}

/* `n` inputs, 1 to 3; rows begin .. begin + count, at most sixteen. */
INLINE void panel(bool int8, const struct di_weight *w, int64_t begin, int32_t count, const struct di_host_pair *pairs,
                  int n)
{
    int32_t blocks = w->cols / 32;
    const uint8_t *codes[16], *scales[16];
    __m512 acc[3] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int r = 0; r < 16; r++) {
        int64_t row = begin + (r < count ? r : count - 1);
        codes[r] = (const uint8_t *)w->data + row * (w->cols / 2);
        scales[r] = w->scale + row * blocks;
    }
    const char *next = (const char *)codes[0] + 8 * (int64_t)w->cols; /* the panel behind this one lies right there */
    for (int32_t first = 0; first < blocks; first += 8) {
        uint8_t low[64], high[64];
        di_r1_scales(scales, first, blocks, low);
        di_r1_scales(scales + 8, first, blocks, high);
        int32_t last = first + 8 < blocks ? first + 8 : blocks;
        for (int32_t b = first; b < last; b++) {
            __m512i v[8];
            UNROLL
            for (int line = 0; line < 4; line++)
                _mm_prefetch(next + 256 * (int64_t)b + 64 * line, _MM_HINT_T0);
            decode_panel(codes, 16 * (int64_t)b, v);
            __m128i both = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)(low + 8 * (b - first))),
                                              _mm_loadl_epi64((const __m128i *)(const void *)(high + 8 * (b - first))));
            __m512 scale = scales_of(_mm512_cvtepu8_epi32(both));
            UNROLL
            for (int i = 0; i < n; i++)
                acc[i] = add_block(int8, pairs[i].in, b, v, scale, acc[i]);
        }
    }
    for (int i = 0; i < n; i++)
        _mm512_mask_storeu_ps(pairs[i].out + begin, (__mmask16)((1U << count) - 1), acc[i]);
}

#define PANELS(name, int8, n)                                                                                        \
    TARGET static void name(const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs) \
    {                                                                                                                \
        for (int64_t row = begin; row < end; row += 16)                                                              \
            panel((int8), w, row, end - row < 16 ? (int32_t)(end - row) : 16, pairs, (n));                           \
    }
PANELS(native_1, false, 1)
PANELS(native_2, false, 2)
PANELS(native_3, false, 3)
PANELS(int8_1, true, 1)
PANELS(int8_2, true, 2)
PANELS(int8_3, true, 3)

/* Sums of one limb for 8 rows x 16 inputs; w: the rows' bytes of this block, 32 x BLOCKS apart. */
INLINE void limb_tile(const uint8_t *w, const struct di_r1_slab *slab, int plane, __m512i s[8])
{
    enum { STRIDE = 32 * DI_R1_BLOCKS };
    __m512i start = _mm512_madd_epi16(_mm512_loadu_si512(slab->corrections[plane]), _mm512_set1_epi16(1));
    UNROLL
    for (int r = 0; r < 8; r++)
        s[r] = start;
    UNROLL
    for (int q = 0; q < 8; q++) {
        __m512i a = _mm512_loadu_si512(slab->limbs[plane][q]);
        UNROLL
        for (int r = 0; r < 8; r++)
            s[r] = _mm512_dpbusd_epi32(s[r], quad_of((const int8_t *)w + r * STRIDE + 4 * q), a);
        KEEP_ORDER(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
    }
}

/* One block of 8 rows x 16 inputs into acc[row][16]. */
INLINE void block_tile(int planes, float unit, const uint8_t *w, const struct di_r1_slab *slab, const float *scales,
                       float *acc)
{
    __m512i s[3][8] = {{_mm512_setzero_si512()}};
    UNROLL
    for (int p = 0; p < planes; p++)
        limb_tile(w, slab, p, s[p]);
    __m512 inputs = _mm512_loadu_ps(slab->scales);
    UNROLL
    for (int r = 0; r < 8; r++) {
        float *at = acc + r * DI_R1_WIDTH;
        __m512 p = _mm512_mul_ps(_mm512_cvtepi32_ps(join(planes, s[0][r], s[1][r], s[2][r])), _mm512_set1_ps(unit));
        __m512 scale = _mm512_mul_ps(inputs, _mm512_set1_ps(scales[r * DI_R1_BLOCKS]));
        _mm512_storeu_ps(at, _mm512_fmadd_ps(p, scale, _mm512_loadu_ps(at)));
    }
}

TARGET static void tiles(bool int8, int32_t n, const struct di_r1_work *k, int32_t group,
                         const struct di_r1_slab *slabs, int32_t rows, int32_t blocks)
{
    (void)n;
    for (int32_t r = 0; r < rows; r += 8)
        for (int32_t b = 0; b < blocks; b++) {
            const uint8_t *w = k->weights + (r * DI_R1_BLOCKS + b) * 32;
            const float *scales = k->scales + r * DI_R1_BLOCKS + b;
            float *acc = k->acc + (group * DI_R1_ROWS + r) * DI_R1_WIDTH;
            if (int8)
                block_tile(1, 0.5F, w, slabs + b, scales, acc);
            else if (slabs[b].planes == 2)
                block_tile(2, 0x1p-7F, w, slabs + b, scales, acc);
            else
                block_tile(3, 0x1p-10F, w, slabs + b, scales, acc);
        }
}

static void products(enum di_host_rule rule, const struct di_weight *w, int64_t begin, int64_t end,
                     const struct di_host_pair *pairs, int32_t n, void *scratch)
{
    static void (*const panels[2][3])(const struct di_weight *, int64_t, int64_t, const struct di_host_pair *) = {
        {native_1, native_2, native_3}, {int8_1, int8_2, int8_3}};
    bool int8 = rule == DI_RULE_R1_INT8;
    if (w->cols % 32 != 0 || (!int8 && rule != DI_RULE_R1))
        di_cpu_avx2_kernels.products(rule, w, begin, end, pairs, n, scratch);
    else if (n <= 3 && (end - begin) % 16 != 0 && (end - begin) % 16 <= 8) { /* half a panel is AVX2's */
        int64_t middle = end - (end - begin) % 16;
        panels[int8][n - 1](w, begin, middle, pairs);
        di_avx2_products_r1(int8, w, middle, end, pairs, n, scratch);
    } else if (n <= 3)
        panels[int8][n - 1](w, begin, end, pairs);
    else
        di_r1_many(int8, w, begin, end, pairs, n, scratch, tiles);
}

const struct di_host_kernels di_cpu_avx512_kernels = {
    .name = "cpu-avx512",
    .dot = di_avx2_dot,
    .axpy = di_avx2_axpy,
    .prepare = di_avx2_prepare_any,
    .products = products,
    .product_bytes = di_avx2_product_bytes,
    .unpack_key = di_avx2_unpack_key,
    .scores = di_avx2_scores,
    .blend = di_avx2_blend,
    .restore = di_avx2_restore,
};
#endif
