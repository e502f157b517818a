"""Measures what a checkpoint can do, on the frozen sets: `python eval/run.py MODEL [--json FILE] [--only recall,...]`.

Every case is generated greedily through the Python package and judged: recall by distance, copying, arithmetic and chat by the exact
answer, JSON by its schema. A prompt that is longer than the checkpoint's context is a wrong answer. The texts are scored token by
token: bits per byte, in windows of at most WINDOW tokens that each begin with the beginning-of-sequence token.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jsonschema

from deepinfer import LLM, SamplingParams

HERE = Path(__file__).resolve().parent
SETS = HERE / "sets"
LENGTHS = {"recall": 4, "copy": 64, "arithmetic": 8, "chat": 96, "json": 200}  # tokens generated; answers are shorter
WINDOW = 2048


class Engine:
    """A checkpoint behind the package. All cases of a set run at once: results do not depend on it."""

    def __init__(self, model: Path, options: dict[str, str]):
        self.llm = LLM(model=str(model), **options)
        self.bos = json.loads((model / "config.json").read_text()).get("bos_token_id")

    def encode(self, text: str) -> list[int]:
        return [self.bos] * (self.bos is not None) + self.llm.tokenizer.encode(text)

    def generate(self, prompts: list[str], max_tokens: int) -> list[str]:
        """Greedy continuations, special tokens left out; "" where the prompt does not fit."""
        params = SamplingParams(temperature=0, max_tokens=max_tokens)
        done = self.llm.generate([self.encode(p) for p in prompts], params, use_tqdm=False, raise_on_error=False)
        for out in done:
            if out.error is not None and "the prompt has" not in str(out.error):
                raise SystemExit(f"eval: {out.error}")
        return ["" if out.error is not None else out.outputs[0].text for out in done]

    def bits_per_byte(self, text: str) -> float:
        ids, size = self.encode(text)[1:], min(WINDOW, self.llm.max_model_len - 2)
        windows = [[self.bos, *ids[at : at + size]] for at in range(0, len(ids), size)]
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        total = 0.0
        for out in self.llm.generate(windows, params, use_tqdm=False):
            for token, logprobs in zip(out.prompt_token_ids[1:], out.prompt_logprobs[1:], strict=True):
                total -= logprobs[token].logprob
        return total / math.log(2) / len(text.encode())


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
    contexts: dict[str, list[dict]] = {}
    for c in cases_of("recall", None):
        contexts.setdefault(str(c["distance"]), []).append(c)
    flat = [
        (distance, c["context"] + q["prompt"], q["answer"])
        for distance, of_distance in contexts.items()
        for c in of_distance[:limit]
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


def bits(engine: Engine, name: str) -> float:
    return engine.bits_per_byte(read_set(f"{name}.txt"))


TEXTS = ("novels", "tales")
TASKS = {
    "recall": recall,
    "copy": lambda e, n: exact(e, "copy", n),
    "arithmetic": lambda e, n: exact(e, "arithmetic", n),
    "chat": lambda e, n: exact(e, "chat", n),
    "json": records,
}


def options_of(words: list[str]) -> dict[str, str]:
    """NAME=VALUE, names as the package spells them."""
    for word in words:
        if "=" not in word:
            raise SystemExit(f"option {word}: write NAME=VALUE, for example threads=1")
    return dict(word.lstrip("-").replace("-", "_", word.split("=")[0].count("-")).split("=", 1) for word in words)


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model", type=Path)
    a.add_argument("--only", default="", help=f"of {', '.join((*TASKS, *TEXTS))}")
    a.add_argument("--limit", type=int, help="cases of a set (for recall: contexts of a distance, cases of a context), for a quick look")
    a.add_argument("--set", action="append", default=[], metavar="FIELD=JSON", help="run with another value in text_config")
    a.add_argument("--json", type=Path, help="write the results there too")
    a.add_argument("--plot", type=Path, help="draw recall over distance there (PNG, SVG, ... by the name)")
    a.add_argument("options", nargs="*", help="options of the engine, as NAME=VALUE")
    args = a.parse_intermixed_args()
    wanted = args.only.split(",") if args.only else [*TASKS, *TEXTS]
    for name in wanted:
        if name not in TASKS and name not in TEXTS:
            raise SystemExit(f"--only {name}: there is no such set")
    results: dict = {"model": str(args.model), "set": args.set, "options": args.options, "tasks": {}, "bits_per_byte": {}}
    with changed(args.model, args.set) as model:
        engine = Engine(model, options_of(args.options))
        for name in wanted:
            if name in TEXTS:
                results["bits_per_byte"][name] = bits(engine, name)
                print(f"{name:12} {results['bits_per_byte'][name]:.4f} bits per byte", flush=True)
                continue
            scores = TASKS[name](engine, args.limit)
            results["tasks"][name] = {k: {"right": s.right, "cases": s.cases} for k, s in scores.items()}
            for kind, s in scores.items():
                print(f"{name:12} {kind:9} {100 * s.share:6.1f} %  {s.right} of {s.cases}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    if args.plot:
        plot_recall(results["tasks"].get("recall", {}), args.plot)


def plot_recall(scores: dict[str, dict[str, int]], path: Path) -> None:
    import matplotlib  # only plots need it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points = sorted((int(d), 100 * s["right"] / s["cases"]) for d, s in scores.items())
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot([d for d, _ in points], [share for _, share in points], marker="o")
    axes.set(xscale="log", xlabel="distance in tokens", ylabel="recalled, %", ylim=(0, 105))
    axes.grid(alpha=0.3)
    figure.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    sys.exit(main())
