#include "engine/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/engram.h"
#include "engine/record.h"
#include "engine/session.h"
#include "numerics/codes.h"

enum { TOP = 8 }; /* greedy.top8 */

/* Everything one trace holds. */
struct trace {
    struct di_engine *engine;
    const struct di_trace_options *options;
    struct di_session *session;
    struct di_recorder *recorder;
    struct di_st_writer *writer;
    struct di_st_set *feed, *like; /* NULL, or opened; like may be feed */
    struct di_arena arena;
    int32_t *positions; /* [n_positions] */
    int64_t n_positions;
    struct di_error *err;
};

/* ---------------------------------------------------------------------------------------------------------------------
 * Inputs: which positions, and rows to feed. */

static di_status list_positions(struct trace *t)
{
    int64_t length = (int64_t)t->options->n_ids;
    const struct di_st_tensor *given = t->like != NULL ? di_st_find(t->like, "positions") : NULL;
    if (given != NULL && (given->dtype != DI_ST_I32 || given->n_dims != 1))
        return DI_FAIL(t->err, DI_ERR_FORMAT, "%s: positions must be a list of I32", given->file);
    t->n_positions = given != NULL ? given->shape[0] : length;
    t->positions = di_arena_alloc(&t->arena, (size_t)t->n_positions, sizeof *t->positions);
    if (t->positions == NULL)
        return DI_FAIL_NOMEM(t->err, (size_t)t->n_positions * sizeof *t->positions);
    for (int64_t i = 0; i < t->n_positions; i++) {
        t->positions[i] = given != NULL ? ((const int32_t *)given->data)[i] : (int32_t)i;
        if (given != NULL && (t->positions[i] < 0 || t->positions[i] >= length))
            return DI_FAIL(t->err, DI_ERR_RANGE, "%s: positions[%lld] is %d; the prompt has %lld tokens", given->file,
                           (long long)i, t->positions[i], (long long)length);
        if (given != NULL && i > 0 && t->positions[i] <= t->positions[i - 1])
            return DI_FAIL(t->err, DI_ERR_FORMAT, "%s: positions[%lld] is %d after %d; they must ascend", given->file,
                           (long long)i, t->positions[i], t->positions[i - 1]);
    }
    return DI_OK;
}

static di_status open_inputs(struct trace *t)
{
    const char *like = t->options->like;
    if (t->options->feed != NULL)
        DI_TRY(di_st_open(t->options->feed, &t->feed, t->err));
    if (like != NULL)
        DI_TRY(di_st_open(like, &t->like, t->err));
    else
        t->like = t->feed;
    return list_positions(t);
}

/* Copies rows [begin, end) of a fed tensor [available, width] over device rows from `row` on. */
static di_status upload_rows(struct trace *t, const struct di_st_tensor *from, int64_t begin, int64_t end,
                             int64_t width, bool act, void *device, int64_t row)
{
    const struct di_ops *ops = t->engine->ops;
    size_t count = (size_t)(end - begin) * (size_t)width;
    bool narrow = act && ops->act_bytes == 2;
    float *wide = di_calloc(count, sizeof *wide);
    if (wide == NULL)
        return DI_FAIL_NOMEM(t->err, count * sizeof *wide);
    uint16_t *half = (uint16_t *)(void *)wide;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)begin * (size_t)width + i;
        float value = from->dtype == DI_ST_BF16 ? di_bf16_to_f32(((const uint16_t *)from->data)[at])
                                                : ((const float *)from->data)[at];
        if (narrow)
            half[i] = di_bf16_from_f32(value);
        else
            wide[i] = value;
    }
    size_t element = narrow ? sizeof *half : sizeof *wide;
    di_status status = ops->upload(t->engine->dev, (char *)device + (size_t)row * (size_t)width * element, wide,
                                   count * element, t->err);
    free(wide);
    return status;
}

/* Checks a fed tensor against the model: [rows, ...] with `width` values a row. */
static di_status check_fed(struct trace *t, const struct di_st_tensor *tensor, int64_t min_rows, int64_t width)
{
    int64_t values = 1;
    for (int32_t i = 1; i < tensor->n_dims; i++)
        values *= tensor->shape[i];
    if ((tensor->dtype != DI_ST_F32 && tensor->dtype != DI_ST_BF16) || tensor->n_dims < 2 || values != width ||
        tensor->shape[0] < min_rows)
        return DI_FAIL(t->err, DI_ERR_FORMAT, "%s: %s must be F32 or BF16 with at least %lld rows of %lld values",
                       tensor->file, tensor->name, (long long)min_rows, (long long)width);
    return DI_OK;
}

static di_status enter_layer(void *user, int32_t layer, void *streams, void *pre, const struct di_step *step,
                             struct di_error *err)
{
    struct trace *t = user;
    (void)err; /* the trace carries it */
    const struct di_config *c = t->engine->config;
    bool final = layer == c->num_hidden_layers;
    char streams_name[64], pre_name[64];
    snprintf(streams_name, sizeof streams_name, final ? "final.streams_in" : "layers.%d.streams_in", layer);
    snprintf(pre_name, sizeof pre_name, final ? "final.pre_in" : "layers.%d.pre_in", layer);
    const struct di_st_tensor *x = di_st_find(t->feed, streams_name), *p = di_st_find(t->feed, pre_name);
    if (x == NULL || p == NULL)
        return DI_OK;
    int64_t length = (int64_t)t->options->n_ids, start = step->position[0], end = start + step->n_rows;
    int64_t width = (int64_t)c->hc_mult * c->hidden_size;
    if (start >= length)
        return DI_OK; /* greedy tokens run free */
    DI_TRY(check_fed(t, x, final ? 1 : length, width));
    DI_TRY(check_fed(t, p, x->shape[0], c->hc_mult));
    /* final.* hold the last rows of the prompt, the others all of it */
    int64_t origin = final ? length - x->shape[0] : 0;
    int64_t from = start > origin ? start : origin;
    if (from >= end)
        return DI_OK;
    DI_TRY(upload_rows(t, x, from - origin, end - origin, width, true, streams, from - start));
    return upload_rows(t, p, from - origin, end - origin, c->hc_mult, false, pre, from - start);
}

static di_status observe(void *user, int32_t layer, enum di_point point, const void *data, int32_t rows, int32_t width,
                         struct di_error *err)
{
    struct trace *t = user;
    return di_recorder_observe(t->recorder, di_session_model(t->session), di_session_length(t->session), layer, point,
                               data, rows, width, err);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Running. */

static di_status prefill(struct trace *t)
{
    int64_t length = (int64_t)t->options->n_ids;
    int64_t chunk = t->options->chunk == 0 ? length : t->options->chunk;
    struct di_forward_hooks hooks = {.user = t, .observe = observe, .enter = t->feed != NULL ? enter_layer : NULL};
    for (int64_t at = 0; at < length; at += chunk) {
        int64_t n = length - at < chunk ? length - at : chunk;
        struct di_feed feed = {
            .ids = t->options->ids + at,
            .n = (int32_t)n,
            .logits = DI_LOGITS_ALL,
            .hooks = &hooks,
        };
        DI_TRY(di_session_feed(t->session, &feed, t->err));
    }
    return DI_OK;
}

/* The TOP greatest logits, descending, ties to the lower id. */
static void top_logits(const float *logits, int32_t vocab, int32_t *ids, float *values)
{
    int32_t count = 0;
    for (int32_t id = 0; id < vocab; id++) {
        int32_t at = count < TOP ? count++ : TOP;
        while (at > 0 && logits[id] > values[at - 1]) {
            if (at < TOP) {
                values[at] = values[at - 1];
                ids[at] = ids[at - 1];
            }
            at--;
        }
        if (at < TOP) {
            values[at] = logits[id];
            ids[at] = id;
        }
    }
}

static di_status greedy(struct trace *t)
{
    int32_t steps = t->options->greedy, vocab = t->engine->config->vocab_size;
    size_t n = (size_t)steps;
    if (steps == 0)
        return DI_OK;
    int32_t last = steps < 2 ? steps : 2; /* full logits are kept of the last two steps */
    int32_t *ids = di_arena_alloc(&t->arena, n, sizeof *ids);
    int32_t *top_ids = di_arena_alloc(&t->arena, n * TOP, sizeof *top_ids);
    float *top_values = di_arena_alloc(&t->arena, n * TOP, sizeof *top_values);
    float *logits = di_arena_alloc(&t->arena, 2 * (size_t)vocab, sizeof *logits);
    if (ids == NULL || top_ids == NULL || top_values == NULL || logits == NULL)
        return DI_FAIL_NOMEM(t->err, n * TOP * sizeof *top_ids);
    /* The prompt's last logits row stands behind all others of its step. */
    int64_t length = (int64_t)t->options->n_ids;
    int64_t chunk = t->options->chunk == 0 ? length : t->options->chunk;
    int32_t row = (int32_t)((length - 1) % chunk);
    for (int32_t i = 0; i < steps; i++) {
        float *into = logits + (size_t)(i >= steps - last ? i - (steps - last) : 0) * (size_t)vocab;
        DI_TRY(di_session_logits(t->session, row, into, t->err));
        top_logits(into, vocab, top_ids + (size_t)i * TOP, top_values + (size_t)i * TOP);
        ids[i] = top_ids[(size_t)i * TOP];
        row = 0;
        struct di_feed feed = {.ids = &ids[i], .n = 1, .logits = DI_LOGITS_LAST};
        if (i + 1 < steps)
            DI_TRY(di_session_feed(t->session, &feed, t->err));
    }
    int64_t shape[2] = {steps, TOP}, full[2] = {last, vocab};
    DI_TRY(di_st_writer_add(t->writer, "greedy.ids", DI_ST_I32, 1, shape, ids, t->err));
    DI_TRY(di_st_writer_add(t->writer, "greedy.top8.ids", DI_ST_I32, 2, shape, top_ids, t->err));
    DI_TRY(di_st_writer_add(t->writer, "greedy.top8.logits", DI_ST_F32, 2, shape, top_values, t->err));
    return di_st_writer_add(t->writer, "greedy.logits.last2", DI_ST_F32, 2, full, logits, t->err);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Tensors that are not rows of a step. */

/* BF16 in mode native (the values are exactly that), F32 in oracle. */
static di_status add_act(struct trace *t, const char *name, const int64_t shape[2], const float *data)
{
    if (t->engine->mode == DI_MODE_ORACLE)
        return di_st_writer_add(t->writer, name, DI_ST_F32, 2, shape, data, t->err);
    size_t count = (size_t)shape[0] * (size_t)shape[1];
    uint16_t *narrow = di_calloc(count, sizeof *narrow);
    if (narrow == NULL)
        return DI_FAIL_NOMEM(t->err, count * sizeof *narrow);
    for (size_t i = 0; i < count; i++)
        narrow[i] = di_bf16_from_f32(data[i]);
    di_status status = di_st_writer_add(t->writer, name, DI_ST_BF16, 2, shape, narrow, t->err);
    free(narrow);
    return status;
}

/* Which entries of a KV source are written: those of the like file, else all. */
static di_status list_groups(struct trace *t, int32_t layer, int64_t total, int32_t **groups, int64_t *count)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%d.compressed.groups", layer);
    const struct di_st_tensor *given = t->like != NULL ? di_st_find(t->like, name) : NULL;
    if (given != NULL && (given->dtype != DI_ST_I32 || given->n_dims != 1))
        return DI_FAIL(t->err, DI_ERR_FORMAT, "%s: %s must be a list of I32", given->file, name);
    *count = given != NULL ? given->shape[0] : total;
    *groups = di_arena_alloc(&t->arena, (size_t)*count, sizeof **groups);
    if (*groups == NULL)
        return DI_FAIL_NOMEM(t->err, (size_t)*count * sizeof **groups);
    for (int64_t i = 0; i < *count; i++) {
        (*groups)[i] = given != NULL ? ((const int32_t *)given->data)[i] : (int32_t)i;
        if (given != NULL && ((*groups)[i] < 0 || (*groups)[i] >= total))
            return DI_FAIL(t->err, DI_ERR_RANGE, "%s: %s[%lld] is %d; the prompt has %lld entries", given->file, name,
                           (long long)i, (*groups)[i], (long long)total);
    }
    return DI_OK;
}

static di_status write_compressed(struct trace *t, int32_t kv_slot)
{
    const struct di_config *c = t->engine->config;
    int32_t layer = t->engine->plan.kv_layer[kv_slot], *groups = NULL;
    int64_t total = (int64_t)t->options->n_ids / t->engine->plan.kv_ratio[kv_slot], count = 0;
    DI_TRY(list_groups(t, layer, total, &groups, &count));
    size_t n = (size_t)count, hd = (size_t)c->head_dim, ihd = (size_t)c->index_head_dim;
    float *latent = di_arena_alloc(&t->arena, n * hd, sizeof *latent);
    float *main = di_arena_alloc(&t->arena, n * hd, sizeof *main);
    float *key = di_arena_alloc(&t->arena, n * ihd, sizeof *key);
    if (latent == NULL || main == NULL || key == NULL)
        return DI_FAIL_NOMEM(t->err, n * hd * sizeof *latent);
    const float *latents = di_recorder_latents(t->recorder, layer);
    for (size_t i = 0; i < n; i++) {
        DI_TRY(di_kv_store_read(di_session_store(t->session), kv_slot, 0, groups[i], main + i * hd, key + i * ihd,
                                t->err));
        memcpy(latent + i * hd, latents + (size_t)groups[i] * hd, hd * sizeof *latent);
    }
    char name[64];
    int64_t wide[2] = {count, c->head_dim}, thin[2] = {count, c->index_head_dim};
    snprintf(name, sizeof name, "layers.%d.compressed.groups", layer);
    DI_TRY(di_st_writer_add(t->writer, name, DI_ST_I32, 1, &count, groups, t->err));
    snprintf(name, sizeof name, "layers.%d.compressed.latent", layer);
    DI_TRY(add_act(t, name, wide, latent));
    snprintf(name, sizeof name, "layers.%d.compressed.kv", layer);
    DI_TRY(add_act(t, name, wide, main));
    snprintf(name, sizeof name, "layers.%d.compressed.index_key", layer);
    return add_act(t, name, thin, key);
}

static di_status write_engram(struct trace *t)
{
    const struct di_config *c = t->engine->config;
    int64_t tables = c->n_engram_layers, ngram = c->engram_max_ngram_size, columns = di_engram_columns(c);
    if (tables == 0)
        return DI_OK;
    int64_t *multipliers = di_arena_alloc(&t->arena, (size_t)(tables * ngram), sizeof *multipliers);
    int32_t *primes = di_arena_alloc(&t->arena, (size_t)(tables * columns), sizeof *primes);
    int32_t *offsets = di_arena_alloc(&t->arena, (size_t)(tables * columns), sizeof *offsets);
    if (multipliers == NULL || primes == NULL || offsets == NULL)
        return DI_FAIL_NOMEM(t->err, (size_t)(tables * columns) * sizeof *primes);
    for (int32_t i = 0; i < tables; i++) {
        struct di_engram_consts consts;
        DI_TRY(di_engram_consts_derive(c, i, &consts, t->err));
        memcpy(multipliers + i * ngram, consts.multipliers, (size_t)ngram * sizeof *multipliers);
        for (int64_t k = 0; k < columns; k++) {
            primes[i * columns + k] = (int32_t)consts.primes[k];
            offsets[i * columns + k] = (int32_t)consts.offsets[k];
        }
    }
    int64_t vocab = c->vocab_size, by_shift[2] = {tables, ngram}, by_column[2] = {tables, columns};
    int64_t by_head[3] = {tables, ngram - 1, c->engram_n_heads};
    DI_TRY(di_st_writer_add(t->writer, "engram.token_map", DI_ST_I32, 1, &vocab, t->engine->token_map, t->err));
    DI_TRY(di_st_writer_add(t->writer, "engram.multipliers", DI_ST_I64, 2, by_shift, multipliers, t->err));
    DI_TRY(di_st_writer_add(t->writer, "engram.primes", DI_ST_I32, 3, by_head, primes, t->err));
    return di_st_writer_add(t->writer, "engram.offsets", DI_ST_I32, 2, by_column, offsets, t->err);
}

static di_status write_constants(struct trace *t)
{
    int64_t length = (int64_t)t->options->n_ids, half = t->engine->config->qk_rope_head_dim / 2;
    DI_TRY(di_st_writer_add(t->writer, "input_ids", DI_ST_I32, 1, &length, t->options->ids, t->err));
    DI_TRY(di_st_writer_add(t->writer, "positions", DI_ST_I32, 1, &t->n_positions, t->positions, t->err));
    float *inv_freq = di_arena_alloc(&t->arena, (size_t)half, sizeof *inv_freq);
    if (inv_freq == NULL)
        return DI_FAIL_NOMEM(t->err, (size_t)half * sizeof *inv_freq);
    di_rope_inv_freq(t->engine->config, false, inv_freq);
    DI_TRY(di_st_writer_add(t->writer, "rope.main.inv_freq", DI_ST_F32, 1, &half, inv_freq, t->err));
    di_rope_inv_freq(t->engine->config, true, inv_freq);
    DI_TRY(di_st_writer_add(t->writer, "rope.compress.inv_freq", DI_ST_F32, 1, &half, inv_freq, t->err));
    return write_engram(t);
}

/* What only observers need grows with rows x length: index scores of every row. */
static di_status check_scores_fit(const struct trace *t, int64_t rows, int64_t length)
{
    uint64_t bytes = (uint64_t)rows * (uint64_t)length * sizeof(float), physical = di_engine_physical_memory();
    if (physical == 0 || bytes <= physical / 2)
        return DI_OK;
    return DI_FAIL(t->err, DI_ERR_LIMIT,
                   "tracing %lld rows at once over %lld positions needs %llu bytes for index scores, more than half of "
                   "this machine's memory; lower chunk",
                   (long long)rows, (long long)length, (unsigned long long)bytes);
}

static di_status run(struct trace *t, const char *out_path)
{
    int64_t length = (int64_t)t->options->n_ids, chunk = t->options->chunk;
    int32_t rows = (int32_t)(chunk == 0 || chunk > length ? length : chunk);
    struct di_session_options session = {
        .max_rows = rows,
        .max_logit_rows = rows,
        .max_length = length + t->options->greedy,
        .observe = true,
    };
    DI_TRY(check_scores_fit(t, rows, session.max_length));
    DI_TRY(open_inputs(t));
    struct di_recorder_options recorder = {length, t->positions, t->n_positions};
    DI_TRY(di_recorder_open(t->engine, &recorder, &t->recorder, t->err));
    DI_TRY(di_st_writer_open(&t->writer, t->err));
    DI_TRY(di_session_open(t->engine, &session, &t->session, t->err));
    DI_TRY(prefill(t));
    DI_TRY(write_constants(t));
    DI_TRY(di_recorder_write(t->recorder, t->writer, t->err));
    for (int32_t k = 0; k < t->engine->plan.n_kv; k++)
        DI_TRY(write_compressed(t, k));
    DI_TRY(greedy(t));
    return di_st_writer_save(t->writer, out_path, t->err);
}

di_status di_trace_run(struct di_engine *engine, const struct di_trace_options *options, const char *out_path,
                       struct di_error *err)
{
    struct trace t = {.engine = engine, .options = options, .err = err};
    di_status status = run(&t, out_path);
    di_session_close(t.session);
    di_recorder_close(t.recorder);
    di_st_writer_close(t.writer);
    if (t.like != t.feed)
        di_st_close(t.like);
    di_st_close(t.feed);
    di_arena_free(&t.arena);
    return status;
}
