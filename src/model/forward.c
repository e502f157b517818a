#include "model/forward.h"

#include <stdlib.h>

#include "base/mem.h"
#include "core/engram.h"
#include "model/model.h"

/* What one call of di_forward carries along. */
struct pass {
    struct di_model *m;
    const struct di_kv_store *store;
    const struct di_step *step;
    const struct di_forward_hooks *hooks;
    struct di_rows rows; /* that the operation at hand works on */
    int32_t next_cut;
    struct di_error *err;
};

/* ---------------------------------------------------------------------------------------------------------------------
 * Opening: after this all constants and buffers lie in device memory. */

static di_status to_device(struct di_model *m, const void *from, size_t bytes, void **out, struct di_error *err)
{
    DI_TRY(m->ops->alloc(m->dev, bytes, out, err));
    return m->ops->upload(m->dev, *out, from, bytes, err);
}

static di_status load_engram(struct di_model *m, const int32_t *token_map, struct di_error *err)
{
    const struct di_config *c = m->config;
    if (c->n_engram_layers == 0)
        return DI_OK;
    void *map;
    DI_TRY(to_device(m, token_map, (size_t)c->vocab_size * sizeof *token_map, &map, err));
    m->token_map = map;
    m->pad = token_map[c->engram_pad_token_id];
    for (int32_t i = 0; i < c->n_engram_layers; i++) {
        struct di_engram_consts consts;
        DI_TRY(di_engram_consts_derive(c, i, &consts, err));
        DI_TRY(to_device(m, &consts, sizeof consts, &m->engram[i], err));
    }
    return DI_OK;
}

static di_status load_constants(struct di_model *m, const struct di_model_options *options, struct di_error *err)
{
    int32_t half = m->config->qk_rope_head_dim / 2;
    float *host = di_calloc((size_t)half, sizeof *host);
    if (host == NULL)
        return DI_FAIL_NOMEM(err, (size_t)half * sizeof *host);
    di_status status = DI_OK;
    for (int32_t t = 0; t < 2 && status == DI_OK; t++) {
        void *table;
        di_rope_inv_freq(m->config, t == 1, host);
        status = to_device(m, host, (size_t)half * sizeof *host, &table, err);
        m->inv_freq[t] = status == DI_OK ? table : NULL;
    }
    free(host);
    DI_TRY(status);
    return load_engram(m, options->token_map, err);
}

uint64_t di_model_workspace_bytes(const struct di_config *config, int32_t act_bytes, int32_t max_rows,
                                  int32_t max_logit_rows)
{
    struct di_buffer_sizes sizes = {config, act_bytes, max_rows, max_logit_rows, DI_KV_FP8, 0, true};
    return di_buffers_bytes(&sizes);
}

di_status di_model_open(const struct di_config *config, const struct di_layer_plan_list *plan,
                        const struct di_weights *weights, const struct di_ops *ops, struct di_device *dev,
                        const struct di_model_options *options, struct di_model **out, struct di_error *err)
{
    *out = NULL;
    struct di_model *m = di_calloc(1, sizeof *m);
    if (m == NULL)
        return DI_FAIL_NOMEM(err, sizeof *m);
    m->config = config;
    m->plan = plan;
    m->weights = weights;
    m->ops = ops;
    m->dev = dev;
    m->sizes = (struct di_buffer_sizes){
        .config = config,
        .act_bytes = ops->act_bytes,
        .max_rows = options->max_rows,
        .max_logit_rows = options->max_logit_rows,
        .window_format = options->window_format,
        .draws = options->draws,
        .score_stride = options->observe ? (int32_t)options->observe_length : 0,
    };
    di_status status = di_buffers_alloc(&m->sizes, ops, dev, &m->b, err);
    if (status == DI_OK)
        status = load_constants(m, options, err);
    if (status != DI_OK) {
        di_model_close(m);
        return status;
    }
    *out = m;
    return DI_OK;
}

void di_model_close(struct di_model *m)
{
    if (m == NULL)
        return;
    di_buffers_free(m->ops, m->dev, &m->b);
    m->ops->release(m->dev, m->inv_freq[0]);
    m->ops->release(m->dev, m->inv_freq[1]);
    m->ops->release(m->dev, m->token_map);
    di_draw_close(m);
    for (int32_t i = 0; i < DI_MAX_ENGRAM_LAYERS; i++)
        m->ops->release(m->dev, m->engram[i]);
    free(m);
}

const float *di_model_logits(const struct di_model *m)
{
    return m->b.logits;
}

const int32_t *di_model_tokens(const struct di_model *m)
{
    return m->b.token;
}

struct di_kv_rows di_model_window_rows(const struct di_model *m)
{
    return (struct di_kv_rows){
        .format = m->sizes.window_format,
        .dim = m->config->head_dim,
        .data = m->b.window_data,
        .scale = m->b.window_scale,
    };
}

/* ---------------------------------------------------------------------------------------------------------------------
 * One step. */

static di_status observe_rows(const struct pass *p, int32_t layer, enum di_point point, const void *data, int32_t rows,
                              int32_t width)
{
    if (p->hooks == NULL || p->hooks->observe == NULL || rows == 0)
        return DI_OK;
    return p->hooks->observe(p->hooks->user, layer, point, data, rows, width, p->err);
}

static di_status observe(const struct pass *p, int32_t layer, enum di_point point, const void *data, int32_t width)
{
    return observe_rows(p, layer, point, data, p->rows.n, width);
}

static di_status enter(const struct pass *p, int32_t layer)
{
    if (p->hooks == NULL || p->hooks->enter == NULL)
        return DI_OK;
    return p->hooks->enter(p->hooks->user, layer, p->m->b.x, p->m->b.pre, p->step, p->err);
}

static void linear(const struct pass *p, const void *x, const struct di_weight *w, void *out)
{
    p->m->ops->linear(p->m->dev, &(struct di_linear_args){.n = p->rows.n, .x = x, .weight = *w, .out = out});
}

static void linear_f32(const struct pass *p, int32_t n, const void *x, const struct di_weight *w, float *out)
{
    p->m->ops->linear(p->m->dev, &(struct di_linear_args){.n = n, .x = x, .weight = *w, .f32_out = true, .out = out});
}

static void norm(const struct pass *p, int32_t n, const void *x, const struct di_weight *w, void *out)
{
    p->m->ops->norm(p->m->dev, &(struct di_norm_args){
                                   .n = n,
                                   .dim = w->cols,
                                   .x = x,
                                   .weight = *w,
                                   .eps = (float)p->m->config->rms_norm_eps,
                                   .out = out,
                               });
}

static di_status upload_step(const struct pass *p)
{
    const struct di_model *m = p->m;
    const struct di_step *s = p->step;
    const struct di_ops *ops = m->ops;
    const struct di_buffers *b = &m->b;
    const size_t n = (size_t)s->n_rows, heads = (size_t)s->n_logits, i32 = sizeof(int32_t);
    const size_t width = m->config->n_engram_layers > 0 ? (size_t)m->config->engram_max_ngram_size : 1;
    DI_TRY(ops->upload(m->dev, b->window, s->window, n * width * i32, p->err));
    DI_TRY(ops->upload(m->dev, b->position, s->position, n * i32, p->err));
    DI_TRY(ops->upload(m->dev, b->slot, s->slot, n * i32, p->err));
    DI_TRY(ops->upload(m->dev, b->first, s->first, n * i32, p->err));
    if (s->low != NULL)
        DI_TRY(ops->upload(m->dev, b->low, s->low, n * i32, p->err));
    if (s->floor != NULL)
        DI_TRY(ops->upload(m->dev, b->floor, s->floor, n * i32, p->err));
    m->ops->resolve(m->dev, &(struct di_resolve_args){(int32_t)(n * width), b->window, b->token});
    DI_TRY(ops->upload(m->dev, b->logit_row, s->logit_row, heads * i32, p->err));
    if (s->temperature == NULL)
        return DI_OK;
    DI_TRY(ops->upload(m->dev, b->temperature, s->temperature, heads * sizeof(float), p->err));
    return ops->upload(m->dev, b->seed, s->seed, heads * sizeof(uint64_t), p->err);
}

static void embed(const struct pass *p)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    m->ops->embed(m->dev, &(struct di_embed_args){
                              .n = p->rows.n,
                              .hc = c->hc_mult,
                              .dim = c->hidden_size,
                              .token = m->b.window,
                              .token_stride = c->n_engram_layers > 0 ? c->engram_max_ngram_size : 1,
                              .table = m->weights->embed,
                              .x = m->b.x,
                              .pre = m->b.pre,
                          });
}

static di_status engram(const struct pass *p, int32_t layer)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_engram_weights *w = &m->weights->layers[layer].engram;
    int32_t columns = di_engram_columns(c), n = p->rows.n;
    m->ops->engram_hash(m->dev, &(struct di_engram_hash_args){
                                    .n = n,
                                    .ngram = c->engram_max_ngram_size,
                                    .heads = c->engram_n_heads,
                                    .window = m->b.window,
                                    .map = m->token_map,
                                    .pad = m->pad,
                                    .consts = m->engram[m->plan->layer[layer].engram],
                                    .ids = m->b.hash_ids,
                                });
    m->ops->engram_lookup(m->dev, &(struct di_engram_lookup_args){
                                      .n = n,
                                      .columns = columns,
                                      .ids = m->b.hash_ids,
                                      .table = w->table,
                                      .out = m->b.engram_rows,
                                  });
    linear(p, m->b.engram_rows, &w->wkv, m->b.engram_kv);
    m->ops->engram_mix(m->dev, &(struct di_engram_mix_args){
                                   .n = n,
                                   .hc = c->hc_mult,
                                   .dim = c->hidden_size,
                                   .x = m->b.x,
                                   .kv = m->b.engram_kv,
                                   .q_weight = w->q_weight,
                                   .k_weight = w->k_weight,
                                   .eps = (float)c->rms_norm_eps,
                                   .gate = m->b.engram_gate,
                               });
    DI_TRY(observe(p, layer, DI_POINT_ENGRAM_HASH, m->b.hash_ids, columns));
    DI_TRY(observe(p, layer, DI_POINT_ENGRAM_GATE, m->b.engram_gate, c->hc_mult));
    return observe(p, layer, DI_POINT_ENGRAM_STREAMS, m->b.x, c->hc_mult * c->hidden_size);
}

static void hc_mix(const struct pass *p, const struct di_hc_weights *w, float *pre, float *post, float *comb)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    m->ops->hc_mix(m->dev, &(struct di_hc_mix_args){
                               .n = p->rows.n,
                               .hc = c->hc_mult,
                               .dim = c->hidden_size,
                               .sinkhorn_iters = c->hc_sinkhorn_iters,
                               .x = m->b.x,
                               .fn = w->fn,
                               .base = w->base,
                               .scale = w->scale,
                               .eps = (float)c->hc_eps,
                               .norm_eps = (float)c->rms_norm_eps,
                               .pre = pre,
                               .post = post,
                               .comb = comb,
                           });
}

static void collapse(const struct pass *p, int32_t n, const void *x, const float *pre, void *out)
{
    const struct di_model *m = p->m;
    m->ops->hc_collapse(m->dev, &(struct di_hc_collapse_args){
                                    .n = n,
                                    .hc = m->config->hc_mult,
                                    .dim = m->config->hidden_size,
                                    .x = x,
                                    .pre = pre,
                                    .out = out,
                                });
}

static void expand(const struct pass *p, const float *post, const float *comb)
{
    const struct di_model *m = p->m;
    m->ops->hc_expand(m->dev, &(struct di_hc_expand_args){
                                  .n = p->rows.n,
                                  .hc = m->config->hc_mult,
                                  .dim = m->config->hidden_size,
                                  .o = m->b.out,
                                  .post = post,
                                  .comb = comb,
                                  .x = m->b.x,
                              });
}

/* A KV source appends its compressed entries and index keys before anybody attends to them. Section 8. */
static di_status compress(const struct pass *p, int32_t layer, const float *inv_freq)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_layer_plan *plan = &m->plan->layer[layer];
    const struct di_compressor_weights *w = &m->weights->layers[layer].compressor;
    const struct di_buffers *b = &m->b;
    if (plan->ratio == 1) {
        linear(p, b->normed, &w->wkv, b->latent);
    } else {
        linear_f32(p, p->rows.n, b->normed, &w->wkv, b->value);
        linear_f32(p, p->rows.n, b->normed, &w->wgate, b->gate);
        m->ops->compress(m->dev, &(struct di_compress_args){
                                     .rows = p->rows,
                                     .value = b->value,
                                     .gate = b->gate,
                                     .tail = di_kv_store_tail(p->store, plan->kv_slot),
                                     .out = b->latent,
                                 });
    }
    norm(p, p->rows.n, b->latent, &w->norm, b->latent);
    DI_TRY(observe(p, layer, DI_POINT_LATENT, b->latent, c->head_dim));
    linear(p, b->latent, &w->index_wk, b->index_key);
    norm(p, p->rows.n, b->index_key, &w->index_k_norm, b->index_key);
    struct di_paged_view cache = di_kv_store_paged(p->store, plan->kv_slot);
    m->ops->index_append(m->dev, &(struct di_index_append_args){
                                     .rows = p->rows,
                                     .rope_dim = c->qk_rope_head_dim,
                                     .inv_freq = inv_freq,
                                     .key = b->index_key,
                                     .cache = cache,
                                 });
    m->ops->kv_append(m->dev, &(struct di_kv_append_args){
                                  .rows = p->rows,
                                  .rope_dim = c->qk_rope_head_dim,
                                  .inv_freq = inv_freq,
                                  .latent = b->latent,
                                  .cache = cache,
                              });
    return DI_OK;
}

/* An index source renews the selection that it and the layers up to the next source attend to. Section 9. */
static di_status select_entries(const struct pass *p, int32_t layer, const float *inv_freq)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_layer_plan *plan = &m->plan->layer[layer];
    const struct di_indexer_weights *w = &m->weights->layers[layer].indexer;
    const struct di_buffers *b = &m->b;
    struct di_paged_view cache = di_kv_store_paged(p->store, plan->kv_slot);
    linear(p, b->q_low, &w->wq_b, b->index_q);
    linear(p, b->normed, &w->weights_proj, b->index_w);
    m->ops->index_query(m->dev, &(struct di_index_query_args){
                                    .rows = p->rows,
                                    .heads = c->index_n_heads,
                                    .dim = c->index_head_dim,
                                    .rope_dim = c->qk_rope_head_dim,
                                    .inv_freq = inv_freq,
                                    .format = cache.index_format,
                                    .q = b->index_q,
                                });
    m->ops->index_select(m->dev, &(struct di_index_select_args){
                                     .rows = p->rows,
                                     .heads = c->index_n_heads,
                                     .q = b->index_q,
                                     .weight = b->index_w,
                                     .cache = cache,
                                     .topk = c->index_topk,
                                     .selected = b->selected,
                                     .n_selected = b->n_selected,
                                     .make_blocks = plan->makes_candidates,
                                     .use_blocks = plan->uses_candidates,
                                     .block_size = c->candidate_block_size,
                                     .topk_blocks = c->candidate_topk_blocks,
                                     .blocks = b->blocks,
                                     .n_blocks = b->n_blocks,
                                     .scores = b->scores,
                                     .score_stride = m->sizes.score_stride,
                                     .margin = b->index_margin,
                                     .block_margin = b->block_margin,
                                 });
    if (b->scores != NULL) {
        DI_TRY(observe(p, layer, DI_POINT_INDEX_SCORES, b->scores, m->sizes.score_stride));
        DI_TRY(observe(p, layer, DI_POINT_INDEX_MARGIN, b->index_margin, 1));
    }
    if (plan->makes_candidates) {
        DI_TRY(observe(p, layer, DI_POINT_CANDIDATES, b->blocks, c->candidate_topk_blocks));
        if (b->block_margin != NULL)
            DI_TRY(observe(p, layer, DI_POINT_CANDIDATE_MARGIN, b->block_margin, 1));
    }
    return observe(p, layer, DI_POINT_SELECTED, b->selected, c->index_topk);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Cuts. */

/* Keeps rows `index` of x, in place by way of `slots`. */
static void keep(const struct pass *p, int32_t n, void *x, size_t row_bytes)
{
    const struct di_model *m = p->m;
    m->ops->gather(m->dev, &(struct di_gather_args){n, row_bytes, x, m->b.cut_index, m->b.slots});
    m->ops->copy(m->dev, x, m->b.slots, (size_t)n * row_bytes);
}

static di_status upload_cut(const struct pass *p, const struct di_cut *cut)
{
    const struct di_model *m = p->m;
    const struct di_buffers *b = &m->b;
    const size_t bytes = (size_t)cut->n_rows * sizeof(int32_t);
    DI_TRY(m->ops->upload(m->dev, b->cut_index, cut->index, bytes, p->err));
    DI_TRY(m->ops->upload(m->dev, b->cut_position, cut->position, bytes, p->err));
    DI_TRY(m->ops->upload(m->dev, b->cut_slot, cut->slot, bytes, p->err));
    DI_TRY(m->ops->upload(m->dev, b->cut_first, cut->first, bytes, p->err));
    if (cut->low != NULL)
        DI_TRY(m->ops->upload(m->dev, b->cut_low, cut->low, bytes, p->err));
    return cut->floor == NULL ? DI_OK : m->ops->upload(m->dev, b->cut_floor, cut->floor, bytes, p->err);
}

/* The rows that do not go on leave, with all that was made of them so far in this layer. */
static di_status cut_rows(struct pass *p, int32_t layer)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_buffers *b = &m->b;
    if (p->next_cut == p->step->n_cuts || p->step->cuts[p->next_cut].layer != layer)
        return DI_OK;
    const struct di_cut *cut = &p->step->cuts[p->next_cut++];
    const size_t act = (size_t)m->ops->act_bytes, hc = (size_t)c->hc_mult, d = (size_t)c->hidden_size;
    const struct di_layer_plan *plan = &m->plan->layer[layer];
    int32_t n = cut->n_rows;
    DI_TRY(upload_cut(p, cut));
    if (c->n_engram_layers > 0)
        keep(p, n, b->window, (size_t)c->engram_max_ngram_size * sizeof(int32_t));
    keep(p, n, b->x, hc * d * act);
    keep(p, n, b->normed, d * act);
    keep(p, n, b->attn_pre, hc * sizeof(float));
    keep(p, n, b->attn_post, hc * sizeof(float));
    keep(p, n, b->attn_comb, hc * hc * sizeof(float));
    if (plan->ratio != 0 && !plan->owns_index) {
        keep(p, n, b->selected, (size_t)c->index_topk * sizeof(int32_t));
        keep(p, n, b->n_selected, sizeof(int32_t));
    }
    if (b->blocks != NULL && !plan->makes_candidates) {
        keep(p, n, b->blocks, (size_t)c->candidate_topk_blocks * sizeof(int32_t));
        keep(p, n, b->n_blocks, sizeof(int32_t));
    }
    p->rows = (struct di_rows){
        .n = n,
        .position = b->cut_position,
        .slot = b->cut_slot,
        .first = b->cut_first,
        .low = cut->low != NULL ? b->cut_low : NULL,
        .floor = cut->floor != NULL ? b->cut_floor : NULL,
    };
    return DI_OK;
}

/* normed -> out. Section 7. */
static di_status attention(struct pass *p, int32_t layer)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_layer_plan *plan = &m->plan->layer[layer];
    const struct di_layer_weights *w = &m->weights->layers[layer];
    const struct di_buffers *b = &m->b;
    const float *inv_freq = m->inv_freq[plan->compress_rope];
    struct di_kv_rows window = di_model_window_rows(m);
    struct di_ring_view ring = di_kv_store_ring(p->store, layer);

    if (plan->owns_kv)
        DI_TRY(compress(p, layer, inv_freq));
    DI_TRY(cut_rows(p, layer));
    if (p->rows.n == 0)
        return DI_OK;
    linear(p, b->normed, &w->wq_a, b->q_low);
    norm(p, p->rows.n, b->q_low, &w->q_norm, b->q_low);
    DI_TRY(observe(p, layer, DI_POINT_Q_RESIDUAL, b->q_low, c->q_lora_rank));
    linear(p, b->q_low, &w->wq_b, b->q);
    m->ops->rope(m->dev, &(struct di_rope_args){
                             .rows = p->rows,
                             .heads = c->num_attention_heads,
                             .dim = c->head_dim,
                             .rope_dim = c->qk_rope_head_dim,
                             .inv_freq = inv_freq,
                             .x = b->q,
                         });
    linear(p, b->normed, &w->wkv, b->kv);
    norm(p, p->rows.n, b->kv, &w->kv_norm, b->kv);
    m->ops->window_pack(m->dev, &(struct di_window_pack_args){
                                    .rows = p->rows,
                                    .rope_dim = c->qk_rope_head_dim,
                                    .inv_freq = inv_freq,
                                    .kv = b->kv,
                                    .out = window,
                                });
    DI_TRY(observe(p, layer, DI_POINT_WINDOW_KV, window.data, c->head_dim));
    if (plan->owns_index)
        DI_TRY(select_entries(p, layer, inv_freq));
    m->ops->attention(
        m->dev, &(struct di_attention_args){
                    .rows = p->rows,
                    .heads = c->num_attention_heads,
                    .dim = c->head_dim,
                    .rope_dim = c->qk_rope_head_dim,
                    .window = c->sliding_window,
                    .q = b->q,
                    .step = window,
                    .ring = ring,
                    .cache = plan->ratio == 0 ? (struct di_paged_view){0} : di_kv_store_paged(p->store, plan->kv_slot),
                    .selected = b->selected,
                    .n_selected = b->n_selected,
                    .topk = c->index_topk,
                    .sink = w->attn_sink,
                    .inv_freq = inv_freq,
                    .out = b->attn,
                });
    m->ops->window_store(m->dev, &(struct di_window_store_args){.rows = p->rows, .in = window, .ring = ring});
    m->ops->group_linear(m->dev, &(struct di_group_linear_args){
                                     .n = p->rows.n,
                                     .groups = c->o_groups,
                                     .x = b->attn,
                                     .weight = w->wo_a,
                                     .out = b->o_low,
                                 });
    linear(p, b->o_low, &w->wo_b, b->out);
    return observe(p, layer, DI_POINT_ATTN_OUT, b->out, c->hidden_size);
}

/* normed -> out. Section 11. */
static di_status moe(const struct pass *p, int32_t layer)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_layer_weights *w = &m->weights->layers[layer];
    const struct di_buffers *b = &m->b;
    int32_t n = p->rows.n, k = c->num_experts_per_tok;
    m->ops->gate(m->dev, &(struct di_gate_args){
                             .n = n,
                             .topk = k,
                             .x = b->normed,
                             .weight = w->gate,
                             .bias = w->gate_bias,
                             .temp = (float)c->gate_temp,
                             .scaling = (float)c->routed_scaling_factor,
                             .ids = b->expert_ids,
                             .weights = b->expert_weights,
                             .margin = b->router_margin,
                         });
    DI_TRY(observe(p, layer, DI_POINT_ROUTER_IDS, b->expert_ids, k));
    DI_TRY(observe(p, layer, DI_POINT_ROUTER_WEIGHTS, b->expert_weights, k));
    if (b->router_margin != NULL)
        DI_TRY(observe(p, layer, DI_POINT_ROUTER_MARGIN, b->router_margin, 1));
    m->ops->experts(m->dev, &(struct di_experts_args){
                                .n = n,
                                .topk = k,
                                .dim = c->hidden_size,
                                .inner = c->moe_intermediate_size,
                                .x = b->normed,
                                .ids = b->expert_ids,
                                .weights = b->expert_weights,
                                .experts = w->experts,
                                .n_experts = c->n_routed_experts,
                                .limit = (float)c->swiglu_limit,
                                .out = b->slots,
                            });
    m->ops->shared_expert(m->dev, &(struct di_shared_expert_args){
                                      .n = n,
                                      .dim = c->hidden_size,
                                      .inner = c->moe_intermediate_size,
                                      .x = b->normed,
                                      .expert = w->shared,
                                      .limit = (float)c->swiglu_limit,
                                      .out = b->shared,
                                  });
    m->ops->combine(m->dev, &(struct di_combine_args){
                                .n = n,
                                .topk = k,
                                .dim = c->hidden_size,
                                .slots = b->slots,
                                .shared = b->shared,
                                .out = b->out,
                            });
    return observe(p, layer, DI_POINT_FFN_OUT, b->out, c->hidden_size);
}

/* One block; coefficients are consumed one site late (section 5). */
static di_status block(struct pass *p, int32_t layer)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_layer_weights *w = &m->weights->layers[layer];
    const struct di_buffers *b = &m->b;
    int32_t n = p->rows.n, d = c->hidden_size, hc = c->hc_mult;

    DI_TRY(enter(p, layer));
    DI_TRY(observe(p, layer, DI_POINT_STREAMS_IN, b->x, hc * d));
    DI_TRY(observe(p, layer, DI_POINT_PRE_IN, b->pre, hc));
    if (m->plan->layer[layer].engram >= 0)
        DI_TRY(engram(p, layer));

    hc_mix(p, &w->hc_attn, b->attn_pre, b->attn_post, b->attn_comb);
    collapse(p, n, b->x, b->pre, b->collapsed);
    DI_TRY(observe(p, layer, DI_POINT_COLLAPSED, b->collapsed, d));
    DI_TRY(observe(p, layer, DI_POINT_ATTN_PRE, b->attn_pre, hc));
    DI_TRY(observe(p, layer, DI_POINT_ATTN_POST, b->attn_post, hc));
    DI_TRY(observe(p, layer, DI_POINT_ATTN_COMB, b->attn_comb, hc * hc));
    norm(p, n, b->collapsed, &w->attn_norm, b->normed);
    DI_TRY(observe(p, layer, DI_POINT_ATTN_IN, b->normed, d));
    DI_TRY(attention(p, layer));
    n = p->rows.n; /* some may have been cut */
    if (n == 0)
        return DI_OK;
    expand(p, b->attn_post, b->attn_comb);

    hc_mix(p, &w->hc_ffn, b->ffn_pre, b->ffn_post, b->ffn_comb);
    DI_TRY(observe(p, layer, DI_POINT_FFN_PRE, b->ffn_pre, hc));
    DI_TRY(observe(p, layer, DI_POINT_FFN_POST, b->ffn_post, hc));
    DI_TRY(observe(p, layer, DI_POINT_FFN_COMB, b->ffn_comb, hc * hc));
    collapse(p, n, b->x, b->attn_pre, b->collapsed);
    norm(p, n, b->collapsed, &w->ffn_norm, b->normed);
    DI_TRY(observe(p, layer, DI_POINT_FFN_IN, b->normed, d));
    DI_TRY(moe(p, layer));
    expand(p, b->ffn_post, b->ffn_comb);
    return observe(p, layer, DI_POINT_STREAMS_OUT, b->x, hc * d);
}

static void gather(const struct pass *p, const void *x, size_t row_bytes, void *out)
{
    p->m->ops->gather(p->m->dev, &(struct di_gather_args){
                                     .n = p->step->n_logits,
                                     .row_bytes = row_bytes,
                                     .x = x,
                                     .index = p->m->b.logit_row,
                                     .out = out,
                                 });
}

/* The rows whose logits are wanted: collapse with the last FFN site's pre mix, norm, head, draw. */
static di_status head(const struct pass *p)
{
    const struct di_model *m = p->m;
    const struct di_config *c = m->config;
    const struct di_buffers *b = &m->b;
    int32_t n = p->step->n_logits;
    DI_TRY(enter(p, c->num_hidden_layers));
    gather(p, b->x, (size_t)c->hc_mult * (size_t)c->hidden_size * (size_t)m->ops->act_bytes, b->final_x);
    gather(p, b->pre, (size_t)c->hc_mult * sizeof(float), b->final_pre);
    collapse(p, n, b->final_x, b->final_pre, b->final_collapsed);
    norm(p, n, b->final_collapsed, &m->weights->norm, b->final_norm);
    linear_f32(p, n, b->final_norm, &m->weights->head, b->logits);
    if (p->step->temperature != NULL)
        m->ops->sample(m->dev, &(struct di_sample_args){
                                   .n = n,
                                   .vocab = c->vocab_size,
                                   .logits = b->logits,
                                   .temperature = b->temperature,
                                   .seed = b->seed,
                                   .row = b->logit_row,
                                   .position = p->rows.position,
                                   .token = b->token,
                               });
    DI_TRY(observe_rows(p, -1, DI_POINT_FINAL_STREAMS, b->final_x, n, c->hc_mult * c->hidden_size));
    DI_TRY(observe_rows(p, -1, DI_POINT_FINAL_PRE, b->final_pre, n, c->hc_mult));
    DI_TRY(observe_rows(p, -1, DI_POINT_FINAL_COLLAPSED, b->final_collapsed, n, c->hidden_size));
    DI_TRY(observe_rows(p, -1, DI_POINT_FINAL_NORM, b->final_norm, n, c->hidden_size));
    return observe_rows(p, -1, DI_POINT_LOGITS, b->logits, n, c->vocab_size);
}

di_status di_forward(struct di_model *m, const struct di_kv_store *store, const struct di_step *step,
                     const struct di_forward_hooks *hooks, struct di_error *err)
{
    if (step->n_rows < 1 || step->n_rows > m->sizes.max_rows || step->n_logits > m->sizes.max_logit_rows)
        return DI_FAIL(err, DI_ERR_INTERNAL, "a step of %d rows and %d logit rows; the model was opened for %d and %d",
                       step->n_rows, step->n_logits, m->sizes.max_rows, m->sizes.max_logit_rows);
    struct pass p = {
        .m = m,
        .store = store,
        .step = step,
        .hooks = hooks,
        .rows = {.n = step->n_rows,
                 .position = m->b.position,
                 .slot = m->b.slot,
                 .first = m->b.first,
                 .low = step->low != NULL ? m->b.low : NULL,
                 .floor = step->floor != NULL ? m->b.floor : NULL},
        .err = err,
    };
    DI_TRY(upload_step(&p));
    embed(&p);
    for (int32_t layer = 0; layer < m->config->num_hidden_layers && p.rows.n > 0; layer++) {
        DI_TRY(block(&p, layer));
        float *leaving = m->b.ffn_pre; /* this layer's FFN pre mix enters the next layer */
        m->b.ffn_pre = m->b.pre;
        m->b.pre = leaving;
    }
    return step->n_logits > 0 ? head(&p) : DI_OK;
}
