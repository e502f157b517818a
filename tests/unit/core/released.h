/* The released configuration (spec/model.md section 1) as data, for tests of core/. */
#ifndef DI_CORE_RELEASED_H
#define DI_CORE_RELEASED_H

#include "core/config.h"

static inline void released_config(struct di_config *c)
{
    *c = (struct di_config){
        .bos_token_id = 0,
        .eos_token_id = 1,
        .pad_token_id = 2,
        .image_token_id = 129264,
        .vocab_size = 129280,
        .hidden_size = 5120,
        .num_hidden_layers = 40,
        .num_attention_heads = 64,
        .head_dim = 512,
        .qk_rope_head_dim = 64,
        .q_lora_rank = 1280,
        .o_lora_rank = 1024,
        .o_groups = 8,
        .moe_intermediate_size = 2304,
        .n_routed_experts = 384,
        .n_shared_experts = 1,
        .num_experts_per_tok = 6,
        .routed_scaling_factor = 1.5,
        .gate_temp = 1.0,
        .swiglu_limit = 10.0,
        .rms_norm_eps = 1e-20,
        .max_position_embeddings = 1048576,
        .sliding_window = 128,
        .rope_theta = 10000,
        .compress_rope_theta = 160000,
        .rope_scaling = {true, 16, 32, 1, 65536},
        .n_kv_sources = 4,
        .kv_source_layer_ids = {2, 8, 14, 20},
        .n_index_sources = 8,
        .index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36},
        .candidate_source_layer_id = 20,
        .candidate_topk_blocks = 2048,
        .candidate_block_size = 8,
        .index_n_heads = 32,
        .index_head_dim = 128,
        .index_topk = 512,
        .hc_mult = 4,
        .hc_sinkhorn_iters = 20,
        .hc_eps = 1e-6,
        .n_engram_layers = 2,
        .engram_layer_ids = {1, 14},
        .engram_num_embeddings = {384006168, 384016682},
        .engram_max_ngram_size = 4,
        .engram_n_heads = 8,
        .engram_head_dim = 256,
        .engram_vocab_size = 16000000,
        .engram_pad_token_id = 2,
        .engram_compressed_vocab_size = 99092,
        .num_nextn_predict_layers = 3,
        .dspark_block_size = 5,
        .dspark_noise_token_id = 128799,
        .dspark_markov_rank = 256,
        .dspark_n_routed_experts = 128,
        .dspark_num_experts_per_tok = 3,
        .n_dspark_targets = 3,
        .dspark_target_layer_ids = {37, 38, 39},
    };
    for (int32_t i = 2; i < 40; i++)
        c->compress_ratios[i] = i < 20 ? 2 : 1;
}

#endif
