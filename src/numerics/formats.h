/* numerics/formats.h - the number formats of weights as one table.
 *
 * A weight is `data` plus, for the block formats, `scale`: one e8m0 byte (a power of two) per block. Values are exactly
 * code x 2^(scale - 127). Bytes are those of the released checkpoint (spec/model.md section 17); nothing is repacked.
 *
 * To add a format: a row here and in formats.c, a file with its scalar pack and unpack, one kernel family per backend.
 */
#ifndef DI_NUMERICS_FORMATS_H
#define DI_NUMERICS_FORMATS_H

#include <stddef.h>
#include <stdint.h>

enum di_format {
    DI_FMT_F32,     /* 4 bytes */
    DI_FMT_BF16,    /* 2 bytes */
    DI_FMT_FP8,     /* e4m3, scale per 32 x 32 block (17.7) */
    DI_FMT_FP8_ROW, /* e4m3, scale per 32 columns of one row: Engram tables (section 12) */
    DI_FMT_FP4,     /* two e2m1 codes a byte, even column in the low nibble, scale per 32 columns of one row (17.8) */
    DI_FMT_COUNT
};

struct di_format_info {
    const char *name;
    int32_t bits;                   /* per element */
    int32_t block_rows, block_cols; /* of one scale byte; 0 = no scales */
};

const struct di_format_info *di_format_info(enum di_format format);

/* Bytes of a [rows, cols] weight's data and scales. cols must be even for FP4. */
uint64_t di_format_data_bytes(enum di_format format, int64_t rows, int64_t cols);
uint64_t di_format_scale_bytes(enum di_format format, int64_t rows, int64_t cols);

/* A matrix [rows, cols], row-major, y = W x. Pointers are in the address space of the backend that holds it. */
struct di_weight {
    enum di_format format;
    int32_t cols;
    int64_t rows;
    const void *data;
    const uint8_t *scale; /* NULL where the format has none */
};

/* Decodes `count` columns of row `row` from column `col` on; all host memory. col and count are multiples of 32 for the
 * block formats. Exact. */
void di_weight_decode(const struct di_weight *weight, int64_t row, int32_t col, int32_t count, float *out);

#endif
