"""Makes a golden set of a shape of one's choice: a tiny random checkpoint in the released format, and what an independent
implementation computes on it.

    python tools/oracle/make_set.py odd-a tests/data/goldens/odd-a

The implementation is tools/train/model.py (PyTorch, float32), which shares no code with the engine and is itself held
against the goldens of the `transformers` implementation by tools/train/check_goldens.py. Random weights are scaled so that
clamps, sinks, gates and selections all matter. The tokenizer is that of the set `micro`, cut or kept as it is (600 tokens).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "train"))

import checkpoint  # noqa: E402
import recipe  # noqa: E402
from model import Backbone, Config, engram_constants, token_map  # noqa: E402

MICRO = ROOT / "tests" / "data" / "goldens" / "micro"
COMMON = {"vocab_size": 600, "hidden_size": 64, "max_position_embeddings": 1024, "q_lora_rank": 32, "o_lora_rank": 32,
          "moe_intermediate_size": 32}  # fmt: skip
SHAPES = {
    # two streams, one output group, wide rotation, no Engram, no candidates, no YaRN, ratio 1 before ratio 2
    "odd-a": COMMON
    | {
        "num_hidden_layers": 5, "num_attention_heads": 3, "head_dim": 96, "qk_rope_head_dim": 64, "o_groups": 1,
        "n_routed_experts": 12, "num_experts_per_tok": 3, "sliding_window": 32, "compress_ratios": [0, 1, 1, 2, 2],
        "kv_source_layer_ids": [1, 3], "index_source_layer_ids": [1, 3, 4], "candidate_source_layer_id": -1,
        "index_n_heads": 3, "index_head_dim": 64, "index_topk": 16, "hc_mult": 2, "hc_sinkhorn_iters": 7,
        "engram_layer_ids": [], "engram_num_embeddings": [], "rope_scaling": None, "swiglu_limit": 3.0,
        "routed_scaling_factor": 2.5,
    },
    # three streams, one table of 5-grams in the first layer, candidates in the only source, window of one page's remainder
    "odd-b": COMMON
    | {
        "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 32, "qk_rope_head_dim": 16, "o_groups": 4,
        "n_routed_experts": 5, "num_experts_per_tok": 1, "sliding_window": 5, "compress_ratios": [1, 1, 1, 1],
        "kv_source_layer_ids": [0], "index_source_layer_ids": [0, 2, 3], "candidate_source_layer_id": 0,
        "candidate_topk_blocks": 7, "candidate_block_size": 3, "index_n_heads": 1, "index_head_dim": 32, "index_topk": 6,
        "hc_mult": 3, "engram_layer_ids": [0], "engram_max_ngram_size": 5, "engram_n_heads": 1, "engram_head_dim": 32,
        "engram_vocab_size": 200, "engram_num_embeddings": [0],
        "rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 16, "beta_slow": 2, "original_max_position_embeddings": 128},
    },
}  # fmt: skip
LENGTH = 150


def randomise(model: Backbone) -> None:
    """Weights far from their initial values, so that nothing is the identity."""
    with torch.no_grad():
        for key, p in model.params.items():
            name = key.replace("/", ".")
            if "norm" in name or name.endswith(("q_weight", "k_weight")):
                p.copy_(1 + 0.3 * torch.randn_like(p))
            elif name.endswith(("hc_attn_fn", "hc_ffn_fn")):
                p.mul_(10)
            elif name.endswith(("_base", "gate.bias")):
                p.add_(0.3 * torch.randn_like(p))
            elif name.endswith("attn_sink"):
                p.copy_(torch.randn_like(p))
            elif ".ffn." in name and "gate" not in name:
                p.mul_(3)
            elif name == "head.weight":
                p.mul_(20)
            if not (checkpoint.is_fp8(name) or ".experts." in name or name.endswith(checkpoint.ENGRAM_TABLE) or "hc_" in name
                    or name.endswith(("attn_sink", "gate.bias"))):  # fmt: skip
                p.copy_(p.bfloat16().float())


@torch.no_grad()
def golden(folder: Path, ids: list[int], kv_quant: bool, steps: int) -> dict[str, torch.Tensor]:
    """Everything that model.py records, logits, and a greedy continuation (by running the longer prompt anew)."""
    model = checkpoint.load(folder).eval()
    model.sparse, model.kv_quant, model.record = True, kv_quant, {}
    logits = model(torch.tensor([ids]))[0][0]
    out = dict(model.record)
    model.record = None
    two = logits.topk(2, -1).values
    out |= {
        "input_ids": torch.tensor(ids).int(),
        "positions": torch.arange(len(ids)).int(),
        "logits.last16": logits[-16:],
        "argmax": logits.argmax(-1).int(),
        "argmax.margin": two[:, 0] - two[:, 1],
    }
    for layer in model.cfg.kv_source_layer_ids:
        out[f"layers.{layer}.compressed.groups"] = torch.arange(len(ids) // model.cfg.compress_ratios[layer]).int()
    rows, longer = [logits[-1]], list(ids)
    for _ in range(steps - 1):
        longer.append(int(rows[-1].argmax()))
        rows.append(model(torch.tensor([longer]))[0][0, -1])
    top = torch.stack(rows).topk(8, -1)
    out |= {"greedy.ids": top.indices[:, 0].int(), "greedy.top8.ids": top.indices.int(), "greedy.top8.logits": top.values}
    return {k: v.contiguous() for k, v in out.items()}


def main(name: str, folder: Path) -> None:
    torch.manual_seed(sum(name.encode()))
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(MICRO / "tokenizer.json", folder / "tokenizer.json")
    tokens = token_map(Tokenizer.from_file(str(folder / "tokenizer.json")))
    text = dict(recipe.TEXT) | {"engram_compressed_vocab_size": int(tokens.max()) + 1} | SHAPES[name]
    if text["engram_layer_ids"]:
        text["engram_num_embeddings"] = [int(c["primes"].sum()) for c in engram_constants(Config.from_dict(text))]
        config_text = text
    else:
        config_text = {k: v for k, v in text.items() if not k.startswith("engram_")} | {"engram_layer_ids": []}
    config = recipe.config_json(tokens) | {"image_token_id": 7, "text_config": config_text}
    model = Backbone(Config.from_dict(text), tokens)
    randomise(model)
    checkpoint.export(model, folder, config)
    (folder / "model-00001-of-00001.safetensors").rename(folder / "model.safetensors")
    (folder / "model.safetensors.index.json").unlink()
    rng = np.random.default_rng(len(name))
    ids = [0] + [int(i) for i in rng.integers(8, 600, LENGTH - 1)]
    if LENGTH >= 90:
        ids[60:90] = ids[20:50]  # something to find again
    save_file(golden(folder, ids, False, 64), folder / "golden_kvfp32.safetensors")
    save_file(golden(folder, ids, True, 16), folder / "golden.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
