"""The Gemini dialect: `streamGenerateContent` of Google's Gemini API, as server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

import orjson
from attrs import frozen

from worker.llm.scheme import Framing
from worker.llm.schemes.gemini.contents import ContentJoiner, ItemEncoder
from worker.llm.schemes.gemini.decoder import GeminiDecoder
from worker.llm.schemes.gemini.models import facts
from worker.llm.schemes.gemini.schema import declarations, plain_schema
from worker.llm.schemes.item_writer import ItemWriter
from worker.llm.types import LlmRequest, RequestOptions, ToolSpec
from worker.text import clean_text, is_blank


@frozen
class GeminiScheme:
    """Gemini: `POST <base_url>/v1beta/models/<model>:streamGenerateContent?alt=sse`."""

    framing: ClassVar[Framing] = "sse"
    is_unversioned: ClassVar[bool] = False

    def path(self, model: str) -> str:
        """Return the path under the base URL. `model` may bring its collection (`models/…`)."""
        name = model if "/" in model else f"models/{model}"
        return f"/v1beta/{quote(name, safe='/:@')}:streamGenerateContent?alt=sse"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the header that carries the key; none without one."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def encoder(self, provider: str, model: str) -> GeminiEncoder:
        """Return an encoder that reuses the bytes of the request before."""
        return GeminiEncoder(provider, model)

    def decoder(self, provider: str, model: str) -> GeminiDecoder:
        """Return a decoder for one answer."""
        return GeminiDecoder(provider, model)


class GeminiEncoder:
    """Makes the bodies of one client's requests; see `ItemWriter` for what is reused."""

    def __init__(self, provider: str, model: str) -> None:
        self._facts = facts(model)
        items = ItemEncoder(provider, model, self._facts)
        self._writer = ItemWriter(items.piece_of, ContentJoiner)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @property
    def encoded_items(self) -> int:
        """How many items were encoded so far, over all requests; reused ones are not counted."""
        return self._writer.encoded_items

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body: contents, then the system prompt, tools and options."""
        system = "" if is_blank(request.system) else clean_text(request.system)
        takes_system = self._facts.takes_system
        members: list[bytes] = []
        if system and takes_system:
            instruction = {"parts": [{"text": system}]}
            members.append(b'"systemInstruction":' + orjson.dumps(instruction))
        if request.tools:
            members.append(self._tools_of(request))
        if options := self._options(request.options, has_tools=bool(request.tools)):
            members.append(b'"generationConfig":' + orjson.dumps(options))
        rest = b"".join(b"," + member for member in members)
        contents = self._writer.write("" if takes_system else system, request.items)
        return b"".join((b'{"contents":[', *contents, b"]", rest, b"}"))

    def _tools_of(self, request: LlmRequest) -> bytes:
        if self._tools[0] is not request.tools:
            tools = [{"functionDeclarations": declarations(request.tools)}]
            self._tools = (request.tools, b'"tools":' + orjson.dumps(tools))
        return self._tools[1]

    def _options(self, options: RequestOptions, *, has_tools: bool) -> dict[str, object]:
        known = self._facts
        fields: dict[str, object] = {}
        if options.max_tokens is not None:
            fields["maxOutputTokens"] = options.max_tokens
        if options.temperature is not None and known.takes_temperature:
            fields["temperature"] = options.temperature
        if (thinking := known.thinking(options.reasoning_effort)) is not None:
            fields["thinkingConfig"] = thinking
        # Until Gemini 3, JSON and tools are refused together; the tools are needed more.
        takes_schema = known.takes_schema and (known.is_gemini_3 or not has_tools)
        if options.response_schema is not None and takes_schema:
            fields["responseMimeType"] = "application/json"
            fields["responseJsonSchema"] = plain_schema(options.response_schema)
        return fields
