/* Row picking and the draw. spec/runtime.md section 6.5. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"
#include "base/rng.h"

void di_host_gather(struct di_device *dev, const struct di_gather_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++)
        memcpy((char *)a->out + (size_t)i * a->row_bytes, (const char *)a->x + (size_t)a->index[i] * a->row_bytes,
               a->row_bytes);
}

/* Gumbel noise of one token id: -log(-log u), u = (x + 1/2) 2^-32 in double, rounded once. */
static float gumbel(uint32_t x)
{
    double u = ((double)x + 0.5) * 0x1p-32;
    return (float)-di_host_log_d(-di_host_log_d(u));
}

static int32_t draw(const float *logits, int32_t vocab, float temperature, uint64_t seed, int32_t position)
{
    bool greedy = temperature < 1e-5F;
    float best_value = -INFINITY;
    int32_t best = -1;
    uint32_t noise[4] = {0};
    for (int32_t id = 0; id < vocab; id++) {
        float value = logits[id];
        if (isnan(value))
            return -1;
        if (!greedy) {
            if (id % 4 == 0)
                di_philox4x32(seed, (uint32_t[4]){(uint32_t)id / 4, (uint32_t)position, 0, 0}, noise);
            value = value / temperature + gumbel(noise[id % 4]);
        }
        if (value > best_value) {
            best_value = value;
            best = id;
        }
    }
    return best;
}

void di_host_sample(struct di_device *dev, const struct di_sample_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++)
        a->token[i] = draw(a->logits + i * a->vocab, a->vocab, a->temperature[i], a->seed[i],
                           a->position[a->row[i]] + 1);
}
