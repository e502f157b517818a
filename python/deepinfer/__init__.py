"""An inference engine for DeepSeek-V4.1-Flash.

    from deepinfer import LLM, SamplingParams

    llm = LLM(model="models/tiny")
    for output in llm.generate(["She was"], SamplingParams(temperature=0.7, max_tokens=40)):
        print(output.outputs[0].text)

docs/python.md is the manual.
"""

from ._library import VERSION as __version__
from .errors import (
    ClosedError,
    EngineError,
    Error,
    FileError,
    FormatError,
    InvalidError,
    NotFoundError,
    OutOfMemoryError,
    RequestError,
    UnsupportedError,
)  # fmt: skip
from .llm import LLM, options
from .outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from .sampling import SamplingParams
from .tokenizer import Tokenizer

__all__ = [
    "LLM", "ClosedError", "CompletionOutput", "EngineError", "Error", "FileError", "FormatError", "InvalidError", "Logprob",
    "NotFoundError", "OutOfMemoryError", "RequestError", "RequestMetrics", "RequestOutput", "SamplingParams", "Tokenizer",
    "UnsupportedError", "__version__", "options",
]  # fmt: skip
