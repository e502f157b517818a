/* Engram: hashing, table rows, gate. spec/model.md sections 12 and 13. */
#include <math.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

void di_host_resolve(struct di_device *dev, const struct di_resolve_args *a)
{
    (void)dev;
    for (int32_t i = 0; i < a->n; i++)
        if (a->token[i] <= -2)
            a->token[i] = a->drawn[-2 - a->token[i]] < 0 ? 0 : a->drawn[-2 - a->token[i]];
}

void di_host_engram_hash(struct di_device *dev, const struct di_engram_hash_args *a)
{
    (void)dev;
    int32_t columns = (a->ngram - 1) * a->heads;
    for (int64_t i = 0; i < a->n; i++) {
        int32_t compressed[DI_MAX_NGRAM];
        int64_t ids[DI_MAX_ENGRAM_COLUMNS];
        for (int32_t back = 0; back < a->ngram; back++) {
            int32_t token = a->window[i * a->ngram + back];
            compressed[back] = token < 0 ? -1 : a->map[token];
        }
        di_engram_hash(a->consts, a->ngram, a->heads, compressed, a->pad, ids);
        for (int32_t column = 0; column < columns; column++)
            a->ids[i * columns + column] = (int32_t)ids[column]; /* table rows fit: di_config_validate */
    }
}

void di_host_engram_lookup(struct di_device *dev, const struct di_engram_lookup_args *a)
{
    (void)dev; /* e4m3 times a power of two is exact in bf16 */
    int32_t width = a->table.cols;
    for (int64_t i = 0; i < (int64_t)a->n * a->columns; i++)
        di_weight_decode(&a->table, a->ids[i], 0, width, (float *)a->out + i * width);
}

static float gate_of(const struct di_device *dev, const struct di_engram_mix_args *a, int32_t stream, const float *x,
                     const float *key)
{
    int32_t dim = a->dim;
    const uint16_t *q = (const uint16_t *)a->q_weight.data + (int64_t)stream * dim;
    const uint16_t *k = (const uint16_t *)a->k_weight.data + (int64_t)stream * dim;
    float chain[8] = {0}; /* order F8 */
    for (int32_t c = 0; c < dim; c++)
        chain[c / 4 % 8] = fmaf(x[c] * di_bf16_to_f32(q[c]), key[c] * di_bf16_to_f32(k[c]), chain[c / 4 % 8]);
    float dot = ((chain[0] + chain[4]) + (chain[2] + chain[6])) + ((chain[1] + chain[5]) + (chain[3] + chain[7]));
    float rs = di_host_rms_inverse(dev, x, dim, a->eps) * di_host_rms_inverse(dev, key, dim, a->eps);
    dot = dot * rs * (float)(1.0 / sqrt((double)dim));
    float magnitude = fabsf(dot);
    return di_host_sigmoid(copysignf(sqrtf(magnitude > 1e-6F ? magnitude : 1e-6F), dot));
}

DI_VECTOR static void add_gated(float gate, const float *value, int32_t n, float *x)
{
    for (int32_t c = 0; c < n; c++)
        x[c] = fmaf(gate, value[c], x[c]);
}

struct mix_job {
    struct di_device *dev;
    const struct di_engram_mix_args *a;
};

static void mix_streams(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct mix_job *job = arg;
    const struct di_engram_mix_args *a = job->a;
    int32_t dim = a->dim;
    for (int64_t at = begin; at < end; at++) {
        int64_t i = at / a->hc, s = at % a->hc;
        const float *kv = (const float *)a->kv + i * (a->hc + 1) * dim;
        float *x = (float *)a->x + at * dim;
        a->gate[at] = gate_of(job->dev, a, (int32_t)s, x, kv + s * dim);
        add_gated(a->gate[at], kv + (int64_t)a->hc * dim, dim, x);
        di_host_acts(job->dev, x, dim);
    }
}

void di_host_engram_mix(struct di_device *dev, const struct di_engram_mix_args *a)
{
    struct mix_job job = {dev, a};
    di_host_elements(dev, (int64_t)a->n * a->hc, 4 * (int64_t)a->dim, mix_streams, &job);
}
