"""JSON documents whose lists may be larger than memory: read element by element.

A document is an object or a list. Its members are told one by one; the elements of a top-level
list, and of the members that a reader asks for, are told one by one too. A file holds one document
over many lines, or one a line.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from attrs import frozen

from .jsontext import DECODER, Malformed, cleaned, may_hold_surrogates, parse
from .lines import BOM, read_lines

_CHUNK_BYTES = 1 << 18
_LONGEST_LINE = 1 << 20
_LOOKED_AT = 20
_LARGEST_ELEMENT = 1 << 26
_MORE_OF_A_NUMBER = re.compile(r"[-+.\deE]*", re.ASCII)
_BLANK = re.compile(r"[ \t\r\n\ufeff]*")


@frozen
class Begin:
    """A document begins."""

    line: int


@frozen
class Member:
    """A member of the document; not of those whose elements are told one by one."""

    key: str
    value: object


@frozen
class Element:
    """An element of a member's list, or of the document itself: then `key` is empty."""

    key: str
    value: object


@frozen
class End:
    """The document ends."""


@frozen
class Bad:
    """From this line on there is no document, or no more of the one that was begun."""

    line: int
    why: str


Event: TypeAlias = Begin | Member | Element | End | Bad


def read_documents(path: Path, lists: Collection[str]) -> Iterator[Event]:
    """Yield what is in the file's documents; the members named in `lists` element by element."""
    if is_one_a_line(path):
        yield from _by_line(path, lists)
        return

    with path.open("rb") as file:
        text = _Text(file)
        try:
            while text.peek():
                yield Begin(text.line)
                yield from _document(text, lists)
                yield End()
        except Malformed as error:
            yield Bad(text.line, str(error))


def is_one_a_line(path: Path) -> bool:
    """Tell whether each line stands for itself. Looks at the first few lines only."""
    first = True
    for line in _first_lines(path):
        if first and (line in {b"[", b"{"} or len(line) == _LONGEST_LINE):
            return False

        first = False
        try:
            if isinstance(parse(line), (dict, list)):
                return True
        except Malformed:
            continue

    return False


def _first_lines(path: Path) -> Iterator[bytes]:
    seen = 0
    with path.open("rb") as file:
        while seen < _LOOKED_AT and (line := file.readline(_LONGEST_LINE)):
            stripped = line.removeprefix(BOM).strip()
            if stripped:
                seen += 1
                yield line if len(line) == _LONGEST_LINE else stripped


def _by_line(path: Path, lists: Collection[str]) -> Iterator[Event]:
    for number, raw in read_lines(path):
        try:
            value = parse(raw)
        except Malformed as error:
            yield Bad(number, str(error))
            continue

        yield Begin(number)
        if isinstance(value, list):
            yield from (Element("", one) for one in value)
        elif isinstance(value, dict):
            for key, one in value.items():
                if key in lists and isinstance(one, list):
                    yield from (Element(key, element) for element in one)
                else:
                    yield Member(key, one)

        yield End()


def _document(text: _Text, lists: Collection[str]) -> Iterator[Event]:
    if text.peek() == "[":
        yield from (Element("", one) for one in _elements(text))
        return

    text.take("{")
    while text.peek() != "}":
        key = str(text.value())
        text.take(":")
        if key in lists and text.peek() == "[":
            yield from (Element(key, one) for one in _elements(text))
        else:
            yield Member(key, text.value())

        if text.peek() != "}":
            text.take(",")

    text.take("}")


def _elements(text: _Text) -> Iterator[object]:
    text.take("[")
    while text.peek() != "]":
        yield text.value()
        if text.peek() != "]":
            text.take(",")

    text.take("]")


class _Text:
    """A text that is read as far as it is needed, and forgotten as far as it was taken."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = ""
        self._at = 0
        self._lines_before = 1

    @property
    def line(self) -> int:
        """The line of the place where the text is taken next, from 1."""
        return self._lines_before + self._buffer.count("\n", 0, self._at)

    def peek(self) -> str:
        """Return the next character that is not blank; it is not taken. Empty at the end."""
        while True:
            found = _BLANK.match(self._buffer, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at]

            if not self._fill():
                return ""

    def take(self, expected: str) -> None:
        """Take the next character, which is this one."""
        found = self.peek()
        if found != expected:
            raise Malformed(f"not JSON (expected {expected!r}, found {found or 'the end'!r})")

        self._at += 1

    def value(self) -> object:
        """Take the next value, whatever it is."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                # The value may only be cut here; a wrong one is one that more does not mend.
                if len(self._buffer) - self._at > _LARGEST_ELEMENT or not self._fill():
                    raise Malformed(f"not JSON ({error.msg.lower()})") from error
            except RecursionError as error:
                raise Malformed("nested too deeply") from error
            else:
                size = end - self._at
                # What looks like a number may be the beginning of a longer one.
                if not _MORE_OF_A_NUMBER.fullmatch(self._buffer, end) or not self._fill():
                    return self._taken(value, size)

    def _taken(self, value: object, size: int) -> object:
        text = self._buffer[self._at : self._at + size]
        self._at += size
        return cleaned(value) if may_hold_surrogates(text) else value

    def _fill(self) -> bool:
        rest = len(self._buffer) - self._at
        # As much again as there is, so that a long value is looked at a few times and not many.
        data = self._file.read(max(_CHUNK_BYTES, rest))
        self._lines_before += self._buffer.count("\n", 0, self._at)
        self._buffer = self._buffer[self._at :] + self._decoder.decode(data, final=not data)
        self._at = 0
        return bool(data)
