#include "model/buffers.h"

#include "model/forward.h"

/* One row of the table below: where the pointer goes and how many bytes. */
struct entry {
    void **where;
    uint64_t bytes;
};

enum { MAX_ENTRIES = 96 };

static void add(struct entry *entries, int32_t *count, void *where, uint64_t rows, int64_t width, uint64_t element)
{
    entries[(*count)++] = (struct entry){where, rows * (uint64_t)width * element};
}

static int64_t widest_row(const struct di_config *c, uint64_t act)
{
    int64_t bytes[] = {
        (int64_t)c->num_experts_per_tok * c->hidden_size * (int64_t)act,
        (int64_t)c->hc_mult * c->hidden_size * (int64_t)act,
        (int64_t)c->hc_mult * c->hc_mult * (int64_t)sizeof(float),
        (int64_t)c->index_topk * (int64_t)sizeof(int32_t),
        c->candidate_source_layer_id >= 0 ? (int64_t)c->candidate_topk_blocks * (int64_t)sizeof(int32_t) : 0,
    };
    int64_t most = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

static int32_t list_draw(const struct di_buffer_sizes *s, struct di_buffers *b, struct entry *e, int32_t n)
{
    const uint64_t f32 = sizeof(float), i32 = sizeof(int32_t), rows = (uint64_t)s->max_logit_rows;
    int32_t **ints[] = {&b->draw_row, &b->draw_position, &b->top_k, &b->mask_row, &b->wanted, &b->scored, &b->rank};
    float **floats[] = {&b->repetition, &b->frequency, &b->presence, &b->top_p, &b->min_p, &b->logprob};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        add(e, &n, ints[i], rows, 1, i32);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        add(e, &n, floats[i], rows, 1, f32);
    add(e, &n, &b->choice, rows, 1, i32);
    add(e, &n, &b->seen_offset, rows + 1, 1, i32);
    add(e, &n, &b->bias_offset, rows + 1, 1, i32);
    add(e, &n, &b->top_token, rows, DI_MAX_LOGPROBS, i32);
    add(e, &n, &b->top_logprob, rows, DI_MAX_LOGPROBS, f32);
    return n;
}

/* Lists every buffer. The structure may be a dummy when only sizes are wanted. */
static int32_t list(const struct di_buffer_sizes *s, struct di_buffers *b, struct entry *e)
{
    const struct di_config *c = s->config;
    const uint64_t act = (uint64_t)s->act_bytes, f32 = sizeof(float), i32 = sizeof(int32_t);
    const uint64_t rows = (uint64_t)s->max_rows, heads_rows = (uint64_t)s->max_logit_rows;
    const int64_t d = c->hidden_size, hc = c->hc_mult, q = (int64_t)c->num_attention_heads * c->head_dim;
    const int64_t columns = di_engram_columns(c);
    int32_t n = 0;
    add(e, &n, &b->window, rows, columns > 0 ? c->engram_max_ngram_size : 1, i32);
    add(e, &n, &b->position, rows, 1, i32);
    add(e, &n, &b->slot, rows, 1, i32);
    add(e, &n, &b->first, rows, 1, i32);
    add(e, &n, &b->low, rows, 1, i32);
    add(e, &n, &b->floor, rows, 1, i32);
    add(e, &n, &b->cut_position, rows, 1, i32);
    add(e, &n, &b->cut_slot, rows, 1, i32);
    add(e, &n, &b->cut_first, rows, 1, i32);
    add(e, &n, &b->cut_low, rows, 1, i32);
    add(e, &n, &b->cut_floor, rows, 1, i32);
    add(e, &n, &b->cut_index, rows, 1, i32);
    add(e, &n, &b->logit_row, heads_rows, 1, i32);
    add(e, &n, &b->temperature, heads_rows, 1, f32);
    add(e, &n, &b->seed, heads_rows, 1, sizeof(uint64_t));
    add(e, &n, &b->x, rows, hc * d, act);
    add(e, &n, &b->pre, rows, hc, f32);
    add(e, &n, &b->attn_pre, rows, hc, f32);
    add(e, &n, &b->attn_post, rows, hc, f32);
    add(e, &n, &b->attn_comb, rows, hc * hc, f32);
    add(e, &n, &b->ffn_pre, rows, hc, f32);
    add(e, &n, &b->ffn_post, rows, hc, f32);
    add(e, &n, &b->ffn_comb, rows, hc * hc, f32);
    add(e, &n, &b->collapsed, rows, d, act);
    add(e, &n, &b->normed, rows, d, act);
    add(e, &n, &b->out, rows, d, act);
    add(e, &n, &b->q_low, rows, c->q_lora_rank, act);
    add(e, &n, &b->q, rows, q, act);
    add(e, &n, &b->kv, rows, c->head_dim, act);
    add(e, &n, &b->attn, rows, q, act);
    add(e, &n, &b->o_low, rows, (int64_t)c->o_groups * c->o_lora_rank, act);
    add(e, &n, &b->window_data, rows, di_kv_data_bytes(s->window_format, c->head_dim), 1);
    add(e, &n, &b->window_scale, rows, di_kv_scale_bytes(s->window_format, c->head_dim), 1);
    add(e, &n, &b->value, rows, c->head_dim, f32);
    add(e, &n, &b->gate, rows, c->head_dim, f32);
    add(e, &n, &b->latent, rows, c->head_dim, act);
    add(e, &n, &b->index_key, rows, c->index_head_dim, act);
    add(e, &n, &b->index_q, rows, (int64_t)c->index_n_heads * c->index_head_dim, act);
    add(e, &n, &b->index_w, rows, c->index_n_heads, act);
    add(e, &n, &b->selected, rows, c->index_topk, i32);
    add(e, &n, &b->n_selected, rows, 1, i32);
    if (c->candidate_source_layer_id >= 0) {
        add(e, &n, &b->blocks, rows, c->candidate_topk_blocks, i32);
        add(e, &n, &b->n_blocks, rows, 1, i32);
    }
    add(e, &n, &b->expert_ids, rows, c->num_experts_per_tok, i32);
    add(e, &n, &b->expert_weights, rows, c->num_experts_per_tok, f32);
    /* also the way station of a cut: as wide as the widest that moves */
    add(e, &n, &b->slots, rows, widest_row(c, act), 1);
    add(e, &n, &b->shared, rows, d, act);
    if (columns > 0) {
        add(e, &n, &b->hash_ids, rows, columns, i32);
        add(e, &n, &b->engram_rows, rows, columns * c->engram_head_dim, act);
        add(e, &n, &b->engram_kv, rows, (hc + 1) * d, act);
        add(e, &n, &b->engram_gate, rows, hc, f32);
    }
    add(e, &n, &b->final_x, heads_rows, hc * d, act);
    add(e, &n, &b->final_pre, heads_rows, hc, f32);
    add(e, &n, &b->final_collapsed, heads_rows, d, act);
    add(e, &n, &b->final_norm, heads_rows, d, act);
    add(e, &n, &b->logits, heads_rows, c->vocab_size, f32);
    add(e, &n, &b->token, heads_rows, 1, i32);
    if (s->draws)
        n = list_draw(s, b, e, n);
    if (s->score_stride > 0) {
        add(e, &n, &b->scores, rows, s->score_stride, f32);
        add(e, &n, &b->index_margin, rows, 1, f32);
        add(e, &n, &b->block_margin, rows, 1, f32);
        add(e, &n, &b->router_margin, rows, 1, f32);
    }
    return n;
}

uint64_t di_buffers_bytes(const struct di_buffer_sizes *sizes)
{
    struct di_buffers dummy;
    struct entry entries[MAX_ENTRIES];
    int32_t n = list(sizes, &dummy, entries);
    uint64_t total = 0;
    for (int32_t i = 0; i < n; i++)
        total += entries[i].bytes;
    return total;
}

di_status di_buffers_alloc(const struct di_buffer_sizes *sizes, const struct di_ops *ops, struct di_device *dev,
                           struct di_buffers *out, struct di_error *err)
{
    struct entry entries[MAX_ENTRIES];
    *out = (struct di_buffers){0};
    int32_t n = list(sizes, out, entries);
    for (int32_t i = 0; i < n; i++) {
        di_status status = ops->alloc(dev, (size_t)entries[i].bytes, entries[i].where, err);
        if (status != DI_OK) {
            di_buffers_free(ops, dev, out);
            return status;
        }
    }
    return DI_OK;
}

void di_buffers_free(const struct di_ops *ops, struct di_device *dev, struct di_buffers *buffers)
{
    /* The structure is nothing but pointers, each from ops->alloc or NULL. */
    void **pointers = (void **)buffers;
    for (size_t i = 0; i < sizeof *buffers / sizeof *pointers; i++)
        ops->release(dev, pointers[i]);
    *buffers = (struct di_buffers){0};
}
