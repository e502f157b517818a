"""Trains the bundled model on one GPU and exports it.

    python train.py --data DATA --tokenizer TOKENIZER --out OUT [--seconds 500] [--steps 700]

Quantisation of weights, activations and caches (straight-through) is switched on for the last part of the run, so that
the exported model is the trained one. The exported checkpoint is read back and judged on the held-out text.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import checkpoint
import recipe
from model import Backbone, Config, token_map

LENGTH = 512


def encode(tok: Tokenizer, path: Path) -> np.ndarray:
    """Chapters as ids, an end-of-sequence token behind each."""
    ids = [i for text in path.read_text().split("\f") for i in tok.encode(text).ids + [1]]
    return np.array(ids, np.int64)


def windows(stream: np.ndarray, starts: np.ndarray) -> torch.Tensor:
    """Rows of a beginning-of-sequence token and LENGTH tokens."""
    rows = np.stack([np.concatenate([[0], stream[s : s + LENGTH]]) for s in starts])
    return torch.from_numpy(rows)


@torch.no_grad()
def bits_per_byte(model, stream: np.ndarray, size: int, device: str) -> float:
    """Every token of the stream predicted once, in windows that do not overlap; `size`: bytes of its text."""
    total, at = 0.0, 0
    starts = np.arange(0, len(stream) - LENGTH, LENGTH)
    for part in np.array_split(starts, math.ceil(len(starts) / 16)):
        rows = windows(stream, part).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits, _ = model(rows[:, :-1])
        total += F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="sum").item()
        at += rows[:, 1:].numel()
    return total / math.log(2) / (size * at / len(stream))


def rate(step: int, steps: int, peak: float) -> float:
    if step < 40:
        return peak * (step + 1) / 40
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - 40) / (steps - 40)))))


def main() -> None:
    a = argparse.ArgumentParser()
    a.add_argument("--data", type=Path, required=True)
    a.add_argument("--tokenizer", type=Path, required=True)
    a.add_argument("--out", type=Path, required=True)
    a.add_argument("--steps", type=int, default=700)
    a.add_argument("--batch", type=int, default=48)
    a.add_argument("--peak", type=float, default=3e-3)
    a.add_argument("--dropout", type=float, default=0.1)
    a.add_argument("--seconds", type=float, default=500.0, help="stop before the schedule's end if it takes longer")
    args = a.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    torch.set_float32_matmul_precision("high")

    tok = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    train, held_out = encode(tok, args.data / "train.txt"), encode(tok, args.data / "heldout.txt")
    size = (args.data / "heldout.txt").stat().st_size
    print(f"{len(train)} training tokens, {len(held_out)} held out, {size} bytes held out")
    config = recipe.config_json(token_map(tok))
    model = Backbone(Config.from_dict(config["text_config"]), token_map(tok)).to(device)
    model.dropout = args.dropout
    print(f"{sum(p.numel() for p in model.params.values()) / 1e6:.1f} M parameters")
    decay = [p for n, p in model.params.items() if p.dim() > 1 and p.requires_grad and "engram/embed" not in n]
    rest = [p for n, p in model.params.items() if (p.dim() <= 1 or "engram/embed" in n) and p.requires_grad]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.peak, betas=(0.9, 0.95), fused=device == "cuda")
    if device == "cuda":  # forty tiny kernels a site become one; compiling more than this takes longer than it saves
        import model as backbone

        backbone.sinkhorn = torch.compile(backbone.sinkhorn)

    start, done = time.time(), 0
    for step in range(args.steps):
        if step == args.steps * 6 // 10:
            model.weight_quant = model.act_quant = model.kv_quant = True
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps, args.peak)
        rows = windows(train, rng.integers(0, len(train) - LENGTH, args.batch)).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits, loads = model(rows[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():  # noaux_tc: the bias follows the load, the loss does not see it
            mean = loads.mean(-1, keepdim=True)
            for i, move in enumerate(0.002 * torch.sign(mean - loads)):
                model.p(f"layers.{i}.ffn.gate.bias").add_(move)
        done += rows.numel()
        if step % 50 == 0 or step + 1 == args.steps:
            model.eval()
            judged = bits_per_byte(model, held_out, size, device)
            model.train()
            spent = time.time() - start
            print(f"step {step} loss {loss.item():.3f} held-out {judged:.4f} bits/byte, {spent:.0f} s, {done / spent:.0f} tokens/s", flush=True)
        if time.time() - start > args.seconds:
            print("out of time")
            break

    model.eval()
    model.cpu()
    checkpoint.export(model, args.out, config)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (args.out / name).write_text((args.tokenizer / name).read_text())
    generation = {"bos_token_id": 0, "eos_token_id": 1, "temperature": 1.0, "top_p": 0.95}
    (args.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    judge(args.out, model, held_out, size, device)


def judge(folder: Path, trained: Backbone, held_out: np.ndarray, size: int, device: str) -> None:
    """Bits per byte before and after quantisation."""
    trained.weight_quant = trained.act_quant = trained.kv_quant = False
    print(f"unquantised: {bits_per_byte(trained.to(device), held_out, size, device):.4f} bits/byte")
    back = checkpoint.load(folder).eval()
    back.act_quant = back.kv_quant = True
    print(f"exported:    {bits_per_byte(back.to(device), held_out, size, device):.4f} bits/byte")


if __name__ == "__main__":
    main()
