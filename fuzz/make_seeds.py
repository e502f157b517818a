"""Writes the seed corpora from the golden sets: small valid files, and each with one thing wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "fuzz" / "corpus"
MICRO = ROOT / "tests" / "data" / "goldens" / "micro"


def put(target: str, name: str, data: bytes) -> None:
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(data)


def safetensors(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main() -> None:
    entry = lambda begin, end, shape: {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    put("safetensors", "two", safetensors({"__metadata__": {"a": "b"}, "x": entry(0, 8, [2]), "y": entry(8, 24, [2, 2])}, bytes(24)))
    put("safetensors", "empty", safetensors({}, b""))
    put("safetensors", "hole", safetensors({"x": entry(0, 8, [2]), "y": entry(12, 16, [1])}, bytes(16)))
    put("safetensors", "overlap", safetensors({"x": entry(0, 8, [2]), "y": entry(4, 12, [2])}, bytes(12)))
    put("safetensors", "huge", struct.pack("<Q", 1 << 63) + b"{}")
    put("index", "two", json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}).encode())
    put("index", "leaves", json.dumps({"weight_map": {"a": "../m.safetensors"}}).encode())
    config = json.loads((MICRO / "config.json").read_text())
    put("config", "micro", json.dumps(config).encode())
    config["text_config"]["compress_ratios"] = [0, 0, 2]
    put("config", "short", json.dumps(config).encode())
    tokenizer = json.loads((MICRO / "tokenizer.json").read_text())
    put("tokenizer_json", "micro", json.dumps(tokenizer, ensure_ascii=False).encode())
    small = {k: v for k, v in tokenizer["model"]["vocab"].items() if len(k) == 1}
    tokenizer["model"]["vocab"] = {k: i for i, k in enumerate(small)}
    tokenizer["model"]["merges"], tokenizer["added_tokens"] = [], []
    put("tokenizer_json", "bytes", json.dumps(tokenizer, ensure_ascii=False).encode())
    stop = lambda strings, include, text: bytes([2 * len(strings) + include]) + b"".join(s + b"\0" for s in strings) + b"\x05" + text
    put("stop", "blank_line", stop([b"\n\n"], 0, b"one\ntwo\n\nthree"))
    put("stop", "overlapping", stop([b"abcd", b"bc", b"aab"], 1, b"aaaabcabcd"))
    put("stop", "characters", stop(["\u4e2d!".encode(), "\u4e2d\u4e2d?".encode()], 0, "\u4e2d\u4e2d\u4e2d!".encode()))
    put("stop", "empty_string", stop([b"a", b""], 0, b"a"))
    put("request", "text", json.dumps({"id": "a", "prompt": "She was", "temperature": 0.5, "stop": ["a", "b"], "max_tokens": 5}).encode())
    ids = {"custom_id": 7, "prompt_token_ids": [0, 5, 6], "n": 2, "seed": "18446744073709551615", "logprobs": 3, "priority": -1}
    put("request", "ids", json.dumps(ids).encode())
    lists = {"prompt": "x", "logit_bias": {"5": 1.5, "6": -100}, "allowed_token_ids": [5, 6, 7], "bad_token_ids": [7], "stop_token_ids": [6]}
    put("request", "lists", json.dumps(lists | {"ignore_eos": True, "min_tokens": 2}).encode())
    put("request", "near", json.dumps({"prompt": "x", "max_token": 3, "seq_seed": 1, "seed": 2}).encode())


if __name__ == "__main__":
    main()
