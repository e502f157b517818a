/* Many threads on one engine: requests come and are aborted from several threads while others take events; the pool is small. Every
 * tenth request is compared with itself on an unloaded engine. The short run is part of every test (and of the thread sanitizer's);
 * `make soak` runs the long one:
 *
 *     DI_SOAK_REQUESTS   how many requests (default 120)
 *     DI_SOAK_SECONDS    spread over so many seconds (default: as fast as it goes)
 *     DI_SOAK_MODEL      checkpoint folder (default: a golden one)
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/options.h"
#include "deepinfer/deepinfer.h"
#include "engine/loop.h"

enum { SUBMITTERS = 3, MOST_PROMPT = 700, MOST_OUT = 160 };

/* One request; made from its number alone, so that it can be made again. */
struct spec {
    int32_t prompt[MOST_PROMPT], n_prompt;
    struct di_sampling_params params;
    bool abort;
};

struct kept {
    int32_t token[MOST_OUT];
    size_t n_token;
    bool aborted;
};

static struct soak {
    di_engine *engine;
    int32_t vocab, n_requests;
    double seconds, begin;
    _Atomic int32_t next, finished;
    struct kept *kept; /* [n_requests] */
    _Atomic size_t rss_half;
} soak;

static uint32_t step(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

static void make_spec(int32_t number, struct spec *s)
{
    uint64_t random = (uint64_t)number * 7919U + 17U;
    *s = (struct spec){.params = di_sampling_defaults()};
    s->n_prompt = 1 + (int32_t)(step(&random) % (step(&random) % 4 == 0 ? MOST_PROMPT : 90));
    uint32_t family = step(&random) % 5, own = step(&random) % 30;
    for (int32_t i = 0; i < s->n_prompt; i++) {
        uint32_t word = i + (int32_t)own < s->n_prompt ? family * 31U : (uint32_t)number * 131U;
        s->prompt[i] = (int32_t)((word + (uint32_t)i * 7907U) % (uint32_t)(soak.vocab - 8)) + 8;
    }
    s->params.has_seed = true;
    s->params.seed = (uint64_t)number;
    s->params.temperature = number % 3 == 0 ? 0.0 : 0.9;
    s->params.top_p = number % 2 == 0 ? 0.95 : 1.0;
    s->params.repetition_penalty = number % 7 == 0 ? 1.1 : 1.0;
    s->params.max_tokens = 1 + (int32_t)(step(&random) % MOST_OUT);
    s->params.ignore_eos = true;
    s->abort = step(&random) % 6 == 0;
}

static void name_of(int32_t number, char name[24])
{
    snprintf(name, 24, "r%d", number);
}

static di_engine *open_engine(const char *pool, const char *seqs, const char *cache)
{
    struct di_error err = {0};
    const char *model = di_env("DI_SOAK_MODEL");
    const char *const settings[][2] = {{"kv-cache-tokens", pool},
                                       {"max-num-seqs", seqs},
                                       {"prefix-cache", cache},
                                       {"threads", "2"},
                                       {"snapshot-mb", "8"}};
    di_options *options;
    di_engine *e;
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_int_equal(di_options_set(options, settings[i][0], settings[i][1], &err), DI_OK);
    if (di_engine_open(model != NULL ? model : DI_TEST_DATA "/goldens/micro", options, &e, &err) != DI_OK)
        fail_msg("%s", err.message);
    di_options_free(options);
    return e;
}

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static void *submit_main(void *arg)
{
    struct spec *s = malloc(sizeof *s);
    char name[24];
    (void)arg;
    for (int32_t number; s != NULL && (number = atomic_fetch_add(&soak.next, 1)) < soak.n_requests;) {
        double due = soak.seconds * number / soak.n_requests - (di_clock_seconds() - soak.begin);
        if (due > 0.0)
            nap(due);
        make_spec(number, s);
        name_of(number, name);
        struct di_request request = {.id = name,
                                     .prompt = s->prompt,
                                     .n_prompt = (size_t)s->n_prompt,
                                     .params = s->params,
                                     .stream = number % 4 == 0};
        struct di_error err = {0};
        if (di_submit(soak.engine, &request, NULL, &err) != DI_OK) {
            fprintf(stderr, "request %d: %s\n", number, err.message);
            abort();
        }
        if (s->abort) {
            nap(0.0005 * (number % 9));
            (void)di_abort(soak.engine, name, NULL); /* or it has finished */
            (void)di_abort(soak.engine, name, NULL);
        }
    }
    free(s);
    return NULL;
}

static size_t anonymous_kb(void)
{
    char line[128];
    unsigned long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "RssAnon: %lu", &kb) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return kb;
}

static void *take_main(void *arg)
{
    (void)arg;
    while (atomic_load(&soak.finished) < soak.n_requests) {
        struct di_event *ev;
        if (di_next_event(soak.engine, 0.05, &ev, NULL) != DI_OK)
            abort();
        if (ev == NULL)
            continue;
        int32_t number = (int32_t)strtol(ev->id + 1, NULL, 10);
        struct kept *k = &soak.kept[number];
        if (k->n_token + ev->n_tokens > MOST_OUT)
            abort();
        memcpy(k->token + k->n_token, ev->token_ids, ev->n_tokens * sizeof *k->token);
        k->n_token += ev->n_tokens;
        bool last = ev->kind == DI_EVENT_FINISHED;
        k->aborted = last && strcmp(ev->finish_reason, "abort") == 0;
        if (last && strcmp(ev->finish_reason, "error") == 0) {
            fprintf(stderr, "request %d: %s\n", number, ev->error.message);
            abort();
        }
        di_event_free(soak.engine, ev);
        if (last && atomic_fetch_add(&soak.finished, 1) + 1 == soak.n_requests / 2)
            atomic_store(&soak.rss_half, anonymous_kb());
    }
    return NULL;
}

static void run_loaded(void)
{
    pthread_t submitters[SUBMITTERS], taker;
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_create(&submitters[i], NULL, submit_main, NULL), 0);
    assert_int_equal(pthread_create(&taker, NULL, take_main, NULL), 0);
    for (int i = 0; i < SUBMITTERS; i++)
        pthread_join(submitters[i], NULL);
    pthread_join(taker, NULL);
}

static bool keep_token(void *user, const struct di_token_event *event)
{
    struct kept *k = user;
    if (event->id >= 0)
        k->token[k->n_token++] = event->id;
    return true;
}

static int32_t compare_sample(void)
{
    struct spec *s = malloc(sizeof *s);
    int32_t compared = 0;
    assert_non_null(s);
    di_engine *alone = open_engine("0", "1", "off");
    for (int32_t number = 0; number < soak.n_requests; number += 10) {
        struct kept k = {.n_token = 0};
        struct di_generation result;
        struct di_error err = {0};
        make_spec(number, s);
        assert_int_equal(di_generate(alone, s->prompt, (size_t)s->n_prompt, &s->params, keep_token, &k, &result, &err),
                         DI_OK);
        const struct kept *loaded = &soak.kept[number];
        assert_true(loaded->n_token == k.n_token || (loaded->aborted && loaded->n_token < k.n_token));
        assert_memory_equal(loaded->token, k.token, loaded->n_token * sizeof *k.token);
        compared += !loaded->aborted;
    }
    di_engine_close(alone);
    free(s);
    return compared;
}

static double number_from(const char *name, double otherwise)
{
    const char *value = di_env(name);
    return value != NULL ? strtod(value, NULL) : otherwise;
}

static void a_loaded_engine_answers_like_an_unloaded_one(void **state)
{
    (void)state;
    soak.engine = open_engine("1024", "12", "on");
    soak.vocab = di_engine_vocab_size(soak.engine);
    soak.n_requests = (int32_t)number_from("DI_SOAK_REQUESTS", 120.0);
    soak.seconds = number_from("DI_SOAK_SECONDS", 0.0);
    soak.kept = calloc((size_t)soak.n_requests, sizeof *soak.kept);
    assert_non_null(soak.kept);
    soak.begin = di_clock_seconds();
    run_loaded();
    size_t rss_end = anonymous_kb();
    struct di_engine_stats stats;
    di_engine_get_stats(soak.engine, &stats);
    di_engine_close(soak.engine);
    int32_t compared = compare_sample();
    print_message("%d requests, %d compared, %llu aborted, %llu preemptions, %llu cached tokens; RssAnon %zu kB at "
                  "half, %zu kB at the "
                  "end\n",
                  soak.n_requests, compared, (unsigned long long)stats.aborted, (unsigned long long)stats.preemptions,
                  (unsigned long long)stats.cached_tokens, soak.rss_half, rss_end);
    assert_true(compared > 0);
    assert_int_equal(stats.finished, soak.n_requests);
    if (soak.seconds > 60.0)
        assert_true((double)rss_end <= 1.01 * (double)soak.rss_half);
    free(soak.kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loaded_engine_answers_like_an_unloaded_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
