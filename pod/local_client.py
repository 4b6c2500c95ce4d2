"""The client of a model that runs on this machine, whose server starts with the first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from attrs import evolve

from pod.home import Home
from pod.journal import in_thread
from worker.llm.types import Answered, LlmRequest, StreamEvent

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from manifests.schema_provider import FallbackProvider
    from worker.llm import HttpClient
    from worker.llm.chat_template import ToolsTold
    from worker.llm.local import LocalServer

LOCAL_IDLE_TIMEOUT_S = 900.0
"""A small machine may read a long prompt for minutes before the first token."""


class LocalClient:
    """A client of a model that runs here: its server starts with the first request."""

    def __init__(
        self, server: LocalServer, *, idle_timeout_s: float = LOCAL_IDLE_TIMEOUT_S
    ) -> None:
        self._server = server
        self._idle_timeout_s = idle_timeout_s
        self._client: HttpClient | None = None
        self._base_url = ""
        self._starting = asyncio.Lock()

    @classmethod
    def for_section(
        cls, section: FallbackProvider, loaded: LoadedManifest, home: Home
    ) -> LocalClient:
        """Return the client for a model that was pulled or a GGUF file; the file is checked."""
        from pod.models import resolve_model
        from worker.llm import local

        path = resolve_model(section.model or "", home.models, relative_to=loaded.base_dir)
        server = local.LocalServer(path, context_window=section.context_window)
        _ = server.context_window  # Reads the file's header: a damaged one is told of now.
        idle_timeout_s = section.idle_timeout_seconds or LOCAL_IDLE_TIMEOUT_S
        return cls(server, idle_timeout_s=idle_timeout_s)

    @property
    def provider(self) -> str:
        """Always `local`."""
        return "local"

    @property
    def model(self) -> str:
        """The model's name, by its file."""
        return self._server.model_name

    @property
    def context_window(self) -> int | None:
        """The window that the server gives, in tokens."""
        return self._server.context_window

    @property
    def tools_told(self) -> ToolsTold:
        """What tells the model of tools; with `never`, it does not hear of a pod's tools."""
        return self._server.tools_told

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send a request to the server, which is started if it is not running."""
        client = await self._ready()
        async with aclosing(client.stream(request)) as stream:
            async for event in stream:
                # The server calls the model by its file's path, which is nobody's business.
                if isinstance(event, Answered):
                    yield Answered(evolve(event.answer, model=self.model))
                else:
                    yield event

    async def _ready(self) -> HttpClient:
        from worker import llm
        from worker.llm.local import REQUEST_HEADERS
        from worker.llm.schemes.chat.scheme import LLAMA_SERVER

        async with self._starting:
            base_url = await in_thread(self._server.start)
            if self._client is None or self._base_url != base_url:
                self._base_url = base_url
                endpoint = llm.Endpoint(
                    provider="local",
                    model=self.model,
                    base_url=base_url,
                    api_key=self._server.api_key,
                    headers=REQUEST_HEADERS,
                    context_window=self._server.context_window,
                    idle_timeout_s=self._idle_timeout_s,
                )
                self._client = llm.HttpClient(endpoint, llm.OpenAiChatScheme(LLAMA_SERVER))

            return self._client

    async def aclose(self) -> None:
        """Stop the server."""
        if self._client is not None:
            await self._client.aclose()

        await in_thread(self._server.close)
