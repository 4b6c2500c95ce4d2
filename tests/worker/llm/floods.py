"""What a hostile or broken server may send, in any dialect; run as a program, what it costs.

As a program it sends every flood to a client in every dialect, and prints the errors and by how
many KiB the process has grown at its largest.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import httpx

from tests.worker.llm.client import ONCE, REQUEST, Pieces
from tests.worker.llm.dialects import DIALECTS, OLLAMA, Dialect
from worker.errors import ProviderError

MIB = 1 << 20
PIECE = 1 << 16

Flood = Callable[[Dialect], Iterator[bytes]]


def endless_line(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin() + (b'{"a":"' if dialect is OLLAMA else b'data: {"a":"')
    while True:
        yield b"x" * PIECE


def endless_event(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin()
    while True:
        yield b"data: x\n" * 8000 if dialect is not OLLAMA else b"\n" * PIECE


def endless_keep_alives(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin()
    while True:
        yield dialect.keep_alive * 2000


def endless_blanks(_: Dialect) -> Iterator[bytes]:
    while True:
        yield b"\n" * PIECE


def endless_text(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin()
    # One character of four bytes makes them all as wide.
    piece = dialect.text("word " * 10_000 + "\U0001f378")
    while True:
        yield piece


def endless_answer(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin()
    padding = dialect.event(json.dumps({"type": "unknown", "x": "x" * 60_000}).encode())
    while True:
        yield padding


def deep_json(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin()
    yield dialect.event(b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}")


def wide_json(dialect: Dialect) -> Iterator[bytes]:
    yield dialect.begin()
    yield dialect.event(b'{"a":[' + b"[]," * 340_000 + b"[]]}")


def wide_whole_body(_: Dialect) -> Iterator[bytes]:
    yield b'[{"a":['
    for _number in range(60):
        yield b"{}," * (PIECE // 3)
    yield b"{}]}]"


def gzipped(flood: Flood, size: int) -> Flood:
    """`flood` up to `size` bytes, compressed: a thousandth of it on the wire."""

    def compressed(dialect: Dialect) -> Iterator[bytes]:
        machine = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        total = 0
        for piece in flood(dialect):
            total += len(piece)
            yield machine.compress(piece)
            if total > size:
                yield machine.flush()
                return

    return compressed


def zeros(_: Dialect) -> Iterator[bytes]:
    while True:
        yield bytes(PIECE)


# Each with what is said of it.
FLOODS: dict[str, tuple[Flood, str, str]] = {
    "endless line": (endless_line, "", "a line of over 1,048,576 bytes"),
    "endless event": (endless_event, "", "an event of over 4,194,304 bytes"),
    "endless keep-alives": (endless_keep_alives, "", "an event of over 4,194,304 bytes"),
    "endless blanks": (endless_blanks, "", "an event of over 4,194,304 bytes"),
    "endless text": (endless_text, "", "text of over 4,194,304 characters"),
    "endless answer": (endless_answer, "", "an answer of over 67,108,864 bytes"),
    "deep JSON": (deep_json, "", "more than 64 deep"),
    "wide JSON": (wide_json, "", "more than 100,000 objects"),
    "a wide whole body": (wide_whole_body, "", "more than 100,000 objects"),
    "a bomb of zeros": (gzipped(zeros, 200 * MIB), "gzip", "a line of over 1,048,576 bytes"),
    "a bomb of newlines": (
        gzipped(endless_blanks, 200 * MIB),
        "gzip",
        "an event of over 4,194,304 bytes",
    ),
    "a bomb of text": (
        gzipped(endless_text, 200 * MIB),
        "gzip",
        "text of over 4,194,304 characters",
    ),
}


async def error_of(dialect: Dialect, name: str) -> ProviderError | None:
    """The error that a flood ends with; the next request of the same client is answered."""
    flood, encoding, _ = FLOODS[name]
    headers = {"Content-Encoding": encoding} if encoding else {}
    replies = iter(
        [
            httpx.Response(200, headers=headers, stream=Pieces(flood(dialect))),
            httpx.Response(200, content=dialect.hello()),
        ]
    )
    asked = dialect.client(handler=lambda _: next(replies), retry=ONCE)
    found: ProviderError | None = None
    try:
        async with aclosing(asked.stream(REQUEST)) as stream:
            async for _ in stream:
                continue
    except ProviderError as error:
        found = error
    async with aclosing(asked.stream(REQUEST)) as stream:
        assert [event async for event in stream]
    await asked.aclose()
    return found


def _largest_kib() -> int:
    # Not `getrusage`: that begins with the peak of whoever started this process.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found
    return int(found[1])


async def _main() -> None:
    before = 0
    told: dict[str, list[str]] = {name: [] for name in FLOODS}
    for name, dialect in itertools.product(FLOODS, DIALECTS):
        gc.collect()  # an error that is kept, as here, is a cycle with the frame that keeps it
        told[name].append(str(await error_of(dialect, name)))
        # The first flood pays for what every request loads.
        before = before or _largest_kib()
    sys.stdout.write(json.dumps({"grown_kib": _largest_kib() - before, "told": told}))


if __name__ == "__main__":
    asyncio.run(_main())
