#include "backend/host/select.h"

#include <math.h>
#include <string.h>

#include "backend/host/math.h"
#include "numerics/codes.h"

/* Weights below e^-29 are less than half of 2^-40: they are 0. */
static const float weightless = 29.0F;

DI_VECTOR bool di_row_nan(const float *x, int32_t n)
{
    int32_t found = 0; /* whole numbers, because compilers reorder only those */
    for (int32_t i = 0; i < n; i++)
        found |= (di_f32_bits(x[i]) & 0x7fffffffU) > 0x7f800000U;
    return found != 0;
}

/* A whole number in the order of the floats; -0 lies below 0. */
static inline int32_t ordered(float x)
{
    int32_t bits = (int32_t)di_f32_bits(x);
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

static inline float from_ordered(int32_t key)
{
    return di_f32_from_bits((uint32_t)key ^ ((uint32_t)(key >> 31) >> 1));
}

static inline int32_t chunk_size(int32_t n, int32_t chunk)
{
    int32_t left = n - chunk * DI_ROW_CHUNK;
    return left < DI_ROW_CHUNK ? left : DI_ROW_CHUNK;
}

static float greatest(const float *x, int32_t n)
{
    float max = x[0];
    for (int32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

DI_VECTOR static void find_peaks(const float *x, int32_t n, float *peak)
{
    int32_t chunk = 0;
    for (; (chunk + 1) * DI_ROW_CHUNK <= n; chunk++) {
        int32_t key = INT32_MIN;
        for (int32_t j = 0; j < DI_ROW_CHUNK; j++) {
            int32_t other = ordered(x[chunk * DI_ROW_CHUNK + j]);
            key = other > key ? other : key;
        }
        peak[chunk] = from_ordered(key);
    }
    if (chunk * DI_ROW_CHUNK < n)
        peak[chunk] = greatest(x + chunk * DI_ROW_CHUNK, n - chunk * DI_ROW_CHUNK);
}

DI_VECTOR static void divide(const float *x, int32_t n, float divisor, float *out)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = x[i] / divisor;
}

void di_row_peaks(struct di_row *row, const float *x)
{
    row->x = x;
    find_peaks(x, row->n, row->peak);
    row->max = greatest(row->peak, di_row_chunks(row->n));
}

void di_row_scale(struct di_row *row, const float *x, float divisor, float *out)
{
    divide(x, row->n, divisor, out);
    di_row_peaks(row, out);
}

int32_t di_row_argmax(const struct di_row *row)
{
    int32_t chunk = 0;
    while (row->peak[chunk] != row->max)
        chunk++;
    int32_t i = chunk * DI_ROW_CHUNK;
    while (row->x[i] != row->max)
        i++;
    return i;
}

/* ---- the value at a sum ---- */

void di_row_sort(const float *x, int32_t *ids, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t id = ids[i], at = i;
        for (; at > 0 && (x[id] > x[ids[at - 1]] || (x[id] == x[ids[at - 1]] && id < ids[at - 1])); at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* What a walk adds up: weights, or 1 each where max is NULL. */
static void weigh(const float *x, const int32_t *ids, int32_t n, const float *max, uint64_t *out)
{
    float values[DI_ROW_CHUNK];
    if (max == NULL) {
        for (int32_t i = 0; i < n; i++)
            out[i] = 1;
        return;
    }
    for (int32_t i = 0; i < n; i++)
        values[i] = x[ids[i]];
    di_host_weights(values, n, *max, out);
}

/* Moves on to the bucket in which the sum reaches *limit; takes from *limit what lies before it. */
static int32_t reach(const uint64_t *mass, uint64_t *limit)
{
    int32_t bucket = 0;
    while (mass[bucket] < *limit)
        *limit -= mass[bucket++];
    return bucket;
}

static inline int32_t bucket_of(float x, int32_t high, int32_t shift)
{
    return (int32_t)(((uint32_t)high - (uint32_t)ordered(x + 0.0F)) >> shift);
}

static struct di_cut at_sum_of_few(const float *x, int32_t *ids, int32_t n, const float *max, uint64_t limit)
{
    uint64_t weight[DI_ROW_CHUNK], sum = 0;
    int32_t last = 0;
    di_row_sort(x, ids, n);
    weigh(x, ids, n, max, weight);
    for (int32_t i = 0; i < n && sum < limit; i++) {
        sum += weight[i];
        last = i;
    }
    return (struct di_cut){x[ids[last]], ids[last]};
}

/* The element of ids[n], ascending, at which the sum of weights in the order of x reaches `limit`, 1 <= limit <= their sum.
 * Each round looks at one of a thousand parts of the range of values, so that there are four at most. Sum + 0.0 makes one key of
 * both zeros. */
static struct di_cut at_sum(const float *x, int32_t *ids, int32_t n, const float *max, uint64_t limit, uint64_t *mass)
{
    while (n > DI_ROW_CHUNK) {
        int32_t low = INT32_MAX, high = INT32_MIN, shift = 0;
        for (int32_t i = 0; i < n; i++) {
            int32_t key = ordered(x[ids[i]] + 0.0F);
            low = key < low ? key : low;
            high = key > high ? key : high;
        }
        uint64_t weight[DI_ROW_CHUNK];
        if (low == high) {
            weigh(x, ids, 1, max, weight);
            uint64_t place = (limit + weight[0] - 1) / weight[0];
            int32_t id = ids[place < (uint64_t)n ? place - 1 : (uint64_t)n - 1];
            return (struct di_cut){x[id], id};
        }
        while (((uint32_t)high - (uint32_t)low) >> shift >= DI_ROW_BUCKETS)
            shift++;
        memset(mass, 0, DI_ROW_BUCKETS * sizeof *mass);
        for (int32_t begin = 0; begin < n; begin += DI_ROW_CHUNK) {
            int32_t count = n - begin < DI_ROW_CHUNK ? n - begin : DI_ROW_CHUNK;
            weigh(x, ids + begin, count, max, weight);
            for (int32_t i = 0; i < count; i++)
                mass[bucket_of(x[ids[begin + i]], high, shift)] += weight[i];
        }
        int32_t bucket = reach(mass, &limit), kept = 0;
        for (int32_t i = 0; i < n; i++) {
            int32_t id = ids[i];
            ids[kept] = id;
            kept += bucket_of(x[id], high, shift) == bucket;
        }
        n = kept;
    }
    return at_sum_of_few(x, ids, n, max, limit);
}

/* ---- cuts ---- */

/* Indices of values of at least `floor`, of all above -inf; ascending. */
static int32_t collect(struct di_row *row, float floor)
{
    int32_t count = 0;
    for (int32_t chunk = 0; chunk < di_row_chunks(row->n); chunk++) {
        if (row->peak[chunk] < floor)
            continue;
        int32_t begin = chunk * DI_ROW_CHUNK, size = chunk_size(row->n, chunk);
        for (int32_t j = 0; j < size; j++) {
            float x = row->x[begin + j];
            row->ids[count] = begin + j;
            count += x >= floor && x > -INFINITY;
        }
    }
    return count;
}

struct di_cut di_row_first(struct di_row *row, int32_t k)
{
    const struct di_cut all = {-INFINITY, -1};
    int32_t chunks = di_row_chunks(row->n);
    float floor = -INFINITY;
    if (k >= row->n)
        return all;
    if (k < chunks) { /* the k-th greatest peak: k values are at least so great */
        for (int32_t i = 0; i < chunks; i++)
            row->ids[i] = i;
        floor = at_sum(row->peak, row->ids, chunks, NULL, (uint64_t)k, row->mass).value;
    }
    int32_t count = collect(row, floor);
    if (count < k) /* the row has no more */
        return all;
    return at_sum(row->x, row->ids, count, NULL, (uint64_t)k, row->mass);
}

/* Buckets by the distance from the greatest value: 64 per unit. */
DI_VECTOR static void distances(const float *x, int32_t n, float max, int32_t *bucket)
{
    const float most = DI_ROW_BUCKETS - 1;
    for (int32_t i = 0; i < n; i++) {
        float distance = x[i] == max ? 0.0F : (max - x[i]) * 64.0F;
        bucket[i] = (int32_t)(distance < most ? distance : most);
    }
}

struct di_cut di_row_nucleus(struct di_row *row, float share, struct di_cut within)
{
    uint64_t weight[DI_ROW_CHUNK], total = 0;
    int32_t bucket[DI_ROW_CHUNK], count = 0;
    float floor = row->max - weightless > within.value ? row->max - weightless : within.value;
    memset(row->mass, 0, sizeof row->mass);
    for (int32_t chunk = 0; chunk < di_row_chunks(row->n); chunk++) {
        if (row->peak[chunk] < floor)
            continue;
        int32_t begin = chunk * DI_ROW_CHUNK, size = chunk_size(row->n, chunk);
        di_host_weights(row->x + begin, size, row->max, weight);
        distances(row->x + begin, size, row->max, bucket);
        for (int32_t j = 0; j < size; j++)
            row->mass[bucket[j]] += di_survives(within, row->x[begin + j], begin + j) ? weight[j] : 0;
    }
    for (int32_t i = 0; i < DI_ROW_BUCKETS; i++)
        total += row->mass[i];
    uint64_t limit = (uint64_t)ceil((double)share * (double)total);
    limit = limit > 0 ? limit : 1;
    int32_t wanted = reach(row->mass, &limit);
    for (int32_t chunk = 0; chunk < di_row_chunks(row->n); chunk++) {
        if (row->peak[chunk] < floor || row->peak[chunk] < row->max - ((float)wanted + 2.0F) / 64.0F) /* beyond it */
            continue;
        int32_t begin = chunk * DI_ROW_CHUNK, size = chunk_size(row->n, chunk);
        distances(row->x + begin, size, row->max, bucket);
        for (int32_t j = 0; j < size; j++) {
            row->ids[count] = begin + j;
            count += bucket[j] == wanted && di_survives(within, row->x[begin + j], begin + j);
        }
    }
    return at_sum(row->x, row->ids, count, &row->max, limit, row->mass);
}

/* The difference rounds, so the answer is searched among the floats, in their order. */
float di_row_floor(const struct di_row *row, float distance)
{
    int64_t low = ordered(-INFINITY), high = ordered(row->max); /* high passes */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (from_ordered((int32_t)middle) - row->max >= distance)
            high = middle;
        else
            low = middle + 1;
    }
    return from_ordered((int32_t)high);
}

uint64_t di_row_weight(const struct di_row *row)
{
    uint64_t weight[DI_ROW_CHUNK], total = 0;
    for (int32_t chunk = 0; chunk < di_row_chunks(row->n); chunk++) {
        if (row->peak[chunk] < row->max - weightless)
            continue;
        int32_t size = chunk_size(row->n, chunk);
        di_host_weights(row->x + chunk * DI_ROW_CHUNK, size, row->max, weight);
        for (int32_t j = 0; j < size; j++)
            total += weight[j];
    }
    return total;
}

int32_t di_row_survivors(struct di_row *row, struct di_cut cut)
{
    int32_t count = 0;
    for (int32_t chunk = 0; chunk < di_row_chunks(row->n); chunk++) {
        if (row->peak[chunk] < cut.value)
            continue;
        int32_t begin = chunk * DI_ROW_CHUNK, size = chunk_size(row->n, chunk);
        for (int32_t j = 0; j < size; j++)
            if (di_survives(cut, row->x[begin + j], begin + j))
                row->ids[count++] = begin + j;
    }
    return count;
}

DI_VECTOR int32_t di_row_before(const struct di_row *row, int32_t id)
{
    const float *x = row->x, value = x[id];
    int32_t before = 0;
    for (int32_t i = 0; i < id; i++)
        before += x[i] >= value;
    for (int32_t i = id + 1; i < row->n; i++)
        before += x[i] > value;
    return before;
}
