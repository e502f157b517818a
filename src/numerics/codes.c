#include "numerics/codes.h"

#include <math.h>

/* The 256 values of e4m3fn in code order: subnormals m * 2^-9, then rows of one exponent, (8 + m) * u. */
#define E4M3_SUB(s) \
    s 0.0F, s 1 * 0x1p-9F, s 2 * 0x1p-9F, s 3 * 0x1p-9F, s 4 * 0x1p-9F, s 5 * 0x1p-9F, s 6 * 0x1p-9F, s 7 * 0x1p-9F
#define E4M3_ROW(s, u) s 8 * u, s 9 * u, s 10 * u, s 11 * u, s 12 * u, s 13 * u, s 14 * u, s 15 * u
#define E4M3_HALF(s)                                                                                                  \
    E4M3_SUB(s), E4M3_ROW(s, 0x1p-9F), E4M3_ROW(s, 0x1p-8F), E4M3_ROW(s, 0x1p-7F), E4M3_ROW(s, 0x1p-6F),              \
        E4M3_ROW(s, 0x1p-5F), E4M3_ROW(s, 0x1p-4F), E4M3_ROW(s, 0x1p-3F), E4M3_ROW(s, 0x1p-2F), E4M3_ROW(s, 0x1p-1F), \
        E4M3_ROW(s, 0x1p0F), E4M3_ROW(s, 0x1p1F), E4M3_ROW(s, 0x1p2F), E4M3_ROW(s, 0x1p3F), E4M3_ROW(s, 0x1p4F),      \
        s 8 * 0x1p5F, s 9 * 0x1p5F, s 10 * 0x1p5F, s 11 * 0x1p5F, s 12 * 0x1p5F, s 13 * 0x1p5F, s 14 * 0x1p5F, NAN

static const float e4m3_values[256] = {E4M3_HALF(+), E4M3_HALF(-)};

const float *di_e4m3_table(void)
{
    return e4m3_values;
}

uint8_t di_e4m3_from_f32(float value)
{
    uint32_t bits = di_f32_bits(value);
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80U);
    uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U)
        return sign | 0x7fU;
    float x = di_f32_from_bits(magnitude);
    if (x >= 448.0F)
        return sign | 0x7eU;
    if (x < 0x1p-6F) /* subnormal: multiples of 2^-9; adding 2^14 leaves exactly those bits, rounded to even */
        return sign | (uint8_t)(di_f32_bits(x + 0x1p14F) - di_f32_bits(0x1p14F));
    uint32_t rounded = magnitude + 0x7ffffU + (magnitude >> 20 & 1U); /* keep 3 bits of mantissa */
    return sign | (uint8_t)((rounded >> 20) - (120U << 3));
}

uint8_t di_e2m1_from_f32(float value)
{
    /* Boundaries between neighbours; a tie goes to the even code (17.6). NaN has no code: 0. */
    float x = fabsf(value);
    uint8_t code = 0;
    if (x > 5.0F)
        code = 7;
    else if (x >= 3.5F)
        code = 6;
    else if (x > 2.5F)
        code = 5;
    else if (x >= 1.75F)
        code = 4;
    else if (x > 1.25F)
        code = 3;
    else if (x >= 0.75F)
        code = 2;
    else if (x > 0.25F)
        code = 1;
    return (uint8_t)(di_f32_bits(value) >> 28 & 8U) | code;
}
