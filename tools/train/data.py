"""The corpus: Jane Austen's six novels, public domain, from Debian's package r-cran-janeaustenr.

`python data.py OUT` writes OUT/train.txt and OUT/heldout.txt. Lines are joined to paragraphs; documents are chapters,
separated by a form feed. The last 2% of each novel's chapters are held out (at least one chapter).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

NOVELS = ["sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey", "persuasion"]
HELD_OUT = 0.02
CHAPTER = re.compile(r"^chapter\s+([0-9]+|[ivxlc]+)\.?$", re.IGNORECASE)


def lines_of(novel: str) -> list[str]:
    code = f"library(janeaustenr); writeLines(enc2utf8({novel}))"
    return subprocess.run(["Rscript", "-e", code], check=True, capture_output=True, text=True).stdout.splitlines()


def paragraphs(lines: list[str]) -> str:
    blocks = re.split(r"\n\s*\n", "\n".join(lines))
    joined = [" ".join(block.split()) for block in blocks]
    return "\n\n".join(p.replace("--", " - ").replace("_", "") for p in joined if p)


def chapters(lines: list[str]) -> list[str]:
    """Text between chapter headings; what stands before the first one (titles, contents) is left out."""
    starts = [i for i, line in enumerate(lines) if CHAPTER.match(line.strip())]
    ends = starts[1:] + [len(lines)]
    texts = [paragraphs(lines[a + 1 : b]) for a, b in zip(starts, ends)]
    return [t for t in texts if len(t) > 500]


def main(out: Path) -> None:
    train, held_out = [], []
    for novel in NOVELS:
        texts = chapters(lines_of(novel))
        size, kept = sum(map(len, texts)), 0
        while texts and (kept == 0 or kept + len(texts[-1]) <= HELD_OUT * size):
            kept += len(texts[-1])
            held_out.append(texts.pop())
        train += texts
    out.mkdir(parents=True, exist_ok=True)
    for name, texts in (("train", train), ("heldout", held_out)):
        text = "\f".join(texts)
        (out / f"{name}.txt").write_text(text)
        print(f"{name}: {len(texts)} chapters, {len(text.encode())} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
