"""`deepinfer run --input`: JSON lines in, JSON lines out; nothing lost, nothing torn. docs/cli.md."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import COMMAND, GOLDENS, ROOT, run_cli

MICRO, TINY = GOLDENS / "micro", ROOT / "models" / "tiny"


def batch(*args, model=MICRO, **kwargs) -> subprocess.CompletedProcess:
    return run_cli("run", "--model", model, *args, **kwargs)


def write_lines(path: Path, requests) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests))
    return path


def results(text: bytes | Path) -> dict:
    """id -> result, from lines that are all whole."""
    data = text.read_bytes() if isinstance(text, Path) else text
    assert data == b"" or data.endswith(b"\n")
    lines = [json.loads(line) for line in data.splitlines()]
    found = {json.dumps(line["id"]) + ("" if line["id"] is not None else str(line["line"])): line for line in lines}
    assert len(found) == len(lines)
    return {json.loads(key) if not key.startswith("null") else int(key[4:]): line for key, line in found.items()}


def answered(requests, *args, code=0, **kwargs) -> dict:
    """What comes of requests through standard input and output."""
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)
    done = batch("--input", "-", *args, input=text.encode(errors="surrogateescape"), **kwargs)
    assert done.returncode == code, done.stderr.decode()
    return results(done.stdout)


MANY = [{"id": i, "prompt": f"Number {i} " * (1 + i % 7), "seed": i, "max_tokens": 5 + i % 20, "ignore_eos": True} for i in range(150)]


def start(*args, **kwargs) -> subprocess.Popen:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
    return subprocess.Popen([str(COMMAND), "run", *map(str, args)], env=clean, stderr=subprocess.PIPE, **kwargs)


def wait_for_lines(path: Path, count: int, process: subprocess.Popen) -> None:
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < count):
        time.sleep(0.002)


# ---- results ----


def test_results_are_those_of_single_runs():
    requests = [
        {"id": "plain", "prompt": "Hello", "seed": 1, "max_tokens": 12},
        {"id": "filters", "prompt": "Hello", "seq_seed": 2, "top_p": 0.8, "top_k": 30, "min_p": 0.01, "max_tokens": 12},
        {"id": "penalties", "prompt": "a a a", "seed": 3, "repetition_penalty": 1.3, "frequency_penalty": 0.5,
         "presence_penalty": -0.5, "max_tokens": 12},
        {"id": "lists", "prompt": "x", "seed": 4, "allowed_token_ids": [40, 41, 42, 43], "bad_token_ids": [41],
         "logit_bias": {"42": 3.5, "43": -1}, "max_tokens": 12},
        {"id": "ends", "prompt": "x", "seed": 5, "stop": "e", "include_stop_str_in_output": True, "stop_token_ids": [7, 9],
         "min_tokens": 3, "ignore_eos": True, "max_tokens": 200},
        {"id": "logprobs", "prompt": "Hello you", "seed": 6, "logprobs": 2, "prompt_logprobs": 1, "max_tokens": 4},
        {"id": "several", "prompt": "Hello", "seed": 7, "n": 3, "max_tokens": 6, "skip_special_tokens": False},
    ]  # fmt: skip
    found = answered(requests)
    assert list(found) != [] and set(found) == {r["id"] for r in requests}
    for request in requests:
        args = []
        for key, value in request.items():
            option = "--" + {"seq_seed": "seed"}.get(key, key).replace("_", "-")
            if key == "id":
                continue
            elif key == "logit_bias":
                args += [f"{option}={token}:{bias}" for token, bias in value.items()]
            elif isinstance(value, list):
                args += [option, ",".join(map(str, value))]
            elif key == "skip_special_tokens":
                args += [option, "on" if value else "off"]
            else:
                args += [option] if value is True else [option, value]
        single = json.loads(batch("--json", *args).stdout)
        one = found[request["id"]]
        for key in ("id",):
            one.pop(key)
        for key in ("timings", "prompt_token_ids"):
            single.pop(key)
        assert one == single
    assert found["lists"]["token_ids"] and set(found["lists"]["token_ids"]) <= {40, 42, 43}
    assert [choice["index"] for choice in found["several"]["choices"]] == [0, 1, 2]
    assert found["logprobs"]["prompt_logprobs"][0] is None


def test_ids_and_prompts():
    requests = [
        {"id": "text", "prompt": "Hello", "seed": 1, "max_tokens": 3},
        {"custom_id": "ids", "prompt_token_ids": [0, 5, 6], "seed": 1, "max_tokens": 3, "prompt": None},
        {"request_id": 12345678901234567, "prompt": "Hello", "seed": "18446744073709551615", "max_tokens": 3},
        {"id": "\u00e9\n\"", "prompt": "Hello\u0000", "seed": 1, "seq_seed": 1, "max_tokens": 3, "priority": -5, "stop": []},
        "",
        " \t\r",
        {"prompt": "Hello", "seed": None, "max_tokens": None, "logprobs": None},
    ]  # fmt: skip
    found = answered(requests, "--max-tokens", 2, "--seed", 9)
    assert set(found) == {"text", "ids", 12345678901234567, "\u00e9\n\"", "line-7"}
    assert found[12345678901234567]["seed"] == "18446744073709551615"
    assert found["line-7"]["seed"] == "9" and found["line-7"]["usage"]["completion_tokens"] <= 2  # the options' values
    assert found["ids"]["usage"]["prompt_tokens"] == 3
    without = answered(requests[:1], "--bos", "off")
    assert without["text"]["usage"]["prompt_tokens"] == found["text"]["usage"]["prompt_tokens"] - 1
    assert set(found["text"]) == {"id", "text", "token_ids", "finish_reason", "stop_reason", "usage", "seed", "identity"}
    documented = (ROOT / "docs" / "cli.md").read_text()
    assert all(f"`{key}`" in documented for key in (*found["text"], "choices", "error", "line", "custom_id", "request_id"))


def test_a_last_line_without_newline_counts():
    done = batch("--input", "-", input=b'{"id": 1, "prompt": "x", "max_tokens": 1}\n{"id": 2, "prompt": "x", "max_tokens": 1}')
    assert done.returncode == 0 and set(results(done.stdout)) == {1, 2}
    done = batch("--input", "-", input=b"")
    assert done.returncode == 0 and done.stdout == b""


def test_priority_and_order_of_ends():
    """Results come as they finish: the short one first, though it is last in the file."""
    requests = [{"id": "long", "prompt": "x", "max_tokens": 400, "ignore_eos": True}, {"id": "short", "prompt": "x", "max_tokens": 1}]
    assert list(answered(requests)) == ["short", "long"]
    # two at a time, so that four are read: the urgent one overtakes the other that waits
    waiting = [{"id": i, "prompt": "x", "max_tokens": 1500 if i < 2 else 5, "ignore_eos": True} for i in range(4)]
    order = list(answered([*waiting[:3], waiting[3] | {"priority": -1}], "--max-num-seqs", 2))
    assert order.index(3) < order.index(2)


def test_results_do_not_depend_on_settings():
    common = answered(MANY[:60])
    for settings in (("--max-num-seqs", 3), ("--async", "off", "--prefix-cache", "off"), ("--max-num-batched-tokens", 16, "--threads", 1)):
        assert answered(MANY[:60], *settings) == common


# ---- lines that are wrong ----

OK = {"prompt": "x", "max_tokens": 1}
WRONG = {
    "not JSON": ("nonsense", "not valid JSON: column"),
    "no object": ("[1]", "must be a JSON object"),
    "two objects": ('{"prompt": "x"} {}', "not valid JSON"),
    "duplicate key": ('{"prompt": "x", "prompt": "y"}', "duplicate"),
    "not UTF-8": ('{"prompt": "\udcff"}', "not valid JSON"),
    "huge number": ('{"prompt": "x", "seed": 18446744073709551616}', "not valid JSON"),
    "deep": ("[" * 100000, "not valid JSON"),
    "unknown key": (OK | {"max_token": 3}, 'unknown key "max_token"; did you mean "max_tokens"?'),
    "no such thing": (OK | {"messages": []}, 'unknown key "messages"'),
    "long unknown key": (OK | {"k" * 1000: 1}, "unknown key"),
    "no prompt": ({"max_tokens": 1}, "one of prompt and prompt_token_ids is needed"),
    "two prompts": (OK | {"prompt_token_ids": [1]}, "not both"),
    "empty prompt": ({"prompt": ""}, "prompt is empty"),
    "empty ids": ({"prompt_token_ids": []}, "prompt_token_ids is empty"),
    "prompt is a list": ({"prompt": [1, 2]}, '"prompt_token_ids"'),
    "ids are text": ({"prompt_token_ids": "1,2"}, "list of token ids"),
    "id in ids": ({"prompt_token_ids": [1, "2"]}, "prompt_token_ids[1]"),
    "negative id": ({"prompt_token_ids": [1, 2, -3]}, "prompt_token_ids[2]"),
    "id too large": ({"prompt_token_ids": [1, 99999]}, "99999 at index 1"),
    "prompt too long": ({"prompt_token_ids": [1] * 3000}, "max-model-len is 2048"),
    "id is a list": (OK | {"id": []}, "id must be a string or a whole number"),
    "two ids": (OK | {"id": 1, "custom_id": 1}, "id and custom_id"),
    "temperature": (OK | {"temperature": -1}, "temperature must be"),
    "temperature is text": (OK | {"temperature": "1"}, "temperature must be a number"),
    "top_p": (OK | {"top_p": 1.5}, "top_p must be"),
    "top_k": (OK | {"top_k": -2}, "top_k must be"),
    "top_k is real": (OK | {"top_k": 1.5}, "top_k must be a whole number"),
    "min_p": (OK | {"min_p": 2}, "min_p must be"),
    "repetition_penalty": (OK | {"repetition_penalty": 0}, "repetition_penalty must be"),
    "frequency_penalty": (OK | {"frequency_penalty": 3}, "frequency_penalty must be"),
    "presence_penalty": (OK | {"presence_penalty": -3}, "presence_penalty must be"),
    "max_tokens": (OK | {"max_tokens": 0}, "max_tokens must be"),
    "min_tokens": (OK | {"min_tokens": 2}, "min_tokens must lie"),
    "n": (OK | {"n": 65}, "n must be"),
    "logprobs": (OK | {"logprobs": -1}, "logprobs must be"),
    "logprobs true": (OK | {"logprobs": True}, "logprobs must be a whole number"),
    "prompt_logprobs": (OK | {"prompt_logprobs": 21}, "prompt_logprobs must be"),
    "ignore_eos": (OK | {"ignore_eos": 1}, "ignore_eos must be true or false"),
    "seed": (OK | {"seed": -1}, "seed must be"),
    "seed is real": (OK | {"seed": 1.0}, "seed must be"),
    "seed is text": (OK | {"seed": "0x1"}, "seed must be"),
    "seeds differ": (OK | {"seed": 1, "seq_seed": 2}, "seed and seq_seed are one parameter"),
    "stop": (OK | {"stop": 1}, "stop must be a string or a list of strings"),
    "stop in list": (OK | {"stop": ["a", None]}, "stop must be"),
    "stop is empty": (OK | {"stop": ["a", ""]}, "stop[1] is an empty string"),
    "stop with zero": (OK | {"stop": ["a\u0000b"]}, "stop[0] holds a zero byte"),
    "too many stops": (OK | {"stop": ["a"] * 65}, "at most 64"),
    "stop_token_ids": (OK | {"stop_token_ids": [1, 70000]}, "stop_token_ids[1]"),
    "stop_token_ids is a number": (OK | {"stop_token_ids": 1}, "stop_token_ids must be a list"),
    "logit_bias": (OK | {"logit_bias": [1]}, "logit_bias must be an object"),
    "logit_bias key": (OK | {"logit_bias": {"x": 1}}, 'the key "x"'),
    "logit_bias value": (OK | {"logit_bias": {"5": "1"}}, "logit_bias of token 5"),
    "logit_bias too large": (OK | {"logit_bias": {"5": 101}}, "logit_bias of token 5"),
    "logit_bias token": (OK | {"logit_bias": {"99999": 1}}, "99999"),
    "allowed_token_ids": (OK | {"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
    "nothing allowed": (OK | {"allowed_token_ids": [5], "bad_token_ids": [5]}, "forbid every token"),
    "priority": (OK | {"priority": "high"}, "priority must be"),
}  # fmt: skip


def test_wrong_lines_are_answered_and_the_rest_goes_on():
    requests = []
    for text, _ in WRONG.values():
        requests += [text, OK | {"seed": 1}]
    found = answered(requests, code=4)
    assert len(found) == len(requests)
    errors = {line["line"]: line["error"] for line in found.values() if "error" in line}
    for number, (name, (_, culprit)) in enumerate(WRONG.items()):
        assert culprit in errors[2 * number + 1]["message"], name
        assert errors[2 * number + 1]["code"].startswith("DI_ERR_"), name
        assert found[f"line-{2 * number + 2}"]["finish_reason"] in ("stop", "length")


def test_an_error_line_has_the_id():
    found = answered([{"id": "mine", "prompt": "x", "top_p": 7}, {"id": 8, "prompt": "x", "what": 1}, {"id": [], "prompt": "x"}], code=4)
    assert found["mine"]["error"]["code"] == "DI_ERR_RANGE" and found[8]["line"] == 2 and found[3]["id"] is None


def test_an_id_is_used_once():
    lines = [{"id": 1, **OK}, {"id": "1", **OK}, {"id": 1, "prompt": "other"}]
    done = batch("--input", "-", input="\n".join(map(json.dumps, lines)).encode())
    assert done.returncode == 4 and b"1 of 3 requests failed" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["line"] for line in found if "error" in line] == [3] and "earlier line" in done.stdout.decode()


def test_a_line_that_is_too_long(tmp_path):
    path = tmp_path / "in"
    with path.open("wb") as file:
        file.write(b'{"id": 1, "prompt": "' + b"x" * (65 << 20) + b'"}\n' + json.dumps({"id": 2, **OK}).encode() + b"\n")
    done = batch("--input", path)
    found = results(done.stdout)
    assert done.returncode == 4 and "longer than" in found[1]["error"]["message"] and found[2]["text"] is not None


def test_logits_that_are_no_numbers_are_the_requests_error(tmp_path):
    """The engine lives on: the line is an answer, and the run does not end there."""
    model = tmp_path / "model"
    model.mkdir()
    for file in ("config.json", "tokenizer.json"):
        (model / file).write_bytes((MICRO / file).read_bytes())
    data = bytearray((MICRO / "model.safetensors").read_bytes())
    size = int.from_bytes(data[:8], "little")
    tensor = json.loads(data[8 : 8 + size])["norm.weight"]
    begin, end = (8 + size + offset for offset in tensor["data_offsets"])
    data[begin:end] = b"\xc0\x7f" * ((end - begin) // 2) if tensor["dtype"] == "BF16" else b"\0\0\xc0\x7f" * ((end - begin) // 4)
    (model / "model.safetensors").write_bytes(data)
    found = answered([{"id": i, **OK} for i in range(3)], code=4, model=model)
    assert [found[i]["error"]["code"] for i in range(3)] == ["DI_ERR_BACKEND"] * 3


# ---- usage ----

USAGE = {
    "input and prompt": (["--input", "-", "--prompt", "x"], "one of --prompt"),
    "output alone": (["--prompt", "x", "--output", "x"], "--output goes with --input"),
    "resume alone": (["--prompt", "x", "--resume"], "--resume goes with --input"),
    "progress alone": (["--prompt", "x", "--progress"], "--progress goes with --input"),
    "resume to standard output": (["--input", "-", "--resume"], "--resume needs a file"),
    "resume a device": (["--input", "-", "--resume", "--output", "/dev/null"], "/dev/null"),
    "missing input": (["--input", "/no/such/file"], "/no/such/file: No such file"),
    "input is a folder": (["--input", "/"], "/: Is a directory"),
    "output is a folder": (["--input", "-", "--output", "/tmp"], "/tmp is a directory"),
    "output in no folder": (["--input", "-", "--output", "/no/such/place"], "/no/such/place"),
    "existing output": (["--input", "-", "--output", str(MICRO / "config.json")], "exists; --resume"),
    "not a result": (["--input", "-", "--resume", "--output", str(MICRO / "config.json")], "line 1 is not a result"),
    "bad parameter": (["--input", "-", "--top-p", "3"], "--top-p"),
    "bad token": (["--input", "-", "--stop-token-ids", "70000"], "--stop-token-ids"),
}


@pytest.mark.parametrize("args, culprit", USAGE.values(), ids=USAGE.keys())
def test_usage_errors(args, culprit):
    before = (MICRO / "config.json").read_bytes()
    for more in ((), ("--json",)):
        done = batch(*args, *more, input=b"")
        assert done.returncode == 2 and culprit in done.stderr.decode(), done.stderr
        assert done.stdout == b""
    assert json.loads(done.stderr)["error"]["code"].startswith("DI_ERR_")
    assert (MICRO / "config.json").read_bytes() == before


def test_no_output_is_begun_without_a_model(tmp_path):
    done = run_cli("run", "--model", "/no/such/model", "--input", "/dev/null", "--output", tmp_path / "out")
    assert done.returncode == 3 and not (tmp_path / "out").exists()


# ---- files ----


def test_resume_after_a_kill(tmp_path):
    """Killed several times over, the file ends up holding exactly what an undisturbed run gives."""
    whole, path, out = answered(MANY), write_lines(tmp_path / "in", MANY), tmp_path / "out"
    kills = 0
    for count in (5, 40, 90):
        process = start("--model", MICRO, "--input", path, "--output", out, "--resume", "--threads", 1)
        wait_for_lines(out, count, process)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        process.stderr.close()
        with out.open("ab") as file:
            file.write(b'{"id": 149, "text": "torn')
    assert kills >= 1
    done = batch("--input", path, "--output", out, "--resume", "--stats")
    assert done.returncode == 0, done.stderr
    assert results(out) == whole
    assert b" 0 failed" in done.stderr and b" 0 skipped" not in done.stderr
    size = out.stat().st_size
    again = batch("--input", path, "--output", out, "--resume")
    assert again.returncode == 0 and out.stat().st_size == size


def test_resume_keeps_errors_and_tells_of_them(tmp_path):
    requests = [{"id": 1, **OK}, "junk", {"id": 1, **OK}, {"id": 2, "prompt": "x", "n": 0}, "junk", {"id": 3, **OK}]
    path, out = write_lines(tmp_path / "in", requests), tmp_path / "out"
    first = batch("--input", path, "--output", out)
    lines = out.read_bytes().splitlines(keepends=True)
    assert first.returncode == 4 and len(lines) == 6 and b"4 of 6 requests failed" in first.stderr
    for kept in range(7):
        out.write_bytes(b"".join(lines[:kept]))
        again = batch("--input", path, "--output", out, "--resume")
        assert again.returncode == 4 and again.stderr == first.stderr
        key = lambda line: (json.loads(line).get("line", 0), str(json.loads(line)["id"]))
        now = out.read_bytes().splitlines(keepends=True)
        assert sorted(map(key, now)) == sorted(map(key, lines)) and now[:kept] == lines[:kept]


def test_resume_refuses_another_model(tmp_path):
    path, out = write_lines(tmp_path / "in", [{"id": 1, **OK}]), tmp_path / "out"
    assert batch("--input", path, "--output", out, "--resume").returncode == 0  # nothing there yet: the same as without
    before = out.read_bytes()
    done = batch("--input", path, "--output", out, "--resume", "--mode", "oracle")
    assert done.returncode == 2 and b"numeric identity" in done.stderr and out.read_bytes() == before


def test_two_runs_do_not_share_an_output(tmp_path):
    out = tmp_path / "out"
    process = start("--model", MICRO, "--input", "-", "--output", out, stdin=subprocess.PIPE)
    while not out.exists() and process.poll() is None:
        time.sleep(0.002)
    time.sleep(0.1)  # between making the file and its lock
    done = batch("--input", "/dev/null", "--output", out, "--resume")
    assert done.returncode == 2 and b"another process" in done.stderr
    process.communicate(b"")
    assert process.returncode == 0


def test_full_devices():
    for args, name in ((("--output", "/dev/full"), b"/dev/full"), ((), b"standard output")):
        with open("/dev/full", "wb") as full:
            text = json.dumps(OK).encode()
            done = batch("--input", "-", *args, input=text, stdout=full, stderr=subprocess.PIPE, capture_output=False)
        assert done.returncode == 1 and name in done.stderr and b"No space left" in done.stderr


def test_a_reader_that_goes_away():
    process = start("--model", MICRO, "--input", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.close()
    process.stdin.write(json.dumps(OK).encode() + b"\n")
    process.stdin.flush()
    assert process.wait(timeout=60) == 1 and b"Broken pipe" in process.stderr.read()  # though input might still come
    process.stdin.close()
    process.stderr.close()


@pytest.mark.parametrize("to_stdout", [False, True])
def test_a_disk_that_fills_up(tmp_path, to_stdout):
    """What was written is whole and can be resumed."""
    path, out, limit = write_lines(tmp_path / "in", MANY), tmp_path / "out", 20001
    shrink = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if to_stdout:
        with out.open("wb") as file:
            done = batch("--input", path, stdout=file, stderr=subprocess.PIPE, capture_output=False, preexec_fn=shrink)
    else:
        done = batch("--input", path, "--output", out, preexec_fn=shrink)
    assert done.returncode == 1 and b"File too large" in done.stderr
    kept = results(out)
    assert 10 < len(kept) < len(MANY) and limit - 2000 < out.stat().st_size <= limit
    assert batch("--input", path, "--output", out, "--resume").returncode == 0
    found = results(out)
    assert len(found) == len(MANY) and all(found[key] == line for key, line in kept.items())


def test_interrupt(tmp_path):
    requests = [r | {"max_tokens": 300} for r in MANY]
    path, out = write_lines(tmp_path / "in", requests), tmp_path / "out"
    process = start("--model", TINY, "--input", path, "--output", out, "--max-num-seqs", 8)
    wait_for_lines(out, 8, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors == b""
    kept = results(out)
    assert 8 <= len(kept) < len(requests) and all(line["finish_reason"] == "length" for line in kept.values())
    few = write_lines(tmp_path / "few", requests[:20])
    done = batch("--input", few, "--output", out, "--resume", model=TINY)
    assert done.returncode == 0, done.stderr
    found = results(out)
    assert set(found) == set(kept) | set(range(20)) and all(found[key] == line for key, line in kept.items())


def test_interrupt_while_waiting_for_input():
    process = start("--model", MICRO, "--input", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(json.dumps({"id": 1, **OK}).encode() + b"\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1  # answered before the input has ended
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b"" and errors == b""


def test_memory_does_not_grow_with_the_input(tmp_path):
    """Eight requests are looked at ahead, whatever comes behind them."""
    line = json.dumps({"prompt_token_ids": [1], "max_tokens": 1, "stop": ["y" * 1000] * 20}) + "\n"
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    peak = []
    for count in (100, 3000):
        (tmp_path / "in").write_text(line * count)  # 2 MB, 60 MB
        command = ["python3", "-c", script, COMMAND, "run", "--model", MICRO, "--input", tmp_path / "in", "--threads", 1, "--max-num-seqs", 4]
        peak.append(int(subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout))
    assert peak[1] < peak[0] + 24 * 1024  # KiB


def test_progress(tmp_path):
    path = write_lines(tmp_path / "in", [*MANY[:20], "", "junk"])
    done = batch("--input", path, "--output", tmp_path / "out", "--progress", "--stats")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 4 and "21/21 requests (1 failed), 0 running" in lines[-3]
    assert lines[-2].startswith("requests: 20 done, 1 failed, 0 skipped") and "1 of 21 requests failed" in lines[-1]
    done = batch("--input", path, "--output", tmp_path / "out", "--resume")
    assert done.stderr.decode().splitlines() == lines[-1:]  # quiet where nobody looks
    master, slave = os.openpty()
    done = batch("--input", path, "--output", tmp_path / "more", stdout=subprocess.PIPE, stderr=slave, capture_output=False)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "\r21/21 requests" in shown and done.stdout == b""
