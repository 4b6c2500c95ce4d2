"""Clients whose waits take no time, and what a request to them comes to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import attrs
import httpx

from worker.items import user_message
from worker.llm import (
    Endpoint,
    HttpClient,
    LlmRequest,
    OpenAiChatScheme,
    Retrying,
    RetryPolicy,
    StreamEvent,
)

KEY = "sk-test-0123456789abcdef"
NOW_S = 1_800_000_000.0
REQUEST = LlmRequest(system="You help.", items=[user_message("Hi")])

Handler = Callable[[httpx.Request], httpx.Response]


@attrs.define
class Clock:
    """Waits that return at once and are written down."""

    slept: list[float] = attrs.field(factory=list)

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)

    def now(self) -> float:
        return NOW_S + sum(self.slept)


def endpoint(base_url: str = "http://provider.test/v1", **changes: Any) -> Endpoint:
    """An endpoint with a key from FAKE_KEY and short patience."""
    usual: dict[str, Any] = {
        "provider": "openai_compatible",
        "model": "m",
        "api_key": KEY,
        "key_source": "the variable FAKE_KEY",
        "idle_timeout_s": 5.0,
    }
    return Endpoint(base_url=base_url, **(usual | changes))


class _Streamed(httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data


def answering(handler: Handler) -> httpx.MockTransport:
    """A transport whose answers are still to be read, as those of a network are."""

    def answer(request: httpx.Request) -> httpx.Response:
        given = handler(request)
        if not given.is_stream_consumed:
            return given
        return httpx.Response(
            given.status_code, headers=given.headers, stream=_Streamed(given.content)
        )

    return httpx.MockTransport(answer)


def client(
    base_url: str = "http://provider.test/v1",
    *,
    handler: Handler | None = None,
    clock: Clock | None = None,
    retry: RetryPolicy | None = None,
    **changes: Any,
) -> HttpClient:
    """A client of the server at `base_url`, or of a `handler` in its place."""
    clock = clock or Clock()
    return HttpClient(
        endpoint(base_url, **changes),
        OpenAiChatScheme(),
        retry=retry,
        sleep=clock.sleep,
        now=clock.now,
        transport=answering(handler) if handler else None,
    )


async def ask(asked: HttpClient, request: LlmRequest = REQUEST) -> list[StreamEvent]:
    """Every event of one request; the client is closed afterwards."""
    try:
        async with aclosing(asked.stream(request)) as stream:
            return [event async for event in stream]
    finally:
        await asked.aclose()


def retries(events: list[StreamEvent]) -> list[Retrying]:
    """The retries among `events`."""
    return [event for event in events if isinstance(event, Retrying)]
