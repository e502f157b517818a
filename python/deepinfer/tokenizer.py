"""The model's tokenizer."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from . import errors
from ._library import c_string, check, ffi, lib, new_error


class Tokenizer:
    """Text to token ids and back. Any number of threads may use one at once."""

    def __init__(self, use: Callable[[], AbstractContextManager[Any]], bos: int, eos: int) -> None:
        """`use()` gives the C handle for as long as its context lasts."""
        self._use = use
        self.bos_token_id: int | None = bos if bos >= 0 else None
        self.eos_token_id: int | None = eos if eos >= 0 else None

    def encode(self, text: str, parse_special: bool = True, add_bos: bool = False) -> list[int]:
        """Ids of a text. With parse_special, literals of special tokens become those tokens."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, not {text!r}")
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as bad:
            raise errors.InvalidError(str(bad), "DI_ERR_INVALID") from None
        ids, err = ffi.new("di_token_list *"), new_error()
        try:
            with self._use() as tok:
                check(lib.di_tokenizer_encode(tok, data, len(data), parse_special, ids, err), err)
            found: list[int] = ffi.unpack(ids.ids, ids.count) if ids.count else []
        finally:
            lib.di_token_list_free(ids)
        if add_bos:
            if self.bos_token_id is None:
                raise errors.InvalidError("this model has no beginning-of-sequence token", "DI_ERR_INVALID")
            found.insert(0, self.bos_token_id)
        return found

    def decode(self, token_ids: int | Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of ids; bytes that are no character come out as U+FFFD."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        text, length, err, pieces = ffi.new("const char **"), ffi.new("size_t *"), new_error(), []
        with self._detokenizer(skip_special_tokens) as detok:
            for i, token in enumerate(ids):
                check(lib.di_detokenizer_feed(detok, _token(i, token), text, length, err), err)
                pieces.append(ffi.unpack(text[0], length[0]))
            check(lib.di_detokenizer_finish(detok, text, length, err), err)
            pieces.append(ffi.unpack(text[0], length[0]))
        return b"".join(pieces).decode("utf-8")

    @contextmanager
    def _detokenizer(self, skip_special: bool) -> Iterator[Any]:
        out, err = ffi.new("di_detokenizer **"), new_error()
        with self._use() as tok:
            check(lib.di_detokenizer_open(tok, skip_special, out, err), err)
            try:
                yield out[0]
            finally:
                lib.di_detokenizer_close(out[0])

    @property
    def vocab_size(self) -> int:
        """Greatest id + 1."""
        with self._use() as tok:
            return int(lib.di_tokenizer_vocab_size(tok))

    def __len__(self) -> int:
        return self.vocab_size

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, not always whole characters; KeyError for an id that does not exist."""
        length = ffi.new("size_t *")
        with self._use() as tok:
            data = lib.di_tokenizer_token_bytes(tok, _token(0, token_id), length)
            if data == ffi.NULL:
                raise KeyError(token_id)
            return bytes(ffi.buffer(data, length[0]))

    def is_special(self, token_id: int) -> bool:
        with self._use() as tok:
            return bool(lib.di_tokenizer_is_special(tok, _token(0, token_id)))

    def find(self, literal: str) -> int | None:
        """The id whose literal is exactly this text."""
        with self._use() as tok:
            found = int(lib.di_tokenizer_find(tok, c_string("literal", literal)))
        return found if found >= 0 else None


def _token(index: int, token_id: Any) -> int:
    token = operator.index(token_id)
    if not 0 <= token < 2**31:
        raise errors.InvalidError(f"token {index}: {token} is not a token id", "DI_ERR_RANGE")
    return token
