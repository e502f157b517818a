/* Matrix products by the two rules of ops/ops.h: F8 everywhere, R1 for FP4 weights in mode native. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <stdatomic.h>

#include "backend/host/host.h"
#include "base/mem.h"
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
    size_t k = (size_t)cols, blocks = k / 32 + 1;
    size_t scalar = round64(k * sizeof(float)) + round64(k * sizeof(int32_t)) + round64(blocks * sizeof(float)) +
                    round64(k) + round64(blocks);
    size_t limbs = blocks * 5 * (32 + sizeof(int32_t)) + round64(blocks * sizeof(float)) + round64(blocks) + 64;
    size_t most = scalar > limbs ? scalar : limbs;
    return (most + 1023) / 2048 * 2048 + 1024;
}

size_t di_host_product_bytes(int32_t cols, int32_t n)
{
    (void)n;
    return di_host_input_bytes(cols);
}

enum di_host_rule di_host_rule(const struct di_device *dev, enum di_format format)
{
    if (dev->mode == DI_MODE_ORACLE || (format != DI_FMT_FP8 && format != DI_FMT_FP4))
        return DI_RULE_F8;
    if (dev->mode == DI_MODE_FAST)
        return format == DI_FMT_FP4 ? DI_RULE_R1_INT8 : DI_RULE_F8;
    return format == DI_FMT_FP4 ? DI_RULE_R1 : DI_RULE_F8_QUANT;
}

int64_t di_host_row_unit(const struct di_device *dev, int64_t rows)
{
    return rows >= 128 * (int64_t)di_team_size(dev->team) ? 32 : 16;
}

struct scratch {
    float *f;
    int32_t *q;
    float *s;
    uint8_t *codes, *scales;
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

struct di_host_input di_host_prepare(enum di_host_rule rule, const float *x, int32_t cols, void *room)
{
    struct scratch s = carve(room, cols);
    if (rule == DI_RULE_F8_QUANT || rule == DI_RULE_R1)
        return quantise_input(x, cols, &s);
    if (rule == DI_RULE_R1_INT8) {
        di_act_quant_int8(x, cols, s.q, s.s);
        return (struct di_host_input){.q = s.q, .s = s.s};
    }
    memcpy(s.f, x, (size_t)cols * sizeof *x);
    return (struct di_host_input){.f = s.f};
}

static struct di_host_input weight_row(bool integers, const struct di_weight *w, int64_t row, void *memory)
{
    struct scratch s = carve(memory, w->cols);
    if (!integers) {
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

/* Rule R1. 32 products of at most 12 * 229376 fit in int32 exactly; the conversion is the one rounding. `unit` is what one unit
 * of the integers stands for. */
static float dot_r1(const struct di_host_input *x, const struct di_host_input *w, int32_t cols, float unit)
{
    float acc = 0.0F;
    for (int32_t b = 0; b < cols / 32; b++) {
        int32_t sum = 0;
        for (int32_t i = b * 32; i < b * 32 + 32; i++)
            sum += x->q[i] * w->q[i];
        acc = fmaf((float)sum * unit, x->s[b] * w->s[b], acc);
    }
    return acc;
}

void di_host_products(enum di_host_rule rule, const struct di_weight *w, int64_t begin, int64_t end,
                      const struct di_host_pair *pairs, int32_t n, void *scratch)
{
    bool integers = rule == DI_RULE_R1 || rule == DI_RULE_R1_INT8;
    float unit = rule == DI_RULE_R1 ? 0x1p-10F : 0.5F;
    for (int64_t row = begin; row < end; row++) {
        struct di_host_input decoded = weight_row(integers, w, row, scratch);
        for (int64_t i = 0; i < n; i++)
            pairs[i].out[row] = integers ? dot_r1(pairs[i].in, &decoded, w->cols, unit)
                                         : di_host_dot(pairs[i].in->f, decoded.f, w->cols);
    }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * linear and group_linear: inputs are prepared once, then members take units of W's rows. */

struct linear_job {
    struct di_device *dev;
    const struct di_weight *weight;
    const float *x;
    struct di_host_input *inputs; /* [n * groups] */
    struct di_host_pair *pairs;   /* [groups][n] */
    unsigned char *rooms;
    enum di_host_rule rule;
    int32_t n, groups;
    int64_t unit;
    bool f32_out;
    float *out;
};

static void prepare_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct linear_job *job = arg;
    (void)member;
    int32_t cols = job->weight->cols;
    for (int64_t i = begin; i < end; i++) {
        job->inputs[i] = job->dev->k->prepare(job->rule, job->x + i * cols, cols,
                                              job->rooms + (size_t)i * di_host_input_bytes(cols));
        job->pairs[i % job->groups * job->n + i / job->groups] = (struct di_host_pair){
            &job->inputs[i], job->out + i / job->groups * job->weight->rows};
    }
}

static void linear_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct linear_job *job = arg;
    struct di_device *dev = job->dev;
    const struct di_weight *w = job->weight;
    int64_t rank = w->rows / job->groups;
    begin *= job->unit;
    end = end * job->unit < w->rows ? end * job->unit : w->rows;
    while (begin < end) { /* rows of one group meet the same inputs */
        int64_t group = begin / rank, stop = (group + 1) * rank < end ? (group + 1) * rank : end;
        dev->k->products(job->rule, w, begin, stop, job->pairs + group * job->n, job->n, dev->member[member]);
        for (int32_t i = 0; i < job->n && !job->f32_out; i++)
            di_host_acts(dev, job->out + i * w->rows + begin, stop - begin);
        begin = stop;
    }
}

size_t di_host_linear_bytes(int64_t inputs, int32_t cols)
{
    size_t count = (size_t)inputs;
    return round64(count * sizeof(struct di_host_input)) + round64(count * sizeof(struct di_host_pair)) +
           count * di_host_input_bytes(cols);
}

static void run_linear(struct linear_job *job)
{
    struct di_device *dev = job->dev;
    int32_t cols = job->weight->cols;
    size_t count = (size_t)job->n * (size_t)job->groups, table = round64(count * sizeof(struct di_host_input));
    size_t pairs = round64(count * sizeof(struct di_host_pair));
    if (!di_host_reserve(dev, di_host_linear_bytes((int64_t)count, cols), dev->k->product_bytes(cols, job->n)))
        return;
    job->inputs = (void *)dev->shared;
    job->pairs = (void *)(dev->shared + table);
    job->rooms = dev->shared + table + pairs;
    job->unit = di_host_row_unit(dev, job->weight->rows);
    if (count < 4) /* not worth a barrier */
        prepare_rows(job, 0, (int64_t)count, 0);
    else
        di_host_parallel(dev, (int64_t)count, prepare_rows, job);
    di_host_parallel(dev, (job->weight->rows + job->unit - 1) / job->unit, linear_rows, job);
}

void di_host_linear(struct di_device *dev, const struct di_linear_args *a)
{
    struct linear_job job = {.dev = dev,
                             .weight = &a->weight,
                             .x = a->x,
                             .rule = di_host_rule(dev, a->weight.format),
                             .n = a->n,
                             .groups = 1,
                             .f32_out = a->f32_out,
                             .out = a->out};
    run_linear(&job);
}

float *di_host_multiply(struct di_device *dev, const struct di_weight *w, const float *x, int32_t n)
{
    size_t floats = (size_t)n * (size_t)w->rows;
    if (floats > dev->product_floats) {
        free(dev->products);
        dev->products = di_aligned_calloc(floats, sizeof *dev->products);
        dev->product_floats = dev->products != NULL ? floats : 0;
        if (dev->products == NULL) {
            if (dev->failure.code == DI_OK)
                (void)DI_FAIL_NOMEM(&dev->failure, floats * sizeof *dev->products);
            atomic_store(&dev->broken, true);
            return NULL;
        }
    }
    struct di_linear_args a = {.n = n, .x = x, .weight = *w, .f32_out = true, .out = dev->products};
    bool failed = dev->failure.code != DI_OK;
    di_host_linear(dev, &a);
    return !failed && dev->failure.code != DI_OK ? NULL : dev->products;
}

void di_host_group_linear(struct di_device *dev, const struct di_group_linear_args *a)
{
    struct linear_job job = {.dev = dev,
                             .weight = &a->weight,
                             .x = a->x,
                             .rule = DI_RULE_F8, /* not quantised: the format is FP8 on disk, bf16 in use (17.9) */
                             .n = a->n,
                             .groups = a->groups,
                             .out = a->out};
    run_linear(&job);
}
