/* numerics/codes.h - scalar conversions of the element formats: bf16, e4m3, e8m0, e2m1 (spec/model.md section 17).
 *
 * Every rounding is to nearest, ties to even. Encoders saturate, decoders are exact. These are the definitions: vector
 * kernels are tested against them.
 */
#ifndef DI_NUMERICS_CODES_H
#define DI_NUMERICS_CODES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t di_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float di_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float di_bf16_to_f32(uint16_t code)
{
    return di_f32_from_bits((uint32_t)code << 16);
}

/* NaN stays NaN (quiet). */
static inline uint16_t di_bf16_from_f32(float value)
{
    uint32_t bits = di_f32_bits(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return (uint16_t)((bits >> 16) | 0x40U);
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

static inline float di_bf16_round(float value)
{
    return di_bf16_to_f32(di_bf16_from_f32(value));
}

/* 2^(code - 127); code 0 is 2^-127 (subnormal), 255 is NaN (17.2). */
static inline float di_e8m0_to_f32(uint8_t code)
{
    if (code == 255)
        return di_f32_from_bits(0x7fc00000U);
    return di_f32_from_bits(code == 0 ? 0x00400000U : (uint32_t)code << 23);
}

/* e4m3fn: max 448 (0x7e), 0x7f/0xff NaN, no infinity (17.1). */
const float *di_e4m3_table(void); /* 256 values */
uint8_t di_e4m3_from_f32(float value);

/* e2m1: 0 .5 1 1.5 2 3 4 6, bit 3 the sign (17.2, 17.6). */
static inline float di_e2m1_to_f32(uint8_t code)
{
    static const float values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
    return values[code & 15U];
}
uint8_t di_e2m1_from_f32(float value);

#endif
