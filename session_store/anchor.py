"""The anchor: the highest acknowledged entry of a log, kept apart from the log.

A chain alone cannot tell that its end is missing. The anchor is written after the entry it names
is durable, so a log that ends before its anchor was cut.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from .atomic import read_file, write_file
from .chain import EntryRef
from .disk import Disk


def encode_anchor(head: EntryRef) -> bytes:
    """Return the bytes of an anchor."""
    return orjson.dumps({"seq": head.seq, "hash": head.hash}) + b"\n"


def write_anchor(disk: Disk, path: Path, head: EntryRef) -> None:
    """Put the anchor at `head`, whole and durable. Raises `OSError`."""
    write_file(disk, path, encode_anchor(head))


def read_anchor(disk: Disk, path: Path) -> EntryRef | None:
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
            return EntryRef(seq, digest)
        case _:
            raise ValueError("not an anchor")
