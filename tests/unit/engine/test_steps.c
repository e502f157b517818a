/* Whole-model steps over several sequences: logits do not depend on chunking, on companions in the batch, on threads; steps
 * allocate nothing once warm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/options.h"
#include "deepinfer/deepinfer.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "model/forward.h"

enum { SEQUENCES = 4, LENGTH = 150, ROWS = 160, LOOK = 8 };

struct bench {
    struct di_engine *engine;
    struct di_kv_store *store;
    struct di_model *model;
    int32_t vocab;
    int32_t length[SEQUENCES];
    float *logits; /* [SEQUENCES][LENGTH][vocab] */
};

static int32_t id_of(const struct bench *b, int32_t sequence, int32_t position)
{
    return (int32_t)(((uint32_t)sequence * 7919U + (uint32_t)position * 104729U + 12345U) % (uint32_t)b->vocab);
}

static void open_bench(struct bench *b, const char *mode, const char *threads)
{
    struct di_error err = {0};
    di_options *options = NULL;
    *b = (struct bench){0};
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    assert_int_equal(di_options_set(options, "mode", mode, &err), DI_OK);
    assert_int_equal(di_options_set(options, "threads", threads, &err), DI_OK);
    assert_int_equal(di_engine_load(DI_SOURCE_DIR "/models/tiny", options, &b->engine, &err), DI_OK);
    di_options_free(options);
    struct di_engine *e = b->engine;
    b->vocab = e->config->vocab_size;
    struct di_model_options model = {
        .max_rows = ROWS, .max_logit_rows = ROWS, .token_map = e->token_map, .window_format = e->layout.window_format};
    int32_t pages = (LENGTH + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS;
    assert_int_equal(di_kv_store_open(e->ops, e->dev, &e->layout, SEQUENCES, SEQUENCES * pages, pages, &b->store, &err),
                     DI_OK);
    assert_int_equal(di_model_open(e->config, &e->plan, &e->weights, e->ops, e->dev, &model, &b->model, &err), DI_OK);
    b->logits = calloc((size_t)SEQUENCES * LENGTH * (size_t)b->vocab, sizeof *b->logits);
    assert_non_null(b->logits);
}

static void close_bench(struct bench *b)
{
    di_model_close(b->model);
    di_kv_store_close(b->store);
    di_engine_close(b->engine);
    free(b->logits);
}

/* One step that feeds count[s] more tokens of every sequence s, in the order of `order`. */
static void feed(struct bench *b, const int32_t order[SEQUENCES], const int32_t count[SEQUENCES])
{
    static int32_t window[ROWS * LOOK], position[ROWS], slot[ROWS], first[ROWS], row[ROWS];
    static float temperature[ROWS];
    static uint64_t seed[ROWS];
    struct di_engine *e = b->engine;
    struct di_error err = {0};
    int32_t n = 0, ngram = e->config->n_engram_layers > 0 ? e->config->engram_max_ngram_size : 1;
    assert_true(ngram <= LOOK);
    for (int32_t i = 0; i < SEQUENCES; i++) {
        int32_t s = order[i], start = n;
        if (count[s] == 0)
            continue;
        assert_int_equal(di_kv_store_reserve(b->store, s, b->length[s] + count[s], &err), DI_OK);
        for (int32_t j = 0; j < count[s]; j++, n++) {
            position[n] = b->length[s] + j;
            slot[n] = s;
            first[n] = start;
            row[n] = n;
            for (int32_t back = 0; back < ngram; back++)
                window[n * ngram + back] = position[n] >= back ? id_of(b, s, position[n] - back) : -1;
        }
    }
    struct di_step step = {.n_rows = n,
                           .window = window,
                           .position = position,
                           .slot = slot,
                           .first = first,
                           .n_logits = n,
                           .logit_row = row,
                           .temperature = temperature,
                           .seed = seed};
    assert_int_equal(di_forward(b->model, b->store, &step, NULL, &err), DI_OK);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(e->ops->download(e->dev, b->logits + ((int64_t)slot[i] * LENGTH + position[i]) * b->vocab,
                                          di_model_logits(b->model) + (int64_t)i * b->vocab,
                                          (size_t)b->vocab * sizeof(float), &err),
                         DI_OK);
    assert_int_equal(e->ops->sync(e->dev, &err), DI_OK);
    for (int32_t s = 0; s < SEQUENCES; s++)
        b->length[s] += count[s];
}

static const int32_t ascending[SEQUENCES] = {0, 1, 2, 3}, mixed[SEQUENCES] = {2, 0, 3, 1};

/* Every sequence by itself in one step. */
static void alone(struct bench *b)
{
    for (int32_t s = 0; s < SEQUENCES; s++) {
        int32_t count[SEQUENCES] = {0};
        count[s] = LENGTH;
        feed(b, ascending, count);
    }
}

/* All of them together, in pieces of ever other sizes, in another order. */
static void together(struct bench *b)
{
    for (uint32_t turn = 1; b->length[0] + b->length[1] + b->length[2] + b->length[3] < SEQUENCES * LENGTH; turn++) {
        int32_t count[SEQUENCES];
        for (int32_t s = 0; s < SEQUENCES; s++) {
            count[s] = (int32_t)((turn * 2654435761U >> (4 * s)) % (turn % 5 == 0 ? 35U : 4U));
            if (count[s] > LENGTH - b->length[s])
                count[s] = LENGTH - b->length[s];
        }
        if (count[0] + count[1] + count[2] + count[3] > 0)
            feed(b, turn % 2 == 0 ? mixed : ascending, count);
    }
}

static void logits_do_not_depend_on_chunks_or_companions(void **state)
{
    (void)state;
    static const char *const modes[] = {"native", "fast", "oracle"};
    for (int m = 0; m < 3; m++) {
        struct bench one, other;
        open_bench(&one, modes[m], "1");
        open_bench(&other, modes[m], "2");
        alone(&one);
        together(&other);
        size_t bytes = (size_t)SEQUENCES * LENGTH * (size_t)one.vocab * sizeof(float);
        assert_memory_equal(one.logits, other.logits, bytes);
        assert_true(one.logits[0] != one.logits[(size_t)LENGTH * (size_t)one.vocab]); /* sequences do differ */
        close_bench(&one);
        close_bench(&other);
    }
}

static void warm_steps_allocate_nothing(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, "native", "2");
    const int32_t first[SEQUENCES] = {30, 20, 1, 1}, one_each[SEQUENCES] = {1, 1, 1, 1};
    feed(&b, ascending, first);
    di_mem_fail_after(UINT64_MAX); /* counts */
    for (int i = 0; i < 100; i++)
        feed(&b, ascending, one_each);
    assert_int_equal(di_mem_fail_after(0), 0);
    close_bench(&b);
}

/* What the memory plan states covers what the process holds, here where it is no more than what one sequence needs. */
static void memory_stays_within_the_plan(void **state)
{
    (void)state;
#ifdef DI_SANITIZED
    skip(); /* the sanitizer's own memory is in no plan */
#endif
    struct di_error err = {0};
    struct di_engine *e = NULL;
    di_options *options = NULL;
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    assert_int_equal(di_options_set(options, "threads", "2", &err), DI_OK);
    assert_int_equal(di_options_set(options, "max-model-len", "1024", &err), DI_OK);
    assert_int_equal(di_engine_load(DI_SOURCE_DIR "/models/tiny", options, &e, &err), DI_OK);
    di_options_free(options);
    struct di_memory_term terms[DI_MEMORY_TERMS];
    di_engine_memory_plan(e, terms);
    uint64_t stated = 0, before = di_engine_anonymous_memory();
    for (int i = 0; i < DI_MEMORY_TERMS; i++)
        stated += terms[i].allocated ? terms[i].bytes : 0;
    assert_true(before > 0);
    assert_int_equal(di_engine_start(e, &err), DI_OK);
    int32_t ids[1000];
    for (int i = 0; i < 1000; i++)
        ids[i] = (int32_t)((uint32_t)i * 104729U % (uint32_t)e->config->vocab_size);
    struct di_sampling_params params = di_sampling_defaults();
    params.max_tokens = 8;
    params.ignore_eos = true;
    struct di_generation result;
    assert_int_equal(di_generate_run(e, ids, 1000, &params, NULL, NULL, &result, &err), DI_OK);
    uint64_t held = di_engine_anonymous_memory();
    assert_in_range(held, before + 1, stated);
    di_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_stays_within_the_plan), /* first: freed memory of other tests would count as held */
        cmocka_unit_test(logits_do_not_depend_on_chunks_or_companions),
        cmocka_unit_test(warm_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
