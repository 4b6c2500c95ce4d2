"""Which line each key of a TOML document stands on.

tomli gives values without places. This scanner walks the same text once more and only keeps track
of where keys are. It relies on the text being valid: give it nothing tomli has not accepted.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import tomli

KeyPath = tuple[str | int, ...]
"""A key from the top of the document: names for tables, numbers for elements of lists."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
# Up to two quotes may stand right before the three that close a multi-line string.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of every table, key and list element in `text`.

    A table that is only implied (`a` in `[a.b]`) has the line that first implies it. Nested beyond
    the interpreter's recursion limit, it raises RecursionError, as tomli does a little earlier.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


class _Scanner:
    """One pass over a valid document; `lines` is complete once `document` returns."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._table_lengths: dict[KeyPath, int] = {}
        self._newlines = [m.start() for m in re.finditer("\n", text)]

    def document(self) -> None:
        """Walk the whole text; afterwards `lines` has every key in it."""
        table: KeyPath = ()
        self._skip(_GAP)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._pair(table)

            self._skip(_GAP)

    def _header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]` and return the path its keys go under."""
        line = self._line()
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        self.at += brackets
        *parents, name = self._key()
        self.at += brackets
        path = (*self._open(parents, line), name)
        if brackets == 1:
            self.lines[path] = line
            return path

        index = self._table_lengths.get(path, 0)
        self._table_lengths[path] = index + 1
        self.lines.setdefault(path, line)
        self.lines[(*path, index)] = line
        return (*path, index)

    def _open(self, names: list[str], line: int) -> KeyPath:
        """Return the path of a header's parents; a list of tables stands for its last element."""
        path: KeyPath = ()
        for name in names:
            path = (*path, name)
            self.lines.setdefault(path, line)
            if path in self._table_lengths:
                path = (*path, self._table_lengths[path] - 1)

        return path

    def _pair(self, table: KeyPath) -> None:
        """Read `a.b = value` under `table`."""
        line = self._line()
        path = table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)

        self.at += len("=")
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        """Read a dotted key, the space around it included, and return its parts."""
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            bare = _BARE_KEY.match(self.text, self.at)
            if bare:
                parts.append(bare.group())
                self.at = bare.end()
            else:
                parts.append(self._quoted_key())

            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts

            self.at += len(".")

    def _quoted_key(self) -> str:
        start = self.at
        self._skip(_STRING)
        # tomli knows the escapes; decoding them here again would be a second opinion.
        name: str = tomli.loads(f"key = {self.text[start : self.at]}")["key"]
        return name

    def _value(self, path: KeyPath) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self._skip(_STRING)
        elif first == "[":
            self._list(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._skip(_SCALAR)

    def _list(self, path: KeyPath) -> None:
        self.at += len("[")
        self._skip(_GAP)
        index = 0
        while not self.text.startswith("]", self.at):
            element = (*path, index)
            self.lines[element] = self._line()
            self._value(element)
            self._skip_comma()
            index += 1

        self.at += len("]")

    def _inline_table(self, path: KeyPath) -> None:
        self.at += len("{")
        self._skip(_GAP)
        while not self.text.startswith("}", self.at):
            self._pair(path)
            self._skip_comma()

        self.at += len("}")

    def _skip_comma(self) -> None:
        self._skip(_GAP)
        if self.text.startswith(",", self.at):
            self.at += len(",")
            self._skip(_GAP)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is None:
            message = f"not the TOML that tomli accepted, at character {self.at}"
            raise ValueError(message)

        self.at = match.end()

    def _line(self) -> int:
        return bisect_right(self._newlines, self.at - 1) + 1
