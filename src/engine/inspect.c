#include "engine/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "deepinfer/options.h"

static json_t *number_list(const int32_t *values, int32_t count)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static json_t *describe_config(const struct di_config *c)
{
    json_t *o = json_object();
    const struct {
        const char *name;
        int64_t value;
    } integers[] = {
        {"vocab_size", c->vocab_size},
        {"hidden_size", c->hidden_size},
        {"num_hidden_layers", c->num_hidden_layers},
        {"num_attention_heads", c->num_attention_heads},
        {"head_dim", c->head_dim},
        {"qk_rope_head_dim", c->qk_rope_head_dim},
        {"q_lora_rank", c->q_lora_rank},
        {"o_lora_rank", c->o_lora_rank},
        {"o_groups", c->o_groups},
        {"moe_intermediate_size", c->moe_intermediate_size},
        {"n_routed_experts", c->n_routed_experts},
        {"num_experts_per_tok", c->num_experts_per_tok},
        {"max_position_embeddings", c->max_position_embeddings},
        {"sliding_window", c->sliding_window},
        {"index_n_heads", c->index_n_heads},
        {"index_head_dim", c->index_head_dim},
        {"index_topk", c->index_topk},
        {"candidate_source_layer_id", c->candidate_source_layer_id},
        {"candidate_topk_blocks", c->candidate_topk_blocks},
        {"candidate_block_size", c->candidate_block_size},
        {"hc_mult", c->hc_mult},
        {"hc_sinkhorn_iters", c->hc_sinkhorn_iters},
        {"engram_max_ngram_size", c->engram_max_ngram_size},
        {"engram_n_heads", c->engram_n_heads},
        {"engram_head_dim", c->engram_head_dim},
        {"engram_compressed_vocab_size", c->engram_compressed_vocab_size},
        {"num_nextn_predict_layers", c->num_nextn_predict_layers},
        {"bos_token_id", c->bos_token_id},
        {"eos_token_id", c->eos_token_id},
    };
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        json_object_set_new(o, integers[i].name, json_integer(integers[i].value));
    json_object_set_new(o, "rms_norm_eps", json_real(c->rms_norm_eps));
    json_object_set_new(o, "swiglu_limit", json_real(c->swiglu_limit));
    json_object_set_new(o, "routed_scaling_factor", json_real(c->routed_scaling_factor));
    json_object_set_new(o, "rope_theta", json_real(c->rope_theta));
    json_object_set_new(o, "compress_rope_theta", json_real(c->compress_rope_theta));
    json_object_set_new(o, "compress_ratios", number_list(c->compress_ratios, c->num_hidden_layers));
    json_object_set_new(o, "kv_source_layer_ids", number_list(c->kv_source_layer_ids, c->n_kv_sources));
    json_object_set_new(o, "index_source_layer_ids", number_list(c->index_source_layer_ids, c->n_index_sources));
    json_object_set_new(o, "engram_layer_ids", number_list(c->engram_layer_ids, c->n_engram_layers));
    return o;
}

/* The layer that a tensor name belongs to, or -1. */
static int32_t layer_of(const char *name)
{
    int layer;
    return sscanf(name, "layers.%d.", &layer) == 1 ? layer : -1;
}

static json_t *describe_layers(const struct di_engine *e)
{
    const struct di_st_set *tensors = di_checkpoint_tensors(e->ckpt);
    uint64_t bytes[DI_MAX_LAYERS] = {0};
    for (size_t i = 0; i < di_st_count(tensors); i++) {
        const struct di_st_tensor *t = di_st_at(tensors, i);
        int32_t layer = layer_of(t->name);
        if (layer >= 0 && layer < DI_MAX_LAYERS)
            bytes[layer] += t->bytes;
    }
    json_t *list = json_array();
    for (int32_t i = 0; i < e->plan.n_layers; i++) {
        const struct di_layer_plan *l = &e->plan.layer[i];
        const char *candidates = l->makes_candidates ? "makes" : l->uses_candidates ? "uses" : "no";
        json_t *o = json_object();
        json_object_set_new(o, "layer", json_integer(i));
        json_object_set_new(o, "ratio", json_integer(l->ratio));
        json_object_set_new(o, "attention", json_string(l->ratio == 0 ? "window" : "window+compressed"));
        json_object_set_new(o, "kv_source", l->kv_source < 0 ? json_null() : json_integer(l->kv_source));
        json_object_set_new(o, "index_source", l->index_source < 0 ? json_null() : json_integer(l->index_source));
        json_object_set_new(o, "owns_kv", json_boolean(l->owns_kv));
        json_object_set_new(o, "owns_index", json_boolean(l->owns_index));
        json_object_set_new(o, "candidates", json_string(candidates));
        json_object_set_new(o, "engram", l->engram < 0 ? json_null() : json_integer(l->engram));
        json_object_set_new(o, "rope", json_string(l->compress_rope ? "compress" : "main"));
        json_object_set_new(o, "bytes", json_integer((json_int_t)bytes[i]));
        json_array_append_new(list, o);
    }
    return list;
}

/* What a tensor is part of, by its name; the first match wins. */
static const char *part_of(const char *name)
{
    static const struct {
        const char *piece, *part;
    } parts[] = {
        {"mtp.", "draft model"},
        {"vision.", "vision"},
        {"aligner.", "vision"},
        {"image_", "vision"},
        {".engram.embed.", "engram tables"},
        {".engram.", "engram projections"},
        {".ffn.experts.", "routed experts"},
        {".ffn.shared_experts.", "shared experts"},
        {".ffn.gate.", "router"},
        {".attn.indexer.", "indexer"},
        {".attn.compressor.", "compressor"},
        {".attn.", "attention"},
        {".hc_", "hyper-connections"},
        {"embed.weight", "embedding"},
        {"head.weight", "head"},
        {"norm.weight", "norms"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(name, parts[i].piece) != NULL)
            return parts[i].part;
    return "other";
}

/* Adds to the entry of `list` whose two keys match, or appends it. */
static void tally(json_t *list, const char *key1, const char *value1, const char *key2, const char *value2,
                  uint64_t bytes, const char *example)
{
    size_t index;
    json_t *entry = NULL;
    json_array_foreach (list, index, entry) {
        if (strcmp(json_string_value(json_object_get(entry, key1)), value1) == 0 &&
            (key2 == NULL || strcmp(json_string_value(json_object_get(entry, key2)), value2) == 0))
            break;
    }
    if (index == json_array_size(list)) {
        entry = json_object();
        json_object_set_new(entry, key1, json_string(value1));
        if (key2 != NULL)
            json_object_set_new(entry, key2, json_string(value2));
        json_object_set_new(entry, "count", json_integer(0));
        json_object_set_new(entry, "bytes", json_integer(0));
        if (example != NULL)
            json_object_set_new(entry, "example", json_string(example));
        json_array_append_new(list, entry);
    }
    json_t *count = json_object_get(entry, "count"), *sum = json_object_get(entry, "bytes");
    json_integer_set(count, json_integer_value(count) + 1);
    json_integer_set(sum, json_integer_value(sum) + (json_int_t)bytes);
}

static void describe_tensors(const struct di_engine *e, json_t *root)
{
    const struct di_st_set *tensors = di_checkpoint_tensors(e->ckpt);
    json_t *used = json_array(), *ignored = json_array();
    for (size_t i = 0; i < di_st_count(tensors); i++) {
        const struct di_st_tensor *t = di_st_at(tensors, i);
        const char *reason = di_checkpoint_ignored_reason(e->ckpt, i);
        if (reason != NULL)
            tally(ignored, "reason", reason, NULL, NULL, t->bytes, t->name);
        else
            tally(used, "part", part_of(t->name), "format", di_st_dtype_name(t->dtype), t->bytes, NULL);
    }
    json_object_set_new(root, "tensors", used);
    json_object_set_new(root, "ignored", ignored);
}

static json_t *describe_memory(const struct di_engine *e)
{
    struct di_memory_term terms[DI_MEMORY_TERMS];
    di_engine_memory_plan(e, terms);
    json_t *list = json_array();
    for (int32_t i = 0; i < DI_MEMORY_TERMS; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "term", json_string(terms[i].term));
        json_object_set_new(o, "bytes", json_integer((json_int_t)terms[i].bytes));
        json_object_set_new(o, "note", json_string(terms[i].note));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *describe_model(const struct di_engine *e)
{
    const struct di_st_set *tensors = di_checkpoint_tensors(e->ckpt);
    json_t *o = json_object();
    json_object_set_new(o, "folder", json_string(di_checkpoint_folder(e->ckpt)));
    json_object_set_new(o, "shards", json_integer((json_int_t)di_st_shard_count(tensors)));
    json_object_set_new(o, "tensors", json_integer((json_int_t)di_st_count(tensors)));
    json_object_set_new(o, "bytes", json_integer((json_int_t)di_st_total_bytes(tensors)));
    return o;
}

static json_t *describe_options(const di_options *options)
{
    json_t *o = json_object();
    struct di_option_info info;
    for (size_t i = 0; di_option_at(i, &info); i++)
        json_object_set_new(o, info.name, json_string(di_options_get(options, info.name)));
    return o;
}

di_status di_engine_describe(const struct di_engine *e, const di_options *options, char **json, struct di_error *err)
{
    json_t *root = json_object();
    json_object_set_new(root, "model", describe_model(e));
    json_object_set_new(root, "config", describe_config(e->config));
    json_object_set_new(root, "layers", describe_layers(e));
    describe_tensors(e, root);
    json_object_set_new(root, "memory", describe_memory(e));
    json_object_set_new(root, "identity", json_string(e->identity));
    json_object_set_new(root, "options", describe_options(options));
    *json = json_dumps(root, JSON_INDENT(2)); /* NULL as well when any part above ran out of memory */
    json_decref(root);
    return *json != NULL ? DI_OK : DI_FAIL(err, DI_ERR_NOMEM, "out of memory while describing the model");
}
