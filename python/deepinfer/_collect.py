"""From events of a request to its RequestOutput."""

from __future__ import annotations

from dataclasses import replace

from . import errors
from ._client import Event
from .outputs import CompletionOutput, RequestOutput
from .sampling import SamplingParams, items


class Collector:
    """One request. `add` what comes, then read `output`."""

    def __init__(self, prompt: str | None, prompt_token_ids: list[int], params: SamplingParams, identity: str) -> None:
        self.output = RequestOutput(
            request_id="",
            prompt=prompt,
            prompt_token_ids=prompt_token_ids,
            outputs=[CompletionOutput(i) for i in range(params.n)],
            identity=identity,
        )
        if params.logprobs is not None:
            for choice in self.output.outputs:
                choice.logprobs, choice.cumulative_logprob = [], 0.0
        self._stop_token_ids = items("stop_token_ids", params.stop_token_ids)
        self._fresh: set[int] = set()  # choices with something new

    def add(self, event: Event | errors.Error) -> None:
        if isinstance(event, errors.Error):
            self._fail(event)
            return
        output, choice = self.output, self.output.outputs[event.choice]
        output.request_id = event.request_id
        if event.prompt_logprobs is not None:
            output.prompt_logprobs = event.prompt_logprobs
        self._fresh.add(event.choice)
        choice.token_ids += event.token_ids
        choice.text += event.text
        if event.logprobs is not None and choice.logprobs is not None and choice.cumulative_logprob is not None:
            choice.logprobs += event.logprobs
            for token, at in zip(event.token_ids, event.logprobs, strict=True):
                choice.cumulative_logprob += at[token].logprob
        if event.finish_reason is not None:
            choice.finish_reason, choice.error = event.finish_reason, event.error
            choice.stop_reason = event.stop_string
            if choice.stop_reason is None and event.stop_token in self._stop_token_ids:
                choice.stop_reason = event.stop_token
            output.seed, output.metrics = event.seed, event.metrics
            if event.choice == 0:  # the others share its prompt
                output.num_cached_tokens = event.num_cached_tokens
            output.finished = all(c.finish_reason is not None for c in output.outputs)

    def _fail(self, error: errors.Error) -> None:
        for choice in self.output.outputs:
            if choice.finish_reason is None:
                choice.finish_reason = "abort" if isinstance(error, errors.ClosedError) else "error"
                choice.error = error
                self._fresh.add(choice.index)
        self.output.finished = True

    def take(self, delta: bool) -> RequestOutput:
        """What there is now, as objects that no later event changes; with delta only what no earlier call returned."""
        outputs = [replace(c, token_ids=c.token_ids[:], logprobs=c.logprobs and c.logprobs[:]) for c in self.output.outputs]
        taken = replace(self.output, outputs=outputs)
        if delta:
            taken.outputs = [c for c in outputs if c.index in self._fresh]
            for choice in self.output.outputs:
                choice.text, choice.token_ids = "", []
                choice.logprobs = None if choice.logprobs is None else []
            self.output.prompt_logprobs = None
        self._fresh.clear()
        return taken
