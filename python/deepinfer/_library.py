"""The C library and its declarations.

The declarations are those of the public headers themselves, read when the package is imported: there is no second copy that
could differ. An installed package has library and headers beside this file; in the source tree they are include/ and the build
folder (DEEPINFER_BUILD_DIR, else build/).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import cffi

from . import errors

# In the order of their includes. introspect.h is the command line's.
HEADERS = ("status", "options", "tokenizer", "engine", "sampling", "request")
LIBRARY = "libdeepinfer.so"


def _locate() -> tuple[Path, Path]:
    """(folder of the headers, library)"""
    here = Path(__file__).absolute().parent
    if (here / LIBRARY).exists():
        return here / "include" / "deepinfer", here / LIBRARY
    root = here.parents[1]
    build = Path(os.environ.get("DEEPINFER_BUILD_DIR") or root / "build")
    if not (build / LIBRARY).exists():
        raise ImportError(f"{build / LIBRARY} does not exist: build with ./build.sh, or install the package: pip install .")
    return root / "include" / "deepinfer", build / LIBRARY


def declarations(folder: Path) -> str:
    """What the headers declare, without what only a C compiler understands."""
    text = "\n".join((folder / f"{name}.h").read_text("utf-8") for name in HEADERS)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'^extern "C" \{$|^#ifdef __cplusplus\n\}\n#endif$', "", text, flags=re.MULTILINE)
    kept = []
    for line in text.splitlines():
        constant = re.fullmatch(r"#define (\w+) +(\d+) *", line)
        if constant or not line.startswith("#"):
            kept.append(re.sub(r"\bDI_API\b", "", line))
    return "\n".join(kept)


def version(folder: Path) -> str:
    match = re.search(r'#define DI_VERSION "([^"]+)"', (folder / "deepinfer.h").read_text("utf-8"))
    return match.group(1) if match else "unknown"


_folder, _path = _locate()
VERSION = version(_folder)
ffi: Any = cffi.FFI()
ffi.cdef(declarations(_folder))
lib: Any = ffi.dlopen(str(_path))


def new_error() -> Any:
    return ffi.new("struct di_error *")


def exception(err: Any) -> errors.Error:
    """The exception that a filled di_error (struct or pointer to one) stands for."""
    return errors.make(text(lib.di_status_name(err.code)), text(err.message))


def check(status: int, err: Any) -> None:
    if status != lib.DI_OK:
        raise exception(err)


def text(chars: Any) -> str:
    """A zero-terminated string of the library. Paths in messages need not be UTF-8."""
    return str(ffi.string(chars), "utf-8", "replace")


def c_string(name: str, value: str) -> bytes:
    """`value` for a zero-terminated parameter; `name` is for the message."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    try:
        encoded = value.encode("utf-8")
    except UnicodeEncodeError as bad:
        raise errors.InvalidError(f"{name}: {bad}", "DI_ERR_INVALID") from None
    if b"\0" in encoded:
        raise errors.InvalidError(f"{name} contains a zero character", "DI_ERR_INVALID")
    return encoded
