"""SamplingParams: how the tokens of a request are chosen and what ends it."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import errors
from ._library import c_string, ffi, lib


@dataclass
class SamplingParams:
    """Names and meanings are those of vLLM's class; include/deepinfer/sampling.h has the ranges.

    Values are checked by the library when a request is submitted. A field may be changed between requests.
    """

    temperature: float = 1.0
    """0 or more; below 1e-5 the most likely token is taken."""
    top_p: float = 1.0
    """Above 0, at most 1: only the fewest most likely tokens that have so much probability."""
    top_k: int = 0
    """Only the k most likely tokens; 0 or -1: all."""
    min_p: float = 0.0
    """0 to 1: only tokens at least so likely, relative to the likeliest."""
    repetition_penalty: float = 1.0
    """For tokens of prompt and output: divides positive logits and multiplies others."""
    frequency_penalty: float = 0.0
    """-2 to 2: subtracted for every time that a token is in the output."""
    presence_penalty: float = 0.0
    """-2 to 2: subtracted once if a token is in the output."""
    logit_bias: Mapping[int, float] | None = None
    """Added to the logits of tokens: -100 to 100, or -inf."""
    allowed_token_ids: Sequence[int] | None = None
    """If given, all others are forbidden."""
    bad_token_ids: Sequence[int] | None = None
    """Forbidden."""

    max_tokens: int = 256
    """Most tokens of the output."""
    min_tokens: int = 0
    """Before so many, nothing but the context ends the output."""
    ignore_eos: bool = False
    """Do not stop at the end-of-sequence token."""
    stop: str | Sequence[str] | None = None
    """Strings that end the output where one first completes in its text."""
    include_stop_str_in_output: bool = False
    """The text then ends behind the stop string, not before it."""
    stop_token_ids: Sequence[int] | None = None
    """Tokens that end the output as the end-of-sequence token does."""

    n: int = 1
    """So many outputs, drawn independently; the first is that of n=1."""
    logprobs: int | None = None
    """Log-probabilities of the token drawn and of so many most likely ones; None: none."""
    prompt_logprobs: int | None = None
    """The same for every token of the prompt."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    seed: int | None = None
    """Same prompt, parameters and seed: same tokens. None: one is drawn, and reported in the result."""
    seq_seed: int | None = None
    """Another name of `seed`."""
    so_args: Mapping[str, Any] | None = None
    """Structured output; not in this version."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """What the library cannot see: fields of which one contradicts another, or that it does not have."""
        if self.so_args is not None:
            raise errors.UnsupportedError("so_args: structured output is not in this version of deepinfer", "DI_ERR_UNSUPPORTED")
        seed, seq_seed = (_seed(name, getattr(self, name)) for name in ("seed", "seq_seed"))
        if seed is not None and seq_seed is not None and seed != seq_seed:
            raise errors.InvalidError(
                f"seed and seq_seed are one parameter, but seed is {seed} and seq_seed is {seq_seed}", "DI_ERR_INVALID"
            )

    def fill(self, params: Any) -> list[Any]:
        """Writes the fields to a C `struct di_sampling_params`; what is returned must outlive it."""
        self.check()
        keep: list[Any] = []

        def pointer(field: str, ctype: str, values: list[Any]) -> None:
            setattr(params, "n_" + field, len(values))
            keep.append(ffi.new(ctype, values))
            setattr(params, field, keep[-1])

        for name in _NUMBERS:
            setattr(params, name, number(name, getattr(self, name)))
        for name in _INTEGERS:
            setattr(params, name, integer(name, getattr(self, name)))
        for name in _SWITCHES:
            setattr(params, name, switch(name, getattr(self, name)))
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            setattr(params, name, -1 if value is None else integer(name, value, low=0))
        for name in ("allowed_token_ids", "bad_token_ids", "stop_token_ids"):
            pointer(name, "int32_t[]", [integer(name, i) for i in items(name, getattr(self, name))])
        bias = {} if self.logit_bias is None else self.logit_bias
        if not isinstance(bias, Mapping):
            raise TypeError(f"logit_bias must be a dict from token ids to numbers, not {bias!r}")
        pairs = [(integer("logit_bias", i), number(f"logit_bias[{i}]", b)) for i, b in bias.items()]
        pointer("logit_bias", "struct di_logit_bias[]", pairs)
        stops = [self.stop] if isinstance(self.stop, str) else items("stop", self.stop)
        strings = [ffi.new("char[]", c_string("stop", s)) for s in stops]
        keep.append(strings)
        pointer("stop", "const char *[]", strings)
        seed = self.seed if self.seed is not None else self.seq_seed
        params.has_seed = seed is not None
        params.seed = 0 if seed is None else seed
        return keep


_NUMBERS = (
    "temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
)  # fmt: skip
_INTEGERS = ("top_k", "max_tokens", "min_tokens", "n")
_SWITCHES = ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens")


def defaults() -> Any:
    """A C struct with the library's defaults."""
    params = ffi.new("struct di_sampling_params *")
    params[0] = lib.di_sampling_defaults()
    return params


def number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return float(value)


def integer(name: str, value: Any, low: int = -(2**31)) -> int:
    """An int32_t that is at least `low`. Numbers in range for C but not for the parameter are left to the library."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if not low <= number < 2**31:
        raise errors.InvalidError(f"{name} must be from {low} to {2**31 - 1}, not {number}", "DI_ERR_RANGE")
    return number


def switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def items(name: str, value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"{name} must be a list, not {value!r}")
    try:
        return list(value)
    except TypeError:
        raise TypeError(f"{name} must be a list, not {value!r}") from None


def _seed(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if not 0 <= number < 2**64:
        raise errors.InvalidError(f"{name} must be from 0 to 2**64 - 1, not {number}", "DI_ERR_RANGE")
    return number
