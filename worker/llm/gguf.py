"""Reading what a GGUF file says of itself, without loading it.

Only the header is read. Every length in it is checked against the file's own size, so that a
damaged file is named as one before a native library has to judge it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias

from attrs import frozen

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""struct codes by GGUF value type: u8 i8 u16 i16 u32 i32 f32 bool, then u64 i64 f64."""
_FIRST_KEY = "general.architecture"
_TEMPLATE_KEY = "tokenizer.chat_template"
_TEXT_MAX_BYTES = 1 << 20
"""Longer texts (a whole tokenizer, or a broken length) are not read."""

Value: TypeAlias = int | float | bool | str | None


@frozen
class GgufInfo:
    """What a language model's GGUF file says of itself."""

    architecture: str
    """The model family, such as `llama`."""
    context_length: int
    """Tokens of context the model was trained for."""
    name: str | None
    """`general.name`; often not what people call it."""
    chat_template: str | None = None
    """The Jinja template that makes a prompt of messages; None where the file has none."""
    has_tool_template: bool = False
    """Whether there is another template for requests with tools."""


class GgufInvalid(ValueError):
    """The file is no GGUF file that describes a language model; the message says why."""


def read_gguf(path: Path) -> GgufInfo:
    """Return what the model at `path` says of itself.

    Raises `GgufInvalid` for anything that is not a whole, plausible header, and `OSError` where
    the file cannot be read. The tensors are not looked at.
    """
    with path.open("rb") as stream:
        reader = _Reader(stream, os.fstat(stream.fileno()).st_size)
        found = dict(_metadata(reader))

    architecture = found.get(_FIRST_KEY)
    length = found.get(f"{architecture}.context_length")
    if length is None:
        raise GgufInvalid("it names no context length, so it is no language model")
    if not isinstance(length, int) or length < 1:
        raise GgufInvalid(f"its context length is {length!r}")

    return GgufInfo(
        str(architecture),
        length,
        _text(found.get("general.name")),
        chat_template=_text(found.get(_TEMPLATE_KEY)),
        has_tool_template=f"{_TEMPLATE_KEY}.tool_use" in found,
    )


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _metadata(reader: _Reader) -> Iterator[tuple[str, Value]]:
    if reader.take(4) != _MAGIC:
        raise GgufInvalid("it does not begin with the letters GGUF")

    version = reader.number("I")
    if version not in _VERSIONS:
        raise GgufInvalid(f"it has GGUF version {version}; 2 and 3 (little-endian) are known")

    reader.number("Q")  # the number of tensors
    for _ in range(int(reader.number("Q"))):
        yield reader.text() or "", reader.value(int(reader.number("I")))


class _Reader:
    """Takes values off the front of a file and refuses to run past its end."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._left = size

    def take(self, count: int) -> bytes:
        self._claim(count)
        return self._stream.read(count)

    def number(self, code: str) -> int | float | bool:
        layout = f"<{code}"
        (number,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return number  # type: ignore[no-any-return]  # struct.unpack is untyped by nature

    def text(self) -> str | None:
        """Return a text; one that is longer than any that is asked for is stepped over."""
        length = int(self.number("Q"))
        if length > _TEXT_MAX_BYTES:
            self._skip(length)
            return None

        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Value:
        """Return a scalar or a text; an array is stepped over and gives None."""
        if kind == _STRING:
            return self.text()

        if kind == _ARRAY:
            self._skip_array(int(self.number("I")), int(self.number("Q")))
            return None

        return self.number(_code(kind))

    def _skip_array(self, kind: int, count: int) -> None:
        if kind == _STRING:
            self._skip_strings(count)
        else:
            self._skip(struct.calcsize(f"<{_code(kind)}") * count)

    def _skip_strings(self, count: int) -> None:
        """Step over a vocabulary: there may be half a million strings, so few steps for each."""
        read, seek, unpack, left = self._stream.read, self._stream.seek, _LENGTH.unpack, self._left
        for _ in range(count):
            left -= _LENGTH.size
            if left < 0:
                break

            (length,) = unpack(read(_LENGTH.size))
            left -= length
            if left < 0:
                break

            seek(length, os.SEEK_CUR)

        self._claim(self._left - left)

    def _skip(self, count: int) -> None:
        self._claim(count)
        self._stream.seek(count, os.SEEK_CUR)

    def _claim(self, count: int) -> None:
        if count > self._left:
            raise GgufInvalid("it ends in the middle of its header")

        self._left -= count


def _code(kind: int) -> str:
    """Return the struct code of a scalar; arrays within arrays exist on paper only."""
    code = _SCALARS.get(kind)
    if code is None:
        raise GgufInvalid(f"its header holds a value of the unknown type {kind}")

    return code
