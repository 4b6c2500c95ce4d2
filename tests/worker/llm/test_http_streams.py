"""Framing, silence, size and cancellation, on a real connection."""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from contextlib import aclosing

import anyio
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.worker.llm.client import REQUEST, Clock, ask, client
from tests.worker.llm.wire import (
    Reply,
    call_delta,
    chunk,
    chunked,
    head,
    hello,
    serving,
    sse,
    usage_chunk,
)
from worker.errors import BadAnswer, ProviderUnavailable, StreamBroken
from worker.items import Text, ToolCall
from worker.llm import Answered, HttpClient, RetryPolicy, StreamEvent, StreamLimits, TextDelta
from worker.llm.types import Answer, Usage

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(max_attempts=1)

STREAM = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Grüße, 世界 \U0001f378"}),
    chunk({"content": " a\u2028b\u2029c\u0085d\x0be"}),
    chunk(call_delta(0, "call_1", "look", '{"wo')),
    chunk(call_delta(0, None, None, 'rd":"pod"}')),
    chunk(finish="tool_calls"),
    usage_chunk(53, 15, cached_tokens=40),
)
SAID = "Grüße, 世界 \U0001f378 a\u2028b\u2029c\u0085d\x0be"


def check(events: list[StreamEvent]) -> None:
    """The events of `STREAM`, whole."""
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == SAID
    assert isinstance(events[-1], Answered)
    text, call = events[-1].answer.parts
    assert text == Text(SAID)
    assert isinstance(call, ToolCall)
    assert (call.call_id, call.arguments) == ("call_1", '{"word":"pod"}')
    assert events[-1].answer.usage == Usage(53, 15, cache_read=40)


# --- framing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 3, 4096])
async def test_any_line_end_and_any_chunk_size(newline: str, size: int) -> None:
    body = STREAM.replace(b"\n", newline.encode())
    async with serving(Reply(chunked(body, size), then="keep")) as server:
        check(await ask(client(server.base_url)))


async def test_a_byte_order_mark_comments_and_missing_spaces() -> None:
    body = b"\xef\xbb\xbf: hello\n\n" + STREAM.replace(b"data: ", b"data:")
    body = body.replace(b"\n\n", b"\n\n: ping\n\nevent: ping\n\nretry: 5\n\n")
    async with serving(Reply([head(), body])) as server:
        check(await ask(client(server.base_url)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
def test_any_split_of_the_bytes_gives_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(edges)]

    class Stream(httpx.AsyncByteStream):
        async def __aiter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204 - a double
            for piece in pieces:
                yield piece

    async def run() -> None:
        check(await ask(client(handler=lambda _: httpx.Response(200, stream=Stream()))))

    asyncio.run(run())


@pytest.mark.timeout(60)  # a connection for each, on a machine that may be busy
async def test_cut_at_every_byte_nothing_hangs_and_nothing_partial_is_whole() -> None:
    # The end of the line, and of the event, may be missing.
    finished_at = STREAM.index(b'"tool_calls"}]}\n\n') + len(b'"tool_calls"}]}')
    cuts = range(len(STREAM))
    async with serving(lambda n: Reply([head(), STREAM[: cuts[n - 1]]])) as server:
        asked = client(server.base_url, retry=ONCE)
        for cut in cuts:
            outcome = await outcome_of(asked)
            if cut >= finished_at:
                assert isinstance(outcome, Answer), cut
                assert len(outcome.parts) == 2
            elif isinstance(outcome, StreamBroken):
                assert outcome.partial is not None or cut > STREAM.index(b"call_1")
                said = outcome.partial.parts[0] if outcome.partial else Text("")
                assert isinstance(said, Text)
                assert SAID.startswith(said.text)
                assert outcome.partial is None or len(outcome.partial.parts) == 1
            else:
                assert isinstance(outcome, ProviderUnavailable), cut
        await asked.aclose()


async def outcome_of(asked: HttpClient) -> Answer | StreamBroken | ProviderUnavailable:
    async with aclosing(asked.stream(REQUEST)) as stream:
        try:
            events = [event async for event in stream]
        except (StreamBroken, ProviderUnavailable) as error:
            return error
    assert isinstance(events[-1], Answered)
    return events[-1].answer


async def test_a_whole_completion_for_a_stream_is_read() -> None:
    body = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
    async with serving(Reply([head(content_type="application/json"), body])) as server:
        events = await ask(client(server.base_url))
    assert events[0] == TextDelta("Hi")
    assert isinstance(events[-1], Answered)


async def test_compressed_though_unasked_is_read() -> None:
    machine = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    body = machine.compress(STREAM) + machine.flush()
    async with serving(Reply([head(content_encoding="gzip"), body[:40], body[40:]])) as server:
        check(await ask(client(server.base_url)))


@pytest.mark.parametrize(("encoding", "body"), [("br", b"??"), ("gzip", b"not gzip at all")])
async def test_what_cannot_be_decompressed_is_told(encoding: str, body: bytes) -> None:
    async with serving(Reply([head(content_encoding=encoding), body])) as server:
        with pytest.raises(BadAnswer, match=r"compress"):
            await ask(client(server.base_url))


# --- connections --------------------------------------------------------------------------------


async def test_a_connection_is_used_again() -> None:
    async with serving(Reply(chunked(hello(), 64), then="keep")) as server:
        asked = client(server.base_url)
        for _ in range(3):
            async with aclosing(asked.stream(REQUEST)) as stream:
                assert [event async for event in stream]
        assert (len(server.requests), server.connections) == (3, 1)
        await asked.aclose()


async def test_a_connection_held_open_after_the_end_marker_holds_nobody_up() -> None:
    async with serving(Reply([head(), hello()], then="hold")) as server:
        start = time.monotonic()
        events = await ask(client(server.base_url))
        assert isinstance(events[-1], Answered)
        assert time.monotonic() - start < 3


async def test_a_connection_that_dies_right_after_the_headers_is_tried_again() -> None:
    def script(number: int) -> Reply:
        return Reply([head()] if number == 1 else [head(), STREAM])

    async with serving(script) as server:
        events = await ask(client(server.base_url))
    check(events[1:])


# --- silence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[], [head()], [head(), b": ping\n\n"]])
async def test_silence_before_any_content_is_retried(pieces: list[bytes]) -> None:
    def script(number: int) -> Reply:
        return Reply(pieces, then="hold") if number == 1 else Reply([head(), STREAM])

    async with serving(script) as server:
        events = await ask(client(server.base_url, idle_timeout_s=0.2))
    check(events[1:])
    assert "0.2 s" in events[0].reason  # type: ignore[union-attr]  # a Retrying


async def test_silence_after_content_is_a_broken_stream_within_the_limit() -> None:
    body = sse(chunk({"content": "Half"}), done=False)
    async with serving(Reply([head(), body], then="hold")) as server:
        start = time.monotonic()
        with pytest.raises(StreamBroken, match=r"fell silent for 0\.2 s") as broken:
            await ask(client(server.base_url, idle_timeout_s=0.2))
        assert time.monotonic() - start < 3
        await asyncio.wait_for(server.closed.wait(), 5)
    assert len(server.requests) == 1
    assert broken.value.partial is not None


@pytest.mark.parametrize("keepalive", [b": keep-alive\n\n", b"event: ping\n\n", b"\n"])
async def test_keep_alives_are_no_answer(keepalive: bytes) -> None:
    body = sse(chunk({"content": "Half"}), done=False)
    reply = Reply([head(), body, keepalive], pause_s=0.02, then="repeat")
    async with serving(reply) as server:
        with pytest.raises(StreamBroken, match="fell silent"):
            await ask(client(server.base_url, idle_timeout_s=0.3))


async def test_a_stream_that_never_ends_is_ended() -> None:
    body = sse(chunk({"content": "more "}), done=False)
    async with serving(Reply([head(), body], pause_s=0.02, then="repeat")) as server:
        with pytest.raises(StreamBroken, match=r"within 0\.4 s") as broken:
            await ask(client(server.base_url, total_timeout_s=0.4))
    assert broken.value.partial is not None


async def test_an_error_whose_words_never_come_is_told_by_its_status() -> None:
    async with serving(Reply([head("503 Busy")], then="hold")) as server:
        with pytest.raises(ProviderUnavailable, match="503"):
            await ask(client(server.base_url, retry=ONCE, idle_timeout_s=0.2))


# --- size ---------------------------------------------------------------------------------------

SMALL = StreamLimits(
    line_bytes=100_000, event_bytes=300_000, response_bytes=1_000_000, error_bytes=10_000
)


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        pytest.param(b"x" * 10_000, "a line of over 100,000 bytes", id="endless line"),
        pytest.param(b"data: x\n" * 1000, "an event of over 300,000 bytes", id="endless event"),
        pytest.param(
            sse(chunk({"role": "assistant"}), done=False) * 100,
            "an answer of over 1,000,000 bytes",
            id="endless answer",
        ),
    ],
)
async def test_what_is_endless_is_refused(piece: bytes, said: str) -> None:
    async with serving(Reply([head(), piece], then="repeat")) as server:
        with pytest.raises(BadAnswer, match=said):
            await ask(client(server.base_url, limits=SMALL, retry=ONCE))


async def test_an_endless_error_is_cut() -> None:
    async with serving(Reply([head("400 Bad"), b"words " * 1000], then="repeat")) as server:
        with pytest.raises(Exception, match="words") as refused:
            await ask(client(server.base_url, limits=SMALL))
    assert len(str(refused.value)) < 1200


async def test_a_decompression_bomb_is_refused() -> None:
    machine = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    bomb = machine.compress(b"\n" * (200 << 20)) + machine.flush()
    assert len(bomb) < 300_000
    async with serving(Reply([head(content_encoding="gzip"), bomb])) as server:
        with pytest.raises(BadAnswer, match="an event of over 4,194,304 bytes"):
            await ask(client(server.base_url))


async def test_a_limit_after_content_keeps_what_came() -> None:
    body = sse(chunk({"content": "Half"}), done=False)
    async with serving(Reply([head(), body, b"x" * 10_000], then="repeat")) as server:
        with pytest.raises(StreamBroken, match="a line of over") as broken:
            await ask(client(server.base_url, limits=SMALL))
    assert broken.value.partial is not None


# --- leaving early ------------------------------------------------------------------------------


async def test_leaving_early_closes_the_response_at_once() -> None:
    body = sse(chunk({"content": "Half"}), done=False)
    async with serving(Reply([head(), body], then="hold")) as server:
        asked = client(server.base_url)
        async with aclosing(asked.stream(REQUEST)) as stream:
            async for event in stream:
                assert event == TextDelta("Half")
                break
        await asyncio.wait_for(server.closed.wait(), 5)
        await asked.aclose()


@pytest.mark.parametrize(
    "pieces", [[], [head()], [head(), sse(chunk({"content": "x"}), done=False)]]
)
async def test_cancelling_is_prompt_and_closes_the_response(pieces: list[bytes]) -> None:
    async with serving(Reply(pieces, then="hold")) as server:
        asked = client(server.base_url, idle_timeout_s=60)
        task = asyncio.ensure_future(outcome_of(asked))
        await asyncio.wait_for(server.asked.wait(), 10)
        await asyncio.sleep(0.1)
        task.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.closed.wait(), 5)
        assert time.monotonic() - start < 2
        await asked.aclose()


async def test_a_cancel_scope_around_a_stream_works() -> None:
    async with serving(Reply([head()], then="hold")) as server:
        asked = client(server.base_url, idle_timeout_s=60)
        with anyio.move_on_after(0.2) as scope:
            await outcome_of(asked)
        assert scope.cancelled_caught
        await asyncio.wait_for(server.closed.wait(), 5)
        await asked.aclose()


class Stuck(Clock):
    async def sleep(self, delay_s: float) -> None:
        await anyio.sleep(60)


async def test_cancelling_during_a_wait_is_prompt() -> None:
    asked = client(handler=lambda _: httpx.Response(503), clock=Stuck())
    with anyio.move_on_after(0.1) as scope:
        await outcome_of(asked)
    assert scope.cancelled_caught
    await asked.aclose()
