"""Anthropic's Messages dialect, which other vendors' servers speak as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import orjson
from attrs import frozen

from worker.items import AssistantMessage, Item, ToolResult
from worker.llm.scheme import Framing
from worker.llm.schemes.anthropic.blocks import BlockWriter, Piece, is_signed
from worker.llm.schemes.anthropic.decoder import AnthropicDecoder
from worker.llm.schemes.anthropic.messages import CACHE_MARK, MessageJoiner
from worker.llm.schemes.anthropic.models import facts
from worker.llm.schemes.anthropic.options import knobs
from worker.llm.schemes.anthropic.schema import tool_schema
from worker.llm.schemes.item_writer import ItemWriter
from worker.llm.types import LlmRequest, ToolSpec
from worker.text import clean_text, is_blank

_VERSION = "2023-06-01"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"


@frozen(kw_only=True)
class AnthropicScheme:
    """Messages: `POST <base_url>/v1/messages`, streamed."""

    framing: ClassVar[Framing] = "sse"
    is_unversioned: ClassVar[bool] = False

    binding_beta: bool = True
    """Whether the beta may be used that has the API let go of thinking behind a changed prompt,
    which newer Claude models refuse otherwise. Off for a gateway that refuses beta headers."""

    def path(self, model: str) -> str:
        """Return the path under the base URL."""
        return "/v1/messages"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the version, the key where there is one, and the beta."""
        headers = {"anthropic-version": _VERSION}
        if api_key:
            headers["x-api-key"] = api_key
        if self.binding_beta:
            headers["anthropic-beta"] = _BINDING_BETA
        return headers

    def encoder(self, provider: str, model: str) -> AnthropicEncoder:
        """Return an encoder that reuses the bytes of the request before."""
        return AnthropicEncoder(provider, model, binds=self.binding_beta)

    def decoder(self, provider: str, model: str) -> AnthropicDecoder:
        """Return a decoder for one answer."""
        return AnthropicDecoder(provider, model)


class AnthropicEncoder:
    """Makes the bodies of one client's requests; see `ItemWriter` for what is reused."""

    def __init__(self, provider: str, model: str, *, binds: bool) -> None:
        self._provider = provider
        self._model = orjson.dumps(model)
        self._facts = facts(model)
        self._binds = binds
        # Where a request turns thinking off, no thinking may be in it: two conversations.
        self._messages: dict[bool, ItemWriter[Piece]] = {
            thinks: ItemWriter(BlockWriter(provider, sends_thinking=thinks), MessageJoiner)
            for thinks in (False, True)
        }
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @property
    def encoded_items(self) -> int:
        """How many items were encoded so far, over all requests; reused ones are not counted."""
        return sum(messages.encoded_items for messages in self._messages.values())

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body: model, tools, system prompt, messages, then everything else."""
        sent = knobs(self._facts, request.options, binds=self._binds)
        if sent.has_budget and not _may_think(request.items, self._provider):
            # The tools at work were called without thought: by another model, or before it was
            # asked for. The API refuses to begin with it in the midst of a turn.
            sent = knobs(self._facts, request.options, binds=self._binds, may_think=False)

        messages = self._messages[sent.thinks].write("", request.items)
        return b"".join(
            (
                *(b'{"model":', self._model, b","),
                self._tools_of(request.tools),
                _system_field(request.system),
                *(b'"messages":[', *messages, b"],"),
                orjson.dumps(dict(sent.fields))[1:],
            )
        )

    def _tools_of(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] is not tools:
            self._tools = (tools, _tools_field(tools))
        return self._tools[1]


def _may_think(items: Sequence[Item], provider: str) -> bool:
    """Tell whether the tools at work, if any are, were called with thought to begin with.

    An answer, its results and the answers to these are one turn, and with a budget that turn must
    begin with thinking. A word of the user's in between may begin another: both are looked at.
    """
    at_work = False
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        is_first = not _is_after_results_alone(items, index)
        if isinstance(item, ToolResult):
            at_work = True
        elif isinstance(item, AssistantMessage):
            if not at_work:
                return True
            if is_first and not (item.parts and is_signed(item.parts[0], provider)):
                return False
        elif at_work and is_first:
            return True

    return True


def _is_after_results_alone(items: Sequence[Item], index: int) -> bool:
    """Tell whether the message before an item is results and nothing else on the wire."""
    for before in range(index - 1, -1, -1):
        item = items[before]
        if not isinstance(item, ToolResult):
            return before < index - 1
        if item.is_error and item.attachments:
            return False  # The images of an error are sent behind the results.

    return index > 0


def _system_field(system: str) -> bytes:
    if is_blank(system):
        return b""

    block = orjson.dumps({"type": "text", "text": clean_text(system)})
    return b'"system":[' + block[:-1] + CACHE_MARK + b"}],"


def _tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """Return the `tools` member with its comma, sorted by name; nothing where there are none."""
    if not tools:
        return b""

    written = [
        {
            "name": tool.name,
            **({"description": tool.description} if not is_blank(tool.description) else {}),
            "input_schema": tool_schema(tool.parameters),
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    # The last tool's bracket, and the list's.
    return b'"tools":' + orjson.dumps(written)[:-2] + CACHE_MARK + b"}],"
