"""Trains the bundled model on one GPU and exports it.

    python train.py --data DATA --tokenizer TOKENIZER --out OUT [--scale 1.0]

The stages are those of recipe.py: first the backbone with dense attention, short rows and then long ones; then the indexer
alone, on what dense attention looks at; then everything together with sparse selection. Weights, activations and caches are
quantised (straight-through) all along, so that the exported model is the trained one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import batches
import checkpoint
import model as backbone
import recipe
from batches import Mix
from model import Backbone, Config, FlexAttention, Quant, token_map

QUANT = Quant(weights=True, act=True, kv=True)


def rate(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


class Run:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tok = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
        tokens = token_map(self.tok)
        self.config = recipe.config_json(tokens)
        self.model = Backbone(Config.from_dict(self.config["text_config"]), tokens).to(self.device)
        self.model.quant = QUANT
        if args.start:
            self.model.load_state_dict(torch.load(args.start, map_location=self.device))
        if self.device == "cuda":
            self.model.dtype = torch.bfloat16
            self.model.flex = FlexAttention()
            backbone.compile_parts()
        self.start = time.time()
        size = sum(p.numel() for p in self.model.params.values()) / 1e6
        self.say(f"{size:.1f} M parameters, vocabulary {self.tok.get_vocab_size()}")

    def say(self, text: str) -> None:
        print(f"[{time.time() - self.start:6.1f} s] {text}", flush=True)

    def optimizer(self, names, lr: float) -> torch.optim.Optimizer:
        chosen = [(n, p) for n, p in self.model.params.items() if names(n) and p.requires_grad]
        decay = [p for n, p in chosen if p.dim() > 1 and "engram/embed" not in n and not n.startswith("embed")]
        rest = [p for n, p in chosen if not (p.dim() > 1 and "engram/embed" not in n and not n.startswith("embed"))]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=self.device == "cuda")

    def batches(self, mix: Mix, tokens: int, seed: int, workers: int | None = None):
        novels = self.args.data / "novels.npy"
        tokenizer = self.args.tokenizer / "tokenizer.json"
        return batches.stream(tokenizer, novels, mix, tokens, seed, workers or self.args.workers)

    def loss(self, ids: torch.Tensor, marks: torch.Tensor, weight: float):
        """Cross entropy with answers weighted; logits only in pieces, for the sake of memory."""
        rows, loads = self.model(ids[:, :-1])
        logits = self.model.head(rows)
        each = F.cross_entropy(logits.float(), ids[:, 1:].flatten(), reduction="none")
        answer = (marks[:, 1:].flatten() > 0).float()
        w = 1 + (weight - 1) * answer
        text = (each * (1 - answer)).sum() / (1 - answer).sum().clamp_min(1)
        told = (each * answer).sum() / answer.sum().clamp_min(1)
        return (each * w).sum() / w.sum(), text.detach(), told.detach(), loads

    def balance(self, loads: torch.Tensor) -> None:
        """noaux_tc: the bias follows the load, the loss does not see it."""
        with torch.no_grad():
            mean = loads.mean(-1, keepdim=True)
            for i, move in enumerate(0.001 * torch.sign(mean - loads)):
                self.model.p(f"layers.{i}.ffn.gate.bias").add_(move)

    @torch.no_grad()
    def judge(self, held: dict[str, list]) -> str:
        """Cases right by kind, teacher-forced: equal to greedy decoding."""
        out = []
        for name, parts in held.items():
            good = all_ = 0
            nats = count = 0.0
            for ids, marks in parts:
                ids, marks = ids.to(self.device), marks.to(self.device)
                rows, _ = self.model(ids[:, :-1])
                logits = self.model.head(rows)
                g, n = batches.correct(logits.argmax(-1).view(ids.shape[0], -1), ids[:, 1:], marks[:, 1:])
                nats += F.cross_entropy(logits.float(), ids[:, 1:].flatten(), reduction="sum").item()
                count += ids[:, 1:].numel()
                good, all_ = good + g, all_ + n
            out.append(f"{name} {good}/{all_}" if all_ else f"{name} {nats / count:.3f}")
        return "; ".join(out)

    def hold_out(self, tokens: int) -> dict[str, list]:
        """Fixed batches of every kind, from seeds that training does not use."""
        out = {}
        for name, mix in recipe.JUDGED.items():
            source = self.batches(mix, tokens, 999, workers=1)
            out[name] = [next(source) for _ in range(1)]
            source.close()
        return out

    def stage(self, number: int, stage: recipe.Stage) -> None:
        steps = max(2, int(stage.steps * self.args.scale))
        model = self.model
        model.sparse = stage.sparse
        names = (lambda n: "indexer" in n) if stage.indexer_only else (lambda n: True)
        optimizer = self.optimizer(names, stage.peak)
        source = self.batches(stage.mix, stage.tokens, number + 1 + self.args.seed)
        held = self.hold_out(stage.tokens)
        self.say(f"stage {number}: {steps} steps of {stage.tokens} tokens in rows of {stage.mix.length}")
        done, begun = 0, time.time()
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = stage.peak * rate(step, steps, min(200, steps // 5 + 1)) * (1.0 if stage.final else 1.0)
            ids, marks = (t.to(self.device, non_blocking=True) for t in next(source))
            model.index_loss = [] if stage.sparse or stage.indexer_only else None
            with torch.set_grad_enabled(True):
                loss, text, told, loads = self.loss(ids, marks, stage.answer_weight)
                index = torch.stack(model.index_loss).sum() if model.index_loss else torch.zeros(())
                total = index if stage.indexer_only else loss + index.to(loss.device)
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 1.0)
            optimizer.step()
            if not stage.indexer_only:
                self.balance(loads)
            model.index_loss = None
            done += ids.numel()
            if step in (0, 1, 5) or step % stage.report == 0 or step + 1 == steps:
                judged = self.judge(held) if step and step % stage.report == 0 or step + 1 == steps else ""
                spread = (loads.max(-1).values / loads.mean(-1)).max().item()
                self.say(
                    f"step {step} text {text.item():.3f} answers {told.item():.3f} index {index.item():.3f} load {spread:.1f}x"
                    f" {done / (time.time() - begun):.0f} tokens/s; {judged}"
                )
                if math.isnan(loss.item()):
                    raise SystemExit("the loss is NaN")
        source.close()
        torch.save(model.state_dict(), self.args.out / f"stage{number}.pt")

    def export(self) -> None:
        out = self.args.out
        checkpoint.export(self.model, out, self.config)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (out / name).write_text((self.args.tokenizer / name).read_text())
        generation = {"bos_token_id": 0, "eos_token_id": 1, "temperature": 1.0, "top_p": 0.95}
        (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main() -> None:
    a = argparse.ArgumentParser()
    a.add_argument("--data", type=Path, required=True)
    a.add_argument("--tokenizer", type=Path, required=True)
    a.add_argument("--out", type=Path, required=True)
    a.add_argument("--scale", type=float, default=1.0, help="of the stages' steps, for trials")
    a.add_argument("--stages", default="", help="only these, such as 0,1")
    a.add_argument("--start", type=Path, help="a stageN.pt to go on from")
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    args = a.parse_args()
    torch.manual_seed(1 + args.seed)
    torch.set_float32_matmul_precision("high")
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    wanted = [int(s) for s in args.stages.split(",")] if args.stages else range(len(recipe.STAGES))
    for number in wanted:
        run.stage(number, recipe.STAGES[number])
        run.export()
    run.say("done")


if __name__ == "__main__":
    main()
