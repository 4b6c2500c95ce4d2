"""What a request to a model is, and what comes back, in no provider's dialect.

A *scheme* maps an `LlmRequest` to one provider's JSON and its stream to the events below; a
*client* transports. The turn loop knows only this module.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from attrs import field, frozen

from worker.items import Item, Reasoning, Text, ToolCall

StopReason: TypeAlias = Literal[
    "end", "tool_calls", "max_tokens", "stop_sequence", "refusal", "content_filter", "partial"
]
JsonObject: TypeAlias = "Mapping[str, object]"

RUNS_NOTHING: frozenset[StopReason] = frozenset({"refusal", "content_filter"})
"""How an answer ends whose calls, if it has any, must not be run."""


@frozen
class ToolSpec:
    """A tool as the model is told of it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: JsonObject


@frozen
class RequestOptions:
    """The knobs of one request. What is None is left to the provider.

    `response_schema` asks for JSON of that schema. `grammar` (GBNF) is honoured by llama.cpp
    servers only; other schemes leave it out. `cache_key` names the conversation, the same in each
    of its requests: providers that route by such a name find the cached prompt again.
    `refused_names` are wire names, in lower case, that the server refused to this client: a scheme
    that has another name for the same thing uses that, or does without. Only a client sets it.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    response_schema: JsonObject | None = None
    grammar: str | None = None
    cache_key: str | None = None
    refused_names: frozenset[str] = frozenset()


@frozen
class LlmRequest:
    """One request: what is sent, in order. `items` are already projected (pruned, repaired)."""

    system: str
    items: Sequence[Item]
    tools: tuple[ToolSpec, ...] = ()
    options: RequestOptions = field(factory=RequestOptions)


@frozen
class Usage:
    """Tokens of one request, in one meaning for every provider. None: the provider did not say.

    `input_tokens` is the occupancy: the whole prompt, the cached part included. `cache_read` and
    `cache_write` are parts of it. `output_tokens` includes reasoning.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Return both together: the sum of what was said, and None where neither said anything."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cache_read, other.cache_read),
            _sum(self.cache_write, other.cache_write),
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


@frozen
class Answer:
    """A whole answer. `usage` is None where the provider reported nothing."""

    parts: tuple[Text | Reasoning | ToolCall, ...]
    stop_reason: StopReason
    usage: Usage | None
    model: str


@frozen
class TextDelta:
    """More visible text."""

    text: str


@frozen
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@frozen
class ToolCallStart:
    """A tool call began."""

    call_id: str
    name: str


@frozen
class ToolCallArgsDelta:
    """More of a tool call's arguments."""

    call_id: str
    text: str


@frozen
class ToolCallDone:
    """A tool call is complete; `arguments` is the text as received."""

    call_id: str
    name: str
    arguments: str


@frozen
class Retrying:
    """The request failed before any content and is repeated after `delay_s` seconds."""

    attempt: int
    delay_s: float
    reason: str


@frozen
class Answered:
    """The stream ended well; the last event of every stream."""

    answer: Answer


StreamEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallArgsDelta
    | ToolCallDone
    | Retrying
    | Answered
)


class LlmClient(Protocol):
    """Something that answers requests. Implementations raise only `ProviderError`s."""

    @property
    def provider(self) -> str:
        """The provider's kind, as reasoning and answers are tagged with."""

    @property
    def model(self) -> str:
        """The model's name."""

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, or None where it is not known."""

    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send `request` and yield what comes back; `Answered` is the last event.

        Raises:
            ProviderError: As `worker.errors` says. A `StreamBroken` carries what had arrived.
        """

    async def aclose(self) -> None:
        """Release what the client holds; idempotent."""
