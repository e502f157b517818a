"""Paths, the command under test, and its results kept for the session."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DEEPINFER_BUILD_DIR", ROOT / "build"))
COMMAND = BUILD / "apps" / "deepinfer"
GOLDENS = ROOT / "tests" / "data" / "goldens"
SOAK = os.environ.get("DEEPINFER_SOAK") == "1"


def run_cli(*args: object, env: dict[str, str] | None = None, **kwargs) -> subprocess.CompletedProcess:
    """Runs `deepinfer`; variables of the caller's environment that are options do not leak in."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DEEPINFER_", "HF_"))}
    kwargs.setdefault("capture_output", True)
    return subprocess.run([str(COMMAND), *map(str, args)], env=clean | (env or {}), timeout=300, **kwargs)


@pytest.fixture(scope="session")
def trace(tmp_path_factory):
    """trace(set, ids, *options) -> path of the written safetensors file; each distinct run is made once."""
    folder = tmp_path_factory.mktemp("traces")
    made: dict[tuple, Path] = {}

    def make(golden_set: str, ids: tuple[int, ...], *options: object) -> Path:
        key = (golden_set, ids, *map(str, options))
        if key not in made:
            out, listed = folder / f"{len(made)}.safetensors", folder / f"{len(made)}.json"
            listed.write_text(json.dumps(list(ids)))
            model = GOLDENS / golden_set
            done = run_cli("trace", "--model", model, "--ids", listed, "--out", out, *options)
            assert done.returncode == 0, done.stderr.decode()
            made[key] = out
        return made[key]

    return make
