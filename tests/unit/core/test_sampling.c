/* Sampling parameters: every rule refuses its own breach by name, and copies share nothing. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/sampling.h"

enum { VOCAB = 100 };

static void expect_pass(const struct di_sampling_params *params, int32_t vocab)
{
    struct di_error err = {0};
    if (di_sampling_validate(params, vocab, &err) != DI_OK)
        fail_msg("%s", err.message);
}

/* The message must hold both texts. */
static void expect_refusal(const struct di_sampling_params *params, const char *name, const char *value)
{
    struct di_error err = {0};
    assert_int_not_equal(di_sampling_validate(params, VOCAB, &err), DI_OK);
    assert_int_equal(di_sampling_validate(params, VOCAB, NULL), err.code);
    if (strstr(err.message, name) == NULL || strstr(err.message, value) == NULL)
        fail_msg("\"%s\" names neither %s nor %s", err.message, name, value);
}

static void defaults_pass(void **state)
{
    (void)state;
    struct di_sampling_params p = di_sampling_defaults();
    expect_pass(&p, VOCAB);
    expect_pass(&p, 0);
    assert_true(p.temperature == 1.0 && p.top_p == 1.0 && p.min_p == 0.0 && p.repetition_penalty == 1.0);
    assert_true(p.frequency_penalty == 0.0 && p.presence_penalty == 0.0);
    assert_true(p.top_k == 0 && p.max_tokens == 256 && p.min_tokens == 0 && p.n == 1);
    assert_true(p.logprobs == -1 && p.prompt_logprobs == -1);
    assert_true(p.skip_special_tokens && !p.include_stop_str_in_output && !p.ignore_eos && !p.has_seed);
}

#define REAL(field, low_bad, high_bad, low, high)                                    \
    {                                                                                \
        #field, offsetof(struct di_sampling_params, field), {(low_bad), (high_bad)}, \
        {                                                                            \
            (low), (high)                                                            \
        }                                                                            \
    }

static void every_real_is_checked(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t offset;
        double bad[2], good[2];
    } cases[] = {
        REAL(temperature, -1e-9, 3.5e38, 0.0, (double)FLT_MAX),
        REAL(top_p, 0.0, 1.0000001, 1e-300, 1.0),
        REAL(top_p, -0.5, 2.0, 0.5, 1.0),
        REAL(min_p, -1e-9, 1.0000001, 0.0, 1.0),
        REAL(repetition_penalty, 0.0, 3.5e38, (double)FLT_MIN, (double)FLT_MAX),
        REAL(repetition_penalty, -1.0, 1e300, 0.5, 1.5),
        REAL(frequency_penalty, -2.0001, 2.0001, -2.0, 2.0),
        REAL(presence_penalty, -2.0001, 2.0001, -2.0, 2.0),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, cases[i].bad[0], cases[i].bad[1]};
        for (size_t j = 0; j < 5; j++) {
            struct di_sampling_params p = di_sampling_defaults();
            char value[32];
            snprintf(value, sizeof value, "not %g", bad[j]);
            memcpy((char *)&p + cases[i].offset, &bad[j], sizeof bad[j]);
            expect_refusal(&p, cases[i].name, value);
        }
        for (size_t j = 0; j < 2; j++) {
            struct di_sampling_params p = di_sampling_defaults();
            memcpy((char *)&p + cases[i].offset, &cases[i].good[j], sizeof cases[i].good[j]);
            expect_pass(&p, VOCAB);
        }
    }
}

#define INT(field, bad, good) {#field, "not " #bad, offsetof(struct di_sampling_params, field), (bad), (good)}

static void every_integer_is_checked(void **state)
{
    (void)state;
    const struct {
        const char *name, *value;
        size_t offset;
        int32_t bad, good;
    } cases[] = {
        INT(top_k, -2, -1),
        INT(top_k, -2147483647, 2147483647),
        INT(max_tokens, 0, 1),
        INT(max_tokens, -5, 2147483647),
        INT(min_tokens, -1, 0),
        INT(min_tokens, 257, 256), /* max_tokens is 256 */
        INT(n, 0, 1),
        INT(n, 65, 64),
        INT(logprobs, -2, -1),
        INT(logprobs, 21, 20),
        INT(prompt_logprobs, -2, 0),
        INT(prompt_logprobs, 21, 20),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct di_sampling_params p = di_sampling_defaults();
        memcpy((char *)&p + cases[i].offset, &cases[i].bad, sizeof cases[i].bad);
        expect_refusal(&p, cases[i].name, cases[i].value);
        memcpy((char *)&p + cases[i].offset, &cases[i].good, sizeof cases[i].good);
        expect_pass(&p, VOCAB);
    }
}

static void stop_strings_are_checked(void **state)
{
    (void)state;
    static char longest[DI_MAX_STOP_BYTES + 2];
    const char *many[DI_MAX_STOP + 1], *good[] = {"\n\n", "\xE4\xB8\xAD", longest};
    const struct {
        const char *strings[2];
        const char *name, *value;
    } cases[] = {
        {{"a", ""}, "stop[1]", "empty"},
        {{"a", NULL}, "stop[1]", "NULL"},
        {{"ab\xff", "a"}, "stop[0]", "byte 2 (0xff)"},
        {{"a", "\xE4\xB8"}, "stop[1]", "byte 0"}, /* an incomplete character */
        {{longest, "a"}, "stop[0]", "1024"},
    };
    struct di_sampling_params p = di_sampling_defaults();
    memset(longest, 'x', DI_MAX_STOP_BYTES + 1);
    p.n_stop = 2;
    expect_refusal(&p, "stop is NULL", "n_stop is 2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.stop = cases[i].strings;
        expect_refusal(&p, cases[i].name, cases[i].value);
    }
    for (size_t i = 0; i <= DI_MAX_STOP; i++)
        many[i] = "stop";
    p.stop = many;
    p.n_stop = DI_MAX_STOP + 1;
    expect_refusal(&p, "stop holds 65", "64");
    p.n_stop = DI_MAX_STOP;
    expect_pass(&p, VOCAB);
    longest[DI_MAX_STOP_BYTES] = '\0';
    p.stop = good;
    p.n_stop = 3;
    expect_pass(&p, VOCAB);
}

static void token_ids_are_checked(void **state)
{
    (void)state;
    static const struct {
        size_t list, count;
        const char *name;
    } cases[] = {
        {offsetof(struct di_sampling_params, allowed_token_ids),
         offsetof(struct di_sampling_params, n_allowed_token_ids), "allowed_token_ids"},
        {offsetof(struct di_sampling_params, bad_token_ids), offsetof(struct di_sampling_params, n_bad_token_ids),
         "bad_token_ids"},
        {offsetof(struct di_sampling_params, stop_token_ids), offsetof(struct di_sampling_params, n_stop_token_ids),
         "stop_token_ids"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct di_sampling_params p = di_sampling_defaults();
        int32_t ids[3] = {3, VOCAB - 1, VOCAB};
        const int32_t *list = ids;
        size_t count = 3;
        struct di_error err = {0};
        memcpy((char *)&p + cases[i].count, &count, sizeof count);
        expect_refusal(&p, cases[i].name, "n_");
        memcpy((char *)&p + cases[i].list, &list, sizeof list);
        expect_refusal(&p, cases[i].name, "[2] is 100");
        expect_pass(&p, 0); /* the vocabulary is not known */
        ids[2] = -1;
        expect_refusal(&p, cases[i].name, "[2] is -1");
        assert_int_equal(di_sampling_validate(&p, 0, &err), DI_ERR_RANGE);
        assert_non_null(strstr(err.message, cases[i].name));
        ids[2] = 3; /* twice the same does no harm */
        expect_pass(&p, VOCAB);
    }
}

static void biases_are_checked(void **state)
{
    (void)state;
    struct di_logit_bias bias[] = {{7, -100.0F}, {0, 100.0F}, {VOCAB - 1, -INFINITY}};
    const struct {
        int32_t token;
        float bias;
        const char *name, *value;
    } cases[] = {
        {VOCAB, 1.0F, "logit_bias[1]", "100"},
        {-1, 1.0F, "logit_bias[1]", "-1"},
        {7, 1.0F, "logit_bias", "token 7 more than once"},
        {3, 100.5F, "logit_bias of token 3", "100.5"},
        {3, -101.0F, "logit_bias of token 3", "-101"},
        {3, NAN, "logit_bias of token 3", "nan"},
        {3, INFINITY, "logit_bias of token 3", "not inf"},
    };
    struct di_sampling_params p = di_sampling_defaults();
    p.n_logit_bias = 3;
    expect_refusal(&p, "logit_bias is NULL", "3");
    p.logit_bias = bias;
    expect_pass(&p, VOCAB);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct di_logit_bias before = bias[1];
        bias[1] = (struct di_logit_bias){cases[i].token, cases[i].bias};
        expect_refusal(&p, cases[i].name, cases[i].value);
        bias[1] = before;
    }
}

/* One token at least must be left, also before min_tokens. */
static void a_choice_is_left(void **state)
{
    (void)state;
    int32_t all[VOCAB];
    struct di_logit_bias bias[2] = {{VOCAB - 1, -INFINITY}, {1, -INFINITY}};
    for (int32_t id = 0; id < VOCAB; id++)
        all[id] = id;
    struct di_sampling_params p = di_sampling_defaults();
    p.bad_token_ids = all;
    p.n_bad_token_ids = VOCAB;
    expect_refusal(&p, "bad_token_ids (100)", "the vocabulary (100)");
    expect_pass(&p, 0);
    p.n_bad_token_ids = VOCAB - 1;
    expect_pass(&p, VOCAB);
    p.logit_bias = bias;
    p.n_logit_bias = 1;
    expect_refusal(&p, "bad_token_ids (99) and logit_bias", "every token");
    bias[0].bias = -100.0F;
    expect_pass(&p, VOCAB);
    p.n_logit_bias = 0;
    p.n_bad_token_ids = 70;
    p.allowed_token_ids = all + 66;
    p.n_allowed_token_ids = 4;
    expect_refusal(&p, "bad_token_ids (70)", "allowed_token_ids (4)");
    p.n_allowed_token_ids = 5;
    expect_pass(&p, VOCAB);
    p.stop_token_ids = all + 70;
    p.n_stop_token_ids = 1;
    expect_pass(&p, VOCAB);
    p.min_tokens = 3;
    expect_refusal(&p, "min_tokens is 3", "stop_token_ids (1)");
    p.n_bad_token_ids = 69;
    expect_pass(&p, VOCAB);
}

static void copies_share_nothing(void **state)
{
    (void)state;
    struct di_logit_bias bias[] = {{7, -1.0F}, {9, 2.0F}};
    int32_t allowed[] = {1, 2, 7, 9}, bad[] = {2}, ends[] = {9, 1, 1};
    char first[] = "one", second[] = "two";
    const char *stop[] = {first, second};
    struct di_sampling_params p = di_sampling_defaults(), copy;
    struct di_arena arena = {0};
    struct di_error err = {0};
    p.logit_bias = bias, p.n_logit_bias = 2;
    p.allowed_token_ids = allowed, p.n_allowed_token_ids = 4;
    p.bad_token_ids = bad, p.n_bad_token_ids = 1;
    p.stop_token_ids = ends, p.n_stop_token_ids = 3;
    p.stop = stop, p.n_stop = 2;
    p.top_p = 0.25;
    assert_int_equal(di_sampling_copy(&p, &arena, &copy, &err), DI_OK);
    memset(bias, 0, sizeof bias);
    memset(allowed, 0, sizeof allowed);
    memset(bad, 0, sizeof bad);
    memset(ends, 0, sizeof ends);
    memset(first, 'x', 3);
    memset(second, 'x', 3);
    stop[0] = NULL;
    assert_true(copy.top_p == 0.25);
    assert_true(copy.logit_bias[1].token == 9 && copy.logit_bias[1].bias == 2.0F);
    assert_memory_equal(copy.allowed_token_ids, ((int32_t[]){1, 2, 7, 9}), 4 * sizeof(int32_t));
    assert_int_equal(copy.bad_token_ids[0], 2);
    assert_memory_equal(copy.stop_token_ids, ((int32_t[]){9, 1, 1}), 3 * sizeof(int32_t));
    assert_string_equal(copy.stop[0], "one");
    assert_string_equal(copy.stop[1], "two");
    p = di_sampling_defaults();
    p.bad_token_ids = bad; /* empty */
    assert_int_equal(di_sampling_copy(&p, &arena, &copy, &err), DI_OK);
    assert_null(copy.bad_token_ids);
    di_arena_free(&arena);
}

static void failed_allocations_are_errors(void **state)
{
    (void)state;
    static const struct di_logit_bias bias = {7, -1.0F};
    static const int32_t ids[20000] = {0};
    static const char *const stop[] = {"one"};
    struct di_sampling_params p = di_sampling_defaults(), copy;
    p.logit_bias = &bias, p.n_logit_bias = 1;
    p.allowed_token_ids = p.bad_token_ids = p.stop_token_ids = ids; /* each a block of the arena */
    p.n_allowed_token_ids = p.n_bad_token_ids = p.n_stop_token_ids = 20000;
    p.stop = stop, p.n_stop = 1;
    uint64_t failures = 0;
    for (bool done = false; !done;) {
        struct di_arena arena = {0};
        struct di_error err = {0};
        di_mem_fail_after(failures + 1);
        di_status status = di_sampling_copy(&p, &arena, &copy, &err);
        di_mem_fail_after(0);
        done = status == DI_OK;
        failures += !done;
        assert_true(done || (status == DI_ERR_NOMEM && err.message[0] != '\0'));
        di_arena_free(&arena);
    }
    assert_in_range(failures, 4, 6);
    p.n_bad_token_ids = 0;
    for (uint64_t n = 1; n <= 2; n++) { /* the checks' own scratch */
        di_mem_fail_after(n);
        assert_int_equal(di_sampling_validate(&p, VOCAB, NULL), DI_ERR_NOMEM);
        di_mem_fail_after(0);
    }
    expect_pass(&p, VOCAB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_pass),
        cmocka_unit_test(every_real_is_checked),
        cmocka_unit_test(every_integer_is_checked),
        cmocka_unit_test(stop_strings_are_checked),
        cmocka_unit_test(token_ids_are_checked),
        cmocka_unit_test(biases_are_checked),
        cmocka_unit_test(a_choice_is_left),
        cmocka_unit_test(copies_share_nothing),
        cmocka_unit_test(failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
