#include "numerics/quant.h"

#include <math.h>
#include <string.h>

#include "numerics/codes.h"

static float max_magnitude(const float *x, int32_t n)
{
    float amax = 0.0F;
    for (int32_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (magnitude > amax)
            amax = magnitude;
    }
    return amax;
}

/* e8m0 code of 2^ceil(log2 t), exact by looking at the bits; t is positive and normal. */
static uint8_t ceil_pow2_code(float t)
{
    uint32_t bits = di_f32_bits(t);
    return (uint8_t)((bits >> 23) + ((bits & 0x7fffffU) != 0));
}

static float clamp(float x, float limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

void di_act_quant8(const float *x, int32_t n, uint8_t *codes, uint8_t *scales)
{
    const float inverse = di_f32_from_bits(0x3b124925U); /* fp32(1/448) */
    for (int32_t b = 0; b < n / 32; b++) {
        const float *block = x + b * 32;
        float amax = max_magnitude(block, 32);
        scales[b] = ceil_pow2_code((amax > 1e-4F ? amax : 1e-4F) * inverse);
        float scale = di_e8m0_to_f32(scales[b]);
        for (int32_t i = 0; i < 32; i++)
            codes[b * 32 + i] = di_e4m3_from_f32(clamp(block[i] / scale, 448.0F));
    }
}

void di_act_quant_int8(const float *x, int32_t n, int32_t *codes, float *scales)
{
    for (int32_t b = 0; b < n / 32; b++) {
        const float *block = x + b * 32;
        float amax = 0x1p-100F, finite = 0.0F; /* finite: 0, or NaN */
        for (int32_t i = 0; i < 32; i++) {
            amax = fabsf(block[i]) > amax ? fabsf(block[i]) : amax;
            finite += block[i] * 0.0F;
        }
        scales[b] = amax / 127.0F + finite;
        for (int32_t i = 0; i < 32; i++)
            codes[b * 32 + i] = finite == 0.0F ? (int32_t)nearbyintf(block[i] * (127.0F / amax)) : 0;
    }
}

static void pack_fp4(const float *x, int32_t n, float scale, uint8_t *data)
{
    for (int32_t i = 0; i < n; i += 2) {
        uint8_t low = di_e2m1_from_f32(clamp(x[i] / scale, 6.0F));
        uint8_t high = di_e2m1_from_f32(clamp(x[i + 1] / scale, 6.0F));
        data[i / 2] = (uint8_t)(low | high << 4);
    }
}

static void unpack_fp4(const uint8_t *data, int32_t n, float scale, float *x)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = di_e2m1_to_f32((uint8_t)(data[i / 2] >> (i % 2 * 4)) & 15U) * scale;
}

static const struct {
    int32_t bits, scale_block; /* 0: no scales */
} kv_formats[DI_KV_FORMAT_COUNT] = {
    [DI_KV_F32] = {32, 0},
    [DI_KV_FP8] = {8, 32},
    [DI_KV_FP4_E4M3] = {4, 16},
    [DI_KV_FP4_E8M0] = {4, 32},
};

int32_t di_kv_data_bytes(enum di_kv_format format, int32_t dim)
{
    return dim * kv_formats[format].bits / 8;
}

int32_t di_kv_scale_bytes(enum di_kv_format format, int32_t dim)
{
    return kv_formats[format].scale_block == 0 ? 0 : dim / kv_formats[format].scale_block;
}

static float fp4_e4m3_scale(const float *x, uint8_t *code)
{
    float amax = max_magnitude(x, 16);
    const float least = 6.0F * 0x1p-9F; /* so that the scale is at least the smallest e4m3 */
    *code = di_e4m3_from_f32((amax > least ? amax : least) / 6.0F);
    return di_e4m3_table()[*code];
}

static float fp4_e8m0_scale(const float *x, uint8_t *code)
{
    float amax = max_magnitude(x, 32);
    const float least = 6.0F * 0x1p-126F;
    *code = ceil_pow2_code((amax > least ? amax : least) * di_f32_from_bits(0x3e2aaaabU)); /* fp32(1/6) */
    return di_e8m0_to_f32(*code);
}

void di_kv_pack(enum di_kv_format format, const float *x, int32_t dim, uint8_t *data, uint8_t *scale)
{
    switch (format) {
    case DI_KV_F32:
    case DI_KV_FORMAT_COUNT:
        memcpy(data, x, (size_t)dim * sizeof *x);
        break;
    case DI_KV_FP8:
        di_act_quant8(x, dim, data, scale);
        break;
    case DI_KV_FP4_E4M3:
        for (int32_t b = 0; b < dim / 16; b++)
            pack_fp4(x + b * 16, 16, fp4_e4m3_scale(x + b * 16, &scale[b]), data + b * 8);
        break;
    case DI_KV_FP4_E8M0:
        for (int32_t b = 0; b < dim / 32; b++)
            pack_fp4(x + b * 32, 32, fp4_e8m0_scale(x + b * 32, &scale[b]), data + b * 16);
        break;
    }
}

void di_kv_unpack(enum di_kv_format format, const uint8_t *data, const uint8_t *scale, int32_t dim, float *x)
{
    const float *fp8 = di_e4m3_table();
    switch (format) {
    case DI_KV_F32:
    case DI_KV_FORMAT_COUNT:
        memcpy(x, data, (size_t)dim * sizeof *x);
        break;
    case DI_KV_FP8:
        for (int32_t i = 0; i < dim; i++)
            x[i] = fp8[data[i]] * di_e8m0_to_f32(scale[i / 32]);
        break;
    case DI_KV_FP4_E4M3:
        for (int32_t b = 0; b < dim / 16; b++)
            unpack_fp4(data + b * 8, 16, fp8[scale[b]], x + b * 16);
        break;
    case DI_KV_FP4_E8M0:
        for (int32_t b = 0; b < dim / 32; b++)
            unpack_fp4(data + b * 16, 32, di_e8m0_to_f32(scale[b]), x + b * 32);
        break;
    }
}

void di_kv_fakequant(enum di_kv_format format, float *x, int32_t dim)
{
    uint8_t data[32 * sizeof(float)], scale[2];
    if (format == DI_KV_F32)
        return;
    for (int32_t b = 0; b < dim; b += 32) { /* every scale block divides 32 */
        di_kv_pack(format, x + b, 32, data, scale);
        di_kv_unpack(format, data, scale, 32, x + b);
    }
}
