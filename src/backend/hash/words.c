#include "backend/hash/words.h"

#include "backend/host/math.h"

/* Every float depends on both halves of the value; the loop is one that compilers turn into vector instructions. */
DI_VECTOR static void spread(float *out, int64_t n, uint32_t low, uint32_t high)
{
    for (int64_t j = 0; j < n; j++) {
        uint32_t x = low + (uint32_t)j * 0x9E3779B9U;
        x ^= x << 13;
        x ^= x >> 17;
        x = (x ^ high) + (x << 5);
        x ^= x >> 15;
        out[j] = (float)(int32_t)(x >> 8) * 0x1p-20F - 8.0F; /* 24 bits: exact */
    }
}

void di_hash_put_floats(float *rows, int64_t row, int64_t width, uint64_t value)
{
    spread(rows + row * width, width, (uint32_t)value, (uint32_t)(value >> 32));
}

static void spread_bytes(uint8_t *out, size_t bytes, uint64_t value)
{
    for (; bytes > 0; value = di_hash_mix(value + DI_HASH_K)) {
        size_t n = bytes < sizeof value ? bytes : sizeof value;
        memcpy(out, &value, n);
        out += n;
        bytes -= n;
    }
}

void di_hash_put_packed(const struct di_kv_rows *rows, int64_t row, uint64_t value)
{
    struct di_hash_packed size = di_hash_packed(rows->format, rows->dim);
    spread_bytes(rows->data + row * (int64_t)size.data, size.data, value);
    spread_bytes(rows->scale + row * (int64_t)size.scale, size.scale, di_hash_mix(~value));
}

/* The 8 bytes at the beginning, in the middle and at the end of `bytes` bytes. */
static uint64_t samples(const void *from, uint64_t bytes)
{
    const unsigned char *p = from;
    if (bytes <= 3 * sizeof(uint64_t))
        return di_hash_bytes(p, (size_t)bytes);
    uint64_t first, middle, last;
    memcpy(&first, p, sizeof first);
    memcpy(&middle, p + bytes / 2, sizeof middle);
    memcpy(&last, p + bytes - sizeof last, sizeof last);
    return first * DI_HASH_K + middle * (3 * DI_HASH_K) + last * (5 * DI_HASH_K);
}

uint64_t di_hash_weight(const struct di_weight *w)
{
    uint64_t scales = di_format_scale_bytes(w->format, w->rows, w->cols);
    return di_hash_of(DI_HASH_WEIGHT, (uint64_t)w->format + 16 * (uint64_t)w->cols, (uint64_t)w->rows,
                      samples(w->data, di_format_data_bytes(w->format, w->rows, w->cols)),
                      scales > 0 ? samples(w->scale, scales) : 0);
}
