/* Operations whose rows read nothing but their own inputs. */
#include "backend/hash/operations.h"
#include "backend/hash/words.h"

/* `count` act rows from row `first` on, as one word. */
static uint64_t get_all(const void *rows, int64_t first, int32_t count, int64_t width)
{
    uint64_t sum = 0;
    for (int32_t k = 0; k < count; k++)
        sum += di_hash_item((uint64_t)k, di_hash_get(rows, first + k, width));
    return sum;
}

void di_hash_embed(struct di_device *dev, const struct di_embed_args *a)
{
    (void)dev;
    uint64_t weight = di_hash_weight(&a->table);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t token = (uint64_t)a->token[i * a->token_stride];
        for (int32_t k = 0; k < a->hc; k++)
            di_hash_put(a->x, i * a->hc + k, a->dim, di_hash_of(DI_HASH_EMBED, weight, token, 0, 0));
        di_hash_put_floats(a->pre, i, a->hc, di_hash_of(DI_HASH_EMBED_PRE, 0, 0, 0, 0));
    }
}

void di_hash_engram_lookup(struct di_device *dev, const struct di_engram_lookup_args *a)
{
    (void)dev;
    uint64_t weight = di_hash_weight(&a->table);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t ids = di_hash_bytes(a->ids + i * a->columns, (size_t)a->columns * sizeof *a->ids);
        di_hash_put(a->out, i, (int64_t)a->columns * a->table.cols,
                    di_hash_of(DI_HASH_ENGRAM_LOOKUP, weight, ids, 0, 0));
    }
}

void di_hash_engram_mix(struct di_device *dev, const struct di_engram_mix_args *a)
{
    (void)dev;
    uint64_t weights = di_hash_of(DI_HASH_ENGRAM_MIX, di_hash_weight(&a->q_weight), di_hash_weight(&a->k_weight), 0, 0);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t kv = di_hash_get(a->kv, i, (a->hc + 1) * (int64_t)a->dim);
        uint64_t streams = get_all(a->x, i * a->hc, a->hc, a->dim);
        di_hash_put_floats(a->gate, i, a->hc, di_hash_of(DI_HASH_ENGRAM_GATE, weights, kv, streams, 0));
        for (int32_t s = 0; s < a->hc; s++) {
            uint64_t x = di_hash_get(a->x, i * a->hc + s, a->dim);
            di_hash_put(a->x, i * a->hc + s, a->dim, di_hash_of(DI_HASH_ENGRAM_MIX, weights, kv, x, (uint64_t)s));
        }
    }
}

void di_hash_hc_mix(struct di_device *dev, const struct di_hc_mix_args *a)
{
    (void)dev;
    int32_t hc = a->hc;
    uint64_t weight = di_hash_weight(&a->fn), base = di_hash_get_floats(a->base, 0, (2 + hc) * hc);
    uint64_t scale = di_hash_get_floats(a->scale, 0, 3);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t x = get_all(a->x, i * hc, hc, a->dim);
        di_hash_put_floats(a->pre, i, hc, di_hash_of(DI_HASH_HC_PRE, weight, base, scale, x));
        di_hash_put_floats(a->post, i, hc, di_hash_of(DI_HASH_HC_POST, weight, base, scale, x));
        di_hash_put_floats(a->comb, i, hc * hc, di_hash_of(DI_HASH_HC_COMB, weight, base, scale, x));
    }
}

void di_hash_hc_collapse(struct di_device *dev, const struct di_hc_collapse_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++)
        di_hash_put(a->out, i, a->dim,
                    di_hash_of(DI_HASH_COLLAPSE, di_hash_get_floats(a->pre, i, a->hc),
                               get_all(a->x, i * a->hc, a->hc, a->dim), 0, 0));
}

void di_hash_hc_expand(struct di_device *dev, const struct di_hc_expand_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t x = get_all(a->x, i * a->hc, a->hc, a->dim), o = di_hash_get(a->o, i, a->dim);
        uint64_t post = di_hash_get_floats(a->post, i, a->hc), comb = di_hash_get_floats(a->comb, i, a->hc * a->hc);
        uint64_t value = di_hash_of(DI_HASH_EXPAND, x, o, post, comb);
        for (int32_t k = 0; k < a->hc; k++)
            di_hash_put(a->x, i * a->hc + k, a->dim, di_hash_item((uint64_t)k, value));
    }
}

void di_hash_norm(struct di_device *dev, const struct di_norm_args *a)
{
    (void)dev;
    uint64_t weight = di_hash_weight(&a->weight);
    for (int64_t i = 0; i < a->n; i++)
        di_hash_put(a->out, i, a->dim, di_hash_of(DI_HASH_NORM, weight, di_hash_get(a->x, i, a->dim), 0, 0));
}

void di_hash_linear(struct di_device *dev, const struct di_linear_args *a)
{
    (void)dev;
    uint64_t weight = di_hash_weight(&a->weight);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t value = di_hash_of(DI_HASH_LINEAR, weight, di_hash_get(a->x, i, a->weight.cols), 0, 0);
        if (a->f32_out)
            di_hash_put_floats(a->out, i, a->weight.rows, value);
        else
            di_hash_put(a->out, i, a->weight.rows, value);
    }
}

void di_hash_group_linear(struct di_device *dev, const struct di_group_linear_args *a)
{
    (void)dev;
    uint64_t weight = di_hash_weight(&a->weight);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t x = di_hash_get(a->x, i, (int64_t)a->groups * a->weight.cols);
        di_hash_put(a->out, i, a->weight.rows, di_hash_of(DI_HASH_GROUP_LINEAR, weight, x, (uint64_t)a->groups, 0));
    }
}

void di_hash_rope(struct di_device *dev, const struct di_rope_args *a)
{
    (void)dev;
    int64_t width = (int64_t)a->heads * a->dim;
    uint64_t table = di_hash_rope_table(a->inv_freq, a->rope_dim);
    for (int64_t i = 0; i < a->rows.n; i++)
        di_hash_put(a->x, i, width,
                    di_hash_of(DI_HASH_ROPE, table, (uint64_t)a->rows.position[i], di_hash_get(a->x, i, width), 0));
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Router and experts. */

/* topk different experts: the hash names each; one that is taken gives way to the next free. */
static void choose_experts(uint64_t value, int32_t topk, int32_t n_experts, int32_t *ids)
{
    for (int32_t k = 0; k < topk; k++) {
        int32_t id = (int32_t)(di_hash_item((uint64_t)k, value) % (uint64_t)n_experts), at = 0;
        while (at < k) {
            if (ids[at++] == id) {
                id = id + 1 == n_experts ? 0 : id + 1;
                at = 0;
            }
        }
        ids[k] = id;
    }
}

void di_hash_gate(struct di_device *dev, const struct di_gate_args *a)
{
    (void)dev;
    uint64_t weight = di_hash_weight(&a->weight), bias = di_hash_get_floats(a->bias, 0, a->weight.rows);
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t value = di_hash_of(DI_HASH_GATE, weight, bias, di_hash_get(a->x, i, a->weight.cols), 0);
        choose_experts(value, a->topk, (int32_t)a->weight.rows, a->ids + i * a->topk);
        di_hash_put_floats(a->weights, i, a->topk, di_hash_of(DI_HASH_GATE_WEIGHTS, value, 0, 0, 0));
        if (a->margin != NULL)
            a->margin[i] = 1.0F; /* choices here are never close */
    }
}

static uint64_t expert_identity(const struct di_expert *e)
{
    return di_hash_of(DI_HASH_EXPERT, di_hash_weight(&e->w1), di_hash_weight(&e->w3), di_hash_weight(&e->w2), 0);
}

void di_hash_experts(struct di_device *dev, const struct di_experts_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++) {
        uint64_t x = di_hash_get(a->x, i, a->dim);
        for (int32_t k = 0; k < a->topk; k++) {
            int64_t slot = i * a->topk + k;
            uint64_t value = 0;
            if (a->ids[slot] >= 0)
                value = di_hash_of(DI_HASH_EXPERT, expert_identity(&a->experts[a->ids[slot]]), (uint64_t)a->ids[slot],
                                   di_hash_get_floats(a->weights, slot, 1), x);
            di_hash_put(a->out, slot, a->dim, value);
        }
    }
}

void di_hash_shared_expert(struct di_device *dev, const struct di_shared_expert_args *a)
{
    (void)dev;
    uint64_t weight = expert_identity(&a->expert);
    for (int64_t i = 0; i < a->n; i++)
        di_hash_put(a->out, i, a->dim, di_hash_of(DI_HASH_SHARED_EXPERT, weight, di_hash_get(a->x, i, a->dim), 0, 0));
}

void di_hash_combine(struct di_device *dev, const struct di_combine_args *a)
{
    (void)dev;
    for (int64_t i = 0; i < a->n; i++)
        di_hash_put(a->out, i, a->dim,
                    di_hash_of(DI_HASH_COMBINE, get_all(a->slots, i * a->topk, a->topk, a->dim),
                               di_hash_get(a->shared, i, a->dim), 0, 0));
}
