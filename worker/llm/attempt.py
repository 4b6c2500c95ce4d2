"""One attempt at a request: sent once, its answer read to the first content, and then on."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, contextmanager, suppress
from typing import Protocol, TypeAlias

import anyio

from worker.errors import ProviderError, StreamBroken
from worker.llm.body import read_head, read_pieces
from worker.llm.endpoint import Endpoint
from worker.llm.failures import (
    Failure,
    bad_answer,
    classify,
    masked,
    stream_broken,
    unavailable,
)
from worker.llm.framing import Framer, WholeBody, framer_for, is_too_deep
from worker.llm.patience import Expired, Patience
from worker.llm.repeats import Repeats
from worker.llm.reports import Report, ReportedError, read_json, read_report, report_of
from worker.llm.scheme import Decoder, Framing
from worker.llm.types import Answered, StreamEvent, TextDelta, ToolCallArgsDelta
from worker.text import clean_text

_DRAIN_S = 0.25

Batch: TypeAlias = "list[StreamEvent]"
Translate: TypeAlias = "Callable[[Endpoint], AbstractContextManager[None]]"
"""Turns what the HTTP library raises into a `FailedAttempt`."""


class FailedAttempt(Exception):
    """A request failed, and it is known what that means."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


class NotConnected(FailedAttempt):
    """No connection could be made."""


class Lost(FailedAttempt):
    """The connection was lost or fell silent."""


class Response(Protocol):
    """What is needed of an HTTP response whose body is still to be read."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names in any case."""

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the body as they come."""

    async def aclose(self) -> None:
        """End the response."""


class Attempt:
    """One exchange. `begin` it, read its `batches`, and close it in any case."""

    def __init__(
        self,
        endpoint: Endpoint,
        decoder: Decoder,
        framing: Framing,
        *,
        translate: Translate,
        now_s: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._decoder = decoder
        self._framing = framing
        self._translate = translate
        self._now_s = now_s
        self._patience = Patience(endpoint)
        self._stack = AsyncExitStack()
        self._stack.callback(self._patience.close)
        self._read_batches: AsyncGenerator[Batch, None] | None = None
        self._first: Batch = []
        self._last: Answered | None = None
        # What went wrong behind events that are to be handed on first.
        self._held: Exception | None = None
        self._argument_bytes: dict[str, int] = {}
        self._repeats = Repeats() if hasattr(decoder, "more") else None

    async def begin(self, send: Callable[[], Awaitable[Response]], request_bytes: int) -> None:
        """Send the request and read to the first content; a failure is a `FailedAttempt`."""
        async with self._stack:
            with self._translated(), self._patience.until("sent no answer"):
                response = await send()
            self._stack.push_async_callback(response.aclose)

            if not 200 <= response.status_code < 300:
                raise FailedAttempt(await self._refused(response, request_bytes))

            self._read_batches = self._read(response)
            self._stack.push_async_callback(self._read_batches.aclose)
            self._first = await anext(self._read_batches, [])
            if not self._first:
                self._last = self._finish_without_content()
            # All is well: from here on `aclose` ends it.
            self._stack = self._stack.pop_all()

    async def aclose(self) -> None:
        """End the response; idempotent."""
        await self._stack.aclose()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the events from the first content on; a failure is a `StreamBroken`."""
        if self._first:
            yield self._first

        try:
            if self._last is None and self._read_batches is not None:
                async for batch in self._read_batches:
                    yield batch
            last = self._last or Answered(self._decoder.finish())
        except FailedAttempt as failed:
            cause = failed.failure.error
            raise stream_broken(
                f"the answer broke off: {cause.message}",
                provider=self._endpoint.provider,
                partial=self._decoder.partial(),
                cause=cause,
            ) from failed.__cause__

        yield [last]

    def _finish_without_content(self) -> Answered:
        try:
            return Answered(self._decoder.finish())
        except StreamBroken as error:
            what = "ended the stream before any content"
            raise Lost(unavailable(self._endpoint, what)) from error

    async def _read(self, response: Response) -> AsyncGenerator[Batch, None]:
        """Yield what each piece of the body means, where it means anything."""
        try:
            with self._translated():
                pieces = await self._stack.enter_async_context(aclosing(self._pieces_of(response)))
                with self._patience.until("sent headers and then nothing"):
                    head, first = await read_head(pieces, self._endpoint)

                limits, provider = self._endpoint.limits, self._endpoint.provider
                framer = framer_for(self._framing, first, limits, provider)
                read = self._whole if isinstance(framer, WholeBody) else self._streamed
                async with aclosing(read(head, pieces, framer)) as batches:
                    async for batch in batches:
                        yield batch
                await self._drain(pieces)
        except Lost:
            # All of the answer was here: what became of the connection afterwards is no matter.
            if not self._decoder.is_complete:
                raise

    async def _streamed(
        self, head: bytes, pieces: AsyncIterator[bytes], framer: Framer
    ) -> AsyncGenerator[Batch, None]:
        texts, has_ended = framer.feed(head), False
        patience = self._patience.until("fell silent")
        while True:
            if texts:
                batch = self._decoded(texts)
                if batch:
                    yield batch
                if self._held is not None:
                    raise self._held
            if has_ended or self._decoder.is_done:
                return

            # Keep-alives say nothing: the wait goes on over as many pieces as it takes.
            texts = []
            with patience:
                async for piece in pieces:
                    texts = framer.feed(piece)
                    if texts:
                        break
                    framer.check()
                else:
                    texts, has_ended = framer.close(), True

    async def _whole(
        self, head: bytes, pieces: AsyncIterator[bytes], framer: Framer
    ) -> AsyncGenerator[Batch, None]:
        """Read an answer, or an error, of a server that does not stream."""
        framer.feed(head)
        with self._patience.until("did not end its answer"):
            async for piece in pieces:
                framer.feed(piece)
                framer.check()

        (text,) = framer.close()
        if text.lstrip().startswith("<"):
            raise self._bad(f"answered with {read_report(text).message}")
        report = None if self._is_too_deep(text) else report_of(read_json(text))
        if report is not None:
            raise ReportedError(report)

        batch = self._decoded([text])
        if batch:
            yield batch
        if self._held is not None:
            raise self._held
        if not self._decoder.is_complete:
            raise self._bad(f"answered without any choice: {text[:200]}")

    def _decoded(self, texts: Iterable[str]) -> Batch:
        """Return what `texts` mean; an error behind some events is held until they are out."""
        batch: Batch = []
        decoder, depth = self._decoder, self._endpoint.limits.json_depth
        repeats = self._repeats
        try:
            for text in texts:
                delta = repeats.delta_of(text) if repeats else None
                if delta is not None:
                    decoder.more(delta.text)
                    batch.append(delta)
                    continue

                if is_too_deep(text, depth):
                    raise self._bad(f"sent objects more than {depth} deep in each other")
                events = decoder.feed(text)
                if events:
                    if len(events) > 1 or type(events[0]) is not TextDelta:
                        self._count(events)
                    batch += events
                if decoder.is_done:
                    break
                if repeats:
                    repeats.learn(text, events)
        except (ReportedError, ProviderError) as error:
            if not batch:
                raise
            self._held = error

        return batch

    def _count(self, events: Batch) -> None:
        limit = self._endpoint.limits.arguments_bytes
        for event in events:
            if type(event) is ToolCallArgsDelta:
                size = self._argument_bytes.get(event.call_id, 0) + len(event.text)
                self._argument_bytes[event.call_id] = size
                if size > limit:
                    raise self._bad(f"sent arguments of over {limit:,} bytes for one tool call")

    def _is_too_deep(self, text: str) -> bool:
        return is_too_deep(text, self._endpoint.limits.json_depth)

    def _bad(self, what: str) -> ProviderError:
        return bad_answer(self._endpoint.provider, what)

    async def _drain(self, pieces: AsyncIterator[bytes]) -> None:
        """Read to the end of the body, which is at hand: the connection can be used again then."""
        # The answer is complete: nothing that follows can take it back.
        with anyio.move_on_after(_DRAIN_S), suppress(FailedAttempt), self._translated():
            async for _ in pieces:
                continue

    async def _refused(self, response: Response, request_bytes: int) -> Failure:
        """Return what a status other than success means."""
        status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.items()}
        if 300 <= status < 400:
            report = Report(clean_text(headers.get("location", "")), status)
        else:
            report = read_report(await self._error_text(response), status=status)

        return classify(
            report,
            self._endpoint,
            headers=headers,
            now_s=self._now_s(),
            request_bytes=request_bytes,
        )

    async def _error_text(self, response: Response) -> str:
        data = bytearray()
        # The status says enough where the words that explain it cannot be read.
        with (
            suppress(FailedAttempt),
            self._translated(),
            self._patience.until("sent no reason"),
        ):
            async for piece in self._pieces_of(response):
                data += piece
                if len(data) > self._endpoint.limits.error_bytes:
                    break

        return data.decode("utf-8-sig", "replace")

    def _pieces_of(self, response: Response) -> AsyncGenerator[bytes, None]:
        encoding = response.headers.get("Content-Encoding", "")
        return read_pieces(response.aiter_raw(), encoding=encoding, endpoint=self._endpoint)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn whatever the library raises, a decoder reports and patience ends, into ours."""
        endpoint = self._endpoint
        try:
            with self._translate(endpoint):
                yield
        except Expired as expired:
            raise Lost(unavailable(endpoint, str(expired))) from None
        except ReportedError as error:
            raise FailedAttempt(classify(error.report, endpoint, now_s=self._now_s())) from None
        except ProviderError as error:
            raise FailedAttempt(Failure(masked(error, endpoint))) from error.__cause__
