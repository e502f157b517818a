/* The registry of options: defaults, environment, precedence, every kind of bad value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/options.h"

static void clear_environment(void)
{
    struct di_option_info info;
    for (size_t i = 0; di_option_at(i, &info); i++)
        if (info.env != NULL)
            unsetenv(info.env);
}

static void defaults_pass_their_own_checks(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct di_option_info info;
    di_options *options;
    clear_environment();
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    size_t count = 0;
    for (; di_option_at(count, &info); count++) {
        assert_string_equal(di_options_get(options, info.name), info.default_value);
        assert_int_equal(di_options_set(options, info.name, info.default_value, &err), DI_OK);
        assert_true(info.help[strlen(info.help) - 1] == '.');
    }
    assert_int_equal(count, di_option_count());
    assert_null(di_options_get(options, "no-such-option"));
    di_options_free(options);
}

static void an_explicit_value_wins_over_the_environment(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_options *options;
    clear_environment();
    setenv("DEEPINFER_HF_MODEL_DIR", "/from/the/environment", 1);
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    assert_string_equal(di_options_text(options, "model"), "/from/the/environment");
    assert_int_equal(di_options_set(options, "model", "/explicit", &err), DI_OK);
    assert_string_equal(di_options_text(options, "model"), "/explicit");
    di_options_free(options);
    setenv("DEEPINFER_HF_MODEL_DIR", "", 1); /* set to nothing: as if unset */
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    assert_non_null(strstr(di_options_text(options, "model"), "DeepSeek-V4.1-Flash"));
    di_options_free(options);
    clear_environment();
}

static void bad_variables_are_named(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_options *options;
    clear_environment();
    setenv("DEEPINFER_ACCELERATOR", "abacus", 1);
    assert_int_equal(di_options_create(&options, &err), DI_ERR_INVALID);
    assert_non_null(strstr(err.message, "DEEPINFER_ACCELERATOR"));
    assert_non_null(strstr(err.message, "abacus"));
    assert_non_null(strstr(err.message, "cpu|nvidia|ascend"));
    assert_null(options);
    clear_environment();
}

static void bad_values_are_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"mode", "exact"},
        {"mode", ""},
        {"mode", "oracle|native"},
        {"mode", "nativ"},
        {"threads", "-1"},
        {"threads", "1025"},
        {"threads", "2x"},
        {"threads", ""},
        {"threads", " 2"},
        {"threads", "+2"},
        {"threads", "1e2"},
        {"threads", "99999999999999999999"},
        {"threads", "\t2"},
        {"threads", "-"},
        {"threads", "0x10"},
        {"threads", "\n2"},
        {"kv-quant", "yes"},
        {"model", ""},
        {"max-num-batched-tokens", "0"},
        {"max-model-len", "1048577"},
    };
    struct di_error err = {0};
    di_options *options;
    clear_environment();
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *before = di_options_get(options, cases[i][0]);
        assert_int_not_equal(di_options_set(options, cases[i][0], cases[i][1], &err), DI_OK);
        assert_non_null(strstr(err.message, cases[i][0]));
        assert_string_equal(di_options_get(options, cases[i][0]), before);
    }
    assert_int_equal(di_options_set(options, "wings", "2", &err), DI_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "wings"));
    assert_null(strstr(err.message, "did you mean"));
    assert_int_equal(di_options_set(options, "threads", "1024", &err), DI_OK);
    assert_int_equal(di_options_int(options, "threads"), 1024);
    assert_true(di_options_is(options, "mode", "native"));
    assert_false(di_options_is(options, "mode", "oracle"));
    di_options_free(options);
}

static void unknown_names_suggest_the_nearest(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"thread", "\"threads\""},
        {"kv_quant", "\"kv-quant\""},
        {"max-model-length", "\"max-model-len\""},
        {"wings", NULL},
        {"", NULL},
        {"a-name-that-is-much-longer-than-every-option-there-is-and-has-no-neighbour-at-all", NULL},
    };
    struct di_error err = {0};
    di_options *options;
    clear_environment();
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(di_options_set(options, cases[i][0], "1", &err), DI_ERR_NOT_FOUND);
        if (cases[i][1] != NULL)
            assert_non_null(strstr(err.message, cases[i][1]));
        else
            assert_null(strstr(err.message, "did you mean"));
    }
    di_options_free(options);
}

/* Every allocation of create and set fails once: an error, the old value in force, nothing lost. */
static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_options *options;
    clear_environment();
    setenv("DEEPINFER_HF_MODEL_DIR", "/from/the/environment", 1);
    for (uint64_t n = 1; n <= 2; n++) {
        di_mem_fail_after(n);
        assert_int_equal(di_options_create(&options, &err), DI_ERR_NOMEM);
        assert_null(options);
    }
    di_mem_fail_after(0);
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    di_mem_fail_after(1);
    assert_int_equal(di_options_set(options, "model", "/explicit", &err), DI_ERR_NOMEM);
    di_mem_fail_after(0);
    assert_string_equal(di_options_text(options, "model"), "/from/the/environment");
    di_options_free(options);
    clear_environment();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_pass_their_own_checks),
        cmocka_unit_test(an_explicit_value_wins_over_the_environment),
        cmocka_unit_test(bad_variables_are_named),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(unknown_names_suggest_the_nearest),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
