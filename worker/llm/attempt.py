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
from worker.llm.framing import Framer, WholeBody, fault_of, framer_for
from worker.llm.patience import Expired, Patience
from worker.llm.repeats import Repeats
from worker.llm.reports import Report, ReportedError, read_json, read_report, report_of
from worker.llm.scheme import Decoder, Framing
from worker.llm.types import (
    Answered,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
)
from worker.text import clean_text, utf8_len

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
    """One exchange. `begin` it, read the `first` batch and the `rest`, and close it in any case."""

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
        self._limits = endpoint.limits
        self._decoder = decoder
        self._framing = framing
        self._translate = translate
        self._now_s = now_s
        self._patience = Patience(endpoint)
        self._stack = AsyncExitStack()
        self._stack.callback(self._patience.close)
        self.first: Batch = []
        """The first content, once the attempt has begun; or the end of an answer without any."""
        self.rest: AsyncGenerator[Batch, None]
        """What follows; a failure in there is a `StreamBroken`. The last event is `Answered`."""
        self._whole_text = ""
        # What went wrong behind events that are to be handed on first.
        self._held: Exception | None = None
        self._text_chars = 0
        self._argument_bytes: dict[str, int] = {}
        self._repeats = Repeats()

    async def begin(self, send: Callable[[], Awaitable[Response]], request_bytes: int) -> None:
        """Send the request and read to the first content; a failure is a `FailedAttempt`."""
        async with self._stack:
            with self._translated(), self._patience.until("sent no answer"):
                response = await send()
            self._stack.push_async_callback(response.aclose)

            if not 200 <= response.status_code < 300:
                raise FailedAttempt(await self._refused(response, request_bytes))

            self.rest = self._read(response)
            self._stack.push_async_callback(self.rest.aclose)
            self.first = await anext(self.rest)
            # All is well: from here on `aclose` ends it.
            self._stack = self._stack.pop_all()

    async def aclose(self) -> None:
        """End the response; idempotent."""
        await self._stack.aclose()

    async def _read(self, response: Response) -> AsyncGenerator[Batch, None]:
        """Yield the events; before the first a failure is a `FailedAttempt`."""
        has_content = False
        try:
            try:
                with self._translated():
                    async with aclosing(self._decoded_batches(response)) as batches:
                        async for batch in batches:
                            has_content = True
                            yield batch
            except Lost:
                # All of the answer was here: what became of the connection then is no matter.
                if not self._decoder.is_complete:
                    raise
            last = self._finish(has_content=has_content)
        except FailedAttempt as failed:
            if not has_content:
                raise
            raise self._broken(failed.failure.error) from failed.__cause__

        yield [last]

    def _finish(self, *, has_content: bool) -> Answered:
        if self._whole_text and not self._decoder.is_complete:
            error = self._bad(f"answered without any choice: {self._whole_text[:200]}")
            raise FailedAttempt(Failure(masked(error, self._endpoint)))

        try:
            return Answered(self._decoder.finish())
        except StreamBroken as error:
            if has_content:
                raise
            what = "ended the stream before any content"
            raise Lost(unavailable(self._endpoint, what)) from error

    def _broken(self, cause: ProviderError) -> StreamBroken:
        return stream_broken(
            f"the answer broke off: {cause.message}",
            provider=self._endpoint.provider,
            partial=self._decoder.partial(),
            cause=cause,
        )

    async def _decoded_batches(self, response: Response) -> AsyncGenerator[Batch, None]:
        """Yield what each piece of the body means, where it means anything."""
        async with aclosing(self._pieces_of(response)) as pieces:
            framer, texts, has_ended = await self._open(pieces)
            patience = self._patience.until("fell silent")
            while True:
                if texts:
                    batch = self._decoded(texts)
                    if batch:
                        yield batch
                    if self._held is not None:
                        raise self._held
                if has_ended or self._decoder.is_done:
                    break

                # Keep-alives say nothing: the wait goes on over as many pieces as it takes.
                with patience:
                    async for piece in pieces:
                        texts = framer.feed(piece)
                        if texts:
                            break
                        framer.check()
                    else:
                        texts, has_ended = framer.close(), True

            await self._drain(pieces)

    async def _open(self, pieces: AsyncIterator[bytes]) -> tuple[Framer, list[str], bool]:
        """Return what cuts the body, its first events, and whether that was all of it."""
        with self._patience.until("sent headers and then nothing"):
            head, first = await read_head(pieces, self._endpoint)

        framer = framer_for(self._framing, first, self._limits, self._endpoint.provider)
        texts = framer.feed(head)
        if isinstance(framer, WholeBody):
            return framer, [await self._whole(pieces, framer)], True
        return framer, texts, False

    async def _whole(self, pieces: AsyncIterator[bytes], framer: Framer) -> str:
        """Return the answer of a server that does not stream, and check that it is one."""
        with self._patience.until("did not end its answer"):
            async for piece in pieces:
                framer.feed(piece)
                framer.check()

        (text,) = framer.close()
        if text.lstrip().startswith("<"):
            raise self._bad(f"answered with {read_report(text).message}")
        self._check_shape(text)
        report = report_of(read_json(text))
        if report is not None:
            raise ReportedError(report)

        self._whole_text = text
        return text

    def _decoded(self, texts: Iterable[str]) -> Batch:
        """Return what `texts` mean; an error behind some events is held until they are out."""
        batch: Batch = []
        chars = 0
        decoder, repeats = self._decoder, self._repeats
        try:
            for text in texts:
                delta = repeats.delta_of(text)
                if delta is not None:
                    decoder.more(delta.text, text)
                    batch.append(delta)
                    chars += len(delta.text)
                    continue

                self._check_shape(text)
                events = decoder.feed(text)
                batch += events
                self._count(events)
                if decoder.is_done:
                    break
                repeats.learn(text, events)

            self._text_chars += chars
            if self._text_chars > self._limits.text_chars:
                raise self._bad(f"sent text of over {self._limits.text_chars:,} characters")
        except (ReportedError, ProviderError) as error:
            if not batch:
                raise
            self._held = error

        return batch

    def _check_shape(self, text: str) -> None:
        fault = fault_of(text, self._limits)
        if fault is not None:
            raise self._bad(fault)

    def _count(self, events: Batch) -> None:
        """Add what the decoder keeps of `events`; `BadAnswer` where a call has become too much."""
        for event in events:
            if isinstance(event, (TextDelta, ReasoningDelta)):
                self._text_chars += len(event.text)
            elif isinstance(event, ToolCallArgsDelta):
                size = self._argument_bytes.get(event.call_id, 0) + utf8_len(event.text)
                self._argument_bytes[event.call_id] = size
                self._check_arguments(size)
            elif isinstance(event, ToolCallDone):
                self._check_arguments(utf8_len(event.arguments))

    def _check_arguments(self, size: int) -> None:
        limit = self._limits.arguments_bytes
        if size > limit:
            raise self._bad(f"sent arguments of over {limit:,} bytes for one tool call")

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
                if len(data) > self._limits.error_bytes:
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
