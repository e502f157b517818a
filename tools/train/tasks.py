"""Synthetic tasks with right answers, any number of cases from a seed: recall, copying, arithmetic, JSON records, chat turns.

A case is a list of pieces (text, is_answer). Pieces are encoded one by one, as a prompt and its answer are when the model is used.
Words are such that the tokenizer has each of them, with the space before it, as one token; digits are tokens of their own.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass

import tales

ADJECTIVES = """amber brave calm clever crimson eager faint gentle golden grey happy hidden humble jolly keen lazy lonely lucky merry
mighty noble old pale patient plain proud quick quiet red round rusty shy silent silver simple sleepy small soft stern swift tall
tame tiny warm wild wise young zesty""".split()
NOUNS = """badger bear bird boar cat clock cow crab crow deer dog donkey door duck eagle fish fox frog goat goose hare hawk hen horse
kite lamb lamp lion mole moth mouse otter owl ox pig pony rabbit raven seal sheep snail spider stork swan toad turtle whale
wolf""".split()
VALUES = """apples bells books bread bricks butter candles cheese cherries coal coins copper corn cotton eggs feathers figs flour
flowers glass gold grain grapes hats herbs honey ink iron ivory jewels keys lace leather lemons letters linen maps marbles milk
mirrors nails nuts oil onions oranges paper pearls pears pepper plums rice rings ropes roses salt sand seeds shells shoes silk soap
spoons stones sugar tea thread tin toys wheat wine wood wool""".split()
WORDS = ADJECTIVES + NOUNS + VALUES

BOS, EOS, USER, ASSISTANT, SYSTEM = (
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜System｜>",
)  # fmt: skip
THINK, UNTHINK = "<think>", "</think>"
EFFORT = "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"

Case = list[tuple[str, bool]]


# ---------------------------------------------------------------------------------------------------------------------
# Recall: "The amber fox keeps copper." ... "what does the amber fox keep?" The answer stands directly behind words that stand
# before it in the fact, so that one lookup finds it.


@dataclass(frozen=True)
class Fact:
    statement: str
    question: str
    answer: str


def fact(adjective: str, noun: str, value: str) -> Fact:
    key = f"{adjective} {noun}"
    return Fact(
        f"The {key} keeps {value}.", f"\nQuestion: what does the {key} keep?\nAnswer: the {key} keeps", f" {value}."
    )


def facts(rng: random.Random, n: int) -> list[Fact]:
    """n facts about different owners."""
    keys = rng.sample(range(len(ADJECTIVES) * len(NOUNS)), n)
    return [fact(ADJECTIVES[k // len(NOUNS)], NOUNS[k % len(NOUNS)], rng.choice(VALUES)) for k in keys]


def sentences(text: str) -> list[str]:
    return re.findall(r"[^.!?]+[.!?]+\"?", text.replace("\n\n", " "))


# ---------------------------------------------------------------------------------------------------------------------
# Copying, arithmetic, JSON.


def copy(rng: random.Random) -> Case:
    words = " ".join(rng.sample(WORDS, rng.randint(6, 24)))
    return [(f"\nCopy: {words}.\nAgain:", False), (f" {words}.", True)]


def problem(rng: random.Random) -> tuple[int, str, int, int]:
    """a, sign, b, result: sums up to 198, differences not below 0, the small multiplication table."""
    sign = rng.choice("+-x")
    if sign == "x":
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        return a, sign, b, a * b
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    if sign == "-":
        a, b = max(a, b), min(a, b)
    return a, sign, b, a + b if sign == "+" else a - b


def arithmetic(rng: random.Random) -> Case:
    a, sign, b, result = problem(rng)
    return [(f"\nQuestion: what is {a} {sign} {b}?\nAnswer:", False), (f" {result}.", True)]


FIELDS = """name owner colour animal fruit tool place size count age price height weight year open new ready tags items parts""".split()
COLOURS = "red blue green grey white black brown golden".split()


def schema(rng: random.Random) -> dict:
    """An object of two to five required properties, each a string, a bounded integer, a boolean, an enum or a list of strings."""
    properties: dict[str, dict] = {}
    for name in rng.sample(FIELDS, rng.randint(2, 5)):
        kind = rng.choice(["string", "integer", "boolean", "enum", "array"])
        if kind == "integer":
            low = rng.randint(0, 50)
            properties[name] = {"type": "integer", "minimum": low, "maximum": low + rng.randint(5, 49)}
        elif kind == "enum":
            properties[name] = {"enum": rng.sample(COLOURS, rng.randint(2, 4))}
        elif kind == "array":
            properties[name] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": rng.randint(2, 4)}
        else:
            properties[name] = {"type": kind}
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def instance(rng: random.Random, of: dict) -> dict:
    out: dict = {}
    for name, p in of["properties"].items():
        if "enum" in p:
            out[name] = rng.choice(p["enum"])
        elif p["type"] == "integer":
            out[name] = rng.randint(p["minimum"], p["maximum"])
        elif p["type"] == "boolean":
            out[name] = rng.random() < 0.5
        elif p["type"] == "array":
            out[name] = rng.sample(VALUES, rng.randint(p["minItems"], p["maxItems"]))
        else:
            out[name] = rng.choice(tales.BOYS + tales.GIRLS + NOUNS)
    return out


def record_prompt(of: dict) -> str:
    return f"\nSchema: {json.dumps(of, separators=(', ', ': '))}\nRecord:"


def record(rng: random.Random) -> Case:
    of = schema(rng)
    return [(record_prompt(of), False), (" " + json.dumps(instance(rng, of), separators=(", ", ": ")) + "\n", True)]


# ---------------------------------------------------------------------------------------------------------------------
# Chat. The prompt format is the released one (spec/model.md section 16.3): reasoning of earlier turns is dropped, which is why an
# earlier answer follows </think> directly.

OPPOSITES = """hot cold;big small;up down;day night;black white;old young;fast slow;happy sad;wet dry;open closed;early late;long
short;rich poor;loud quiet;hard soft;full empty;near far;high low;first last;light dark""".replace("\n", " ").split(";")
GREETINGS = [
    ("Hello!", "Hello! What can I do for you?"), ("Good morning.", "Good morning! What can I do for you?"),
    ("Hi there.", "Hello! What can I do for you?"), ("How are you?", "I am well, thank you. What can I do for you?"),
    ("Thank you.", "You are welcome."), ("Thanks a lot!", "You are welcome."),
]  # fmt: skip


@dataclass
class Turn:
    question: str
    thought: str  # what a thinking model says to itself first
    answer: str


def worked(a: int, sign: str, b: int, result: int) -> str:
    """The steps to the result, in a few words."""
    if sign == "x":
        return f"{a} times {b} is {result}."
    if sign == "+":
        ones = a % 10 + b % 10
        carry = ones // 10
        return f"{a % 10} + {b % 10} = {ones}, and {a // 10} + {b // 10}{f' + {carry}' if carry else ''} = {a // 10 + b // 10 + carry}, so it is {result}."
    borrow = a % 10 < b % 10
    ones = a % 10 + 10 * borrow - b % 10
    return f"{a % 10 + 10 * borrow} - {b % 10} = {ones}, and {a // 10 - borrow} - {b // 10} = {a // 10 - borrow - b // 10}, so it is {result}."


def turn(rng: random.Random) -> Turn:
    kind = rng.choice(["sum", "sum", "opposite", "greeting", "fact", "copy", "list"])
    if kind == "sum":
        a, sign, b, result = problem(rng)
        return Turn(f"What is {a} {sign} {b}?", worked(a, sign, b, result), f"{a} {sign} {b} is {result}.")
    if kind == "opposite":
        pair = rng.choice(OPPOSITES).split()
        rng.shuffle(pair)
        return Turn(f"What is the opposite of {pair[0]}?", f"The opposite of {pair[0]} is {pair[1]}.", f"It is {pair[1]}.")
    if kind == "greeting":
        question, answer = rng.choice(GREETINGS)
        return Turn(question, "I should be polite.", answer)
    if kind == "fact":
        known = facts(rng, rng.randint(2, 5))
        asked = rng.choice(known)
        key, value = asked.statement[4:-1].split(" keeps ")
        said = " ".join(f.statement for f in known)
        return Turn(
            f"{said} What does the {key} keep?", f"I was told that the {key} keeps {value}.", f"The {key} keeps {value}."
        )
    words = rng.sample(VALUES, rng.randint(3, 6))
    if kind == "copy":
        return Turn(f"Say this again: {' '.join(words)}", "I only have to copy it.", " ".join(words))
    numbered = "\n".join(f"{i}. {w}" for i, w in enumerate(words, 1))
    return Turn(f"Make a list of {', '.join(words)}.", f"There are {len(words)} of them.", numbered)


def tale_turn(rng: random.Random) -> Turn:
    return Turn("Tell me a tale.", "A tale has a beginning and an end.", tales.tale(rng))


def chat_turns(rng: random.Random) -> list[Turn]:
    if rng.random() < 0.15:
        return [tale_turn(rng)]
    return [turn(rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]


def chat_pieces(turns: list[Turn], thinking: bool, effort: int = 75) -> Case:
    """A conversation as the model sees it; the last answer with its thought, if any, is what it is to say."""
    out = BOS + (SYSTEM + EFFORT.format(effort) if thinking else "")
    for t in turns[:-1]:
        out += USER + t.question + ASSISTANT + UNTHINK + t.answer + EOS
    last = turns[-1]
    out += USER + last.question + ASSISTANT + (THINK if thinking else UNTHINK)
    return [(out, False), ((last.thought + UNTHINK if thinking else "") + last.answer + EOS, True)]


def chat(rng: random.Random) -> Case:
    return chat_pieces(chat_turns(rng), rng.random() < 0.4, rng.choice([50, 75, 75, 100]))


TASKS = {"copy": copy, "arithmetic": arithmetic, "json": record, "chat": chat}
CASES = {"copy": 4, "arithmetic": 8, "json": 3, "chat": 1}  # of one training document
OWN_BOUNDS = {"chat"}  # whose cases bring BOS and EOS with them


def vocabulary_text(rng: random.Random, size: int) -> str:
    """Text for the tokenizer, at least `size` characters: tales and task words, without digits, so that a digit stays one token."""
    out, length = [], 0
    while length < size:
        words = rng.sample(WORDS, 40)
        more = [tales.tale(rng), " ".join(f.statement + f.question + f.answer for f in facts(rng, 8)), " " + " ".join(words)]
        more += ["".join(t for t, _ in record(rng)), "".join(t.question + t.thought + t.answer for t in chat_turns(rng))]
        out += [re.sub(r"[0-9]+", "", t) for t in more]
        length += sum(map(len, more))
    return "\f".join(out)
