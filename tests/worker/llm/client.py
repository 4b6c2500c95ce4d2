"""Clients whose waits take no time, what answers them, and what a request to them comes to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
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
    TextDelta,
)

KEY = "sk-test-0123456789abcdef"
NOW_S = 1_800_000_000.0
REQUEST = LlmRequest(system="You help.", items=[user_message("Hi")])
ONCE = RetryPolicy(max_attempts=1)

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


@attrs.frozen
class Pieces(httpx.AsyncByteStream):
    """A body that comes in pieces, and ends then, with `error` if there is one."""

    pieces: Iterable[bytes]
    error: BaseException | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.error is not None:
            raise self.error


Given = httpx.Response | bytes | Exception


class Provider:
    """Gives the answers in order, the last one for ever; bytes are a stream of status 200."""

    def __init__(self, *answers: Given) -> None:
        self.answers = answers
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, content=answer)


def answering(handler: Handler) -> httpx.MockTransport:
    """A transport whose answers are still to be read, as those of a network are."""

    def answer(request: httpx.Request) -> httpx.Response:
        given = handler(request)
        if not given.is_stream_consumed:
            return given
        return httpx.Response(
            given.status_code, headers=given.headers, stream=Pieces([given.content])
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


def said(events: list[StreamEvent]) -> str:
    """The text that arrived, delta by delta."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))
