#include "engine/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "numerics/codes.h"

enum rows { ROWS_ALL, ROWS_LISTED, ROWS_LAST4, ROWS_LAST16 };
enum kind { KIND_ACT, KIND_F32, KIND_I32 };
enum inner {
    INNER_NONE,
    INNER_FLAT,
    INNER_STREAMS,
    INNER_COMB
}; /* shape behind the row: (), (w), (hc, w/hc), (hc, hc) */
enum modes { IN_ORACLE = 1, IN_NATIVE = 2, IN_BOTH = 3 };

/* What a point becomes. One point may give several tensors. */
struct spec {
    enum di_point point;
    const char *name; /* behind "layers.L."; points of layer -1: the whole name */
    enum rows rows;
    enum kind kind;
    enum inner inner;
    enum modes modes;
};

static const struct spec specs[] = {
    {DI_POINT_STREAMS_IN, "streams_in", ROWS_ALL, KIND_ACT, INNER_STREAMS, IN_BOTH},
    {DI_POINT_PRE_IN, "pre_in", ROWS_ALL, KIND_F32, INNER_FLAT, IN_BOTH},
    {DI_POINT_ENGRAM_GATE, "engram.gate", ROWS_LISTED, KIND_F32, INNER_FLAT, IN_BOTH},
    {DI_POINT_ENGRAM_STREAMS, "engram.streams.last4", ROWS_LAST4, KIND_ACT, INNER_STREAMS, IN_ORACLE},
    {DI_POINT_ENGRAM_STREAMS, "engram.streams", ROWS_LISTED, KIND_ACT, INNER_STREAMS, IN_NATIVE},
    {DI_POINT_COLLAPSED, "collapsed", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_ATTN_PRE, "attn_pre.last4", ROWS_LAST4, KIND_F32, INNER_FLAT, IN_ORACLE},
    {DI_POINT_ATTN_POST, "attn_post.last4", ROWS_LAST4, KIND_F32, INNER_FLAT, IN_ORACLE},
    {DI_POINT_ATTN_COMB, "attn_comb.last4", ROWS_LAST4, KIND_F32, INNER_COMB, IN_ORACLE},
    {DI_POINT_ATTN_IN, "attn_in.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_ATTN_IN, "attn_in", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_Q_RESIDUAL, "q_residual.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_Q_RESIDUAL, "q_residual", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_WINDOW_KV, "window_kv.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_WINDOW_KV, "window_kv", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_INDEX_SCORES, "index.scores.last4", ROWS_LAST4, KIND_F32, INNER_FLAT, IN_BOTH},
    {DI_POINT_CANDIDATES, "candidates.blocks", ROWS_LISTED, KIND_I32, INNER_FLAT, IN_BOTH},
    {DI_POINT_CANDIDATE_MARGIN, "candidates.margin", ROWS_LISTED, KIND_F32, INNER_NONE, IN_BOTH},
    {DI_POINT_SELECTED, "index.topk", ROWS_LISTED, KIND_I32, INNER_FLAT, IN_BOTH},
    {DI_POINT_INDEX_MARGIN, "index.margin", ROWS_LISTED, KIND_F32, INNER_NONE, IN_BOTH},
    {DI_POINT_ATTN_OUT, "attn_out.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_ATTN_OUT, "attn_out", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_FFN_PRE, "ffn_pre.last4", ROWS_LAST4, KIND_F32, INNER_FLAT, IN_ORACLE},
    {DI_POINT_FFN_PRE, "ffn_pre", ROWS_LISTED, KIND_F32, INNER_FLAT, IN_NATIVE},
    {DI_POINT_FFN_POST, "ffn_post.last4", ROWS_LAST4, KIND_F32, INNER_FLAT, IN_ORACLE},
    {DI_POINT_FFN_COMB, "ffn_comb.last4", ROWS_LAST4, KIND_F32, INNER_COMB, IN_ORACLE},
    {DI_POINT_FFN_IN, "ffn_in.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_FFN_IN, "ffn_in", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_ROUTER_IDS, "router.indices", ROWS_LISTED, KIND_I32, INNER_FLAT, IN_BOTH},
    {DI_POINT_ROUTER_WEIGHTS, "router.weights", ROWS_LISTED, KIND_F32, INNER_FLAT, IN_BOTH},
    {DI_POINT_ROUTER_MARGIN, "router.margin", ROWS_LISTED, KIND_F32, INNER_NONE, IN_BOTH},
    {DI_POINT_FFN_OUT, "ffn_out.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_FFN_OUT, "ffn_out", ROWS_LISTED, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_STREAMS_OUT, "streams_out", ROWS_LISTED, KIND_ACT, INNER_STREAMS, IN_BOTH},
    {DI_POINT_STREAMS_OUT, "streams_out.last4", ROWS_LAST4, KIND_ACT, INNER_STREAMS, IN_ORACLE},
    {DI_POINT_FINAL_STREAMS, "final.streams_in", ROWS_LAST16, KIND_ACT, INNER_STREAMS, IN_NATIVE},
    {DI_POINT_FINAL_PRE, "final.pre_in", ROWS_LAST16, KIND_F32, INNER_FLAT, IN_NATIVE},
    {DI_POINT_FINAL_COLLAPSED, "final.collapsed.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_FINAL_COLLAPSED, "final.collapsed", ROWS_LAST16, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_FINAL_NORM, "final.norm.last4", ROWS_LAST4, KIND_ACT, INNER_FLAT, IN_ORACLE},
    {DI_POINT_FINAL_NORM, "final.norm", ROWS_LAST16, KIND_ACT, INNER_FLAT, IN_NATIVE},
    {DI_POINT_LOGITS, "logits.last16", ROWS_LAST16, KIND_F32, INNER_FLAT, IN_BOTH},
};

/* One tensor being filled. */
struct tensor {
    struct tensor *next;
    const struct spec *spec;
    int32_t layer, width;
    int64_t n_rows;
    uint32_t *data; /* [n_rows, width] float or int32 */
};

struct di_recorder {
    const struct di_engine *engine;
    int64_t length, n_positions;
    const int32_t *positions;
    int64_t *listed_row; /* [length] row among the listed positions, -1 */
    struct di_arena arena;
    struct tensor *first, **tail;
    int32_t *hash_ids;             /* [length, Engram layers, columns] */
    float *latents[DI_MAX_LAYERS]; /* [length / ratio, head_dim] */
    int32_t *argmax;
    float *argmax_margin; /* [length] */
    /* one step's rows, downloaded and widened to 4 bytes an element */
    uint32_t *rows;
    size_t rows_capacity;
};

di_status di_recorder_open(const struct di_engine *engine, const struct di_recorder_options *options,
                           struct di_recorder **out, struct di_error *err)
{
    *out = NULL;
    struct di_recorder *r = di_calloc(1, sizeof *r);
    if (r == NULL)
        return DI_FAIL_NOMEM(err, sizeof *r);
    size_t length = (size_t)options->length;
    size_t columns = (size_t)di_engram_columns(engine->config) * (size_t)engine->config->n_engram_layers;
    r->engine = engine;
    r->length = options->length;
    r->positions = options->positions;
    r->n_positions = options->n_positions;
    r->tail = &r->first;
    r->listed_row = di_arena_alloc(&r->arena, length, sizeof *r->listed_row);
    r->hash_ids = di_arena_alloc(&r->arena, length * columns, sizeof *r->hash_ids);
    r->argmax = di_arena_alloc(&r->arena, length, sizeof *r->argmax);
    r->argmax_margin = di_arena_alloc(&r->arena, length, sizeof *r->argmax_margin);
    if (r->listed_row == NULL || r->hash_ids == NULL || r->argmax == NULL || r->argmax_margin == NULL) {
        di_recorder_close(r);
        return DI_FAIL_NOMEM(err, length * sizeof *r->listed_row);
    }
    for (size_t i = 0; i < length; i++)
        r->listed_row[i] = -1;
    for (int64_t i = 0; i < r->n_positions; i++)
        r->listed_row[r->positions[i]] = i;
    *out = r;
    return DI_OK;
}

void di_recorder_close(struct di_recorder *r)
{
    if (r == NULL)
        return;
    di_arena_free(&r->arena);
    free(r->rows);
    free(r);
}

const float *di_recorder_latents(const struct di_recorder *r, int32_t layer)
{
    return r->latents[layer];
}

static int64_t last_rows(const struct di_recorder *r, int64_t count)
{
    return r->length < count ? r->length : count;
}

static int64_t row_count(const struct di_recorder *r, enum rows rows)
{
    switch (rows) {
    case ROWS_ALL:
        return r->length;
    case ROWS_LISTED:
        return r->n_positions;
    case ROWS_LAST4:
        return last_rows(r, 4);
    case ROWS_LAST16:
        break;
    }
    return last_rows(r, 16);
}

/* Row of `position` in such a tensor, or -1. */
static int64_t row_of(const struct di_recorder *r, enum rows rows, int64_t position)
{
    if (rows == ROWS_ALL)
        return position;
    if (rows == ROWS_LISTED)
        return r->listed_row[position];
    int64_t row = position - (r->length - row_count(r, rows));
    return row < 0 ? -1 : row;
}

static struct tensor *find_tensor(struct di_recorder *r, const struct spec *spec, int32_t layer, int32_t width)
{
    for (struct tensor *t = r->first; t != NULL; t = t->next)
        if (t->spec == spec && t->layer == layer)
            return t;
    struct tensor *t = di_arena_alloc(&r->arena, 1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->spec = spec;
    t->layer = layer;
    t->width = width;
    t->n_rows = row_count(r, spec->rows);
    t->data = di_arena_alloc(&r->arena, (size_t)t->n_rows * (size_t)width, sizeof *t->data);
    if (t->data == NULL)
        return NULL;
    *r->tail = t;
    r->tail = &t->next;
    return t;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Reading a step's rows back. */

static bool point_is_act(enum di_point point)
{
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        if (specs[i].point == point)
            return specs[i].kind == KIND_ACT;
    return point == DI_POINT_LATENT;
}

static di_status fetch_window(struct di_recorder *r, const struct di_model *model, int32_t rows, int32_t width,
                              struct di_error *err)
{
    const struct di_ops *ops = r->engine->ops;
    struct di_kv_rows device = di_model_window_rows(model), host = device;
    size_t data = (size_t)rows * (size_t)di_kv_data_bytes(device.format, width);
    size_t scale = (size_t)rows * (size_t)di_kv_scale_bytes(device.format, width);
    uint8_t *bytes = di_calloc(data + scale, 1);
    if (bytes == NULL)
        return DI_FAIL_NOMEM(err, data + scale);
    host.data = bytes;
    host.scale = bytes + data;
    di_status status = ops->download(r->engine->dev, host.data, device.data, data, err);
    if (status == DI_OK && scale != 0)
        status = ops->download(r->engine->dev, host.scale, device.scale, scale, err);
    for (int32_t i = 0; i < rows && status == DI_OK; i++)
        di_kv_unpack(host.format, di_kv_row_data(&host, i), di_kv_row_scale(&host, i), width,
                     (float *)(void *)(r->rows + (size_t)i * (size_t)width));
    free(bytes);
    return status;
}

static di_status fetch(struct di_recorder *r, const struct di_model *model, enum di_point point, const void *data,
                       int32_t rows, int32_t width, struct di_error *err)
{
    size_t count = (size_t)rows * (size_t)width;
    const struct di_ops *ops = r->engine->ops;
    if (count > r->rows_capacity) {
        uint32_t *grown = di_realloc_array(r->rows, count, sizeof *grown);
        if (grown == NULL)
            return DI_FAIL_NOMEM(err, count * sizeof *grown);
        r->rows = grown;
        r->rows_capacity = count;
    }
    if (point == DI_POINT_WINDOW_KV)
        return fetch_window(r, model, rows, width, err);
    size_t element = point_is_act(point) ? (size_t)ops->act_bytes : sizeof *r->rows;
    DI_TRY(ops->download(r->engine->dev, r->rows, data, count * element, err));
    if (element == 2) { /* bf16 activations: widen in place, from the end */
        const uint16_t *narrow = (const uint16_t *)(const void *)r->rows;
        for (size_t i = count; i-- > 0;)
            r->rows[i] = (uint32_t)narrow[i] << 16;
    }
    return DI_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Points that are not simply rows of a tensor. */

static di_status keep_latents(struct di_recorder *r, int64_t start, int32_t layer, int32_t rows, int32_t width,
                              struct di_error *err)
{
    int32_t ratio = r->engine->plan.layer[layer].ratio;
    if (r->latents[layer] == NULL) {
        r->latents[layer] = di_arena_alloc(&r->arena, (size_t)(r->length / ratio) * (size_t)width, sizeof(float));
        if (r->latents[layer] == NULL)
            return DI_FAIL_NOMEM(err, (size_t)r->length * (size_t)width);
    }
    for (int32_t i = 0; i < rows; i++)
        if ((start + i + 1) % ratio == 0)
            memcpy(r->latents[layer] + (start + i) / ratio * width, r->rows + (int64_t)i * width,
                   (size_t)width * sizeof(float));
    return DI_OK;
}

static void keep_hash_ids(struct di_recorder *r, int64_t start, int32_t layer, int32_t rows, int32_t width)
{
    int32_t tables = r->engine->config->n_engram_layers, table = r->engine->plan.layer[layer].engram;
    for (int32_t i = 0; i < rows; i++)
        memcpy(r->hash_ids + ((start + i) * tables + table) * width, r->rows + (int64_t)i * width,
               (size_t)width * sizeof *r->rows);
}

static void keep_argmax(struct di_recorder *r, int64_t start, int32_t rows, int32_t vocab)
{
    for (int32_t i = 0; i < rows; i++) {
        const float *logits = (const float *)(const void *)(r->rows + (int64_t)i * vocab);
        int32_t best = 0;
        float second = -INFINITY;
        for (int32_t id = 1; id < vocab; id++) {
            if (logits[id] > logits[best]) {
                second = logits[best];
                best = id;
            } else if (logits[id] > second) {
                second = logits[id];
            }
        }
        r->argmax[start + i] = best;
        r->argmax_margin[start + i] = logits[best] - second;
    }
}

di_status di_recorder_observe(struct di_recorder *r, const struct di_model *model, int64_t start, int32_t layer,
                              enum di_point point, const void *data, int32_t rows, int32_t width, struct di_error *err)
{
    enum modes mode = r->engine->mode == DI_MODE_ORACLE ? IN_ORACLE : IN_NATIVE;
    DI_TRY(fetch(r, model, point, data, rows, width, err));
    if (point == DI_POINT_LATENT)
        return keep_latents(r, start, layer, rows, width, err);
    if (point == DI_POINT_ENGRAM_HASH)
        keep_hash_ids(r, start, layer, rows, width);
    if (point == DI_POINT_LOGITS)
        keep_argmax(r, start, rows, width);
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        const struct spec *spec = &specs[s];
        if (spec->point != point || (spec->modes & mode) == 0)
            continue;
        int32_t kept = width; /* scores: as many entries as the prompt has */
        if (point == DI_POINT_INDEX_SCORES)
            kept = (int32_t)(r->length / r->engine->plan.layer[layer].ratio);
        struct tensor *t = find_tensor(r, spec, layer, kept);
        if (t == NULL)
            return DI_FAIL_NOMEM(err, (size_t)r->length * (size_t)kept * sizeof(float));
        for (int32_t i = 0; i < rows; i++) {
            int64_t row = row_of(r, spec->rows, start + i);
            if (row >= 0)
                memcpy(t->data + row * kept, r->rows + (int64_t)i * width, (size_t)kept * sizeof *t->data);
        }
    }
    return DI_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Writing. */

/* Shape behind the rows: returns the number of dimensions written. */
static int32_t inner_shape(const struct tensor *t, int32_t hc, int64_t *shape)
{
    switch (t->spec->inner) {
    case INNER_NONE:
        return 0;
    case INNER_FLAT:
        shape[0] = t->width;
        return 1;
    case INNER_STREAMS:
    case INNER_COMB:
        break;
    }
    shape[0] = hc;
    shape[1] = t->width / hc;
    return 2;
}

static di_status write_tensor(struct di_recorder *r, const struct tensor *t, struct di_st_writer *writer,
                              struct di_error *err)
{
    char name[128];
    if (t->layer < 0)
        snprintf(name, sizeof name, "%s", t->spec->name);
    else
        snprintf(name, sizeof name, "layers.%d.%s", t->layer, t->spec->name);
    int64_t shape[3] = {t->n_rows};
    int32_t dims = 1 + inner_shape(t, r->engine->config->hc_mult, shape + 1);
    if (t->spec->kind == KIND_I32)
        return di_st_writer_add(writer, name, DI_ST_I32, dims, shape, t->data, err);
    if (t->spec->kind == KIND_F32 || r->engine->mode == DI_MODE_ORACLE)
        return di_st_writer_add(writer, name, DI_ST_F32, dims, shape, t->data, err);
    size_t count = (size_t)t->n_rows * (size_t)t->width;
    uint16_t *narrow = di_calloc(count, sizeof *narrow);
    if (narrow == NULL)
        return DI_FAIL_NOMEM(err, count * sizeof *narrow);
    for (size_t i = 0; i < count; i++)
        narrow[i] = (uint16_t)(t->data[i] >> 16); /* mode native: bf16 values, exactly */
    di_status status = di_st_writer_add(writer, name, DI_ST_BF16, dims, shape, narrow, err);
    free(narrow);
    return status;
}

di_status di_recorder_write(struct di_recorder *r, struct di_st_writer *writer, struct di_error *err)
{
    const struct di_config *c = r->engine->config;
    int64_t length = r->length;
    for (const struct tensor *t = r->first; t != NULL; t = t->next)
        DI_TRY(write_tensor(r, t, writer, err));
    DI_TRY(di_st_writer_add(writer, "argmax", DI_ST_I32, 1, &length, r->argmax, err));
    DI_TRY(di_st_writer_add(writer, "argmax.margin", DI_ST_F32, 1, &length, r->argmax_margin, err));
    if (c->n_engram_layers > 0) {
        int64_t shape[3] = {length, c->n_engram_layers, di_engram_columns(c)};
        DI_TRY(di_st_writer_add(writer, "engram.hash_ids", DI_ST_I32, 3, shape, r->hash_ids, err));
    }
    return DI_OK;
}
