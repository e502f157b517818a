#include "numerics/formats.h"

#include <string.h>

#include "numerics/codes.h"

static const struct di_format_info formats[DI_FMT_COUNT] = {
    [DI_FMT_F32] = {"f32", 32, 0, 0},         [DI_FMT_BF16] = {"bf16", 16, 0, 0}, [DI_FMT_FP8] = {"fp8", 8, 32, 32},
    [DI_FMT_FP8_ROW] = {"fp8-row", 8, 1, 32}, [DI_FMT_FP4] = {"fp4", 4, 1, 32},
};

const struct di_format_info *di_format_info(enum di_format format)
{
    return &formats[format];
}

uint64_t di_format_data_bytes(enum di_format format, int64_t rows, int64_t cols)
{
    return (uint64_t)rows * (uint64_t)cols * (uint64_t)formats[format].bits / 8;
}

uint64_t di_format_scale_bytes(enum di_format format, int64_t rows, int64_t cols)
{
    const struct di_format_info *f = &formats[format];
    if (f->block_rows == 0)
        return 0;
    return (uint64_t)((rows + f->block_rows - 1) / f->block_rows) *
           (uint64_t)((cols + f->block_cols - 1) / f->block_cols);
}

static void decode_blocks(const struct di_weight *w, int64_t row, int32_t col, int32_t count, float *out)
{
    const struct di_format_info *f = &formats[w->format];
    int64_t scale_cols = (w->cols + f->block_cols - 1) / f->block_cols;
    const uint8_t *scales = w->scale + (row / f->block_rows) * scale_cols;
    const uint8_t *codes = (const uint8_t *)w->data + row * (int64_t)w->cols * f->bits / 8;
    const float *fp8 = di_e4m3_table();
    for (int32_t i = 0; i < count; i++) {
        int32_t c = col + i;
        float scale = di_e8m0_to_f32(scales[c / f->block_cols]);
        float value = w->format == DI_FMT_FP4 ? di_e2m1_to_f32((uint8_t)(codes[c / 2] >> (c % 2 * 4)) & 15U)
                                              : fp8[codes[c]];
        out[i] = value * scale;
    }
}

void di_weight_decode(const struct di_weight *weight, int64_t row, int32_t col, int32_t count, float *out)
{
    switch (weight->format) {
    case DI_FMT_F32:
        memcpy(out, (const float *)weight->data + row * weight->cols + col, (size_t)count * sizeof *out);
        break;
    case DI_FMT_BF16: {
        const uint16_t *from = (const uint16_t *)weight->data + row * weight->cols + col;
        for (int32_t i = 0; i < count; i++)
            out[i] = di_bf16_to_f32(from[i]);
        break;
    }
    case DI_FMT_FP8:
    case DI_FMT_FP8_ROW:
    case DI_FMT_FP4:
    case DI_FMT_COUNT:
        decode_blocks(weight, row, col, count, out);
        break;
    }
}
