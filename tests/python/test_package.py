"""The Python package on the bundled model: what it gives, what it refuses, and that it does so from any thread or task."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import aclosing
from dataclasses import fields
from pathlib import Path

import deepseek_recipe as recipe
import hub
import numpy as np
import pytest
import tokenizers
from conftest import BUILD, ROOT, run_cli

os.environ.setdefault("DEEPINFER_BUILD_DIR", str(BUILD))
sys.path.insert(0, str(ROOT / "python"))
import deepinfer
from deepinfer import LLM, ClosedError, CompletionOutput, InvalidError, RequestError, SamplingParams, _library, chat, sampling

TINY = ROOT / "models" / "tiny"
PROMPTS = ["She was", "It is a truth universally acknowledged", "\n", "Mr. Darcy said that", "é"]
LONG = SamplingParams(max_tokens=4000, ignore_eos=True, seed=1)  # seconds, if nobody stops it


@pytest.fixture(scope="module")
def llm():
    with LLM(TINY, threads=2) as opened:
        yield opened


def generate(llm, prompts, params=None, **kwargs):
    return llm.generate(prompts, params, use_tqdm=False, **kwargs)


def content(output):
    """What a result says, without its times, its name and how much of it was cached."""
    choices = [
        (c.index, c.text, c.token_ids, c.logprobs, c.cumulative_logprob, c.finish_reason, c.stop_reason) for c in output.outputs
    ]
    return output.prompt_token_ids, output.prompt_logprobs, choices, output.seed, output.finished


def script(text: str, *, env: dict[str, str] | None = None, **kwargs) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "DEEPINFER_BUILD_DIR": str(BUILD)} | (env or {})
    return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120, **kwargs)


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def aborted_when_idle(llm):
    until(lambda: llm.stats()["running"] == 0)
    return llm.stats()["aborted"]


# ---------------------------------------------------------------------------------------------------------------------
# The library and its declarations.


def test_every_declared_function_is_there():
    text = "".join((ROOT / "include" / "deepinfer" / f"{name}.h").read_text() for name in _library.HEADERS)
    names = re.findall(r"^DI_API [^;(]*?\b(di_\w+)\(", text, re.MULTILINE)
    assert len(names) > 30
    for name in names:
        assert callable(getattr(_library.lib, name)), name


def test_the_library_shows_nothing_else():
    listed = subprocess.run(["nm", "-D", "--defined-only", BUILD / "libdeepinfer.so"], capture_output=True, text=True, check=True)
    shown = {line.split()[-1] for line in listed.stdout.splitlines()}
    declared = set()
    for header in (ROOT / "include" / "deepinfer").glob("*.h"):
        declared |= set(re.findall(r"^DI_API [^;(]*?\b(di_\w+)\(", header.read_text(), re.MULTILINE))
    assert shown == declared


def test_style_and_types():
    for tool in (["ruff", "check", "-q"], ["ruff", "format", "-q", "--diff"], ["mypy"]):
        done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_importing_loads_nothing_large():
    done = script(
        "import sys, deepinfer; print([m for m in ('asyncio', 'tqdm', 'deepseek_recipe', 'huggingface_hub') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_defaults_are_the_librarys():
    theirs, ours = sampling.defaults(), sampling.defaults()
    keep = SamplingParams().fill(ours)
    for name, _ in _library.ffi.typeof("struct di_sampling_params").fields:
        if isinstance(getattr(theirs, name), (int, float)):  # not the pointers of empty lists
            assert getattr(ours, name) == getattr(theirs, name), name
    del keep
    c_names = {name for name, _ in _library.ffi.typeof("struct di_sampling_params").fields}
    assert c_names - {f.name for f in fields(SamplingParams)} == {n for n in c_names if n.startswith("n_")} | {"has_seed"}


def test_options_are_the_registrys():
    table = run_cli("options", "--markdown").stdout.decode()
    assert [o.name for o in deepinfer.options().values()] == re.findall(r"^\| `--([\w-]+)`", table, re.MULTILINE)
    assert deepinfer.options()["max_model_len"].env is None
    assert deepinfer.options()["model"].env == "DEEPINFER_HF_MODEL_DIR"


# ---------------------------------------------------------------------------------------------------------------------
# Opening.


def test_options_take_effect():
    with LLM(TINY, max_model_len=64, mode="oracle", kv_quant=False, backend="reference", threads=1) as llm:
        assert llm.max_model_len == 64
        assert "oracle" in llm.identity and "reference" in llm.identity
        output = generate(llm, "She was", SamplingParams(max_tokens=200, ignore_eos=True))[0]
        assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 64
        assert output.outputs[0].finish_reason == "length"
        assert output.identity == llm.identity


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"thread": 1}, TypeError, "no option 'thread'; did you mean 'threads'"),
        ({"max-model-len": 1}, TypeError, "no option 'max-model-len'; did you mean 'max_model_len'"),
        ({"tensor_parallel_size": 2}, TypeError, "no option 'tensor_parallel_size'"),
        ({"threads": -1}, ValueError, 'threads: "-1"'),
        ({"threads": 1.5}, TypeError, "threads must be"),
        ({"threads": True}, TypeError, "threads must be"),
        ({"mode": "exact"}, ValueError, "mode"),
        ({"mode": "or\0acle"}, ValueError, "mode contains a zero character"),
        ({"max_model_len": 1 << 70}, ValueError, "max-model-len"),
    ],
)
def test_bad_options(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        LLM(TINY, **given)


def test_bad_models(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither a folder nor a hub id"):
        LLM(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"owner/nothing.*hf download"):
        LLM("owner/nothing")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json") as raised:
        LLM(tmp_path)
    assert raised.value.code == "DI_ERR_FORMAT"
    with pytest.raises(TypeError):
        LLM(3)


def test_the_variable_names_the_model(monkeypatch):
    monkeypatch.setenv("DEEPINFER_HF_MODEL_DIR", str(TINY))
    with LLM() as llm:
        assert llm.vocab_size == 4096


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizer.


def test_tokenizer_is_the_files(llm):
    theirs, ours = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json")), llm.tokenizer
    for text in [*PROMPTS, "", "a\0b", "Eight o'clock; 12,345 — “so”!", "<｜User｜>hello<think>", "\U0001f600" * 3]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
        for skip in (False, True):
            assert ours.decode(ours.encode(text), skip) == theirs.decode(ours.encode(text), skip_special_tokens=skip)
    assert ours.vocab_size == len(ours) == theirs.get_vocab_size()
    assert ours.find("<think>") == theirs.token_to_id("<think>")
    assert ours.find("no such token") is None
    assert ours.token_bytes(ours.find("<think>")) == b"<think>"
    assert ours.is_special(ours.find("<think>")) and not ours.is_special(300)
    assert ours.encode("x", add_bos=True) == [ours.bos_token_id, *ours.encode("x")]
    special = ours.encode("<think>", parse_special=False)
    assert ours.find("<think>") not in special and ours.decode(special) == "<think>"


def test_tokenizer_refuses(llm):
    with pytest.raises(ValueError, match="surrogates"):
        llm.tokenizer.encode("\ud800")
    with pytest.raises(TypeError):
        llm.tokenizer.encode(b"bytes")
    for bad in (-1, 4096, 1 << 40):
        with pytest.raises(ValueError, match=str(bad)):
            llm.tokenizer.decode([300, bad])
    with pytest.raises(KeyError):
        llm.tokenizer.token_bytes(4096)


# ---------------------------------------------------------------------------------------------------------------------
# generate().


def test_tokens_are_those_of_the_command_line(llm):
    done = run_cli(
        "run",
        "--model",
        TINY,
        "--prompt",
        "She was",
        "--bos",
        "off",
        "--seed",
        4,
        "--temperature",
        0.7,
        "--max-tokens",
        30,
        "--json",
    )
    theirs = json.loads(done.stdout)
    ours = generate(llm, "She was", SamplingParams(seed=4, temperature=0.7, max_tokens=30))[0]
    assert ours.prompt_token_ids == theirs["prompt_token_ids"]
    assert ours.outputs[0].token_ids == theirs["token_ids"]
    assert ours.outputs[0].text == theirs["text"]
    assert ours.outputs[0].finish_reason == theirs["finish_reason"]
    assert str(ours.seed) == theirs["seed"] and ours.identity == theirs["identity"]


def test_forms_of_a_prompt(llm):
    params, ids = SamplingParams(seed=1, max_tokens=8), llm.tokenizer.encode("She was")
    forms = [
        "She was",
        ids,
        tuple(ids),
        np.array(ids),
        {"prompt": "She was"},
        {"prompt_token_ids": ids},
        {"prompt": "x", "prompt_token_ids": ids},
    ]
    wanted = content(generate(llm, "She was", params)[0])
    for form in forms:
        assert [content(o) for o in generate(llm, form, params)] == [wanted]
        assert [content(o) for o in generate(llm, [form], params)] == [wanted]
    assert [content(o) for o in generate(llm, forms, params)] == [wanted] * len(forms)
    assert [content(o) for o in generate(llm, np.array([ids, ids]), params)] == [wanted] * 2
    assert [o.prompt for o in generate(llm, forms, params)] == ["She was", None, None, None, "She was", None, "x"]
    assert generate(llm, []) == []


def test_special_literals_in_a_text(llm):
    output = generate(llm, "<｜begin▁of▁sentence｜>She", SamplingParams(max_tokens=1))[0]
    assert output.prompt_token_ids[0] == llm.tokenizer.bos_token_id
    output = generate(llm, "She", SamplingParams(max_tokens=1))[0]
    assert output.prompt_token_ids[0] != llm.tokenizer.bos_token_id


def test_a_batch_is_its_requests_one_by_one(llm):
    rng = random.Random(1)
    prompts = [*PROMPTS, *[[rng.randrange(11, 4096) for _ in range(rng.randrange(1, 700))] for _ in range(7)]]
    params = [
        SamplingParams(
            seed=i, max_tokens=rng.randrange(1, 40), temperature=rng.choice([0, 0.7, 1.3]), top_k=rng.choice([0, 5]),
            top_p=rng.choice([1.0, 0.9]), min_p=rng.choice([0.0, 0.05]), n=rng.choice([1, 1, 3]), logprobs=rng.choice([None, 0, 3]),
            presence_penalty=rng.choice([0.0, 1.0]), frequency_penalty=rng.choice([0.0, 0.5]), repetition_penalty=rng.choice([1.0, 1.2]),
        )
        for i in range(len(prompts))
    ]  # fmt: skip
    together = generate(llm, prompts, params, priority=[rng.randrange(3) for _ in prompts])
    assert [o.prompt_token_ids for o in together][:5] == [llm.tokenizer.encode(p) for p in PROMPTS]
    for prompt, param, output in zip(prompts, params, together, strict=True):
        assert content(generate(llm, prompt, param)[0]) == content(output)


def test_choices(llm):
    one = generate(llm, "She was", SamplingParams(seed=3, max_tokens=12))[0]
    three = generate(llm, "She was", SamplingParams(seed=3, max_tokens=12, n=3, logprobs=0))[0]
    assert [c.index for c in three.outputs] == [0, 1, 2]
    assert three.outputs[0].token_ids == one.outputs[0].token_ids
    assert len({tuple(c.token_ids) for c in three.outputs}) == 3
    assert all(len(c.token_ids) == len(c.logprobs) == 12 for c in three.outputs)


def test_seeds(llm):
    free = generate(llm, ["She was"] * 2, SamplingParams(max_tokens=12))
    assert free[0].seed != free[1].seed
    again = generate(llm, "She was", SamplingParams(max_tokens=12, seed=free[0].seed))[0]
    assert content(again) == content(free[0])
    other_name = generate(llm, "She was", SamplingParams(max_tokens=12, seq_seed=free[0].seed))[0]
    assert content(other_name) == content(again)
    assert generate(llm, "She was", SamplingParams(max_tokens=1, seed=2**64 - 1))[0].seed == 2**64 - 1
    SamplingParams(seed=3, seq_seed=3)
    with pytest.raises(ValueError, match="seed is 3 and seq_seed is 4"):
        SamplingParams(seed=3, seq_seed=4)


def test_filters_and_biases(llm):
    ids = llm.tokenizer.encode(" the") + llm.tokenizer.encode(" a")
    only = generate(llm, "She was", SamplingParams(max_tokens=20, allowed_token_ids=ids, seed=1))[0].outputs[0]
    assert set(only.token_ids) == set(ids)
    none = generate(llm, "She was", SamplingParams(max_tokens=20, allowed_token_ids=ids, bad_token_ids=ids[:1], seed=1))[
        0
    ].outputs[0]
    assert set(none.token_ids) == {ids[1]}
    forced = generate(llm, "She was", SamplingParams(max_tokens=3, logit_bias={300: 100.0, 301: -math.inf}, seed=1))[0].outputs[0]
    assert forced.token_ids == [300] * 3
    greedy = generate(llm, "She was", SamplingParams(max_tokens=20, temperature=0))[0].outputs[0]
    top_k = generate(llm, "She was", SamplingParams(max_tokens=20, temperature=5.0, top_k=1))[0].outputs[0]
    assert top_k.token_ids == greedy.token_ids


def test_lengths(llm):
    eos = llm.tokenizer.eos_token_id
    ended = generate(llm, "She was", SamplingParams(logit_bias={eos: 100}))[0].outputs[0]
    assert (ended.text, ended.token_ids, ended.finish_reason, ended.stop_reason) == ("", [eos], "stop", None)
    late = generate(llm, "She was", SamplingParams(logit_bias={eos: 100}, min_tokens=5))[0].outputs[0]
    assert len(late.token_ids) == 6 and late.finish_reason == "stop"
    never = generate(llm, "She was", SamplingParams(logit_bias={eos: 100}, ignore_eos=True, max_tokens=7))[0].outputs[0]
    assert never.token_ids == [eos] * 7 and never.finish_reason == "length" and never.text == ""
    shown = generate(
        llm, "She was", SamplingParams(logit_bias={eos: 100}, ignore_eos=True, max_tokens=2, skip_special_tokens=False)
    )
    assert shown[0].outputs[0].text == "<｜end▁of▁sentence｜>" * 2


def test_stops(llm):
    free = SamplingParams(seed=4, temperature=0.7, max_tokens=40)
    whole = generate(llm, "She was", free)[0].outputs[0]
    for stop in (whole.text[20:27], whole.text[11:12], whole.text[-3:]):
        at = whole.text.index(stop)
        for include in (False, True):
            params = SamplingParams(**vars(free) | {"stop": ["never said", stop], "include_stop_str_in_output": include})
            cut = generate(llm, "She was", params)[0].outputs[0]
            assert cut.text == whole.text[: at + len(stop) * include]
            assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)
            assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert generate(llm, "She was", SamplingParams(**vars(free) | {"stop": whole.text[:1]}))[0].outputs[0].text == ""
    token = whole.token_ids[9]
    cut = generate(llm, "She was", SamplingParams(**vars(free) | {"stop_token_ids": [token]}))[0].outputs[0]
    assert cut.token_ids == whole.token_ids[: whole.token_ids.index(token) + 1]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", token)


def test_logprobs(llm):
    prompt = "It is a truth universally acknowledged"
    output = generate(llm, prompt, SamplingParams(seed=2, max_tokens=10, logprobs=5, prompt_logprobs=3))[0]
    choice = output.outputs[0]
    assert output.prompt_logprobs[0] is None
    rows = [*zip(output.prompt_token_ids, output.prompt_logprobs, strict=True)][1:]
    for count, token, row in [(3, t, r) for t, r in rows] + [
        (5, t, r) for t, r in zip(choice.token_ids, choice.logprobs, strict=True)
    ]:
        assert next(iter(row)) == token  # first, as vLLM has it
        assert len(row) == count + (row[token].rank > count)
        assert sorted(r.rank for i, r in row.items() if i != token or r.rank <= count) == list(range(1, count + 1))
        ranked = sorted(row.values(), key=lambda r: r.rank)
        assert [r.logprob for r in ranked] == sorted((r.logprob for r in ranked), reverse=True)
        assert sum(math.exp(r.logprob) for r in ranked) < 1.0 + 1e-5
        assert all(r.decoded_token == llm.tokenizer.decode(i) for i, r in row.items())
    assert choice.cumulative_logprob == pytest.approx(
        sum(r[t].logprob for t, r in zip(choice.token_ids, choice.logprobs, strict=True))
    )
    greedy = generate(llm, prompt, SamplingParams(temperature=0, max_tokens=5, logprobs=0))[0].outputs[0]
    assert all([r.rank for r in row.values()] == [1] for row in greedy.logprobs)
    # The next token's log-probabilities do not depend on whether it is part of the prompt.
    grown = generate(llm, output.prompt_token_ids + choice.token_ids, SamplingParams(max_tokens=1, prompt_logprobs=5))[0]
    for token, was, now in zip(choice.token_ids, choice.logprobs, grown.prompt_logprobs[-10:], strict=True):
        assert was[token].logprob == now[token].logprob
    plain = generate(llm, prompt, SamplingParams(max_tokens=2))[0]
    assert plain.prompt_logprobs is plain.outputs[0].logprobs is plain.outputs[0].cumulative_logprob is None


def test_a_prefix_may_come_from_the_cache(llm):
    prompt = [11 + i % 3000 for i in range(1500)]
    first, second = (generate(llm, prompt, SamplingParams(seed=1, max_tokens=10))[0] for _ in range(2))
    assert content(first) == content(second)
    assert first.num_cached_tokens < second.num_cached_tokens < 1500
    assert second.metrics.total_seconds >= second.metrics.first_token_seconds >= second.metrics.queued_seconds >= 0


def test_progress(llm):
    updates, closed = [], []

    class Bar:
        def __init__(self, total, **kwargs):
            assert total == 3

        def set_postfix_str(self, text, refresh):
            assert re.fullmatch(r"\d+ tokens/s in, \d+ out", text)

        def update(self, n):
            updates.append(n)

        def close(self):
            closed.append(True)

    llm.generate(["a", "b", "c"], SamplingParams(max_tokens=2), use_tqdm=Bar)
    assert sum(updates) == 3 and closed == [True]
    done = script(f"import deepinfer; deepinfer.LLM({str(TINY)!r}).generate('She was', deepinfer.SamplingParams(max_tokens=2))")
    assert "Prompts: 100%" in done.stderr and "tokens/s in" in done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Bad input.

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", NAN), ("temperature", INF), ("top_p", 0.0), ("top_p", 1.1), ("top_p", NAN), ("top_k", -2),
        ("min_p", -0.1), ("min_p", 1.1), ("min_p", NAN), ("repetition_penalty", 0.0), ("repetition_penalty", NAN),
        ("frequency_penalty", 2.1), ("presence_penalty", -2.1), ("presence_penalty", NAN), ("logit_bias", {4096: 1.0}),
        ("logit_bias", {-1: 1.0}), ("logit_bias", {5: 101.0}), ("logit_bias", {5: NAN}), ("logit_bias", {5: INF}),
        ("allowed_token_ids", [4096]), ("allowed_token_ids", [-1]), ("allowed_token_ids", [1 << 31]), ("bad_token_ids", [4096]),
        ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 1 << 31), ("min_tokens", -1), ("min_tokens", 257), ("stop", ""),
        ("stop", ["x", ""]), ("stop", "x" * 1025), ("stop", ["x"] * 65), ("stop", "a\0b"), ("stop", "\ud800"), ("stop_token_ids", [4096]),
        ("stop_token_ids", [-2]), ("n", 0), ("n", -1), ("n", 65), ("logprobs", -1), ("logprobs", 21), ("prompt_logprobs", -1),
        ("prompt_logprobs", 21),
    ],
)  # fmt: skip
def test_parameters_out_of_range(llm, name, value):
    params = SamplingParams(**{name: value})
    before = llm.stats()["requests"]
    with pytest.raises(InvalidError, match=re.escape(name)):
        generate(llm, "She was", params)
    assert llm.stats()["requests"] == before
    outputs = generate(llm, ["She was", "He said"], [params, SamplingParams(max_tokens=1)], raise_on_error=False)
    assert [o.outputs[0].finish_reason for o in outputs] == ["error", "length"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"), ("temperature", None), ("temperature", True), ("top_p", [1.0]), ("top_k", 1.5), ("max_tokens", None),
        ("max_tokens", 2.0), ("max_tokens", True), ("ignore_eos", 1), ("ignore_eos", None), ("stop", 3), ("stop", [3]), ("stop", b"x"),
        ("stop", {"x": 1}), ("stop_token_ids", 5), ("stop_token_ids", ["x"]), ("stop_token_ids", "12"), ("allowed_token_ids", [None]),
        ("logit_bias", [(5, 1.0)]), ("logit_bias", {"5": 1.0}), ("logit_bias", {5: "x"}), ("n", "1"), ("logprobs", 1.5),
        ("logprobs", True), ("skip_special_tokens", "no"),
    ],
)  # fmt: skip
def test_parameters_of_the_wrong_type(llm, name, value):
    params, before = SamplingParams(**{name: value}), llm.stats()["requests"]
    with pytest.raises(TypeError, match=re.escape(name)):
        generate(llm, ["She was", "He said"], [SamplingParams(), params])
    assert llm.stats()["requests"] == before


def test_parameters_that_do_not_exist():
    with pytest.raises(TypeError, match="best_of"):
        SamplingParams(best_of=2)
    with pytest.raises(NotImplementedError, match="so_args"):
        SamplingParams(so_args={"schema_type": "regex", "schema": "a+"})
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match="seed"):
            SamplingParams(seed=seed)
    with pytest.raises(TypeError, match="seed"):
        SamplingParams(seed=1.0)


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        ("", ValueError, "empty"), ([[]], ValueError, "empty"), ({"prompt_token_ids": []}, ValueError, "empty"),
        ([5, 4096], ValueError, "4096"), ([5, -1], ValueError, "-1"), ([5, 1 << 40], ValueError, str(1 << 40)),
        ([5] * 4096, ValueError, "4096"), ("\ud800", ValueError, "surrogates"),
        ([5, "x"], TypeError, "token 1"), ([5, None], TypeError, "token 1"), ([5, 1.5], TypeError, "token 1"),
        (None, TypeError, "prompts"), (5, TypeError, "prompts"), (b"x", TypeError, "prompts"), ([b"x"], TypeError, "prompt 0"),
        ([None], TypeError, "prompt 0"), (["x", 5], TypeError, "prompt 1"), ({"text": "x"}, TypeError, "prompt"), ({}, TypeError, "prompt"),
        ({"prompt": 5}, TypeError, "prompt"), ({"prompt_token_ids": 5}, TypeError, "prompt"), ({"prompt_token_ids": "5"}, TypeError, "prompt"),
        ({"prompt": "x", "multi_modal_data": 1}, TypeError, "prompt"),
    ],
)  # fmt: skip
def test_bad_prompts(llm, prompt, error, message):
    with pytest.raises(error, match=message):
        generate(llm, prompt)
    if not isinstance(prompt, list) or isinstance(prompt[0], int):  # one prompt
        with pytest.raises(error, match=message.replace("prompts", "prompt")):
            next(llm.stream(prompt))


def test_lists_of_different_lengths(llm):
    before = llm.stats()["requests"]
    with pytest.raises(ValueError, match="1 sampling_params for 2 prompts"):
        generate(llm, ["a", "b"], [SamplingParams()])
    with pytest.raises(ValueError, match="3 priority for 2 prompts"):
        generate(llm, ["a", "b"], priority=[1, 2, 3])
    with pytest.raises(TypeError, match="sampling_params"):
        generate(llm, ["a", "b"], {"max_tokens": 3})
    with pytest.raises(TypeError, match="sampling_params"):
        generate(llm, ["a", "b"], [SamplingParams(), None])
    with pytest.raises(TypeError, match="priority"):
        generate(llm, ["a", "b"], priority="high")
    with pytest.raises(TypeError, match="one prompt at a time"):
        next(llm.stream(["a", "b"]))
    assert llm.stats()["requests"] == before


def test_one_bad_prompt_does_not_hurt_the_others(llm):
    prompts, params = ["She was", "", [5, 9999], "He said"], SamplingParams(seed=1, max_tokens=5)
    outputs = generate(llm, prompts, params, raise_on_error=False)
    assert [o.outputs[0].finish_reason for o in outputs] == ["length", "error", "error", "length"]
    assert all(o.finished for o in outputs)
    assert isinstance(outputs[1].error, ValueError) and "9999" in str(outputs[2].error)
    assert content(outputs[3]) == content(generate(llm, "He said", params)[0])
    with pytest.raises(RequestError, match=r"2 of 4 requests failed: prompt 1: .*empty.*; prompt 2: .*9999") as raised:
        generate(llm, prompts, params)
    assert [o.prompt for o in raised.value.failed] == ["", None]
    assert [content(o) for o in raised.value.outputs] == [content(o) for o in outputs]
    assert generate(llm, "", params, raise_on_error=False)[0].error is not None


def test_a_request_that_fails_while_it_runs(llm):
    """Every token but the end of sequence is forbidden, and that one until min_tokens."""
    eos = llm.tokenizer.eos_token_id
    params = SamplingParams(allowed_token_ids=[eos], min_tokens=2, max_tokens=5)
    outputs = generate(llm, ["She was", "He said"], [params, SamplingParams(max_tokens=2)], raise_on_error=False)
    assert [o.outputs[0].finish_reason for o in outputs] == ["error", "length"]


# ---------------------------------------------------------------------------------------------------------------------
# Streams.


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_ends_as_generate_does(llm, n):
    params = SamplingParams(seed=7, max_tokens=60, n=n, logprobs=1, prompt_logprobs=1, stop=["her"])
    whole = generate(llm, "She was", params)[0]
    shown = list(llm.stream("She was", params))
    assert content(shown[-1]) == content(whole)
    assert [o.finished for o in shown] == [False] * (len(shown) - 1) + [True] and len(shown) > 3
    for before, after in zip(shown, shown[1:], strict=False):
        for old, new in zip(before.outputs, after.outputs, strict=True):
            assert new.text.startswith(old.text)
            assert new.token_ids[: len(old.token_ids)] == old.token_ids
    text, ids, logprobs = [""] * n, [[] for _ in range(n)], [[] for _ in range(n)]
    deltas = list(llm.stream("She was", params, delta=True))
    for output in deltas:
        for choice in output.outputs:
            text[choice.index] += choice.text
            ids[choice.index] += choice.token_ids
            logprobs[choice.index] += choice.logprobs
    assert text == [c.text for c in whole.outputs]
    assert ids == [c.token_ids for c in whole.outputs]
    assert logprobs == [c.logprobs for c in whole.outputs]
    assert [o.prompt_logprobs for o in deltas if o.prompt_logprobs is not None] == [whole.prompt_logprobs]


def test_leaving_a_stream_aborts_it(llm):
    before = aborted_when_idle(llm)
    for i, output in enumerate(llm.stream("She was", LONG)):
        assert not output.finished
        if i == 3:
            break
    gc.collect()
    assert aborted_when_idle(llm) == before + 1


def test_streams_raise(llm):
    with pytest.raises(ValueError, match="empty"):
        next(llm.stream(""))
    with pytest.raises(ValueError, match="top_p"):
        next(llm.stream("x", SamplingParams(top_p=2.0)))


def collect(llm, prompt, params, **kwargs):
    async def last():
        async for output in llm.generate_async(prompt, params, **kwargs):
            pass
        return output

    return last()


def test_async_requests_run_together(llm):
    params = [SamplingParams(seed=i, max_tokens=20 + i) for i in range(8)]

    async def main():
        return await asyncio.gather(*(collect(llm, "She was", p) for p in params))

    assert [content(o) for o in asyncio.run(main())] == [content(o) for o in generate(llm, ["She was"] * 8, params)]


def test_cancelling_a_task_aborts_its_request(llm):
    before = aborted_when_idle(llm)

    async def main():
        task = asyncio.create_task(collect(llm, "She was", LONG, request_id="long"))
        await collect(llm, "He said", SamplingParams(max_tokens=5))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with aclosing(llm.generate_async("She was", LONG)) as outputs:
            async for _ in outputs:
                break

    asyncio.run(main())
    assert aborted_when_idle(llm) == before + 2


def test_async_ids(llm):
    async def main():
        task = asyncio.create_task(collect(llm, "She was", LONG, request_id="one"))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="one"):
            await collect(llm, "He said", None, request_id="one")
        until(lambda: llm.stats()["running"] == 1)
        assert llm.abort("one")
        output = await task
        assert output.request_id == "one" and output.finished
        assert output.outputs[0].finish_reason == "abort" and output.outputs[0].error is None
        assert not llm.abort("one") and not llm.abort("never")
        with pytest.raises(ValueError, match="request_id"):
            await collect(llm, "x", None, request_id="a\0b")
        with pytest.raises(ValueError, match="empty"):
            await collect(llm, "", None)

    asyncio.run(main())


def test_a_loop_may_go_away(llm):
    before = aborted_when_idle(llm)

    async def main():
        outputs = llm.generate_async("She was", LONG)
        await anext(outputs)
        return outputs

    loop = asyncio.new_event_loop()
    outputs = loop.run_until_complete(main())
    loop.close()  # with the generator still open
    assert generate(llm, "He said", SamplingParams(max_tokens=2))[0].finished
    assert aborted_when_idle(llm) == before + 1  # nobody takes its events
    del outputs


def test_threads(llm):
    jobs = [(f"{p} {i}", SamplingParams(seed=i, max_tokens=15)) for i, p in enumerate(PROMPTS * 3)]
    wanted = [content(o) for o in generate(llm, [p for p, _ in jobs], [s for _, s in jobs])]
    found: list = [None] * len(jobs)

    def work(i):
        prompt, params = jobs[i]
        found[i] = content([*llm.stream(prompt, params)][-1] if i % 2 else generate(llm, prompt, params)[0])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


# ---------------------------------------------------------------------------------------------------------------------
# Ends.


def test_a_closed_llm():
    llm = LLM(TINY, threads=1)
    tokenizer, stream = llm.tokenizer, llm.stream("She was")
    llm.close()
    llm.close()
    for call in (
        lambda: generate(llm, "x"), lambda: generate(llm, ["x", "y"], raise_on_error=False), lambda: next(stream),
        lambda: tokenizer.encode("x"), lambda: tokenizer.decode([300]), lambda: len(tokenizer), llm.stats, lambda: llm.abort("x"),
        lambda: llm.chat([{"role": "user", "content": "x"}]), lambda: asyncio.run(collect(llm, "x", None)),
    ):  # fmt: skip
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert llm.max_model_len == 4096 and "closed" in repr(llm)


def test_closing_ends_what_runs():
    llm = LLM(TINY, threads=1)
    outputs = []
    thread = threading.Thread(target=lambda: outputs.extend(generate(llm, ["She was"] * 3, LONG)))
    thread.start()
    until(lambda: llm.stats()["running"] == 3)
    stream = llm.stream("He said", LONG)
    next(stream)
    llm.close()
    thread.join()
    assert [o.outputs[0].finish_reason for o in outputs] == ["abort"] * 3
    assert list(stream)[-1].outputs[0].finish_reason == "abort"


def test_a_forgotten_llm_is_closed():
    llm = LLM(TINY, threads=1)
    client = llm._client
    stream = llm.stream("She was", LONG)
    next(stream)
    del llm, stream
    gc.collect()
    assert client.closed
    until(lambda: client._engine is None)
    assert LLM(TINY, threads=1).tokenizer.encode("She was")  # the tokenizer keeps its LLM


def test_the_interpreter_may_end_at_any_time():
    begin = (
        f"import deepinfer; llm = deepinfer.LLM({str(TINY)!r}); p = deepinfer.SamplingParams(max_tokens=4000, ignore_eos=True)\n"
    )
    for end in (
        "",
        "s = llm.stream('x', p); next(s)",
        "llm.generate('x', deepinfer.SamplingParams(max_tokens=1)); raise SystemExit(0)",
    ):
        done = script(begin + end)
        assert done.returncode == 0, done.stderr


def test_an_interrupt_aborts_the_batch():
    done = script(f"""
import deepinfer, os, signal, threading, time
llm = deepinfer.LLM({str(TINY)!r})

def interrupt():
    while llm.stats()["running"] < 4:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    llm.generate(["x"] * 4, deepinfer.SamplingParams(max_tokens=4000, ignore_eos=True), use_tqdm=False)
except KeyboardInterrupt:
    while llm.stats()["running"]:
        time.sleep(0.01)
    print(llm.stats()["aborted"], llm.generate("x", deepinfer.SamplingParams(max_tokens=2), use_tqdm=False)[0].finished)
""")
    assert done.stdout == "4 True\n", done.stderr


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told(llm):
    generate(llm, "x", SamplingParams(max_tokens=1))
    process = os.fork()
    if process == 0:
        try:
            generate(llm, "x")
        except deepinfer.EngineError as told:
            os._exit(7 if "another process" in str(told) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7


# ---------------------------------------------------------------------------------------------------------------------
# Chat.

HELLO = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello <｜User｜> <think>!"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_chat_prompts_are_the_vendors(llm, thinking, tools):
    encoding = recipe.DeepseekV41Encoding().with_tokenizer(recipe.Tokenizer.from_file(str(TINY / "tokenizer.json")))
    body = {"model": "DeepSeek-V4.1-Flash", "messages": HELLO} | ({"tools": tools} if tools else {})
    request = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions(default_thinking_mode=thinking))
    output = llm.chat(HELLO, SamplingParams(max_tokens=3), use_tqdm=False, thinking=thinking, tools=tools)[0]
    assert output.prompt_token_ids == encoding.encode(request.conversation)
    assert output.prompt == encoding.render_conversation(request.conversation).prompt
    assert output.prompt_token_ids.count(llm.tokenizer.find("<｜User｜>")) == 1  # content never becomes special tokens
    assert output.prompt_token_ids[0] == llm.tokenizer.bos_token_id


def test_chat_replies(llm):
    conversations = [[{"role": "user", "content": text}] for text in ("Hello", "Good morning.")]
    params = SamplingParams(seed=1, max_tokens=12)
    outputs = llm.chat(conversations, params, use_tqdm=False, thinking=False)
    assert len(outputs) == 2
    for conversation, output in zip(conversations, outputs, strict=True):
        assert content(llm.chat(conversation, params, use_tqdm=False, thinking=False)[0]) == content(output)
        assert output.outputs[0].message == {"role": "assistant", "content": output.outputs[0].text}
    thinking = llm.chat(conversations[0], params, use_tqdm=False)[0].outputs[0]
    assert thinking.message["reasoning_content"].strip() == thinking.text.strip() and thinking.message["content"] == ""
    stop = outputs[0].outputs[0].text[5:9]
    cut = llm.chat(conversations[0], SamplingParams(seed=1, max_tokens=12, stop=stop), use_tqdm=False, thinking=False)[0].outputs[
        0
    ]
    assert cut.message["content"] == cut.text


def test_messages_have_parts(llm):
    """A reply that the bundled model would not give: reasoning, an answer, a tool call."""
    rendered = chat.render(llm.tokenizer, HELLO, True, TOOLS, None, None)
    call = '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
    ids = llm.tokenizer.encode(f"I think so.</think>Yes.{call}<｜end▁of▁sentence｜>")
    message = rendered.message(llm.tokenizer, CompletionOutput(0, token_ids=ids, finish_reason="stop"), SamplingParams())
    assert (message["role"], message["reasoning_content"], message["content"]) == ("assistant", "I think so.", "Yes.")
    assert [c["function"] for c in message["tool_calls"]] == [{"name": "f", "arguments": "{}"}]


@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ([], None, None), ([[]], ValueError, "messages"), ("Hello", TypeError, "messages"), ([3], TypeError, "conversation 0"),
        ([{"role": "user"}], ValueError, "content"), ([{"role": "pope", "content": "x"}], ValueError, "pope"),
        ([[{"role": "user", "content": "x"}], [{"role": "pope", "content": "x"}]], ValueError, "conversation 1: .*pope"),
        ([[{"role": "user", "content": "x"}], ["x"]], ValueError, "conversation 1"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}], NotImplementedError, "images"),
    ],
)  # fmt: skip
def test_bad_conversations(llm, messages, error, message):
    if error is None:
        assert llm.chat(messages) == []
        return
    with pytest.raises(error, match=message):
        llm.chat(messages)


def test_chat_without_the_package():
    done = script(
        "import sys; sys.modules['deepseek_recipe'] = None\n"
        f"import deepinfer; deepinfer.LLM({str(TINY)!r}).chat([{{'role': 'user', 'content': 'x'}}])"
    )
    assert done.returncode == 1 and "pip install 'deepseek-recipe" in done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Fetching, the example, the wheel.


def test_fetching(tmp_path):
    open_it = "import sys; from deepinfer import LLM; print(LLM(sys.argv[1]).tokenizer.encode('She was'))"
    with hub.serving("owner/tiny", TINY) as server:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "python"), "DEEPINFER_BUILD_DIR": str(BUILD), "HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path),
        }  # fmt: skip
        environment = {k: v for k, v in environment.items() if k not in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN")}

        def python(*arguments):
            return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120)

        for model in ("owner/tiny", f"owner/tiny@{hub.COMMIT}"):
            done = python("-m", "deepinfer.fetch", model)
            assert done.returncode == 0, done.stderr
            folder = Path(done.stdout.strip())
            assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in TINY.iterdir())
            assert python("-c", open_it, model).stdout == "[1163, 315]\n"
        bodies = [path for method, path in server.requests if method == "GET" and path.endswith(".safetensors")]
        assert len(bodies) == 1  # what is there is not fetched again
        environment["DEEPINFER_HF_MODEL_DIR"] = "owner/tiny"
        assert python("-m", "deepinfer.fetch").stdout.strip() == str(folder)
        missing = python("-m", "deepinfer.fetch", "owner/none")
        assert missing.returncode == 1 and "deepinfer.fetch: error: " in missing.stderr and "owner/none" in missing.stderr
    assert python("-c", open_it, "owner/tiny").stdout == "[1163, 315]\n"  # with no server


def test_the_example():
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "DEEPINFER_BUILD_DIR": str(BUILD)}
    done = subprocess.run(
        [sys.executable, "examples/offline_inference.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" -> ") == 4 and "Chat: {'role': 'assistant'" in done.stdout


def test_the_wheel(tmp_path):
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        f"--config-settings=build-dir={tmp_path / 'build'}",
    ]
    done = subprocess.run([*build, "-w", tmp_path, ROOT], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    names = {p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*") if p.is_file()}
    assert {"deepinfer/libdeepinfer.so", "deepinfer/include/deepinfer/request.h", "deepinfer/py.typed"} <= names
    assert all(n.startswith(("deepinfer/", "deepinfer-")) for n in names)
    done = script(
        "import deepinfer, sys; llm = deepinfer.LLM(sys.argv[1] if len(sys.argv) > 1 else 'models/tiny')\n"
        "print(deepinfer.__file__, llm.generate('She was', deepinfer.SamplingParams(max_tokens=3), use_tqdm=False)[0].finished)",
        env={"PYTHONPATH": str(tmp_path / "site"), "DEEPINFER_BUILD_DIR": "/nowhere"},
        cwd=ROOT,
    )
    assert done.stdout == f"{tmp_path / 'site' / 'deepinfer' / '__init__.py'} True\n", done.stderr
