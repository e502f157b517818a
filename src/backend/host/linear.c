/* Matrix products by the two rules of ops/ops.h: F8 everywhere, R1 for FP4 weights in mode native. */
#include <math.h>

#include "backend/host/host.h"
#include "numerics/quant.h"

/* C's fmaf gives the bits of the instruction, in software where the compiler may not use it. */
float di_host_dot(const float *a, const float *w, int32_t k)
{
    float c[8] = {0};
    for (int32_t i = 0; i < k; i++)
        c[i / 4 % 8] = fmaf(a[i], w[i], c[i / 4 % 8]);
    return ((c[0] + c[4]) + (c[2] + c[6])) + ((c[1] + c[5]) + (c[3] + c[7]));
}

void di_host_axpy(float a, const float *x, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

static size_t round64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

size_t di_host_input_bytes(int32_t cols)
{
    size_t k = (size_t)cols;
    return round64(k * sizeof(float)) + round64(k * sizeof(int32_t)) + round64((k / 32 + 1) * sizeof(float)) +
           round64(k) + round64(k / 32 + 1) + round64(12 * k);
}

size_t di_host_row_bytes(int32_t cols)
{
    return 8 * round64((size_t)cols * sizeof(float)) + di_host_input_bytes(cols); /* eight rows at once */
}

struct scratch {
    float *f;
    int32_t *q;
    float *s;
    uint8_t *codes, *scales;
    void *arranged;
};

static struct scratch carve(void *memory, int32_t cols)
{
    size_t k = (size_t)cols;
    unsigned char *at = memory;
    struct scratch out;
    out.f = (void *)at;
    at += round64(k * sizeof(float));
    out.q = (void *)at;
    at += round64(k * sizeof(int32_t));
    out.s = (void *)at;
    at += round64((k / 32 + 1) * sizeof(float));
    out.codes = at;
    out.scales = at + round64(k);
    out.arranged = out.scales + round64(k / 32 + 1);
    return out;
}

/* act_quant8, as exact floats and as integers. */
static struct di_host_input quantise_input(const float *x, int32_t cols, const struct scratch *s)
{
    const float *e4m3 = di_e4m3_table();
    di_act_quant8(x, cols, s->codes, s->scales);
    for (int32_t i = 0; i < cols; i++) {
        float scale = di_e8m0_to_f32(s->scales[i / 32]);
        if (i % 32 == 0)
            s->s[i / 32] = scale;
        float value = e4m3[s->codes[i]];
        s->f[i] = value * scale; /* exact */
        if (isnan(value)) {      /* no integer stands for it: the block's scale carries it */
            s->s[i / 32] = NAN;
            s->q[i] = 0;
        } else {
            s->q[i] = (int32_t)(value * 512.0F);
        }
    }
    return (struct di_host_input){.f = s->f, .q = s->q, .s = s->s};
}

struct di_host_input di_host_prepare(const struct di_device *dev, enum di_format format, const float *x, int32_t cols,
                                     void *memory)
{
    struct di_host_input in = {.f = x};
    struct scratch s = carve(memory, cols);
    bool quantise = dev->mode == DI_MODE_NATIVE && (format == DI_FMT_FP8 || format == DI_FMT_FP4);
    if (quantise)
        in = quantise_input(x, cols, &s);
    if (dev->k->arrange != NULL && cols % 32 == 0)
        dev->k->arrange(&in, cols, quantise && format == DI_FMT_FP4, s.arranged);
    return in;
}

static struct di_host_input weight_row(const struct di_device *dev, const struct di_weight *w, int64_t row,
                                       void *memory)
{
    struct scratch s = carve(memory, w->cols);
    if (w->format != DI_FMT_FP4 || dev->mode != DI_MODE_NATIVE) {
        di_weight_decode(w, row, 0, w->cols, s.f);
        return (struct di_host_input){.f = s.f};
    }
    const uint8_t *codes = (const uint8_t *)w->data + row * (int64_t)w->cols / 2;
    const uint8_t *scales = w->scale + row * (int64_t)(w->cols / 32);
    for (int32_t i = 0; i < w->cols; i++)
        s.q[i] = (int32_t)(2.0F * di_e2m1_to_f32((uint8_t)(codes[i / 2] >> (i % 2 * 4)) & 15U));
    for (int32_t b = 0; b < w->cols / 32; b++)
        s.s[b] = di_e8m0_to_f32(scales[b]);
    return (struct di_host_input){.q = s.q, .s = s.s};
}

/* Rule R1. 32 products of at most 12 * 229376 fit in int32 exactly; the conversion is the one rounding. */
static float dot_r1(const struct di_host_input *x, const struct di_host_input *w, int32_t cols)
{
    float acc = 0.0F;
    for (int32_t b = 0; b < cols / 32; b++) {
        int32_t sum = 0;
        for (int32_t i = b * 32; i < b * 32 + 32; i++)
            sum += x->q[i] * w->q[i];
        acc = fmaf((float)sum * 0x1p-10F, x->s[b] * w->s[b], acc);
    }
    return acc;
}

static float row_dot(const struct di_device *dev, enum di_format format, const struct di_host_input *x,
                     const struct di_host_input *w, int32_t cols)
{
    if (format == DI_FMT_FP4 && dev->mode == DI_MODE_NATIVE)
        return dot_r1(x, w, cols);
    return di_host_dot(x->f, w->f, cols);
}

void di_host_products(const struct di_device *dev, const struct di_weight *w, int64_t begin, int64_t end,
                      const struct di_host_input *inputs, int32_t n, int32_t step, float *out, int64_t stride,
                      void *scratch)
{
    for (int64_t row = begin; row < end; row++) {
        struct di_host_input decoded = weight_row(dev, w, row, scratch);
        for (int64_t i = 0; i < n; i++)
            out[i * stride + row] = row_dot(dev, w->format, &inputs[i * step], &decoded, w->cols);
    }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * linear and group_linear: inputs are prepared once, then every output row of W is decoded once and meets all of them. */

struct linear_job {
    struct di_device *dev;
    const struct di_weight *weight;
    const struct di_host_input *inputs; /* [n * groups] */
    int32_t n, groups;
    bool f32_out;
    float *out;
};

static void linear_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct linear_job *job = arg;
    struct di_device *dev = job->dev;
    const struct di_weight *w = job->weight;
    int64_t rank = w->rows / job->groups;
    while (begin < end) { /* rows of one group meet the same inputs */
        int64_t group = begin / rank, stop = (group + 1) * rank < end ? (group + 1) * rank : end;
        dev->k->products(dev, w, begin, stop, job->inputs + group, job->n, job->groups, job->out, w->rows,
                         dev->member[member]);
        for (int32_t i = 0; i < job->n && !job->f32_out; i++)
            for (int64_t row = begin; row < stop; row++)
                job->out[i * w->rows + row] = di_host_act(dev, job->out[i * w->rows + row]);
        begin = stop;
    }
}

void di_host_linear(struct di_device *dev, const struct di_linear_args *a)
{
    int32_t cols = a->weight.cols;
    size_t each = di_host_input_bytes(cols), table = round64((size_t)a->n * sizeof(struct di_host_input));
    if (!di_host_reserve(dev, table + (size_t)a->n * each, di_host_row_bytes(cols)))
        return;
    struct di_host_input *inputs = (void *)dev->shared;
    for (int32_t i = 0; i < a->n; i++)
        inputs[i] = di_host_prepare(dev, a->weight.format, (const float *)a->x + (int64_t)i * cols, cols,
                                    dev->shared + table + (size_t)i * each);
    struct linear_job job = {dev, &a->weight, inputs, a->n, 1, a->f32_out, a->out};
    di_host_parallel(dev, a->weight.rows, linear_rows, &job);
}

void di_host_group_linear(struct di_device *dev, const struct di_group_linear_args *a)
{
    int32_t cols = a->weight.cols;
    size_t count = (size_t)a->n * (size_t)a->groups, each = di_host_input_bytes(cols);
    size_t table = round64(count * sizeof(struct di_host_input));
    if (!di_host_reserve(dev, table + count * each, di_host_row_bytes(cols)))
        return;
    struct di_host_input *inputs = (void *)dev->shared;
    for (size_t i = 0; i < count; i++) /* not quantised: the format is FP8 on disk, bf16 in use (17.9) */
        inputs[i] = di_host_prepare(dev, DI_FMT_BF16, (const float *)a->x + i * (size_t)cols, cols,
                                    dev->shared + table + i * each);
    struct linear_job job = {dev, &a->weight, inputs, a->n, a->groups, false, a->out};
    di_host_parallel(dev, a->weight.rows, linear_rows, &job);
}
