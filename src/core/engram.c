#include "core/engram.h"

#include <stdbool.h>

__extension__ typedef unsigned __int128 u128;

static bool is_prime(int64_t n)
{
    if (n < 4)
        return n > 1;
    if (n % 2 == 0)
        return false;
    for (int64_t d = 3; d * d <= n; d += 2)
        if (n % d == 0)
            return false;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * numpy.random.default_rng(seed).integers(0, bound, n, int64): SeedSequence, PCG64, Lemire's bounded draw (13.4). */

static uint32_t hashmix(uint32_t value, uint32_t *state)
{
    value ^= *state;
    *state *= 0x931e8875U;
    value *= *state;
    return value ^ value >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
    uint32_t r = 0xca01f9ddU * x - 0x4973f715U * y;
    return r ^ r >> 16;
}

static void seed_words(uint64_t seed, uint64_t out[4])
{
    uint32_t entropy[4] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, pool[4], state = 0x43b0d7e5U;
    for (int i = 0; i < 4; i++)
        pool[i] = hashmix(entropy[i], &state);
    for (int s = 0; s < 4; s++)
        for (int d = 0; d < 4; d++)
            if (d != s)
                pool[d] = mix(pool[d], hashmix(pool[s], &state));
    uint32_t words[8], state2 = 0x8b51f9ddU;
    for (int i = 0; i < 8; i++) {
        uint32_t value = pool[i % 4] ^ state2;
        state2 *= 0x58f38dedU;
        value *= state2;
        words[i] = value ^ value >> 16;
    }
    for (int i = 0; i < 4; i++)
        out[i] = (uint64_t)words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
}

struct pcg64 {
    u128 state, inc;
};

static void pcg_step(struct pcg64 *rng)
{
    const u128 multiplier = (u128)0x2360ED051FC65DA4U << 64 | 0x4385DF649FCCF645U;
    rng->state = rng->state * multiplier + rng->inc;
}

static struct pcg64 pcg_seed(uint64_t seed)
{
    uint64_t u[4];
    seed_words(seed, u);
    struct pcg64 rng = {.inc = ((u128)u[2] << 64 | u[3]) << 1 | 1};
    pcg_step(&rng);
    rng.state += (u128)u[0] << 64 | u[1];
    pcg_step(&rng);
    return rng;
}

static uint64_t pcg_next(struct pcg64 *rng)
{
    pcg_step(rng);
    uint64_t x = (uint64_t)(rng->state >> 64) ^ (uint64_t)rng->state;
    unsigned rotate = (unsigned)(rng->state >> 122);
    return x >> rotate | x << ((64 - rotate) & 63);
}

static uint64_t bounded(struct pcg64 *rng, uint64_t bound)
{
    u128 product = (u128)pcg_next(rng) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = (UINT64_MAX - (bound - 1)) % bound;
        while ((uint64_t)product < threshold)
            product = (u128)pcg_next(rng) * bound;
    }
    return (uint64_t)(product >> 64);
}

di_status di_engram_consts_derive(const struct di_config *c, int32_t table, struct di_engram_consts *out,
                                  struct di_error *err)
{
    *out = (struct di_engram_consts){.columns = di_engram_columns(c)};
    if (out->columns > DI_MAX_ENGRAM_COLUMNS)
        return DI_FAIL(err, DI_ERR_LIMIT,
                       "engram_max_ngram_size %d and engram_n_heads %d give %d hash columns; %d at most",
                       c->engram_max_ngram_size, c->engram_n_heads, out->columns, DI_MAX_ENGRAM_COLUMNS);
    /* One ascending list over all tables; earlier tables' primes are skipped. */
    int64_t prime = c->engram_vocab_size - 1;
    for (int32_t t = 0; t <= table; t++) {
        out->rows = 0;
        for (int32_t column = 0; column < out->columns; column++) {
            do
                prime++;
            while (!is_prime(prime));
            out->primes[column] = prime;
            out->offsets[column] = out->rows;
            out->rows += prime;
        }
    }
    struct pcg64 rng = pcg_seed(10007ULL * (uint64_t)c->engram_layer_ids[table]);
    /* The bound keeps compressed id x multiplier below 2^63. */
    uint64_t bound = (uint64_t)INT64_MAX / (uint64_t)c->engram_compressed_vocab_size / 2;
    for (int32_t shift = 0; shift < c->engram_max_ngram_size; shift++)
        out->multipliers[shift] = (int64_t)(2 * bounded(&rng, bound > 0 ? bound : 1) + 1);
    if (out->rows != c->engram_num_embeddings[table])
        return DI_FAIL(
            err, DI_ERR_FORMAT,
            "engram_num_embeddings[%d] is %lld; the primes of its hash columns (from engram_vocab_size %lld) "
            "sum to %lld",
            table, (long long)c->engram_num_embeddings[table], (long long)c->engram_vocab_size, (long long)out->rows);
    return DI_OK;
}

void di_engram_hash(const struct di_engram_consts *consts, int32_t max_ngram, int32_t n_heads, const int32_t *window,
                    int32_t pad, int64_t *ids)
{
    bool blocked = false; /* sticky: what lies behind a missing token is not looked at */
    uint64_t roll = 0;
    for (int32_t shift = 0; shift < max_ngram; shift++) {
        blocked = blocked || window[shift] < 0;
        roll ^= (uint64_t)(blocked ? pad : window[shift]) * (uint64_t)consts->multipliers[shift];
        for (int32_t head = 0; shift > 0 && head < n_heads; head++) {
            int32_t column = (shift - 1) * n_heads + head;
            ids[column] = (int64_t)(roll % (uint64_t)consts->primes[column]) + consts->offsets[column];
        }
    }
}
