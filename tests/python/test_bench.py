"""`deepinfer bench`: counts that must add up; times only have to be there. docs/cli.md."""

from __future__ import annotations

import json
import subprocess

import pytest

from conftest import COMMAND, GOLDENS, ROOT, run_cli

MICRO, TINY = GOLDENS / "micro", ROOT / "models" / "tiny"


def bench(*args, model=MICRO) -> dict:
    done = run_cli("bench", "--model", model, "--json", *args)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


SPREAD = ("ttft_seconds", "tpot_seconds", "e2e_seconds", "queue_seconds")


def test_counts_add_up():
    report = bench("--requests", 20, "--concurrency", 4, "--input-len", 30, "--output-len", 8, "--warmup", 3)
    assert report["tokens"] == {"prompt": 600, "output": 160, "cached": 0}
    assert report["requests"]["count"] == 20 and report["requests"]["input_len"] == [30, 30] and report["requests"]["rate"] is None
    engine, speed = report["engine"], report["tokens_per_second"]
    assert engine["draws"] == 160 + engine["zombie_rows"] and engine["rows"] == 20 * (30 + 7) + engine["zombie_rows"]
    assert engine["row_layers"] + engine["row_layers_saved"] == 6 * engine["rows"] and engine["row_layers_saved"] >= 0
    assert speed["total"] == pytest.approx(speed["prefill"] + speed["decode"], rel=1e-6)
    assert speed["decode"] * report["seconds"] == pytest.approx(160, rel=1e-6)
    assert 0 < engine["cpu_share"] < 1 and engine["cores"] >= 1 and engine["preemptions"] == 0
    for key in SPREAD:
        assert 0 <= report[key]["p50"] <= report[key]["p90"] <= report[key]["p99"]
    assert report["queue_seconds"]["mean"] <= report["ttft_seconds"]["mean"] <= report["e2e_seconds"]["mean"]
    documented = (ROOT / "docs" / "cli.md").read_text()
    for key in (*report, *report["requests"], *report["engine"], *report["tokens"], *report["tokens_per_second"]):
        assert f"`{key}`" in documented, key


def test_a_seed_makes_the_same_trace_whatever_the_settings():
    common = ("--requests", 12, "--input-len", "5:60", "--output-len", "1:12")
    one = bench(*common, "--seed", 3)
    for settings in (("--concurrency", 1), ("--rate", 500), ("--async", "off", "--max-num-seqs", 2)):
        assert bench(*common, "--seed", 3, *settings)["tokens"]["output"] == one["tokens"]["output"]
    assert bench(*common, "--seed", 4)["tokens"] != one["tokens"]
    assert one["options"]["async"] == "on" and one["identity"].startswith("deepinfer-")


def test_shared_prefixes_are_cached():
    """The prefix is much longer than what exactness has to replay before a hit."""
    common = ("--requests", 8, "--concurrency", 1, "--input-len", 8, "--output-len", 2, "--shared-prefix", 1500)
    assert bench(*common, "--prefix-cache", "off")["tokens"]["cached"] == 0
    report = bench(*common, "--prefix-groups", 1)
    assert report["tokens"]["prompt"] == 8 * 1508 and report["tokens"]["cached"] > 4 * 1000
    assert bench(*common, "--prefix-groups", 8)["tokens"]["cached"] < report["tokens"]["cached"]


def test_preemptions_are_counted():
    report = bench("--requests", 6, "--concurrency", 6, "--input-len", 120, "--output-len", 300, "--kv-cache-tokens", 1024)
    assert report["engine"]["preemptions"] > 0 and report["tokens"]["output"] == 1800


def test_one_token_has_no_time_per_token():
    report = bench("--requests", 3, "--output-len", 1, "--input-len", 5)
    assert report["tpot_seconds"] is None
    text = run_cli("bench", "--model", MICRO, "--requests", 3, "--output-len", 1, "--input-len", 5, "--rate", 1000).stdout.decode()
    assert "1000 a second; 5 tokens in, 1 out" in text and "time per output token             -" in text
    assert report["identity"] in text and "settings  model=" in text


WRONG = {
    "requests": (["--requests", "0"], "--requests"),
    "concurrency": (["--concurrency", "0"], "--concurrency"),
    "rate": (["--rate", "0"], "--rate"),
    "both": (["--rate", "1", "--concurrency", "1"], "--concurrency and --rate"),
    "input-len": (["--input-len", "0"], "--input-len"),
    "input range": (["--input-len", "9:3"], '--input-len: "9:3"'),
    "input junk": (["--input-len", "1:2:3"], "--input-len"),
    "output-len": (["--output-len", "x"], "--output-len"),
    "empty": (["--output-len", ""], "--output-len"),
    "shared-prefix": (["--shared-prefix", "-1"], "--shared-prefix"),
    "prefix-groups": (["--prefix-groups", "0"], "--prefix-groups"),
    "too long": (["--shared-prefix", "2000", "--input-len", "40", "--output-len", "9"], "2049 tokens together; max-model-len is 2048"),
    "temperature": (["--temperature", "-1"], "--temperature"),
    "prompt": (["--prompt", "x"], "unknown option --prompt"),
}


@pytest.mark.parametrize("args, culprit", WRONG.values(), ids=WRONG.keys())
def test_usage_errors(args, culprit):
    done = run_cli("bench", "--model", MICRO, *args)
    assert done.returncode == 2 and culprit in done.stderr.decode() and done.stdout == b""


def test_a_report_that_cannot_be_written():
    with open("/dev/full", "wb") as full:
        done = run_cli("bench", "--model", MICRO, "--requests", 1, "--input-len", 2, "--output-len", 1, capture_output=False, stdout=full, stderr=-1)
    assert done.returncode == 1 and b"No space left" in done.stderr


def test_sweep(tmp_path):
    sweep = lambda *args: subprocess.run([ROOT / "bench" / "run_sweep.sh", *map(str, args)], capture_output=True, text=True)
    settings = ("--setting", "one=", "--setting", "two=--async off --max-num-seqs 2", "--no-plot", "--requests", 3, "--command", COMMAND)
    done = sweep(tmp_path / "out", "--concurrency", "1 2", "--input-len", "4 6:9", "--output-len", 2, *settings, "--", "--model", MICRO)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    points = {(r["setting"], *r["requests"]["input_len"], r["requests"]["concurrency"]) for r in runs}
    assert len(runs) == 8 and points == {(s, *i, c) for s in ("one", "two") for i in ((4, 4), (6, 9)) for c in (1, 2)}
    assert all((r["options"]["async"] == "off") == (r["setting"] == "two") for r in runs)
    for args, culprit in (((), "usage"), (("--requests",), "folder"), (("o", "--x"), "--x"), (("o", "--setting", "a"), "NAME="), (("o", "--command", "/no"), "/no")):
        done = sweep(*args)
        assert done.returncode == 2 and culprit in done.stderr, args
    done = sweep(tmp_path / "bad", "--no-plot", "--command", COMMAND, "--", "--model", "/no/such")
    assert done.returncode == 3 and "/no/such" in done.stderr
