"""The bytes of an answer: decompressed in bounded pieces, counted against the limit of them all."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

from worker.llm.endpoint import Endpoint
from worker.llm.failures import bad_answer

_PIECE_BYTES = 1 << 16
# Encodings that are none, whatever the header is good for: "none" keeps proxies from compressing.
_PLAIN = frozenset({"", "identity", "none", "utf-8", "utf8", "binary", "chunked"})
_BLANK = b" \t\r\n\xef\xbb\xbf"  # white space and the byte order mark


async def read_pieces(
    chunks: AsyncIterator[bytes], *, encoding: str, endpoint: Endpoint
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of one response in pieces of at most 64 KiB.

    Raises:
        BadAnswer: The answer exceeds its limit, which is noticed within one piece of where it was
            passed; or its compression is unknown or broken.
    """
    provider, limit = endpoint.provider, endpoint.limits.response_bytes
    cut = _cutter(encoding.strip().lower(), provider)
    total = 0
    try:
        async for chunk in chunks:
            for piece in cut(chunk):
                total += len(piece)
                if total > limit:
                    raise bad_answer(provider, f"sent an answer of over {limit:,} bytes")
                yield piece
    except zlib.error as error:
        what = f"sent an answer that cannot be decompressed ({error})"
        raise bad_answer(provider, what) from error


async def read_head(pieces: AsyncIterator[bytes], endpoint: Endpoint) -> tuple[bytes, bytes]:
    """Return the first bytes that show anything, and the very first of them; or no bytes at all.

    White space before them is left out where it fills whole pieces; `BadAnswer` tells of more of it
    than an event may have.
    """
    limit = endpoint.limits.event_bytes
    blank = 0
    async for piece in pieces:
        shown = piece.lstrip(_BLANK)
        if shown:
            return piece, shown[:1]

        blank += len(piece)
        if blank > limit:
            raise bad_answer(endpoint.provider, f"sent an event of over {limit:,} bytes")

    return b"", b""


def _cutter(encoding: str, provider: str) -> Callable[[bytes], Iterator[bytes]]:
    if _PLAIN.issuperset(map(str.strip, encoding.split(","))):
        return _cut
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return _inflater()

    raise bad_answer(provider, f"compressed its answer with {encoding!r}, unasked")


def _cut(chunk: bytes) -> Iterator[bytes]:
    if len(chunk) <= _PIECE_BYTES:
        return iter((chunk,))
    return (chunk[at : at + _PIECE_BYTES] for at in range(0, len(chunk), _PIECE_BYTES))


def _inflater() -> Callable[[bytes], Iterator[bytes]]:
    """Return what decompresses gzip or zlib, a bounded piece at a time.

    A body may be several of them, one behind the other; what follows and is neither is left out.
    """
    machine = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def inflate(chunk: bytes) -> Iterator[bytes]:
        nonlocal machine
        while chunk:
            if machine.eof:
                if chunk[:1] != b"\x1f":
                    return
                machine = zlib.decompressobj(zlib.MAX_WBITS | 32)
            piece = machine.decompress(chunk, _PIECE_BYTES)
            chunk = machine.unused_data if machine.eof else machine.unconsumed_tail
            if piece:
                yield piece

    return inflate
