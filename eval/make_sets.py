"""Writes the frozen evaluation sets: `python eval/make_sets.py DATA TOKENIZER`, from the generators of tools/train with seeds that
training never uses, and DATA/heldout.txt, text that training never saw.

    sets/recall.jsonl       {"distance", "context", "cases": [{"prompt", "answer"}]}: a case is context + prompt
    sets/copy.jsonl         {"prompt", "answer"}
    sets/arithmetic.jsonl   {"prompt", "answer"}
    sets/chat.jsonl         {"prompt", "answer", "thinking"}
    sets/json.jsonl         {"prompt", "schema"}
    sets/novels.txt, sets/tales.txt     documents separated by form feeds

It refuses to overwrite a set with other bytes unless --renew is given: results are comparable only while the sets stay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools" / "train"))
import tales  # noqa: E402
import tasks  # noqa: E402

RECALL = {100: 100, 250: 100, 500: 100, 1000: 200, 2000: 500, 4000: 500}  # distance in tokens: cases
QUESTIONS = 20  # about one context
NOVEL_BYTES = 40_000


def context(rng: random.Random, tok: Tokenizer, distance: int, n: int) -> dict:
    """n facts among filler, then at least `distance` tokens of filler with a few facts that nobody asks for."""

    def size(text: str) -> int:
        return len(tok.encode(text).ids)

    filler: list[str] = []

    def sentence() -> str:
        if not filler:
            filler.extend(reversed(tasks.sentences(tales.tale(rng))))
        return " " + filler.pop().strip()

    known = tasks.facts(rng, n + 10)
    asked, others = known[:n], known[n:]
    text = ""
    for f in asked:
        text += " " + f.statement + (sentence() if rng.random() < 0.3 else "")
    behind, room = "", distance
    gaps = sorted(rng.randrange(max(distance, 1)) for _ in others[: distance // 100])
    while room > 0:
        if gaps and distance - room >= gaps[0]:
            gaps.pop(0)
            piece = " " + others.pop().statement
        else:
            piece = sentence()
        behind += piece
        room -= size(piece)
    cases = [{"prompt": f.question, "answer": f.answer} for f in rng.sample(asked, n)]
    return {"distance": distance, "context": text + behind, "cases": cases}


def recall(tok: Tokenizer) -> list[dict]:
    rng = random.Random("evaluation: recall")
    out = []
    for distance, cases in RECALL.items():
        n = min(QUESTIONS, max(4, distance // 25))
        out += [context(rng, tok, distance, n) for _ in range(cases // n)]
    return out


def plain(task: str, cases: int) -> list[dict]:
    rng = random.Random(f"evaluation: {task}")
    made = [tasks.TASKS[task](rng) for _ in range(cases)]
    return [{"prompt": prompt, "answer": answer} for (prompt, _), (answer, _) in made]


def records(cases: int) -> list[dict]:
    rng = random.Random("evaluation: json")
    schemas = [tasks.schema(rng) for _ in range(cases)]
    return [{"prompt": tasks.record_prompt(s), "schema": s} for s in schemas]


def chat(cases: int) -> list[dict]:
    """One or two turns, the last with one right answer; half of them thinking."""
    rng = random.Random("evaluation: chat")
    out: list[dict] = []
    while len(out) < cases:
        turns = [tasks.turn(rng) for _ in range(rng.choice([1, 1, 2]))]
        if turns[-1].question in dict(tasks.GREETINGS):
            continue
        thinking = len(out) % 2 == 1
        (prompt, _), _ = tasks.chat_pieces(turns, thinking)
        out.append({"prompt": prompt, "answer": turns[-1].answer, "thinking": thinking})
    return out


def lines(cases: list[dict]) -> str:
    return "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in cases)


def novels(data: Path) -> str:
    """Whole paragraphs of the held-out chapters, in documents of one chapter each, NOVEL_BYTES at most."""
    out, size = [], 0
    for chapter in (data / "heldout.txt").read_text().split("\f"):
        kept = []
        for paragraph in chapter.split("\n\n"):
            size += len(paragraph.encode()) + 2
            if size > NOVEL_BYTES:
                break
            kept.append(paragraph)
        out.append("\n\n".join(kept))
        if size > NOVEL_BYTES:
            break
    return "\f".join(d for d in out if d)


def main() -> None:
    a = argparse.ArgumentParser()
    a.add_argument("data", type=Path)
    a.add_argument("tokenizer", type=Path)
    a.add_argument("--renew", action="store_true")
    args = a.parse_args()
    tok = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    rng = random.Random("evaluation: tales")
    sets = {
        "recall.jsonl": lines(recall(tok)),
        "copy.jsonl": lines(plain("copy", 200)),
        "arithmetic.jsonl": lines(plain("arithmetic", 200)),
        "json.jsonl": lines(records(100)),
        "chat.jsonl": lines(chat(100)),
        "tales.txt": "\f".join(tales.tale(rng) for _ in range(40)),
        "novels.txt": novels(args.data),
    }
    folder = HERE / "sets"
    folder.mkdir(exist_ok=True)
    for name, text in sets.items():
        path = folder / name
        if path.exists() and path.read_text() != text and not args.renew:
            raise SystemExit(f"{path} is frozen and would change; --renew overwrites it")
        path.write_text(text)
    sums = "".join(f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in sorted(sets))
    (folder / "SHA256SUMS").write_text(sums)
    print(sums, end="")


if __name__ == "__main__":
    main()
