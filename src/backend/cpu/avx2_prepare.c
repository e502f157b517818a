/* Inputs of the AVX2 kernels: act_quant8 and int8 quantisation, the order of chains, limbs. */
#include "backend/cpu/avx2.h"
#include "numerics/quant.h"

#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "numerics/codes.h"

INLINE float largest_of(__m256 m)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

INLINE __m256 magnitude(__m256 v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v);
}

/* Magnitude of the largest of 32, infinity if any is not finite. */
INLINE float block_largest(const __m256 v[4])
{
    __m256 most = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
    UNROLL
    for (int j = 0; j < 4; j++) {
        __m256 m = magnitude(v[j]);
        most = _mm256_max_ps(most, m);
        odd = _mm256_or_ps(odd, _mm256_cmp_ps(m, _mm256_set1_ps(INFINITY), _CMP_NLT_UQ));
    }
    return _mm256_movemask_ps(odd) != 0 ? INFINITY : largest_of(most);
}

/* Magnitudes in units of the scale -> the nearest e4m3 values, ties to even. */
INLINE __m256 round_e4m3(__m256 v)
{
    const __m256 small = _mm256_set1_ps(0x1.8p14F); /* its last place is 2^-9, the step of subnormal codes */
    v = _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(448.0F)), _mm256_set1_ps(-448.0F));
    __m256i bits = _mm256_castps_si256(v), even = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7ffff)));
    __m256 normal = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(~0xfffff)));
    __m256 subnormal = _mm256_sub_ps(_mm256_add_ps(v, small), small);
    return _mm256_blendv_ps(normal, subnormal, _mm256_cmp_ps(magnitude(v), _mm256_set1_ps(0x1p-6F), _CMP_LT_OQ));
}

/* act_quant8 of a block whose magnitudes are finite: values on the e4m3 grid and their scale. */
INLINE float quantise_block(__m256 v[4], float largest)
{
    float t = (largest > 1e-4F ? largest : 1e-4F) * di_f32_from_bits(0x3b124925U); /* fp32(1/448) */
    uint32_t bits = di_f32_bits(t), code = (bits >> 23) + ((bits & 0x7fffffU) != 0);
    __m256 inverse = _mm256_set1_ps(di_f32_from_bits((254 - code) << 23));
    UNROLL
    for (int j = 0; j < 4; j++)
        v[j] = round_e4m3(_mm256_mul_ps(v[j], inverse));
    return di_f32_from_bits(code << 23);
}

/* 32 integers within a byte, in order -> the block's 16 even ones, then its odd ones. */
INLINE __m256i pack_limb(const __m256i v[4])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i split = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12,
                                           14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, order), split);
    return _mm256_permute4x64_epi64(bytes, 0xd8);
}

/* Kernels multiply by 2w + 12: what they have too much, in each 16-bit half of a quad of elements, negated. */
INLINE int32_t correction(__m256i limb)
{
    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(12), limb);
    __m128i s = _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    s = _mm_add_epi16(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi16(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), s));
}

/* Takes the low `bits` bits, signed, off each integer. */
INLINE __m256i take_limb(__m256i v[4], int bits)
{
    __m256i low[4];
    UNROLL
    for (int j = 0; j < 4; j++) {
        low[j] = _mm256_srai_epi32(_mm256_slli_epi32(v[j], 32 - bits), 32 - bits);
        v[j] = _mm256_srai_epi32(_mm256_sub_epi32(v[j], low[j]), bits);
    }
    return pack_limb(low);
}

INLINE void store_limb(int8_t *limbs, int32_t *corrections, __m256i limb)
{
    _mm256_storeu_si256((__m256i *)(void *)limbs, limb);
    *corrections = correction(limb);
}

struct room {
    float *s;
    int8_t *limbs;
    int32_t *corrections;
    uint8_t *wide;
};

static struct room carve(void *memory, int32_t blocks)
{
    struct room r = {.limbs = memory};
    r.corrections = (void *)(r.limbs + (int64_t)blocks * DI_PLANES * 32);
    r.s = (void *)(r.corrections + (int64_t)blocks * DI_PLANES);
    r.wide = (void *)(r.s + blocks);
    return r;
}

TARGET static struct di_host_input prepare_r1(const float *x, int32_t cols, void *memory)
{
    struct room r = carve(memory, cols / 32);
    for (int32_t b = 0; b < cols / 32; b++) {
        int8_t *limbs = r.limbs + (int64_t)b * DI_PLANES * 32;
        int32_t *corrections = r.corrections + (int64_t)b * DI_PLANES;
        __m256 v[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = _mm256_loadu_ps(x + 32 * b + 8 * j);
        float largest = block_largest(v);
        r.wide[b] = 0;
        if (!(largest < INFINITY)) { /* no integers stand for it: the scale carries the NaN */
            r.s[b] = NAN;
            memset(limbs, 0, DI_PLANES * 32);
            memset(corrections, 0, DI_PLANES * sizeof *corrections);
            continue;
        }
        r.s[b] = quantise_block(v, largest);
        __m256i q[4], narrow[4], rest = _mm256_setzero_si256();
        UNROLL
        for (int j = 0; j < 4; j++) {
            q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], _mm256_set1_ps(512.0F)));
            rest = _mm256_or_si256(rest, q[j]);
            narrow[j] = _mm256_srai_epi32(q[j], 3);
        }
        r.wide[b] = !_mm256_testz_si256(rest, _mm256_set1_epi32(7));
        store_limb(limbs, corrections, take_limb(narrow, 8));
        store_limb(limbs + 32, corrections + 1, pack_limb(narrow));
        store_limb(limbs + 64, corrections + 2, take_limb(q, 7));
        store_limb(limbs + 96, corrections + 3, take_limb(q, 7));
        store_limb(limbs + 128, corrections + 4, pack_limb(q));
    }
    return (struct di_host_input){.s = r.s, .limbs = r.limbs, .corrections = r.corrections, .wide = r.wide};
}

TARGET static struct di_host_input prepare_int8(const float *x, int32_t cols, void *memory)
{
    struct room r = carve(memory, cols / 32);
    for (int32_t b = 0; b < cols / 32; b++) {
        __m256 v[4];
        __m256i q[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = _mm256_loadu_ps(x + 32 * b + 8 * j);
        float largest = block_largest(v);
        bool finite = largest < INFINITY;
        largest = largest > 0x1p-100F ? largest : 0x1p-100F;
        r.s[b] = finite ? largest / 127.0F : NAN;
        __m256 inverse = _mm256_set1_ps(127.0F / largest);
        UNROLL
        for (int j = 0; j < 4; j++)
            q[j] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse)) : _mm256_setzero_si256();
        r.wide[b] = 0;
        store_limb(r.limbs + 32 * b, r.corrections + b, pack_limb(q));
    }
    return (struct di_host_input){.s = r.s, .limbs = r.limbs, .corrections = r.corrections, .wide = r.wide};
}

TARGET static struct di_host_input prepare_f8(bool quantise, const float *x, int32_t cols, float *out)
{
    float most = 0.0F;
    for (int32_t i = 0; i < cols; i += 32) {
        __m256 v[4];
        di_load_chains(x + i, v);
        float largest = block_largest(v);
        most = largest > most ? largest : most;
        if (quantise && largest < INFINITY) {
            __m256 scale = _mm256_set1_ps(quantise_block(v, largest));
            UNROLL
            for (int j = 0; j < 4; j++)
                v[j] = _mm256_mul_ps(v[j], scale);
        } else if (quantise) {
            float values[32];
            uint8_t codes[32], code;
            di_act_quant8(x + i, 32, codes, &code);
            for (int j = 0; j < 32; j++)
                values[j] = di_e4m3_table()[codes[j]] * di_e8m0_to_f32(code);
            di_load_chains(values, v);
        }
        UNROLL
        for (int j = 0; j < 4; j++)
            _mm256_storeu_ps(out + i + 8 * j, v[j]);
    }
    return (struct di_host_input){.f = out, .largest = most};
}

struct di_host_input di_avx2_prepare(enum di_host_rule rule, const float *x, int32_t cols, void *room)
{
    if (rule == DI_RULE_R1)
        return prepare_r1(x, cols, room);
    if (rule == DI_RULE_R1_INT8)
        return prepare_int8(x, cols, room);
    return prepare_f8(rule == DI_RULE_F8_QUANT, x, cols, room);
}
#endif
