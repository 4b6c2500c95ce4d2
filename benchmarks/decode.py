"""What it takes to read a streamed answer, beside httpx-sse alone on the same bytes, in turns.

Ours is the whole way: the body, its events, the decoder, and the events that a run sees, through
`HttpClient` with a transport in memory. The peer only cuts the same bytes, in the same pieces, into
events; it parses nothing. What Ollama streams are no server-sent events: there the peer is given
the same lines as such events. And what an open stream takes of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial

import httpx
import httpx_sse
from _measure import HotSpots, Sample, cpu_ms, header, in_turns, table, timed, verdict
from _streams import Dialect, dialects, tokens_of_code, words

EVENTS = 4_000
ROUNDS = 7
LEAST_RATE = 0.6
PIECES = (0, 64, 1_024, 65_536)
"""Bytes a piece; 0 is an event a piece, as networks bring them."""
OPEN_STREAMS = 200


class _Stream(httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class _Endless(_Stream):
    """Gives its pieces, and then nothing for ever."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        await asyncio.Event().wait()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show where our time goes")
    given = parser.parse_args()
    header("decode")
    if given.profile:
        _profile()
        return

    for name, pieces in (("prose", words(EVENTS)), ("code", tokens_of_code(EVENTS))):
        _report(name, pieces)
    asyncio.run(_report_memory())


def _report(name: str, pieces: list[str]) -> None:
    rows: list[tuple[str, ...]] = []
    slowest: dict[str, float] = {}
    for dialect in dialects():
        events = dialect.stream(pieces)
        for size in PIECES:
            found = in_turns(_actions(dialect, _cut(events, size)), ROUNDS)
            ours, peer = cpu_ms(found["ours"]), cpu_ms(found["httpx-sse"])
            slowest[dialect.provider] = min(slowest.get(dialect.provider, 99.0), peer / ours)
            each = (ms / len(events) * 1e3 for ms in (peer, ours))
            rows.append(
                (
                    f"{dialect.provider}, {_said(size)}",
                    f"{sum(map(len, events)) / len(events):.0f}",
                    *(f"{us:.1f}" for us in each),
                    f"{peer / ours:.2f}",
                )
            )
    head = (f"{name}, {EVENTS:,} events", "bytes each", "httpx-sse µs", "ours µs", "rate")
    table("CPU time for each event", head, rows)
    for provider, rate in slowest.items():
        # The least of a rate is the most of its reciprocal.
        what = f"{name}, {provider}: time over httpx-sse alone, at most"
        verdict(what, value=1 / rate, limit=1 / LEAST_RATE)


def _said(size: int) -> str:
    return f"{size:,} bytes a piece" if size else "an event a piece"


def _cut(events: list[bytes], size: int) -> list[bytes]:
    body = b"".join(events)
    return [body[at : at + size] for at in range(0, len(body), size)] if size else events


def _actions(dialect: Dialect, pieces: list[bytes]) -> dict[str, Callable[[], Sample]]:
    same = pieces
    if dialect.provider == "ollama":
        lines = b"".join(pieces).splitlines()
        events = [b"data: " + line + b"\n\n" for line in lines]
        same = events if len(pieces) == len(lines) else _cut(events, len(pieces[0]))
    return {
        "ours": lambda: timed(partial(asyncio.run, _ours(dialect, pieces))),
        "httpx-sse": lambda: timed(partial(asyncio.run, _peer(same))),
    }


async def _peer(pieces: list[bytes]) -> int:
    headers = {"Content-Type": "text/event-stream"}
    response = httpx.Response(200, headers=headers, stream=_Stream(pieces))
    count = 0
    async for _ in httpx_sse.EventSource(response).aiter_sse():
        count += 1
    return count


async def _ours(dialect: Dialect, pieces: list[bytes]) -> int:
    from worker import user_message
    from worker.llm import LlmRequest

    client = _client(dialect, _Stream(pieces))
    count = 0
    async with aclosing(client.stream(LlmRequest("", [user_message("Hi")]))) as stream:
        async for _ in stream:
            count += 1
    await client.aclose()
    return count


def _client(dialect: Dialect, stream: httpx.AsyncByteStream):  # type: ignore[no-untyped-def]  # noqa: ANN202 - loads with the schemes
    from worker.llm import Endpoint, HttpClient

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=stream)

    endpoint = Endpoint(provider=dialect.provider, model="m", base_url="http://memory.test")
    return HttpClient(endpoint, dialect.scheme(), transport=httpx.MockTransport(answer))


async def _report_memory() -> None:
    """Print what streams take that stand open after some text, the network's buffers aside."""
    from worker import user_message
    from worker.llm import LlmRequest

    rows = []
    for dialect in dialects():
        events = dialect.stream(words(100))[:50]
        opened = []
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(OPEN_STREAMS):
            client = _client(dialect, _Endless(events))
            stream = client.stream(LlmRequest("", [user_message("Hi")]))
            await anext(stream)
            opened.append((client, stream))
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / OPEN_STREAMS
        tracemalloc.stop()
        for client, stream in opened:
            await stream.aclose()
            await client.aclose()
        rows.append((dialect.provider, f"{each / 1024:.1f}"))
    table("Memory of an open stream, its client included", ("dialect", "KiB"), rows)


def _profile() -> None:
    for dialect in dialects():
        pieces = _cut(dialect.stream(words(EVENTS)), 0)
        spots = HotSpots()
        with spots:
            asyncio.run(_ours(dialect, pieces))
        spots.report(dialect.provider)


if __name__ == "__main__":
    main()
