"""Cases of failures from public reports, each in every dialect; found by their ids."""

from __future__ import annotations

import email.utils
import json
import time
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from attrs import evolve

from tests.worker.llm.client import NOW_S, ONCE, REQUEST, Clock, Provider, ask, retries, said
from tests.worker.llm.dialects import EVENT_STREAMS, GEMINI, OLLAMA, Dialect, failed
from tests.worker.llm.wire import Reply, chunked, head, serving
from worker import Worker, tool
from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderRefused,
    ProviderUnavailable,
    StreamBroken,
)
from worker.items import Text, ToolCall, ToolResult
from worker.llm import Answered, HttpClient

pytestmark = pytest.mark.anyio

TEXT = "Grüße, 世界 \U0001f378 a\u2028b\u2029c\u0085d\x0be"


def limited(value: str) -> httpx.Response:
    return httpx.Response(429, headers=[(b"retry-after", value.encode())], content=b"")


# --- waits --------------------------------------------------------------------------------------


async def waited(dialect: Dialect, value: str) -> float:
    clock = Clock()
    provider = Provider(limited(value), dialect.hello())
    events = await ask(dialect.client(handler=provider, clock=clock))
    assert said(events) == "Hello"
    (wait,) = clock.slept
    assert [retry.delay_s for retry in retries(events)] == [wait]
    return wait


async def test_j01_a_malformed_date_means_backoff(dialect: Dialect) -> None:
    assert 0.5 <= await waited(dialect, "Wed, 99 Foo") <= 1.0


async def test_j03_a_huge_wait_is_told_at_once(dialect: Dialect) -> None:
    provider, clock = Provider(limited("9999999999")), Clock()
    with pytest.raises(ProviderUnavailable, match="asks to wait 9,999,999,999 s") as error:
        await ask(dialect.client(handler=provider, clock=clock))
    assert (len(provider.requests), clock.slept) == (1, [])
    assert error.value.retry_after_s == 9_999_999_999.0


@pytest.mark.parametrize("value", ["0", email.utils.formatdate(NOW_S - 3600, usegmt=True)])
async def test_j04_past_and_nought_mean_the_least_wait(dialect: Dialect, value: str) -> None:
    assert await waited(dialect, value) == pytest.approx(0.1)


async def test_j04_fractions_are_waited_for_and_negatives_are_not(dialect: Dialect) -> None:
    assert await waited(dialect, "1.5") == pytest.approx(1.5)
    assert 0.5 <= await waited(dialect, "-5") <= 1.0


# --- what is not repeated -----------------------------------------------------------------------


async def test_j07_an_overflow_that_a_proxy_calls_transient(dialect: Dialect) -> None:
    body = {"error": {"message": "maximum context length is 8192 tokens", "type": "transient"}}
    error, asked = await failed(dialect, httpx.Response(500, json=body))
    assert isinstance(error, ContextOverflow)
    assert error.limit_tokens == 8192
    assert asked == 1


async def test_j08_a_400_without_a_word(dialect: Dialect) -> None:
    error, asked = await failed(dialect, httpx.Response(400, content=b""))
    assert isinstance(error, ProviderRefused)
    assert asked == 1
    for words in ("(400)", "model m", "bytes"):
        assert words in error.message


async def test_j17_an_invalid_request_inside_a_stream(dialect: Dialect) -> None:
    data = dialect.error(dialect.refusal, "field x is wrong")
    error, asked = await failed(dialect, dialect.begin() + data)
    assert isinstance(error, ProviderRefused)
    assert "field x is wrong" in error.message
    assert asked == 1


async def test_an_error_after_content_keeps_what_came(dialect: Dialect) -> None:
    data = dialect.begin() + dialect.text("Half") + dialect.error(dialect.overload, "died here")
    error, asked = await failed(dialect, data)
    assert isinstance(error, StreamBroken)
    assert error.partial is not None
    assert error.partial.parts == (Text("Half"),)
    assert "died here" in error.message
    assert asked == 1


# --- what is ------------------------------------------------------------------------------------


async def test_j14_a_socket_that_dies_after_the_headers(dialect: Dialect) -> None:
    def script(number: int) -> Reply:
        return Reply([head()] if number == 1 else [head(), dialect.hello()])

    async with serving(script) as server:
        events = await ask(dialect.client(server.base_url))
    assert said(events) == "Hello"
    assert len(server.requests) == 2


@pytest.mark.parametrize("has_begun", [False, True])
async def test_j16_overload_inside_a_stream(dialect: Dialect, *, has_begun: bool) -> None:
    first = dialect.begin() if has_begun else b""
    overloaded = first + dialect.error(dialect.overload, "no capacity")
    provider, clock = Provider(overloaded, dialect.hello()), Clock()
    events = await ask(dialect.client(handler=provider, clock=clock))
    assert said(events) == "Hello"
    (retry,) = retries(events)
    assert "no capacity" in retry.reason
    assert 0.5 <= clock.slept[0] <= 1.0


async def test_j16_it_ends_as_an_overload_does(dialect: Dialect) -> None:
    error, asked = await failed(dialect, dialect.error(dialect.overload, "no capacity"))
    assert isinstance(error, ProviderUnavailable)
    assert asked == 6
    assert "tried 6 times" in error.message


async def test_j13_nothing_of_a_broken_call_is_mixed_into_the_next(dialect: Dialect) -> None:
    provider = Provider(dialect.half_call(), dialect.call("two"))
    asked = dialect.client(handler=provider, retry=ONCE)
    async with aclosing(asked.stream(REQUEST)) as stream:
        with pytest.raises((StreamBroken, ProviderUnavailable)):
            _ = [event async for event in stream]
    events = await ask(asked)
    assert isinstance(events[-1], Answered)
    (call,) = events[-1].answer.parts
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == {"word": "two"}


# --- in a run: only the request is repeated -----------------------------------------------------


class Looking:
    """A worker with the tool `look`, against a real server."""

    def __init__(self, client: HttpClient) -> None:
        self.looked: list[str] = []

        @tool
        def look(word: str) -> str:
            """Look it up."""
            self.looked.append(word)
            return f"{word} is found"

        self.worker = Worker(client, tools=[look])

    @property
    def results(self) -> list[ToolResult]:
        return [item for item in self.worker.history if isinstance(item, ToolResult)]


@pytest.mark.parametrize("dropped", ["silently", "after headers", "after the beginning"])
async def test_j11_j18_a_drop_after_a_tool_repeats_that_request_alone(
    dialect: Dialect, dropped: str
) -> None:
    pieces = {
        "silently": [],
        "after headers": [head()],
        "after the beginning": [head(), dialect.begin()],
    }[dropped]

    def script(number: int) -> Reply:
        answers = {1: [head(), dialect.call("pod")], 2: pieces}
        return Reply(answers.get(number, [head(), dialect.hello()]))

    async with serving(script) as server:
        asked = dialect.client(server.base_url)
        looking = Looking(asked)
        result = await looking.worker.run("Look up pod")
        await asked.aclose()
    assert result.text == "Hello"
    assert looking.looked == ["pod"]
    assert [result.summary or result.content for result in looking.results] == ["pod is found"]
    assert len(server.requests) == 3
    second, third = (request.partition(b"\r\n\r\n")[2] for request in server.requests[1:])
    assert second == third
    assert b"pod is found" in third


# --- framing ------------------------------------------------------------------------------------


async def test_i06_a_clean_end_in_the_middle_of_a_call(dialect: Dialect) -> None:
    error, _ = await failed(dialect, dialect.half_call())
    assert isinstance(error, (StreamBroken, ProviderUnavailable))
    assert not getattr(error, "partial", None)


async def test_i06_in_a_run_no_tool_is_called(dialect: Dialect) -> None:
    asked = dialect.client(handler=Provider(dialect.half_call()), retry=ONCE)
    looking = Looking(asked)
    with pytest.raises((StreamBroken, ProviderUnavailable)):
        await looking.worker.run("Look up pod")
    await asked.aclose()
    assert (looking.looked, looking.results) == ([], [])


@pytest.mark.parametrize("size", [1, 3, 4096])
async def test_i14_i16_line_separators_and_split_characters(dialect: Dialect, size: int) -> None:
    async with serving(Reply(chunked(dialect.hello(TEXT, TEXT), size), then="keep")) as server:
        assert said(await ask(dialect.client(server.base_url))) == TEXT * 2


async def test_i16_data_without_a_space(dialect: Dialect) -> None:
    body = dialect.hello().replace(b"data: ", b"data:")
    assert said(await ask(dialect.client(handler=Provider(body)))) == "Hello"


async def test_i17_a_line_may_end_as_in_windows(dialect: Dialect) -> None:
    body = dialect.hello().replace(b"\n", b"\r\n")
    assert said(await ask(dialect.client(handler=Provider(body)))) == "Hello"


@pytest.mark.parametrize("dialect", EVENT_STREAMS, ids=str)
async def test_i17_a_line_of_events_may_end_with_a_carriage_return(dialect: Dialect) -> None:
    body = dialect.hello().replace(b"\n", b"\r")
    assert said(await ask(dialect.client(handler=Provider(body)))) == "Hello"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/html"])
async def test_i21_a_200_that_is_an_error_in_json(dialect: Dialect, content_type: str) -> None:
    body = {"error": {"message": "the model is not loaded", "code": 400}}
    for answer in (body, [body]):
        for indent in (None, 2):
            text = json.dumps(answer, indent=indent)
            reply = httpx.Response(200, text=text, headers={"content-type": content_type})
            error, asked = await failed(dialect, reply)
            assert isinstance(error, ProviderRefused), text
            assert "the model is not loaded" in error.message
            assert asked == 1


async def test_i21_a_200_that_is_a_page(dialect: Dialect) -> None:
    page = "\r\n<!DOCTYPE html><html><head><title>Sign in</title></head></html>"
    error, asked = await failed(dialect, httpx.Response(200, text=page))
    assert isinstance(error, BadAnswer)
    assert '"Sign in"' in error.message
    assert asked == 1


# --- silence ------------------------------------------------------------------------------------

IDLE_S = 0.3


def pinging(*pieces: bytes, then: str) -> Reply:
    return Reply([head(), *pieces], pause_s=0.02, then=then)


@pytest.mark.parametrize("what", ["nothing", "headers", "a beginning", "keep-alives"])
async def test_k12_silence_before_content_is_tried_again(dialect: Dialect, what: str) -> None:
    silent = {
        "nothing": Reply([], then="hold"),
        "headers": Reply([head()], then="hold"),
        "a beginning": Reply([head(), dialect.begin()], then="hold"),
        "keep-alives": pinging(dialect.keep_alive, then="repeat"),
    }[what]

    def script(number: int) -> Reply:
        return silent if number == 1 else Reply([head(), dialect.hello()])

    async with serving(script) as server:
        start = time.monotonic()
        events = await ask(dialect.client(server.base_url, idle_timeout_s=IDLE_S))
        assert time.monotonic() - start < 6
    assert said(events) == "Hello"
    (retry,) = retries(events)
    assert f"for {IDLE_S:g} s" in retry.reason


@pytest.mark.parametrize("is_kept_alive", [False, True])
async def test_k12_silence_after_content_is_the_end(
    dialect: Dialect, *, is_kept_alive: bool
) -> None:
    half = dialect.begin() + dialect.text("Half")
    reply = Reply([head(), half], then="hold")
    if is_kept_alive:
        reply = pinging(half, dialect.keep_alive, then="repeat")
    async with serving(reply) as server:
        start = time.monotonic()
        with pytest.raises(StreamBroken, match=r"fell silent for 0\.3 s") as error:
            await ask(dialect.client(server.base_url, idle_timeout_s=IDLE_S))
        assert time.monotonic() - start < 6
    assert len(server.requests) == 1
    assert error.value.partial is not None
    assert error.value.partial.parts == (Text("Half"),)


# --- addresses ----------------------------------------------------------------------------------


async def path_asked(dialect: Dialect, base: str) -> str:
    provider = Provider(dialect.hello())
    await ask(dialect.client(base, handler=provider))
    (request,) = provider.requests
    return request.url.path


@pytest.mark.parametrize("base", ["http://p.test/v1", "http://p.test/v1/"])
async def test_one_version_stands_in_the_path(dialect: Dialect, base: str) -> None:
    assert await path_asked(dialect, base) == dialect.url


async def test_where_the_address_names_no_version_the_dialect_does_if_it_has_one(
    dialect: Dialect,
) -> None:
    own = {
        "openai_compatible": "/chat/completions",
        "openai_responses": "/responses",
        "gemini": "/v1beta/models/m:streamGenerateContent",
    }
    assert await path_asked(dialect, "http://p.test") == own.get(dialect.provider, dialect.url)


async def test_what_is_accepted_is_what_the_dialect_sends(dialect: Dialect) -> None:
    provider = Provider(dialect.hello())
    await ask(dialect.client(handler=provider))
    accepted = provider.requests[0].headers["accept"]
    assert ("x-ndjson" in accepted) == (dialect is OLLAMA)
    assert ("event-stream" in accepted) == (dialect is not OLLAMA)


async def test_gemini_reports_between_events_are_read(dialect: Dialect) -> None:
    # What Gemini writes bare between its events (the other dialects' servers do not).
    words = GEMINI.error("UNAVAILABLE", "The model is overloaded.")
    body = dialect.begin() + dialect.text("Half") + words
    if dialect is OLLAMA:
        words = json.dumps(json.loads(words)).encode()
        body = dialect.begin() + dialect.text("Half") + words + b"\n"
    error, _ = await failed(dialect, body)
    assert isinstance(error, StreamBroken)
    assert "The model is overloaded." in error.message
    assert error.status == 503


async def test_a_request_of_another_provider_is_the_same(dialect: Dialect) -> None:
    provider = Provider(httpx.Response(503), dialect.hello())
    await ask(dialect.client(handler=provider), evolve(REQUEST, system="Be brief."))
    first, second = provider.requests
    assert first.content == second.content
    sent: dict[str, Any] = json.loads(first.content)
    assert "Be brief." in json.dumps(sent)
