/* config.json in the released nested layout -> di_config. spec/model.md section 1. */
#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

/* Where a parse stands: the object being read, its name in messages. */
struct scope {
    const json_t *object;
    const char *path;
    struct di_error *err;
};

static const char *dot(const struct scope *s)
{
    return s->path[0] != '\0' ? "." : "";
}

static di_status get_i32(const struct scope *s, const char *key, int32_t *out)
{
    int64_t value;
    DI_TRY(di_json_get_i64(s->object, s->path, key, &value, s->err));
    if (value < INT32_MIN || value > INT32_MAX)
        return DI_FAIL(s->err, DI_ERR_RANGE, "%s%s%s is %lld, which is out of range", s->path, dot(s), key,
                       (long long)value);
    *out = (int32_t)value;
    return DI_OK;
}

static di_status get_i32_opt(const struct scope *s, const char *key, int32_t fallback, int32_t *out)
{
    const json_t *value = json_object_get(s->object, key);
    *out = fallback;
    return value == NULL || json_is_null(value) ? DI_OK : get_i32(s, key, out);
}

static di_status get_i32_list(const struct scope *s, const char *key, int32_t *out, size_t capacity, int32_t *count)
{
    int64_t values[DI_MAX_LAYERS + 64];
    size_t n;
    DI_TRY(di_json_get_i64_list(s->object, s->path, key, values, capacity, &n, s->err));
    for (size_t i = 0; i < n; i++) {
        if (values[i] < INT32_MIN || values[i] > INT32_MAX)
            return DI_FAIL(s->err, DI_ERR_RANGE, "%s%s%s[%zu] is %lld, which is out of range", s->path, dot(s), key, i,
                           (long long)values[i]);
        out[i] = (int32_t)values[i];
    }
    *count = (int32_t)n;
    return DI_OK;
}

/* A field that this engine computes in one way only. `fallback` NULL: must be there. */
static di_status expect_string(const struct scope *s, const char *key, const char *wanted, const char *fallback)
{
    const char *value;
    DI_TRY(di_json_get_string_opt(s->object, s->path, key, fallback, &value, s->err));
    if (value == NULL)
        return DI_FAIL(s->err, DI_ERR_FORMAT, "%s%s%s is missing", s->path, dot(s), key);
    if (strcmp(value, wanted) != 0)
        return DI_FAIL(s->err, DI_ERR_UNSUPPORTED, "%s%s%s is \"%s\"; this engine computes \"%s\" only", s->path,
                       dot(s), key, value, wanted);
    return DI_OK;
}

static di_status expect_bool(const struct scope *s, const char *key, bool wanted)
{
    bool value;
    DI_TRY(di_json_get_bool_opt(s->object, s->path, key, wanted, &value, s->err));
    if (value != wanted)
        return DI_FAIL(s->err, DI_ERR_UNSUPPORTED, "%s%s%s is %s; this engine computes %s only", s->path, dot(s), key,
                       value ? "true" : "false", wanted ? "true" : "false");
    return DI_OK;
}

static di_status parse_quantization(const json_t *root, struct di_error *err)
{
    struct scope s = {.path = "quantization_config", .err = err};
    const json_t *text = json_object_get(root, "text_config");
    if (json_object_get(root, s.path) == NULL && json_object_get(text, s.path) != NULL) /* trap 27 */
        return DI_FAIL(err, DI_ERR_FORMAT,
                       "quantization_config is missing: it belongs to the top level, not into text_config");
    DI_TRY(di_json_get_object(root, "", "quantization_config", &s.object, err));
    DI_TRY(expect_string(&s, "quant_method", "fp8", NULL));
    DI_TRY(expect_string(&s, "scale_fmt", "ue8m0", NULL));
    DI_TRY(expect_string(&s, "expert_dtype", "fp4", NULL));
    DI_TRY(expect_string(&s, "activation_scheme", "dynamic", "dynamic"));
    int32_t block[8] = {0}, count;
    DI_TRY(get_i32_list(&s, "weight_block_size", block, 8, &count));
    if (count != 2)
        return DI_FAIL(err, DI_ERR_FORMAT, "quantization_config.weight_block_size has %d entries; 2 expected", count);
    if (block[0] != DI_QUANT_BLOCK || block[1] != DI_QUANT_BLOCK)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED,
                       "quantization_config.weight_block_size is [%d, %d]; this engine reads [%d, %d] only", block[0],
                       block[1], DI_QUANT_BLOCK, DI_QUANT_BLOCK);
    return DI_OK;
}

static di_status parse_sizes(const struct scope *s, struct di_config *c)
{
    const struct {
        const char *key;
        int32_t *out;
    } fields[] = {
        {"vocab_size", &c->vocab_size},
        {"hidden_size", &c->hidden_size},
        {"num_hidden_layers", &c->num_hidden_layers},
        {"num_attention_heads", &c->num_attention_heads},
        {"head_dim", &c->head_dim},
        {"qk_rope_head_dim", &c->qk_rope_head_dim},
        {"q_lora_rank", &c->q_lora_rank},
        {"o_lora_rank", &c->o_lora_rank},
        {"o_groups", &c->o_groups},
        {"moe_intermediate_size", &c->moe_intermediate_size},
        {"n_routed_experts", &c->n_routed_experts},
        {"n_shared_experts", &c->n_shared_experts},
        {"num_experts_per_tok", &c->num_experts_per_tok},
        {"sliding_window", &c->sliding_window},
        {"index_n_heads", &c->index_n_heads},
        {"index_head_dim", &c->index_head_dim},
        {"index_topk", &c->index_topk},
        {"hc_mult", &c->hc_mult},
        {"hc_sinkhorn_iters", &c->hc_sinkhorn_iters},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        DI_TRY(get_i32(s, fields[i].key, fields[i].out));
    DI_TRY(di_json_get_i64(s->object, s->path, "max_position_embeddings", &c->max_position_embeddings, s->err));
    DI_TRY(get_i32_opt(s, "candidate_source_layer_id", -1, &c->candidate_source_layer_id));
    if (c->candidate_source_layer_id >= 0) {
        DI_TRY(get_i32(s, "candidate_topk_blocks", &c->candidate_topk_blocks));
        DI_TRY(get_i32(s, "candidate_block_size", &c->candidate_block_size));
    }
    return DI_OK;
}

static di_status parse_reals(const struct scope *s, struct di_config *c)
{
    DI_TRY(di_json_get_f64(s->object, s->path, "rms_norm_eps", &c->rms_norm_eps, s->err));
    DI_TRY(di_json_get_f64(s->object, s->path, "hc_eps", &c->hc_eps, s->err));
    DI_TRY(di_json_get_f64(s->object, s->path, "routed_scaling_factor", &c->routed_scaling_factor, s->err));
    DI_TRY(di_json_get_f64(s->object, s->path, "swiglu_limit", &c->swiglu_limit, s->err));
    DI_TRY(di_json_get_f64(s->object, s->path, "rope_theta", &c->rope_theta, s->err));
    DI_TRY(di_json_get_f64(s->object, s->path, "compress_rope_theta", &c->compress_rope_theta, s->err));
    return di_json_get_f64_opt(s->object, s->path, "gate_temp", 1.0, &c->gate_temp, s->err);
}

static di_status parse_rope_scaling(const struct scope *s, struct di_rope_scaling *out)
{
    const json_t *value = json_object_get(s->object, "rope_scaling");
    if (value == NULL || json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0))
        return DI_OK;
    struct scope r = {.path = "text_config.rope_scaling", .err = s->err};
    DI_TRY(di_json_get_object(s->object, s->path, "rope_scaling", &r.object, s->err));
    const char *type;
    DI_TRY(di_json_get_string_opt(r.object, r.path, "rope_type", NULL, &type, s->err));
    if (type != NULL && strcmp(type, "default") == 0)
        return DI_OK;
    DI_TRY(expect_string(&r, "rope_type", "yarn", NULL));
    out->present = true;
    /* Section 6: the rotation is not scaled. Other YaRN models say so, or otherwise, with these keys. */
    static const char *const scales[] = {"attention_factor", "mscale", "mscale_all_dim"};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        double factor;
        DI_TRY(di_json_get_f64_opt(r.object, r.path, scales[i], 1.0, &factor, s->err));
        if (factor != 1.0)
            return DI_FAIL(s->err, DI_ERR_UNSUPPORTED, "%s.%s is %g; this engine computes 1 only", r.path, scales[i],
                           factor);
    }
    DI_TRY(di_json_get_f64(r.object, r.path, "factor", &out->factor, s->err));
    DI_TRY(di_json_get_f64(r.object, r.path, "beta_fast", &out->beta_fast, s->err));
    DI_TRY(di_json_get_f64(r.object, r.path, "beta_slow", &out->beta_slow, s->err));
    return di_json_get_i64(r.object, r.path, "original_max_position_embeddings", &out->original_max_position_embeddings,
                           s->err);
}

static di_status parse_lists(const struct scope *s, struct di_config *c)
{
    int32_t ratios[DI_MAX_LAYERS + 16], count;
    if (c->num_hidden_layers < 1 || c->num_hidden_layers > DI_MAX_LAYERS)
        return DI_FAIL(s->err, DI_ERR_RANGE, "text_config.num_hidden_layers is %d; it must lie in 1..%d",
                       c->num_hidden_layers, DI_MAX_LAYERS);
    DI_TRY(get_i32_list(s, "compress_ratios", ratios, DI_MAX_LAYERS + 16, &count));
    /* The draft layers' entries, if any, stand behind the backbone's. */
    if (count != c->num_hidden_layers && count != c->num_hidden_layers + c->num_nextn_predict_layers)
        return DI_FAIL(s->err, DI_ERR_FORMAT,
                       "text_config.compress_ratios has %d entries; num_hidden_layers is %d and "
                       "num_nextn_predict_layers %d",
                       count, c->num_hidden_layers, c->num_nextn_predict_layers);
    for (int32_t i = c->num_hidden_layers; i < count; i++)
        if (ratios[i] != 0) /* section 14: draft layers are window only */
            return DI_FAIL(s->err, DI_ERR_UNSUPPORTED,
                           "text_config.compress_ratios[%d] is %d; draft layers have ratio 0", i, ratios[i]);
    memcpy(c->compress_ratios, ratios, (size_t)c->num_hidden_layers * sizeof *ratios);
    DI_TRY(get_i32_list(s, "kv_source_layer_ids", c->kv_source_layer_ids, DI_MAX_LAYERS, &c->n_kv_sources));
    return get_i32_list(s, "index_source_layer_ids", c->index_source_layer_ids, DI_MAX_LAYERS, &c->n_index_sources);
}

static di_status parse_engram(const struct scope *s, struct di_config *c)
{
    static const char *const keys[] = {"engram_num_embeddings", "engram_max_ngram_size",       "engram_n_heads",
                                       "engram_head_dim",       "engram_vocab_size",           "engram_pad_token_id",
                                       "engram_pad_id",         "engram_compressed_vocab_size"};
    const json_t *layers = json_object_get(s->object, "engram_layer_ids");
    if (layers == NULL || json_is_null(layers)) {
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) /* a model without Engram has none of them */
            if (json_object_get(s->object, keys[i]) != NULL && !json_is_null(json_object_get(s->object, keys[i])))
                return DI_FAIL(s->err, DI_ERR_FORMAT, "%s.engram_layer_ids is missing, but %s is there", s->path,
                               keys[i]);
        return DI_OK;
    }
    if (json_is_array(layers) && json_array_size(layers) == 0)
        return DI_OK;
    DI_TRY(get_i32_list(s, "engram_layer_ids", c->engram_layer_ids, DI_MAX_ENGRAM_LAYERS, &c->n_engram_layers));
    size_t rows;
    DI_TRY(di_json_get_i64_list(s->object, s->path, "engram_num_embeddings", c->engram_num_embeddings,
                                DI_MAX_ENGRAM_LAYERS, &rows, s->err));
    if ((int32_t)rows != c->n_engram_layers)
        return DI_FAIL(s->err, DI_ERR_FORMAT, "text_config.engram_num_embeddings has %zu entries, engram_layer_ids %d",
                       rows, c->n_engram_layers);
    DI_TRY(get_i32(s, "engram_max_ngram_size", &c->engram_max_ngram_size));
    DI_TRY(get_i32(s, "engram_n_heads", &c->engram_n_heads));
    DI_TRY(get_i32(s, "engram_head_dim", &c->engram_head_dim));
    DI_TRY(di_json_get_i64(s->object, s->path, "engram_vocab_size", &c->engram_vocab_size, s->err));
    if (json_object_get(s->object, "engram_pad_token_id") == NULL &&
        json_object_get(s->object, "engram_pad_id") != NULL)
        return DI_FAIL(s->err, DI_ERR_FORMAT, "%s.engram_pad_token_id is missing; it is called so, not engram_pad_id",
                       s->path); /* trap 19 */
    DI_TRY(get_i32(s, "engram_pad_token_id", &c->engram_pad_token_id));
    return get_i32(s, "engram_compressed_vocab_size", &c->engram_compressed_vocab_size);
}

static di_status parse_draft(const struct scope *s, struct di_config *c)
{
    DI_TRY(get_i32_opt(s, "num_nextn_predict_layers", 0, &c->num_nextn_predict_layers));
    if (c->num_nextn_predict_layers < 0 || c->num_nextn_predict_layers > 16)
        return DI_FAIL(s->err, DI_ERR_RANGE, "text_config.num_nextn_predict_layers is %d; it must lie in 0..16",
                       c->num_nextn_predict_layers);
    if (c->num_nextn_predict_layers == 0)
        return DI_OK;
    DI_TRY(get_i32(s, "dspark_block_size", &c->dspark_block_size));
    DI_TRY(get_i32(s, "dspark_noise_token_id", &c->dspark_noise_token_id));
    DI_TRY(get_i32(s, "dspark_markov_rank", &c->dspark_markov_rank));
    DI_TRY(get_i32(s, "dspark_n_routed_experts", &c->dspark_n_routed_experts));
    DI_TRY(get_i32(s, "dspark_num_experts_per_tok", &c->dspark_num_experts_per_tok));
    return get_i32_list(s, "dspark_target_layer_ids", c->dspark_target_layer_ids, DI_MAX_LAYERS, &c->n_dspark_targets);
}

/* What the text backbone computes in one way only. */
static di_status parse_fixed(const struct scope *s)
{
    DI_TRY(expect_string(s, "scoring_func", "sqrtsoftplus", NULL));
    DI_TRY(expect_string(s, "topk_method", "noaux_tc", NULL));
    DI_TRY(expect_string(s, "hidden_act", "silu", "silu"));
    DI_TRY(expect_bool(s, "norm_topk_prob", true));
    DI_TRY(expect_bool(s, "attention_bias", false));
    DI_TRY(expect_bool(s, "tie_word_embeddings", false));
    int32_t kv_heads;
    DI_TRY(get_i32_opt(s, "num_key_value_heads", 1, &kv_heads));
    if (kv_heads != 1)
        return DI_FAIL(s->err, DI_ERR_UNSUPPORTED, "text_config.num_key_value_heads is %d; this engine computes 1 only",
                       kv_heads);
    return DI_OK;
}

static di_status parse_architectures(const json_t *root, struct di_error *err)
{
    static const char wanted[] = "DeepseekV41ForCausalLM";
    const json_t *list = json_object_get(root, "architectures"), *first = json_array_get(list, 0);
    if (list == NULL || json_is_null(list))
        return DI_OK; /* model_type decides */
    if (json_array_size(list) != 1 || !json_is_string(first))
        return DI_FAIL(err, DI_ERR_FORMAT, "architectures must be a list of one string");
    if (strcmp(json_string_value(first), wanted) != 0)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "architectures[0] is \"%s\"; this engine computes \"%s\" only",
                       json_string_value(first), wanted);
    return DI_OK;
}

static di_status parse_vision(const json_t *root, struct di_config *c, struct di_error *err)
{
    const json_t *vision = json_object_get(root, "vision_config");
    if (vision != NULL && !json_is_null(vision))
        DI_TRY(di_json_get_object(root, "", "vision_config", &vision, err));
    c->has_vision = json_is_object(vision);
    return DI_OK;
}

static di_status parse_root(const json_t *root, struct di_config *c, struct di_error *err)
{
    struct scope top = {.object = root, .path = "", .err = err}, text = {.path = "text_config", .err = err};
    if (!json_is_object(root))
        return DI_FAIL(err, DI_ERR_FORMAT, "not a JSON object");
    DI_TRY(expect_string(&top, "model_type", "deepseek_v41", NULL));
    DI_TRY(parse_architectures(root, err));
    DI_TRY(expect_bool(&top, "tie_word_embeddings", false));
    DI_TRY(parse_quantization(root, err));
    DI_TRY(di_json_get_object(root, "", "text_config", &text.object, err));
    DI_TRY(get_i32_opt(&top, "bos_token_id", -1, &c->bos_token_id));
    DI_TRY(get_i32_opt(&top, "eos_token_id", -1, &c->eos_token_id));
    DI_TRY(get_i32_opt(&top, "pad_token_id", -1, &c->pad_token_id));
    DI_TRY(get_i32_opt(&top, "image_token_id", -1, &c->image_token_id));
    DI_TRY(parse_vision(root, c, err));
    DI_TRY(parse_fixed(&text));
    DI_TRY(parse_sizes(&text, c));
    DI_TRY(parse_reals(&text, c));
    DI_TRY(parse_draft(&text, c));
    DI_TRY(parse_rope_scaling(&text, &c->rope_scaling));
    DI_TRY(parse_lists(&text, c));
    return parse_engram(&text, c);
}

di_status di_config_parse(const char *json, size_t len, const char *file, struct di_config *out, struct di_error *err)
{
    json_t *root;
    *out = (struct di_config){.candidate_source_layer_id = -1};
    DI_TRY(di_json_parse(json, len, file, &root, err));
    di_status status = parse_root(root, out, err);
    json_decref(root);
    if (status == DI_OK)
        status = di_config_validate(out, err);
    return status == DI_OK ? DI_OK : DI_PREFIX(err, status, "%s", file);
}
