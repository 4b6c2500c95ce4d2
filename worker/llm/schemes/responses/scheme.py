"""The Responses API of OpenAI, and of the servers that speak it: stateless, streamed."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import ClassVar

import orjson
from attrs import evolve, frozen

from worker.llm.scheme import Framing
from worker.llm.schemes.item_writer import ItemWriter
from worker.llm.schemes.openai_models import facts
from worker.llm.schemes.responses.decoder import ResponsesDecoder
from worker.llm.schemes.responses.items import PieceMaker, ResponsesJoiner, fitting_name
from worker.llm.types import JsonObject, LlmRequest, RequestOptions, ToolSpec
from worker.text import clean_text, is_blank

LEAST_OUTPUT_TOKENS = 16
"""The API refuses a smaller output cap."""
ENCRYPTED_CONTENT = "encrypted_content"
"""What a server refuses that cannot read the reasoning it is sent: of another account, say."""


@frozen
class OpenAiResponsesScheme:
    """Responses: `POST <base_url>/responses`. Nothing is stored there, nothing referred to.

    Reasoning comes back encrypted, and is sent back with what followed it.
    """

    framing: ClassVar[Framing] = "sse"
    is_unversioned: ClassVar[bool] = False

    def path(self, model: str) -> str:
        """Return the path under the base URL."""
        return "/responses"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the headers that carry the key; none without one."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encoder(self, provider: str, model: str) -> ResponsesEncoder:
        """Return an encoder that reuses the bytes of the request before."""
        return ResponsesEncoder(provider, model)

    def decoder(self, provider: str, model: str) -> ResponsesDecoder:
        """Return a decoder for one answer."""
        return ResponsesDecoder(provider, model)

    def encode(self, request: LlmRequest, provider: str, model: str) -> bytes:
        """Return the body of one request, on its own."""
        return self.encoder(provider, model).encode(request)


class ResponsesEncoder:
    """Makes the bodies of one client's requests; see `ItemWriter` for what is reused."""

    def __init__(self, provider: str, model: str) -> None:
        self._model = orjson.dumps(model)
        self._facts = facts(model)
        self._maker = PieceMaker(
            provider=provider,
            has_phases=self._facts.has_phases,
            takes_reasoning=not self._facts.never_reasons,
        )
        self._writer = ItemWriter(self._maker.piece_of, ResponsesJoiner)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @property
    def encoded_items(self) -> int:
        """How many items were encoded so far, over all requests; reused ones are not counted."""
        return self._writer.encoded_items

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body: model, input, instructions and tools, then everything else."""
        if ENCRYPTED_CONTENT in request.options.refused_names and self._maker.takes_reasoning:
            self._maker = evolve(self._maker, takes_reasoning=False)
            self._writer = ItemWriter(self._maker.piece_of, ResponsesJoiner)
        items = self._writer.write(request.system, request.items)
        fields = self._options(request.options)
        if request.tools:
            fields["parallel_tool_calls"] = True
        for name in request.options.refused_names & fields.keys():
            del fields[name]

        return b"".join(
            (
                *(b'{"model":', self._model, b',"input":[', *items, b"],"),
                _instructions(request.system),
                self._tools_of(request),
                orjson.dumps(fields)[1:],
            )
        )

    def _tools_of(self, request: LlmRequest) -> bytes:
        if self._tools[0] is not request.tools:
            self._tools = (request.tools, _tools_field(request.tools))
        return self._tools[1]

    def _options(self, options: RequestOptions) -> dict[str, object]:
        known = self._facts
        fields: dict[str, object] = {"stream": True, "store": False}
        if not known.never_reasons:
            fields["include"] = ["reasoning.encrypted_content"]
        effort = known.nearest_effort(options.reasoning_effort)
        if options.temperature is not None and known.takes_temperature(effort):
            fields["temperature"] = options.temperature
            effort = "none" if known.reasons else effort
        fields.update(self._reasoning(effort, options.refused_names))
        if options.max_tokens is not None:
            fields["max_output_tokens"] = max(options.max_tokens, LEAST_OUTPUT_TOKENS)
        if options.response_schema is not None:
            fields["text"] = {"format": _format(options.response_schema)}
        if options.cache_key:
            fields["prompt_cache_key"] = fitting_name(options.cache_key, "cache_")
        return fields

    def _reasoning(self, effort: str | None, refused: Container[str]) -> dict[str, object]:
        """Return the `reasoning` member: the effort where one is sent, and the wish for a summary.

        A summary is asked for where the model is known, or asked, to reason.
        """
        member = {"effort": effort} if effort else {}
        has_summary = (effort or self._facts.default_effort) not in {None, "none"}
        if has_summary and "reasoning.summary" not in refused:
            member["summary"] = "auto"
        return {"reasoning": member} if member else {}


def _format(schema: JsonObject) -> dict[str, object]:
    # Not strict: that takes a part of JSON Schema only, and refuses the rest.
    return {"type": "json_schema", "name": "answer", "schema": dict(schema), "strict": False}


def _instructions(system: str) -> bytes:
    """Return the `instructions` member with its comma; nothing where there is no system prompt."""
    if is_blank(system):
        return b""
    return b'"instructions":' + orjson.dumps(clean_text(system)) + b","


def _tools_field(tools: tuple[ToolSpec, ...]) -> bytes:
    """Return the `tools` member with its comma, sorted by name; nothing where there are none."""
    if not tools:
        return b""

    functions = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            # An object schema without properties is refused.
            "parameters": {"type": "object", "properties": {}} | dict(tool.parameters),
            # Left out, it means true, and the schema would be made to fit.
            "strict": False,
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    return b'"tools":' + orjson.dumps(functions) + b","
