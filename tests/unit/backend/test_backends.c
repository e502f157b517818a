/* Backends whose memory is the host's: transcendentals against the C library, orders F8 and R1 written out, batch invariance
 * of every row, equal bits of all backends, selections and the draw. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/host/math.h"
#include "backend/registry.h"
#include "numerics/codes.h"
#include "ops/ops.h"

static uint32_t random_state = 12345;

static float uniform(void) /* -1 .. 1 */
{
    random_state = random_state * 1664525U + 1013904223U;
    return (float)(random_state >> 8) * 0x1p-23F - 1.0F;
}

static const char *const backends[] = {"reference", "avx2", "avx512"};
enum { BACKENDS = 3 };

/* Backend reference, or backend cpu with the named instruction set; NULL where this processor cannot run it. */
static const struct di_ops *open_backend(const char *name, enum di_mode mode, int32_t threads, struct di_device **dev)
{
    const struct di_ops *ops;
    struct di_error err = {0};
    bool reference = strcmp(name, "reference") == 0;
    assert_int_equal(di_backend_find("cpu", reference ? name : "cpu", &ops, &err), DI_OK);
    struct di_device_options options = {.mode = mode, .threads = threads, .cpu_isa = reference ? NULL : name};
    di_status status = ops->open(&options, dev, &err);
    if (status == DI_ERR_UNSUPPORTED && !reference)
        return NULL;
    assert_int_equal(status, DI_OK);
    return ops;
}

static const struct di_ops *ops_of(enum di_mode mode, int32_t threads, struct di_device **dev)
{
    return open_backend("reference", mode, threads, dev);
}

/* Within 0.51 ulp of float: the difference to the C library's double, in units of the float's last place. */
static void close_enough(float ours, double exact)
{
    double ulp = ldexp(1.0, ilogb(exact != 0.0 ? exact : 1e-30) - 23);
    assert_true(fabs((double)ours - exact) <= 0.51 * ulp);
}

static void transcendentals_are_correctly_rounded(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        float x = uniform() * 80.0F, angle = (uniform() + 1.0F) * 524288.0F, sine, cosine;
        close_enough(di_host_exp(x), exp((double)x));
        close_enough(di_host_sigmoid(x), 1.0 / (1.0 + exp(-(double)x)));
        if (x <= 20.0F)
            close_enough(di_host_softplus(x), log1p(exp((double)x)));
        di_host_sincos(angle, &sine, &cosine);
        assert_true(fabs((double)sine - sin((double)angle)) < 6e-8);
        assert_true(fabs((double)cosine - cos((double)angle)) < 6e-8);
        double y = exp((double)x);
        assert_true(fabs(di_host_log_d(y) - log(y)) <= 4e-16 * fmax(1.0, fabs(log(y))));
    }
    assert_true(di_host_exp(-1000.0F) == 0.0F);
    assert_true(isinf(di_host_exp(1000.0F)));
    assert_true(isnan(di_host_exp(NAN)));
    close_enough((float)sqrt((double)di_host_softplus(-5.0F)), 0.0819472299);
}

static void f8_order_is_the_documented_one(void **state)
{
    (void)state;
    enum { K = 100 };
    struct di_device *dev;
    const struct di_ops *ops = ops_of(DI_MODE_ORACLE, 1, &dev);
    float x[K], y, chain[8] = {0};
    uint16_t w[K];
    for (int i = 0; i < K; i++) {
        x[i] = uniform() * 1000.0F;
        w[i] = di_bf16_from_f32(uniform());
        chain[i / 4 % 8] = fmaf(x[i], di_bf16_to_f32(w[i]), chain[i / 4 % 8]);
    }
    float wanted = ((chain[0] + chain[4]) + (chain[2] + chain[6])) + ((chain[1] + chain[5]) + (chain[3] + chain[7]));
    struct di_weight weight = {.format = DI_FMT_BF16, .rows = 1, .cols = K, .data = w};
    ops->linear(dev, &(struct di_linear_args){.n = 1, .x = x, .weight = weight, .f32_out = true, .out = &y});
    assert_int_equal(di_f32_bits(y), di_f32_bits(wanted));
    ops->close(dev);
}

static void r1_order_is_the_documented_one(void **state)
{
    (void)state;
    enum { K = 128 };
    struct di_device *dev;
    const struct di_ops *ops = ops_of(DI_MODE_NATIVE, 1, &dev);
    float x[K], y, acc = 0.0F;
    uint8_t w[K / 2], w_scale[K / 32], a[K], a_scale[K / 32];
    for (int i = 0; i < K; i++)
        x[i] = uniform() * ldexpf(1.0F, i / 32 * 3 - 5);
    for (int i = 0; i < K / 2; i++)
        w[i] = (uint8_t)(uniform() * 128.0F + 128.0F);
    for (int b = 0; b < K / 32; b++)
        w_scale[b] = (uint8_t)(120 + b);
    di_act_quant8(x, K, a, a_scale);
    for (int b = 0; b < K / 32; b++) {
        double sum = 0.0; /* exact */
        for (int i = 32 * b; i < 32 * b + 32; i++)
            sum += (double)di_e4m3_table()[a[i]] * (double)di_e2m1_to_f32((uint8_t)(w[i / 2] >> (i % 2 * 4)));
        acc = fmaf((float)sum, di_e8m0_to_f32(a_scale[b]) * di_e8m0_to_f32(w_scale[b]), acc);
    }
    struct di_weight weight = {.format = DI_FMT_FP4, .rows = 1, .cols = K, .data = w, .scale = w_scale};
    ops->linear(dev, &(struct di_linear_args){.n = 1, .x = x, .weight = weight, .f32_out = true, .out = &y});
    assert_int_equal(di_f32_bits(y), di_f32_bits(acc));
    ops->close(dev);
}

/* Random weight bytes: every code, NaN codes too if `nan`, and scales from one end of e8m0 to the other if `wild`. */
static void fill_weight(uint8_t *bytes, size_t n_bytes, uint8_t *scale, size_t n_scales, bool nan, bool wild)
{
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = (uint8_t)(uniform() * 127.9F + 128.0F);
        if (!nan)
            bytes[i] &= 0x77; /* no NaN code in any format */
    }
    for (size_t i = 0; i < n_scales; i++)
        scale[i] = (uint8_t)(wild ? uniform() * 127.9F + 128.0F : uniform() * 6.0F + 120.0F);
}

static float heavy(void) /* now and then a magnitude far above the others */
{
    float u = uniform();
    return u / (fabsf(u) + 0.003F) * 0.02F / (fabsf(uniform()) + 0.001F);
}

/* Equal bits, where NaN equals NaN: which NaN an addition of two of them gives is the processor's affair. */
static void same_values(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(isnan(a[i]) && isnan(b[i])))
            assert_int_equal(di_f32_bits(a[i]), di_f32_bits(b[i]));
}

/* Every row of every batch size has the bits of that row alone, on one and on two threads. */
static void linear_rows_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    enum { N = 129, K = 608, ROWS = 75 };
    static const int32_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 64, 128, 129};
    static float x[N * K], alone[N * ROWS], together[N * ROWS];
    static _Alignas(64) uint8_t bytes[ROWS * K * 2], scale[ROWS * K];
    for (int i = 0; i < N * K; i++)
        x[i] = i / K % 3 == 0 ? heavy() : uniform() * (i % 7 == 0 ? 3e4F : 1.0F);
    fill_weight(bytes, sizeof bytes, scale, sizeof scale, false, false);
    for (int mode = DI_MODE_ORACLE; mode <= DI_MODE_FAST; mode++)
        for (int format = DI_FMT_BF16; format < DI_FMT_COUNT; format++)
            for (int32_t trial = 0; trial < 2 * BACKENDS; trial++) {
                int32_t threads = 1 + trial % 2;
                struct di_device *dev;
                const struct di_ops *ops = open_backend(backends[trial / 2], (enum di_mode)mode, threads, &dev);
                if (ops == NULL)
                    continue;
                struct di_weight w = {(enum di_format)format, K, ROWS, bytes, scale};
                for (int r = 0; r < N && threads == 1; r++)
                    ops->linear(dev, &(struct di_linear_args){1, x + r * K, w, true, alone + r * ROWS});
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                    int32_t first = N - sizes[s]; /* other places in the batch than at the start */
                    ops->linear(dev, &(struct di_linear_args){sizes[s], x + first * K, w, true, together});
                    assert_int_equal(ops->sync(dev, NULL), DI_OK);
                    same_values(together, alone + first * ROWS, (size_t)(sizes[s] * ROWS));
                }
                ops->close(dev);
            }
}

/* One op on every backend that runs here: `count` equal values, left in out. */
static void on_all(enum di_mode mode, void (*op)(const struct di_ops *, struct di_device *, const void *, float *),
                   const void *arg, float *out, float *other, size_t count)
{
    for (int backend = 0; backend < BACKENDS; backend++) {
        struct di_device *dev;
        const struct di_ops *ops = open_backend(backends[backend], mode, 2, &dev);
        if (ops == NULL)
            continue;
        op(ops, dev, arg, backend == 0 ? out : other);
        assert_int_equal(ops->sync(dev, NULL), DI_OK);
        ops->close(dev);
        if (backend != 0)
            same_values(out, other, count);
    }
}

static void run_linear(const struct di_ops *ops, struct di_device *dev, const void *arg, float *out)
{
    struct di_linear_args a = *(const struct di_linear_args *)arg;
    a.out = out;
    ops->linear(dev, &a);
}

static void run_group_linear(const struct di_ops *ops, struct di_device *dev, const void *arg, float *out)
{
    struct di_group_linear_args a = *(const struct di_group_linear_args *)arg;
    a.out = out;
    ops->group_linear(dev, &a);
}

static void run_experts(const struct di_ops *ops, struct di_device *dev, const void *arg, float *out)
{
    struct di_experts_args a = *(const struct di_experts_args *)arg;
    a.out = out;
    ops->experts(dev, &a);
}

/* The grid: every format and mode, odd numbers of rows and inputs, ordinary and extreme scales, NaN codes, huge, tiny, heavy-tailed
 * and non-finite inputs. */
static void backends_give_equal_bits(void **state)
{
    (void)state;
    enum { N = 21, K = 352, ROWS = 64, GROUPS = 2 };
    static float x[N * K * GROUPS], first[N * ROWS], second[N * ROWS];
    static _Alignas(64) uint8_t bytes[ROWS * K * 4], scale[ROWS * K];
    static const float magnitudes[] = {1.0F, 1e-30F, 1e30F, 448.0F, 1e-5F, 0.0F};
    static const int32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, N};
    for (int trial = 0; trial < 60; trial++) {
        for (int i = 0; i < N * K * GROUPS; i++)
            x[i] = trial % 6 == 5 ? heavy() : uniform() * magnitudes[trial % 6];
        if (trial % 10 == 9)
            x[trial] = trial % 20 == 9 ? NAN : -INFINITY;
        fill_weight(bytes, sizeof bytes, scale, sizeof scale, trial % 4 == 3, trial % 3 == 2);
        int32_t n = counts[trial % 10], rows = ROWS - trial % 7 * GROUPS;
        for (int mode = DI_MODE_ORACLE; mode <= DI_MODE_FAST; mode++)
            for (int format = DI_FMT_F32; format < DI_FMT_COUNT; format++) {
                struct di_weight w = {(enum di_format)format, K, rows, bytes, scale};
                on_all((enum di_mode)mode, run_linear, &(struct di_linear_args){n, x, w, true, NULL}, first, second,
                       (size_t)(n * rows));
                if (format == DI_FMT_FP8)
                    on_all((enum di_mode)mode, run_group_linear, &(struct di_group_linear_args){n, GROUPS, x, w, NULL},
                           first, second, (size_t)(n * rows));
            }
    }
}

/* Routed experts: some chosen by nobody, one by more rows than a group holds, slots left out. */
static void backends_agree_on_experts(void **state)
{
    (void)state;
    enum { N = 150, TOPK = 2, DIM = 96, INNER = 64, EXPERTS = 5 };
    static float x[N * DIM], weights[N * TOPK], first[N * TOPK * DIM], second[N * TOPK * DIM];
    static int32_t ids[N * TOPK];
    static _Alignas(64) uint8_t bytes[EXPERTS][3][DIM * INNER], scale[EXPERTS][3][DIM * INNER / 32];
    static const int32_t counts[] = {1, 2, 5, 33, N};
    struct di_expert experts[EXPERTS];
    fill_weight(bytes[0][0], sizeof bytes, scale[0][0], sizeof scale, false, false);
    for (int i = 0; i < N * DIM; i++)
        x[i] = heavy();
    for (int i = 0; i < N * TOPK; i++) {
        ids[i] = i % 11 == 3 ? -1 : i % TOPK == 0 ? 2 : i / 3 % 2 == 0 ? 0 : 4;
        weights[i] = uniform();
    }
    for (int format = DI_FMT_FP8; format <= DI_FMT_FP4; format += DI_FMT_FP4 - DI_FMT_FP8)
        for (int mode = DI_MODE_ORACLE; mode <= DI_MODE_FAST; mode++) {
            for (int e = 0; e < EXPERTS; e++) {
                struct di_weight w[3];
                for (int m = 0; m < 3; m++)
                    w[m] = (struct di_weight){(enum di_format)format, m == 2 ? INNER : DIM, m == 2 ? DIM : INNER,
                                              bytes[e][m], scale[e][m]};
                experts[e] = (struct di_expert){w[0], w[1], w[2]};
            }
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                struct di_experts_args a = {counts[c], TOPK,    DIM,     INNER, x,   ids,
                                            weights,   experts, EXPERTS, 10.0F, NULL};
                on_all((enum di_mode)mode, run_experts, &a, first, second, (size_t)(counts[c] * TOPK * DIM));
                for (int slot = 0; slot < counts[c] * TOPK; slot++)
                    assert_true(ids[slot] >= 0 || first[slot * DIM] == 0.0F);
            }
        }
}

/* Calls run in order, uploads among them, however far ahead the caller is; events tell how far the stream has come. */
static void stream_keeps_the_order(void **state)
{
    (void)state;
    enum { D = 2048, TURNS = 2000 };
    struct di_device *dev;
    const struct di_ops *ops = open_backend("avx2", DI_MODE_ORACLE, 2, &dev);
    if (ops == NULL)
        return;
    struct di_error err = {0};
    float *rows, out[4], values[D];
    int32_t *index;
    assert_int_equal(ops->alloc(dev, 4 * D * sizeof *rows, (void **)&rows, &err), DI_OK);
    assert_int_equal(ops->alloc(dev, 2 * sizeof *index, (void **)&index, &err), DI_OK);
    uint64_t middle = 0;
    for (int32_t i = 0; i < TURNS; i++) { /* the rows go round: 0 -> 1 -> 2 -> 3, and a new one into 0 */
        static const int32_t from[] = {2, 1, 0};
        for (int32_t j = 0; j < 3; j++) {
            assert_int_equal(ops->upload(dev, index, &from[j], sizeof *index, &err), DI_OK);
            ops->gather(dev, &(struct di_gather_args){1, D * sizeof *rows, rows, index, rows + (from[j] + 1) * D});
        }
        for (int32_t k = 0; k < D; k++)
            values[k] = (float)i;
        assert_int_equal(ops->upload(dev, rows, values, (i % 50 == 0 ? D : 16) * sizeof *rows, &err), DI_OK);
        if (i == TURNS / 2)
            middle = ops->record(dev);
    }
    ops->wait(dev, middle);
    assert_true(ops->passed(dev, middle));
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal(ops->download(dev, &out[r], rows + r * D, sizeof *out, &err), DI_OK);
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal((int32_t)out[r], TURNS - 1 - r);
    assert_true(ops->passed(dev, ops->record(dev)));
    ops->release(dev, rows);
    ops->release(dev, index);
    ops->close(dev);
}

static void draw_is_a_function_of_seed_and_position(void **state)
{
    (void)state;
    enum { V = 50, N = 4 };
    struct di_device *dev;
    const struct di_ops *ops = ops_of(DI_MODE_NATIVE, 1, &dev);
    float logits[N * V];
    for (int i = 0; i < V; i++)
        for (int r = 0; r < N; r++)
            logits[r * V + i] = i == 20 || i == 30 ? 5.0F : 0.0F;
    float temperature[N] = {0.0F, 1.0F, 1.0F, 1.0F};
    uint64_t seed[N] = {1, 7, 7, 7};
    int32_t row[N] = {0, 1, 1, 2}, position[3] = {9, 9, 10}, token[N], again[N];
    struct di_sample_args a = {.n = N,
                               .vocab = V,
                               .logits = logits,
                               .temperature = temperature,
                               .seed = seed,
                               .row = row,
                               .position = position,
                               .token = token};
    ops->sample(dev, &a);
    assert_int_equal(token[0], 20); /* greedy: the lowest of equals */
    assert_int_equal(token[1], token[2]);
    a.token = again;
    ops->sample(dev, &a);
    assert_memory_equal(token, again, sizeof token);
    int different = 0; /* other positions draw other noise */
    for (int32_t p = 0; p < 100; p++) {
        position[1] = p;
        ops->sample(dev, &a);
        different += again[1] != token[1];
    }
    assert_true(different > 10);
    logits[V + 3] = NAN;
    ops->sample(dev, &a);
    assert_int_equal(again[1], -1);
    ops->close(dev);
}

/* Frequencies of 20,000 draws against the softmax: chi-square with 4 degrees of freedom below 23.5 (p = 1e-4). */
static void draw_follows_the_distribution(void **state)
{
    (void)state;
    enum { V = 5, DRAWS = 20000 };
    struct di_device *dev;
    const struct di_ops *ops = ops_of(DI_MODE_NATIVE, 1, &dev);
    const float logits[V] = {0.0F, 1.0F, -1.0F, 2.0F, 0.5F}, temperature = 0.8F;
    double total = 0.0, chi = 0.0;
    int count[V] = {0};
    const uint64_t seed = 42;
    const int32_t row = 0;
    for (int i = 0; i < V; i++)
        total += exp((double)logits[i] / (double)temperature);
    for (int32_t p = 0; p < DRAWS; p++) {
        int32_t token;
        ops->sample(dev, &(struct di_sample_args){.n = 1,
                                                  .vocab = V,
                                                  .logits = logits,
                                                  .temperature = &temperature,
                                                  .seed = &seed,
                                                  .row = &row,
                                                  .position = &p,
                                                  .token = &token});
        count[token]++;
    }
    for (int i = 0; i < V; i++) {
        double expected = (double)DRAWS * exp((double)logits[i] / (double)temperature) / total;
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    assert_true(chi < 23.5);
    ops->close(dev);
}

static void gate_breaks_ties_by_the_lower_id(void **state)
{
    (void)state;
    enum { E = 6, D = 32 };
    struct di_device *dev;
    const struct di_ops *ops = ops_of(DI_MODE_NATIVE, 1, &dev);
    float x[D] = {0}, bias[E] = {0.0F, 0.5F, 0.5F, 0.5F, 0.0F, NAN}, weights[3], margin;
    uint16_t w[E * D] = {0};
    int32_t ids[3];
    struct di_weight weight = {DI_FMT_BF16, D, E, w, NULL};
    ops->gate(dev, &(struct di_gate_args){1, 3, x, weight, bias, 1.0F, 1.5F, ids, weights, &margin});
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 3);
    for (int k = 0; k < 3; k++)
        assert_true(fabsf(weights[k] - 0.5F) < 1e-6F); /* 1.5 / 3: the bias chooses, it does not weigh */
    assert_true(margin > 0.499F && margin < 0.501F);
    ops->close(dev);
}

static void unknown_backends_are_named(void **state)
{
    (void)state;
    const struct di_ops *ops;
    struct di_error err = {0};
    assert_int_equal(di_backend_find("nvidia", "auto", &ops, &err), DI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "nvidia"));
    assert_non_null(strstr(err.message, "cpu/reference"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transcendentals_are_correctly_rounded),
        cmocka_unit_test(f8_order_is_the_documented_one),
        cmocka_unit_test(r1_order_is_the_documented_one),
        cmocka_unit_test(linear_rows_do_not_depend_on_the_batch),
        cmocka_unit_test(backends_give_equal_bits),
        cmocka_unit_test(backends_agree_on_experts),
        cmocka_unit_test(stream_keeps_the_order),
        cmocka_unit_test(draw_is_a_function_of_seed_and_position),
        cmocka_unit_test(draw_follows_the_distribution),
        cmocka_unit_test(gate_breaks_ties_by_the_lower_id),
        cmocka_unit_test(unknown_backends_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
