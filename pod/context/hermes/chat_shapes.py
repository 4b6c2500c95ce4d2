"""A request of a plugin as ours, and our answer in the shape that such plugins read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attrs import field, frozen

from pod.context.bridge import from_messages
from pod.context.errors import BridgeError
from worker.items import Item, Reasoning, Text, ToolCall
from worker.llm.types import Answer, LlmRequest, RequestOptions, StopReason, ToolSpec, Usage

_SYSTEM_ROLES = frozenset({"system", "developer"})
_FINISH_REASONS: Mapping[StopReason, str] = {
    "end": "stop",
    "stop_sequence": "stop",
    "partial": "stop",
    "tool_calls": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
    "content_filter": "content_filter",
}
_STOP_REASONS: Mapping[object, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "length": "max_tokens",
    "content_filter": "content_filter",
}


# ------------------------------------------------------------------ what is asked


def llm_request(
    messages: Sequence[Any], tools: Sequence[Any] | None, options: RequestOptions
) -> LlmRequest:
    """Return the request that a plugin's messages and tools stand for.

    Raises:
        ValueError: A message or a tool is none.
    """
    said = [row for row in messages if not _is_system(row)]
    system = "\n\n".join(_text(row) for row in messages if _is_system(row))
    if not said and system:
        # Nobody answers a prompt without a message: what there is, is the message.
        said, system = [{"role": "user", "content": system}], ""
    try:
        items: list[Item] = from_messages(said, [], origin="user")
    except BridgeError as error:
        raise ValueError(f"the messages of this call cannot be sent: {error}") from error

    if not items:
        raise ValueError("a call to a model needs at least one message")

    return LlmRequest(system, items, tuple(_tool(tool) for tool in tools or ()), options)


def _is_system(row: object) -> bool:
    return isinstance(row, dict) and row.get("role") in _SYSTEM_ROLES


def _text(row: Mapping[str, Any]) -> str:
    content = row.get("content")
    if isinstance(content, str):
        return content

    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _tool(tool: object) -> ToolSpec:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise ValueError("a tool of this call has no name")

    empty = {"type": "object", "properties": {}}
    return ToolSpec(name, str(function.get("description", "")), function.get("parameters") or empty)


# ------------------------------------------------------------------ what is answered


@frozen
class CalledFunction:
    """The function that a call names."""

    name: str
    arguments: str


@frozen
class MessageToolCall:
    """A tool call of the answer."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


@frozen
class AnswerMessage:
    """What the model said; `reasoning` is what it let see of its thoughts."""

    content: str
    tool_calls: list[MessageToolCall] | None = None
    reasoning: str | None = None
    role: Literal["assistant"] = "assistant"

    @property
    def reasoning_content(self) -> str | None:
        """The same as `reasoning`: some servers call it so."""
        return self.reasoning


@frozen
class Choice:
    """The one choice of an answer."""

    message: AnswerMessage
    finish_reason: str
    index: int = 0


@frozen
class PromptDetails:
    """How much of the prompt came out of the cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


@frozen
class CompletionUsage:
    """Tokens of the call, as the Chat Completions dialect counts: the prompt includes the cache."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


@frozen
class Completion:
    """An answer in the shape that plugins read: `.choices[0].message.content`."""

    choices: list[Choice]
    usage: CompletionUsage
    model: str
    id: str = ""
    object: Literal["chat.completion"] = field(default="chat.completion")


def completion(answer: Answer, model: str) -> Completion:
    """Return `answer`; `model` is who was asked, for answers that do not say."""
    calls = [
        MessageToolCall(part.call_id, CalledFunction(part.name, part.arguments))
        for part in answer.parts
        if isinstance(part, ToolCall)
    ]
    text = "".join(part.text for part in answer.parts if isinstance(part, Text))
    thoughts = "".join(part.text for part in answer.parts if isinstance(part, Reasoning))
    message = AnswerMessage(text, calls or None, thoughts or None)
    choice = Choice(message, _FINISH_REASONS[answer.stop_reason])
    return Completion([choice], _usage(answer.usage or Usage()), answer.model or model)


def _usage(usage: Usage) -> CompletionUsage:
    prompt, said = usage.input_tokens or 0, usage.output_tokens or 0
    details = PromptDetails(usage.cache_read or 0, usage.cache_write or 0)
    return CompletionUsage(prompt, said, prompt + said, details)


def usage_of(answer: object) -> Usage:
    """Return the usage that an answer of that shape tells; what it does not tell is not known."""
    usage = getattr(answer, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    return Usage(
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        getattr(details, "cached_tokens", None),
        getattr(details, "cache_write_tokens", None),
    )


def stop_reason_of(finish_reason: object) -> StopReason:
    """Return how an answer ended, from the word that its choice has for it."""
    return _STOP_REASONS.get(finish_reason, "end")
