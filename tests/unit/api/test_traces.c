/* The engine under random traces on the hash backend: whatever happens around a request, its tokens and the log-probabilities of its
 * logits (hashes of everything that its rows have read) are those of the request run alone, from cold, without any of the engine's
 * devices. Deterministic: the pipeline is turned by hand.
 *
 * DI_TRACES sets how many traces run (default: what CI has time for). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/options.h"
#include "deepinfer/deepinfer.h"
#include "engine/loop.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

#define MICRO DI_TEST_DATA "/goldens/micro"

enum { WORKS = 400, MOST_OUT = 32, MOST_REQUESTS = 8, TOP = 2, CHOICES = 3, VOCAB = 600, MOST_PROMPT = 600 };

static uint64_t random_state = 20261;

static uint32_t bits(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(random_state >> 33);
}

static int32_t between(int32_t low, int32_t high)
{
    return low + (int32_t)(bits() % (uint32_t)(high - low + 1));
}

/* What a choice comes to. */
struct outcome {
    int32_t token[MOST_OUT], n_token;
    float logprob[MOST_OUT], top[MOST_OUT][TOP];
    int32_t top_id[MOST_OUT][TOP];
    char reason[8];
};

/* A request, and what it comes to when it runs alone. */
struct work {
    int32_t prompt[MOST_PROMPT], n_prompt;
    struct di_sampling_params params;
    int32_t stop_token;
    struct di_logit_bias bias[2];
    int32_t banned[3];
    struct outcome alone[CHOICES];
    float prompt_logprob[MOST_PROMPT]; /* with prompt_logprobs */
};

static struct work works[WORKS];

/* ---- works ---- */

/* Prompts come in families that begin alike: they share prefixes of every length around windows and pages. */
static int32_t text_of(int32_t family, int32_t position)
{
    return (int32_t)(((uint32_t)family * 7919U + (uint32_t)position * 104729U + 12345U) % 590U) + 5;
}

static int32_t prompt_length(void)
{
    switch (bits() % 8) {
    case 0:
        return between(1, 4);
    case 1:
        return between(100, 140);
    case 2:
        return between(250, 264);
    case 3:
        return bits() % 4 == 0 ? between(300, 560) : between(100, 200);
    default:
        return between(1, 60);
    }
}

static void make_params(struct work *w)
{
    struct di_sampling_params *p = &w->params;
    *p = di_sampling_defaults();
    p->temperature = bits() % 3 == 0 ? 0.0 : 1.0;
    p->max_tokens = bits() % 4 == 0 ? between(1, 3) : between(1, MOST_OUT);
    p->has_seed = true;
    p->seed = bits() % 5;
    p->logprobs = TOP;
    p->ignore_eos = bits() % 2 == 0;
    p->n = bits() % 10 == 0 ? between(2, CHOICES) : 1;
    p->prompt_logprobs = bits() % 20 == 0 ? between(0, TOP) : -1;
    if (bits() % 4 == 0)
        p->top_k = between(1, 50);
    if (bits() % 4 == 0)
        p->top_p = 0.9;
    if (bits() % 6 == 0) {
        p->repetition_penalty = 1.25;
        p->presence_penalty = 0.5;
    }
    if (bits() % 6 == 0) {
        w->banned[0] = between(0, 199);
        w->banned[1] = between(200, 399);
        w->banned[2] = between(400, VOCAB - 1);
        p->bad_token_ids = w->banned;
        p->n_bad_token_ids = 3;
    }
    if (bits() % 6 == 0) {
        w->bias[0] = (struct di_logit_bias){between(0, 299), 2.5F};
        p->logit_bias = w->bias;
        p->n_logit_bias = 1;
    }
    if (bits() % 6 == 0) {
        p->min_tokens = between(0, p->max_tokens);
        w->stop_token = between(0, VOCAB - 1);
        p->stop_token_ids = &w->stop_token;
        p->n_stop_token_ids = 1;
    }
}

static void make_works(void)
{
    for (int32_t i = 0; i < WORKS; i++) {
        struct work *w = &works[i];
        int32_t family = between(0, 6);
        w->n_prompt = prompt_length();
        int32_t own = bits() % 3 == 0
                          ? 0
                          : between(0, w->n_prompt < 20 ? w->n_prompt : 20); /* tokens of its own at the end */
        for (int32_t k = 0; k < w->n_prompt; k++)
            w->prompt[k] = text_of(k < w->n_prompt - own ? family : 100 + i, k);
        make_params(w);
    }
}

/* ---- engines ---- */

static const char *backend = "hash";

static di_engine *open_engine(const char *const *settings)
{
    struct di_error err = {0};
    di_options *options;
    di_engine *e;
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    assert_int_equal(di_options_set(options, "backend", backend, &err), DI_OK);
    for (; *settings != NULL; settings += 2)
        assert_int_equal(di_options_set(options, settings[0], settings[1], &err), DI_OK);
    assert_int_equal(di_engine_load(MICRO, options, &e, &err), DI_OK);
    di_options_free(options);
    e->loop_options.by_hand = true;
    if (di_engine_start(e, &err) != DI_OK)
        fail_msg("%s", err.message);
    return e;
}

static bool at_rest(const di_engine *e)
{
    return e->loop->n_unfinished == 0 && e->loop->running == NULL;
}

static void turn_until_rest(di_engine *e)
{
    while (!at_rest(e))
        assert_true(di_loop_turn(e->loop, false));
}

static void audit(di_engine *e)
{
    char why[256] = "";
    if (!di_room_audit(e->loop, why, sizeof why))
        fail_msg("%s", why);
}

static uint64_t submit(di_engine *e, const struct work *w)
{
    struct di_error err = {0};
    uint64_t ticket;
    struct di_request request = {.prompt = w->prompt, .n_prompt = (size_t)w->n_prompt, .params = w->params};
    request.priority = w->n_prompt % 3;
    if (di_submit(e, &request, &ticket, &err) != DI_OK)
        fail_msg("%s", err.message);
    return ticket;
}

/* ---- references ---- */

static void note(struct work *w, const struct di_event *ev)
{
    struct outcome *o = &w->alone[ev->choice];
    assert_int_equal(ev->kind, DI_EVENT_FINISHED);
    if (ev->n_tokens < 1 || ev->n_tokens > MOST_OUT)
        fail_msg("%s: %s", ev->finish_reason, ev->error.message);
    o->n_token = (int32_t)ev->n_tokens;
    for (int32_t i = 0; i < o->n_token; i++) {
        o->token[i] = ev->token_ids[i];
        o->logprob[i] = ev->logprobs[i].logprob;
        memcpy(o->top[i], ev->logprobs[i].top_logprobs, sizeof o->top[i]);
        memcpy(o->top_id[i], ev->logprobs[i].top_ids, sizeof o->top_id[i]);
    }
    snprintf(o->reason, sizeof o->reason, "%s", ev->finish_reason);
    for (size_t i = 1; i < ev->n_prompt_logprobs; i++)
        w->prompt_logprob[i] = ev->prompt_logprobs[i].logprob;
}

static void run_alone(di_engine *e, struct work *w)
{
    struct di_event *ev = NULL;
    (void)submit(e, w);
    turn_until_rest(e);
    for (int32_t c = 0; c < w->params.n; c++) {
        assert_int_equal(di_next_event(e, 0.0, &ev, NULL), DI_OK);
        assert_non_null(ev);
        note(w, ev);
        di_event_free(e, ev);
    }
}

static void make_references(const char *truncation)
{
    const char *const settings[] = {"async",
                                    "off",
                                    "prefix-cache",
                                    "off",
                                    "truncation",
                                    truncation,
                                    "truncation-keep",
                                    "28",
                                    "max-num-batched-tokens",
                                    "1024",
                                    "max-num-seqs",
                                    "1",
                                    NULL};
    di_engine *e = open_engine(settings);
    for (int32_t i = 0; i < WORKS; i++)
        run_alone(e, &works[i]);
    di_engine_close(e);
}

/* ---- traces ---- */

static size_t at_setting; /* for messages */
static int64_t at_trace;

struct trace {
    di_engine *engine;
    int32_t n;
    uint64_t ticket[MOST_REQUESTS];
    const struct work *work[MOST_REQUESTS];
    bool aborted[MOST_REQUESTS], finished[MOST_REQUESTS][CHOICES];
    uint32_t draft_kind; /* 0 right, 1 wrong, 2 mixed */
};

static int32_t draft(void *user, const struct di_seq *seq, int32_t most, int32_t *out)
{
    const struct trace *t = user;
    const struct work *w = NULL;
    int32_t n = between(0, most);
    for (int32_t i = 0; i < t->n; i++)
        if (t->ticket[i] == seq->call->ticket)
            w = t->work[i];
    assert_non_null(w);
    const struct outcome *o = &w->alone[seq->choice];
    int32_t done = (int32_t)di_seq_outputs(seq);
    for (int32_t i = 0; i < n; i++) {
        bool right = t->draft_kind == 0 || (t->draft_kind == 2 && bits() % 3 != 0);
        out[i] = right && done + i < o->n_token ? o->token[done + i] : between(0, VOCAB - 1);
    }
    return n;
}

static void check(struct trace *t, const struct di_event *ev)
{
    int32_t i = 0;
    while (i < t->n && t->ticket[i] != ev->ticket)
        i++;
    assert_true(i < t->n && !t->finished[i][ev->choice]);
    assert_int_equal(ev->kind, DI_EVENT_FINISHED);
    const struct work *w = t->work[i];
    const struct outcome *o = &w->alone[ev->choice];
    t->finished[i][ev->choice] = true;
    bool cut_short = strcmp(ev->finish_reason, "abort") == 0;
    if (strcmp(ev->finish_reason, "error") == 0)
        fail_msg("work %d: %s", (int)(w - works), ev->error.message);
    assert_true(!cut_short || t->aborted[i]);
    if (!cut_short) {
        assert_string_equal(ev->finish_reason, o->reason);
        assert_int_equal(ev->n_tokens, o->n_token);
        assert_true(w->params.prompt_logprobs < 0 || ev->choice > 0 || (int32_t)ev->n_prompt_logprobs == w->n_prompt);
    }
    assert_true((int32_t)ev->n_tokens <= o->n_token);
    for (size_t k = 0; k < ev->n_tokens; k++) {
        if (ev->token_ids[k] != o->token[k] || memcmp(&ev->logprobs[k].logprob, &o->logprob[k], sizeof(float)) != 0 ||
            memcmp(ev->logprobs[k].top_logprobs, o->top[k], sizeof o->top[k]) != 0 ||
            memcmp(ev->logprobs[k].top_ids, o->top_id[k], sizeof o->top_id[k]) != 0)
            fail_msg("trace %lld of setting %zu: work %d (prompt of %d), choice %d: token %zu is %d, alone %d; logprob "
                     "%.9g, alone %.9g; %zu were "
                     "cached, %d "
                     "preemptions",
                     (long long)at_trace, at_setting, (int)(w - works), w->n_prompt, ev->choice, k, ev->token_ids[k],
                     o->token[k], (double)ev->logprobs[k].logprob, (double)o->logprob[k], ev->n_cached,
                     ev->n_preempted);
    }
    for (size_t k = 1; k < ev->n_prompt_logprobs; k++)
        if (memcmp(&ev->prompt_logprobs[k].logprob, &w->prompt_logprob[k], sizeof(float)) != 0)
            fail_msg("work %d: the logprob of prompt token %zu is %.9g, alone %.9g", (int)(w - works), k,
                     (double)ev->prompt_logprobs[k].logprob, (double)w->prompt_logprob[k]);
}

static void collect(struct trace *t)
{
    struct di_event *ev;
    for (;;) {
        assert_int_equal(di_next_event(t->engine, 0.0, &ev, NULL), DI_OK);
        if (ev == NULL)
            return;
        check(t, ev);
        di_event_free(t->engine, ev);
    }
}

/* Requests come, some are aborted, sometimes twice the same; then all have ended and nothing is left over. */
static void run_trace(di_engine *e, bool drafts)
{
    struct trace t = {.engine = e, .draft_kind = bits() % 3};
    int32_t wanted = between(1, MOST_REQUESTS);
    e->loop->draft = drafts ? draft : NULL;
    e->loop->draft_user = &t;
    while (t.n < wanted || !at_rest(e)) {
        while (t.n < wanted && bits() % 3 != 0) {
            t.work[t.n] = t.n > 0 && bits() % 5 == 0 ? t.work[t.n - 1] : &works[between(0, WORKS - 1)];
            t.ticket[t.n] = submit(e, t.work[t.n]);
            t.n++;
        }
        if (t.n > 0 && bits() % 12 == 0) {
            int32_t i = between(0, t.n - 1);
            if (di_abort_ticket(e, t.ticket[i], NULL) == DI_OK)
                t.aborted[i] = true;
        }
        assert_true(di_loop_turn(e->loop, false));
        collect(&t);
    }
    collect(&t);
    for (int32_t i = 0; i < t.n; i++)
        for (int32_t c = 0; c < t.work[i]->params.n; c++)
            assert_true(t.finished[i][c]);
    audit(e);
}

struct setting {
    const char *options[16];
    bool drafts;
};

static void run_settings(const struct setting *settings, size_t n_settings, int64_t traces)
{
    uint64_t preempted = 0, cached = 0, zombies = 0;
    for (size_t s = 0; s < n_settings; s++) {
        di_engine *e = open_engine(settings[s].options);
        at_setting = s;
        for (at_trace = 0; at_trace < traces / (int64_t)n_settings; at_trace++)
            run_trace(e, settings[s].drafts);
        struct di_engine_stats stats;
        di_engine_get_stats(e, &stats);
        preempted += stats.preemptions;
        cached += stats.cached_tokens;
        zombies += stats.zombie_rows;
        di_engine_close(e);
    }
    print_message("%lld traces: %llu preemptions, %llu cached tokens, %llu zombie rows\n", (long long)traces,
                  (unsigned long long)preempted, (unsigned long long)cached, (unsigned long long)zombies);
    assert_true((preempted > 0 || traces < 1000) && cached > 0 && zombies > 0);
}

static int64_t n_traces(void)
{
    const char *wanted = di_env("DI_TRACES");
    return wanted != NULL ? strtoll(wanted, NULL, 10) : SLOW ? 1000 : 100000;
}

#define POOL "kv-cache-tokens"
#define ROWS "max-num-batched-tokens"
#define SEQS "max-num-seqs"

static void every_request_equals_itself_alone(void **state)
{
    (void)state;
    static const struct setting settings[] = {
        {{NULL}, false},
        {{NULL}, true},
        {{"async", "off", NULL}, false},
        {{"async", "off", ROWS, "7", NULL}, true},
        {{"prefix-cache", "off", ROWS, "33", NULL}, false},
        {{"truncation", "off", ROWS, "64", NULL}, true},
        {{"truncation", "off", "async", "off", SEQS, "3", NULL}, false},
        {{ROWS, "1", SEQS, "2", NULL}, false},
        {{ROWS, "127", SEQS, "4", "snapshot-mb", "0", NULL}, false},
        {{ROWS, "129", SEQS, "4", "snapshot-mb", "1", NULL}, true},
        {{POOL, "640", SEQS, "8", NULL}, false},
        {{POOL, "640", SEQS, "8", ROWS, "20", NULL}, true},
        {{POOL, "640", "async", "off", SEQS, "6", ROWS, "128", NULL}, false},
        {{POOL, "640", "prefix-cache", "off", SEQS, "8", ROWS, "50", NULL}, true},
        {{POOL, "640", "truncation", "off", SEQS, "5", NULL}, true},
        {{POOL, "1024", "snapshot-mb", "0", SEQS, "8", NULL}, false},
    };
    make_references("off");
    run_settings(settings, sizeof settings / sizeof *settings, n_traces());
}

static void compact_requests_equal_themselves_alone(void **state)
{
    (void)state;
    static const struct setting settings[] = {
        {{"truncation", "compact", "truncation-keep", "28", NULL}, true},
        {{"truncation", "compact", "truncation-keep", "28", POOL, "640", SEQS, "8", ROWS, "37", NULL}, false},
        {{"truncation", "compact", "truncation-keep", "28", "async", "off", ROWS, "11", SEQS, "3", NULL}, false},
    };
    make_references("compact");
    run_settings(settings, sizeof settings / sizeof *settings, n_traces() / 10);
}

static void real_arithmetic_keeps_every_bit(void **state)
{
    (void)state;
    static const struct setting settings[] = {
        {{"threads", "1", NULL}, false},
        {{"threads", "2", ROWS, "33", NULL}, true},
        {{"threads", "2", "async", "off", "truncation", "off", ROWS, "129", NULL}, false},
        {{"threads", "1", POOL, "640", SEQS, "8", ROWS, "50", NULL}, true},
        {{"threads", "2", POOL, "640", SEQS, "6", "snapshot-mb", "0", NULL}, false},
        {{"threads", "2", "prefix-cache", "off", SEQS, "4", ROWS, "7", NULL}, true},
    };
    backend = "cpu";
    make_references("off");
    run_settings(settings, sizeof settings / sizeof *settings, SLOW ? 24 : 240);
    backend = "hash";
}

int main(void)
{
    make_works();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_equals_itself_alone),
        cmocka_unit_test(real_arithmetic_keeps_every_bit),
        cmocka_unit_test(compact_requests_equal_themselves_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
