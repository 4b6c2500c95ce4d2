"""A scripted model whose own time is known, so that it can be taken off."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker import LlmRequest
    from worker.llm import ScriptedClient, StreamEvent


class TimedClient:
    """Passes a scripted client's answers on, and notes when each request came and what it took.

    The scripted client encodes every request as Chat Completions, as a real client would: that
    time is the model's here, and `encode_s` tells it apart.
    """

    def __init__(self, client: ScriptedClient, syncing: Callable[[], float] = lambda: 0.0) -> None:
        from worker.llm import OpenAiChatScheme

        self._client = client
        self._syncing = syncing
        self._encoder = OpenAiChatScheme().encoder(client.provider, client.model)
        self.began_s: list[float] = []
        """When each request came."""
        self.taken_s: list[float] = []
        """What the client took for each request, encoding it twice included."""
        self.cpu_began_s: list[float] = []
        """The process's CPU time when each request came."""
        self.cpu_taken_s: list[float] = []
        """The CPU time of the client for each request."""
        self.encode_s: list[float] = []
        """What it took to make the body of each request."""
        self.synced_s: list[float] = []
        """How long the disk had been waited for until each request, as `syncing` says."""
        self.body_bytes = 0
        """How large the newest body was."""

    @property
    def provider(self) -> str:
        """The provider's kind."""
        return self._client.provider

    @property
    def model(self) -> str:
        """The model's name."""
        return self._client.model

    @property
    def context_window(self) -> int | None:
        """The window in tokens."""
        return self._client.context_window

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Yield what the scripted client answers."""
        began, cpu = time.perf_counter(), time.thread_time()
        self.began_s.append(began)
        self.cpu_began_s.append(time.process_time())
        self.taken_s.append(0.0)
        self.cpu_taken_s.append(0.0)
        self.synced_s.append(self._syncing())
        self.body_bytes = len(self._encoder.encode(request))
        self.encode_s.append(time.perf_counter() - began)
        stream = self._client.stream(request)
        while True:
            event = await anext(stream, None)
            self.taken_s[-1] += time.perf_counter() - began
            self.cpu_taken_s[-1] += time.thread_time() - cpu
            if event is None:
                return

            yield event
            began, cpu = time.perf_counter(), time.thread_time()

    async def aclose(self) -> None:
        """Hold nothing; there is nothing to release."""
