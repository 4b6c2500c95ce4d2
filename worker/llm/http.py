"""Requests over HTTP: the one home of httpx, httpx_sse and tenacity.

`HttpClient` sends what a scheme encodes and feeds what comes back to its decoder. What failed
before any content is repeated, what failed after it never is, and no foreign error gets out.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress

import anyio
import httpx
import httpx_sse
import tenacity

from worker.errors import ProviderError, ProviderRefused, StreamBroken
from worker.llm.body import Body
from worker.llm.endpoint import Endpoint, RetryPolicy
from worker.llm.failures import (
    Failure,
    Report,
    ReportedError,
    after_attempts,
    bad_answer,
    classify,
    masked,
    read_report,
    stream_broken,
    unavailable,
    unreachable,
    unusable,
)
from worker.llm.scheme import Decoder, Scheme
from worker.llm.types import Answer, Answered, LlmRequest, Retrying, StreamEvent
from worker.text import clean_text

_WHOLE = (b"{", b"[", b"<")  # what a body begins with that is no stream of events
_DRAIN_S = 0.25

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


class _Failed(Exception):
    """A request failed, and it is known what that means."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


class _NotConnected(_Failed):
    """No connection could be made."""


class _Lost(_Failed):
    """The connection was lost or fell silent."""


class HttpClient:
    """An `LlmClient` that reaches `endpoint` over HTTP and speaks `scheme`.

    The connection is opened with the first request and kept for the next ones. `sleep` and `now`
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
        self._encoder = scheme.encoder(endpoint.provider, endpoint.model)
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
        body = self._encoder.encode(request)
        exchange: _Exchange | None = None
        waits: list[Retrying] = []
        attempts = 0
        try:
            async for attempt in _retrying(self._retry, waits):
                # tenacity decides, we wait: the event has to be out before the wait begins.
                for wait in waits:
                    yield wait
                    await self._sleep(wait.delay_s)
                waits.clear()

                attempts += 1
                with attempt:
                    exchange = await self._begin(body)
                if exchange is not None:
                    break
        except _Failed as failed:
            raise after_attempts(failed.failure, attempts) from failed.__cause__

        if exchange is not None:
            async with aclosing(exchange), aclosing(exchange.events()) as events:
                async for event in events:
                    yield event

    async def _begin(self, body: bytes) -> _Exchange:
        """Return an exchange whose first content has arrived."""
        with _translated(self._endpoint):
            request = self._request(body)
            exchange = _Exchange(
                self._endpoint,
                self._scheme.decoder(self._endpoint.provider, self._endpoint.model),
                now_s=self._now,
            )
            await exchange.begin(self._client(), request)

        return exchange

    def _request(self, body: bytes) -> httpx.Request:
        endpoint = self._endpoint
        key = endpoint.key_text
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ProviderRefused(
                f"the key from {endpoint.key_source} cannot be sent: it has a character that no"
                " key has, such as a space or a line break",
                provider=endpoint.provider,
                hint=f"check {endpoint.key_source}",
            )

        headers = httpx.Headers(dict(self._scheme.headers(key or None)))
        headers.update(
            {
                "Content-Type": "application/json",
                "Accept": "text/event-stream, application/json",
                # A compressed stream arrives late, in blocks, and can be a bomb.
                "Accept-Encoding": "identity",
                "User-Agent": "podworker",
            }
        )
        headers.update(dict(endpoint.headers))
        url = _join(endpoint.base_url, self._scheme.path(endpoint.model))
        return self._client().build_request("POST", url, content=body, headers=headers)

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            endpoint = self._endpoint
            # Silence is told by events, not by bytes: `_Exchange` measures it.
            timeout = httpx.Timeout(None, connect=endpoint.connect_timeout_s)
            self._http = httpx.AsyncClient(
                timeout=timeout, transport=self._transport, follow_redirects=False
            )

        return self._http

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


def _join(base_url: str, path: str) -> str:
    """Return the URL of `path` under `base_url`; either may bring a query."""
    base, _, base_query = base_url.partition("?")
    path, _, query = path.partition("?")
    queries = "&".join(part for part in (base_query, query) if part)
    return base.rstrip("/") + path + (f"?{queries}" if queries else "")


def _retrying(policy: RetryPolicy, waits: list[Retrying]) -> tenacity.AsyncRetrying:
    """Return the attempts of one request; each wait that is due is noted in `waits`, not slept."""
    first_s = policy.first_wait_s
    backoff = tenacity.wait_exponential(multiplier=first_s) + tenacity.wait_random(0, first_s)

    def wait_s(state: tenacity.RetryCallState) -> float:
        asked = _failed(state).failure.retry_after_s
        if asked is None:
            return min(backoff(state), policy.max_wait_s)
        return min(max(asked, policy.min_wait_s), policy.max_wait_s)

    def must_stop(state: tenacity.RetryCallState) -> bool:
        failed = _failed(state)
        is_connecting = isinstance(failed, _NotConnected)
        limit = policy.max_connect_attempts if is_connecting else policy.max_attempts
        asked = failed.failure.retry_after_s or 0.0
        waited = state.idle_for + state.upcoming_sleep
        return state.attempt_number >= limit or max(asked, waited) > policy.total_wait_s

    def note(state: tenacity.RetryCallState) -> None:
        reason = str(_failed(state))
        waits.append(Retrying(state.attempt_number, state.upcoming_sleep, reason))

    async def no_sleep(_: float) -> None:
        """The client waits itself, after it has told of it."""

    return tenacity.AsyncRetrying(
        sleep=no_sleep,
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, _Failed) and error.failure.is_retryable
        ),
        wait=wait_s,
        stop=must_stop,
        before_sleep=note,
        reraise=True,
    )


def _failed(state: tenacity.RetryCallState) -> _Failed:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, _Failed):
        raise TypeError(f"only a failed request is repeated, not {error!r}")

    return error


class _Exchange:
    """One attempt: a request is sent once, its answer read to the first content, then on."""

    def __init__(self, endpoint: Endpoint, decoder: Decoder, *, now_s: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._decoder = decoder
        self._now_s = now_s
        self._stack = AsyncExitStack()
        self._ends_at = anyio.current_time() + endpoint.total_timeout_s
        self._first: list[StreamEvent] = []
        self._answer: Answer | None = None
        self._batches: AsyncGenerator[list[StreamEvent], None] | None = None

    async def begin(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """Send the request and read to the first content; a failure until then is `_Failed`."""
        async with self._stack:
            with self._no_silence("sent no answer"):
                response = await client.send(request, stream=True)
            self._stack.push_async_callback(response.aclose)

            if not response.is_success:
                raise _Failed(await self._refused(response, len(request.content)))

            self._batches = self._read(response)
            self._stack.push_async_callback(self._batches.aclose)
            self._first = await anext(self._batches, [])
            if not self._first:
                self._answer = self._finish_without_content()
            # All is well: from here on `aclose` ends it.
            self._stack = self._stack.pop_all()

    async def aclose(self) -> None:
        """End the response; idempotent."""
        await self._stack.aclose()

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events from the first content on; a failure is a `StreamBroken`."""
        for event in self._first:
            yield event

        try:
            if self._answer is None and self._batches is not None:
                async for batch in self._batches:
                    for event in batch:
                        yield event
            answer = self._answer or self._decoder.finish()
        except _Failed as failed:
            cause = failed.failure.error
            raise stream_broken(
                f"the answer broke off: {cause.message}",
                provider=self._endpoint.provider,
                partial=self._decoder.partial(),
                cause=cause,
            ) from failed.__cause__

        yield Answered(answer)

    def _finish_without_content(self) -> Answer:
        try:
            return self._decoder.finish()
        except StreamBroken as error:
            what = "ended the stream before any content"
            raise _Lost(unavailable(self._endpoint, what)) from error

    async def _read(self, response: httpx.Response) -> AsyncGenerator[list[StreamEvent], None]:
        """Yield what each piece of the body means, where it means anything."""
        body = self._body_of(response)
        try:
            with _translated(self._endpoint):
                with self._no_silence("sent headers and then nothing"):
                    first = await body.first_byte()

                texts = self._whole(body, first) if first in _WHOLE else self._events_of(body)
                async with aclosing(texts):
                    async for text in texts:
                        events = self._decoder.feed(text)
                        if events:
                            yield events
                        if self._decoder.is_done:
                            await self._drain(texts)
        except _Lost:
            # All of the answer was here: what became of the connection afterwards is no matter.
            if not self._decoder.is_complete:
                raise

    def _body_of(self, response: httpx.Response) -> Body:
        encoding = response.headers.get("Content-Encoding", "")
        return Body(response.aiter_raw(), encoding=encoding, endpoint=self._endpoint)

    async def _whole(self, body: Body, first: bytes) -> AsyncGenerator[str, None]:
        """Yield the body in one piece: an answer, or an error, of a server that does not stream."""
        data = bytearray()
        with self._no_silence("did not end its answer"):
            async for piece in body:
                data += piece

        text = data.decode("utf-8-sig", "replace")
        if first == b"<":
            page = read_report(text).message
            raise bad_answer(self._endpoint.provider, f"answered with {page}")

        yield text
        if not self._decoder.is_complete:
            raise bad_answer(self._endpoint.provider, f"answered without any choice: {text[:200]}")

    async def _events_of(self, body: Body) -> AsyncGenerator[str, None]:
        """Yield the data of each server-sent event that has any."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8-sig"}
        source = httpx_sse.EventSource(httpx.Response(200, headers=headers, stream=_Stream(body)))
        async with aclosing(source.aiter_sse()) as events:
            while True:
                # Comments and bare event names keep a connection alive, but they are no answer.
                with self._no_silence("fell silent"):
                    data = await _next_data(events)
                if data is None:
                    return

                body.begin_event()
                yield data

    async def _drain(self, texts: AsyncGenerator[str, None]) -> None:
        """Read to the end of the body, which is at hand: the connection can be used again then."""
        # The answer is complete: nothing that follows can take it back.
        with anyio.move_on_after(_DRAIN_S), suppress(_Failed):
            async for _ in texts:
                continue

    async def _refused(self, response: httpx.Response, request_bytes: int) -> Failure:
        """Return what a status other than success means."""
        status = response.status_code
        location = response.headers.get("Location", "")
        if 300 <= status < 400:
            report = Report(clean_text(location), status)
        else:
            report = read_report(await self._error_text(response), status=status)

        return classify(
            report,
            self._endpoint,
            retry_after=response.headers.get("Retry-After"),
            now_s=self._now_s(),
            request_bytes=request_bytes,
        )

    async def _error_text(self, response: httpx.Response) -> str:
        data = bytearray()
        # The status says enough where the words that explain it cannot be read.
        with suppress(_Failed), _translated(self._endpoint), self._no_silence("sent no reason"):
            async for piece in self._body_of(response):
                data += piece
                if len(data) > self._endpoint.limits.error_bytes:
                    break

        return data.decode("utf-8-sig", "replace")

    @contextmanager
    def _no_silence(self, what: str) -> Iterator[None]:
        """Bound one wait by the idle limit and what is left of the total. Never yield inside."""
        left_s = self._ends_at - anyio.current_time()
        idle_s = self._endpoint.idle_timeout_s
        try:
            with anyio.fail_after(max(0.0, min(left_s, idle_s))):
                yield
        except TimeoutError:
            if left_s < idle_s:
                what = f"did not end its answer within {self._endpoint.total_timeout_s:g} s"
            else:
                what = f"{what} for {idle_s:g} s"
            raise _Lost(unavailable(self._endpoint, what)) from None


async def _next_data(events: AsyncIterator[httpx_sse.ServerSentEvent]) -> str | None:
    async for event in events:
        if event.data:
            return event.data

    return None


class _Stream(httpx.AsyncByteStream):
    """A body as httpx takes it, so that its own decoding and httpx_sse's framing can be used."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece


@contextmanager
def _translated(endpoint: Endpoint) -> Iterator[None]:
    """Turn whatever httpx and its kin raise, and what a decoder reports, into a `_Failed`."""
    try:
        yield
    except _NOT_CONNECTED as error:
        raise _NotConnected(unreachable(endpoint, error)) from error
    except _UNUSABLE:
        # Without its words and cause: they may quote a header, and so the key.
        raise _Failed(unusable(endpoint)) from None
    except _LOST as error:
        what = f"broke the connection ({_words(error)})"
        raise _Lost(unavailable(endpoint, what)) from error
    except (*_OTHERS, zlib.error) as error:
        what = f"answered in a way that cannot be read ({_words(error)})"
        raise _Failed(Failure(masked(bad_answer(endpoint.provider, what), endpoint))) from error
    except ReportedError as error:
        raise _Failed(classify(error.report, endpoint)) from None
    except ProviderError as error:
        raise _Failed(Failure(masked(error, endpoint))) from error.__cause__


def _words(error: Exception) -> str:
    return clean_text(str(error)) or type(error).__name__
