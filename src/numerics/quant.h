/* numerics/quant.h - the model's quantisers (spec/model.md sections 17.3 to 17.5) and the packed rows of its caches.
 *
 * act_quant8 prepares activations for FP8 and FP4 weights. The cache quantisers turn one KV vector into a packed row: all
 * element codes ("data") and then all scales ("scale"), which caches store in two separate runs. Packing loses nothing
 * against the model's fake quantisation: unpack(pack(x)) is exactly the value the model defines.
 */
#ifndef DI_NUMERICS_QUANT_H
#define DI_NUMERICS_QUANT_H

#include <stdint.h>

/* One row of n values (n a multiple of 32): e4m3 codes and one e8m0 scale per 32. 17.3 */
void di_act_quant8(const float *x, int32_t n, uint8_t *codes, uint8_t *scales);

/* Mode fast: codes within -127 .. 127 of one row and one float scale per 32: scale = m / 127, code = x * (127 / m) to the nearest, ties to
 * even, where m is the block's largest magnitude, at least 2^-100. A block with a NaN or an infinity gets scale NaN, codes 0. */
void di_act_quant_int8(const float *x, int32_t n, int32_t *codes, float *scales);

enum di_kv_format {
    DI_KV_F32,      /* plain floats: the cache quantisers switched off (a test switch of mode oracle) */
    DI_KV_FP8,      /* window rows: e4m3, e8m0 per 32 (17.3) */
    DI_KV_FP4_E4M3, /* compressed rows: e2m1, e4m3 scale per 16 (17.4) */
    DI_KV_FP4_E8M0, /* index keys and queries: e2m1, e8m0 per 32 (17.5) */
    DI_KV_FORMAT_COUNT
};

/* Bytes of one row of `dim` values (a multiple of 32). The released 512-wide rows take 528 (FP8) and 288 (FP4) bytes, the
 * 128-wide index key 68. */
int32_t di_kv_data_bytes(enum di_kv_format format, int32_t dim);
int32_t di_kv_scale_bytes(enum di_kv_format format, int32_t dim);

void di_kv_pack(enum di_kv_format format, const float *x, int32_t dim, uint8_t *data, uint8_t *scale);
void di_kv_unpack(enum di_kv_format format, const uint8_t *data, const uint8_t *scale, int32_t dim, float *x);

/* x := unpack(pack(x)) */
void di_kv_fakequant(enum di_kv_format format, float *x, int32_t dim);

#endif
