"""An open engine and the thread that takes its events.

Requests come from any thread. One thread of this module waits in di_next_event (the interpreter is free meanwhile), turns events
into Python objects and hands each to the request that it belongs to; asyncio loops and waiting threads get them from there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import errors
from ._library import c_string, check, exception, ffi, lib, new_error, text
from .outputs import Logprob, RequestMetrics
from .sampling import SamplingParams, defaults, integer

CLOSING_SECONDS = 30.0  # that aborted requests have for their last events


@dataclass(slots=True)
class Event:
    """A C `struct di_event`; the fields of the last block are those of finished events."""

    choice: int
    request_id: str
    token_ids: list[int]
    text: str
    logprobs: list[dict[int, Logprob]] | None
    prompt_logprobs: list[dict[int, Logprob] | None] | None

    finish_reason: str | None = None
    stop_string: str | None = None
    stop_token: int | None = None
    error: errors.Error | None = None
    seed: int | None = None
    num_cached_tokens: int | None = None
    metrics: RequestMetrics | None = None


# Called on the event thread: an event, or the reason why there will be none any more. Must not block.
Sink = Callable[[Event | errors.Error], None]


class _Waiting:
    """A submitted request: where its events go, and how many choices have not ended."""

    __slots__ = ("choices", "sink")

    def __init__(self, sink: Sink, choices: int) -> None:
        self.sink = sink
        self.choices = choices


def open_options(values: Mapping[str, str]) -> Any:
    """C options with these values, by the registry's names. The caller frees them."""
    out, err = ffi.new("di_options **"), new_error()
    check(lib.di_options_create(out, err), err)
    try:
        for name, value in values.items():
            check(lib.di_options_set(out[0], name.encode(), c_string(name, value), err), err)
    except BaseException:
        lib.di_options_free(out[0])
        raise
    return out[0]


class Client:
    """The engine. Closing waits until nobody is inside a call; calls after that are ClosedError."""

    def __init__(self, model: str | None, values: Mapping[str, str]) -> None:
        err, out = new_error(), ffi.new("di_engine **")
        options = open_options(values)
        try:
            name = ffi.NULL if model is None else ffi.new("char[]", c_string("model", model))
            check(lib.di_engine_open(name, options, out, err), err)
        finally:
            lib.di_options_free(options)
        self._engine = out[0]
        self._process = os.getpid()
        self._users = 0
        # Reentrant: the garbage collector may close an LLM from within any of these calls.
        self._lock = threading.Condition(threading.RLock())
        self._waiting: dict[int, _Waiting] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        self._decoded: dict[int, str] = {}

    # ---- the handle ----

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The C engine, which stays open meanwhile."""
        self._check_process()
        with self._lock:
            self._check_open()
            self._users += 1
        try:
            yield self._engine
        finally:
            with self._lock:
                self._users -= 1
                self._lock.notify_all()

    @contextmanager
    def tokenizer(self) -> Iterator[Any]:
        with self.use() as engine:
            yield lib.di_engine_tokenizer(engine)

    def _check_process(self) -> None:
        """Before any lock: in a forked process the thread that holds it may be missing."""
        if os.getpid() != self._process:
            raise errors.EngineError("this LLM was opened by another process, and threads do not survive fork()")

    def _check_open(self) -> None:
        if self._closing:
            raise errors.ClosedError

    @property
    def closed(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Aborts what runs and frees the engine. Closing again does nothing."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
            for ticket in self._waiting:
                lib.di_abort_ticket(self._engine, ticket, new_error())
            thread = self._thread
            self._lock.notify_all()
        if thread is None:
            self._destroy()
        elif thread is not threading.current_thread():
            thread.join()  # which frees the engine last

    def _destroy(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._users == 0)
            engine, self._engine = self._engine, None
        lib.di_engine_close(engine)

    # ---- requests ----

    def submit(
        self, prompt: list[int], params: SamplingParams, sink: Sink, *, priority: int, stream: bool, request_id: str | None
    ) -> int:
        """Submits a request, whose events go to `sink`. Returns its ticket."""
        self._check_process()
        request, ticket, err = ffi.new("struct di_request *"), ffi.new("uint64_t *"), new_error()
        c_params = defaults()
        keep: list[Any] = params.fill(c_params)
        request.params = c_params[0]
        if request_id is not None:
            keep.append(ffi.new("char[]", c_string("request_id", request_id)))
            request.id = keep[-1]
        keep.append(_prompt(prompt))
        request.prompt, request.n_prompt = keep[-1], len(prompt)
        request.priority, request.stream = integer("priority", priority), stream
        with self._lock:  # until the ticket is known no event may be looked up
            self._check_open()
            check(lib.di_submit(self._engine, request, ticket, err), err)
            self._waiting[ticket[0]] = _Waiting(sink, request.params.n)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deepinfer-events", daemon=True)
                self._thread.start()
            self._lock.notify_all()
        return int(ticket[0])

    def abort(self, ticket: int) -> None:
        """Asks for a request's end, if it has not ended."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if ticket in self._waiting and not self._closing:
                lib.di_abort_ticket(self._engine, ticket, new_error())

    def abort_id(self, request_id: str) -> bool:
        """False if no request of that id is unfinished."""
        err = new_error()
        with self.use() as engine:
            status = lib.di_abort(engine, c_string("request_id", request_id), err)
        if status == lib.DI_ERR_NOT_FOUND:
            return False
        check(status, err)
        return True

    def stats(self) -> dict[str, int | float]:
        stats = ffi.new("struct di_engine_stats *")
        with self.use() as engine:
            lib.di_engine_get_stats(engine, stats)
        return {name: getattr(stats, name) for name, _ in ffi.typeof("struct di_engine_stats").fields}

    # ---- the event thread ----

    def _run(self) -> None:
        out, err = ffi.new("struct di_event **"), new_error()
        silent = 0.0  # seconds of closing without an event
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._waiting or self._closing)
                if self._closing and (not self._waiting or silent >= CLOSING_SECONDS):
                    break
            status = lib.di_next_event(self._engine, 1.0, out, err)
            if status != lib.DI_OK:
                self._fail(exception(err))
            elif out[0] != ffi.NULL:
                silent = 0.0
                self._dispatch(out[0])
            elif self._closing:
                silent += 1.0
        self._fail(errors.ClosedError())
        self._destroy()

    def _dispatch(self, c_event: Any) -> None:
        ticket, ended = c_event.ticket, c_event.kind == lib.DI_EVENT_FINISHED
        event: Event | errors.Error
        try:
            event = self._event(c_event)
        except Exception as bad:  # memory, for one: the other requests go on
            event = errors.EngineError(f"an event could not be read: {bad!r}")
            self.abort(ticket)
        finally:
            lib.di_event_free(self._engine, c_event)
        with self._lock:
            waiting = self._waiting.get(ticket)
            if waiting is None:
                return
            if ended:
                waiting.choices -= 1
                if waiting.choices == 0:
                    del self._waiting[ticket]
        if not self._hand(waiting.sink, event):
            self.abort(ticket)

    def _fail(self, error: errors.Error) -> None:
        with self._lock:
            sinks = [w.sink for w in self._waiting.values()]
            for ticket in self._waiting:
                lib.di_abort_ticket(self._engine, ticket, new_error())
            self._waiting.clear()
        for sink in sinks:
            self._hand(sink, error)

    @staticmethod
    def _hand(sink: Sink, event: Event | errors.Error) -> bool:
        """False if nobody takes it: an asyncio loop may have been closed."""
        try:
            sink(event)
        except Exception:
            return False
        return True

    def _event(self, e: Any) -> Event:
        event = Event(
            choice=e.choice,
            request_id=text(e.id),
            token_ids=ffi.unpack(e.token_ids, e.n_tokens) if e.n_tokens else [],
            text=ffi.unpack(e.text, e.text_len).decode("utf-8") if e.text_len else "",
            logprobs=None,
            prompt_logprobs=None,
        )
        if e.logprobs != ffi.NULL:
            event.logprobs = [self._logprobs(e.logprobs[i]) for i in range(e.n_tokens)]
        if e.prompt_logprobs != ffi.NULL:
            event.prompt_logprobs = [self._logprobs(e.prompt_logprobs[i]) if i > 0 else None for i in range(e.n_prompt_logprobs)]
        if e.kind == lib.DI_EVENT_FINISHED:
            event.finish_reason = text(e.finish_reason)
            event.stop_string = text(e.stop_string) if e.stop_string != ffi.NULL else None
            event.stop_token = e.stop_token if e.stop_token >= 0 else None
            event.error = exception(e.error) if event.finish_reason == "error" else None
            event.seed = e.seed
            event.num_cached_tokens = e.n_cached
            event.metrics = RequestMetrics(e.queued_seconds, e.first_seconds, e.total_seconds, e.n_preempted)
        return event

    def _logprobs(self, entry: Any) -> dict[int, Logprob]:
        found = {entry.id: Logprob(entry.logprob, entry.rank, self._decode(entry.id))}
        for i in range(entry.n_top):
            token = entry.top_ids[i]
            if token not in found:
                found[token] = Logprob(entry.top_logprobs[i], i + 1, self._decode(token))
        return found

    def _decode(self, token: int) -> str:
        known = self._decoded.get(token)
        if known is None:
            length = ffi.new("size_t *")
            data = lib.di_tokenizer_token_bytes(lib.di_engine_tokenizer(self._engine), token, length)
            known = "" if data == ffi.NULL else ffi.unpack(data, length[0]).decode("utf-8", "replace")
            self._decoded[token] = known
        return known


def _prompt(ids: list[int]) -> Any:
    try:
        return ffi.new("int32_t[]", ids)
    except (OverflowError, TypeError):
        pass
    one = ffi.new("int32_t *")
    for i, token in enumerate(ids):  # which one
        try:
            one[0] = token
        except OverflowError:
            raise errors.InvalidError(f"prompt token {i}: {token} is not a token id", "DI_ERR_RANGE") from None
        except TypeError:
            raise TypeError(f"prompt token {i} must be an integer, not {token!r}") from None
    raise errors.EngineError("the prompt could not be copied")
