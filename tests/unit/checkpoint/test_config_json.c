/* di_config_parse: the released file, its defaults, and every value that is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "folder.h"

#define RELEASED DI_SOURCE_DIR "/fuzz/corpus/config/released.json"

static json_t *load(const char *path)
{
    json_error_t where;
    json_t *root = json_load_file(path, 0, &where);
    if (root == NULL)
        fail_msg("%s: %s", path, where.text);
    return root;
}

/* Sets the field at a dotted path to a JSON text; NULL removes it. */
static void change(json_t *root, const char *path, const char *value)
{
    char name[128];
    snprintf(name, sizeof name, "%s", path);
    char *key = name;
    for (char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        *dot = '\0';
        root = json_object_get(root, key);
        assert_non_null(root);
    }
    if (value == NULL)
        assert_int_equal(json_object_del(root, key), 0);
    else
        assert_int_equal(json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
}

static di_status parse(json_t *root, struct di_config *out, struct di_error *err)
{
    char *text = json_dumps(root, 0);
    di_status status = di_config_parse(text, strlen(text), "some/config.json", out, err);
    free(text);
    return status;
}

static void parse_ok(json_t *root, struct di_config *out)
{
    struct di_error err = {0};
    if (parse(root, out, &err) != DI_OK)
        fail_msg("%s", err.message);
}

static void released_file(void **state)
{
    (void)state;
    struct di_config c;
    json_t *root = load(RELEASED);
    parse_ok(root, &c);
    assert_int_equal(c.hidden_size, 5120);
    assert_int_equal(c.num_hidden_layers, 40);
    assert_true(c.rms_norm_eps == 1e-20);
    assert_true(c.gate_temp == 1.0);
    assert_true(c.has_vision);
    assert_true(c.rope_scaling.present);
    assert_int_equal(c.rope_scaling.original_max_position_embeddings, 65536);
    assert_int_equal(c.compress_ratios[19], 2);
    assert_int_equal(c.compress_ratios[39], 1);
    assert_int_equal(c.n_kv_sources, 4);
    assert_int_equal(c.n_index_sources, 8);
    assert_int_equal(c.engram_num_embeddings[1], 384016682);
    assert_int_equal(c.engram_pad_token_id, 2);
    assert_int_equal(c.image_token_id, 129264);
    assert_int_equal(c.num_nextn_predict_layers, 3);
    assert_int_equal(c.dspark_noise_token_id, 128799);
    json_decref(root);
}

static void optional_fields(void **state)
{
    (void)state;
    static const char *const absent[] = {
        "architectures",
        "vision_config",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "image_token_id",
        "quantization_config.activation_scheme",
        "text_config.hidden_act",
        "text_config.norm_topk_prob",
        "text_config.attention_bias",
        "text_config.tie_word_embeddings",
        "text_config.num_key_value_heads",
        "text_config.rope_scaling",
    };
    struct di_config c;
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        json_t *root = load(RELEASED);
        change(root, absent[i], NULL);
        parse_ok(root, &c);
        json_decref(root);
    }
    json_t *root = load(RELEASED);
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        change(root, absent[i], "null");
    parse_ok(root, &c);
    assert_false(c.has_vision || c.rope_scaling.present);
    assert_int_equal(c.bos_token_id, -1);
    assert_int_equal(c.image_token_id, -1);
    change(root, "text_config.rope_scaling", "{\"rope_type\":\"default\"}");
    parse_ok(root, &c);
    assert_false(c.rope_scaling.present);
    change(root, "text_config.gate_temp", "2.5");
    parse_ok(root, &c);
    assert_true(c.gate_temp == 2.5);
    change(root, "text_config.engram_layer_ids", "[]");
    parse_ok(root, &c);
    assert_int_equal(c.n_engram_layers, 0);
    /* no candidate pool */
    change(root, "text_config.candidate_source_layer_id", NULL);
    change(root, "text_config.candidate_topk_blocks", NULL);
    change(root, "text_config.candidate_block_size", NULL);
    parse_ok(root, &c);
    assert_int_equal(c.candidate_source_layer_id, -1);
    json_decref(root);
}

static void without_draft_layers(void **state)
{
    (void)state;
    static const char *const fields[] = {"block_size",       "noise_token_id",   "markov_rank",
                                         "n_routed_experts", "target_layer_ids", "num_experts_per_tok"};
    struct di_config c;
    json_t *root = load(RELEASED);
    change(root, "text_config.num_nextn_predict_layers", NULL);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "text_config.dspark_%s", fields[i]);
        change(root, path, NULL);
    }
    struct di_error err = {0};
    assert_int_equal(parse(root, &c, &err), DI_ERR_FORMAT); /* 43 ratios are now three too many */
    assert_message(&err, "compress_ratios has 43 entries");
    json_t *ratios = json_object_get(json_object_get(root, "text_config"), "compress_ratios");
    for (int i = 0; i < 3; i++)
        json_array_remove(ratios, 40);
    parse_ok(root, &c);
    assert_int_equal(c.num_nextn_predict_layers, 0);
    json_decref(root);
    root = load(RELEASED); /* with draft layers, their entries may be left out */
    ratios = json_object_get(json_object_get(root, "text_config"), "compress_ratios");
    for (int i = 0; i < 3; i++)
        json_array_remove(ratios, 40);
    parse_ok(root, &c);
    json_decref(root);
}

#define E "engram_"
static void every_refusal_names_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *culprit, *seen;
    } cases[] = {
        {"model_type", "\"deepseek_v3\"", "model_type", "deepseek_v3"},
        {"model_type", NULL, "model_type", "missing"},
        {"model_type", "3", "model_type", "an integer"},
        {"architectures", "[\"LlamaForCausalLM\"]", "architectures", "LlamaForCausalLM"},
        {"architectures", "[]", "architectures", "one string"},
        {"architectures", "\"x\"", "architectures", "one string"},
        {"tie_word_embeddings", "true", "tie_word_embeddings", "true"},
        {"bos_token_id", "\"0\"", "bos_token_id", "a string"},
        {"bos_token_id", "4294967296", "bos_token_id", "4294967296"},
        {"eos_token_id", "[1,2]", "eos_token_id", "a list"},
        {"vision_config", "true", "vision_config", "a boolean"},
        {"text_config", NULL, "text_config", "missing"},
        {"text_config", "[]", "text_config", "a list"},
        {"quantization_config", NULL, "quantization_config", "missing"},
        {"quantization_config.quant_method", "\"awq\"", "quantization_config.quant_method", "awq"},
        {"quantization_config.quant_method", NULL, "quantization_config.quant_method", "missing"},
        {"quantization_config.scale_fmt", "\"fp32\"", "quantization_config.scale_fmt", "fp32"},
        {"quantization_config.scale_fmt", NULL, "quantization_config.scale_fmt", "missing"},
        {"quantization_config.expert_dtype", "\"int4\"", "quantization_config.expert_dtype", "int4"},
        {"quantization_config.expert_dtype", NULL, "quantization_config.expert_dtype", "missing"},
        {"quantization_config.activation_scheme", "\"static\"", "activation_scheme", "static"},
        {"quantization_config.weight_block_size", "[128,128]", "weight_block_size", "[128, 128]"},
        {"quantization_config.weight_block_size", "[32,16]", "weight_block_size", "[32, 16]"},
        {"quantization_config.weight_block_size", "[32]", "weight_block_size", "1 entries"},
        {"quantization_config.weight_block_size", "[32,32,32]", "weight_block_size", "3 entries"},
        {"quantization_config.weight_block_size", NULL, "weight_block_size", "missing"},
        {"text_config.scoring_func", "\"sigmoid\"", "text_config.scoring_func", "sigmoid"},
        {"text_config.scoring_func", NULL, "text_config.scoring_func", "missing"},
        {"text_config.topk_method", "\"greedy\"", "text_config.topk_method", "greedy"},
        {"text_config.norm_topk_prob", "false", "text_config.norm_topk_prob", "false"},
        {"text_config.hidden_act", "\"gelu\"", "text_config.hidden_act", "gelu"},
        {"text_config.tie_word_embeddings", "true", "text_config.tie_word_embeddings", "true"},
        {"text_config.attention_bias", "true", "text_config.attention_bias", "true"},
        {"text_config.num_key_value_heads", "8", "text_config.num_key_value_heads", "8"},
        {"text_config.n_shared_experts", "2", "n_shared_experts", "2"},
        {"text_config.n_shared_experts", NULL, "text_config.n_shared_experts", "missing"},
        {"text_config.hidden_size", NULL, "text_config.hidden_size", "missing"},
        {"text_config.hidden_size", "5120.0", "text_config.hidden_size", "a number"},
        {"text_config.hidden_size", "5000", "hidden_size", "5000"},
        {"text_config.num_hidden_layers", "257", "text_config.num_hidden_layers", "257"},
        {"text_config.num_hidden_layers", "41", "text_config.compress_ratios", "43 entries"},
        {"text_config.rms_norm_eps", NULL, "text_config.rms_norm_eps", "missing"},
        {"text_config.rms_norm_eps", "0", "rms_norm_eps", "0"},
        {"text_config.gate_temp", "\"1\"", "text_config.gate_temp", "a string"},
        {"text_config.rope_scaling", "7", "text_config.rope_scaling", "an integer"},
        {"text_config.rope_scaling.rope_type", "\"linear\"", "text_config.rope_scaling.rope_type", "linear"},
        {"text_config.rope_scaling.rope_type", NULL, "text_config.rope_scaling.rope_type", "missing"},
        {"text_config.rope_scaling.factor", NULL, "text_config.rope_scaling.factor", "missing"},
        {"text_config.rope_scaling.factor", "0.5", "rope_scaling.factor", "0.5"},
        {"text_config.rope_scaling.attention_factor", "0.8", "rope_scaling.attention_factor", "0.8"},
        {"text_config.rope_scaling.mscale", "0.707", "rope_scaling.mscale", "0.707"},
        {"text_config.compress_ratios", "[0,0,2]", "text_config.compress_ratios", "3 entries"},
        {"text_config.compress_ratios", NULL, "text_config.compress_ratios", "missing"},
        {"text_config.compress_ratios", "[0,\"x\"]", "text_config.compress_ratios[1]", "a string"},
        {"text_config.kv_source_layer_ids", NULL, "text_config.kv_source_layer_ids", "missing"},
        {"text_config.kv_source_layer_ids", "[2,8,14,99]", "kv_source_layer_ids[3]", "99"},
        {"text_config.kv_source_layer_ids", "[2,8,14,9999999999]", "kv_source_layer_ids[3]", "9999999999"},
        {"text_config.index_source_layer_ids", "[2,8,14,-1]", "index_source_layer_ids[3]", "-1"},
        {"text_config.candidate_source_layer_id", "21", "candidate_source_layer_id", "21"},
        {"text_config.candidate_topk_blocks", NULL, "text_config.candidate_topk_blocks", "missing"},
        {"text_config.candidate_block_size", NULL, "text_config.candidate_block_size", "missing"},
        {"text_config." E "layer_ids", "\"1,14\"", "text_config." E "layer_ids", "a string"},
        {"text_config." E "layer_ids", NULL, "text_config." E "layer_ids", E "num_embeddings is there"},
        {"text_config." E "num_embeddings", NULL, "text_config." E "num_embeddings", "missing"},
        {"text_config." E "num_embeddings", "[384006168]", "text_config." E "num_embeddings", "1 entries"},
        {"text_config." E "num_embeddings", "[384006168,384006168]", E "num_embeddings[1]", "384016682"},
        {"text_config." E "max_ngram_size", NULL, "text_config." E "max_ngram_size", "missing"},
        {"text_config." E "n_heads", NULL, "text_config." E "n_heads", "missing"},
        {"text_config." E "head_dim", NULL, "text_config." E "head_dim", "missing"},
        {"text_config." E "vocab_size", NULL, "text_config." E "vocab_size", "missing"},
        {"text_config." E "pad_token_id", NULL, "text_config." E "pad_token_id", "missing"},
        {"text_config." E "compressed_vocab_size", NULL, "text_config." E "compressed_vocab_size", "missing"},
        {"text_config.num_nextn_predict_layers", "-1", "text_config.num_nextn_predict_layers", "-1"},
        {"text_config.dspark_block_size", NULL, "text_config.dspark_block_size", "missing"},
        {"text_config.dspark_noise_token_id", NULL, "text_config.dspark_noise_token_id", "missing"},
        {"text_config.dspark_markov_rank", NULL, "text_config.dspark_markov_rank", "missing"},
        {"text_config.dspark_n_routed_experts", NULL, "text_config.dspark_n_routed_experts", "missing"},
        {"text_config.dspark_num_experts_per_tok", NULL, "text_config.dspark_num_experts_per_tok", "missing"},
        {"text_config.dspark_target_layer_ids", NULL, "text_config.dspark_target_layer_ids", "missing"},
        {"text_config.dspark_target_layer_ids", "[37,38,40]", "dspark_target_layer_ids[2]", "40"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct di_config c;
        struct di_error err = {0};
        json_t *root = load(RELEASED);
        change(root, cases[i].path, cases[i].value);
        di_status status = parse(root, &c, &err);
        if (status == DI_OK)
            fail_msg("accepted: %s = %s", cases[i].path, cases[i].value != NULL ? cases[i].value : "(absent)");
        assert_int_equal(status, err.code);
        assert_message(&err, "some/config.json");
        assert_message(&err, cases[i].culprit);
        assert_message(&err, cases[i].seen);
        json_decref(root);
    }
}

static void misplaced_and_misnamed_keys_get_a_hint(void **state)
{
    (void)state;
    struct di_config c;
    struct di_error err = {0};
    json_t *root = load(RELEASED), *quantization = json_incref(json_object_get(root, "quantization_config"));
    json_object_del(root, "quantization_config");
    json_object_set_new(json_object_get(root, "text_config"), "quantization_config", quantization);
    assert_int_equal(parse(root, &c, &err), DI_ERR_FORMAT);
    assert_message(&err, "quantization_config is missing: it belongs to the top level");
    json_decref(root);
    root = load(RELEASED);
    change(root, "text_config.engram_pad_token_id", NULL);
    change(root, "text_config.engram_pad_id", "2");
    assert_int_equal(parse(root, &c, &err), DI_ERR_FORMAT);
    assert_message(&err, "text_config.engram_pad_token_id");
    assert_message(&err, "not engram_pad_id");
    json_decref(root);
    root = load(RELEASED); /* a draft layer with entries of its own */
    json_array_set_new(json_object_get(json_object_get(root, "text_config"), "compress_ratios"), 42, json_integer(2));
    assert_int_equal(parse(root, &c, &err), DI_ERR_UNSUPPORTED);
    assert_message(&err, "compress_ratios[42] is 2");
    json_decref(root);
}

static void not_an_object(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "[]", "null", "{", "{\"model_type\":1,\"model_type\":1}", "{} x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct di_config c;
        struct di_error err = {0};
        assert_int_equal(di_config_parse(texts[i], strlen(texts[i]), "some/config.json", &c, &err), DI_ERR_FORMAT);
        assert_message(&err, "some/config.json");
    }
}

static void checked_in_models(void **state)
{
    (void)state;
    static const char *const paths[] = {DI_TEST_DATA "/goldens/micro/config.json",
                                        DI_TEST_DATA "/goldens/small/config.json",
                                        DI_TEST_DATA "/goldens/odd-a/config.json",
                                        DI_TEST_DATA "/goldens/odd-b/config.json",
                                        DI_SOURCE_DIR "/fuzz/corpus/config/window_only.json",
                                        DI_SOURCE_DIR "/fuzz/corpus/config/bounds.json", /* every bound of validation */
                                        DI_SOURCE_DIR "/fuzz/corpus/config/many_primes.json"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct di_config c;
        json_t *root = load(paths[i]);
        parse_ok(root, &c);
        assert_false(c.has_vision);
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_file),
        cmocka_unit_test(optional_fields),
        cmocka_unit_test(without_draft_layers),
        cmocka_unit_test(every_refusal_names_its_field),
        cmocka_unit_test(misplaced_and_misnamed_keys_get_a_hint),
        cmocka_unit_test(not_an_object),
        cmocka_unit_test(checked_in_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
