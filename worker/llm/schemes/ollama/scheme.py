"""Ollama's native chat: the one of its dialects in which the context window can be asked for.

Without that, Ollama cuts a prompt to a default of its own, a few thousand tokens on most machines,
by leaving out the oldest messages, and tells nobody. Here it is told the window and forbidden to
leave anything out (`truncate`, `shift`): a prompt that does not fit is refused, and compacted.

Sources: `api/types.go`, `server/routes.go`, `server/prompt.go`, `llm/llama_server.go` and
`docs/api.md` of ollama/ollama, August 2026. Fields that an older server does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import orjson
from attrs import frozen

from worker.llm.scheme import Framing
from worker.llm.schemes.chat.messages import Target
from worker.llm.schemes.chat.tools import ToolsWriter
from worker.llm.schemes.item_writer import ItemWriter
from worker.llm.schemes.ollama.decoder import OllamaDecoder
from worker.llm.schemes.ollama.messages import OllamaJoiner, piece_of
from worker.llm.types import LlmRequest, RequestOptions

# `max` is newer than the rest, and refused by servers that do not know it.
_THINK: Mapping[str, object] = {"none": False, "minimal": "low", "xhigh": "high"}


@frozen
class OllamaScheme:
    """`POST <server>/api/chat`, streamed as one JSON object a line."""

    framing: ClassVar[Framing] = "ndjson"
    is_unversioned: ClassVar[bool] = True

    context_window: int | None = None
    """The window to load the model with, in tokens; None leaves it to the server."""

    def path(self, model: str) -> str:
        """Return the path at the server's root."""
        return "/api/chat"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Return the headers that carry the key; a server of one's own wants none."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encoder(self, provider: str, model: str) -> OllamaEncoder:
        """Return an encoder that reuses the bytes of the request before.

        Reasoning goes back only where it came from `provider` and `model`; what becomes of it is
        up to the model's template.
        """
        target = Target(provider=provider, model=model)
        return OllamaEncoder(target, self.context_window)

    def decoder(self, provider: str, model: str) -> OllamaDecoder:
        """Return a decoder for one answer."""
        return OllamaDecoder(provider, model)


class OllamaEncoder:
    """Makes the bodies of one client's requests; see `ItemWriter` for what is reused."""

    def __init__(self, target: Target, context_window: int | None) -> None:
        self._model = orjson.dumps(target.model)
        self._context_window = context_window
        self._writer = ItemWriter(partial(piece_of, target=target), OllamaJoiner)
        self._tools = ToolsWriter()

    @property
    def encoded_items(self) -> int:
        """How many items were encoded so far, over all requests; reused ones are not counted."""
        return self._writer.encoded_items

    def encode(self, request: LlmRequest) -> bytes:
        """Return the body: model, messages, then everything else."""
        messages = self._writer.write(request.system, request.items)
        return b"".join(
            (
                *(b'{"model":', self._model, b',"messages":[', *messages, b"],"),
                self._tools.member(request.tools),
                orjson.dumps(self._fields(request.options))[1:],
            )
        )

    def _fields(self, options: RequestOptions) -> dict[str, object]:
        fields: dict[str, object] = {"stream": True, "truncate": False, "shift": False}
        if options.reasoning_effort is not None:
            effort = options.reasoning_effort
            fields["think"] = _THINK.get(effort, effort)
        if options.response_schema is not None:
            fields["format"] = dict(options.response_schema)
        runner = {
            "num_ctx": self._context_window,
            "num_predict": options.max_tokens,
            "temperature": options.temperature,
        }
        known = {key: value for key, value in runner.items() if value is not None}
        return fields | ({"options": known} if known else {})
