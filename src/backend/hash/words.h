/* backend/hash/words.h - 64-bit hashes and how buffers hold them (hash.h says what holds which). Private to this folder.
 *
 * Two steps, so that a value costs one mix: words are added up, each times an odd constant of its own (a change of any one word
 * changes the sum), and the sum is mixed. Strong enough against accidents; no defence against malice. */
#ifndef DI_HASH_WORDS_H
#define DI_HASH_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ops/ops.h"

/* Which operation: the first word of every value. */
enum di_hash_op {
    DI_HASH_EMBED = 1,
    DI_HASH_EMBED_PRE,
    DI_HASH_ENGRAM_LOOKUP,
    DI_HASH_ENGRAM_MIX,
    DI_HASH_ENGRAM_GATE,
    DI_HASH_HC_PRE,
    DI_HASH_HC_POST,
    DI_HASH_HC_COMB,
    DI_HASH_COLLAPSE,
    DI_HASH_EXPAND,
    DI_HASH_NORM,
    DI_HASH_LINEAR,
    DI_HASH_GROUP_LINEAR,
    DI_HASH_ROPE,
    DI_HASH_WINDOW_PACK,
    DI_HASH_COMPRESS,
    DI_HASH_KV_APPEND,
    DI_HASH_INDEX_APPEND,
    DI_HASH_INDEX_QUERY,
    DI_HASH_SCORE,
    DI_HASH_ATTENTION,
    DI_HASH_GATE,
    DI_HASH_GATE_WEIGHTS,
    DI_HASH_EXPERT,
    DI_HASH_SHARED_EXPERT,
    DI_HASH_COMBINE,
    DI_HASH_DRAW,
    DI_HASH_DRAW_COMMON,
    DI_HASH_DRAW_FILTERS,
    DI_HASH_WEIGHT,
};

/* Odd, bits well spread: 2^64 / golden ratio and its successors. */
#define DI_HASH_K 0x9E3779B97F4A7C15U

/* A permutation of 64 bits in which every input bit reaches every output bit (finaliser of SplitMix64: Steele, Lea, Flood, "Fast
 * splittable pseudorandom number generators", 2014). */
static inline uint64_t di_hash_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

/* The value of an operation that reads up to four words. */
static inline uint64_t di_hash_of(enum di_hash_op op, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return di_hash_mix((uint64_t)op * DI_HASH_K + a * (3 * DI_HASH_K) + b * (5 * DI_HASH_K) + c * (7 * DI_HASH_K) +
                       d * (9 * DI_HASH_K));
}

/* What item `place` of a list adds to the sum that stands for the list. */
static inline uint64_t di_hash_item(uint64_t place, uint64_t value)
{
    return di_hash_mix(value + (2 * place + 1) * DI_HASH_K);
}

/* The sum of all bytes' words. Not mixed. */
static inline uint64_t di_hash_bytes(const void *from, size_t bytes)
{
    const unsigned char *p = from;
    uint64_t sum = 0, word, k = DI_HASH_K;
    for (; bytes >= sizeof word; bytes -= sizeof word, p += sizeof word, k += 2 * DI_HASH_K) {
        memcpy(&word, p, sizeof word);
        sum += word * k;
    }
    word = 0;
    if ((bytes & 4) != 0) {
        uint32_t half;
        memcpy(&half, p, sizeof half);
        word = half;
        p += sizeof half;
    }
    for (bytes &= 3; bytes > 0; bytes--)
        word = word << 8 | *p++;
    return sum + word * k;
}

/* Act rows [*, width]. */
static inline uint64_t di_hash_get(const void *rows, int64_t row, int64_t width)
{
    uint64_t value = 0;
    memcpy(&value, (const float *)rows + row * width, width > 1 ? sizeof value : sizeof(float));
    return value;
}

static inline void di_hash_put(void *rows, int64_t row, int64_t width, uint64_t value)
{
    memcpy((float *)rows + row * width, &value, width > 1 ? sizeof value : sizeof(float));
}

/* Float rows [*, width]. */
static inline uint64_t di_hash_get_floats(const float *rows, int64_t row, int64_t width)
{
    return di_hash_bytes(rows + row * width, (size_t)width * sizeof *rows);
}

/* Which rotation table. */
static inline uint64_t di_hash_rope_table(const float *inv_freq, int32_t rope_dim)
{
    return di_hash_get_floats(inv_freq, 0, rope_dim / 2);
}

void di_hash_put_floats(float *rows, int64_t row, int64_t width, uint64_t value);

/* Packed rows: how many bytes one has. */
struct di_hash_packed {
    size_t data, scale;
};

static inline struct di_hash_packed di_hash_packed(enum di_kv_format format, int32_t dim)
{
    return (struct di_hash_packed){(size_t)di_kv_data_bytes(format, dim), (size_t)di_kv_scale_bytes(format, dim)};
}

/* Row `row` where data rows lie at `data` and scale rows at `scale`. */
static inline uint64_t di_hash_get_packed(struct di_hash_packed size, const uint8_t *data, const uint8_t *scale,
                                          int64_t row)
{
    return di_hash_bytes(data + row * (int64_t)size.data, size.data) +
           di_hash_bytes(scale + row * (int64_t)size.scale, size.scale) * (11 * DI_HASH_K);
}

void di_hash_put_packed(const struct di_kv_rows *rows, int64_t row, uint64_t value);

/* One kind of a paged cache's rows, read in ascending order of entries: the page is looked up where a new one begins. */
struct di_hash_reader {
    const struct di_paged_view *view;
    const int32_t *table; /* the sequence's */
    size_t offset;        /* of the kind in a page */
    struct di_hash_packed size;
    int32_t first; /* entry that the page at hand begins with; -1: none yet */
    const uint8_t *data, *scale;
};

static inline struct di_hash_reader di_hash_reader(const struct di_paged_view *view, int32_t slot, bool index_keys)
{
    return (struct di_hash_reader){
        .view = view,
        .table = view->table + (int64_t)slot * view->max_pages,
        .offset = index_keys ? view->index_offset : view->main_offset,
        .size = index_keys ? di_hash_packed(view->index_format, view->index_dim)
                           : di_hash_packed(view->main_format, view->main_dim),
        .first = -1,
    };
}

static inline uint64_t di_hash_read(struct di_hash_reader *r, int32_t entry)
{
    int32_t rows = r->view->page_rows;
    if (r->first < 0 || entry < r->first || entry - r->first >= rows) {
        int32_t page = entry / rows;
        r->first = page * rows;
        r->data = r->view->pages + (size_t)r->table[page] * r->view->page_bytes + r->offset;
        r->scale = r->data + (size_t)rows * r->size.data;
    }
    return di_hash_get_packed(r->size, r->data, r->scale, entry - r->first);
}

/* A weight's identity: shape, format, and words from its beginning, middle and end. The same in every process. */
uint64_t di_hash_weight(const struct di_weight *weight);

#endif
