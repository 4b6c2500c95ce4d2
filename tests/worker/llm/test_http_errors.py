"""What a refusal says: the provider's own words, what can be done, and never the key."""

from __future__ import annotations

import asyncio
import inspect
import socket
import traceback
from typing import Any

import anyio
import httpx
import httpx_sse
import pytest

from tests.worker.llm.client import KEY, ONCE, Clock, Pieces, ask, client, endpoint
from tests.worker.llm.wire import Reply, chunk, head, hello, serving, sse
from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamBroken,
)

pytestmark = pytest.mark.anyio


async def error_of(answer: httpx.Response | Exception, **changes: Any) -> ProviderError:
    """The error that a request ends with whose only answer is `answer`."""

    def handler(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ProviderError) as failed:
        await ask(client(handler=handler, retry=ONCE, **changes))
    return failed.value


def refusal(status: int, message: str, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message, **fields}})


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told_by_its_source_and_masked(status: int) -> None:
    answer = refusal(status, f"Invalid API key: {KEY}.", type="authentication_error")
    error = await error_of(answer)
    assert isinstance(error, ProviderRefused)
    assert error.is_auth
    assert "the variable FAKE_KEY" in error.message
    assert "Invalid API key: [key]." in error.message
    assert "the variable FAKE_KEY" in error.hint
    assert (error.status, error.code) == (status, "authentication_error")
    assert KEY not in "".join(traceback.format_exception(error))


async def test_a_missing_key_is_told_as_missing() -> None:
    error = await error_of(refusal(401, "no key"), api_key=None)
    assert "none was sent" in error.message
    assert "api_key_env" in error.hint


async def test_secret_headers_are_masked_too() -> None:
    error = await error_of(
        refusal(403, "token hidden-token-1 is unknown"), headers={"X-Token": "hidden-token-1"}
    )
    assert "token [key] is unknown" in error.message


@pytest.mark.parametrize("where", ["status", "stream", "code", "page", "garbage"])
async def test_the_key_is_masked_wherever_it_comes_back(where: str) -> None:
    answer = {
        "status": httpx.Response(500, text=f"trace: Bearer {KEY}"),
        "stream": httpx.Response(200, content=sse({"error": {"message": f"bad {KEY}"}})),
        "code": httpx.Response(400, json={"error": {"message": "x", "code": KEY}}),
        "page": httpx.Response(200, text=f"<title>{KEY}</title>"),
        "garbage": httpx.Response(200, content=sse(f"garbage {KEY}")),
    }[where]
    error = await error_of(answer)
    assert KEY not in f"{error} {error.message} {error.hint} {error.code} {error.args}"


async def test_an_address_that_does_not_exist_is_named_without_its_secrets() -> None:
    error = await error_of(
        refusal(404, "no such route"), base_url="http://joe:pass@provider.test/v2?token=t"
    )
    assert isinstance(error, ProviderRefused)
    assert "http://provider.test/v2, m" in error.message
    assert "no such route" in error.message
    assert "provider.base_url" in error.hint
    assert "pass" not in error.message
    assert "token" not in error.message


async def test_a_redirect_is_not_followed() -> None:
    answer = httpx.Response(301, headers={"location": "https://new.test/v1"})
    error = await error_of(answer)
    assert isinstance(error, ProviderRefused)
    assert "https://new.test/v1" in error.message
    assert "provider.base_url" in error.hint


async def test_a_400_without_a_word_says_status_model_and_size() -> None:
    error = await error_of(httpx.Response(400, content=b""), model="the-model")
    assert isinstance(error, ProviderRefused)
    assert "(400)" in error.message
    assert "model the-model" in error.message
    assert "bytes" in error.message
    assert "too large" in error.hint


async def test_no_credit_is_a_refusal() -> None:
    for answer in (
        refusal(429, "You exceeded your current quota", code="insufficient_quota"),
        refusal(402, "Insufficient Balance"),
    ):
        error = await error_of(answer)
        assert isinstance(error, ProviderRefused)
        assert "no credit" in error.hint


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error":{"message":"bad temperature"}}', "bad temperature"),
        ('{"error":"model not loaded"}', "model not loaded"),
        ('{"object":"error","message":"bad field","code":400}', "bad field"),
        ('{"detail":"Not allowed"}', "Not allowed"),
        ('{"detail":[{"loc":["body"],"msg":"field required"}]}', "field required"),
        ('{"message":"nope"}', "nope"),
        ('{"type":"error","error":{"type":"x","message":"inner"}}', "inner"),
        ('[{"error":{"message":"in a list","status":"INVALID_ARGUMENT"}}]', "in a list"),
        (
            '{"error":{"message":"Provider returned error","metadata":{"raw":"the real one"}}}',
            "Provider returned error: the real one",
        ),
        ("plain words\nand more", "plain words"),
        ("<html><head><title>502 Bad Gateway</title></head></html>", '"502 Bad Gateway"'),
        ("<html></html>", "an HTML page"),
        ('{"error":{"message":{"nested":"object"}}}', '"nested": "object"'),
    ],
)
async def test_every_shape_of_error_is_read(body: str, said: str) -> None:
    error = await error_of(httpx.Response(400, text=body))
    assert said in error.message


async def test_a_very_long_error_is_cut() -> None:
    error = await error_of(refusal(400, "x" * 3_000_000))
    assert len(error.message) < 1200


async def test_a_200_that_is_an_error_in_json_is_typed() -> None:
    answer = httpx.Response(200, json={"error": {"message": "bad model", "code": 404}})
    error = await error_of(answer)
    assert isinstance(error, ProviderRefused)
    assert "bad model" in error.message


@pytest.mark.parametrize("content_type", ["text/html", "text/event-stream", "application/json"])
async def test_a_200_that_is_a_page_is_typed(content_type: str) -> None:
    page = "\n <!doctype html><title>Sign in to the network</title>"
    answer = httpx.Response(200, text=page, headers={"content-type": content_type})
    error = await error_of(answer)
    assert isinstance(error, BadAnswer)
    assert "Sign in to the network" in error.message
    assert "provider.base_url" in error.hint


async def test_json_that_is_no_answer_is_typed() -> None:
    error = await error_of(httpx.Response(200, json={"models": []}))
    assert isinstance(error, BadAnswer)
    assert "models" in error.message


# --- overflow through the client ----------------------------------------------------------------

OVERFLOW = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."


@pytest.mark.parametrize("status", [400, 413, 422, 500, 503])
async def test_an_overflow_is_one_whatever_its_status(status: int) -> None:
    error = await error_of(refusal(status, OVERFLOW))
    assert isinstance(error, ContextOverflow)
    assert error.limit_tokens == 8192
    assert error.status == status
    assert "8192" in error.message
    assert "compact" in error.hint


async def test_an_overflow_inside_a_stream_is_one() -> None:
    body = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    error = await error_of(httpx.Response(200, content=sse(body)))
    assert isinstance(error, ContextOverflow)


async def test_an_overflow_after_content_is_a_broken_stream() -> None:
    body = sse(chunk({"content": "Half"}), {"error": {"message": OVERFLOW}})
    error = await error_of(httpx.Response(200, content=body))
    assert isinstance(error, StreamBroken)
    assert error.partial is not None


# --- no foreign error gets out ------------------------------------------------------------------


def subclasses(cls: type[BaseException]) -> list[type[BaseException]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in subclasses(sub))]


def foreign_errors() -> list[type[BaseException]]:
    """Every error class of httpx and httpx_sse, and what gets past them."""
    found = [
        value
        for module in (httpx, httpx_sse)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    roots = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, httpx.CookieConflict)
    found += [sub for root in roots for sub in subclasses(root)]
    found += [
        OSError,
        ConnectionResetError,
        TimeoutError,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
        anyio.EndOfStream,
    ]
    return sorted(set(found), key=lambda cls: cls.__name__)


def made(cls: type[BaseException]) -> BaseException:
    if issubclass(cls, httpx.HTTPStatusError):
        request = httpx.Request("POST", "http://provider.test")
        return cls("status", request=request, response=httpx.Response(500, request=request))
    if issubclass(cls, (httpx.StreamConsumed, httpx.StreamClosed)) or cls in (
        httpx.ResponseNotRead,
        httpx.RequestNotRead,
    ):
        return cls()
    return cls("it went wrong")


def test_the_list_of_foreign_errors_is_not_empty() -> None:
    assert len(foreign_errors()) > 25


@pytest.mark.parametrize("cls", foreign_errors(), ids=lambda cls: cls.__name__)
async def test_every_foreign_error_is_translated_before_content(cls: type[BaseException]) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise made(cls)

    with pytest.raises(ProviderError) as failed:
        await ask(client(handler=handler, retry=ONCE))
    assert type(failed.value) is not ProviderError
    assert "openai_compatible" in failed.value.message or "no request" in failed.value.message


@pytest.mark.parametrize("cls", foreign_errors(), ids=lambda cls: cls.__name__)
async def test_every_foreign_error_is_translated_after_content(cls: type[BaseException]) -> None:
    half = sse(chunk({"content": "Half"}), done=False)
    error = await error_of(httpx.Response(200, stream=Pieces([half], made(cls))))
    assert isinstance(error, StreamBroken)
    assert error.partial is not None


async def test_a_connection_that_cannot_be_made_is_told_in_the_systems_words() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    # `localhost` may be several addresses, each with an error of its own.
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(ProviderUnreachable, match=r"\(Connection refused\)"):
            await ask(client(f"http://{host}:{port}/v1", retry=ONCE))


async def test_an_error_of_our_own_is_not_hidden() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask(client(handler=handler))


async def test_an_address_without_a_scheme_is_told() -> None:
    # No handler: httpx itself refuses it.
    with pytest.raises(ProviderRefused, match="malformed") as failed:
        await ask(client("localhost:8080/v1"))
    assert "http://" in failed.value.hint


@pytest.mark.parametrize("value", ["secret-value\nmore", "secret-value\u20ac"])
async def test_a_malformed_header_is_told_without_quoting_it(value: str) -> None:
    async with serving(Reply([head(), hello()])) as server:
        with pytest.raises(ProviderRefused, match="malformed") as failed:
            await ask(client(server.base_url, headers={"X-Token": value}))
    assert "secret-value" not in "".join(traceback.format_exception(failed.value))


def test_an_address_that_cannot_be_read_is_not_shown() -> None:
    assert endpoint("http://joe:pass@[bad/v1").shown_url == "an address that cannot be read"


async def test_an_unavailable_provider_is_named_as_such() -> None:
    error = await error_of(refusal(503, "busy", code="overloaded"))
    assert isinstance(error, ProviderUnavailable)
    assert (error.provider, error.status, error.code) == ("openai_compatible", 503, "overloaded")


@pytest.mark.parametrize("proxy", ["ftp://user:secret@x:1", "socks5://127.0.0.1:9", "http://[::1"])
async def test_a_proxy_that_cannot_be_used_is_told(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(ProviderRefused, match="the proxy that the environment names") as error:
        await ask(client("http://provider.invalid/v1"))
    assert "HTTP_PROXY" in error.value.hint
    assert "secret" not in error.value.message


async def test_a_server_that_speaks_no_tls_is_told_at_once() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        clock = Clock()
        with pytest.raises(ProviderUnreachable, match="WRONG_VERSION_NUMBER"):
            await ask(client(f"https://127.0.0.1:{port}/v1", clock=clock))
    assert clock.slept == []
