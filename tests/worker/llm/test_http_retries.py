"""What is repeated, how often and after how long; and what never is."""

from __future__ import annotations

import email.utils
from typing import Any

import httpx
import pytest

from tests.worker.llm.client import (
    KEY,
    NOW_S,
    REQUEST,
    Clock,
    Pieces,
    Provider,
    answering,
    ask,
    client,
    endpoint,
    retries,
)
from tests.worker.llm.wire import call_delta, chunk, hello, sse
from worker.errors import (
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamBroken,
)
from worker.items import Text, ToolCall
from worker.llm import Answered, HttpClient, OpenAiChatScheme, RetryPolicy, TextDelta
from worker.llm.waits import parse_retry_after

pytestmark = pytest.mark.anyio

OK = httpx.Response(200, content=hello())


def failing(status: int, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx.Response(status, json=body or {"error": {"message": "busy"}}, headers=named)


def streamed_error(error: object) -> httpx.Response:
    return httpx.Response(200, content=sse({"error": error}))


async def waits_after(answer: httpx.Response | Exception) -> list[float]:
    """The waits of a request whose first answer is `answer` and whose second one is good."""
    clock = Clock()
    events = await ask(client(handler=Provider(answer, OK), clock=clock))
    assert isinstance(events[-1], Answered)
    assert [retry.delay_s for retry in retries(events)] == clock.slept
    return clock.slept


@pytest.mark.parametrize(
    "answer",
    [
        failing(429),
        failing(500),
        failing(502),
        failing(503),
        failing(529),
        failing(408),
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout(""),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("peer closed connection without sending complete message body"),
        httpx.Response(200, content=b""),
        httpx.Response(200, content=b": keep-alive\n\n"),
        httpx.Response(200, content=sse(chunk({"role": "assistant"}), done=False)),
        streamed_error({"message": "Overloaded", "code": "server_is_overloaded"}),
        streamed_error({"message": "Overloaded", "type": "overloaded_error"}),
        streamed_error({"message": "try later", "code": 502}),
        streamed_error("something unheard of"),
    ],
    ids=str,
)
async def test_what_failed_before_any_content_is_repeated(
    answer: httpx.Response | Exception,
) -> None:
    (wait,) = await waits_after(answer)
    assert 0.5 <= wait <= 1.0


@pytest.mark.parametrize(
    "answer",
    [
        failing(400),
        failing(401),
        failing(402),
        failing(403),
        failing(404),
        failing(413),
        failing(422),
        failing(501),
        failing(429, {"error": {"message": "no credit", "code": "insufficient_quota"}}),
        streamed_error({"message": "bad field", "type": "invalid_request_error"}),
        streamed_error({"message": "bad field", "code": 400}),
        httpx.Response(200, text="<html><title>Welcome</title>"),
        httpx.Response(200, json={"hello": "world"}),
        httpx.Response(200, content=sse("no json")),
        httpx.Response(302, headers={"location": "https://elsewhere.test/v1"}),
        httpx.UnsupportedProtocol("no scheme"),
        httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
    ],
    ids=str,
)
async def test_what_would_fail_again_is_not_repeated(answer: httpx.Response | Exception) -> None:
    provider = Provider(answer)
    clock = Clock()
    with pytest.raises(ProviderError):
        await ask(client(handler=provider, clock=clock))
    assert (len(provider.requests), clock.slept) == (1, [])


async def test_a_retry_is_told_before_the_wait_and_counted_from_one() -> None:
    waiting: list[str] = []

    async def sleep(delay_s: float) -> None:
        waiting.append("waited")

    transport = answering(Provider(failing(503), failing(503), OK))
    asked = HttpClient(endpoint(), OpenAiChatScheme(), sleep=sleep, transport=transport)
    seen = []
    async for event in asked.stream(REQUEST):
        seen.append((type(event).__name__, len(waiting)))
        for retry in retries([event]):
            assert retry.attempt == len(waiting) + 1
            assert "503" in retry.reason
            assert "busy" in retry.reason
    await asked.aclose()
    assert seen == [("Retrying", 0), ("Retrying", 1), ("TextDelta", 2), ("Answered", 2)]


async def test_waits_double_and_end_with_an_error_that_says_how_often() -> None:
    provider, clock = Provider(failing(503)), Clock()
    with pytest.raises(ProviderUnavailable, match=r"503.*busy.*tried 6 times") as failed:
        await ask(client(handler=provider, clock=clock))
    assert len(provider.requests) == 6
    for wait, least in zip(clock.slept, (0.5, 1, 2, 4, 8), strict=True):
        assert least <= wait <= least + 0.5
    assert failed.value.status == 503


async def test_an_unreachable_host_is_told_sooner() -> None:
    provider, clock = Provider(httpx.ConnectError("Connection refused")), Clock()
    with pytest.raises(ProviderUnreachable, match=r"provider\.test/v1 \(Connection refused\)") as e:
        await ask(client(handler=provider, clock=clock))
    assert len(provider.requests) == 4
    assert "base_url" in e.value.hint


async def test_all_waits_together_are_bounded() -> None:
    provider, clock = Provider(failing(503)), Clock()
    policy = RetryPolicy(max_attempts=100, max_wait_s=20, total_wait_s=30)
    with pytest.raises(ProviderUnavailable):
        await ask(client(handler=provider, clock=clock, retry=policy))
    assert 15 <= sum(clock.slept) <= 30


# --- Retry-After --------------------------------------------------------------------------------


def date(offset_s: float) -> str:
    return email.utils.formatdate(NOW_S + offset_s, usegmt=True)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("0", 0.1),
        (date(12), 12.0),
        (date(-3600), 0.1),
        ("90", 60.0),
        (date(100), 60.0),
    ],
)
async def test_retry_after_is_honoured_in_both_forms(header: str, wait_s: float) -> None:
    assert await waits_after(failing(429, retry_after=header)) == [pytest.approx(wait_s)]


@pytest.mark.parametrize(
    "header",
    ["Wed, 99 Foo", "-5", "soon", "", "nan", "inf", "1e3", "٣", "Wed, 99 Nov 2026 99:99:99 GMT"],
)
async def test_an_unusable_retry_after_means_backoff(header: str) -> None:
    headers = [(b"retry-after", header.encode())]
    provider, clock = Provider(httpx.Response(429, headers=headers, content=b""), OK), Clock()
    await ask(client(handler=provider, clock=clock))
    (wait,) = clock.slept
    assert 0.5 <= wait <= 1.0


@pytest.mark.parametrize("header", ["9999999999", "3600", date(86_400), "9" * 15])
async def test_a_wait_that_is_too_long_fails_at_once_and_is_named(header: str) -> None:
    provider, clock = Provider(failing(429, retry_after=header)), Clock()
    with pytest.raises(ProviderUnavailable, match="asks to wait") as failed:
        await ask(client(handler=provider, clock=clock))
    assert (len(provider.requests), clock.slept) == (1, [])
    assert failed.value.retry_after_s == parse_retry_after(header, now_s=NOW_S)


# --- after content ------------------------------------------------------------------------------


def dropping(data: bytes) -> httpx.Response:
    error = httpx.RemoteProtocolError("peer closed connection")
    return httpx.Response(200, stream=Pieces([data], error))


async def broken(*parts: dict[str, Any]) -> StreamBroken:
    """The error of an answer that drops after `parts`, asked for exactly once."""
    asked = 0

    def provide(_: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        return dropping(sse(*parts, done=False))

    with pytest.raises(StreamBroken) as failed:
        await ask(client(handler=provide))
    assert asked == 1
    return failed.value


async def test_a_drop_after_content_is_partial_and_not_repeated() -> None:
    error = await broken(chunk({"content": "Half an ans"}))
    assert error.partial is not None
    assert error.partial.parts == (Text("Half an ans"),)
    assert error.partial.stop_reason == "partial"
    assert "peer closed connection" in error.message


async def test_a_drop_in_a_call_leaves_no_call() -> None:
    error = await broken(chunk(call_delta(0, "a", "write", '{"text":"hal')))
    assert error.partial is None


async def test_an_error_after_content_keeps_the_providers_words() -> None:
    data = sse(chunk({"content": "Half"}), {"error": {"message": "upstream died", "code": 502}})
    with pytest.raises(StreamBroken, match="upstream died") as failed:
        await ask(client(handler=lambda _: httpx.Response(200, content=data)))
    assert failed.value.status == 502


async def test_a_stream_that_ends_early_after_content_is_broken() -> None:
    data = sse(chunk({"content": "Half"}), done=False)
    with pytest.raises(StreamBroken, match="in the middle") as failed:
        await ask(client(handler=lambda _: httpx.Response(200, content=data)))
    assert failed.value.partial is not None


async def test_a_drop_after_the_finish_reason_takes_nothing_away() -> None:
    data = sse(chunk({"content": "Whole"}), chunk(finish="stop"), done=False)
    events = await ask(client(handler=lambda _: dropping(data)))
    assert isinstance(events[-1], Answered)
    assert events[-1].answer.parts == (Text("Whole"),)


async def test_nothing_of_a_failed_attempt_remains() -> None:
    # Headers only, then a role, then everything: what came before must not be mixed in.
    first = dropping(sse(chunk({"role": "assistant"}), done=False))
    second = httpx.Response(
        200, content=sse(chunk(call_delta(0, "a", "f", '{"a":2}')), chunk(finish="tool_calls"))
    )
    answers = iter([first, second])
    events = await ask(client(handler=lambda _: next(answers)))
    assert isinstance(events[-1], Answered)
    (call,) = events[-1].answer.parts
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"a":2}'


# --- the request itself -------------------------------------------------------------------------


async def test_every_attempt_sends_the_same_bytes_and_headers() -> None:
    provider = Provider(failing(503), OK)
    await ask(
        client("http://provider.test/v1/?api=2", handler=provider, headers={"X-Team": "pods"})
    )
    first, second = provider.requests
    assert first.content == second.content
    assert str(first.url) == "http://provider.test/v1/chat/completions?api=2"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.headers["accept-encoding"] == "identity"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["x-team"] == "pods"


async def test_without_a_key_none_is_sent() -> None:
    provider = Provider(OK)
    await ask(client(handler=provider, api_key=None))
    assert "authorization" not in provider.requests[0].headers


@pytest.mark.parametrize("key", ["sk-12345678\n", "sk 12345678", "sk-1234567€"])
async def test_a_key_that_cannot_be_sent_is_told_by_its_source(key: str) -> None:
    provider = Provider(OK)
    with pytest.raises(ProviderRefused, match="the variable FAKE_KEY") as failed:
        await ask(client(handler=provider, api_key=key))
    assert not provider.requests
    assert key.strip() not in str(failed.value)


async def test_the_client_says_what_it_is_and_hides_its_key() -> None:
    asked = client(context_window=8192, headers={"X-Secret": "hidden-header"})
    assert (asked.provider, asked.model) == ("openai_compatible", "m")
    assert asked.context_window == 8192
    for text in (repr(asked), str(asked), repr(endpoint(headers={"X-Secret": "hidden-header"}))):
        assert KEY not in text
        assert "hidden-header" not in text
    await asked.aclose()
    await asked.aclose()


async def test_a_client_can_ask_again_also_after_it_was_closed() -> None:
    asked = client(handler=Provider(OK))
    assert isinstance((await ask(asked))[0], TextDelta)
    assert isinstance((await ask(asked))[0], TextDelta)
