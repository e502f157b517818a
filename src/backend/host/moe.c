/* Router and experts. spec/model.md section 11. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

struct gate_job {
    struct di_device *dev;
    const struct di_gate_args *a;
};

/* Index of the greatest value not yet taken; ties to the lowest; NaN loses, and is taken only when nothing else is left. */
static int32_t next_best(const float *values, const bool *taken, int32_t n)
{
    int32_t best = -1;
    for (int32_t e = 0; e < n; e++)
        if (!taken[e] && (best < 0 || values[e] > values[best] || (isnan(values[best]) && !isnan(values[e]))))
            best = e;
    return best;
}

/* Bytes of two floats and a flag per expert, rounded up to 64. */
static size_t gate_tables(int32_t n_experts)
{
    return ((size_t)n_experts * (2 * sizeof(float) + sizeof(bool)) + 63) & ~(size_t)63;
}

static void gate_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct gate_job *job = arg;
    const struct di_gate_args *a = job->a;
    struct di_device *dev = job->dev;
    int32_t n_experts = (int32_t)a->weight.rows, dim = a->weight.cols;
    float *score = (void *)dev->member[member], *biased = score + n_experts;
    bool *taken = (void *)(biased + n_experts);
    unsigned char *work = dev->member[member] + gate_tables(n_experts), *row = work + di_host_input_bytes(dim);
    for (int64_t i = begin; i < end; i++) {
        struct di_host_input in = di_host_prepare(dev, a->weight.format, (const float *)a->x + i * dim, dim, work);
        dev->k->products(dev, &a->weight, 0, n_experts, &in, 1, 1, score, 0, row);
        for (int32_t e = 0; e < n_experts; e++) {
            score[e] = sqrtf(di_host_softplus(score[e] / a->temp));
            biased[e] = score[e] + a->bias[e];
        }
        memset(taken, 0, (size_t)n_experts * sizeof *taken);
        float sum = 0.0F, last = 0.0F;
        for (int32_t k = 0; k < a->topk; k++) {
            int32_t e = next_best(biased, taken, n_experts);
            taken[e] = true;
            a->ids[i * a->topk + k] = e;
            sum += score[e];
            last = biased[e];
        }
        for (int32_t k = 0; k < a->topk; k++)
            a->weights[i * a->topk + k] = score[a->ids[i * a->topk + k]] / (sum + 1e-20F) * a->scaling;
        if (a->margin != NULL) {
            int32_t e = next_best(biased, taken, n_experts);
            a->margin[i] = e < 0 ? INFINITY : last - biased[e];
        }
    }
}

void di_host_gate(struct di_device *dev, const struct di_gate_args *a)
{
    int32_t dim = a->weight.cols;
    size_t bytes = gate_tables((int32_t)a->weight.rows) + di_host_input_bytes(dim) + di_host_row_bytes(dim);
    if (!di_host_reserve(dev, 0, bytes))
        return;
    struct gate_job job = {dev, a};
    di_host_parallel(dev, a->n, gate_rows, &job);
}

/* One expert on one row. `work` holds a prepared input, the kernels' scratch, and 2 * inner floats. */
static void expert_forward(const struct di_device *dev, const struct di_expert *expert, const float *x, float weight,
                           float limit, unsigned char *work, float *out)
{
    int32_t dim = expert->w1.cols, inner = expert->w2.cols;
    int32_t widest = dim > inner ? dim : inner;
    unsigned char *row = work + di_host_input_bytes(widest);
    float *gate = (void *)(row + di_host_row_bytes(widest)), *up = gate + inner;
    struct di_host_input in = di_host_prepare(dev, expert->w1.format, x, dim, work);
    dev->k->products(dev, &expert->w1, 0, inner, &in, 1, 1, gate, 0, row);
    dev->k->products(dev, &expert->w3, 0, inner, &in, 1, 1, up, 0, row);
    for (int32_t r = 0; r < inner; r++) {
        float g = di_host_act(dev, gate[r]), u = di_host_act(dev, up[r]);
        u = u > limit ? limit : u < -limit ? -limit : u;
        g = g > limit ? limit : g; /* the gate is bounded from above only */
        gate[r] = di_host_act(dev, weight * (g * di_host_sigmoid(g) * u));
    }
    in = di_host_prepare(dev, expert->w2.format, gate, inner, work);
    dev->k->products(dev, &expert->w2, 0, dim, &in, 1, 1, out, 0, row);
    for (int32_t r = 0; r < dim; r++)
        out[r] = di_host_act(dev, out[r]);
}

static size_t expert_scratch(int32_t dim, int32_t inner)
{
    int32_t widest = dim > inner ? dim : inner;
    return di_host_input_bytes(widest) + di_host_row_bytes(widest) + 2 * (size_t)inner * sizeof(float);
}

struct experts_job {
    struct di_device *dev;
    const struct di_experts_args *a;
};

static void expert_slots(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct experts_job *job = arg;
    const struct di_experts_args *a = job->a;
    for (int64_t slot = begin; slot < end; slot++) {
        float *out = (float *)a->out + slot * a->dim;
        if (a->ids[slot] < 0)
            memset(out, 0, (size_t)a->dim * sizeof *out);
        else
            expert_forward(job->dev, &a->experts[a->ids[slot]], (const float *)a->x + slot / a->topk * a->dim,
                           a->weights[slot], a->limit, job->dev->member[member], out);
    }
}

void di_host_experts(struct di_device *dev, const struct di_experts_args *a)
{
    if (!di_host_reserve(dev, 0, expert_scratch(a->dim, a->inner)))
        return;
    struct experts_job job = {dev, a};
    di_host_parallel(dev, (int64_t)a->n * a->topk, expert_slots, &job);
}

struct shared_job {
    struct di_device *dev;
    const struct di_shared_expert_args *a;
};

static void shared_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct shared_job *job = arg;
    const struct di_shared_expert_args *a = job->a;
    for (int64_t i = begin; i < end; i++)
        expert_forward(job->dev, &a->expert, (const float *)a->x + i * a->dim, 1.0F, a->limit, job->dev->member[member],
                       (float *)a->out + i * a->dim);
}

void di_host_shared_expert(struct di_device *dev, const struct di_shared_expert_args *a)
{
    if (!di_host_reserve(dev, 0, expert_scratch(a->dim, a->inner)))
        return;
    struct shared_job job = {dev, a};
    di_host_parallel(dev, a->n, shared_rows, &job);
}

void di_host_combine(struct di_device *dev, const struct di_combine_args *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        const float *slots = (const float *)a->slots + i * a->topk * a->dim;
        const float *shared = (const float *)a->shared + i * a->dim;
        float *out = (float *)a->out + i * a->dim;
        for (int32_t c = 0; c < a->dim; c++) {
            float sum = 0.0F;
            for (int32_t k = 0; k < a->topk; k++)
                sum += slots[(int64_t)k * a->dim + c];
            out[c] = di_host_act(dev, sum + shared[c]);
        }
    }
}
