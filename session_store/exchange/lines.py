"""Files of one JSON object a line, read a line at a time and as often as needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from .jsontext import JsonObject, Malformed, parse

BOM = b"\xef\xbb\xbf"


@frozen
class Record:
    """One line that is an object."""

    line: int
    """From 1."""
    value: JsonObject


@frozen
class BadLine:
    """One line that is not."""

    line: int
    why: str


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, without a byte order mark or a line end, from 1.

    Lines end at byte 0x0A and nowhere else.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            raw = line.removeprefix(BOM) if number == 1 else line
            stripped = raw.strip(b" \t\r\n")
            if stripped:
                yield number, stripped


def read_records(path: Path) -> Iterator[Record | BadLine]:
    """Yield every line that is not blank: an object, or what is wrong with it."""
    for number, raw in read_lines(path):
        try:
            value = parse(raw)
        except Malformed as error:
            yield BadLine(number, str(error))
            continue

        yield (
            Record(number, value) if isinstance(value, dict) else BadLine(number, "not an object")
        )
