#include "engine/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct di_session {
    struct di_engine *engine;
    struct di_session_options options;
    struct di_kv_store *store;
    struct di_model *model;
    int32_t *ids; /* [max_length] everything fed */
    int64_t length;
    int32_t ngram; /* width of the look-back window of a row */
    struct di_arena arena;
    /* host arrays of a step */
    int32_t *window, *position, *slot, *first, *logit_row;
    float *temperature;
    uint64_t *seed;
};

static di_status alloc_host(struct di_session *s, struct di_error *err)
{
    size_t rows = (size_t)s->options.max_rows, heads = (size_t)s->options.max_logit_rows;
    s->ids = di_calloc((size_t)s->options.max_length, sizeof *s->ids);
    s->window = di_arena_alloc(&s->arena, rows * (size_t)s->ngram, sizeof *s->window);
    s->position = di_arena_alloc(&s->arena, rows, sizeof *s->position);
    s->slot = di_arena_alloc(&s->arena, rows, sizeof *s->slot);
    s->first = di_arena_alloc(&s->arena, rows, sizeof *s->first);
    s->logit_row = di_arena_alloc(&s->arena, heads, sizeof *s->logit_row);
    s->temperature = di_arena_alloc(&s->arena, heads, sizeof *s->temperature);
    s->seed = di_arena_alloc(&s->arena, heads, sizeof *s->seed);
    if (s->ids == NULL || s->window == NULL || s->position == NULL || s->slot == NULL || s->first == NULL ||
        s->logit_row == NULL || s->temperature == NULL || s->seed == NULL)
        return DI_FAIL_NOMEM(err, (size_t)s->options.max_length * sizeof *s->ids);
    return DI_OK;
}

di_status di_session_open(struct di_engine *e, const struct di_session_options *options, struct di_session **out,
                          struct di_error *err)
{
    *out = NULL;
    struct di_session *s = di_calloc(1, sizeof *s);
    if (s == NULL)
        return DI_FAIL_NOMEM(err, sizeof *s);
    s->engine = e;
    s->options = *options;
    s->ngram = e->config->n_engram_layers > 0 ? e->config->engram_max_ngram_size : 1;
    struct di_model_options model = {
        .max_rows = options->max_rows,
        .max_logit_rows = options->max_logit_rows,
        .token_map = e->token_map,
        .window_format = e->layout.window_format,
        .observe = options->observe,
        .observe_length = options->max_length,
    };
    int32_t pages = (int32_t)((options->max_length + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS);
    di_status status = alloc_host(s, err);
    if (status == DI_OK)
        status = di_kv_store_open(e->ops, e->dev, &e->layout, 1, pages, pages, &s->store, err);
    if (status == DI_OK)
        status = di_model_open(e->config, &e->plan, &e->weights, e->ops, e->dev, &model, &s->model, err);
    if (status != DI_OK) {
        di_session_close(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

void di_session_close(struct di_session *s)
{
    if (s == NULL)
        return;
    di_model_close(s->model);
    di_kv_store_close(s->store);
    di_arena_free(&s->arena);
    free(s->ids);
    free(s);
}

void di_session_reset(struct di_session *s)
{
    s->length = 0;
    di_kv_store_release(s->store, 0);
}

int64_t di_session_length(const struct di_session *s)
{
    return s->length;
}

/* Writes the host arrays of a step of n rows at the end of the sequence, whose ids are in place. */
static void stage_rows(struct di_session *s, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int64_t position = s->length + i;
        s->position[i] = (int32_t)position;
        s->slot[i] = 0;
        s->first[i] = 0;
        for (int32_t back = 0; back < s->ngram; back++)
            s->window[(int64_t)i * s->ngram + back] = position >= back ? s->ids[position - back] : -1;
    }
}

static int32_t stage_logits(struct di_session *s, const struct di_feed *feed)
{
    int32_t count = feed->logits == DI_LOGITS_NONE ? 0 : feed->logits == DI_LOGITS_LAST ? 1 : feed->n;
    for (int32_t i = 0; i < count; i++) {
        s->logit_row[i] = feed->n - count + i;
        s->temperature[i] = feed->temperature;
        s->seed[i] = feed->seed;
    }
    return count;
}

di_status di_session_feed(struct di_session *s, const struct di_feed *feed, struct di_error *err)
{
    if (feed->n < 1 || feed->n > s->options.max_rows || feed->n > s->options.max_length - s->length)
        return DI_FAIL(err, DI_ERR_LIMIT, "%d more tokens behind %lld do not fit in a sequence of %lld", feed->n,
                       (long long)s->length, (long long)s->options.max_length);
    memcpy(s->ids + s->length, feed->ids, (size_t)feed->n * sizeof *s->ids);
    stage_rows(s, feed->n);
    struct di_step step = {
        .n_rows = feed->n,
        .window = s->window,
        .position = s->position,
        .slot = s->slot,
        .first = s->first,
        .n_logits = stage_logits(s, feed),
        .logit_row = s->logit_row,
        .temperature = s->temperature,
        .seed = s->seed,
    };
    DI_TRY(di_kv_store_reserve(s->store, 0, s->length + feed->n, err));
    DI_TRY(di_forward(s->model, s->store, &step, feed->hooks, err));
    DI_TRY(s->engine->ops->sync(s->engine->dev, err));
    s->length += feed->n;
    return DI_OK;
}

di_status di_session_token(struct di_session *s, int32_t *token, struct di_error *err)
{
    const struct di_ops *ops = s->engine->ops;
    DI_TRY(ops->download(s->engine->dev, token, di_model_tokens(s->model), sizeof *token, err));
    if (*token < 0)
        return DI_FAIL(err, DI_ERR_BACKEND, "the logits behind position %lld are not numbers",
                       (long long)s->length - 1);
    return DI_OK;
}

di_status di_session_logits(struct di_session *s, int32_t row, float *out, struct di_error *err)
{
    size_t vocab = (size_t)s->engine->config->vocab_size;
    return s->engine->ops->download(s->engine->dev, out, di_model_logits(s->model) + (size_t)row * vocab,
                                    vocab * sizeof *out, err);
}

const struct di_model *di_session_model(const struct di_session *s)
{
    return s->model;
}

const struct di_kv_store *di_session_store(const struct di_session *s)
{
    return s->store;
}
