"""Released checkpoint format <-> the training model (spec/model.md section 18)."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import quant
from model import Backbone, Config, token_map

ENGRAM_TABLE = "engram.embed.weight"


def is_fp8(name: str) -> bool:
    return name.endswith(".weight") and any(
        part in name
        for part in (".wq_a.", ".wq_b.", ".attn.wkv.", ".wo_a.", ".wo_b.", ".shared_experts.", ".engram.wkv.")
    )


def load(folder: Path) -> Backbone:
    """A checkpoint folder, dequantised to float32."""
    from tokenizers import Tokenizer

    config = json.loads((folder / "config.json").read_text())
    cfg = Config.from_dict(config["text_config"])
    tokens = token_map(Tokenizer.from_file(str(folder / "tokenizer.json"))) if cfg.engram_layer_ids else None
    tensors: dict[str, torch.Tensor] = {}
    for shard in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(shard)
    model = Backbone(cfg, tokens)
    with torch.no_grad():
        for key, parameter in model.params.items():
            name = key.replace("/", ".")
            if ".ffn.experts." in name:
                stem, w = name.rsplit(".", 1)
                value = torch.stack(
                    [
                        quant.load_fp4(tensors[f"{stem}.{e}.{w}.weight"], tensors[f"{stem}.{e}.{w}.scale"])
                        for e in range(cfg.n_routed_experts)
                    ]
                )
            elif name.endswith(ENGRAM_TABLE):
                value = quant.load_fp8(tensors[name], tensors[name.replace(".weight", ".scale")], 1)
            elif is_fp8(name):
                value = quant.load_fp8(tensors[name], tensors[name.replace(".weight", ".scale")], 32)
            else:
                value = tensors[name].float()
            parameter.copy_(value)
    return model


def export(model: Backbone, folder: Path, config: dict) -> None:
    """Quantises and writes the weights, the index and config.json."""
    out: dict[str, torch.Tensor] = {}
    for key, parameter in model.params.items():
        name, w = key.replace("/", "."), parameter.detach().float().cpu()
        if ".ffn.experts." in name:
            stem, part = name.rsplit(".", 1)
            for e in range(w.shape[0]):
                out[f"{stem}.{e}.{part}.weight"], out[f"{stem}.{e}.{part}.scale"] = quant.export_fp4_rows(w[e])
        elif name.endswith(ENGRAM_TABLE):
            out[name], out[name.replace(".weight", ".scale")] = quant.export_fp8_rows(w)
        elif is_fp8(name):
            out[name], out[name.replace(".weight", ".scale")] = quant.export_fp8_block(w)
        elif name.endswith("ffn.gate.bias"):
            out[name] = w
            out[name + "_vl"] = w.clone()
        elif "hc_" in name or name.endswith("attn_sink"):
            out[name] = w
        else:
            out[name] = w.bfloat16()
    folder.mkdir(parents=True, exist_ok=True)
    shard = "model-00001-of-00001.safetensors"
    save_file({k: v.contiguous() for k, v in out.items()}, folder / shard, {"format": "pt"})
    index = {
        "metadata": {"total_size": sum(v.numel() * v.element_size() for v in out.values())},
        "weight_map": {name: shard for name in sorted(out)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
