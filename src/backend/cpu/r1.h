/* backend/cpu/r1.h - what the kernels of order R1 share: the layout of many inputs, and the pieces that no instruction set
 * makes faster than AVX2 does. */
#ifndef DI_CPU_R1_H
#define DI_CPU_R1_H

#include "backend/cpu/avx2.h"

#if defined(__x86_64__)
#include <string.h>

/* Tiles: 32 rows of W x 8 blocks meet groups of 16 inputs, at most 128 at a time. */
enum { DI_R1_ROWS = 32, DI_R1_BLOCKS = 8, DI_R1_WIDTH = 16, DI_R1_MOST = 128 };

/* A block of 16 inputs: for each limb eight quads of two vectors, then what the sums start from, then the scales. */
struct di_r1_slab {
    __m256i limbs[3][8][2];
    __m256i corrections[3][2];
    __m256 scales[2];
    int32_t planes, pad[7];
};

struct di_r1_work {
    struct di_r1_slab *slabs; /* [groups of 16 inputs][blocks] */
    float *acc;               /* [groups][32][16] */
    uint8_t *weights;         /* [32][8][32] */
    float *scales;            /* [32][8] */
};

/* Adds `blocks` blocks of `rows` rows into the sums of group `group`, of whose inputs `n` are there. */
typedef void (*di_r1_tiles_fn)(bool int8, int32_t n, const struct di_r1_work *work, int32_t group,
                               const struct di_r1_slab *slabs, int32_t rows, int32_t blocks);

/* Four inputs and more, by the given tiles. */
void di_r1_many(bool int8, const struct di_weight *w, int64_t begin, int64_t end, const struct di_host_pair *pairs,
                int32_t n, void *scratch, di_r1_tiles_fn run_tiles);

INLINE __m256i di_broadcast(const void *four_bytes)
{
    int32_t v;
    memcpy(&v, four_bytes, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Scale codes of eight rows and eight blocks from `block` on -> codes[block][row]. */
INLINE void di_r1_scales(const uint8_t *const rows[8], int32_t block, int32_t blocks, uint8_t codes[64])
{
    __m128i r[8];
    if (block + 8 <= blocks) {
        UNROLL
        for (int i = 0; i < 8; i++)
            r[i] = _mm_loadl_epi64((const __m128i *)(const void *)(rows[i] + block));
    } else {
        for (int i = 0; i < 8; i++) {
            uint8_t tail[8] = {0};
            memcpy(tail, rows[i] + block, (size_t)(blocks - block));
            r[i] = _mm_loadl_epi64((const __m128i *)(const void *)tail);
        }
    }
    __m128i a0 = _mm_unpacklo_epi8(r[0], r[1]), a1 = _mm_unpacklo_epi8(r[2], r[3]);
    __m128i a2 = _mm_unpacklo_epi8(r[4], r[5]), a3 = _mm_unpacklo_epi8(r[6], r[7]);
    __m128i b0 = _mm_unpacklo_epi16(a0, a1), b1 = _mm_unpackhi_epi16(a0, a1);
    __m128i b2 = _mm_unpacklo_epi16(a2, a3), b3 = _mm_unpackhi_epi16(a2, a3);
    __m128i *out = (void *)codes;
    _mm_storeu_si128(out, _mm_unpacklo_epi32(b0, b2));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi32(b0, b2));
    _mm_storeu_si128(out + 2, _mm_unpacklo_epi32(b1, b3));
    _mm_storeu_si128(out + 3, _mm_unpackhi_epi32(b1, b3));
}

#endif
#endif
