"""What can go wrong, as exceptions. Those of the library carry its code and its message, which names the thing at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .outputs import RequestOutput


class Error(Exception):
    """A failure that the library reported. `code` is the name of its status, such as "DI_ERR_FORMAT"."""

    def __init__(self, message: str, code: str = "DI_ERR_INTERNAL") -> None:
        super().__init__(message)
        self.code = code


class InvalidError(Error, ValueError):
    """A prompt, parameter or option that makes no sense, is out of range, or exceeds a limit of the engine."""


class NotFoundError(Error, FileNotFoundError):
    """A model or file that does not exist."""


class FileError(Error, OSError):
    """A file operation that the operating system refused."""


class FormatError(Error, ValueError):
    """A malformed file."""


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but something this version does not do."""


class OutOfMemoryError(Error, MemoryError):
    """Memory, address space or device memory ran out."""


class EngineError(Error, RuntimeError):
    """A device failed, or the library has a bug."""


class ClosedError(Error, RuntimeError):
    """The LLM was closed."""

    def __init__(self, message: str = "this LLM is closed") -> None:
        super().__init__(message, "DI_ERR_ABORTED")


class RequestError(Error, RuntimeError):
    """Requests that failed. `failed` holds them; `outputs` all requests of the call, in the order of the prompts."""

    def __init__(self, message: str, failed: Sequence[RequestOutput], outputs: Sequence[RequestOutput]) -> None:
        first = failed[0].error
        super().__init__(message, first.code if first is not None else "DI_ERR_INTERNAL")
        self.failed = list(failed)
        self.outputs = list(outputs)


_BY_CODE: dict[str, type[Error]] = {
    "DI_ERR_INVALID": InvalidError,
    "DI_ERR_RANGE": InvalidError,
    "DI_ERR_LIMIT": InvalidError,
    "DI_ERR_NOT_FOUND": NotFoundError,
    "DI_ERR_IO": FileError,
    "DI_ERR_FORMAT": FormatError,
    "DI_ERR_UNSUPPORTED": UnsupportedError,
    "DI_ERR_NOMEM": OutOfMemoryError,
}


def make(code: str, message: str) -> Error:
    """The exception for a status of the library."""
    return _BY_CODE.get(code, EngineError)(message, code)
