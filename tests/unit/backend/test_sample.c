/* The draw against its obvious version: random rows and mixes of every rule, whatever the batch and the threads. */
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
#include "base/rng.h"
#include "ops/ops.h"

enum { ROWS = 8, TOP = 20, MAX_VOCAB = 129280, LIST = 64 };

static uint64_t random_state = 2024;

static uint32_t bits(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(random_state >> 33) * 2U + (uint32_t)(random_state >> 63);
}

static int32_t below(int32_t n)
{
    return (int32_t)(bits() % (uint32_t)n);
}

static float uniform(void) /* 0 .. 1 */
{
    return (float)(bits() >> 8) * 0x1p-24F;
}

/* One step of the operation: rows with everything that they may have. */
struct batch {
    struct di_sample_args a;
    float *logits; /* [ROWS, vocab] */
    float temperature[ROWS], repetition[ROWS], frequency[ROWS], presence[ROWS], top_p[ROWS], min_p[ROWS];
    uint64_t seed[ROWS];
    uint32_t choice[ROWS];
    int32_t row[ROWS], position[ROWS], token[ROWS], top_k[ROWS], mask_row[ROWS], wanted[ROWS], scored[ROWS];
    int32_t seen_offset[ROWS + 1], seen_token[ROWS * LIST], seen_count[ROWS * LIST];
    int32_t bias_offset[ROWS + 1], bias_token[ROWS * LIST];
    float bias[ROWS * LIST];
    uint32_t *mask;
    float logprob[ROWS], top_logprob[ROWS * TOP];
    int32_t rank[ROWS], top_token[ROWS * TOP];
};

/* ---- the obvious version ---- */

struct entry {
    float value;
    int32_t id;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static uint64_t weight(float x, float max)
{
    return (uint64_t)nearbyint(di_host_exp_d(x == max ? 0.0 : (double)x - (double)max) * 0x1p40);
}

static float gumbel(uint64_t seed, int32_t id, int32_t position, uint32_t choice)
{
    uint32_t noise[4];
    di_philox4x32(seed, (uint32_t[4]){(uint32_t)id / 4, (uint32_t)position, 0, choice}, noise);
    double u = ((double)noise[id % 4] + 0.5) * 0x1p-32;
    return (float)-di_host_log_d(-di_host_log_d(u));
}

/* The order of the tokens above -inf; how many they are. */
static int32_t sorted(const float *x, int32_t n, struct entry *out)
{
    int32_t count = 0;
    for (int32_t id = 0; id < n; id++)
        if (x[id] > -INFINITY)
            out[count++] = (struct entry){x[id], id};
    qsort(out, (size_t)count, sizeof *out, compare_entries);
    return count;
}

static void apply_rules(const struct batch *b, int32_t i, float *x)
{
    for (int32_t e = b->seen_offset[i]; e < b->seen_offset[i + 1]; e++) {
        float *value = &x[b->seen_token[e]];
        *value = *value > 0.0F ? *value / b->repetition[i] : *value * b->repetition[i];
        if (b->seen_count[e] > 0) {
            *value -= b->frequency[i] * (float)b->seen_count[e];
            *value -= b->presence[i];
        }
    }
    for (int32_t e = b->bias_offset[i]; e < b->bias_offset[i + 1]; e++)
        x[b->bias_token[e]] = isinf(b->bias[e]) ? -INFINITY : x[b->bias_token[e]] + b->bias[e];
    for (int32_t id = 0; id < b->a.vocab && b->mask_row[i] >= 0; id++)
        if ((b->mask[(int64_t)b->mask_row[i] * ((b->a.vocab + 31) / 32) + id / 32] >> id % 32 & 1U) == 0)
            x[id] = -INFINITY;
}

static int32_t filtered(const struct batch *b, int32_t i, const struct entry *order, int32_t count)
{
    float max = order[0].value;
    if (b->top_k[i] >= 1 && b->top_k[i] < count)
        count = b->top_k[i];
    if (b->top_p[i] < 1.0F) {
        uint64_t total = 0, sum = 0;
        for (int32_t j = 0; j < count; j++)
            total += weight(order[j].value, max);
        uint64_t limit = (uint64_t)ceil((double)b->top_p[i] * (double)total);
        int32_t kept = 0;
        do
            sum += weight(order[kept++].value, max);
        while (sum < limit);
        count = kept;
    }
    while (b->min_p[i] > 0.0F && count > 1 && order[count - 1].value != max &&
           order[count - 1].value - max < (float)di_host_log_d((double)b->min_p[i]))
        count--;
    return count;
}

static int32_t obvious_token(const struct batch *b, int32_t i, float *x, struct entry *order)
{
    int32_t n = b->a.vocab, best = -1;
    memcpy(x, b->logits + (int64_t)i * n, (size_t)n * sizeof *x);
    for (int32_t id = 0; id < n; id++)
        if (isnan(x[id]))
            return DI_SAMPLE_NAN;
    apply_rules(b, i, x);
    for (int32_t id = 0; id < n && b->temperature[i] >= 1e-5F; id++)
        x[id] = x[id] / b->temperature[i];
    int32_t count = sorted(x, n, order);
    if (count == 0)
        return DI_SAMPLE_NONE;
    if (b->temperature[i] < 1e-5F)
        return order[0].id;
    count = filtered(b, i, order, count);
    float best_value = -INFINITY;
    for (int32_t j = 0; j < count; j++) {
        float value = order[j].value + gumbel(b->seed[i], order[j].id, b->position[b->row[i]] + 1, b->choice[i]);
        if (value > best_value || (value == best_value && order[j].id < best)) {
            best_value = value;
            best = order[j].id;
        }
    }
    return best;
}

static void check_report(const struct batch *b, int32_t i, struct entry *order)
{
    int32_t n = b->a.vocab, token = b->token[i];
    if (b->wanted[i] < 0) {
        assert_int_equal(b->rank[i], 12345); /* left alone */
        return;
    }
    int32_t scored = b->scored[i] >= 0 ? b->scored[i] : token, count = 0, rank = 0;
    const float *logits = b->logits + (int64_t)i * n;
    double log_sum = 0.0;
    if (token != DI_SAMPLE_NAN) {
        uint64_t total = 0;
        for (int32_t id = 0; id < n; id++)
            order[id] = (struct entry){logits[id], id};
        qsort(order, (size_t)n, sizeof *order, compare_entries);
        for (int32_t j = 0; j < n; j++) {
            total += weight(order[j].value, order[0].value);
            rank = order[j].id == scored ? j + 1 : rank;
            count += order[j].value > -INFINITY;
        }
        log_sum = di_host_log_d((double)total * 0x1p-40);
    }
    assert_int_equal(b->rank[i], rank);
    assert_true(rank > 0 || isnan(b->logprob[i]));
    float max = order[0].value;
    if (rank > 0)
        assert_true(b->logprob[i] ==
                    (float)((logits[scored] == max ? 0.0 : (double)logits[scored] - (double)max) - log_sum));
    for (int32_t j = 0; j < TOP; j++) {
        bool there = j < b->wanted[i] && j < count;
        assert_int_equal(b->top_token[i * TOP + j], there ? order[j].id : -1);
        float wanted = there ? (float)((order[j].value == max ? 0.0 : (double)order[j].value - (double)max) - log_sum)
                             : -INFINITY;
        assert_true(b->top_logprob[i * TOP + j] == wanted);
    }
}

/* ---- random rows ---- */

static void fill_logits(float *x, int32_t n)
{
    int32_t kind = below(8);
    float scale = kind == 1 ? 1e30F : kind == 2 ? 1e-30F : kind == 3 ? 0.1F : 3.0F;
    for (int32_t id = 0; id < n; id++) {
        float u = uniform() + uniform() + uniform() + uniform() - 2.0F;
        x[id] = kind == 4   ? (float)below(5) - 2.0F                          /* many ties */
                : kind == 5 ? (below(2) != 0 ? 1.0F : nextafterf(1.0F, 2.0F)) /* two values, one bucket */
                : kind == 6 ? (below(2) != 0 ? 0.0F : -0.0F)                  /* both zeros are equal */
                            : u * scale * 2.0F;
    }
    if (kind == 7)
        x[below(n)] = 30.0F; /* one likely token */
    for (int32_t j = below(12) == 0 ? 3 : 0; j > 0; j--)
        x[below(n)] = j == 1 ? INFINITY : -INFINITY;
    if (below(30) == 0)
        x[below(n)] = NAN;
    if (below(30) == 0)
        for (int32_t id = 0; id < n; id++)
            x[id] = -INFINITY;
}

static float one_of(const float *values, int32_t n)
{
    return values[below(n)];
}

static void fill_row(struct batch *b, int32_t i)
{
    static const float temperatures[] = {0.0F, 1.0F, 1.0F, 0.7F, 1e-4F, 2.0F, 1e6F, 3e38F},
                       shares[] = {1.0F, 0.95F, 0.5F, 1e-6F, 0.999999F}, floors[] = {0.0F, 0.05F, 1.0F, 1e-30F, 0.5F},
                       penalties[] = {1.0F, 1.3F, 0.5F, 1e-3F}, additions[] = {0.0F, 0.5F, -2.0F, 2.0F};
    int32_t n = b->a.vocab, words = (n + 31) / 32;
    fill_logits(b->logits + (int64_t)i * n, n);
    b->temperature[i] = one_of(temperatures, 8);
    b->top_p[i] = one_of(shares, 5);
    b->min_p[i] = below(2) != 0 ? 0.0F : one_of(floors, 5);
    b->top_k[i] = below(2) != 0 ? 0 : 1 + below(below(2) != 0 ? n : 50);
    b->repetition[i] = one_of(penalties, 4);
    b->frequency[i] = one_of(additions, 4);
    b->presence[i] = one_of(additions, 4);
    b->seed[i] = (uint64_t)bits() << 32 | bits();
    b->choice[i] = (uint32_t)below(3);
    b->row[i] = ROWS - 1 - i;
    b->position[i] = below(1000000);
    b->wanted[i] = below(2) != 0 ? -1 : below(TOP + 1);
    b->scored[i] = below(2) != 0 ? -1 : below(n);
    int32_t seen = below(2) != 0 ? 0 : below(n < LIST ? n : LIST), start = below(n);
    b->seen_offset[i + 1] = b->seen_offset[i] + seen;
    for (int32_t e = 0; e < seen; e++) { /* each token once */
        b->seen_token[b->seen_offset[i] + e] = (start + e) % n;
        b->seen_count[b->seen_offset[i] + e] = below(3);
    }
    int32_t biases = below(2) != 0 ? 0 : below(LIST);
    b->bias_offset[i + 1] = b->bias_offset[i] + biases;
    for (int32_t e = b->bias_offset[i]; e < b->bias_offset[i + 1]; e++) { /* a token may come twice */
        b->bias_token[e] = below(n);
        b->bias[e] = below(3) == 0 ? -INFINITY : 20.0F * uniform() - 10.0F;
    }
    b->mask_row[i] = below(3) != 0 ? -1 : i;
    int32_t kind = below(4);
    for (int32_t w = 0; w < words; w++)
        b->mask[(int64_t)i * words + w] = kind == 0       ? 0U
                                          : kind == 1     ? bits() & bits() & bits() & bits()
                                          : below(2) != 0 ? UINT32_MAX
                                                          : bits();
}

static void fill_batch(struct batch *b, int32_t vocab)
{
    b->a = (struct di_sample_args){
        .n = ROWS,
        .vocab = vocab,
        .logits = b->logits,
        .temperature = b->temperature,
        .seed = b->seed,
        .row = b->row,
        .position = b->position,
        .token = b->token,
        .rules = {.repetition = b->repetition,
                  .frequency = b->frequency,
                  .presence = b->presence,
                  .seen_offset = b->seen_offset,
                  .seen_token = b->seen_token,
                  .seen_count = b->seen_count,
                  .bias_offset = b->bias_offset,
                  .bias_token = b->bias_token,
                  .bias = b->bias,
                  .mask = b->mask,
                  .mask_row = b->mask_row,
                  .top_k = b->top_k,
                  .top_p = b->top_p,
                  .min_p = b->min_p,
                  .choice = b->choice},
        .report = {.top = TOP,
                   .wanted = b->wanted,
                   .scored = b->scored,
                   .logprob = b->logprob,
                   .rank = b->rank,
                   .top_token = b->top_token,
                   .top_logprob = b->top_logprob},
    };
    for (int32_t i = 0; i < ROWS; i++)
        fill_row(b, i);
}

static struct batch *new_batch(void)
{
    struct batch *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->logits = malloc((size_t)ROWS * MAX_VOCAB * sizeof *b->logits);
    b->mask = malloc((size_t)ROWS * (MAX_VOCAB / 32 + 1) * sizeof *b->mask);
    assert_non_null(b->logits);
    assert_non_null(b->mask);
    return b;
}

static void free_batch(struct batch *b)
{
    free(b->logits);
    free(b->mask);
    free(b);
}

static const struct di_ops *open_device(const char *backend, int32_t threads, struct di_device **dev)
{
    const struct di_ops *ops;
    struct di_error err = {0};
    assert_int_equal(di_backend_find("cpu", backend, &ops, &err), DI_OK);
    struct di_device_options options = {.mode = DI_MODE_NATIVE, .threads = threads};
    assert_int_equal(ops->open(&options, dev, &err), DI_OK);
    return ops;
}

static void run(const struct di_ops *ops, struct di_device *dev, struct batch *b, const struct di_sample_args *a)
{
    struct di_error err = {0};
    for (int32_t i = 0; i < ROWS; i++)
        b->rank[i] = 12345;
    ops->sample(dev, a);
    assert_int_equal(ops->sync(dev, &err), DI_OK);
}

static void equals_the_obvious_version(void **state)
{
    (void)state;
    static const char *const backends[] = {"reference", "cpu", "hash"}; /* the last draws otherwise */
    struct batch *b = new_batch();
    float *x = malloc(MAX_VOCAB * sizeof *x);
    struct entry *order = malloc(MAX_VOCAB * sizeof *order);
    for (int32_t device = 0; device < 3; device++) {
        struct di_device *dev;
        const struct di_ops *ops = open_device(backends[device], device + 1, &dev);
        for (int32_t turn = 0; turn < 300; turn++) {
            fill_batch(b, turn % 60 == 0 ? MAX_VOCAB : turn % 3 == 0 ? 1 + below(5000) : 1 + below(300));
            run(ops, dev, b, &b->a);
            for (int32_t i = 0; i < ROWS; i++) {
                if (device < 2)
                    assert_int_equal(b->token[i], obvious_token(b, i, x, order));
                check_report(b, i, order);
            }
        }
        ops->close(dev);
    }
    free(x);
    free(order);
    free_batch(b);
}

/* Without rules and reports: the loop that the operation once was. */
static void plain_rows_equal_one_loop(void **state)
{
    (void)state;
    struct batch *b = new_batch();
    struct di_device *dev;
    const struct di_ops *ops = open_device("reference", 1, &dev);
    for (int32_t turn = 0; turn < 100; turn++) {
        fill_batch(b, 1 + below(turn % 10 == 0 ? 20000 : 500));
        memset(&b->a.rules, 0, sizeof b->a.rules);
        memset(&b->a.report, 0, sizeof b->a.report);
        run(ops, dev, b, &b->a);
        for (int32_t i = 0; i < ROWS; i++) {
            const float *x = b->logits + (int64_t)i * b->a.vocab;
            float best_value = -INFINITY;
            int32_t best = DI_SAMPLE_NONE;
            for (int32_t id = 0; id < b->a.vocab && best != DI_SAMPLE_NAN; id++) {
                float value = x[id];
                if (b->temperature[i] >= 1e-5F)
                    value = value / b->temperature[i] + gumbel(b->seed[i], id, b->position[b->row[i]] + 1, 0);
                if (isnan(value) || value > best_value) {
                    best_value = value;
                    best = isnan(value) ? DI_SAMPLE_NAN : id;
                }
            }
            assert_int_equal(b->token[i], best);
        }
    }
    ops->close(dev);
    free_batch(b);
}

/* A row by itself, in a batch, with one thread or two. */
static void rows_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    struct batch *b = new_batch();
    struct di_device *one, *two;
    const struct di_ops *ops = open_device("reference", 1, &one);
    open_device("reference", 2, &two);
    for (int32_t turn = 0; turn < 20; turn++) {
        fill_batch(b, turn % 4 == 0 ? MAX_VOCAB : 1 + below(9000));
        run(ops, two, b, &b->a);
        struct batch whole = *b;
        for (int32_t i = 0; i < ROWS; i++) {
            struct di_sample_args a = b->a;
            struct di_sample_rules *r = &a.rules;
            a.n = 1;
            a.logits += (int64_t)i * a.vocab;
            a.temperature += i, a.seed += i, a.row += i, a.token += i;
            r->repetition += i, r->frequency += i, r->presence += i, r->seen_offset += i, r->bias_offset += i;
            r->mask_row += i, r->top_k += i, r->top_p += i, r->min_p += i, r->choice += i;
            a.report.wanted += i, a.report.scored += i, a.report.logprob += i, a.report.rank += i;
            a.report.top_token += i * TOP, a.report.top_logprob += i * TOP;
            b->token[i] = 777;
            run(ops, one, b, &a);
            assert_int_equal(b->token[i], whole.token[i]);
            assert_int_equal(b->rank[i], whole.rank[i]);
            if (b->wanted[i] >= 0) {
                assert_memory_equal(b->logprob + i, whole.logprob + i, sizeof *b->logprob);
                assert_memory_equal(b->top_token + i * TOP, whole.top_token + i * TOP, TOP * sizeof *b->top_token);
                assert_memory_equal(b->top_logprob + i * TOP, whole.top_logprob + i * TOP, TOP * sizeof(float));
            }
        }
    }
    ops->close(one);
    ops->close(two);
    free_batch(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_obvious_version),
        cmocka_unit_test(plain_rows_equal_one_loop),
        cmocka_unit_test(rows_do_not_depend_on_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
