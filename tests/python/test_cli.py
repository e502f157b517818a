"""The command line: exit codes, messages that name the culprit, streams, JSON. docs/cli.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import COMMAND, GOLDENS, ROOT, run_cli

MICRO, TINY = GOLDENS / "micro", ROOT / "models" / "tiny"


def run(*args, **kwargs):
    return run_cli("run", "--model", MICRO, *args, **kwargs)


def generated(*args, **kwargs) -> dict:
    done = run("--json", *args, **kwargs)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def write_ids(path: Path, ids) -> Path:
    path.write_text(json.dumps(ids) if not isinstance(ids, str) else ids)
    return path


@pytest.fixture
def model(tmp_path) -> Path:
    """A copy of the micro model that a test may damage."""
    target = tmp_path / "model"
    target.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(MICRO / file, target / file)
    return target


def change_config(model: Path, change) -> None:
    config = json.loads((model / "config.json").read_text())
    change(config)
    (model / "config.json").write_text(json.dumps(config))


# ---- usage errors: exit code 2 ----

USAGE = {
    "unknown option": (["--promt", "x"], "did you mean --prompt"),
    "unknown engine option": (["--prompt", "x", "--thread", "1"], "did you mean --threads"),
    "no prompt": ([], "--prompt"),
    "two prompts": (["--prompt", "x", "--prompt-file", "-"], "one of --prompt"),
    "missing value": (["--prompt"], "--prompt needs a value"),
    "stray argument": (["text"], '"text"'),
    "NaN temperature": (["--prompt", "x", "--temperature", "nan"], "temperature"),
    "infinite temperature": (["--prompt", "x", "--temperature", "inf"], "temperature"),
    "negative temperature": (["--prompt", "x", "--temperature=-1"], "temperature"),
    "trailing junk": (["--prompt", "x", "--temperature", "1x"], '"1x"'),
    "hexadecimal temperature": (["--prompt", "x", "--temperature", "0x1p1"], "--temperature"),
    "temperature with a space": (["--prompt", "x", "--temperature", "\n1"], "--temperature"),
    "negative max-tokens": (["--prompt", "x", "--max-tokens", "-3"], '--max-tokens: "-3"'),
    "zero max-tokens": (["--prompt", "x", "--max-tokens", "0"], "--max-tokens"),
    "huge max-tokens": (["--prompt", "x", "--max-tokens", "2147483648"], "--max-tokens"),
    "max-tokens with a tab": (["--prompt", "x", "--max-tokens", "\t3"], "--max-tokens"),
    "bad seed": (["--prompt", "x", "--seed", "-1"], "--seed"),
    "huge seed": (["--prompt", "x", "--seed", "18446744073709551616"], "--seed"),
    "empty prompt": (["--prompt", ""], "option --prompt: the prompt is empty"),
    "empty prompt file": (["--prompt-file", "/dev/null"], "--prompt-file: /dev/null is empty"),
    "missing prompt file": (["--prompt-file", "/no/such/prompt"], "/no/such/prompt: No such file"),
    "a folder as prompt": (["--prompt-file", "/"], "/: Is a directory"),
    "bad bos": (["--prompt", "x", "--bos", "maybe"], "--bos"),
    "bad mode": (["--prompt", "x", "--mode", "exact"], "oracle|native|fast"),
    "bad threads": (["--prompt", "x", "--threads", "many"], "threads"),
    "threads with a tab": (["--prompt", "x", "--threads", "\t2"], "threads"),
    "empty model": (["--prompt", "x", "--model", ""], "model"),
    "beginning of a name": (["--prompt", "x", "--temp", "1"], "did you mean --temperature"),
    "no such thing": (["--prompt", "x", "--xyz"], "unknown option --xyz; see deepinfer help run"),
    "context too long": (["--prompt", "x", "--max-model-len", "4096"], "max-model-len"),
    "prompt too long": (["--prompt", "word " * 3000], "max-model-len is 2048"),
    "value for a switch": (["--prompt", "x", "--stats=1"], "--stats takes no value"),
    "top-p": (["--prompt", "x", "--top-p", "1.5"], "option --top-p: top_p must be"),
    "zero top-p": (["--prompt", "x", "--top-p", "0"], "option --top-p"),
    "top-k": (["--prompt", "x", "--top-k", "-2"], "option --top-k"),
    "real top-k": (["--prompt", "x", "--top-k", "1.5"], "option --top-k"),
    "min-p": (["--prompt", "x", "--min-p", "1.1"], "option --min-p"),
    "repetition-penalty": (["--prompt", "x", "--repetition-penalty", "0"], "option --repetition-penalty"),
    "frequency-penalty": (["--prompt", "x", "--frequency-penalty", "-2.5"], "option --frequency-penalty"),
    "presence-penalty": (["--prompt", "x", "--presence-penalty", "nan"], "option --presence-penalty"),
    "min-tokens": (["--prompt", "x", "--min-tokens", "257"], "option --min-tokens"),
    "empty stop": (["--prompt", "x", "--stop", "a", "--stop", ""], "option --stop: stop[1]"),
    "long stop": (["--prompt", "x", "--stop", "a" * 1025], "option --stop"),
    "many stops": (["--prompt", "x", *["--stop=a"] * 65], "option --stop"),
    "stop-token-ids": (["--prompt", "x", "--stop-token-ids", "1,,2"], 'option --stop-token-ids: "1,,2"'),
    "negative stop token": (["--prompt", "x", "--stop-token-ids", "-1"], "option --stop-token-ids"),
    "huge stop token": (["--prompt", "x", "--stop-token-ids", "99999999999"], "option --stop-token-ids"),
    "stop token not in vocabulary": (["--prompt", "x", "--stop-token-ids", "5,70000"], "option --stop-token-ids: stop_token_ids[1]"),
    "logit-bias": (["--prompt", "x", "--logit-bias", "5"], 'option --logit-bias: "5" is not ID:VALUE'),
    "logit-bias value": (["--prompt", "x", "--logit-bias", "5:1x"], "option --logit-bias"),
    "infinite logit-bias": (["--prompt", "x", "--logit-bias", "5:-inf"], "option --logit-bias"),
    "large logit-bias": (["--prompt", "x", "--logit-bias", "5:101"], "option --logit-bias"),
    "logit-bias twice": (["--prompt", "x", "--logit-bias", "5:1", "--logit-bias", "5:2"], "option --logit-bias"),
    "allowed-token-ids": (["--prompt", "x", "--allowed-token-ids", "x"], "option --allowed-token-ids"),
    "bad-token-ids": (["--prompt", "x", "--bad-token-ids", ""], "option --bad-token-ids"),
    "no token left": (["--prompt", "x", "--allowed-token-ids", "5", "--bad-token-ids", "5"], "option --bad-token-ids"),
    "skip-special-tokens": (["--prompt", "x", "--skip-special-tokens", "no"], "option --skip-special-tokens"),
    "logprobs": (["--prompt", "x", "--logprobs", "21"], "option --logprobs"),
    "prompt-logprobs": (["--prompt", "x", "--prompt-logprobs=-1"], "option --prompt-logprobs"),
    "n": (["--prompt", "x", "--n", "65"], "option --n"),
}


@pytest.mark.parametrize("args, culprit", USAGE.values(), ids=USAGE.keys())
def test_usage_errors(args, culprit):
    done = run(*args)
    assert done.returncode == 2, done.stderr.decode()
    assert done.stdout == b""
    assert done.stderr.startswith(b"deepinfer: error: ") and culprit in done.stderr.decode()
    as_json = run("--json", *args)
    assert as_json.returncode == 2
    error = json.loads(as_json.stderr)["error"]
    assert error["code"].startswith("DI_ERR_") and culprit in error["message"]


def test_commands():
    assert run_cli().returncode == 2
    assert run_cli("no-such-command").returncode == 2
    assert b"did you mean inspect" in run_cli("inspct").stderr
    assert b"unknown option --json" in run_cli("options", "--json").stderr
    assert run_cli("--version").stdout.startswith(b"deepinfer ")
    for command in ("run", "bench", "inspect", "trace", "options"):
        done = run_cli("help", command)
        assert done.returncode == 0 and f"deepinfer {command}".encode() in done.stdout
    assert run_cli("help", "nothing").returncode == 2
    for args in (("--help",), ("--model", MICRO, "--help"), ("--prompt", "x", "-h")):
        done = run_cli("run", *args)
        assert done.returncode == 0 and done.stdout.startswith(b"usage: deepinfer run") and done.stderr == b""
        assert b"--max-num-batched-tokens" in done.stdout  # the engine's options are there too


def test_the_word_behind_an_option_is_its_value():
    done = run("--prompt", "--json", "--max-tokens", 1, "--seed", 1)
    assert done.returncode == 0 and not done.stdout.startswith(b"{")
    done = run("--prompt", "--json", "--bogus")  # an error further on: the parse has not come to an end
    assert done.returncode == 2 and b"bogus" in done.stderr
    last = generated("--prompt=x", "--max-tokens=9", "--max-tokens=2", "--ignore-eos")
    assert last["usage"]["completion_tokens"] == 2


def test_json_errors_are_json_whatever_was_typed():
    done = run_cli("run", "--json", "--temperature", b"\xff\xfe".decode(errors="surrogateescape"))
    assert json.loads(done.stderr)["error"]["message"] == 'option --temperature: "??" is not a finite number of at least 0'
    done = run_cli("run", "--json", "--temperature", "x" + "\u00e9" * 400)  # cut within a character
    assert json.loads(done.stderr)["error"]["message"].startswith('option --temperature: "x\u00e9')
    done = run("--prompt-file", "/no/such/prompt", "--json")
    assert json.loads(done.stderr)["error"]["code"] == "DI_ERR_NOT_FOUND"


def test_environment_variables_are_checked():
    done = run("--prompt", "x", env={"DEEPINFER_ACCELERATOR": "tpu"})
    assert done.returncode == 2 and b"DEEPINFER_ACCELERATOR" in done.stderr and b"tpu" in done.stderr
    done = run("--prompt", "x", env={"DEEPINFER_ACCELERATOR": "ascend"})
    assert done.returncode == 3 and b"ascend" in done.stderr
    done = run_cli("run", "--prompt", "x", "--max-tokens", 1, "--seed", 1, env={"DEEPINFER_HF_MODEL_DIR": str(MICRO)})
    assert done.returncode == 0, done.stderr
    done = run("--prompt", "x", "--max-tokens", 1, env={"DEEPINFER_HF_MODEL_DIR": "/nowhere"})  # the option wins
    assert done.returncode == 0, done.stderr


# ---- prompts ----


def test_invalid_utf8_prompt_names_the_byte():
    done = run("--prompt-file", "-", input=b"good \xff bad")
    assert done.returncode == 2 and b"standard input" in done.stderr and b"byte 5" in done.stderr
    done = run("--prompt", b"abc\xc3".decode(errors="surrogateescape"))
    assert done.returncode == 2 and b"--prompt" in done.stderr and b"byte 3" in done.stderr


def test_ids_files(tmp_path):
    cases = {
        "[0, 1, 600]": ("600", "index 2"),
        "[0, -1]": ("-1", "index 1"),
        "[0, 1.5]": ("index 1",),
        '{"a": 1}': ("list",),
        "[0, ": ("line 1",),
        "[]": ("empty",),
        "[0, 99999999999]": ("99999999999", "index 1"),
        '[0, "1"]': ("index 1",),
        "[true]": ("index 0",),
        "": ("line 1",),
        "[0] [1]": ("line 1",),
    }
    for text, culprits in cases.items():
        done = run("--ids", write_ids(tmp_path / "ids.json", text))
        assert done.returncode == 2, text
        for culprit in ("ids.json", *culprits):
            assert culprit in done.stderr.decode(), (text, done.stderr)
        traced = run_cli("trace", "--model", MICRO, "--ids", tmp_path / "ids.json", "--out", tmp_path / "out")
        assert (traced.returncode, traced.stderr) == (2, done.stderr)  # the same messages
    done = run("--ids", "-", "--max-tokens", 1, input=b"[0, 5]")
    assert done.returncode == 0, done.stderr
    done = run("--ids", tmp_path / "missing.json")
    assert done.returncode == 2 and b"missing.json" in done.stderr


def test_bos(tmp_path):
    with_bos = generated("--prompt", "Hello", "--max-tokens", 1)["prompt_token_ids"]
    without = generated("--prompt", "Hello", "--max-tokens", 1, "--bos", "off")["prompt_token_ids"]
    literal = generated("--prompt", "<｜begin▁of▁sentence｜>Hello", "--max-tokens", 1)["prompt_token_ids"]
    assert with_bos == [0] + without == literal
    as_ids = generated("--ids", write_ids(tmp_path / "ids.json", without), "--max-tokens", 1)["prompt_token_ids"]
    assert as_ids == without


def test_prompt_sources_agree(tmp_path):
    text = "The same text\n"
    (tmp_path / "prompt.txt").write_text(text)
    common = ("--temperature", 0, "--max-tokens", 5)
    one = generated("--prompt", text, *common)
    assert generated("--prompt-file", tmp_path / "prompt.txt", *common)["token_ids"] == one["token_ids"]
    assert generated("--prompt-file", "-", *common, input=text.encode())["token_ids"] == one["token_ids"]


# ---- output ----


def test_json_and_stream_agree():
    args = ("--prompt", "def f(x):", "--seed", 3, "--max-tokens", 40)
    result = generated(*args)
    assert result["usage"] == {"prompt_tokens": len(result["prompt_token_ids"]), "completion_tokens": len(result["token_ids"])}
    assert result["finish_reason"] in ("stop", "length") and result["seed"] == "3"
    assert result["identity"].endswith(",native,kv-packed")
    streamed = run(*args)
    assert streamed.stdout.decode() == result["text"] + "\n"


def test_same_seed_same_tokens_whatever_the_chunks():
    args = ("--prompt", "import os\n" * 20, "--max-tokens", 20)
    first = generated(*args, "--seed", 11)
    assert generated(*args, "--seed", 11, "--max-num-batched-tokens", 7, "--threads", 1)["token_ids"] == first["token_ids"]
    assert generated(*args, "--seed", 12)["token_ids"] != first["token_ids"]
    greedy = [generated(*args, "--temperature", 0, *more)["token_ids"] for more in ((), ("--seed", 5))]
    assert greedy[0] == greedy[1] != first["token_ids"]
    drawn = generated(*args)
    assert generated(*args, "--seed", drawn["seed"])["token_ids"] == drawn["token_ids"]


def test_every_piece_of_the_stream_is_utf8():
    """A read from a pipe gives whole writes: each of them must decode alone, though the tokens are pieces of characters."""
    split = 0
    for seed in range(4):
        args = [COMMAND, "run", "--model", MICRO, "--prompt", "é", "--seed", str(seed), "--max-tokens", "200", "--ignore-eos"]
        process = subprocess.Popen(args, stdout=subprocess.PIPE)
        while piece := os.read(process.stdout.fileno(), 1 << 20):
            piece.decode()
            split += 1
        process.stdout.close()
        assert process.wait(timeout=60) == 0
    assert split > 4  # it did stream


def test_json_has_every_key():
    result = generated("--prompt", "x", "--max-tokens", 3)
    assert set(result) == {
        "text", "token_ids", "prompt_token_ids", "finish_reason", "stop_reason", "usage", "seed", "identity", "timings",
    }  # fmt: skip
    assert all(seconds > 0 for seconds in result["timings"].values()) and len(result["timings"]) == 2
    documented = (ROOT / "docs" / "cli.md").read_text()
    assert all(f"`{key}`" in documented for key in result)


def test_options_need_json_where_a_stream_has_no_place_for_them():
    for option in ("--logprobs", "--prompt-logprobs", "--n"):
        done = run("--prompt", "x", option, 2)
        assert done.returncode == 2 and f"option {option} needs --json".encode() in done.stderr


def test_sampling_options_reach_the_sampler():
    common = ("--prompt", "Hello", "--seed", 5, "--max-tokens", 30, "--ignore-eos")
    plain = generated(*common)
    greedy = generated(*common, "--temperature", 0)
    for option in (("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1)):
        assert generated(*common, *option)["token_ids"] == greedy["token_ids"] != plain["token_ids"]
    for option in (("--top-k", -1), ("--top-k", 0), ("--top-p", 1), ("--min-p", 0), ("--logit-bias", "5:0"), ("--repetition-penalty", 1)):
        assert generated(*common, *option)["token_ids"] == plain["token_ids"]
    for option in (("--repetition-penalty", 1.5), ("--frequency-penalty", 2), ("--presence-penalty", -2)):
        assert generated(*common, *option)["token_ids"] != plain["token_ids"]
    allowed = generated(*common, "--allowed-token-ids", "40,41", "--allowed-token-ids", 42, "--bad-token-ids", 41)
    assert set(allowed["token_ids"]) == {40, 42}
    assert set(generated(*common, "--logit-bias", "40:100", "--logit-bias", "41:100")["token_ids"]) == {40, 41}
    banned = generated(*common, "--bad-token-ids", ",".join(map(str, plain["token_ids"])))
    assert not set(banned["token_ids"]) & set(plain["token_ids"])


def test_what_ends_the_output():
    common = ("--prompt", "Hello", "--seed", 5, "--max-tokens", 30, "--ignore-eos")
    plain = generated(*common)
    assert plain["finish_reason"] == "length" and plain["stop_reason"] is None
    token = plain["token_ids"][7]
    first = plain["token_ids"].index(token)
    stopped = generated(*common, "--stop-token-ids", f"511,{token}")
    assert stopped["token_ids"] == plain["token_ids"][: first + 1]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", token)
    late = generated(*common, "--stop-token-ids", token, "--min-tokens", first + 2)
    assert len(late["token_ids"]) > first + 1
    text = plain["text"]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    before = text[: text.index(stop)]
    cut = generated(*common, "--stop", "never there", "--stop", stop)
    assert (cut["text"], cut["finish_reason"], cut["stop_reason"]) == (before, "stop", stop)
    assert generated(*common, "--stop", stop, "--include-stop-str-in-output")["text"] == before + stop
    streamed = run(*common, "--stop", stop)
    assert streamed.stdout.decode() == before + "\n"


def test_logprobs():
    common = ("--prompt", "Hello", "--seed", 5, "--max-tokens", 6, "--ignore-eos")
    result = generated(*common, "--logprobs", 3, "--prompt-logprobs", 0, "--temperature", 0)
    assert [entry["token_id"] for entry in result["logprobs"]] == result["token_ids"]
    for entry in result["logprobs"]:
        assert entry["rank"] == 1 and entry["logprob"] < 0 and len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0] == {key: entry[key] for key in ("token_id", "token", "logprob")}
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
    assert result["prompt_logprobs"][0] is None and len(result["prompt_logprobs"]) == len(result["prompt_token_ids"])
    for token, entry in list(zip(result["prompt_token_ids"], result["prompt_logprobs"]))[1:]:
        assert entry["token_id"] == token and entry["rank"] >= 1 and entry["top_logprobs"] == []
    assert generated(*common, "--temperature", 0)["token_ids"] == result["token_ids"]


def test_choices():
    common = ("--prompt", "Hello", "--seed", 5, "--max-tokens", 6, "--ignore-eos")
    one, three = generated(*common), generated(*common, "--n", 3)
    assert [choice["index"] for choice in three["choices"]] == [0, 1, 2] and "text" not in three
    assert three["choices"][0]["token_ids"] == one["token_ids"] and three["usage"]["completion_tokens"] == 18
    assert len({tuple(choice["token_ids"]) for choice in three["choices"]}) == 3


def test_stats_go_to_stderr():
    done = run("--prompt", "x", "--max-tokens", 2, "--seed", 18446744073709551615, "--stats")
    assert done.returncode == 0 and b"tokens/s" in done.stderr and b"18446744073709551615" in done.stderr


OUTPUTS = [
    ("--version",),
    ("help",),
    ("help", "run"),
    ("options",),
    ("inspect", "--model", MICRO),
    ("inspect", "--model", MICRO, "--json"),
    ("run", "--model", MICRO, "--prompt", "x", "--max-tokens", "3"),
    ("run", "--model", MICRO, "--prompt", "x", "--max-tokens", "3", "--json"),
]


@pytest.mark.parametrize("args", OUTPUTS, ids=lambda args: " ".join(map(str, args[:1] + args[3:])))
def test_output_that_cannot_be_written_is_an_error(args):
    with open("/dev/full", "wb") as full:
        done = run_cli(*args, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 1 and b"standard output" in done.stderr and b"No space left" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = run_cli(*args, stdout=writer, stderr=subprocess.PIPE, capture_output=False)
    os.close(writer)
    assert done.returncode == 1 and b"standard output" in done.stderr and b"Broken pipe" in done.stderr


def interrupted(first_bytes: int, *args):
    """Starts a long run, waits for some output, interrupts it: (exit code, standard output, standard error)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
    command = [COMMAND, "run", "--model", TINY, "--prompt", "She was", "--max-tokens", "4000", "--ignore-eos", "--seed", "1", *args]
    # bufsize 0: communicate() reads the pipe past what a buffered reader has taken ahead
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean, bufsize=0)
    shown = b""
    while len(shown) < first_bytes and (piece := process.stdout.read(first_bytes - len(shown))):
        shown += piece
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    return process.returncode, shown + rest, errors


def test_interrupt_keeps_what_was_shown():
    code, shown, errors = interrupted(20)
    assert code == 130, errors
    assert errors == b"" and len(shown) >= 20 and shown.endswith(b"\n")
    whole = run_cli("run", "--model", TINY, "--prompt", "She was", "--max-tokens", 200, "--ignore-eos", "--seed", 1).stdout.decode()
    text = shown.decode().removesuffix("\n")
    assert len(whole) > 200 and text[:200] == whole[: len(text[:200])]  # a beginning of the uninterrupted text


def test_interrupt_with_json():
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
    command = [COMMAND, "run", "--model", TINY, "--prompt", "She was", "--max-tokens", "4000", "--ignore-eos", "--json"]
    process = subprocess.Popen([*command, "--backend", "reference"], stdout=subprocess.PIPE, env=clean)
    caught = False
    while not caught and process.poll() is None:  # until the handler stands: generation has begun
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = bool(int(status.split("SigCgt:")[1].split()[0], 16) & 1 << (signal.SIGINT - 1))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    result = json.loads(out)
    assert result["finish_reason"] == "abort" and result["usage"]["completion_tokens"] == len(result["token_ids"])


# ---- models: exit code 3 ----


def test_missing_models():
    done = run_cli("run", "--model", "/no/such/folder", "--prompt", "x")
    assert done.returncode == 3 and b"/no/such/folder" in done.stderr
    done = run_cli("inspect", "--model", "someone/some-model", env={"HF_HOME": "/nonexistent"})
    assert done.returncode == 3 and b"hf download someone/some-model" in done.stderr and b"/nonexistent/hub" in done.stderr
    done = run_cli("inspect", env={"HF_HUB_CACHE": "/nonexistent"})
    assert done.returncode == 3 and b"deepseek-ai/DeepSeek-V4.1-Flash-1017" in done.stderr


def test_model_in_the_hub_cache(tmp_path):
    """The real layout: refs, snapshots, blobs behind links."""
    repo = tmp_path / "hub" / "models--some-one--small.model"
    snapshot = repo / "snapshots" / ("0" * 39 + "a")
    for folder in (snapshot, repo / "refs", repo / "blobs"):
        folder.mkdir(parents=True)
    (repo / "refs" / "main").write_text(snapshot.name)
    for number, file in enumerate(("config.json", "model.safetensors", "tokenizer.json")):
        shutil.copy(MICRO / file, repo / "blobs" / str(number))
        (snapshot / file).symlink_to(Path("../../blobs") / str(number))
    for env in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        done = run_cli("inspect", "--model", "some-one/small.model", "--json", env=env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["model"]["folder"] == str(snapshot)
    done = run_cli("inspect", "--model", "some-one/small.model@v2", env={"HF_HOME": str(tmp_path)})
    assert done.returncode == 3 and b"v2" in done.stderr


DAMAGE = {
    "no config": (lambda m: (m / "config.json").unlink(), "config.json"),
    "config not JSON": (lambda m: (m / "config.json").write_text("{"), "line 1"),
    "unknown quantisation": (lambda m: change_config(m, lambda c: c["quantization_config"].update(quant_method="awq")), "awq"),
    "no Engram constant": (
        lambda m: change_config(m, lambda c: c["text_config"].pop("engram_compressed_vocab_size")),
        "engram_compressed_vocab_size",
    ),
    "wrong Engram constant": (
        lambda m: change_config(m, lambda c: c["text_config"].update(engram_compressed_vocab_size=466)),
        "engram_compressed_vocab_size",
    ),
    "short ratios": (lambda m: change_config(m, lambda c: c["text_config"].update(compress_ratios=[0, 0])), "compress_ratios"),
    "source out of range": (
        lambda m: change_config(m, lambda c: c["text_config"].update(kv_source_layer_ids=[2, 40])),
        "kv_source_layer_ids[1]",
    ),
    "wrong shape": (lambda m: change_config(m, lambda c: c["text_config"].update(q_lora_rank=64)), "attn.wq_a"),
    "fewer layers": (
        lambda m: change_config(
            m, lambda c: c["text_config"].update(num_hidden_layers=5, compress_ratios=[0, 0, 2, 2, 1], index_source_layer_ids=[2, 4])
        ),
        "layers.5.",
    ),
    "truncated weights": (
        lambda m: (m / "model.safetensors").write_bytes((MICRO / "model.safetensors").read_bytes()[:-5]),
        "truncated",
    ),
    "huge header": (
        lambda m: (m / "model.safetensors").write_bytes(b"\0" * 7 + b"\x80" + b"{}"),
        "9223372036854775808",
    ),
    "no weights": (lambda m: (m / "model.safetensors").unlink(), "model.safetensors"),
    "no tokenizer": (lambda m: (m / "tokenizer.json").unlink(), "tokenizer.json"),
}  # fmt: skip


@pytest.mark.parametrize("damage, culprit", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_models_are_refused_quickly(model, damage, culprit):
    damage(model)
    start = time.monotonic()
    for command in (("inspect",), ("run", "--prompt", "x")):
        done = run_cli(*command, "--model", model)
        assert done.returncode == 3, done.stderr
        assert culprit in done.stderr.decode(), done.stderr
    assert time.monotonic() - start < 30  # a limit against hanging, not a measurement


# ---- inspect, options, trace ----


LAYER = {
    "layer": int, "ratio": int, "attention": str, "kv_source": (int, type(None)), "index_source": (int, type(None)),
    "owns_kv": bool, "owns_index": bool, "candidates": str, "engram": (int, type(None)), "rope": str, "bytes": int,
}  # fmt: skip
SCHEMA = {
    "model": {"folder": str, "shards": int, "tensors": int, "bytes": int},
    "layers": [LAYER],
    "tensors": [{"part": str, "format": str, "count": int, "bytes": int}],
    "ignored": [{"reason": str, "count": int, "bytes": int, "example": str}],
    "memory": [{"term": str, "bytes": int, "note": str}],
    "identity": str,
    "config": dict,
    "options": dict,
}


def check_schema(value, schema, where="plan"):
    if isinstance(schema, list):
        assert isinstance(value, list) and value, where
        for i, item in enumerate(value):
            check_schema(item, schema[0], f"{where}[{i}]")
    elif isinstance(schema, dict):
        assert set(value) == set(schema), where
        for key in schema:
            check_schema(value[key], schema[key], f"{where}.{key}")
    else:
        assert isinstance(value, schema) and not (schema is int and isinstance(value, bool)), where


@pytest.mark.parametrize("model", [MICRO, TINY, GOLDENS / "small"], ids=lambda model: model.name)
def test_inspect_schema(model):
    done = run_cli("inspect", "--model", model, "--json", "--threads", 1)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    check_schema(plan, SCHEMA)
    assert [layer["layer"] for layer in plan["layers"]] == list(range(plan["config"]["num_hidden_layers"]))
    for layer in plan["layers"]:
        assert layer["attention"] in ("window", "window+compressed") and layer["rope"] in ("main", "compress")
        assert layer["candidates"] in ("makes", "uses", "no") and (layer["ratio"] == 0) == (layer["attention"] == "window")
    assert plan["options"]["threads"] == "1" and all(isinstance(value, str) for value in plan["options"].values())
    documented = (ROOT / "docs" / "cli.md").read_text()
    assert all(f"`{key}`" in documented for key in (*SCHEMA, *LAYER))


def test_inspect():
    done = run_cli("inspect", "--model", MICRO, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert [layer["ratio"] for layer in plan["layers"]] == [0, 0, 2, 2, 1, 1]
    assert plan["layers"][3]["kv_source"] == 2 and plan["layers"][5]["candidates"] == "uses"
    total = sum(t["bytes"] for t in plan["tensors"]) + sum(t["bytes"] for t in plan["ignored"])
    assert total == plan["model"]["bytes"] and sum(t["count"] for t in plan["tensors"]) + plan["ignored"][0]["count"] == 501
    assert plan["ignored"][0]["example"].endswith("gate.bias_vl")
    assert {m["term"] for m in plan["memory"]} >= {"weights", "kv-pages", "rings", "workspace", "scratch"}
    text = run_cli("inspect", "--model", MICRO).stdout.decode()
    assert "window+compressed" in text and plan["identity"] in text


def test_option_documentation_is_current():
    table = run_cli("options", "--markdown").stdout.decode()
    assert table in (ROOT / "docs" / "options.md").read_text()


def test_the_c_api_page_shows_the_example():
    """Every block of C in docs/c-api.md stands in the program that the build makes."""
    example = (ROOT / "examples" / "c" / "generate.c").read_text()
    blocks = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "c-api.md").read_text(), re.DOTALL)
    assert len(blocks) >= 4 and all(block in example for block in blocks)
    done = subprocess.run([COMMAND.parents[1] / "examples" / "generate", TINY, "One", "", "Two"], capture_output=True, text=True)
    assert done.returncode == 0 and "1: ended (" in done.stdout and "3: ended (" in done.stdout, done.stderr
    assert subprocess.run([COMMAND.parents[1] / "examples" / "generate", "/no/such"], capture_output=True).returncode == 1


def test_run_options_are_documented():
    text = (ROOT / "docs" / "cli.md").read_text()
    for command in ("run", "bench", "inspect", "trace"):
        own = run_cli("help", command).stdout.decode().split("options of the engine")[0]
        for option in re.findall(r"^  (--[a-z-]+)", own, re.MULTILINE):
            assert f"`{option}" in text or f"[{option}" in text, option


def test_trace_documentation_is_complete(trace):
    """docs/trace.md names exactly the tensors that are written, with their dtypes, in each mode."""
    lines = (ROOT / "docs" / "trace.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    rows = [row for row in rows if len(row) == 5]
    ids = tuple(json.loads((MICRO / "tokenizer_cases.json").read_text())["encode"][0]["ids"])[:1] + tuple(range(8, 48))
    for mode, act in (("oracle", "F32"), ("native", "BF16")):
        expected = {row[0].strip("`"): row[2].replace("act", act) for row in rows if row[1] in ("both", mode)}
        with trace("micro", ids, "--mode", mode, "--greedy", 2).open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        written = {re.sub(r"^layers\.\d+\.", "layers.L.", name): tensor for name, tensor in header.items()}
        assert {name: tensor["dtype"] for name, tensor in written.items()} == expected
        dimensions = {row[0].strip("`"): row[3].count(",") + 1 for row in rows}
        assert {name: len(tensor["shape"]) for name, tensor in written.items()} == {name: dimensions[name] for name in expected}


def test_trace_errors(tmp_path):
    ids = write_ids(tmp_path / "ids.json", [0, 1, 2])
    trace = lambda *args: run_cli("trace", "--model", MICRO, *args)
    assert trace("--ids", ids).returncode == 2
    done = trace("--ids", ids, "--out", "/no/such/place.safetensors")
    assert done.returncode == 1 and b"/no/such/place.safetensors" in done.stderr
    done = trace("--ids", ids, "--out", tmp_path / "o", "--feed", MICRO / "golden.safetensors", "--like", MICRO / "golden.safetensors")
    assert done.returncode == 2 and b"positions" in done.stderr  # the golden lists positions that three tokens lack
    done = trace("--ids", write_ids(tmp_path / "far.json", [0, 9999]), "--out", tmp_path / "o")
    assert done.returncode == 2 and b"9999" in done.stderr
    for option in ("--feed", "--like"):
        done = trace("--ids", ids, "--out", tmp_path / "o", option, tmp_path / "missing.safetensors")
        assert done.returncode == 2 and b"missing.safetensors" in done.stderr
    done = trace("--ids", ids, "--out", tmp_path / "o", "--greedy", 2046)
    assert done.returncode == 2 and b"max-model-len" in done.stderr
    done = trace("--ids", ids, "--out", tmp_path / "o", "--chunk", "-1")
    assert done.returncode == 2 and b"chunk" in done.stderr
    assert not (tmp_path / "o").exists() and not (tmp_path / "o.tmp").exists()


def test_released_shapes_are_only_planned(tmp_path):
    """Nothing assumes small sizes: the released config passes validation, and what is missing is named."""
    config = json.loads((ROOT / "tests" / "data" / "released_config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(MICRO / "model.safetensors", tmp_path / "model.safetensors")
    done = run_cli("inspect", "--model", tmp_path)
    assert done.returncode == 3 and b"embed.weight" in done.stderr and b"[129280, 5120]" in done.stderr


@pytest.mark.parametrize("accelerator, culprit", [("tpu", "not one of cpu, nvidia, ascend"), ("nvidia", "no backend"), ("ascend", "no backend")])
def test_build_script_refuses_what_it_cannot_build(accelerator, culprit):
    env = dict(os.environ, DEEPINFER_ACCELERATOR=accelerator)
    done = subprocess.run([ROOT / "build.sh"], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and culprit in done.stderr and accelerator in done.stderr
