"""What a damaged log is made of: entries that match their hashes, and whatever is between them.

Every line that matches its own hash was once written; which entry it followed is in the bytes that
are hashed. So the entries are found wherever they stand, two on one line or one after a stretch of
something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .chain import GENESIS, Entry, entry_named

_GLUE = b'}{"hash":"'


class Piece(NamedTuple):
    """A stretch of a damaged log: an entry that matches its hash, or something else."""

    offset: int
    raw: bytes
    size: int
    """Bytes, with the newline."""
    seq: int | None
    prev: str
    hash: str


def pieces_of(data: bytes) -> Iterator[Piece]:
    """Yield all that the bytes of a log are made of, in order."""
    offset = 0
    for line in data.split(b"\n"):
        size = min(len(line) + 1, len(data) - offset)
        whole = _piece(line, offset, size)
        parts = [whole] if whole.seq is not None else _unglued(line, offset)
        # Of entries on one line either all match their hashes, or none is taken for one.
        if any(part.seq is None for part in parts):
            parts = [whole] if size else []

        yield from parts
        offset += size


def _unglued(line: bytes, offset: int) -> list[Piece]:
    """Return the entries that stand on one line. Inside an entry, these bytes cannot occur."""
    cuts = [0]
    while (at := line.find(_GLUE, cuts[-1])) >= 0:
        cuts.append(at + 1)

    spans = zip(cuts, [*cuts[1:], len(line)], strict=True)
    return [_piece(line[a:b], offset + a, b - a + (b == len(line))) for a, b in spans]


def _piece(raw: bytes, offset: int, size: int) -> Piece:
    entry = entry_named(raw, offset)
    if entry is None:
        return Piece(offset, raw, size, None, "", "")

    return Piece(offset, raw, size, entry.seq, entry.data["prev"], entry.hash)


def chained(pieces: Iterable[Piece]) -> Iterator[Entry]:
    """Yield the entries as far as each follows the one before."""
    following: dict[tuple[str, int], Piece] = {}
    for piece in pieces:
        if piece.seq is not None:
            following.setdefault((piece.prev, piece.seq), piece)

    prev, seq = GENESIS, 0
    while (found := following.get((prev, seq))) is not None:
        entry = entry_named(found.raw, found.offset)
        assert entry is not None, "it was one just now"  # noqa: S101  a defect, not a damage
        yield entry
        prev, seq = entry.hash, seq + 1
