"""The evaluation runs on any checkpoint, and its figures are those of the model."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

from conftest import BUILD, ROOT, run_cli

TINY = ROOT / "models" / "tiny"


def evaluate(*args: object) -> subprocess.CompletedProcess:
    env = os.environ | {"PYTHONPATH": str(ROOT / "python"), "DEEPINFER_BUILD_DIR": str(BUILD)}
    return subprocess.run([sys.executable, ROOT / "eval" / "run.py", *map(str, args)], capture_output=True, text=True, env=env)


def test_sets_and_their_judges(tmp_path):
    out = tmp_path / "out.json"
    done = evaluate(TINY, "--only", "copy,json,recall", "--limit", 1, "--json", out)
    assert done.returncode == 0, done.stderr
    tasks = json.loads(out.read_text())["tasks"]
    assert tasks["copy"]["all"]["cases"] == 1 and tasks["json"]["valid"]["cases"] == 1
    assert {"100", "2000", "4000"} <= set(tasks["recall"])


def test_bits_per_byte_are_those_of_the_command(tmp_path):
    """The same text scored through the command, one window."""
    text = (ROOT / "eval" / "sets" / "tales.txt").read_text()
    out = tmp_path / "out.json"
    done = evaluate(TINY, "--only", "tales", "--json", out, "truncation=off")
    assert done.returncode == 0, done.stderr
    given = json.loads(out.read_text())["bits_per_byte"]["tales"]
    sys.path.insert(0, str(ROOT / "python"))
    from deepinfer import LLM

    with LLM(model=str(TINY)) as llm:
        ids = llm.tokenizer.encode(text)
    total = 0.0
    for at in range(0, len(ids), 2048):
        listed = tmp_path / "ids.json"
        listed.write_text(json.dumps([0, *ids[at : at + 2048]]))
        run = run_cli("run", "--model", TINY, "--ids", listed, "--prompt-logprobs", 0, "--max-tokens", 1, "--json")
        assert run.returncode == 0, run.stderr
        total -= sum(row["logprob"] for row in json.loads(run.stdout)["prompt_logprobs"][1:])
    assert math.isclose(given, total / math.log(2) / len(text.encode()), rel_tol=1e-5)


def test_wrong_arguments_name_the_culprit():
    assert "--only nothing" in evaluate(TINY, "--only", "nothing").stderr
    assert "threads" in evaluate(TINY, "threads").stderr
    assert "no field nonsense" in evaluate(TINY, "--set", "nonsense=1").stderr
