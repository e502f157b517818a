#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>

/* What binding needs at every tensor. */
struct binder {
    struct di_checkpoint *ckpt;
    const struct di_config *config;
    const struct di_ops *ops;
    struct di_device *dev;
    struct di_error *err;
    char prefix[128]; /* "layers.3." */
};

static di_status take(struct binder *b, enum di_st_dtype dtype, int64_t rows, int64_t cols, const void **data,
                      const char *fmt, ...) DI_PRINTF(6, 7);

/* rows 0 stands for a vector [cols]. */
static di_status take(struct binder *b, enum di_st_dtype dtype, int64_t rows, int64_t cols, const void **data,
                      const char *fmt, ...)
{
    char name[256], tail[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(tail, sizeof tail, fmt, args);
    va_end(args);
    snprintf(name, sizeof name, "%s%s", b->prefix, tail);
    int64_t shape[2] = {rows, cols};
    const struct di_st_tensor *tensor;
    DI_TRY(di_checkpoint_take(b->ckpt, name, dtype, rows == 0 ? 1 : 2, rows == 0 ? shape + 1 : shape, &tensor, b->err));
    *data = tensor->data;
    return DI_OK;
}

static di_status place(struct binder *b, struct di_weight host, struct di_weight *out)
{
    return b->ops->place(b->dev, &host, out, b->err);
}

static di_status bf16(struct binder *b, const char *name, int64_t rows, int64_t cols, struct di_weight *out)
{
    struct di_weight w = {.format = DI_FMT_BF16, .rows = rows == 0 ? 1 : rows, .cols = (int32_t)cols};
    DI_TRY(take(b, DI_ST_BF16, rows, cols, &w.data, "%s", name));
    return place(b, w, out);
}

static di_status f32_vector(struct binder *b, const char *name, int64_t count, const float **out)
{
    struct di_weight w = {.format = DI_FMT_F32, .rows = 1, .cols = (int32_t)count}, placed;
    DI_TRY(take(b, DI_ST_F32, 0, count, &w.data, "%s", name));
    DI_TRY(place(b, w, &placed));
    *out = placed.data;
    return DI_OK;
}

/* "NAME.weight" with "NAME.scale" in one of the block formats. */
static di_status quantised(struct binder *b, enum di_format format, const char *name, int64_t rows, int64_t cols,
                           struct di_weight *out)
{
    const struct di_format_info *f = di_format_info(format);
    struct di_weight w = {.format = format, .rows = rows, .cols = (int32_t)cols};
    const void *scale;
    bool fp4 = format == DI_FMT_FP4;
    DI_TRY(take(b, fp4 ? DI_ST_I8 : DI_ST_F8_E4M3, rows, fp4 ? cols / 2 : cols, &w.data, "%s.weight", name));
    DI_TRY(take(b, DI_ST_F8_E8M0, (rows + f->block_rows - 1) / f->block_rows,
                (cols + f->block_cols - 1) / f->block_cols, &scale, "%s.scale", name));
    w.scale = scale;
    return place(b, w, out);
}

static di_status bind_hc(struct binder *b, const char *site, struct di_hc_weights *out)
{
    int64_t hc = b->config->hc_mult, mixes = (2 + hc) * hc;
    char name[64];
    struct di_weight fn = {.format = DI_FMT_F32, .rows = mixes, .cols = (int32_t)(hc * b->config->hidden_size)};
    DI_TRY(take(b, DI_ST_F32, mixes, fn.cols, &fn.data, "%s_fn", site));
    DI_TRY(place(b, fn, &out->fn));
    snprintf(name, sizeof name, "%s_base", site);
    DI_TRY(f32_vector(b, name, mixes, &out->base));
    snprintf(name, sizeof name, "%s_scale", site);
    return f32_vector(b, name, 3, &out->scale);
}

static di_status bind_attention(struct binder *b, struct di_layer_weights *l)
{
    const struct di_config *c = b->config;
    int64_t d = c->hidden_size, heads = (int64_t)c->num_attention_heads * c->head_dim;
    int64_t groups = (int64_t)c->o_groups * c->o_lora_rank;
    DI_TRY(quantised(b, DI_FMT_FP8, "attn.wq_a", c->q_lora_rank, d, &l->wq_a));
    DI_TRY(bf16(b, "attn.q_norm.weight", 0, c->q_lora_rank, &l->q_norm));
    DI_TRY(quantised(b, DI_FMT_FP8, "attn.wq_b", heads, c->q_lora_rank, &l->wq_b));
    DI_TRY(quantised(b, DI_FMT_FP8, "attn.wkv", c->head_dim, d, &l->wkv));
    DI_TRY(bf16(b, "attn.kv_norm.weight", 0, c->head_dim, &l->kv_norm));
    DI_TRY(quantised(b, DI_FMT_FP8, "attn.wo_a", groups, heads / c->o_groups, &l->wo_a));
    DI_TRY(quantised(b, DI_FMT_FP8, "attn.wo_b", d, groups, &l->wo_b));
    DI_TRY(f32_vector(b, "attn.attn_sink", c->num_attention_heads, &l->attn_sink));
    DI_TRY(bf16(b, "attn_norm.weight", 0, d, &l->attn_norm));
    return bf16(b, "ffn_norm.weight", 0, d, &l->ffn_norm);
}

static di_status bind_sources(struct binder *b, const struct di_layer_plan *plan, struct di_layer_weights *l)
{
    const struct di_config *c = b->config;
    int64_t d = c->hidden_size;
    if (plan->owns_kv) {
        struct di_compressor_weights *w = &l->compressor;
        DI_TRY(bf16(b, "attn.compressor.wkv.weight", c->head_dim, d, &w->wkv));
        if (plan->ratio > 1)
            DI_TRY(bf16(b, "attn.compressor.wgate.weight", c->head_dim, d, &w->wgate));
        DI_TRY(bf16(b, "attn.compressor.norm.weight", 0, c->head_dim, &w->norm));
        DI_TRY(bf16(b, "attn.indexer.wk.weight", c->index_head_dim, c->head_dim, &w->index_wk));
        DI_TRY(bf16(b, "attn.indexer.k_norm.weight", 0, c->index_head_dim, &w->index_k_norm));
    }
    if (plan->owns_index) {
        DI_TRY(quantised(b, DI_FMT_FP8, "attn.indexer.wq_b", (int64_t)c->index_n_heads * c->index_head_dim,
                         c->q_lora_rank, &l->indexer.wq_b));
        DI_TRY(bf16(b, "attn.indexer.weights_proj.weight", c->index_n_heads, d, &l->indexer.weights_proj));
    }
    if (plan->engram >= 0) {
        struct di_engram_weights *w = &l->engram;
        int64_t width = (int64_t)di_engram_columns(c) * c->engram_head_dim;
        int64_t rows = c->engram_num_embeddings[plan->engram];
        struct di_weight table = {.format = DI_FMT_FP8_ROW, .rows = rows, .cols = c->engram_head_dim};
        const void *scale;
        DI_TRY(take(b, DI_ST_F8_E4M3, rows, table.cols, &table.data, "engram.embed.weight"));
        DI_TRY(take(b, DI_ST_F8_E8M0, rows, (table.cols + 31) / 32, &scale, "engram.embed.scale"));
        table.scale = scale;
        DI_TRY(place(b, table, &w->table));
        DI_TRY(quantised(b, DI_FMT_FP8, "engram.wkv", (c->hc_mult + 1) * d, width, &w->wkv));
        DI_TRY(bf16(b, "engram.q_weight", c->hc_mult, d, &w->q_weight));
        DI_TRY(bf16(b, "engram.k_weight", c->hc_mult, d, &w->k_weight));
    }
    return DI_OK;
}

static di_status bind_expert(struct binder *b, enum di_format format, const char *name, struct di_expert *out)
{
    char part[96];
    int64_t d = b->config->hidden_size, inner = b->config->moe_intermediate_size;
    snprintf(part, sizeof part, "%s.w1", name);
    DI_TRY(quantised(b, format, part, inner, d, &out->w1));
    snprintf(part, sizeof part, "%s.w3", name);
    DI_TRY(quantised(b, format, part, inner, d, &out->w3));
    snprintf(part, sizeof part, "%s.w2", name);
    return quantised(b, format, part, d, inner, &out->w2);
}

static di_status bind_moe(struct binder *b, struct di_arena *arena, struct di_layer_weights *l)
{
    const struct di_config *c = b->config;
    DI_TRY(bf16(b, "ffn.gate.weight", c->n_routed_experts, c->hidden_size, &l->gate));
    DI_TRY(f32_vector(b, "ffn.gate.bias", c->n_routed_experts, &l->gate_bias));
    DI_TRY(bind_expert(b, DI_FMT_FP8, "ffn.shared_experts", &l->shared));
    l->experts = di_arena_alloc(arena, (size_t)c->n_routed_experts, sizeof *l->experts);
    if (l->experts == NULL)
        return DI_FAIL_NOMEM(b->err, (size_t)c->n_routed_experts * sizeof *l->experts);
    for (int32_t e = 0; e < c->n_routed_experts; e++) {
        char name[64];
        snprintf(name, sizeof name, "ffn.experts.%d", e);
        DI_TRY(bind_expert(b, DI_FMT_FP4, name, &l->experts[e]));
    }
    return DI_OK;
}

static di_status bind_layer(struct binder *b, struct di_arena *arena, int32_t layer, const struct di_layer_plan *plan,
                            struct di_layer_weights *l)
{
    snprintf(b->prefix, sizeof b->prefix, "layers.%d.", layer);
    DI_TRY(bind_hc(b, "hc_attn", &l->hc_attn));
    DI_TRY(bind_attention(b, l));
    DI_TRY(bind_sources(b, plan, l));
    DI_TRY(bind_hc(b, "hc_ffn", &l->hc_ffn));
    return bind_moe(b, arena, l);
}

/* Parts of a checkpoint that the text backbone does not run. */
static void ignore_rest(struct di_checkpoint *ckpt)
{
    static const struct {
        const char *pattern, *reason;
    } parts[] = {
        {"layers.*.ffn.gate.bias_vl", "routing bias of image positions; text only"},
        {"mtp.", "draft model; speculation is not built yet"},
        {"vision.", "vision tower; text only"},
        {"aligner.", "vision tower; text only"},
        {"image_", "vision tower; text only"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        di_checkpoint_ignore(ckpt, parts[i].pattern, parts[i].reason);
}

di_status di_weights_bind(struct di_checkpoint *ckpt, const struct di_layer_plan_list *plan, const struct di_ops *ops,
                          struct di_device *dev, struct di_weights *out, struct di_error *err)
{
    *out = (struct di_weights){0};
    const struct di_config *c = di_checkpoint_config(ckpt);
    struct binder b = {.ckpt = ckpt, .config = c, .ops = ops, .dev = dev, .err = err};
    out->layers = di_arena_alloc(&out->arena, (size_t)c->num_hidden_layers, sizeof *out->layers);
    if (out->layers == NULL)
        return DI_FAIL_NOMEM(err, (size_t)c->num_hidden_layers * sizeof *out->layers);
    DI_TRY(bf16(&b, "embed.weight", c->vocab_size, c->hidden_size, &out->embed));
    DI_TRY(bf16(&b, "head.weight", c->vocab_size, c->hidden_size, &out->head));
    DI_TRY(bf16(&b, "norm.weight", 0, c->hidden_size, &out->norm));
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++)
        DI_TRY(bind_layer(&b, &out->arena, layer, &plan->layer[layer], &out->layers[layer]));
    ignore_rest(ckpt);
    return di_checkpoint_finish(ckpt, err);
}

void di_weights_free(struct di_weights *weights)
{
    di_arena_free(&weights->arena);
    *weights = (struct di_weights){0};
}
