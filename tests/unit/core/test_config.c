/* di_config_validate: the released values pass, and every rule refuses its own breach by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "released.h"

static void expect_refusal(const struct di_config *config, const char *field, const char *value)
{
    struct di_error err = {0};
    assert_int_not_equal(di_config_validate(config, &err), DI_OK);
    assert_int_equal(di_config_validate(config, NULL), err.code);
    if (strstr(err.message, field) == NULL || strstr(err.message, value) == NULL)
        fail_msg("\"%s\" names neither %s nor %s", err.message, field, value);
}

static void released_values_pass(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct di_config c;
    released_config(&c);
    if (di_config_validate(&c, &err) != DI_OK)
        fail_msg("%s", err.message);
}

#define INT(field, bad) {#field, #bad, offsetof(struct di_config, field), (bad)}

static void every_integer_is_checked(void **state)
{
    (void)state;
    const struct {
        const char *field, *value;
        size_t offset;
        int32_t bad;
    } cases[] = {
        INT(vocab_size, 0),
        INT(vocab_size, 2147483647),
        INT(hidden_size, 0),
        INT(hidden_size, -32),
        INT(hidden_size, 5136), /* a multiple of 16 only */
        INT(hidden_size, 1048576),
        INT(num_hidden_layers, 0),
        INT(num_hidden_layers, 257),
        INT(num_attention_heads, 0),
        INT(num_attention_heads, 63), /* not divisible by o_groups */
        INT(head_dim, 0),
        INT(head_dim, 528),
        INT(head_dim, 2048),
        INT(qk_rope_head_dim, 0),
        INT(qk_rope_head_dim, 63),
        INT(qk_rope_head_dim, 514), /* more than head_dim */
        INT(qk_rope_head_dim, 130), /* more than index_head_dim */
        INT(q_lora_rank, 0),
        INT(q_lora_rank, 1281),
        INT(o_lora_rank, 1000),
        INT(o_groups, 0),
        INT(o_groups, 65),
        INT(o_groups, 7),
        INT(moe_intermediate_size, 0),
        INT(moe_intermediate_size, 2300),
        INT(n_routed_experts, 0),
        INT(n_shared_experts, 0),
        INT(n_shared_experts, 2),
        INT(num_experts_per_tok, 0),
        INT(num_experts_per_tok, 385),
        INT(sliding_window, 0),
        INT(sliding_window, -128),
        INT(candidate_source_layer_id, 40),
        INT(candidate_source_layer_id, -2),
        INT(candidate_source_layer_id, 21), /* no index source */
        INT(candidate_source_layer_id, 14), /* layer 20 and behind read other entries */
        INT(candidate_topk_blocks, 0),
        INT(candidate_block_size, 0),
        INT(candidate_block_size, 1048576), /* x 2048 blocks is 2^31 */
        INT(index_n_heads, 0),
        INT(index_head_dim, 0),
        INT(index_head_dim, 136),
        INT(index_topk, 0),
        INT(hc_mult, 0),
        INT(hc_mult, 9),
        INT(hc_sinkhorn_iters, 0),
        INT(engram_max_ngram_size, 1),
        INT(engram_max_ngram_size, 9),
        INT(engram_n_heads, 0),
        INT(engram_n_heads, 64), /* 192 columns */
        INT(engram_head_dim, 0),
        INT(engram_head_dim, 40),
        INT(engram_pad_token_id, -1),
        INT(engram_pad_token_id, 129280),
        INT(engram_compressed_vocab_size, 0),
        INT(engram_compressed_vocab_size, 129281),
        INT(bos_token_id, 129280),
        INT(eos_token_id, -2),
        INT(pad_token_id, 129280),
        INT(image_token_id, 129280),
        INT(num_nextn_predict_layers, -1),
        INT(num_nextn_predict_layers, 17),
        INT(dspark_block_size, 0),
        INT(dspark_noise_token_id, 129280),
        INT(dspark_markov_rank, 0),
        INT(dspark_num_experts_per_tok, 0),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct di_config c;
        released_config(&c);
        memcpy((char *)&c + cases[i].offset, &cases[i].bad, sizeof cases[i].bad);
        expect_refusal(&c, cases[i].field, cases[i].value);
    }
}

static void every_real_is_checked(void **state)
{
    (void)state;
    const struct {
        const char *field;
        size_t offset;
    } fields[] = {
        {"rms_norm_eps", offsetof(struct di_config, rms_norm_eps)},
        {"hc_eps", offsetof(struct di_config, hc_eps)},
        {"gate_temp", offsetof(struct di_config, gate_temp)},
        {"swiglu_limit", offsetof(struct di_config, swiglu_limit)},
        {"routed_scaling_factor", offsetof(struct di_config, routed_scaling_factor)},
        {"rope_theta", offsetof(struct di_config, rope_theta)},
        {"compress_rope_theta", offsetof(struct di_config, compress_rope_theta)},
        {"rope_scaling.factor", offsetof(struct di_config, rope_scaling.factor)},
        {"rope_scaling.beta_fast", offsetof(struct di_config, rope_scaling.beta_fast)},
        {"rope_scaling.beta_slow", offsetof(struct di_config, rope_scaling.beta_slow)},
    };
    const double bad[] = {0.0, -1.0, (double)NAN, (double)INFINITY, -(double)INFINITY, 1e-60, 1e300};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        for (size_t j = 0; j < sizeof bad / sizeof bad[0]; j++) {
            struct di_config c;
            released_config(&c);
            char value[32];
            memcpy((char *)&c + fields[i].offset, &bad[j], sizeof bad[j]);
            snprintf(value, sizeof value, "%g", bad[j]);
            expect_refusal(&c, fields[i].field, value);
        }
    }
    struct di_config c;
    released_config(&c);
    c.compress_rope_theta = 1.0; /* its logarithm divides the ramp */
    expect_refusal(&c, "compress_rope_theta", "1");
    released_config(&c);
    c.rope_scaling.beta_fast = 0.5; /* below beta_slow */
    expect_refusal(&c, "rope_scaling.beta_fast", "0.5");
    released_config(&c);
    c.rope_scaling.original_max_position_embeddings = 0;
    expect_refusal(&c, "original_max_position_embeddings", "0");
    c.rope_scaling.present = false; /* nobody reads it then */
    assert_int_equal(di_config_validate(&c, NULL), DI_OK);
    c.max_position_embeddings = 0;
    expect_refusal(&c, "max_position_embeddings", "0");
}

static void products_are_bounded(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    c.num_attention_heads = 1024;
    c.head_dim = 1024;
    assert_int_equal(di_config_validate(&c, NULL), DI_OK); /* the bound itself */
    released_config(&c);
    c.num_attention_heads = c.o_groups = 1024;
    c.o_lora_rank = 2048;
    expect_refusal(&c, "o_groups", "2097152");
    released_config(&c);
    c.engram_vocab_size = (int64_t)1 << 29;
    expect_refusal(&c, "engram_vocab_size", "536870912");
}

/* Fewer experts than are chosen: the message names the choice and its bound. */
static void enough_experts_to_choose_from(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    c.n_routed_experts = 5;
    expect_refusal(&c, "num_experts_per_tok is 6", "1..5");
    released_config(&c);
    c.dspark_n_routed_experts = 2;
    expect_refusal(&c, "dspark_num_experts_per_tok is 3", "1..2");
}

static void lists_are_checked(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    c.compress_ratios[5] = 3;
    expect_refusal(&c, "compress_ratios[5]", "3");
    released_config(&c);
    c.compress_ratios[5] = -1;
    expect_refusal(&c, "compress_ratios[5]", "-1");
    released_config(&c);
    c.kv_source_layer_ids[3] = 40;
    expect_refusal(&c, "kv_source_layer_ids[3]", "40");
    released_config(&c);
    c.kv_source_layer_ids[0] = -1;
    expect_refusal(&c, "kv_source_layer_ids[0]", "-1");
    released_config(&c);
    c.kv_source_layer_ids[2] = 8; /* twice */
    expect_refusal(&c, "kv_source_layer_ids[2]", "8");
    released_config(&c);
    c.index_source_layer_ids[1] = 2;
    expect_refusal(&c, "index_source_layer_ids[1]", "2");
    released_config(&c);
    c.index_source_layer_ids[7] = 99;
    expect_refusal(&c, "index_source_layer_ids[7]", "99");
    released_config(&c);
    c.engram_layer_ids[1] = 40;
    expect_refusal(&c, "engram_layer_ids[1]", "40");
    released_config(&c);
    c.engram_layer_ids[1] = 1;
    expect_refusal(&c, "engram_layer_ids[1]", "1");
    released_config(&c);
    c.dspark_target_layer_ids[2] = 40;
    expect_refusal(&c, "dspark_target_layer_ids[2]", "40");
    /* lengths that a caller could get wrong without a file */
    released_config(&c);
    c.n_kv_sources = 1000;
    expect_refusal(&c, "kv_source_layer_ids", "1000");
    released_config(&c);
    c.n_index_sources = -1;
    expect_refusal(&c, "index_source_layer_ids", "-1");
    released_config(&c);
    c.n_engram_layers = 9;
    expect_refusal(&c, "engram_layer_ids", "9");
    released_config(&c);
    c.n_dspark_targets = 0;
    expect_refusal(&c, "dspark_target_layer_ids", "0");
}

static void sources_must_fit_each_other(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    c.kv_source_layer_ids[0] = 3; /* layer 2 has entries to read but no source yet */
    c.index_source_layer_ids[0] = 3;
    expect_refusal(&c, "kv_source_layer_ids", "layer 2");
    released_config(&c);
    c.kv_source_layer_ids[0] = 0;
    c.index_source_layer_ids[0] = 0;
    expect_refusal(&c, "kv_source_layer_ids[0]", "compress_ratios entry is 0");
    released_config(&c);
    c.n_kv_sources = 3; /* ratio 1 from layer 20 on, its source would be layer 14 */
    expect_refusal(&c, "compress_ratios[20]", "layer 14");
    released_config(&c);
    c.compress_ratios[10] = 1; /* reads layer 8 */
    expect_refusal(&c, "compress_ratios[10]", "layer 8");
    released_config(&c);
    c.index_source_layer_ids[1] = 9; /* layer 8 is a KV source, but no index source */
    expect_refusal(&c, "kv_source_layer_ids[1]", "index_source_layer_ids");
    released_config(&c);
    c.compress_ratios[24] = 0;
    expect_refusal(&c, "index_source_layer_ids[4]", "24");
    released_config(&c);
    c.n_kv_sources = 0;
    expect_refusal(&c, "kv_source_layer_ids", "layer 2");
    memset(c.compress_ratios, 0, sizeof c.compress_ratios); /* a window-only model */
    c.n_index_sources = 0;
    expect_refusal(&c, "candidate_source_layer_id", "20");
    c.candidate_source_layer_id = -1;
    assert_int_equal(di_config_validate(&c, NULL), DI_OK);
}

static void engram_rows_must_be_the_primes_sum(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    c.engram_num_embeddings[1] = 384016683;
    expect_refusal(&c, "engram_num_embeddings[1] is 384016683", "384016682");
    c.engram_num_embeddings[1] = 0;
    expect_refusal(&c, "engram_num_embeddings[1]", "0");
    c.engram_num_embeddings[1] = (int64_t)1 << 31;
    expect_refusal(&c, "engram_num_embeddings[1]", "2147483648");
    c.n_engram_layers = 0; /* no Engram: its fields are not read */
    assert_int_equal(di_config_validate(&c, NULL), DI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_values_pass),          cmocka_unit_test(every_integer_is_checked),
        cmocka_unit_test(every_real_is_checked),         cmocka_unit_test(products_are_bounded),
        cmocka_unit_test(enough_experts_to_choose_from), cmocka_unit_test(lists_are_checked),
        cmocka_unit_test(sources_must_fit_each_other),   cmocka_unit_test(engram_rows_must_be_the_primes_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
