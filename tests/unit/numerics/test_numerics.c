/* Codes, quantisers and packed rows against hand-computed values (spec/model.md section 17). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "numerics/codes.h"
#include "numerics/formats.h"
#include "numerics/quant.h"

static void same_float(float a, float b)
{
    assert_int_equal(di_f32_bits(a), di_f32_bits(b));
}

static void e4m3_decodes_by_definition(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        int e = code >> 3 & 15, m = code & 7;
        float value = e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10);
        if ((code & 0x7f) == 0x7f)
            assert_true(isnan(di_e4m3_table()[code]));
        else
            same_float(di_e4m3_table()[code], code & 0x80 ? -value : value);
    }
}

/* Every float between two neighbours goes to the nearer one, ties to the even code. */
static void e4m3_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        float low = di_e4m3_table()[code], high = di_e4m3_table()[code + 1], middle = (low + high) / 2;
        assert_int_equal(di_e4m3_from_f32(low), code);
        assert_int_equal(di_e4m3_from_f32(-low), code | 0x80);
        assert_int_equal(di_e4m3_from_f32(middle), code % 2 == 0 ? code : code + 1);
        assert_int_equal(di_e4m3_from_f32(nextafterf(middle, 0.0F)), code);
        assert_int_equal(di_e4m3_from_f32(nextafterf(middle, 1e9F)), code + 1);
    }
    assert_int_equal(di_e4m3_from_f32(448.0F), 0x7e);
    assert_int_equal(di_e4m3_from_f32(1e30F), 0x7e);
    assert_int_equal(di_e4m3_from_f32(-INFINITY), 0xfe);
    assert_int_equal(di_e4m3_from_f32(NAN) & 0x7f, 0x7f);
}

static void e2m1_ties_go_to_the_even_code(void **state)
{
    (void)state;
    const struct {
        float x;
        int code;
    } cases[] = {{0.0F, 0},  {0.25F, 0}, {0.26F, 1}, {0.74F, 1}, {0.75F, 2}, {1.25F, 2}, {1.26F, 3}, {1.74F, 3},
                 {1.75F, 4}, {2.5F, 4},  {2.51F, 5}, {3.49F, 5}, {3.5F, 6},  {5.0F, 6},  {5.01F, 7}, {6.0F, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(di_e2m1_from_f32(cases[i].x), cases[i].code);
        assert_int_equal(di_e2m1_from_f32(-cases[i].x), cases[i].code | 8);
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    same_float(di_bf16_round(1.0F + 0x1p-8F), 1.0F);               /* a tie, to the even side */
    same_float(di_bf16_round(1.0F + 3 * 0x1p-8F), 1.0F + 0x1p-6F); /* a tie, upwards */
    same_float(di_bf16_round(1.0F + 0x1.02p-8F), 1.0F + 0x1p-7F);
    assert_true(isnan(di_bf16_round(NAN)));
    assert_true(isinf(di_bf16_round(3.4e38F)));
}

static void e8m0_ends(void **state)
{
    (void)state;
    same_float(di_e8m0_to_f32(127), 1.0F);
    same_float(di_e8m0_to_f32(0), 0x1p-127F);
    same_float(di_e8m0_to_f32(254), 0x1p127F);
    assert_true(isnan(di_e8m0_to_f32(255)));
}

/* First values of two tensors of the released checkpoint (17, "probes"). */
static void released_bytes(void **state)
{
    (void)state;
    uint8_t fp8[32] = {0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5}, fp8_scale[1] = {0x73};
    uint8_t fp4[16] = {0xa0, 0xa8, 0xec, 0x4a, 0xad, 0xaf, 0x42, 0xaa}, fp4_scale[1] = {0x78};
    const float dense[8] = {-0.00390625F, 0.03515625F,  -0.0390625F, 0.0703125F,
                            0.03125F,     0.017578125F, -0.03125F,   -0.0126953125F};
    const float expert[16] = {0.0F,       -.0078125F, 0.0F,       -.0078125F, -.015625F, -.03125F,
                              -.0078125F, .015625F,   -.0234375F, -.0078125F, -.046875F, -.0078125F,
                              .0078125F,  .015625F,   -.0078125F, -.0078125F};
    float out[32];
    struct di_weight w = {.format = DI_FMT_FP8, .rows = 1, .cols = 32, .data = fp8, .scale = fp8_scale};
    di_weight_decode(&w, 0, 0, 32, out);
    for (int i = 0; i < 8; i++)
        same_float(out[i], dense[i]);
    w = (struct di_weight){.format = DI_FMT_FP4, .rows = 1, .cols = 32, .data = fp4, .scale = fp4_scale};
    di_weight_decode(&w, 0, 0, 32, out);
    for (int i = 0; i < 16; i++)
        assert_true(out[i] == expert[i]); /* code 8 is -0 */
}

static void act_quant8_scales(void **state)
{
    (void)state;
    float x[32] = {0};
    uint8_t codes[32], scale;
    x[3] = 448.0F; /* exactly the greatest: scale 1 */
    di_act_quant8(x, 32, codes, &scale);
    assert_int_equal(scale, 127);
    assert_int_equal(codes[3], 0x7e);
    x[3] = nextafterf(448.0F, 1e9F); /* a hair more: scale 2 */
    di_act_quant8(x, 32, codes, &scale);
    assert_int_equal(scale, 128);
    memset(x, 0, sizeof x); /* nothing: the floor of 1e-4 decides, 1e-4/448 = 2^-22.1 */
    di_act_quant8(x, 32, codes, &scale);
    assert_int_equal(scale, 127 - 22);
    x[0] = NAN;
    di_act_quant8(x, 32, codes, &scale);
    assert_int_equal(codes[0] & 0x7f, 0x7f);
}

static void rows_have_the_released_sizes(void **state)
{
    (void)state;
    assert_int_equal(di_kv_data_bytes(DI_KV_FP8, 512) + di_kv_scale_bytes(DI_KV_FP8, 512), 528);
    assert_int_equal(di_kv_data_bytes(DI_KV_FP4_E4M3, 512) + di_kv_scale_bytes(DI_KV_FP4_E4M3, 512), 288);
    assert_int_equal(di_kv_data_bytes(DI_KV_FP4_E8M0, 128) + di_kv_scale_bytes(DI_KV_FP4_E8M0, 128), 68);
    assert_int_equal(di_format_scale_bytes(DI_FMT_FP8, 2304, 5120), 72 * 160);
    assert_int_equal(di_format_data_bytes(DI_FMT_FP4, 2304, 5120), 2304 * 2560);
}

/* Packing is idempotent, values are on the grid, and the row formats agree with the fake quantiser. */
static void packed_rows_round_trip(void **state)
{
    (void)state;
    enum { DIM = 96 };
    uint32_t seed = 1;
    for (int round = 0; round < 200; round++) {
        float x[DIM], y[DIM], z[DIM];
        uint8_t data[DIM * 4], scale[DIM];
        float size = ldexpf(1.0F, round % 40 - 20);
        for (int i = 0; i < DIM; i++) {
            seed = seed * 1664525U + 1013904223U;
            x[i] = ((float)(seed >> 8) * 0x1p-23F - 1.0F) * size;
        }
        for (int format = DI_KV_F32; format < DI_KV_FORMAT_COUNT; format++) {
            di_kv_pack((enum di_kv_format)format, x, DIM, data, scale);
            di_kv_unpack((enum di_kv_format)format, data, scale, DIM, y);
            di_kv_pack((enum di_kv_format)format, y, DIM, data, scale);
            di_kv_unpack((enum di_kv_format)format, data, scale, DIM, z);
            memcpy(data, x, sizeof x);
            di_kv_fakequant((enum di_kv_format)format, x, DIM);
            for (int i = 0; i < DIM; i++) {
                assert_true(y[i] == x[i]);
                if (format != DI_KV_FP4_E4M3) /* its e4m3 scale may shrink when the greatest value rounded down */
                    assert_true(z[i] == y[i]);
                assert_true(di_bf16_round(y[i]) == y[i] || format == DI_KV_F32);
            }
            memcpy(x, data, sizeof x);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_decodes_by_definition),
        cmocka_unit_test(e4m3_rounds_to_nearest_even),
        cmocka_unit_test(e2m1_ties_go_to_the_even_code),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(e8m0_ends),
        cmocka_unit_test(released_bytes),
        cmocka_unit_test(act_quant8_scales),
        cmocka_unit_test(rows_have_the_released_sizes),
        cmocka_unit_test(packed_rows_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
