#include "core/config.h"

#include <float.h>

#include "core/engram.h"

enum { MAX_WIDTH = 1 << 20 }; /* of one activation row */

/* A field with its name, for tables of checks. */
struct int_check {
    const char *name;
    int64_t value, low, high, multiple; /* multiple 0 or 1: any */
};

static di_status check_ints(const struct int_check *checks, size_t count, struct di_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct int_check *c = &checks[i];
        if (c->value < c->low || c->value > c->high)
            return DI_FAIL(err, DI_ERR_RANGE, "%s is %lld; it must lie in %lld..%lld", c->name, (long long)c->value,
                           (long long)c->low, (long long)c->high);
        if (c->multiple > 1 && c->value % c->multiple != 0)
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s is %lld; it must be a multiple of %lld", c->name,
                           (long long)c->value, (long long)c->multiple);
    }
    return DI_OK;
}

static di_status check_product(const char *name, int64_t value, const char *other_name, int64_t other, int64_t limit,
                               struct di_error *err)
{
    if (value * other <= limit)
        return DI_OK;
    return DI_FAIL(err, DI_ERR_LIMIT, "%s %lld x %s %lld is %lld; %lld at most", name, (long long)value, other_name,
                   (long long)other, (long long)(value * other), (long long)limit);
}

static di_status check_sizes(const struct di_config *c, struct di_error *err)
{
    /* Upper bounds keep every row width (heads x head_dim, groups x rank, streams x hidden) in int32 and every count of
     * elements in int64. Multiples of 32: the blocks of quantised weights (spec/model.md 17.7, 17.8) and of the cache
     * quantisers (17.3, 17.4); products of such a width with a count need no check of their own. */
    const int64_t block = DI_QUANT_BLOCK;
    const struct int_check checks[] = {
        {"vocab_size", c->vocab_size, 1, 1 << 22, 1},
        {"hidden_size", c->hidden_size, block, 1 << 16, block},
        {"num_hidden_layers", c->num_hidden_layers, 1, DI_MAX_LAYERS, 1},
        {"num_attention_heads", c->num_attention_heads, 1, 1024, 1},
        {"head_dim", c->head_dim, block, 1024, block},
        {"qk_rope_head_dim", c->qk_rope_head_dim, 2, c->head_dim, 2},
        {"q_lora_rank", c->q_lora_rank, block, 1 << 15, block},
        {"o_lora_rank", c->o_lora_rank, block, 1 << 15, block},
        {"o_groups", c->o_groups, 1, c->num_attention_heads, 1},
        {"moe_intermediate_size", c->moe_intermediate_size, block, 1 << 16, block},
        {"n_routed_experts", c->n_routed_experts, 1, 4096, 1},
        {"n_shared_experts", c->n_shared_experts, 1, 1, 1},
        {"num_experts_per_tok", c->num_experts_per_tok, 1, c->n_routed_experts, 1},
        {"max_position_embeddings", c->max_position_embeddings, 1, 1 << 24, 1},
        {"sliding_window", c->sliding_window, 1, 1 << 16, 1},
        {"hc_mult", c->hc_mult, 1, DI_MAX_HC, 1},
        {"hc_sinkhorn_iters", c->hc_sinkhorn_iters, 1, 1000, 1},
        {"kv_source_layer_ids' length", c->n_kv_sources, 0, c->num_hidden_layers, 1},
        {"index_source_layer_ids' length", c->n_index_sources, 0, c->num_hidden_layers, 1},
        {"engram_layer_ids' length", c->n_engram_layers, 0, DI_MAX_ENGRAM_LAYERS, 1},
        {"bos_token_id", c->bos_token_id, -1, c->vocab_size - 1, 1},
        {"eos_token_id", c->eos_token_id, -1, c->vocab_size - 1, 1},
        {"pad_token_id", c->pad_token_id, -1, c->vocab_size - 1, 1},
        {"image_token_id", c->image_token_id, -1, c->vocab_size - 1, 1},
    };
    DI_TRY(check_ints(checks, sizeof checks / sizeof checks[0], err));
    if (c->num_attention_heads % c->o_groups != 0)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "num_attention_heads %d is not a multiple of o_groups %d",
                       c->num_attention_heads, c->o_groups);
    DI_TRY(check_product("num_attention_heads", c->num_attention_heads, "head_dim", c->head_dim, MAX_WIDTH, err));
    return check_product("o_groups", c->o_groups, "o_lora_rank", c->o_lora_rank, MAX_WIDTH, err);
}

static di_status check_reals(const struct di_config *c, struct di_error *err)
{
    const struct di_rope_scaling *r = &c->rope_scaling;
    const bool yarn = r->present;
    const double tiny = (double)FLT_MIN; /* all are used in fp32, where a smaller epsilon would vanish */
    const struct {
        const char *name;
        double value, low, high;
    } checks[] = {
        {"rms_norm_eps", c->rms_norm_eps, tiny, 1.0},
        {"hc_eps", c->hc_eps, tiny, 1.0},
        {"gate_temp", c->gate_temp, tiny, 1e9},
        {"swiglu_limit", c->swiglu_limit, tiny, 1e9},
        {"routed_scaling_factor", c->routed_scaling_factor, tiny, 1e9},
        /* 1 itself has logarithm 0, by which the YaRN ramp divides (section 6) */
        {"rope_theta", c->rope_theta, 1.0 + 1e-6, 1e18},
        {"compress_rope_theta", c->compress_rope_theta, 1.0 + 1e-6, 1e18},
        {"rope_scaling.factor", yarn ? r->factor : 1.0, 1.0, 1e9},
        {"rope_scaling.beta_slow", yarn ? r->beta_slow : 1.0, tiny, 1e9},
        {"rope_scaling.beta_fast", yarn ? r->beta_fast : 1.0, yarn ? r->beta_slow : 1.0, 1e9},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (!(checks[i].value >= checks[i].low && checks[i].value <= checks[i].high)) /* NaN fails too */
            return DI_FAIL(err, DI_ERR_RANGE, "%s is %g; it must be a finite positive number in %g..%g", checks[i].name,
                           checks[i].value, checks[i].low, checks[i].high);
    if (yarn && (r->original_max_position_embeddings < 1 || r->original_max_position_embeddings > 1 << 24))
        return DI_FAIL(err, DI_ERR_RANGE, "rope_scaling.original_max_position_embeddings is %lld; it must lie in 1..%d",
                       (long long)r->original_max_position_embeddings, 1 << 24);
    return DI_OK;
}

static di_status check_ascending(const char *name, const int32_t *ids, int32_t count, int32_t layers,
                                 struct di_error *err)
{
    for (int32_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= layers)
            return DI_FAIL(err, DI_ERR_RANGE, "%s[%d] is %d; layer ids lie in 0..%d", name, i, ids[i], layers - 1);
        if (i > 0 && ids[i] <= ids[i - 1])
            return DI_FAIL(err, DI_ERR_INVALID, "%s[%d] is %d after %d; the list must ascend", name, i, ids[i],
                           ids[i - 1]);
    }
    return DI_OK;
}

static bool contains(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Every layer with compressed entries reads a source of its own ratio, and selections are made from that source's keys.
 * The last needs no check of its own: KV sources are index sources too, so no KV source stands between a layer's index
 * source and the layer, and both layers have the same KV source (the greatest id <= either). */
static di_status check_sources(const struct di_config *c, struct di_error *err)
{
    int32_t n = c->num_hidden_layers;
    DI_TRY(check_ascending("kv_source_layer_ids", c->kv_source_layer_ids, c->n_kv_sources, n, err));
    DI_TRY(check_ascending("index_source_layer_ids", c->index_source_layer_ids, c->n_index_sources, n, err));
    for (int32_t i = 0; i < n; i++)
        if (c->compress_ratios[i] < 0 || c->compress_ratios[i] > 2)
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "compress_ratios[%d] is %d; 0, 1 and 2 are supported", i,
                           c->compress_ratios[i]);
    for (int32_t i = 0; i < c->n_kv_sources; i++) {
        int32_t layer = c->kv_source_layer_ids[i];
        if (c->compress_ratios[layer] == 0)
            return DI_FAIL(err, DI_ERR_INVALID, "kv_source_layer_ids[%d] is layer %d, whose compress_ratios entry is 0",
                           i, layer);
        if (!contains(c->index_source_layer_ids, c->n_index_sources, layer))
            return DI_FAIL(err, DI_ERR_INVALID,
                           "kv_source_layer_ids[%d] is layer %d, which is not among index_source_layer_ids: its "
                           "followers would select from another source's entries",
                           i, layer);
    }
    for (int32_t i = 0; i < c->n_index_sources; i++)
        if (c->compress_ratios[c->index_source_layer_ids[i]] == 0)
            return DI_FAIL(err, DI_ERR_INVALID,
                           "index_source_layer_ids[%d] is layer %d, whose compress_ratios entry is 0", i,
                           c->index_source_layer_ids[i]);
    struct di_layer_plan_list plan;
    di_layer_plan_derive(c, &plan);
    for (int32_t i = 0; i < n; i++) {
        const struct di_layer_plan *l = &plan.layer[i];
        if (l->ratio == 0)
            continue;
        if (l->kv_source < 0)
            return DI_FAIL(err, DI_ERR_INVALID,
                           "kv_source_layer_ids has no source for layer %d, whose compress_ratios entry is %d", i,
                           l->ratio);
        if (c->compress_ratios[l->kv_source] != l->ratio)
            return DI_FAIL(
                err, DI_ERR_INVALID,
                "compress_ratios[%d] is %d, but its KV source, layer %d of kv_source_layer_ids, has ratio %d", i,
                l->ratio, l->kv_source, c->compress_ratios[l->kv_source]);
    }
    return DI_OK;
}

static di_status check_index(const struct di_config *c, struct di_error *err)
{
    if (c->n_kv_sources == 0) {
        if (c->candidate_source_layer_id != -1)
            return DI_FAIL(err, DI_ERR_INVALID, "candidate_source_layer_id is %d, but there are no kv_source_layer_ids",
                           c->candidate_source_layer_id);
        return DI_OK;
    }
    const struct int_check checks[] = {
        {"index_n_heads", c->index_n_heads, 1, 1024, 1},
        {"index_head_dim", c->index_head_dim, DI_QUANT_BLOCK, 1024, DI_QUANT_BLOCK},
        {"index_topk", c->index_topk, 1, 1 << 20, 1},
        {"candidate_source_layer_id", c->candidate_source_layer_id, -1, c->num_hidden_layers - 1, 1},
    };
    DI_TRY(check_ints(checks, sizeof checks / sizeof checks[0], err));
    DI_TRY(check_product("index_n_heads", c->index_n_heads, "index_head_dim", c->index_head_dim, MAX_WIDTH, err));
    if (c->qk_rope_head_dim > c->index_head_dim)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "qk_rope_head_dim %d is more than index_head_dim %d",
                       c->qk_rope_head_dim, c->index_head_dim);
    int32_t source = c->candidate_source_layer_id;
    if (source < 0)
        return DI_OK;
    const struct int_check blocks[] = {
        {"candidate_topk_blocks", c->candidate_topk_blocks, 1, 1 << 20, 1},
        {"candidate_block_size", c->candidate_block_size, 1, 1 << 20, 1},
    };
    DI_TRY(check_ints(blocks, 2, err));
    DI_TRY(check_product("candidate_topk_blocks", c->candidate_topk_blocks, "candidate_block_size",
                         c->candidate_block_size, INT32_MAX, err));
    if (!contains(c->index_source_layer_ids, c->n_index_sources, source))
        return DI_FAIL(err, DI_ERR_INVALID,
                       "candidate_source_layer_id is %d, which is not among index_source_layer_ids", source);
    /* Blocks number the entries of one source: later index sources must read the same one. */
    struct di_layer_plan_list plan;
    di_layer_plan_derive(c, &plan);
    for (int32_t i = source; i < c->num_hidden_layers; i++)
        if (plan.layer[i].owns_index && plan.layer[i].kv_source != plan.layer[source].kv_source)
            return DI_FAIL(
                err, DI_ERR_INVALID,
                "candidate_source_layer_id is %d, but layer %d behind it selects from another KV source (%d)", source,
                i, plan.layer[i].kv_source);
    return DI_OK;
}

static di_status check_engram(const struct di_config *c, struct di_error *err)
{
    if (c->n_engram_layers == 0)
        return DI_OK;
    const int64_t block = DI_QUANT_BLOCK;
    DI_TRY(check_ascending("engram_layer_ids", c->engram_layer_ids, c->n_engram_layers, c->num_hidden_layers, err));
    const struct int_check checks[] = {
        {"engram_max_ngram_size", c->engram_max_ngram_size, 2, DI_MAX_NGRAM, 1},
        {"engram_n_heads", c->engram_n_heads, 1, DI_MAX_ENGRAM_COLUMNS, 1},
        {"engram_head_dim", c->engram_head_dim, block, 1 << 13, block},
        {"engram_vocab_size", c->engram_vocab_size, 2, 1 << 28, 1},
        {"engram_pad_token_id", c->engram_pad_token_id, 0, c->vocab_size - 1, 1},
        {"engram_compressed_vocab_size", c->engram_compressed_vocab_size, 1, c->vocab_size, 1},
    };
    DI_TRY(check_ints(checks, sizeof checks / sizeof checks[0], err));
    for (int32_t t = 0; t < c->n_engram_layers; t++) {
        struct di_engram_consts consts;
        if (c->engram_num_embeddings[t] < 1 || c->engram_num_embeddings[t] > INT32_MAX)
            return DI_FAIL(err, DI_ERR_RANGE, "engram_num_embeddings[%d] is %lld; it must lie in 1..%d", t,
                           (long long)c->engram_num_embeddings[t], INT32_MAX);
        DI_TRY(di_engram_consts_derive(c, t, &consts, err));
    }
    return DI_OK;
}

/* Section 14. The drafts' inputs are backbone layers; what they draw is a token. */
static di_status check_draft(const struct di_config *c, struct di_error *err)
{
    const struct int_check layers = {"num_nextn_predict_layers", c->num_nextn_predict_layers, 0, 16, 1};
    DI_TRY(check_ints(&layers, 1, err));
    if (c->num_nextn_predict_layers == 0)
        return DI_OK;
    const struct int_check checks[] = {
        {"dspark_block_size", c->dspark_block_size, 1, 64, 1},
        {"dspark_noise_token_id", c->dspark_noise_token_id, 0, c->vocab_size - 1, 1},
        {"dspark_markov_rank", c->dspark_markov_rank, 1, 1 << 15, 1},
        {"dspark_n_routed_experts", c->dspark_n_routed_experts, 1, 4096, 1},
        {"dspark_num_experts_per_tok", c->dspark_num_experts_per_tok, 1, c->dspark_n_routed_experts, 1},
        {"dspark_target_layer_ids' length", c->n_dspark_targets, 1, c->num_hidden_layers, 1},
    };
    DI_TRY(check_ints(checks, sizeof checks / sizeof checks[0], err));
    return check_ascending("dspark_target_layer_ids", c->dspark_target_layer_ids, c->n_dspark_targets,
                           c->num_hidden_layers, err);
}

di_status di_config_validate(const struct di_config *c, struct di_error *err)
{
    DI_TRY(check_sizes(c, err));
    DI_TRY(check_reals(c, err));
    DI_TRY(check_sources(c, err));
    DI_TRY(check_index(c, err));
    DI_TRY(check_draft(c, err));
    return check_engram(c, err);
}
