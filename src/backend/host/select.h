/* backend/host/select.h - the beginning of a row of values in the order "greatest first, then the lower index".
 *
 * Every filter of the sampler keeps such a beginning, so what survives is told by one cut. Nothing sorts a whole row: peaks of
 * chunks tell where to look, histograms narrow down to the value at the cut.
 *
 *     di_row_scale / di_row_peaks    fill the peaks, and give the greatest value
 *     di_row_first                   the cut behind the first k
 *     di_row_nucleus                 the cut behind the first whose weights reach a share of all that survive another cut
 *     di_row_floor                   the lowest value within a distance of the greatest
 *     di_row_survivors               the indices before a cut
 */
#ifndef DI_HOST_SELECT_H
#define DI_HOST_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DI_ROW_CHUNK = 64, DI_ROW_BUCKETS = 2048 };

struct di_row {
    int32_t n;
    const float *x; /* [n], no NaN */
    float max;
    float *peak;                   /* [chunks] greatest of each chunk */
    int32_t *ids;                  /* [n] scratch, and what di_row_survivors gives */
    uint64_t mass[DI_ROW_BUCKETS]; /* scratch */
};

/* Survives: x > value, or x == value and index <= id. */
struct di_cut {
    float value;
    int32_t id;
};

static inline bool di_survives(struct di_cut cut, float x, int32_t id)
{
    return x > cut.value || (x == cut.value && id <= cut.id);
}

static inline int32_t di_row_chunks(int32_t n)
{
    return n / DI_ROW_CHUNK + (n % DI_ROW_CHUNK != 0);
}

/* True if one of x[n] is NaN. */
bool di_row_nan(const float *x, int32_t n);

/* Sets x, max and the peaks of the row. With scale: of out = x / divisor, which may be x; the row then holds `out`. */
void di_row_peaks(struct di_row *row, const float *x);
void di_row_scale(struct di_row *row, const float *x, float divisor, float *out);

/* Lowest index of the greatest value. */
int32_t di_row_argmax(const struct di_row *row);

/* The cut behind the first k >= 1 of the values above -inf; all of them where they are fewer. */
struct di_cut di_row_first(struct di_row *row, int32_t k);

/* The cut behind the shortest beginning whose weights (di_host_weights) reach ceil(share * those of all that survive
 * `within`). 0 < share < 1. */
struct di_cut di_row_nucleus(struct di_row *row, float share, struct di_cut within);

/* The lowest value that is the greatest of the row, or lies at most -distance below it: x - max >= distance. */
float di_row_floor(const struct di_row *row, float distance);

/* Sum of all weights. */
uint64_t di_row_weight(const struct di_row *row);

/* Writes the indices that survive to row->ids, ascending; returns how many. */
int32_t di_row_survivors(struct di_row *row, struct di_cut cut);

/* Sorts ids by the order of their values; for few. */
void di_row_sort(const float *x, int32_t *ids, int32_t n);

/* How many come before index `id` in the order. */
int32_t di_row_before(const struct di_row *row, int32_t id);

#endif
