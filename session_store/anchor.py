"""The anchor: the highest acknowledged entry of a log, kept apart from the log.

A chain alone cannot tell that its end is missing. The anchor is written after the entry it names
is durable, so a log that ends before its anchor was cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import orjson

from .atomic import read_file, write_file
from .chain import EntryRef, Position
from .disk import Disk


class Anchor(NamedTuple):
    """What is known to be in a log."""

    seq: int
    """The place in the log of the highest entry that was acknowledged."""
    hash: str
    """Its hash."""
    end: int | None = None
    """The byte after its newline; None in the anchor of a store that did not note it."""

    @property
    def ref(self) -> EntryRef:
        """The entry's name."""
        return EntryRef(self.seq, self.hash)


def encode_anchor(after: Position) -> bytes:
    """Return the bytes of an anchor at the entry before `after`."""
    return orjson.dumps({"seq": after.seq - 1, "hash": after.prev, "end": after.offset}) + b"\n"


def write_anchor(disk: Disk, path: Path, after: Position) -> None:
    """Put the anchor at the entry before `after`, whole and durable. Raises `OSError`."""
    write_file(disk, path, encode_anchor(after))


def read_anchor(disk: Disk, path: Path) -> Anchor | None:
    """Return the anchor, or None where there is none.

    Raises:
        ValueError: The file is there and is no anchor.
    """
    try:
        value = orjson.loads(read_file(disk, path))
    except FileNotFoundError:
        return None

    match value:
        case {"seq": int(seq), "hash": str(digest)} if seq >= 0:
            end = value.get("end")
            return Anchor(seq, digest, end if type(end) is int and end > 0 else None)
        case _:
            raise ValueError("not an anchor")
