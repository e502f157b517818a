/* deepinfer-bench-decode: decode speed of 1, 2, 4, ... sequences side by side, through the whole model.
 *
 *     deepinfer-bench-decode MODEL [name=value ...]       options of the engine, such as threads=2 mode=fast
 *
 * Every sequence gets a prompt of its own (pseudo-random ids) and then decodes greedily; every step carries one row of each.
 * Sizes take turns within a round; medians over the rounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "engine/engine.h"
#include "model/forward.h"

enum { MOST = 16, PROMPT = 64, STEPS = 64, ROUNDS = 9, LOOK = 8 };

struct decoder {
    struct di_engine *engine;
    struct di_kv_store *store;
    struct di_model *model;
    int32_t ids[MOST][PROMPT + STEPS + 1];
};

static di_status open_decoder(struct decoder *d, const char *path, int argc, char **argv, struct di_error *err)
{
    di_options *options = NULL;
    DI_TRY(di_options_create(&options, err));
    di_status status = DI_OK;
    for (int i = 0; i < argc && status == DI_OK; i++) {
        char name[64];
        const char *equals = strchr(argv[i], '=');
        int length = equals != NULL ? (int)(equals - argv[i]) : 0;
        snprintf(name, sizeof name, "%.*s", length, argv[i]);
        status = di_options_set(options, name, equals != NULL ? equals + 1 : "", err);
    }
    if (status == DI_OK)
        status = di_engine_load(path, options, &d->engine, err);
    di_options_free(options);
    DI_TRY(status);
    struct di_engine *e = d->engine;
    struct di_model_options model = {.max_rows = PROMPT,
                                     .max_logit_rows = MOST,
                                     .token_map = e->token_map,
                                     .window_format = e->layout.window_format};
    int32_t pages = (PROMPT + STEPS + DI_PAGE_TOKENS) / DI_PAGE_TOKENS;
    DI_TRY(di_kv_store_open(e->ops, e->dev, &e->layout, MOST, MOST * pages, pages, &d->store, err));
    return di_model_open(e->config, &e->plan, &e->weights, e->ops, e->dev, &model, &d->model, err);
}

/* `count` rows from position `start` on of each of the sequences first .. first + n - 1; the last row of each goes through the
 * head, and the token drawn is put behind it. */
static di_status step(struct decoder *d, int32_t first, int32_t n, int32_t start, int32_t count, struct di_error *err)
{
    static int32_t window[PROMPT * LOOK], position[PROMPT], slot[PROMPT], begin[PROMPT], row[MOST], token[MOST];
    static const float temperature[MOST];
    static const uint64_t seed[MOST];
    struct di_engine *e = d->engine;
    int32_t rows = 0, ngram = e->config->n_engram_layers > 0 ? e->config->engram_max_ngram_size : 1;
    for (int32_t s = 0; s < n; s++) {
        DI_TRY(di_kv_store_reserve(d->store, first + s, start + count, err));
        for (int32_t i = 0; i < count; i++, rows++) {
            position[rows] = start + i;
            slot[rows] = first + s;
            begin[rows] = s * count;
            for (int32_t back = 0; back < ngram; back++)
                window[rows * ngram + back] = start + i >= back ? d->ids[first + s][start + i - back] : -1;
        }
        row[s] = rows - 1;
    }
    struct di_step args = {.n_rows = rows,
                           .window = window,
                           .position = position,
                           .slot = slot,
                           .first = begin,
                           .n_logits = n,
                           .logit_row = row,
                           .temperature = temperature,
                           .seed = seed};
    DI_TRY(di_forward(d->model, d->store, &args, NULL, err));
    DI_TRY(e->ops->download(e->dev, token, di_model_tokens(d->model), (size_t)n * sizeof *token, err));
    for (int32_t s = 0; s < n; s++)
        d->ids[first + s][start + count] = token[s];
    return e->ops->sync(e->dev, err);
}

/* Tokens a second of n sequences. */
static di_status run(struct decoder *d, int32_t n, double *rate, struct di_error *err)
{
    for (int32_t s = 0; s < n; s++) {
        di_kv_store_release(d->store, s);
        for (int32_t i = 0; i < PROMPT; i++)
            d->ids[s][i] = (s * 7919 + i * 104729 + 12345) % d->engine->config->vocab_size;
        DI_TRY(step(d, s, 1, 0, PROMPT, err));
    }
    double start = di_clock_seconds();
    for (int32_t i = 0; i < STEPS - 1; i++)
        DI_TRY(step(d, 0, n, PROMPT + i, 1, err));
    *rate = n * (STEPS - 1) / (di_clock_seconds() - start);
    return DI_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const int32_t sizes[] = {1, 2, 4, 8, MOST};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static double rates[SIZES][ROUNDS], ratios[SIZES][ROUNDS];
    static struct decoder d;
    struct di_error err = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: deepinfer-bench-decode MODEL [option=value ...]\n");
        return 2;
    }
    di_status status = open_decoder(&d, argv[1], argc - 2, argv + 2, &err);
    for (int r = 0; r < ROUNDS && status == DI_OK; r++)
        for (int s = 0; s < SIZES && status == DI_OK; s++) {
            status = run(&d, sizes[s], &rates[s][r], &err);
            ratios[s][r] = rates[s][r] / rates[0][r];
        }
    if (status == DI_OK) {
        printf("%s, %s: %d rounds of %d steps behind prompts of %d\n", argv[1], d.engine->identity, ROUNDS, STEPS - 1,
               PROMPT);
        printf("sequences   tokens/s   of one\n");
        for (int s = 0; s < SIZES; s++) {
            qsort(rates[s], ROUNDS, sizeof(double), ascending);
            qsort(ratios[s], ROUNDS, sizeof(double), ascending);
            printf("%9d %10.1f %7.2fx\n", sizes[s], rates[s][ROUNDS / 2], ratios[s][ROUNDS / 2]);
        }
    } else {
        fprintf(stderr, "deepinfer-bench-decode: %s\n", err.message);
    }
    di_model_close(d.model);
    di_kv_store_close(d.store);
    di_engine_close(d.engine);
    return status == DI_OK ? 0 : 1;
}
