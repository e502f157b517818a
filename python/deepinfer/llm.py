"""LLM: a model that generates."""

from __future__ import annotations

import difflib
import os
import queue
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from numbers import Integral
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from . import errors
from ._client import Client, Event
from ._collect import Collector
from ._library import ffi, lib, text
from .outputs import CompletionOutput, RequestOutput
from .sampling import SamplingParams, defaults
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .chat import Conversation, Tools


class TextPrompt(TypedDict):
    prompt: str


class TokensPrompt(TypedDict):
    prompt_token_ids: Sequence[int]


Prompt = str | Sequence[int] | TextPrompt | TokensPrompt


@dataclass(frozen=True)
class Option:
    """One option of the engine."""

    name: str
    """As the command line has it: "max-model-len"; in Python max_model_len."""
    env: str | None
    values: str
    default: str
    help: str


def options() -> dict[str, Option]:
    """The options of the engine by their Python names: docs/options.md is the same list."""
    info, found = ffi.new("struct di_option_info *"), {}
    for i in range(lib.di_option_count()):
        lib.di_option_at(i, info)
        env = text(info.env) if info.env != ffi.NULL else None
        option = Option(text(info.name), env, text(info.values), text(info.default_value), text(info.help))
        found[option.name.replace("-", "_")] = option
    return found


@dataclass
class _Input:
    """A prompt as given: a text that is still to be encoded, or ids."""

    text: str | None
    ids: list[int] | None


class LLM:
    """A model, opened from a folder or by a hub id from the Hugging Face cache (`python -m deepinfer.fetch` puts it there).

    Every option of the engine (docs/options.md) is a keyword, with underscores: `LLM("models/tiny", threads=4)`. Without
    `model`: the variable DEEPINFER_HF_MODEL_DIR, else the released hub id.

    Any number of threads and asyncio tasks may use one LLM at once: all their requests run together. Close it, or use it in a
    `with` statement, to give its memory back at a known moment.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, **option_values: str | int | bool | None) -> None:
        self._client = Client(None if model is None else os.fspath(model), _option_texts(option_values))
        self._finalizer = weakref.finalize(self, self._client.close)  # also when the interpreter ends
        with self._client.use() as engine:
            self.identity: str = text(lib.di_engine_identity(engine))
            """The numeric identity: equal ones, and equal checkpoints, give equal tokens."""
            self.max_model_len: int = lib.di_engine_max_model_len(engine)
            """The longest sequence, prompt and output together."""
            self.vocab_size: int = lib.di_engine_vocab_size(engine)
            self._bos, self._eos = lib.di_engine_bos_token_id(engine), lib.di_engine_eos_token_id(engine)

    # ---- life ----

    def close(self) -> None:
        """Ends what runs (with finish_reason "abort") and frees the model. Closing again does nothing."""
        self._client.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LLM {self.identity}{' (closed)' if self._client.closed else ''}>"

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; it keeps the LLM alive."""
        return Tokenizer(self._use_tokenizer, self._bos, self._eos)

    def _use_tokenizer(self) -> AbstractContextManager[Any]:
        return self._client.tokenizer()

    def stats(self) -> dict[str, int | float]:
        """Counters since opening and the state of the moment, as `struct di_engine_stats` of request.h has them."""
        return self._client.stats()

    def abort(self, request_id: str) -> bool:
        """Ends a request of generate_async() by the id it was given; False if none of that id is unfinished."""
        return self._client.abort_id(request_id)

    # ---- many prompts ----

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: int | Sequence[int] | None = None,
        *,
        raise_on_error: bool = True,
    ) -> list[RequestOutput]:
        """Generates for all prompts at once; the results are in their order.

        A prompt is a text (literals of special tokens become those tokens; no beginning-of-sequence token is added), a list of
        token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}`. Parameters and priorities (lower ones run first) are one
        for all or one per prompt.

        A single prompt that is refused raises InvalidError (a ValueError). In a list the others run all the same, those that
        failed have finish_reason "error" and an `error`, and at the end RequestError, which holds all results, is raised;
        raise_on_error=False returns them instead.
        """
        inputs, single = _inputs(prompts)
        return self._generate(inputs, single, sampling_params, use_tqdm, priority, raise_on_error)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: int | Sequence[int] | None = None,
        *,
        thinking: bool = True,
        tools: Tools | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        reasoning_effort: str | None = None,
        raise_on_error: bool = True,
    ) -> list[RequestOutput]:
        """Generates replies to one conversation or to many. Messages are those of Chat Completions: dicts of role and content.

        The package deepseek-recipe writes the prompt, as the model was trained on it. `text` of a choice is what the model
        wrote, `message` the same as a message: content, reasoning_content, tool_calls.
        """
        from . import chat  # the vendor's package takes a while to load

        conversations, single = chat.conversations(messages)
        made: list[chat.Rendered] = []
        for i, conversation in enumerate(conversations):
            try:
                made.append(chat.render(self.tokenizer, conversation, thinking, tools, tool_choice, reasoning_effort))
            except errors.InvalidError as bad:
                where = "" if single else f"conversation {i}: "
                raise errors.InvalidError(f"{where}{bad}", bad.code) from None
        inputs = [_Input(r.prompt, r.ids) for r in made]
        outputs = self._generate(inputs, single, sampling_params, use_tqdm, priority, raise_on_error)
        for rendered, output, params in zip(made, outputs, _params(sampling_params, len(made)), strict=True):
            for choice in output.outputs:
                choice.message = rendered.message(self.tokenizer, choice, params)
        return outputs

    def _generate(
        self,
        inputs: list[_Input],
        single: bool,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool | Callable[..., Any],
        priority: int | Sequence[int] | None,
        raise_on_error: bool,
    ) -> list[RequestOutput]:
        params = _params(sampling_params, len(inputs))
        priorities = _per_prompt("priority", 0 if priority is None else priority, len(inputs), int)
        inbox: queue.SimpleQueue[tuple[int, Event | errors.Error]] = queue.SimpleQueue()
        outputs: list[RequestOutput | None] = [None] * len(inputs)
        running: dict[int, tuple[int, Collector]] = {}  # by index: ticket, what came
        progress = _Progress(use_tqdm, len(inputs))
        try:
            for i, (given, wanted) in enumerate(zip(inputs, params, strict=True)):
                ids: list[int] = []
                try:
                    ids = self._ids(given)
                    ticket = self._client.submit(
                        ids, wanted, _tagged(inbox, i), priority=priorities[i], stream=False, request_id=None
                    )
                except errors.ClosedError:
                    raise
                except errors.Error as refused:
                    if single and raise_on_error:
                        raise
                    outputs[i] = self._refused(given, ids, refused)
                    progress.add(outputs[i])
                else:
                    running[i] = ticket, Collector(given.text, ids, wanted, self.identity)
            while running:
                i, event = inbox.get()
                if i not in running:
                    continue
                collector = running[i][1]
                collector.add(event)
                if collector.output.finished:
                    del running[i]
                    outputs[i] = collector.output
                    progress.add(collector.output)
        except BaseException:  # an interrupt among them
            for ticket, _ in running.values():
                self._client.abort(ticket)
            raise
        finally:
            progress.close()
        done = [o for o in outputs if o is not None]
        if raise_on_error:
            _raise_failed(done)
        return done

    def _refused(self, given: _Input, ids: list[int], error: errors.Error) -> RequestOutput:
        choice = CompletionOutput(0, finish_reason="error", error=error)
        return RequestOutput("", given.text, ids, outputs=[choice], finished=True, identity=self.identity)

    def _ids(self, given: _Input) -> list[int]:
        if given.ids is not None:
            return given.ids
        return self.tokenizer.encode(given.text or "")

    # ---- one prompt, as it comes ----

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, priority: int = 0, delta: bool = False
    ) -> Iterator[RequestOutput]:
        """Yields a RequestOutput whenever there is something new, the last one with `finished`.

        Each holds everything so far; with delta=True only what is new, and only choices that have something new. The request is
        submitted when the first one is asked for, and aborted when the iterator is left early. Failures are raised.
        """
        given, params = _one_input(prompt), _params(sampling_params, 1)[0]
        ids = self._ids(given)
        inbox: queue.SimpleQueue[Event | errors.Error] = queue.SimpleQueue()
        ticket = self._client.submit(ids, params, inbox.put, priority=priority, stream=True, request_id=None)
        collector = Collector(given.text, ids, params, self.identity)
        try:
            while not collector.output.finished:
                collector.add(inbox.get())
                while not inbox.empty():
                    collector.add(inbox.get())
                output = collector.take(delta)
                _raise_failed([output])
                yield output
        finally:
            if not collector.output.finished:
                self._client.abort(ticket)

    async def generate_async(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        delta: bool = False,
    ) -> AsyncGenerator[RequestOutput, None]:
        """stream() for asyncio: `async for output in llm.generate_async(...)`. Cancelling the task aborts the request.

        `request_id` must differ from those of unfinished requests; None: the engine makes one up.
        """
        import asyncio

        given, params = _one_input(prompt), _params(sampling_params, 1)[0]
        ids = self._ids(given)
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        inbox: deque[Event | errors.Error] = deque()

        def sink(event: Event | errors.Error) -> None:
            inbox.append(event)
            loop.call_soon_threadsafe(ready.set)

        ticket = self._client.submit(ids, params, sink, priority=priority, stream=True, request_id=request_id)
        collector = Collector(given.text, ids, params, self.identity)
        try:
            while not collector.output.finished:
                await ready.wait()
                ready.clear()
                fresh = False
                while inbox:
                    collector.add(inbox.popleft())
                    fresh = True
                if fresh:
                    output = collector.take(delta)
                    _raise_failed([output])
                    yield output
        finally:
            if not collector.output.finished:
                self._client.abort(ticket)


class _Progress:
    """A tqdm bar over prompts with the speeds in tokens."""

    def __init__(self, use_tqdm: bool | Callable[..., Any], total: int) -> None:
        self._bar: Any = None
        if use_tqdm and total > 0:
            if use_tqdm is True:
                from tqdm.auto import tqdm as make
            else:
                make = use_tqdm
            self._bar = make(total=total, desc="Prompts", unit="prompt", dynamic_ncols=True)
        self._begin = time.monotonic()
        self._in = self._out = 0

    def add(self, output: RequestOutput | None) -> None:
        if self._bar is None or output is None:
            return
        self._in += len(output.prompt_token_ids)
        self._out += sum(len(c.token_ids) for c in output.outputs)
        seconds = max(time.monotonic() - self._begin, 1e-9)
        self._bar.set_postfix_str(f"{self._in / seconds:.0f} tokens/s in, {self._out / seconds:.0f} out", refresh=False)
        self._bar.update(1)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _tagged(inbox: queue.SimpleQueue[tuple[int, Event | errors.Error]], index: int) -> Callable[[Event | errors.Error], None]:
    return lambda event: inbox.put((index, event))


def _option_texts(values: Mapping[str, str | int | bool | None]) -> dict[str, str]:
    """Python keywords as option names and texts; None means not given."""
    known, texts = options(), {}
    for keyword, value in values.items():
        if keyword not in known:
            near = difflib.get_close_matches(keyword, known, 1)
            raise TypeError(f"LLM() has no option {keyword!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if value is None:
            continue
        option = known[keyword]
        if isinstance(value, bool):
            switch = {"on|off": ("off", "on"), "0|1": ("0", "1"), "0..1": ("0", "1")}.get(option.values)
            if switch is None:
                raise TypeError(f"{keyword} must be {option.values}, not {value!r}")
            texts[option.name] = switch[value]
        elif isinstance(value, (str, int)):
            texts[option.name] = str(value)
        else:
            raise TypeError(f"{keyword} must be {option.values}, not {value!r}")
    return texts


def _inputs(prompts: Any) -> tuple[list[_Input], bool]:
    """Prompts as given, and whether it is a single one and no list."""
    prompts = _plain(prompts)
    if isinstance(prompts, (str, Mapping)):
        return [_input(prompts, "prompt")], True
    if not isinstance(prompts, Sequence) or isinstance(prompts, (bytes, bytearray)):
        raise TypeError(f"prompts must be texts, token ids, dicts, or a list of them, not {prompts!r}")
    if prompts and isinstance(prompts[0], Integral):
        return [_input(prompts, "prompt")], True
    return [_input(p, f"prompt {i}") for i, p in enumerate(prompts)], len(prompts) == 1


def _one_input(prompt: Any) -> _Input:
    prompt = _plain(prompt)
    if (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, (str, bytes, bytearray))
        and prompt
        and not isinstance(prompt[0], Integral)
    ):
        raise TypeError("one prompt at a time can be streamed, not a list of them")
    return _input(prompt, "prompt")


def _input(prompt: Any, where: str) -> _Input:
    prompt = _plain(prompt)
    if isinstance(prompt, Mapping):
        if set(prompt) == {"prompt"} and isinstance(prompt["prompt"], str):
            return _Input(prompt["prompt"], None)
        ids = _plain(prompt.get("prompt_token_ids"))
        if set(prompt) <= {"prompt", "prompt_token_ids"} and isinstance(ids, Sequence) and not isinstance(ids, str):
            return _Input(prompt.get("prompt"), list(ids))
        raise TypeError(f'{where} must be {{"prompt": text}} or {{"prompt_token_ids": ids}}, not {prompt!r}')
    if isinstance(prompt, str):
        return _Input(prompt, None)
    if isinstance(prompt, Sequence) and not isinstance(prompt, (bytes, bytearray)):
        return _Input(None, list(prompt))
    raise TypeError(f"{where} must be a text, a list of token ids or a dict, not {prompt!r}")


def _plain(value: Any) -> Any:
    """Arrays (numpy's, for one) as lists."""
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, Sequence) else value


def _params(given: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """One per prompt, each of the right types; whether values are in range is for the library to say."""
    params = _per_prompt("sampling_params", SamplingParams() if given is None else given, count, SamplingParams)
    for one in {id(p): p for p in params}.values():
        with suppress(errors.Error):
            one.fill(defaults())
    return params


def _per_prompt(name: str, given: Any, count: int, kind: type) -> list[Any]:
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be one {kind.__name__} or a list of them, not {given!r}")
    values = list(given)
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be one {kind.__name__} or a list of them; there is {value!r} in the list")
    if len(values) != count:
        raise errors.InvalidError(f"there are {len(values)} {name} for {count} prompts", "DI_ERR_INVALID")
    return values


def _raise_failed(outputs: list[RequestOutput]) -> None:
    failed = [(i, o) for i, o in enumerate(outputs) if o.error is not None and not isinstance(o.error, errors.ClosedError)]
    if not failed:
        return
    shown = [str(o.error) if len(outputs) == 1 else f"prompt {i}: {o.error}" for i, o in failed[:5]]
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    counted = "the request failed" if len(outputs) == 1 else f"{len(failed)} of {len(outputs)} requests failed"
    raise errors.RequestError(f"{counted}: {'; '.join(shown)}{more}", [o for _, o in failed], outputs)
