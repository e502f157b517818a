/* The draw. Rules that change logits are host/'s own, and so are the log-probabilities. */
#include <math.h>

#include "backend/hash/operations.h"
#include "backend/hash/words.h"
#include "backend/host/host.h"
#include "backend/host/sample.h"

/* The word's place in 0 .. n - 1, by its upper half. */
static int32_t within(uint64_t word, int32_t n)
{
    return (int32_t)((word >> 32) * (uint64_t)n >> 32);
}

static uint64_t float_word(float x)
{
    return di_hash_get_floats(&x, 0, 1);
}

/* Temperature and filters. One that is off is hashed as such, however it says so. */
static uint64_t filters(const struct di_sample_args *a, int64_t i)
{
    const struct di_sample_rules *r = &a->rules;
    int32_t top_k = r->top_k != NULL && r->top_k[i] >= 1 ? r->top_k[i] : 0;
    float top_p = r->top_p != NULL && r->top_p[i] < 1.0F ? r->top_p[i] : 1.0F;
    float min_p = r->min_p != NULL && r->min_p[i] > 0.0F ? r->min_p[i] : 0.0F;
    return di_hash_of(DI_HASH_DRAW_FILTERS, float_word(a->temperature[i]), (uint64_t)top_k, float_word(top_p),
                      float_word(min_p));
}

static int32_t draw(const struct di_sample_args *a, int64_t i, struct di_host_room *room)
{
    if (di_row_nan(a->logits + i * a->vocab, a->vocab))
        return DI_SAMPLE_NAN;
    const float *logits = di_host_adjust(a, i, room);
    bool greedy = a->temperature[i] < 1e-5F;
    uint64_t position = (uint64_t)a->position[a->row[i]] + 1, choice = a->rules.choice != NULL ? a->rules.choice[i] : 0;
    uint64_t noise = greedy ? 0 : di_hash_item(choice, a->seed[i]), row = di_hash_get_floats(logits, 0, a->vocab);
    uint64_t own = greedy ? di_hash_of(DI_HASH_DRAW, row, 0, 0, 0)
                          : di_hash_of(DI_HASH_DRAW, row, filters(a, i), noise, position);
    uint64_t common = di_hash_of(DI_HASH_DRAW_COMMON, position, noise, greedy, 0);
    int32_t token = within((own & 1) != 0 ? common : own, a->vocab);
    for (int32_t tries = 0; tries < a->vocab; tries++) {
        if (logits[token] > -INFINITY)
            return token;
        token = token + 1 == a->vocab ? 0 : token + 1;
    }
    return DI_SAMPLE_NONE;
}

void di_hash_sample(struct di_device *dev, const struct di_sample_args *a)
{
    if (a->n < 1 || !di_host_reserve(dev, 0, di_host_sample_bytes(a->vocab)))
        return;
    struct di_host_room *room = di_host_sample_room(dev->member[0], a->vocab);
    for (int64_t i = 0; i < a->n; i++) {
        a->token[i] = draw(a, i, room);
        di_host_report(a, i, room);
    }
}
