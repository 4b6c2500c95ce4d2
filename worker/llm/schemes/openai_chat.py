"""The Chat Completions dialect: OpenAI's, and that of the servers that speak it their own way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import orjson
from attrs import field, frozen

from worker.llm.scheme import Framing
from worker.llm.schemes.chat_decoder import ChatDecoder
from worker.llm.schemes.chat_messages import ChatJoiner, piece_of
from worker.llm.schemes.item_writer import ItemWriter
from worker.llm.types import LlmRequest, RequestOptions, ToolSpec


@frozen(kw_only=True)
class ChatQuirks:
    """What a server understands, as data. The defaults suit most OpenAI-compatible servers."""

    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the output cap is called."""
    strict_alternation: bool = False
    """Whether two messages of one role in a row are refused; they are joined then."""
    include_usage: bool = True
    """Whether `stream_options` is understood."""
    send_temperature: bool = True
    """Whether a temperature may be sent."""
    send_reasoning_effort: bool = True
    """Whether a reasoning effort may be sent."""
    send_response_format: bool = True
    """Whether a JSON schema for the answer may be sent."""
    grammar: bool = False
    """Whether a GBNF grammar may be sent (llama.cpp servers)."""


OPENAI = ChatQuirks(max_tokens_key="max_completion_tokens")
COMPATIBLE = ChatQuirks()
LLAMA_SERVER = ChatQuirks(grammar=True)
GRAMMAR_REPEAT_PENALTY = 1.15
"""Small models held to a grammar at temperature 0 repeat one line for ever without it."""


@frozen
class OpenAiChatScheme:
    """Chat Completions: `POST <base_url>/chat/completions`, streamed."""

    framing: ClassVar[Framing] = "sse"
    is_unversioned: ClassVar[bool] = False

    quirks: ChatQuirks = field(factory=ChatQuirks)

    def path(self, model: str) -> str:
        """Return the path under the base URL."""
        return "/chat/completions"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the headers that carry the key; none without one."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encoder(self, provider: str, model: str) -> ChatEncoder:
        """Return an encoder that reuses the bytes of the request before."""
        return ChatEncoder(self.quirks, model)

    def decoder(self, provider: str, model: str) -> ChatDecoder:
        """Return a decoder for one answer."""
        return ChatDecoder(provider, model)

    def encode(self, request: LlmRequest, model: str) -> bytes:
        """Return the body of one request, on its own."""
        return self.encoder("", model).encode(request)


class ChatEncoder:
    """Makes the bodies of one client's requests; see `ItemWriter` for what is reused."""

    def __init__(self, quirks: ChatQuirks, model: str) -> None:
        self._quirks = quirks
        self._model = orjson.dumps(model)
        self._writer = ItemWriter(
            piece_of, partial(ChatJoiner, is_strict=quirks.strict_alternation)
        )
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @property
    def encoded_items(self) -> int:
        """How many items were encoded so far, over all requests; reused ones are not counted."""
        return self._writer.encoded_items

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body: model, messages, then everything else."""
        messages = self._writer.write(request.system, request.items)
        options = orjson.dumps(self._options(request.options))
        return b"".join(
            (
                *(b'{"model":', self._model, b',"messages":[', messages, b"],"),
                self._tools_of(request),
                options[1:],
            )
        )

    def _tools_of(self, request: LlmRequest) -> bytes:
        if self._tools[0] is not request.tools:
            self._tools = (request.tools, _tools_field(request.tools))
        return self._tools[1]

    def _options(self, options: RequestOptions) -> dict[str, object]:
        quirks = self._quirks
        fields: dict[str, object] = {"stream": True}
        if quirks.include_usage:
            fields["stream_options"] = {"include_usage": True}
        if options.max_tokens is not None:
            fields[quirks.max_tokens_key] = options.max_tokens
        if options.temperature is not None and quirks.send_temperature:
            fields["temperature"] = options.temperature
        if options.reasoning_effort is not None and quirks.send_reasoning_effort:
            fields["reasoning_effort"] = options.reasoning_effort
        if options.response_schema is not None and quirks.send_response_format:
            schema = {"name": "answer", "schema": dict(options.response_schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if options.grammar is not None and quirks.grammar:
            fields["grammar"] = options.grammar
            fields["repeat_penalty"] = GRAMMAR_REPEAT_PENALTY
        return fields


def _tools_field(tools: tuple[ToolSpec, ...]) -> bytes:
    """Return the `tools` member with its comma, sorted by name; nothing where there are none."""
    if not tools:
        return b""

    functions = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    return b'"tools":' + orjson.dumps(functions) + b","
