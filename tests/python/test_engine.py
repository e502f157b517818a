"""The engine through the package: what fails fails alone, and what is cached, truncated or squeezed gives the same answer."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
from conftest import GOLDENS, ROOT
from safetensors import safe_open
from safetensors.numpy import load_file

sys.path.insert(0, str(ROOT / "python"))
from deepinfer import LLM, SamplingParams  # noqa: E402

MICRO, TINY = GOLDENS / "micro", ROOT / "models" / "tiny"
POISON = 599  # a token whose embedding is made NaN


def ids(n: int, seed: int, vocab: int = 590) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(5, vocab, n)]


def outcome(out) -> tuple:
    first = out.outputs[0]
    return first.token_ids, [lp[t].logprob for t, lp in zip(first.token_ids, first.logprobs)], first.finish_reason


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """The checkpoint micro with NaN in the embedding of one token: bytes changed in place, nothing else."""
    folder = tmp_path_factory.mktemp("poisoned") / "micro"
    shutil.copytree(MICRO, folder)
    path = folder / "model.safetensors"
    with safe_open(path, "np") as f:
        shape = f.get_slice("embed.weight").get_shape()
    data = bytearray(path.read_bytes())
    header = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + header])["embed.weight"]["data_offsets"]
    row = (end - begin) // shape[0]
    at = 8 + header + begin + POISON * row
    data[at : at + row] = b"\xc0\x7f" * (row // 2)  # bf16 NaN
    path.write_bytes(data)
    return folder


def test_logits_that_are_not_numbers_end_their_request_alone(poisoned):
    params = SamplingParams(max_tokens=12, seed=1, logprobs=1, ignore_eos=True, bad_token_ids=[POISON])
    good = [ids(n, n) for n in (3, 40, 150)]
    with LLM(model=str(MICRO)) as llm:
        alone = [outcome(llm.generate([p], params, use_tqdm=False)[0]) for p in good]
    with LLM(model=str(poisoned)) as llm:
        prompts = [good[0], [*good[0], POISON], good[1], [POISON], good[2]]
        found = llm.generate(prompts, params, use_tqdm=False, raise_on_error=False)
        again = llm.generate(good, params, use_tqdm=False)
    assert [o.outputs[0].finish_reason == "error" for o in found] == [False, True, False, True, False]
    assert "not numbers" in str(found[1].error) and "not numbers" in str(found[3].error)
    assert [outcome(found[i]) for i in (0, 2, 4)] == alone == [outcome(o) for o in again]


def test_rules_that_leave_no_token_end_their_request_alone():
    with LLM(model=str(MICRO)) as llm:
        eos = 1
        stuck = SamplingParams(max_tokens=4, min_tokens=2, allowed_token_ids=[eos])
        plain = SamplingParams(max_tokens=4, seed=3, logprobs=0, ignore_eos=True)
        found = llm.generate([ids(5, 1)] * 2, [stuck, plain], use_tqdm=False, raise_on_error=False)
        assert found[0].outputs[0].finish_reason == "error" and "no token is left" in str(found[0].error)
        assert outcome(found[1]) == outcome(llm.generate([ids(5, 1)], plain, use_tqdm=False)[0])


@pytest.mark.parametrize(
    "options",
    [
        {"truncation": "off"},
        {"async": "off"},
        {"prefix_cache": "off"},
        {"snapshot_mb": 0},
        {"max_num_batched_tokens": 37},
        {"max_num_seqs": 2},
        {"threads": 1},
        {"kv_cache_tokens": 2176},
    ],
    ids=str,
)
def test_settings_do_not_change_answers(options, reference):
    """A conversation that goes on, prompts that begin alike, all at once, under any setting: the answers of the plain run."""
    prompts, params, expected = reference
    with LLM(model=str(TINY), **options) as llm:
        assert [outcome(o) for o in llm.generate(prompts, params, use_tqdm=False)] == expected
        assert [outcome(o) for o in llm.generate(prompts, params, use_tqdm=False)] == expected  # from the cache, if there is one


@pytest.fixture(scope="module")
def reference():
    text = (ROOT / "eval" / "sets" / "tales.txt").read_text()
    with LLM(model=str(TINY), prefix_cache="off", truncation="off") as llm:
        base = llm.tokenizer.encode(text)
        prompts = [base[:n] for n in (1, 2, 127, 128, 129, 700, 701, 1400)] + [base[:600] + base[900:1000], base[300:460]]
        params = [SamplingParams(max_tokens=20, seed=i, temperature=i % 2, logprobs=1, ignore_eos=True) for i in range(len(prompts))]
        expected = [outcome(llm.generate([p], q, use_tqdm=False)[0]) for p, q in zip(prompts, params)]
    return prompts, params, expected


def test_a_conversation_goes_on_where_it_stopped():
    params = SamplingParams(max_tokens=30, seed=5, logprobs=0, ignore_eos=True)
    with LLM(model=str(TINY)) as llm:
        prompt = ids(1000, 9, 4000)
        first = llm.generate([prompt], params, use_tqdm=False)[0]
        longer = prompt + first.outputs[0].token_ids + ids(7, 3, 4000)
        second = llm.generate([longer], params, use_tqdm=False)[0]
        same = llm.generate([prompt], params, use_tqdm=False)[0]
        assert second.num_cached_tokens == 1000 + 29  # the last token drawn had not been fed
        assert same.num_cached_tokens == 999 and outcome(same) == outcome(first)
        assert llm.stats()["cached_tokens"] == second.num_cached_tokens + same.num_cached_tokens
    with LLM(model=str(TINY), prefix_cache="off") as llm:
        assert outcome(llm.generate([longer], params, use_tqdm=False)[0]) == outcome(second)


def test_approximations_say_so():
    """Compact truncation and bounded replay answer otherwise, but always the same."""
    params = SamplingParams(max_tokens=8, seed=5, logprobs=0, temperature=0, ignore_eos=True)
    prompt = ids(1500, 11, 4000)
    answers = {}
    for options in ({}, {"truncation": "compact"}, {"truncation": "compact", "max_num_batched_tokens": 61, "async": "off"}):
        with LLM(model=str(TINY), **options) as llm:
            answers[str(options)] = outcome(llm.generate([prompt], params, use_tqdm=False)[0])[1]
    exact, compact, pieces = answers.values()
    assert compact == pieces and compact != exact
    with LLM(model=str(TINY), bounded_replay="on", snapshot_mb=0) as llm:
        cold = llm.generate([prompt], params, use_tqdm=False)[0]
        hit = llm.generate([prompt], params, use_tqdm=False)[0]
        assert outcome(cold)[1] == exact and 0 < hit.num_cached_tokens < 1500


def test_prompt_logprobs_are_the_same_in_pieces():
    prompt = ids(300, 4)
    found = []
    for rows in (512, 100, 7):
        with LLM(model=str(MICRO), max_num_batched_tokens=rows, max_num_seqs=40) as llm:
            many = [SamplingParams(max_tokens=2, seed=1, prompt_logprobs=2)] + [SamplingParams(max_tokens=9, seed=k) for k in range(5)]
            out = llm.generate([prompt] + [ids(30, k) for k in range(5)], many, use_tqdm=False)[0]
            found.append([None if lp is None else {t: v.logprob for t, v in lp.items()} for lp in out.prompt_logprobs])
    assert found[0][0] is None and len(found[0]) == 300
    assert found[0] == found[1] == found[2]


def test_logprobs_are_the_log_softmax_of_the_independent_logits():
    """Against the logits of the independent implementation (mode oracle; its last 16 rows)."""
    golden = load_file(GOLDENS / "micro" / "golden.safetensors")
    tokens, logits = [int(i) for i in golden["input_ids"].reshape(-1)], golden["logits.last16"].astype(np.float64)
    peak = logits.max(-1, keepdims=True)
    expected = logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))
    with LLM(model=str(MICRO), mode="oracle") as llm:
        params = SamplingParams(max_tokens=1, temperature=0, logprobs=5, prompt_logprobs=0)
        out = llm.generate([tokens], params, use_tqdm=False)[0]
    for back in range(1, 16):  # the logits behind token -back-1 score token -back
        assert abs(out.prompt_logprobs[-back][tokens[-back]].logprob - expected[-back - 1][tokens[-back]]) < 2e-4
    for token, found in out.outputs[0].logprobs[0].items():
        assert abs(found.logprob - expected[-1][token]) < 2e-4
    assert out.outputs[0].token_ids[0] == int(logits[-1].argmax())
