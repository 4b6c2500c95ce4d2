"""What servers send beside what is documented, in every dialect: siblings of (i) and (j)."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.worker.llm.client import ONCE, Clock, Provider, ask, retries, said
from tests.worker.llm.dialects import (
    ANTHROPIC,
    CHAT,
    EVENT_STREAMS,
    OLLAMA,
    Dialect,
    failed,
)
from tests.worker.llm.wire import Reply, chunked, head, serving
from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderRefused,
    ProviderUnavailable,
    StreamBroken,
)
from worker.items import Text
from worker.llm import Answered

pytestmark = pytest.mark.anyio


# --- framing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", EVENT_STREAMS, ids=str)
@pytest.mark.parametrize("data", ["null", "{}", " ", "ping", '"ping"', "heartbeat", "keep-alive"])
async def test_i14_data_that_says_nothing_is_left_out(dialect: Dialect, data: str) -> None:
    nothing = dialect.event(data) + b"event: ping\nid: 3\nretry: 100\n\n: comment\n\n"
    body = nothing + dialect.begin() + dialect.text("Hel") + nothing + dialect.text("lo")
    assert said(await ask(dialect.client(handler=Provider(body + dialect.end())))) == "Hello"


@pytest.mark.parametrize("missing", [1, 2])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
async def test_i17_the_last_event_needs_no_line_end(
    dialect: Dialect, missing: int, newline: bytes
) -> None:
    body = dialect.hello().replace(b"data: [DONE]\n\n", b"").replace(b"\n", newline)
    body = body[: -len(newline) * missing] if dialect is not OLLAMA else body.rstrip()
    assert said(await ask(dialect.client(handler=Provider(body)))) == "Hello"


async def test_i06_the_last_event_is_not_taken_where_it_may_be_cut(dialect: Dialect) -> None:
    body = dialect.begin() + dialect.text("Hel") + dialect.text("lo").rstrip()[:-1]
    error, _ = await failed(dialect, body)
    assert isinstance(error, StreamBroken)
    assert error.partial is not None
    assert error.partial.parts == (Text("Hel"),)


@pytest.mark.parametrize("junk", ["oops", "[1", "<html>", "undefined"])
async def test_i06_what_is_no_report_behind_the_end_takes_nothing_back(
    dialect: Dialect, junk: str
) -> None:
    body = dialect.hello().replace(b"data: [DONE]\n\n", b"") + dialect.event(junk)
    assert said(await ask(dialect.client(handler=Provider(body)))) == "Hello"


@pytest.mark.parametrize("words", ["upstream connect error or disconnect", "no healthy upstream"])
async def test_i21_a_200_that_is_plain_text_is_told(dialect: Dialect, words: str) -> None:
    reply = httpx.Response(200, text=f"\n{words}\nand more")
    error, asked = await failed(dialect, reply)
    assert isinstance(error, BadAnswer)
    assert words in error.message
    assert asked == 1


async def assert_asked_again(dialect: Dialect, body: bytes) -> None:
    events = await ask(dialect.client(handler=Provider(body, dialect.hello()), clock=Clock()))
    assert said(events) == "Hello"
    assert len(retries(events)) == 1


@pytest.mark.parametrize("body", [b"", b" \r\n\r\n", b"\xef\xbb\xbf"])
async def test_i21_a_200_without_an_event_is_asked_again(dialect: Dialect, body: bytes) -> None:
    await assert_asked_again(dialect, body)


@pytest.mark.parametrize("dialect", EVENT_STREAMS, ids=str)
@pytest.mark.parametrize("body", [b": comment\n\n", b"dat"])
async def test_i21_a_comment_or_half_a_line_is_no_event(dialect: Dialect, body: bytes) -> None:
    await assert_asked_again(dialect, body)


@pytest.mark.parametrize("encoding", ["none", "UTF-8", "identity, identity"])
async def test_a_header_that_names_no_compression_is_no_compression(
    dialect: Dialect, encoding: str
) -> None:

    raw = head(content_encoding=encoding) + dialect.hello()
    async with serving(Reply([raw])) as server:
        assert said(await ask(dialect.client(server.base_url))) == "Hello"


async def test_compression_that_nobody_asked_for_may_come_in_members(dialect: Dialect) -> None:
    pieces = (dialect.begin(), dialect.text("Hel"), dialect.text("lo"), dialect.end())
    raw = head(content_encoding="gzip") + b"".join(map(gzip.compress, pieces))
    async with serving(Reply([raw[at : at + 7] for at in range(0, len(raw), 7)])) as server:
        assert said(await ask(dialect.client(server.base_url))) == "Hello"


# --- connections --------------------------------------------------------------------------------


async def test_http_1_0_without_a_length_ends_with_the_connection(dialect: Dialect) -> None:
    raw = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + dialect.hello()
    async with serving(Reply([raw])) as server:
        assert said(await ask(dialect.client(server.base_url))) == "Hello"


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 200 OK\r\ncontent-ty",
        b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ],
    ids=["in the headers", "a length that is not kept", "in a chunk", "204", "another protocol"],
)
async def test_j14_a_response_that_breaks_before_content(dialect: Dialect, broken: bytes) -> None:
    def script(number: int) -> Reply:
        return Reply([broken] if number == 1 else chunked(dialect.hello(), 9), then="close")

    async with serving(script) as server:
        events = await ask(dialect.client(server.base_url))
    assert said(events) == "Hello"
    assert len(retries(events)) == 1


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_told_and_not_followed(dialect: Dialect, status: int) -> None:
    reply = httpx.Response(status, headers={"location": "https://elsewhere.test/v1"})
    error, asked = await failed(dialect, reply)
    assert isinstance(error, ProviderRefused)
    assert "elsewhere.test" in error.message
    assert asked == 1


# --- errors inside a stream ---------------------------------------------------------------------

REPORTS: list[Any] = [
    {"error": [{"message": "field x is wrong", "code": 400}]},
    {"error": 400, "message": "field x is wrong"},
    {"error": {"code": "invalid_request_error", "msg": "field x is wrong"}},
    {"errors": [{"message": "field x is wrong", "type": "invalid_request_error"}]},
    {"code": "InvalidParameter", "message": "field x is wrong"},
    {"error": json.dumps({"error": {"message": "field x is wrong", "code": 400}})},
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: json.dumps(report)[:40])
async def test_j17_an_error_in_any_shape_is_one(dialect: Dialect, report: Any) -> None:
    for body in (
        dialect.event(report),
        dialect.begin() + dialect.event(report),
        json.dumps(report, indent=1).encode(),
    ):
        error, asked = await failed(dialect, body)
        assert isinstance(error, ProviderRefused), body
        assert "field x is wrong" in error.message
        assert asked == 1

    error, _ = await failed(dialect, dialect.begin() + dialect.text("Hi") + dialect.event(report))
    assert isinstance(error, StreamBroken)
    assert "field x is wrong" in error.message


async def test_j07_an_overflow_inside_a_string_inside_a_list(dialect: Dialect) -> None:
    inner = json.dumps({"error": {"code": "context_length_exceeded", "message": "too long"}})
    error, asked = await failed(dialect, dialect.event({"error": [{"message": inner}]}))
    assert isinstance(error, ContextOverflow)
    assert asked == 1


@pytest.mark.parametrize("value", ["9" * 23, "30 days"])
async def test_j03_a_huge_wait_in_any_form_fails_fast(dialect: Dialect, value: str) -> None:
    clock = Clock()
    provider = Provider(httpx.Response(429, headers={"retry-after": value}))
    with pytest.raises(ProviderUnavailable, match="asks to wait"):
        await ask(dialect.client(handler=provider, clock=clock))
    assert (len(provider.requests), clock.slept) == (1, [])


# --- usage --------------------------------------------------------------------------------------


def measured(dialect: Dialect) -> tuple[bytes, int, int | None]:
    """An answer that counts tokens as its provider does; the prompt, and what of it was cached."""
    openai: dict[str, Any] = {"cached_tokens": 38_153}
    hello = dialect.hello().decode()
    if dialect is CHAT:
        usage: dict[str, Any] = {"prompt_tokens": 38_196, "completion_tokens": 500}
        chunk = {"choices": [], "usage": usage | {"prompt_tokens_details": openai}}
        return (
            dialect.hello().replace(b"data: [DONE]\n\n", dialect.event(chunk)),
            38_196,
            38_153,
        )
    if dialect is ANTHROPIC:
        start: dict[str, Any] = {"input_tokens": 200, "cache_read_input_tokens": 150_000}
        counts = json.dumps(start | {"cache_creation_input_tokens": 2000})
        hello = hello.replace('{"input_tokens": 9}', counts)
        return (
            hello.replace('"output_tokens": 2', '"output_tokens": 500').encode(),
            152_200,
            150_000,
        )
    if dialect is OLLAMA:
        hello = hello.replace('"prompt_eval_count": 9', '"prompt_eval_count": 38196')
        return hello.replace('"eval_count": 2', '"eval_count": 500').encode(), 38_196, None
    if dialect.provider == "gemini":
        output = {"candidatesTokenCount": 100, "thoughtsTokenCount": 400}
        sent = {"promptTokenCount": 38_196, "cachedContentTokenCount": 38_153}
        return dialect.hello() + dialect.event({"usageMetadata": sent | output}), 38_196, 38_153
    usage = {"input_tokens": 38_196, "input_tokens_details": openai, "output_tokens": 500}
    return hello.replace('"usage": null', f'"usage": {json.dumps(usage)}').encode(), 38_196, 38_153


async def test_d03_d05_what_was_cached_is_counted_once(dialect: Dialect) -> None:
    """D03, D05: added where the provider counts it apart, and nowhere else."""
    body, prompt, cached = measured(dialect)
    events = await ask(dialect.client(handler=Provider(body)))
    assert isinstance(events[-1], Answered)
    usage = events[-1].answer.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read) == (prompt, 500, cached)


async def test_i25_an_answer_that_counts_nothing_has_no_usage(dialect: Dialect) -> None:
    """I25: None, in every dialect, and never 0."""
    hello = dialect.hello().decode()
    for counted in ('"usage": {"prompt_tokens": 9, "completion_tokens": 2}', '"input_tokens": 9'):
        hello = hello.replace(counted, '"nothing": 0')
    for counted in ('"output_tokens": 2', '"prompt_eval_count": 9, "eval_count": 2'):
        hello = hello.replace(counted, '"nothing": 0')
    events = await ask(dialect.client(handler=Provider(hello.encode()), retry=ONCE))
    assert isinstance(events[-1], Answered)
    assert events[-1].answer.usage is None
