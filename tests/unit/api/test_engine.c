/* The engine through the public API: limits named, failures clean, results independent of chunking and threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "deepinfer/deepinfer.h"

#define MICRO DI_TEST_DATA "/goldens/micro"

static di_options *options_with(const char *first, ...)
{
    struct di_error err = {0};
    di_options *options;
    va_list list;
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    va_start(list, first);
    for (const char *name = first; name != NULL; name = va_arg(list, const char *))
        assert_int_equal(di_options_set(options, name, va_arg(list, const char *), &err), DI_OK);
    va_end(list);
    return options;
}

static di_engine *engine_with(const char *chunk, const char *threads, const char *mode)
{
    struct di_error err = {0};
    di_engine *engine;
    di_options *options = options_with("max-num-batched-tokens", chunk, "threads", threads, "mode", mode, (char *)NULL);
    assert_int_equal(di_engine_open(MICRO, options, &engine, &err), DI_OK);
    di_options_free(options);
    return engine;
}

struct tokens {
    int32_t ids[64];
    size_t count, stop_after;
};

static bool keep(void *user, const struct di_token_event *event)
{
    struct tokens *t = user;
    t->ids[event->index] = event->id;
    t->count = event->index + 1;
    return t->count != t->stop_after;
}

static const int32_t prompt[] = {0, 17, 300, 42, 99, 512, 77, 5, 250, 31, 8, 411, 120, 64, 333, 19, 20, 21, 22, 480};
enum { PROMPT = sizeof prompt / sizeof prompt[0] };

static struct tokens generate(di_engine *engine, double temperature, int32_t max_tokens)
{
    struct di_sampling_params params = di_sampling_defaults();
    struct di_generation result;
    struct di_error err = {0};
    struct tokens tokens = {.stop_after = 1000};
    params.temperature = temperature;
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    params.has_seed = true;
    params.seed = 5;
    assert_int_equal(di_generate(engine, prompt, PROMPT, &params, keep, &tokens, &result, &err), DI_OK);
    assert_string_equal(result.finish_reason, "length");
    assert_int_equal(result.n_tokens, max_tokens);
    return tokens;
}

static void tokens_do_not_depend_on_chunks_or_threads(void **state)
{
    (void)state;
    static const char *const modes[] = {"oracle", "native"};
    static const char *const chunks[] = {"1", "3", "7", "512"};
    for (size_t m = 0; m < 2; m++)
        for (int hot = 0; hot < 2; hot++) {
            struct tokens first = {0};
            for (size_t c = 0; c < 4; c++) {
                di_engine *engine = engine_with(chunks[c], c % 2 == 0 ? "1" : "3", modes[m]);
                struct tokens now = generate(engine, hot ? 1.0 : 0.0, 24);
                if (c == 0)
                    first = now;
                assert_memory_equal(now.ids, first.ids, 24 * sizeof(int32_t));
                now = generate(engine, hot ? 1.0 : 0.0, 24); /* a second request starts from nothing */
                assert_memory_equal(now.ids, first.ids, 24 * sizeof(int32_t));
                di_engine_close(engine);
            }
        }
}

static void bad_requests_name_the_culprit_and_leave_the_engine_usable(void **state)
{
    (void)state;
    di_engine *engine = engine_with("512", "1", "native");
    struct di_sampling_params params = di_sampling_defaults();
    struct di_generation result;
    struct di_error err = {0};
    int32_t bad[3] = {0, 5, 600}, *longest = calloc(3000, sizeof *longest);
    assert_int_equal(di_generate(engine, bad, 3, &params, NULL, NULL, &result, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "600"));
    assert_non_null(strstr(err.message, "index 2"));
    bad[2] = -1;
    assert_int_equal(di_generate(engine, bad, 3, &params, NULL, NULL, &result, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "-1"));
    assert_int_equal(di_generate(engine, bad, 0, &params, NULL, NULL, &result, &err), DI_ERR_INVALID);
    assert_non_null(strstr(err.message, "empty"));
    assert_int_equal(di_generate(engine, longest, 2048, &params, NULL, NULL, &result, &err), DI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "max-model-len"));
    assert_non_null(strstr(err.message, "2048"));
    free(longest);
    const double temperatures[] = {(double)NAN, -1.0, (double)INFINITY};
    for (size_t i = 0; i < 3; i++) {
        params.temperature = temperatures[i];
        assert_int_equal(di_generate(engine, prompt, PROMPT, &params, NULL, NULL, &result, &err), DI_ERR_RANGE);
        assert_non_null(strstr(err.message, "temperature"));
    }
    params = di_sampling_defaults();
    params.max_tokens = 0;
    assert_int_equal(di_generate(engine, prompt, PROMPT, &params, NULL, NULL, &result, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "max_tokens"));
    params = di_sampling_defaults();
    params.bad_token_ids = bad; /* checked against the model's vocabulary */
    params.n_bad_token_ids = 3;
    bad[2] = 600;
    assert_int_equal(di_generate(engine, prompt, PROMPT, &params, NULL, NULL, &result, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "bad_token_ids[2] is 600"));
    params = di_sampling_defaults();
    params.n = 2; /* choices come as events only */
    assert_int_equal(di_generate(engine, prompt, PROMPT, &params, NULL, NULL, &result, &err), DI_ERR_INVALID);
    assert_non_null(strstr(err.message, "n must be 1"));
    generate(engine, 0.0, 4);
    di_engine_close(engine);
}

static void limits_end_a_request(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_engine *engine;
    di_options *options = options_with("max-model-len", "24", (char *)NULL);
    assert_int_equal(di_engine_open(MICRO, options, &engine, &err), DI_OK);
    assert_int_equal(di_engine_max_model_len(engine), 24);
    struct di_sampling_params params = di_sampling_defaults();
    struct di_generation result;
    struct tokens tokens = {.stop_after = 1000};
    params.ignore_eos = true;
    params.has_seed = true;
    assert_int_equal(di_generate(engine, prompt, PROMPT, &params, keep, &tokens, &result, &err), DI_OK);
    assert_string_equal(result.finish_reason, "length");
    assert_int_equal(result.n_tokens, 4);
    tokens.stop_after = 2;
    assert_int_equal(di_generate(engine, prompt, PROMPT, &params, keep, &tokens, &result, &err), DI_OK);
    assert_string_equal(result.finish_reason, "abort");
    assert_int_equal(result.n_tokens, 2);
    di_engine_close(engine);
    assert_int_equal(di_options_set(options, "max-model-len", "4096", &err), DI_OK);
    assert_int_equal(di_engine_open(MICRO, options, &engine, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "max-model-len"));
    di_options_free(options);
}

static void switches_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_engine *engine;
    di_options *options = options_with("kv-quant", "off", (char *)NULL);
    assert_int_equal(di_engine_open(MICRO, options, &engine, &err), DI_ERR_INVALID);
    assert_non_null(strstr(err.message, "kv-quant"));
    assert_int_equal(di_options_set(options, "mode", "oracle", &err), DI_OK);
    assert_int_equal(di_options_set(options, "backend", "reference", &err), DI_OK);
    assert_int_equal(di_engine_open(MICRO, options, &engine, &err), DI_OK);
    assert_string_equal(di_engine_identity(engine), "deepinfer-" DI_VERSION ",reference,oracle,kv-f32");
    di_engine_close(engine);
    assert_int_equal(di_options_set(options, "accelerator", "nvidia", &err), DI_OK);
    assert_int_equal(di_engine_open(MICRO, options, &engine, &err), DI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "nvidia"));
    di_options_free(options);
    assert_int_equal(di_engine_open("/nowhere/at/all", NULL, &engine, &err), DI_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere/at/all"));
}

/* Every allocation of opening and of a short request fails once: a clean error each time, and nothing leaks (the address
 * sanitizer build watches). */
static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    struct di_sampling_params params = di_sampling_defaults();
    params.max_tokens = 2;
    params.has_seed = true;
    bool done = false;
    uint64_t step = 1;
    for (uint64_t n = 1; !done; n += step) {
        struct di_error err = {0};
        struct di_generation result;
        di_engine *engine = NULL;
        di_mem_fail_after(n);
        di_status status = di_engine_open(MICRO, NULL, &engine, &err);
        if (status == DI_OK)
            status = di_generate(engine, prompt, PROMPT, &params, NULL, NULL, &result, &err);
        done = status == DI_OK;
        if (!done) {
            assert_int_equal(status, DI_ERR_NOMEM);
            assert_true(err.message[0] != '\0');
        }
        di_mem_fail_after(0);
        di_engine_close(engine);
        step = 1 + n / 25; /* thousands of allocations are alike: the tokenizer's and the headers' strings */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_do_not_depend_on_chunks_or_threads),
        cmocka_unit_test(bad_requests_name_the_culprit_and_leave_the_engine_usable),
        cmocka_unit_test(limits_end_a_request),
        cmocka_unit_test(switches_that_do_not_fit_are_refused),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
