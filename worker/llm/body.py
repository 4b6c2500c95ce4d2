"""The bytes of an answer: decompressed in bounded pieces, counted against the limits."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

from worker.llm.endpoint import Endpoint
from worker.llm.failures import bad_answer

_PIECE_BYTES = 1 << 16
_BLANK = b" \t\r\n\xef\xbb\xbf"  # white space and the byte order mark


class Body:
    """Iterates over the bytes of one response; its first byte that shows anything can be looked at.

    Raises `BadAnswer` where the endpoint's limits are exceeded, or the compression is unknown or
    broken. A limit is noticed within one piece (64 KiB) of where it was passed.
    """

    def __init__(self, chunks: AsyncIterator[bytes], *, encoding: str, endpoint: Endpoint) -> None:
        self._provider = endpoint.provider
        self._limits = endpoint.limits
        self._pieces = self._read(chunks, encoding.strip().lower())
        self._ahead: list[bytes] = []
        self._total = 0
        self._event = 0
        self._line = 0

    async def first_byte(self) -> bytes:
        """Return the first byte that is no white space, read ahead; nothing where there is none."""
        async for piece in self._pieces:
            self._ahead.append(piece)
            shown = piece.lstrip(_BLANK)
            if shown:
                return shown[:1]

        return b""

    def begin_event(self) -> None:
        """Take it that an event has been handed on: the next one's size counts from here."""
        self._event = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._ahead:
            yield piece

        self._ahead.clear()
        async for piece in self._pieces:
            yield piece

    async def _read(
        self, chunks: AsyncIterator[bytes], encoding: str
    ) -> AsyncGenerator[bytes, None]:
        cut = self._cutter(encoding)
        try:
            async for chunk in chunks:
                for piece in cut(chunk):
                    self._count(piece)
                    yield piece
        except zlib.error as error:
            what = f"sent an answer that cannot be decompressed ({error})"
            raise bad_answer(self._provider, what) from error

    def _cutter(self, encoding: str) -> Callable[[bytes], Iterator[bytes]]:
        if encoding in {"", "identity"}:
            return _cut
        if encoding in {"gzip", "x-gzip", "deflate"}:
            return _inflater()

        raise bad_answer(self._provider, f"compressed its answer with {encoding!r}, unasked")

    def _count(self, piece: bytes) -> None:
        self._total += len(piece)
        self._event += len(piece)
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._line = len(piece) - end - 1 if end >= 0 else self._line + len(piece)
        for what, size, limit in (
            ("a line", self._line, self._limits.line_bytes),
            ("an event", self._event, self._limits.event_bytes),
            ("an answer", self._total, self._limits.response_bytes),
        ):
            if size > limit:
                raise bad_answer(self._provider, f"sent {what} of over {limit:,} bytes")


def _cut(chunk: bytes) -> Iterator[bytes]:
    for start in range(0, len(chunk), _PIECE_BYTES):
        yield chunk[start : start + _PIECE_BYTES]


def _inflater() -> Callable[[bytes], Iterator[bytes]]:
    """Return what decompresses gzip or zlib, a bounded piece at a time."""
    machine = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def inflate(chunk: bytes) -> Iterator[bytes]:
        while chunk and not machine.eof:
            piece = machine.decompress(chunk, _PIECE_BYTES)
            chunk = machine.unconsumed_tail
            if piece:
                yield piece

    return inflate
