"""The Chat Completions dialect: OpenAI's, and that of the servers that speak it their own way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, assert_never

import orjson
from attrs import field, frozen

from worker.llm.scheme import Framing
from worker.llm.schemes import openai_models
from worker.llm.schemes.chat.decoder import ChatDecoder
from worker.llm.schemes.chat.joiner import ChatJoiner
from worker.llm.schemes.chat.messages import Target, piece_of
from worker.llm.schemes.chat.quirks import ChatQuirks
from worker.llm.schemes.chat.servers import COMPATIBLE, LLAMA_SERVER, OPENAI
from worker.llm.schemes.chat.tools import ToolsWriter
from worker.llm.schemes.item_writer import ItemWriter
from worker.llm.types import LlmRequest, RequestOptions

__all__ = [
    "COMPATIBLE",
    "GRAMMAR_REPEAT_PENALTY",
    "LLAMA_SERVER",
    "OPENAI",
    "ChatEncoder",
    "ChatQuirks",
    "OpenAiChatScheme",
]

_CAP_KEYS = ("max_tokens", "max_completion_tokens")
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
        """Return an encoder that reuses the bytes of the request before.

        Reasoning goes back only where it came from `provider` and `model`.
        """
        return ChatEncoder(Target(self.quirks.for_model(model), provider, model))

    def decoder(self, provider: str, model: str) -> ChatDecoder:
        """Return a decoder for one answer."""
        keeps_details = self.quirks.for_model(model).reasoning == "reasoning_details"
        return ChatDecoder(provider, model, keeps_details=keeps_details)

    def encode(self, request: LlmRequest, model: str) -> bytes:
        """Return the body of one request, on its own and without any reasoning."""
        return self.encoder("", model).encode(request)


class ChatEncoder:
    """Makes the bodies of one client's requests; see `ItemWriter` for what is reused."""

    def __init__(self, target: Target) -> None:
        quirks = target.quirks
        self._quirks = quirks
        self._facts = openai_models.facts(target.model) if quirks.openai_models else None
        self._model = orjson.dumps(target.model)
        self._writer = ItemWriter(
            partial(piece_of, target=target), partial(ChatJoiner, quirks=quirks)
        )
        self._tools = ToolsWriter()

    @property
    def encoded_items(self) -> int:
        """How many items were encoded so far, over all requests; reused ones are not counted."""
        return self._writer.encoded_items

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body: model, messages, then everything else."""
        options = orjson.dumps(self._options(request.options, has_tools=bool(request.tools)))
        messages = self._writer.write(request.system, request.items)
        return b"".join(
            (
                *(b'{"model":', self._model, b',"messages":[', *messages, b"],"),
                self._tools.member(request.tools),
                options[1:],
            )
        )

    def _options(self, options: RequestOptions, *, has_tools: bool) -> dict[str, object]:
        quirks = self._quirks
        effort = self._effort(options.reasoning_effort, has_tools=has_tools)
        fields: dict[str, object] = {"stream": True}
        if quirks.include_usage and "stream_options" not in options.refused_names:
            fields["stream_options"] = {"include_usage": True}
        cap_key = self._cap_key(options)
        if options.max_tokens is not None and cap_key is not None:
            fields[cap_key] = options.max_tokens
        if options.temperature is not None and self._takes_temperature(effort):
            fields["temperature"] = options.temperature
        if effort is not None:
            fields |= _effort_fields(quirks, effort)
        if options.cache_key is not None and quirks.cache_key:
            fields["prompt_cache_key"] = options.cache_key
        if has_tools and quirks.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = quirks.parallel_tool_calls
        if has_tools and not quirks.form_beside_tools:
            return fields
        return fields | self._answer_form(options)

    def _cap_key(self, options: RequestOptions) -> str | None:
        """Return what the output cap is called: one name stands for the other that was refused."""
        keys = sorted(_CAP_KEYS, key=lambda key: key != self._quirks.max_tokens_key)
        return next((key for key in keys if key not in options.refused_names), None)

    def _effort(self, asked: str | None, *, has_tools: bool) -> str | None:
        if self._facts is None:
            return asked
        # Here tools and reasoning exclude each other; without tools nothing could be done at all.
        if has_tools and self._facts.chat_tools == "without_reasoning":
            return "none"
        return self._facts.nearest_effort(asked)

    def _takes_temperature(self, effort: str | None) -> bool:
        is_taken = self._facts is None or self._facts.takes_temperature(effort)
        return is_taken and self._quirks.send_temperature

    def _answer_form(self, options: RequestOptions) -> dict[str, object]:
        fields: dict[str, object] = {}
        if options.response_schema is not None and self._quirks.send_response_format:
            schema = {"name": "answer", "schema": dict(options.response_schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if options.grammar is not None and self._quirks.grammar:
            fields["grammar"] = options.grammar
            fields["repeat_penalty"] = GRAMMAR_REPEAT_PENALTY
        return fields


def _effort_fields(quirks: ChatQuirks, effort: str) -> dict[str, object]:
    """Return how `quirks` says a reasoning effort."""
    word = quirks.efforts.get(effort, effort)
    is_off = word == "none"
    match quirks.effort_form:
        case "reasoning_effort":
            return {"reasoning_effort": word}
        case "reasoning":
            return {"reasoning": {"effort": word}}
        case "thinking":
            return {"thinking": {"type": "disabled" if is_off else "enabled"}}
        case "thinking_or_effort":
            return {"thinking": {"type": "disabled"}} if is_off else {"reasoning_effort": word}
        case "enable_thinking":
            return {"enable_thinking": not is_off}
        case "none":
            return {}
        case _:
            assert_never(quirks.effort_form)
