/* Row picking and the draw. ops.h says what each rule does; spec/runtime.md section 6.5. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"
#include "backend/host/sample.h"
#include "base/rng.h"

void di_host_gather(struct di_device *dev, const struct di_gather_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++)
        memcpy((char *)a->out + (size_t)i * a->row_bytes, (const char *)a->x + (size_t)a->index[i] * a->row_bytes,
               a->row_bytes);
}

/* ---- noise ---- */

enum { BLOCKS = DI_ROW_CHUNK / 4 };

/* Gumbel noise of one token id: -log(-log u), u = (x + 1/2) 2^-32 in double, rounded once. */
static float gumbel(uint32_t x)
{
    double u = ((double)x + 0.5) * 0x1p-32;
    return (float)-di_host_log_d(-di_host_log_d(u));
}

struct noise_key {
    uint64_t seed;
    uint32_t position, choice;
};

/* The bits of a chunk's tokens. */
DI_VECTOR static void noise_bits(const struct noise_key *key, uint32_t chunk, uint32_t *out)
{
    const uint64_t seed = key->seed;
    const uint32_t position = key->position, choice = key->choice;
    for (uint32_t b = 0; b < BLOCKS; b++)
        di_philox4x32(seed, (uint32_t[4]){chunk * BLOCKS + b, position, 0, choice}, out + (size_t)4 * b);
}

/* With y = 2^32 - 1 - x: 1 - u = (y + 1/2) 2^-32 and -log u >= 1 - u, so that the noise is at most -log(1 - u). Half of y fits a
 * signed number; the bits of a float, read as a whole number, are a line below its logarithm. The last term covers the
 * rounding of all this and of the noise. */
static const float bound_offset = (31 + 127) * 0x1.62e43p-1F + 2e-4F, bound_slope = 0x1.62e43p-24F;
/* The bound where y is 0. */
static const float most_noise = 33 * 0x1.62e43p-1F + 3e-4F;

/* win[i] = whether x[i] with its noise may reach `best`; false if none does. Float addition keeps the order of its operands, so
 * a bound of the noise gives a bound of the sum as it will be rounded. */
DI_VECTOR static bool may_win(const float *x, const uint32_t *bits, float best, int32_t *win)
{
    int32_t any = 0;
    for (int32_t i = 0; i < DI_ROW_CHUNK; i++) {
        float half = (float)(int32_t)(~bits[i] >> 1) + 0.25F;
        float bound = bound_offset - bound_slope * (float)(int32_t)di_f32_bits(half);
        win[i] = x[i] + bound >= best;
        any |= win[i];
    }
    return any != 0;
}

/* The token that wins among those before the cut. row->x is padded with -inf to whole chunks. The first bar is set by the most
 * likely token; a chunk whose peak cannot reach the bar needs no noise. */
static int32_t draw(const struct di_row *row, struct di_cut cut, const struct noise_key *key)
{
    uint32_t bits[DI_ROW_CHUNK];
    int32_t win[DI_ROW_CHUNK], best = di_row_argmax(row);
    noise_bits(key, (uint32_t)(best / DI_ROW_CHUNK), bits);
    float bar = row->max + gumbel(bits[best % DI_ROW_CHUNK]);
    for (int32_t chunk = 0; chunk < di_row_chunks(row->n); chunk++) {
        int32_t begin = chunk * DI_ROW_CHUNK;
        float peak = row->peak[chunk];
        if (peak < cut.value || peak == -INFINITY || peak + most_noise < bar)
            continue;
        noise_bits(key, (uint32_t)chunk, bits);
        if (!may_win(row->x + begin, bits, bar, win))
            continue;
        for (int32_t j = 0; j < DI_ROW_CHUNK; j++) {
            int32_t id = begin + j;
            if (!win[j] || !di_survives(cut, row->x[id], id))
                continue;
            float value = row->x[id] + gumbel(bits[j]);
            if (value > bar || (value == bar && id < best)) {
                bar = value;
                best = id;
            }
        }
    }
    return best;
}

/* ---- one row ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

size_t di_host_sample_bytes(int32_t vocab)
{
    size_t chunks = (size_t)di_row_chunks(vocab);
    return aligned(sizeof(struct di_host_room)) + aligned(chunks * sizeof(float)) +
           2 * chunks * DI_ROW_CHUNK * sizeof(float); /* values and ids */
}

struct di_host_room *di_host_sample_room(void *memory, int32_t vocab)
{
    size_t chunks = (size_t)di_row_chunks(vocab);
    struct di_host_room *room = memory;
    unsigned char *peak = (unsigned char *)memory + aligned(sizeof *room);
    unsigned char *values = peak + aligned(chunks * sizeof(float));
    room->row.n = vocab;
    room->row.peak = (float *)(void *)peak;
    room->values = (float *)(void *)values;
    room->row.ids = (int32_t *)(void *)(values + chunks * DI_ROW_CHUNK * sizeof(float));
    return room;
}

static void penalise(const struct di_sample_rules *r, int64_t i, float *x)
{
    float repetition = r->repetition != NULL ? r->repetition[i] : 1.0F;
    float frequency = r->frequency != NULL ? r->frequency[i] : 0.0F;
    float presence = r->presence != NULL ? r->presence[i] : 0.0F;
    if (r->seen_offset == NULL || (repetition == 1.0F && frequency == 0.0F && presence == 0.0F))
        return;
    for (int32_t e = r->seen_offset[i]; e < r->seen_offset[i + 1]; e++) {
        float value = x[r->seen_token[e]];
        value = value > 0.0F ? value / repetition : value * repetition;
        if (r->seen_count[e] > 0)
            value = (value - frequency * (float)r->seen_count[e]) - presence;
        x[r->seen_token[e]] = value;
    }
}

static inline void forbid_word(uint32_t allowed, int32_t size, float *x)
{
    for (int32_t j = 0; j < size; j++)
        x[j] = (allowed >> j & 1U) != 0 ? x[j] : -INFINITY;
}

DI_VECTOR static void forbid(const uint32_t *mask, int32_t vocab, float *x)
{
    for (int32_t word = 0; word < vocab / 32; word++)
        if (mask[word] != UINT32_MAX)
            forbid_word(mask[word], 32, x + (size_t)word * 32);
    if (vocab % 32 != 0)
        forbid_word(mask[vocab / 32], vocab % 32, x + (size_t)(vocab / 32) * 32);
}

static const uint32_t *mask_of(const struct di_sample_args *a, int64_t i)
{
    const struct di_sample_rules *r = &a->rules;
    int64_t words = ((int64_t)a->vocab + 31) / 32, at = r->mask_row != NULL ? r->mask_row[i] : i;
    return r->mask == NULL || at < 0 ? NULL : r->mask + at * words;
}

const float *di_host_adjust(const struct di_sample_args *a, int64_t i, struct di_host_room *room)
{
    const struct di_sample_rules *r = &a->rules;
    const float *logits = a->logits + i * a->vocab;
    const uint32_t *mask = mask_of(a, i);
    bool seen = r->seen_offset != NULL && r->seen_offset[i] < r->seen_offset[i + 1];
    bool biased = r->bias_offset != NULL && r->bias_offset[i] < r->bias_offset[i + 1];
    float *values = room->values;
    if (!seen && !biased && mask == NULL)
        return logits;
    memcpy(values, logits, (size_t)a->vocab * sizeof *values);
    penalise(r, i, values);
    for (int32_t e = biased ? r->bias_offset[i] : 0; biased && e < r->bias_offset[i + 1]; e++) {
        float *x = &values[r->bias_token[e]];
        *x = r->bias[e] == -INFINITY ? -INFINITY : *x + r->bias[e]; /* also where it is infinite */
    }
    if (mask != NULL)
        forbid(mask, a->vocab, values);
    return values;
}

static struct di_cut filter(const struct di_sample_rules *r, int64_t i, struct di_row *row)
{
    struct di_cut cut = {-INFINITY, -1};
    if (r->top_k != NULL && r->top_k[i] >= 1)
        cut = di_row_first(row, r->top_k[i]);
    if (r->top_p != NULL && r->top_p[i] < 1.0F)
        cut = di_row_nucleus(row, r->top_p[i], cut);
    if (r->min_p != NULL && r->min_p[i] > 0.0F) {
        float value = di_row_floor(row, (float)di_host_log_d((double)r->min_p[i]));
        if (value > cut.value)
            cut = (struct di_cut){value, INT32_MAX};
    }
    return cut;
}

static int32_t choose(const struct di_sample_args *a, int64_t i, struct di_host_room *room)
{
    struct di_row *row = &room->row;
    const float *adjusted = di_host_adjust(a, i, room);
    if (a->temperature[i] < 1e-5F) {
        di_row_peaks(row, adjusted);
        return row->max > -INFINITY ? di_row_argmax(row) : DI_SAMPLE_NONE;
    }
    di_row_scale(row, adjusted, a->temperature[i], room->values);
    if (!(row->max > -INFINITY))
        return DI_SAMPLE_NONE;
    for (int32_t id = a->vocab; id < di_row_chunks(a->vocab) * DI_ROW_CHUNK; id++)
        room->values[id] = -INFINITY;
    struct noise_key key = {
        .seed = a->seed[i],
        .position = (uint32_t)a->position[a->row[i]] + 1,
        .choice = a->rules.choice != NULL ? a->rules.choice[i] : 0,
    };
    return draw(row, filter(&a->rules, i, row), &key);
}

/* ---- log-probabilities ---- */

static float logprob(const struct di_row *row, float x, double log_sum)
{
    return (float)((x == row->max ? 0.0 : (double)x - (double)row->max) - log_sum);
}

void di_host_report(const struct di_sample_args *a, int64_t i, struct di_host_room *room)
{
    const struct di_sample_report *r = &a->report;
    struct di_row *row = &room->row;
    int32_t wanted = r->wanted != NULL ? r->wanted[i] : r->top, count = 0;
    int32_t scored = r->scored != NULL && r->scored[i] >= 0 ? r->scored[i] : a->token[i];
    bool numbers = a->token[i] != DI_SAMPLE_NAN;
    double log_sum = 0.0;
    if (wanted < 0 || (r->logprob == NULL && r->rank == NULL && r->top_token == NULL && r->top_logprob == NULL))
        return;
    if (numbers) {
        di_row_peaks(row, a->logits + i * a->vocab);
        log_sum = di_host_log_d((double)di_row_weight(row) * 0x1p-40);
    }
    bool known = numbers && scored >= 0;
    if (r->logprob != NULL)
        r->logprob[i] = known ? logprob(row, row->x[scored], log_sum) : NAN;
    if (r->rank != NULL)
        r->rank[i] = known ? 1 + di_row_before(row, scored) : 0;
    wanted = wanted < r->top ? wanted : r->top;
    if (numbers && wanted > 0 && (r->top_token != NULL || r->top_logprob != NULL)) {
        count = di_row_survivors(row, di_row_first(row, wanted));
        di_row_sort(row->x, row->ids, count);
    }
    for (int32_t j = 0; j < r->top; j++) {
        if (r->top_token != NULL)
            r->top_token[i * r->top + j] = j < count && j < wanted ? row->ids[j] : -1;
        if (r->top_logprob != NULL)
            r->top_logprob[i * r->top + j] = j < count && j < wanted ? logprob(row, row->x[row->ids[j]], log_sum)
                                                                     : -INFINITY;
    }
}

struct job {
    struct di_device *dev;
    const struct di_sample_args *a;
};

static void sample_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct job *job = arg;
    const struct di_sample_args *a = job->a;
    struct di_host_room *room = di_host_sample_room(job->dev->member[member], a->vocab);
    for (int64_t i = begin; i < end; i++) {
        a->token[i] = di_row_nan(a->logits + i * a->vocab, a->vocab) ? DI_SAMPLE_NAN : choose(a, i, room);
        di_host_report(a, i, room);
    }
}

void di_host_sample(struct di_device *dev, const struct di_sample_args *a)
{
    struct job job = {dev, a};
    if (a->n < 1 || !di_host_reserve(dev, 0, di_host_sample_bytes(a->vocab)))
        return;
    di_host_elements(dev, a->n, a->vocab, sample_rows, &job);
}
