"""The model core against goldens of an implementation that is not ours (tests/data/goldens/*/README.md)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import golden_compare as gc
from conftest import GOLDENS, SOAK

SETS = sorted(p.name for p in GOLDENS.iterdir() if (p / "golden.safetensors").exists())
CHUNKS = [1, 2, 3, 7, 16, 128]
# What golden.safetensors demands end to end: share of equal argmax, mean KL.
STATISTICS = {"micro": (0.97, 0.01), "small": (0.90, 0.05)}


def golden(name: str, file: str) -> gc.Tensors:
    return gc.load(GOLDENS / name / f"{file}.safetensors")


def ids_of(tensors: gc.Tensors) -> tuple[int, ...]:
    return tuple(int(i) for i in tensors["input_ids"])


@pytest.mark.parametrize("name", SETS)
def test_smooth_golden_end_to_end(trace, name):
    reference = golden(name, "golden_kvfp32")
    like = GOLDENS / name / "golden_kvfp32.safetensors"
    out = trace(name, ids_of(reference), "--mode", "oracle", "--kv-quant", "off", "--greedy", 64, "--like", like)
    worst = gc.check_smooth(gc.load(out), reference)
    print(f"{name}: worst relative difference {worst:.1e}")


@pytest.mark.parametrize("name", [s for s in SETS if "layers.0.streams_in" in golden(s, "golden")])
def test_quantised_golden_layer_by_layer(trace, name):
    reference = golden(name, "golden")
    out = trace(name, ids_of(reference), "--mode", "oracle", "--feed", GOLDENS / name / "golden.safetensors")
    layers = 1 + max(gc.split(n)[0] for n in reference if n.startswith("layers."))
    gc.check_fed_layers(gc.load(out), reference, layers)


@pytest.mark.parametrize("name", SETS)
def test_quantised_golden_end_to_end(trace, name):
    reference = golden(name, "golden")
    out = trace(name, ids_of(reference), "--mode", "oracle", "--like", GOLDENS / name / "golden.safetensors")
    ours = gc.load(out)
    gc.check_exact(ours, reference)
    gc.check_statistics(ours, reference, *STATISTICS.get(name, (0.90, 0.05)))


@pytest.mark.parametrize("name", [s for s in SETS if (GOLDENS / s / "golden_native.safetensors").exists()])
def test_native_golden(trace, name):
    reference = golden(name, "golden_native")
    feed = GOLDENS / name / "golden_native.safetensors"
    shares = gc.check_native(gc.load(trace(name, ids_of(reference), "--feed", feed)), reference)
    print(name, {k: round(v, 3) for k, v in shares.items()})


MODES = [("--mode", "oracle", "--kv-quant", "off"), ("--mode", "oracle"), ("--mode", "native")]


@pytest.mark.parametrize("mode", MODES, ids=["oracle-f32-cache", "oracle", "native"])
@pytest.mark.parametrize("name", SETS)
def test_chunked_is_whole_bit_for_bit(trace, name, mode):
    """Every tensor and the greedy continuation (which decodes from the cache), for every chunk size and thread count."""
    ids = ids_of(golden(name, "golden"))
    if name != "micro" and not SOAK:
        ids = ids[:300]
    digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
    whole = digest(trace(name, ids, *mode, "--greedy", 16, "--threads", 1))
    for chunk in CHUNKS if name == "micro" or SOAK else [3, 16, 128]:
        assert digest(trace(name, ids, *mode, "--greedy", 16, "--chunk", chunk, "--threads", 2)) == whole, f"chunk {chunk}"


@pytest.mark.parametrize("mode", MODES, ids=["oracle-f32-cache", "oracle", "native"])
@pytest.mark.parametrize("name", SETS)
def test_backends_give_equal_bits(trace, name, mode):
    """The scalar backend is the specification: whatever is faster gives its bits."""
    ids = ids_of(golden(name, "golden"))[:200]
    reference = trace(name, ids, *mode, "--greedy", 8, "--backend", "reference")
    assert trace(name, ids, *mode, "--greedy", 8, "--backend", "auto").read_bytes() == reference.read_bytes()


def test_fed_layers_do_not_depend_on_chunks(trace):
    feed, ids = GOLDENS / "micro" / "golden_native.safetensors", ids_of(golden("micro", "golden_native"))
    whole = trace("micro", ids, "--feed", feed)
    for chunk in (1, 7, 128):
        assert trace("micro", ids, "--feed", feed, "--chunk", chunk).read_bytes() == whole.read_bytes()


def test_cached_decode_equals_prefill(trace):
    """Logits of tokens decoded one by one are those of a prompt that holds them, bit for bit."""
    ids = ids_of(golden("micro", "golden"))[:60]
    for mode in MODES:
        first = gc.load(trace("micro", ids, *mode, "--greedy", 9))
        longer = ids + tuple(int(i) for i in first["greedy.ids"][:8])
        second = gc.load(trace("micro", longer, *mode))
        assert np.array_equal(first["greedy.logits.last2"][1], second["logits.last16"][-1])
        assert np.array_equal(first["greedy.logits.last2"][0], second["logits.last16"][-2])


# ---- the comparison itself: it must be able to fail, and name the culprit ----

PERTURBED = ["layers.2.compressed.kv", "layers.3.attn_out.last4", "layers.5.streams_out.last4", "logits.last16"]


@pytest.mark.parametrize("tensor", PERTURBED)
def test_comparison_notices_a_perturbed_tensor(tensor):
    reference = golden("micro", "golden_kvfp32")
    ours = dict(reference)
    ours[tensor] = reference[tensor] + np.float32(1e-3) * np.abs(reference[tensor]).max()
    with pytest.raises(gc.Difference, match=tensor):
        gc.check_smooth(ours, reference)


@pytest.mark.parametrize("tensor", ["layers.4.index.topk", "layers.4.candidates.blocks", "layers.0.router.indices"])
def test_comparison_notices_another_decision(tensor):
    reference = golden("micro", "golden_kvfp32")
    ours = dict(reference)
    changed = reference[tensor].copy()
    changed[-1, 0] = changed[-1, 0] + 1 if changed[-1, 0] + 1 not in changed[-1] else changed[-1, -1] + 1
    ours[tensor] = changed
    with pytest.raises(gc.Difference, match=tensor):
        gc.check_smooth(ours, reference)


def test_comparison_notices_native_rounding_errors():
    reference = golden("micro", "golden_native")
    for kind in ("attn_in", "ffn_out", "streams_out"):
        ours = dict(reference)
        for name in reference:
            if gc.split(name)[1] == kind:
                ours[name] = (reference[name].astype(np.float32) * np.float32(1.01)).astype(reference[name].dtype)
        with pytest.raises(gc.Difference, match=kind):
            gc.check_native(ours, reference)
