"""Holds the training model against a golden set of the independent implementation: python check_goldens.py FOLDER..."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

import checkpoint

TOLERANCE = 1e-4


def worst(ours: torch.Tensor, golden: np.ndarray) -> float:
    """Largest max|a - b| over the last dim, in units of the golden row's rms."""
    a, b = ours.numpy().reshape(-1, ours.shape[-1]), golden.reshape(-1, golden.shape[-1])
    return float((np.abs(a - b).max(-1) / np.sqrt((b**2).mean(-1))).max())


def check(folder: Path) -> bool:
    golden = load_file(folder / "golden_kvfp32.safetensors")
    model = checkpoint.load(folder).eval()
    model.sparse = True
    model.record = {}
    ids = torch.from_numpy(golden["input_ids"].astype(np.int64)).unsqueeze(0)
    with torch.no_grad():
        logits = model.head(model(ids)[0])
    where = torch.from_numpy(golden["positions"].astype(np.int64))
    ok = True
    for i in range(model.cfg.num_hidden_layers):
        error = worst(model.record[f"layers.{i}.collapsed"][where], golden[f"layers.{i}.collapsed"])
        ok &= error < TOLERANCE
        print(f"{folder.name}: layers.{i}.collapsed {error:.1e}")
    error = worst(logits[-16:], golden["logits.last16"])
    same = int((logits.argmax(-1).numpy() == golden["argmax"]).sum())
    ok &= error < TOLERANCE and same == len(golden["argmax"])
    print(f"{folder.name}: logits {error:.1e}, argmax equal at {same} of {len(golden['argmax'])}: {'ok' if ok else 'FAILED'}")
    return ok


if __name__ == "__main__":
    sys.exit(0 if all([check(Path(f)) for f in sys.argv[1:]]) else 1)
