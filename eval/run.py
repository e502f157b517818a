"""Measures what a checkpoint can do, on the frozen sets: `python eval/run.py MODEL [--json FILE] [--only recall,...]`.

Every case is generated greedily through the `deepinfer` command and judged: recall by distance, copying, arithmetic and chat by
the exact answer, JSON by its schema. A prompt that is longer than the checkpoint's context is a wrong answer. Bits per byte of
sets/novels.txt and sets/tales.txt: bench/divergence.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jsonschema

HERE = Path(__file__).resolve().parent
SETS = HERE / "sets"
LENGTHS = {"recall": 4, "copy": 64, "arithmetic": 8, "chat": 96, "json": 200}  # tokens generated; answers are shorter


class TooLong(Exception):
    """The prompt does not fit into the context."""


class Engine:
    """A checkpoint behind the command line. Cases run in parallel, one thread each: results do not depend on it."""

    def __init__(self, command: Path, model: Path, options: list[str]):
        self.command, self.model, self.options = command, model, options
        self.jobs = os.cpu_count() or 1

    def call(self, verb: str, *args: object) -> str:
        line = [str(self.command), verb, "--model", str(self.model), "--threads", "1", *self.options, *map(str, args)]
        done = subprocess.run(line, capture_output=True, text=True)
        if "DI_ERR_LIMIT" in done.stderr + done.stdout:
            raise TooLong
        if done.returncode:
            raise RuntimeError(f"{' '.join(line)}: {done.stderr.strip()}")
        return done.stdout

    def generate(self, prompts: list[str], max_tokens: int) -> list[str]:
        """Greedy continuations, special tokens left out."""
        with tempfile.TemporaryDirectory() as folder:

            def one(numbered: tuple[int, str]) -> str:
                path = Path(folder) / str(numbered[0])
                path.write_text(numbered[1])
                given = ("--prompt-file", path, "--temperature", 0, "--max-tokens", max_tokens, "--json")
                try:
                    return json.loads(self.call("run", *given))["text"]
                except TooLong:
                    return ""

            with ThreadPoolExecutor(self.jobs) as pool:
                return list(pool.map(one, enumerate(prompts)))


@contextmanager
def changed(model: Path, changes: list[str]) -> Iterator[Path]:
    """The checkpoint with fields of text_config set otherwise (NAME=JSON), in a folder of links."""
    if not changes:
        yield model
        return
    with tempfile.TemporaryDirectory() as folder:
        for path in model.resolve().iterdir():
            if path.name != "config.json":
                (Path(folder) / path.name).symlink_to(path)
        config = json.loads((model / "config.json").read_text())
        for change in changes:
            name, _, value = change.partition("=")
            if name not in config["text_config"]:
                raise SystemExit(f"--set {change}: text_config has no field {name}")
            config["text_config"][name] = json.loads(value)
        (Path(folder) / "config.json").write_text(json.dumps(config))
        yield Path(folder)


@dataclass
class Score:
    right: int = 0
    cases: int = 0

    def add(self, right: bool) -> None:
        self.right += right
        self.cases += 1

    @property
    def share(self) -> float:
        return self.right / max(self.cases, 1)


def read_set(name: str) -> str:
    """A frozen set; other bytes than those of the checksum are refused."""
    data = (SETS / name).read_bytes()
    sums = dict(reversed(line.split()) for line in (SETS / "SHA256SUMS").read_text().splitlines())
    if hashlib.sha256(data).hexdigest() != sums[name]:
        raise SystemExit(f"eval/sets/{name} is not the frozen set: its SHA-256 differs from SHA256SUMS")
    return data.decode()


def cases_of(name: str, limit: int | None) -> list[dict]:
    cases = [json.loads(line) for line in read_set(f"{name}.jsonl").splitlines()]
    return cases[:limit]


def recall(engine: Engine, limit: int | None) -> dict[str, Score]:
    flat = [
        (str(c["distance"]), c["context"] + q["prompt"], q["answer"])
        for c in cases_of("recall", None)
        for q in c["cases"][:limit]
    ]
    texts = engine.generate([prompt for _, prompt, _ in flat], LENGTHS["recall"])
    scores: dict[str, Score] = {}
    for (distance, _, answer), text in zip(flat, texts):
        scores.setdefault(distance, Score()).add(text.startswith(answer))
    return scores


def exact(engine: Engine, name: str, limit: int | None) -> dict[str, Score]:
    cases = cases_of(name, limit)
    texts = engine.generate([c["prompt"] for c in cases], LENGTHS[name])
    scores: dict[str, Score] = {}
    for case, text in zip(cases, texts):
        if "thinking" not in case:
            scores.setdefault("all", Score()).add(text.startswith(case["answer"]))
        else:
            kind = "thinking" if case["thinking"] else "direct"
            scores.setdefault(kind, Score()).add(text.endswith(case["answer"]) if case["thinking"] else text == case["answer"])
    return scores


def valid(text: str, schema: dict) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def records(engine: Engine, limit: int | None) -> dict[str, Score]:
    """The first line is the record."""
    cases = cases_of("json", limit)
    texts = engine.generate([c["prompt"] for c in cases], LENGTHS["json"])
    score = Score()
    for case, text in zip(cases, texts):
        score.add(valid(text.lstrip().split("\n")[0], case["schema"]))
    return {"valid": score}


TASKS = {
    "recall": recall,
    "copy": lambda e, n: exact(e, "copy", n),
    "arithmetic": lambda e, n: exact(e, "arithmetic", n),
    "chat": lambda e, n: exact(e, "chat", n),
    "json": records,
}


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model", type=Path)
    a.add_argument("--command", type=Path, default=HERE.parent / "build" / "apps" / "deepinfer")
    a.add_argument("--only", default="", help=f"of {', '.join(TASKS)}")
    a.add_argument("--limit", type=int, help="cases of a set (of a context, for recall), for a quick look")
    a.add_argument("--set", action="append", default=[], metavar="FIELD=JSON", help="run with another value in text_config")
    a.add_argument("--json", type=Path, help="write the results there too")
    a.add_argument("options", nargs="*", help="options of the engine, behind --")
    args = a.parse_args()
    wanted = args.only.split(",") if args.only else list(TASKS)
    for name in wanted:
        if name not in TASKS:
            raise SystemExit(f"--only {name}: there is no such set")
    results: dict = {"model": str(args.model), "set": args.set, "options": args.options, "tasks": {}}
    with changed(args.model, args.set) as model:
        engine = Engine(args.command, model, args.options)
        for name in wanted:
            scores = TASKS[name](engine, args.limit)
            results["tasks"][name] = {k: {"right": s.right, "cases": s.cases} for k, s in scores.items()}
            for kind, s in scores.items():
                print(f"{name:12} {kind:9} {100 * s.share:6.1f} %  {s.right} of {s.cases}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
