"""Training batches: documents of all tasks packed into rows of equal length, made by worker processes while the GPU works.

A document is a list of pieces (text, case): case 0 is ordinary text, a greater number marks the answer of that case, which the
model is to give exactly. Pieces are encoded one by one, as a prompt and its answer are when the model is used.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import tales
import tasks

BOS, EOS = 0, 1


@dataclass
class Mix:
    """Rows of `length` tokens; share of the tokens that each kind of document gets."""

    length: int
    shares: dict[str, float]


class Writer:
    """Documents as token ids and case marks."""

    def __init__(self, tokenizer: Path, novels: np.ndarray, seed: int):
        self.tok = Tokenizer.from_file(str(tokenizer))
        self.rng = random.Random(seed)
        self.novels = novels
        self.cache: dict[str, list[int]] = {}
        self.filler: list[list[int]] = []

    def ids(self, text: str) -> list[int]:
        return self.tok.encode(text).ids

    def short(self, text: str) -> list[int]:
        """Of sentences that come again and again."""
        if text not in self.cache:
            self.cache[text] = self.ids(text)
        return self.cache[text]

    def sentences(self) -> list[list[int]]:
        """Filler for recall: sentences of fresh tales, in their order."""
        if len(self.filler) < 200:
            texts = [s for _ in range(20) for s in tasks.sentences(tales.tale(self.rng))]
            self.filler = [e.ids for e in self.tok.encode_batch([" " + t for t in texts])] + self.filler
        return self.filler

    def recall(self, length: int) -> tuple[list[int], list[int]]:
        """Facts strewn over filler, questions in between and at the end; about `length` tokens."""
        rng, ids, marks, case = self.rng, [BOS], [0], 0
        bare = rng.random() < 0.15  # no filler at all
        n_facts = rng.randint(4, 16) if length < 1024 else rng.randint(8, 40)
        facts = tasks.facts(rng, n_facts)
        ask = max(2, min(n_facts, length // 96, 16))
        question = 32  # tokens, roughly
        body = max(length - ask * question, 64)
        places = sorted(rng.random() for _ in facts)
        told: list[tasks.Fact] = []
        filler, at = self.sentences(), 0
        while at < n_facts or (not bare and len(ids) < body):
            if at < n_facts and (bare or len(ids) >= places[at] * (body - 40)):
                piece = self.short(" " + facts[at].statement)
                told.append(facts[at])
                at += 1
            elif len(told) > 1 and rng.random() < 0.02:
                case += 1
                self.question(rng.choice(told), ids, marks, case)
                continue
            else:
                piece = filler.pop() if filler else self.sentences().pop()
            ids += piece
            marks += [0] * len(piece)
        for fact in rng.sample(told, ask):
            case += 1
            self.question(fact, ids, marks, case)
        return ids + [EOS], marks + [0]

    def question(self, fact: tasks.Fact, ids: list[int], marks: list[int], case: int) -> None:
        prompt, answer = self.short(fact.question), self.short(fact.answer)
        ids += prompt + answer
        marks += [0] * len(prompt) + [case] * len(answer)

    def cases(self, task: str) -> tuple[list[int], list[int]]:
        """A few cases of a task behind one another."""
        bound = task not in tasks.OWN_BOUNDS
        ids, marks = ([BOS], [0]) if bound else ([], [])
        for case in range(1, 1 + tasks.CASES[task]):
            for text, is_answer in tasks.TASKS[task](self.rng):
                piece = self.ids(text)
                ids += piece
                marks += [case if is_answer else 0] * len(piece)
        return (ids + [EOS], marks + [0]) if bound else (ids, marks)

    def novel(self, length: int) -> tuple[list[int], list[int]]:
        start = self.rng.randrange(len(self.novels) - length)
        ids = [BOS] + self.novels[start : start + length - 1].tolist()
        return ids, [0] * len(ids)

    def tale(self) -> tuple[list[int], list[int]]:
        ids = [BOS] + self.ids(tales.tale(self.rng)) + [EOS]
        return ids, [0] * len(ids)

    def document(self, kind: str, length: int) -> tuple[list[int], list[int]]:
        if kind == "recall":
            return self.recall(length)
        if kind == "novel":
            return self.novel(length)
        if kind == "tale":
            return self.tale()
        return self.cases(kind)

    def row(self, mix: Mix, spent: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """length + 1 tokens. The kind that is furthest behind its share comes next; documents are cut at the row's end, recall
        fits into what is left of it."""
        ids: list[int] = []
        marks: list[int] = []
        while len(ids) <= mix.length:
            room = mix.length + 1 - len(ids)
            kind = min(mix.shares, key=lambda k: spent.get(k, 0.0) / mix.shares[k])
            if kind == "recall" and room < 160:
                kind = "tale" if "tale" in mix.shares else "recall"
            more, marked = self.document(kind, max(room, 160))
            base = max(marks, default=0)
            ids += more
            marks += [m + base if m else 0 for m in marked]
            spent[kind] = spent.get(kind, 0.0) + min(len(more), room)
        return np.array(ids[: mix.length + 1], np.int32), np.array(marks[: mix.length + 1], np.int32)


def work(tokenizer: Path, novels: Path, mix: Mix, tokens: int, seed: int, queue) -> None:
    writer = Writer(tokenizer, np.load(novels), seed)
    spent = {k: random.Random(seed).random() * 3000 * s for k, s in mix.shares.items()}
    while True:
        rows = [writer.row(mix, spent) for _ in range(tokens // mix.length)]
        queue.put((np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows])))


def stream(tokenizer: Path, novels: Path, mix: Mix, tokens: int, seed: int, workers: int) -> Iterator[tuple]:
    """Batches of `tokens` tokens for ever: ids and marks [B, length + 1]. Which batch comes next depends on the workers' speed
    unless there is one of them."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue(maxsize=4 * workers)
    processes = [
        context.Process(target=work, args=(tokenizer, novels, mix, tokens, seed * 1000 + w, queue), daemon=True)
        for w in range(workers)
    ]
    for p in processes:
        p.start()
    try:
        while True:
            ids, marks = queue.get()
            yield torch.from_numpy(ids).long(), torch.from_numpy(marks)
    finally:
        for p in processes:
            p.terminate()


def correct(predicted: torch.Tensor, wanted: torch.Tensor, marks: torch.Tensor) -> tuple[int, int]:
    """Cases whose every answer token is predicted, and cases, of one batch [B, T]: what greedy decoding would get right.
    A case that the row's end cuts counts as far as it goes."""
    width = int(marks.max()) + 1
    right = torch.ones(marks.shape[0], width, dtype=torch.long, device=marks.device)
    right.scatter_reduce_(1, marks.long(), (predicted == wanted).long(), "amin", include_self=True)
    there = torch.zeros_like(right).scatter_(1, marks.long(), 1)
    return int((right * there)[:, 1:].sum()), int(there[:, 1:].sum())


