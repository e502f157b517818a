/* The draw. */
#include <math.h>

#include "backend/hash/operations.h"
#include "backend/hash/words.h"
#include "backend/host/math.h"

DI_VECTOR static bool any_nan(const float *x, int32_t n)
{
    int32_t found = 0;
    for (int32_t j = 0; j < n; j++)
        found |= x[j] != x[j];
    return found != 0;
}

/* The word's place in 0 .. n - 1, by its upper half. */
static int32_t within(uint64_t word, int32_t n)
{
    return (int32_t)((word >> 32) * (uint64_t)n >> 32);
}

static int32_t draw(const float *logits, int32_t vocab, float temperature, uint64_t seed, int32_t position)
{
    if (any_nan(logits, vocab))
        return -1;
    bool greedy = temperature < 1e-5F;
    uint64_t row = di_hash_get_floats(logits, 0, vocab), noise = greedy ? 0 : seed, own;
    own = greedy ? di_hash_of(DI_HASH_DRAW, row, 0, 0, 0)
                 : di_hash_of(DI_HASH_DRAW, row, di_hash_get_floats(&temperature, 0, 1), seed, (uint64_t)position);
    uint64_t common = di_hash_of(DI_HASH_DRAW_COMMON, (uint64_t)position, noise, greedy, 0);
    int32_t token = within((own & 1) != 0 ? common : own, vocab);
    for (int32_t tries = 0; tries < vocab; tries++) {
        if (logits[token] > -INFINITY)
            return token;
        token = token + 1 == vocab ? 0 : token + 1;
    }
    return -1;
}

void di_hash_sample(struct di_device *dev, const struct di_sample_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++)
        a->token[i] = draw(a->logits + i * a->vocab, a->vocab, a->temperature[i], a->seed[i],
                           a->position[a->row[i]] + 1);
}
