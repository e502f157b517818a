"""The shape of models/tiny: the architecture at small size, everything in force (Engram, YaRN, candidates, both ratios)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batches import Mix
from model import Config, engram_constants

TEXT = {
    "model_type": "deepseek_v41_text",
    "vocab_size": 4096,
    "hidden_size": 256,
    "num_hidden_layers": 10,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "qk_rope_head_dim": 32,
    "q_lora_rank": 128,
    "o_lora_rank": 64,
    "o_groups": 2,
    "moe_intermediate_size": 96,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-20,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "initializer_range": 0.02,
    "max_position_embeddings": 8192,
    "sliding_window": 128,
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 256,
    },
    "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 1, 1],
    "kv_source_layer_ids": [2, 5],
    "index_source_layer_ids": [2, 5, 8],
    "candidate_source_layer_id": 5,
    "candidate_topk_blocks": 64,
    "candidate_block_size": 8,
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_topk": 64,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-06,
    "engram_layer_ids": [1, 4],
    "engram_max_ngram_size": 3,
    "engram_n_heads": 2,
    "engram_head_dim": 32,
    "engram_vocab_size": 4000,
    "engram_pad_token_id": 2,
    "num_nextn_predict_layers": 0,
    "dspark_target_layer_ids": [],
}


def config_json(tokens: np.ndarray) -> dict:
    """config.json in the released layout; what follows from the tokenizer's token map is filled in."""
    text = dict(TEXT, engram_compressed_vocab_size=int(tokens.max()) + 1, engram_num_embeddings=[0] * 2)
    rows = [int(c["primes"].sum()) for c in engram_constants(Config.from_dict(text))]
    text["engram_num_embeddings"] = rows
    return {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "image_token_id": 10,
        "tie_word_embeddings": False,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": text,
    }


@dataclass
class Stage:
    mix: Mix
    steps: int
    tokens: int = 32768  # of a batch
    peak: float = 3e-3  # learning rate
    answer_weight: float = 4.0
    sparse: bool = False
    indexer_only: bool = False
    final: bool = False
    report: int = 250


SHORT = {"recall": 0.44, "copy": 0.1, "arithmetic": 0.16, "json": 0.1, "chat": 0.12, "tale": 0.05, "novel": 0.03}
LONG = {"recall": 0.7, "copy": 0.04, "arithmetic": 0.08, "json": 0.05, "chat": 0.07, "tale": 0.03, "novel": 0.03}

STAGES = [
    Stage(Mix(512, SHORT), 1600),
    Stage(Mix(4608, LONG), 600, tokens=36864, peak=1.5e-3),
    Stage(Mix(4608, LONG), 150, tokens=9216, peak=3e-3, indexer_only=True, report=50),
    Stage(Mix(4608, LONG), 100, tokens=9216, peak=5e-4, sparse=True, report=50),
]

JUDGED = {
    "recall": Mix(512, {"recall": 1.0}),
    "far recall": Mix(4608, {"recall": 1.0}),
    **{task: Mix(512, {task: 1.0}) for task in ("copy", "arithmetic", "chat")},
    "novel": Mix(4608, {"novel": 1.0}),
}
