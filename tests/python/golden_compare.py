"""Comparing a trace with goldens of an independent implementation, by the demands that tests/data/goldens/*/README.md states.

Tensors are visited in the order of computation, so that the first complaint names the first wrong tensor.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
import numpy as np
from safetensors import safe_open

# Order of computation within a layer.
ORDER = [
    "streams_in", "pre_in", "engram.gate", "engram.streams", "collapsed", "attn_pre", "attn_post", "attn_comb", "attn_in",
    "q_residual", "window_kv", "compressed.groups", "compressed.latent", "compressed.index_key", "compressed.kv",
    "index.scores", "index.margin", "index.topk", "candidates.margin", "candidates.blocks", "attn_out", "ffn_pre", "ffn_post",
    "ffn_comb", "ffn_in", "router.margin", "router.indices", "router.weights", "ffn_out", "streams_out",
]  # fmt: skip
# Statements about reference runs, not about the model.
NOT_TRACED = ("stability", "agreement")
DECISIONS = {"index.topk": "index.margin", "candidates.blocks": "candidates.margin", "router.indices": "router.margin"}
# golden_native: kind -> (share of the rows that must be equal, or within 2e-6 for F32; rel-L2 that the others may reach).
NATIVE = {
    "engram.gate": (0.90, 0.001), "engram.streams": (0.95, 0.001), "attn_in": (0.97, 0.003), "q_residual": (0.97, 0.02),
    "window_kv": (0.97, 0.05), "compressed.latent": (0.95, 0.005), "compressed.kv": (0.98, 0.15),
    "compressed.index_key": (0.98, 0.15), "attn_out": (0.90, 0.05), "ffn_in": (0.90, 0.02), "router.weights": (0.90, 0.01),
    "ffn_out": (0.90, 0.1), "streams_out": (0.80, 0.05), "ffn_pre": (0.85, 0.01), "final.collapsed": (1.0, 0.003),
    "final.norm": (1.0, 0.003), "logits": (1.0, 1e-5),
}  # fmt: skip

Tensors = dict[str, np.ndarray]


class Difference(AssertionError):
    """A demand that is not met; the message names the tensor."""


def load(path: Path) -> Tensors:
    with safe_open(str(path), "numpy") as file:
        return {name: np.asarray(file.get_tensor(name)) for name in file.keys()}


def split(name: str) -> tuple[int, str]:
    """layer and kind: "layers.3.attn_in.last4" -> (3, "attn_in"). Tensors of no layer come last, layer 10**6."""
    kind = name.removesuffix(".last4").removesuffix(".last16")
    if not name.startswith("layers."):
        return 10**6, kind
    _, layer, kind = kind.split(".", 2)
    return int(layer), kind


def in_order(names) -> list[str]:
    def key(name: str):
        layer, kind = split(name)
        return layer, ORDER.index(kind) if kind in ORDER else len(ORDER), name

    return sorted((n for n in names if not n.endswith(NOT_TRACED)), key=key)


def rows_of(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x.reshape(len(x), -1) if x.ndim > 1 else x.reshape(-1, 1)


def require(condition: bool, name: str, message: str) -> None:
    if not condition:
        raise Difference(f"{name}: {message}")


def same_form(name: str, ours: Tensors, golden: Tensors) -> tuple[np.ndarray, np.ndarray]:
    require(name in ours, name, "is not in the trace")
    a, b = ours[name], golden[name]
    require(a.shape == b.shape, name, f"shape {a.shape}, golden {b.shape}")
    require(a.dtype == b.dtype, name, f"dtype {a.dtype}, golden {b.dtype}")
    return a, b


def relative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """max|a - b| over channels / rms of the golden row, per row; infinities must agree."""
    a, b = rows_of(a), rows_of(b)
    if (np.isfinite(a) != np.isfinite(b)).any() or (a[~np.isfinite(b)] != b[~np.isfinite(b)]).any():
        return np.full(len(b), np.inf)
    finite = np.isfinite(b)
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    rms = np.sqrt((b**2).sum(1) / np.maximum(finite.sum(1), 1))
    return np.abs(a - b).max(1) / np.maximum(rms, 1e-30)


def decisions_equal(name: str, a: np.ndarray, b: np.ndarray, margin: np.ndarray, least: float) -> np.ndarray:
    """Rows whose decision differs; none may have a margin above `least`."""
    differs = (np.sort(a, -1) != np.sort(b, -1)).any(-1) if name.endswith("router.indices") else (a != b).any(-1)
    bad = differs & (margin > least)
    require(not bad.any(), name, f"other decisions at rows {np.flatnonzero(bad)[:5]} with margins {margin[bad][:5]}")
    return differs


def check_exact(ours: Tensors, golden: Tensors) -> None:
    """Ids, hashes and maps bit for bit; inverse frequencies to 1e-6."""
    for name in golden:
        if name in ("input_ids", "positions") or (name.startswith("engram.") and not name.startswith("layers.")):
            a, b = same_form(name, ours, golden)
            require(np.array_equal(a, b), name, f"{int((a != b).sum())} of {b.size} values differ")
        elif name.startswith("rope."):
            a, b = same_form(name, ours, golden)
            require(bool(np.all(np.abs(a - b) <= 1e-6 * np.abs(b))), name, f"{a} is not {b}")


def check_smooth(ours: Tensors, golden: Tensors, tolerance: float = 1e-4, margin: float = 1e-4) -> float:
    """golden_kvfp32 end to end: everything within the tolerance, decisions equal above the margin. Returns the worst."""
    worst = 0.0
    check_exact(ours, golden)
    for name in in_order(golden):
        a, b = same_form(name, ours, golden)
        kind = split(name)[1]
        if kind in DECISIONS:
            decisions_equal(name, a, b, golden[name.replace(kind, DECISIONS[kind])], margin)
        elif kind == "argmax":
            decisions_equal(name, a[:, None], b[:, None], golden["argmax.margin"], margin)
        elif kind in ("greedy.ids", "greedy.top8.ids"):
            require(np.array_equal(a[..., :1], b[..., :1]), name, f"{a[..., :1].ravel()} is not {b[..., :1].ravel()}")
        elif a.dtype.kind == "f" and not kind.endswith("margin"):
            error = relative(a, b)
            worst = max(worst, float(error.max()))
            require(bool(error.max() <= tolerance), name, f"row {int(error.argmax())} is off by {error.max():.2e}")
        elif kind.endswith("margin"):
            finite = np.isfinite(b)
            require(np.array_equal(finite, np.isfinite(a)), name, "infinite at other rows")
            # a gap between two scores carries both errors, on the scale of the scores
            a, b = a[finite], b[finite]
            error = np.abs(a - b) / (1e-3 + np.abs(b))
            require(error.size == 0 or bool(error.max() <= 1e-2), name, f"off by {error.max() if error.size else 0:.2e}")
    return worst


def check_fed_layers(ours: Tensors, golden: Tensors, layers: int, tolerance: float = 1e-4, allowance: float = 0.05) -> None:
    """golden.safetensors one layer at a time: each layer's output against the next layer's input."""
    check_exact(ours, golden)
    for layer in range(layers):
        name = f"layers.{layer}.streams_out"
        wanted = golden.get(f"layers.{layer + 1}.streams_in", golden.get(name))
        error = relative(ours[name], wanted)
        off = int((error > tolerance).sum())
        require(off <= allowance * len(error), name, f"{off} of {len(error)} positions are off by more than {tolerance}")
        for kind in ("router.indices", "index.topk", "candidates.blocks"):
            name = f"layers.{layer}.{kind}"
            if name in golden:
                decisions_equal(name, *same_form(name, ours, golden), golden[name.replace(kind, DECISIONS[kind])], 1e-3)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def check_statistics(ours: Tensors, golden: Tensors, argmax_share: float, kl: float) -> None:
    """golden.safetensors end to end, where one flipped quantiser code spreads: agreement in the mean."""
    a, b = same_form("argmax", ours, golden)
    require(bool((a == b).mean() >= argmax_share), "argmax", f"equal at {(a == b).mean():.3f} of the positions")
    p, q = log_softmax(golden["logits.last16"]), log_softmax(ours["logits.last16"])
    mean = float((np.exp(p) * (p - q)).sum(-1).mean())
    require(mean <= kl, "logits.last16", f"mean KL {mean:.2e}")
    for name in in_order(n for n in golden if n.endswith(".collapsed")):
        median = float(np.median(relative(*same_form(name, ours, golden))))
        require(median <= 2e-2, name, f"median difference {median:.2e}")


def check_native(ours: Tensors, golden: Tensors) -> dict[str, float]:
    """golden_native, layers fed: per tensor kind over all layers, the READMEs' table. Returns the share of equal rows."""
    check_exact(ours, golden)
    for name in in_order(golden):
        a, b = same_form(name, ours, golden)
        if name.endswith(("streams_in", "pre_in")):
            require(np.array_equal(a, b), name, "what was fed is not what the layer started from")
    changed: dict[int, np.ndarray] = {}  # layer -> listed rows with another decision: no values are compared there
    for kind, margin in DECISIONS.items():
        names = [n for n in in_order(golden) if split(n)[1] == kind]
        total = sum(len(golden[n]) for n in names)
        differing = 0
        for name in names:
            a, b = same_form(name, ours, golden)
            differs = decisions_equal(name, a, b, golden[name.replace(kind, margin)], 0.05)
            changed[split(name)[0]] = changed.get(split(name)[0], np.zeros(len(b), bool)) | differs
            differing += int(differs.sum())
        require(differing <= max(1, 0.01 * total), kind, f"{differing} of {total} decisions differ")
    shares = {}
    for kind, (share, limit) in NATIVE.items():
        good, total, excess = 0, 0, []
        for name in in_order(n for n in golden if split(n)[1] == kind):
            a, b = same_form(name, ours, golden)
            keep = ~changed.get(split(name)[0], np.zeros(len(b), bool))
            keep = keep if len(keep) == len(b) else np.ones(len(b), bool)
            x, y = rows_of(a)[keep], rows_of(b)[keep]
            error = np.sqrt(((x - y) ** 2).sum(1)) / np.maximum(np.sqrt((y**2).sum(1)), 1e-30)
            fine = error <= 2e-6 if b.dtype == np.float32 else (x == y).all(1)
            good, total = good + int(fine.sum()), total + len(error)
            excess += [(name, int(i), float(error[i])) for i in np.flatnonzero(error > limit)]
        if total == 0:
            continue
        require(good >= share * total, kind, f"{good} of {total} rows agree, {share:.0%} demanded")
        require(len(excess) <= max(1, 0.005 * total), kind, f"rows off by more than {limit}: {excess[:5]}")
        shares[kind] = good / total
    check_scores(ours, golden)
    return shares


def check_scores(ours: Tensors, golden: Tensors) -> None:
    """index.scores.last4 to 1e-5 of the row's rms, for rows whose inputs are equal."""
    for name in (n for n in in_order(golden) if split(n)[1] == "index.scores"):
        layer = split(name)[0]
        same = np.ones(4, bool)
        for kind in ("attn_in", "q_residual"):
            a, b = ours[f"layers.{layer}.{kind}"], golden[f"layers.{layer}.{kind}"]
            same &= (rows_of(a)[-4:] == rows_of(b)[-4:]).all(1)
        keys = f"layers.{layer}.compressed.index_key"
        if keys in golden and not np.array_equal(ours[keys], golden[keys]):
            continue
        a, b = same_form(name, ours, golden)
        error = relative(a, b)[same]
        require(error.size == 0 or bool(error.max() <= 1e-5), name, f"off by {error.max() if error.size else 0:.1e}")
