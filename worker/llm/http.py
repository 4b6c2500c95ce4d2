"""Requests over HTTP: the one home of httpx.

`HttpClient` sends what a scheme encodes and feeds what comes back to its decoder. What failed
before any content is repeated, what failed after it never is, and no foreign error gets out.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial

import anyio
import httpx

from worker.errors import ProviderRefused
from worker.llm.adapting import Adapting
from worker.llm.attempt import Attempt, FailedAttempt, Lost, NotConnected
from worker.llm.endpoint import Endpoint, RetryPolicy, url_of
from worker.llm.failures import (
    Failure,
    after_attempts,
    bad_answer,
    masked,
    unavailable,
    unreachable,
    unusable,
)
from worker.llm.retries import OptionRefused, attempts
from worker.llm.scheme import Scheme
from worker.llm.types import LlmRequest, Retrying, StreamEvent
from worker.text import clean_text

_ACCEPTED = {
    "sse": "text/event-stream, application/json",
    "ndjson": "application/x-ndjson, application/json",
}

_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_UNUSABLE = (
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    httpx.LocalProtocolError,
    UnicodeEncodeError,  # a header that is not ASCII
)
_LOST = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    # Some connection losses reach us as they are, past httpx's own mapping.
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)
_OTHERS = (httpx.HTTPError, httpx.StreamError, httpx.CookieConflict)


# llama.cpp closes what was idle for 5 s, as httpx does: whoever asks just then asks a closed door.
_KEEP_ALIVE_S = 4.0


class HttpClient:
    """An `LlmClient` that reaches `endpoint` over HTTP and speaks `scheme`.

    The connection is opened with the first request and kept for the next ones. An option that the
    model refuses by name is left out from then on, and a `Retrying` tells of it. `sleep` and `now`
    (seconds since the epoch) are the clock of the retries; `transport` replaces the network.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        scheme: Scheme,
        *,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        now: Callable[[], float] = time.time,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._scheme = scheme
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._now = now
        self._transport = transport
        self._adapting = Adapting(scheme.encoder(endpoint.provider, endpoint.model))
        self._http: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"HttpClient({self._endpoint.provider}/{self._endpoint.model})"

    @property
    def provider(self) -> str:
        """The provider's kind."""
        return self._endpoint.provider

    @property
    def model(self) -> str:
        """The model's name."""
        return self._endpoint.model

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, where it is known."""
        return self._endpoint.context_window

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send `request` and yield what comes back; `Answered` is the last event.

        Close the generator (`contextlib.aclosing`) when leaving early: that ends the response.

        Raises:
            ProviderRefused: The request, or the key, is refused.
            ContextOverflow: The prompt does not fit the model's window.
            ProviderUnavailable: The provider failed before any content, also after all retries.
            ProviderUnreachable: No connection could be made, also after all retries.
            BadAnswer: What came back, before any content, is not the provider's protocol.
            StreamBroken: The answer failed after content had arrived; `partial` holds that.
        """
        begun: Attempt | None = None
        waits: list[Retrying] = []
        count = 0
        try:
            async for attempt in attempts(self._retry, waits):
                # tenacity decides, we wait: the event has to be out before the wait begins.
                for wait in waits:
                    yield wait
                    await self._sleep(wait.delay_s)
                waits.clear()

                count += 1
                with attempt:
                    begun = await self._begin(request)
                if begun is not None:
                    break
        except FailedAttempt as failed:
            raise after_attempts(failed.failure, count) from failed.__cause__

        if begun is not None:
            async with aclosing(begun):
                for event in begun.first:
                    yield event
                async for batch in begun.rest:
                    for event in batch:
                        yield event

    async def _begin(self, request: LlmRequest) -> Attempt:
        """Return an attempt whose first content has arrived."""
        body = self._adapting.encode(request)
        begun = Attempt(
            self._endpoint,
            self._scheme.decoder(self._endpoint.provider, self._endpoint.model),
            self._scheme.framing,
            translate=_translated,
            now_s=self._now,
        )
        try:
            with _translated(self._endpoint):
                sent = self._request(body)
            await begun.begin(partial(self._client().send, sent, stream=True), len(body))
        except FailedAttempt as failed:
            refused = failed.failure.refused
            if refused is not None and self._adapting.leave_out(refused, request, body):
                said = f"{failed}; {refused.name} is left out from now on"
                raise OptionRefused(failed, said) from failed
            raise

        return begun

    def _request(self, body: bytes) -> httpx.Request:
        endpoint = self._endpoint
        key = endpoint.key_text
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            refused = ProviderRefused(
                f"the key from {endpoint.key_source} cannot be sent: it has a character that no"
                " key has, such as a space or a line break",
                provider=endpoint.provider,
                hint=f"check {endpoint.key_source}",
            )
            raise FailedAttempt(Failure(refused))

        headers = httpx.Headers(dict(self._scheme.headers(key or None)))
        headers.update(
            {
                "Content-Type": "application/json",
                "Accept": _ACCEPTED[self._scheme.framing],
                # A compressed stream arrives late, in blocks, and can be a bomb.
                "Accept-Encoding": "identity",
                "User-Agent": "podworker",
            }
        )
        headers.update(dict(endpoint.headers))
        url = url_of(
            endpoint.base_url,
            self._scheme.path(endpoint.model),
            is_unversioned=self._scheme.is_unversioned,
        )
        return self._client().build_request("POST", url, content=body, headers=headers)

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            endpoint = self._endpoint
            # Silence is told by events, not by bytes: `Attempt` measures it.
            timeout = httpx.Timeout(None, connect=endpoint.connect_timeout_s)
            try:
                self._http = httpx.AsyncClient(
                    timeout=timeout,
                    limits=httpx.Limits(keepalive_expiry=_KEEP_ALIVE_S),
                    transport=self._transport,
                    follow_redirects=False,
                )
            # Only the environment's proxies are read here. httpx shows no password of theirs.
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                refused = ProviderRefused(
                    f"the proxy that the environment names cannot be used: {_words(error)}",
                    provider=endpoint.provider,
                    hint="correct HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or set NO_PROXY",
                )
                raise FailedAttempt(Failure(refused)) from error

        return self._http

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


@contextmanager
def _translated(endpoint: Endpoint) -> Iterator[None]:
    """Turn whatever httpx and its kin raise into a `FailedAttempt`."""
    try:
        yield
    except _NOT_CONNECTED as error:
        raise NotConnected(unreachable(endpoint, error)) from error
    except _UNUSABLE:
        # Without its words and cause: they may quote a header, and so the key.
        raise FailedAttempt(unusable(endpoint)) from None
    except _LOST as error:
        what = f"broke the connection ({_words(error)})"
        raise Lost(unavailable(endpoint, what)) from error
    except (*_OTHERS, zlib.error) as error:
        what = f"answered in a way that cannot be read ({_words(error)})"
        failure = Failure(masked(bad_answer(endpoint.provider, what), endpoint))
        raise FailedAttempt(failure) from error


def _words(error: Exception) -> str:
    return clean_text(str(error)) or type(error).__name__
