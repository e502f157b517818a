"""The tasks of tools/train and the frozen sets of eval: the chat format against the vendor's encoder, records against their
schemas, checksums."""

from __future__ import annotations

import hashlib
import json
import random
import sys

import jsonschema
import pytest
from deepseek_recipe import AssistantMessage, Conversation, DeepseekV41Encoding, UserMessage

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools" / "train"))
import tasks  # noqa: E402

SETS = ROOT / "eval" / "sets"


@pytest.mark.parametrize("thinking", [False, True])
def test_chat_prompts_are_the_vendors(thinking):
    rng, encoding = random.Random(1), DeepseekV41Encoding()
    for _ in range(50):
        turns = tasks.chat_turns(rng)
        messages = []
        for t in turns[:-1]:
            messages += [UserMessage(t.question), AssistantMessage(t.answer)]
        messages.append(UserMessage(turns[-1].question))
        wanted = encoding.render_conversation(Conversation(messages, thinking_mode=thinking)).prompt
        assert tasks.chat_pieces(turns, thinking)[0][0] == wanted


def test_arithmetic_is_right():
    rng = random.Random(2)
    for _ in range(500):
        a, sign, b, result = tasks.problem(rng)
        assert result == {"+": a + b, "-": a - b, "x": a * b}[sign] >= 0
        assert tasks.worked(a, sign, b, result).endswith(f" {result}.")


def test_records_satisfy_their_schemas():
    rng = random.Random(3)
    for _ in range(100):
        schema = tasks.schema(rng)
        jsonschema.validate(tasks.instance(rng, schema), schema)


def test_sets_are_frozen():
    sums = dict(reversed(line.split()) for line in (SETS / "SHA256SUMS").read_text().splitlines())
    found = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in SETS.iterdir() if p.name != "SHA256SUMS"}
    assert found == sums


def test_recall_answers_stand_once_in_their_context():
    for line in (SETS / "recall.jsonl").read_text().splitlines():
        recall = json.loads(line)
        for case in recall["cases"]:
            key = case["prompt"].split("Answer: ")[1]
            assert recall["context"].lower().count(f" {key} ") == 1
            assert f" {key}{case['answer']}" in recall["context"].lower()
