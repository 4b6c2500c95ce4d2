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
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""struct codes by GGUF value type: u8 i8 u16 i16 u32 i32 f32 bool, then u64 i64 f64."""
_FIRST_KEY = "general.architecture"

Value: TypeAlias = int | float | bool | str | None


@frozen
class GgufInfo:
    """What a language model's GGUF file says of itself."""

    architecture: str
    """The model family, such as `llama`."""
    context_length: int
    """Tokens of context the model was trained for."""
    name: str | None
    """`general.name`, where it comes before the context length; often not what people call it."""


class GgufInvalid(ValueError):
    """The file is no GGUF file that describes a language model; the message says why."""


def read_gguf(path: Path) -> GgufInfo:
    """Return what the model at `path` says of itself.

    Raises `GgufInvalid` for anything that is not a whole, plausible header, and `OSError` where
    the file cannot be read. The tensors are not looked at.
    """
    with path.open("rb") as stream:
        reader = _Reader(stream, os.fstat(stream.fileno()).st_size)
        found: dict[str, Value] = {}
        for key, value in _metadata(reader):
            found[key] = value
            length = found.get(f"{found.get(_FIRST_KEY)}.context_length")
            if length is not None:
                return _info(found, length)

    raise GgufInvalid("it names no context length, so it is no language model")


def _info(found: dict[str, Value], length: Value) -> GgufInfo:
    if not isinstance(length, int) or length < 1:
        raise GgufInvalid(f"its context length is {length!r}")

    name = found.get("general.name")
    return GgufInfo(str(found[_FIRST_KEY]), length, name if isinstance(name, str) else None)


def _metadata(reader: _Reader) -> Iterator[tuple[str, Value]]:
    if reader.take(4) != _MAGIC:
        raise GgufInvalid("it does not begin with the letters GGUF")

    version = reader.number("I")
    if version not in _VERSIONS:
        raise GgufInvalid(f"it has GGUF version {version}; 2 and 3 (little-endian) are known")

    reader.number("Q")  # the number of tensors
    for _ in range(int(reader.number("Q"))):
        yield reader.string(), reader.value(int(reader.number("I")))


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

    def string(self) -> str:
        return self.take(int(self.number("Q"))).decode("utf-8", "replace")

    def value(self, kind: int) -> Value:
        """Return a scalar or a string; an array is stepped over and gives None."""
        if kind == _STRING:
            return self.string()

        if kind == _ARRAY:
            self._skip_array(int(self.number("I")), int(self.number("Q")))
            return None

        return self.number(_code(kind))

    def _skip_array(self, kind: int, count: int) -> None:
        if kind == _STRING:
            for _ in range(count):
                self._skip(int(self.number("Q")))

            return

        self._skip(struct.calcsize(f"<{_code(kind)}") * count)

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
