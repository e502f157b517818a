"""What requests give: the classes of vLLM, with a few fields more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .errors import Error


@dataclass
class Logprob:
    """Of a token at one position: natural logarithm of its probability before penalties, filters and temperature; its rank,
    1 being the most likely; its text, incomplete characters as U+FFFD."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class RequestMetrics:
    """Seconds from submission."""

    queued_seconds: float
    """Until the request first ran."""
    first_token_seconds: float
    total_seconds: float
    n_preempted: int
    """Times that the request made room for others."""


@dataclass
class CompletionOutput:
    """One choice of a request."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    """Sum over token_ids; None if no logprobs were asked for."""
    logprobs: list[dict[int, Logprob]] | None = None
    """For each token: the token drawn and the most likely ones, by id."""
    finish_reason: str | None = None
    """One of "stop", "length", "abort" or "error"; None while it runs."""
    stop_reason: int | str | None = None
    """The stop string or the token of stop_token_ids that ended it; None for the end-of-sequence token."""
    error: Error | None = None
    """With "error": why."""
    message: dict[str, Any] | None = None
    """Of chat(): the text as a message, with content, reasoning_content and tool_calls."""

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A request: its prompt and its choices."""

    request_id: str
    prompt: str | None
    """The text of the prompt, if it came as text."""
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    """For each token of the prompt; None for the first one, before which there is nothing."""
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    metrics: RequestMetrics | None = None
    """Once finished."""
    num_cached_tokens: int | None = None
    """Tokens of the prompt that did not have to be run."""
    seed: int | None = None
    """The seed in force."""
    identity: str = ""
    """The numeric identity: equal ones, and equal checkpoints, give equal tokens."""

    @property
    def error(self) -> Error | None:
        """Why the request failed; None if it did not."""
        return next((o.error for o in self.outputs if o.error is not None), None)
