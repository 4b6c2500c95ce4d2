"""A manifest being written: tables, keys with what is said of them, and what was left out. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_COLUMN = 40
_WIDTH = 98


@frozen
class Line:
    """A key of a table; `off` comments it out, with why in the comment."""

    key: str
    value: object
    comment: str = ""
    off: bool = False


@define
class Table:
    """A table of a manifest, under its header."""

    name: str
    lines: list[Line] = field(factory=list)
    notes: list[str] = field(factory=list)
    """What was not carried over, a sentence each; they stand under the table's keys."""

    def add(self, key: str, value: object, comment: str = "") -> None:
        """Add a key, unless there is nothing to say."""
        if value is not None:
            self.lines.append(Line(key, value, comment))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.lines and not self.notes


@define
class Document:
    """A manifest, its tables in the order in which they are written."""

    head: list[str] = field(factory=list)
    tables: list[Table] = field(factory=list)
    foot: list[str] = field(factory=list)

    def table(self, name: str) -> Table:
        """Return the table of this name, made where it is not there."""
        for table in self.tables:
            if table.name == name:
                return table

        made = Table(name)
        self.tables.append(made)
        return made

    def without(self, keys: Iterable[str], why: str) -> Document:
        """Return a copy with these keys (`compaction.compact_idle_seconds`) commented out."""
        off = set(keys)

        def line_of(table: Table, line: Line) -> Line:
            is_off = f"{table.name}.{line.key}" in off or table.name in off
            return Line(line.key, line.value, why, off=True) if is_off else line

        tables = [
            Table(table.name, [line_of(table, line) for line in table.lines], list(table.notes))
            for table in self.tables
        ]
        return Document(list(self.head), tables, list(self.foot))

    def text(self) -> str:
        """Return the manifest as TOML."""
        blocks = [_comments(self.head)] if self.head else []
        blocks += [_block(table) for table in self.tables if not table.is_empty]
        if self.foot:
            blocks.append(_comments(self.foot))

        return "\n\n".join(blocks) + "\n"


def _block(table: Table) -> str:
    # A table whose keys are all commented out has its header commented out too.
    is_off = all(line.off for line in table.lines)
    header = f"{'# ' * is_off}[{table.name}]"
    return "\n".join([header, *map(_line, table.lines), *filter(None, [_comments(table.notes)])])


def _line(line: Line) -> str:
    value = _rows(line.value) if _is_long(line) else toml_value(line.value)
    said = f"{_key(line.key)} = {value}"
    if line.off:
        said = "\n".join(f"# {part}" for part in said.split("\n"))

    if not line.comment:
        return said

    if "\n" in said or len(said) + len(line.comment) + 4 > _WIDTH:
        return f"{_comments([line.comment])}\n{said}"

    return f"{said.ljust(_COLUMN)}# {line.comment}"


def _is_long(line: Line) -> bool:
    """Tell whether a value is better written one row a line."""
    if not isinstance(line.value, list) or not line.value:
        return False

    has_tables = all(isinstance(row, Mapping) for row in line.value)
    return has_tables and len(line.key) + len(toml_value(line.value)) > _WIDTH


def _rows(rows: object) -> str:
    listed = rows if isinstance(rows, list) else []
    return "\n".join(["[", *(f"  {toml_value(row)}," for row in listed), "]"])


def _comments(sentences: Iterable[str]) -> str:
    import textwrap

    # Words are kept whole: a key or a path that is cut in two cannot be searched for.
    wrap = textwrap.TextWrapper(
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(line for sentence in sentences for line in wrap.wrap(sentence))


def toml_value(value: object) -> str:
    """Return a value as TOML has it. Raises TypeError for what it has no word for."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case Mapping():
            return f"{{ {', '.join(_pair(key, inner) for key, inner in value.items())} }}"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _pair(key: object, value: object) -> str:
    return f"{_key(str(key))} = {toml_value(value)}"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _text(text: str) -> str:
    if "\n" not in text or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        return _quoted(text)

    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""\n{inner}"""'


def _quoted(text: str) -> str:
    # What JSON escapes, TOML does too; one control character more is escaped in TOML alone.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def plain(value: Any) -> object:  # noqa: ANN401  whatever YAML holds
    """Return a value without what TOML has no word for: dates as text, nothing left out."""
    match value:
        case bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [plain(inner) for inner in value if inner is not None]
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items() if inner is not None}
        case _:
            return str(value)
