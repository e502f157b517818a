"""Conversations as prompts and replies as messages, by the vendor's package deepseek-recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import errors
from .outputs import CompletionOutput
from .sampling import SamplingParams
from .tokenizer import Tokenizer

try:
    import deepseek_recipe as recipe
except ImportError as missing:
    raise ImportError("chat() needs the package deepseek-recipe: pip install 'deepseek-recipe>=0.2,<0.3'") from missing

Message = Mapping[str, Any]
Conversation = Sequence[Message]
Tools = Sequence[Mapping[str, Any]]

_MODEL = "DeepSeek-V4.1-Flash"  # by which the package knows the prompt format


def conversations(messages: Any) -> tuple[list[Conversation], bool]:
    """Conversations as given, and whether it is one and no list of them."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise TypeError(f"messages must be a list of dicts, or a list of such lists, not {messages!r}")
    if messages and isinstance(messages[0], Mapping):
        return [messages], True
    for i, conversation in enumerate(messages):
        if isinstance(conversation, (str, bytes, Mapping)) or not isinstance(conversation, Sequence):
            raise TypeError(f"conversation {i} must be a list of dicts, not {conversation!r}")
    return list(messages), len(messages) == 1


class Rendered:
    """A conversation as a prompt."""

    def __init__(self, prompt: str, ids: list[int], request: Any) -> None:
        self.prompt = prompt
        self.ids = ids
        self._request = request

    def message(self, tokenizer: Tokenizer, choice: CompletionOutput, params: SamplingParams) -> dict[str, Any] | None:
        """What the model wrote, as an assistant message; None if it failed."""
        if choice.error is not None:
            return None
        written = choice.token_ids
        if written and written[-1] == tokenizer.eos_token_id:
            written = written[:-1]
        text = tokenizer.decode(written, skip_special_tokens=False)  # reasoning and tool calls are marked by such tokens
        if isinstance(choice.stop_reason, str) and (at := text.find(choice.stop_reason)) >= 0:
            text = text[: at + len(choice.stop_reason)] if params.include_stop_str_in_output else text[:at]
        generator = recipe.ChatCompletionRequest.chunk_generator(self._request, "", _MODEL)
        processor = recipe.StreamProcessor(generator, self._request.parsing_options)
        reply: Any = recipe.ChatCompletionResponse("", _MODEL, 0, len(self.ids), 0)
        ended = recipe.InferenceFinishReason.Length if choice.finish_reason == "length" else recipe.InferenceFinishReason.Stop
        for chunk in (
            recipe.InferenceChunk.ready(),
            recipe.InferenceChunk.text(text, len(written)),
            recipe.InferenceChunk.finish(ended),
        ):
            for part in processor.push(chunk):
                reply.accumulate(part)
        for part in processor.finish():
            reply.accumulate(part)
        message: dict[str, Any] = json.loads(reply.to_json())["choices"][0]["message"]
        return message


def render(
    tokenizer: Tokenizer,
    conversation: Conversation,
    thinking: bool,
    tools: Tools | None,
    tool_choice: str | Mapping[str, Any] | None,
    reasoning_effort: str | None,
) -> Rendered:
    """The prompt of a conversation, ready for the assistant's turn. Content never becomes special tokens."""
    body: dict[str, Any] = {"model": _MODEL, "messages": [dict(m) if isinstance(m, Mapping) else m for m in conversation]}
    for name, value in (("tools", tools), ("tool_choice", tool_choice), ("reasoning_effort", reasoning_effort)):
        if value is not None:
            body[name] = value
    try:
        request = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions(default_thinking_mode=thinking))
        rendered = recipe.DeepseekV41Encoding().render_conversation(request.conversation)
    except (recipe.ConversionError, ValueError) as bad:
        raise errors.InvalidError(str(bad), "DI_ERR_INVALID") from None
    if rendered.image_sources:
        raise errors.UnsupportedError("images are not in this version of deepinfer", "DI_ERR_UNSUPPORTED")
    prompt, ids, done = rendered.prompt, [], 0
    for begin, end in [*rendered.special_ranges, (len(prompt), len(prompt))]:
        if done < begin:
            ids += tokenizer.encode(prompt[done:begin], parse_special=False)
        if begin < end:
            token = tokenizer.find(prompt[begin:end])
            if token is None:
                raise errors.UnsupportedError(
                    f"the model's tokenizer has no token {prompt[begin:end]}, which the chat format needs", "DI_ERR_UNSUPPORTED"
                )
            ids.append(token)
        done = end
    return Rendered(prompt, ids, request)
