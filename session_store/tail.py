"""The end of a log, read without what is before it.

A fork names one entry of its parent by its hash, and whenever the fork is opened everything up to
that entry is verified. So where a fork is made, only this much is proved:

* At the head: the entry that the anchor names is there, byte for byte, and the chain from it to the
  end of the log holds. Without an anchor that can be used, the whole log is verified.
* At an entry: the entry is there and matches its own hash.
* Either way, each entry looked back at is the one that the entry after it names.

What is before is neither read nor verified then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from .anchor import Anchor
from .chain import (
    START,
    Entry,
    EntryRef,
    Position,
    entry_named,
    line_start,
)
from .port import Logs
from .reader import Reader
from .recovery import Damaged

_BLOCK = 1 << 16
_SEARCH_BLOCK = 1 << 20


class LogEnd:
    """The end of one session's log. Nothing is changed, and nothing kept open."""

    def __init__(self, logs: Logs, session_id: str) -> None:
        self._logs = logs
        self._session_id = session_id

    def position(self) -> Position:
        """Return where the entry after the head will be.

        Raises:
            SessionNotFound: There is no such session.
            SessionDamaged: The end does not verify.
        """
        start = self._after_anchor()
        reader = self._walked(start)
        if start != START and isinstance(reader.verdict, Damaged):
            reader = self._walked(START)  # to tell what verifies takes all of it

        reader.raise_if_unusable()
        return reader.position

    def backwards(self, end: Position) -> Iterator[Entry]:
        """Yield the entries before `end`, the last one first.

        `end` is trusted; each entry is proved to be the one that the one after it names.

        Raises:
            SessionDamaged: The next one is not.
        """
        with self._logs.read(self._session_id) as file:
            ref = EntryRef(end.seq - 1, end.prev)
            for offset, raw in _lines_before(file, end.offset):
                entry = entry_named(raw, offset, ref)
                if entry is None:
                    # To tell what verifies and what does not takes all of it.
                    self._walked(START).raise_if_unusable()
                    return

                yield entry
                ref = EntryRef(ref.seq - 1, entry.data["prev"])

    def find(self, digits: str) -> Entry | None:
        """Return the one entry whose hash begins with `digits`, if it matches its hash.

        None says nothing: there may be none, or several, or it may be damaged.
        """
        with self._logs.read(self._session_id) as file:
            found = _starts_of(file, digits)
            offset = next(found, None)
            whole = len(digits) == len(START.prev)
            if offset is None or (not whole and next(found, None) is not None):
                return None

            file.seek(offset)
            return entry_named(file.readline().removesuffix(b"\n"), offset)

    def _walked(self, start: Position) -> Reader:
        reader = Reader(self._logs, self._session_id, start)
        reader.run()
        return reader

    def _after_anchor(self) -> Position:
        """Return the place after the anchored entry, which is there; START where that is not so."""
        anchor = self._logs.head(self._session_id)
        end = self._end_of(anchor) if isinstance(anchor, Anchor) else None
        if not isinstance(anchor, Anchor) or end is None:
            return START

        after = Position(anchor.seq + 1, anchor.hash, end)
        return START if next(self.backwards(after), None) is None else after

    def _end_of(self, anchor: Anchor) -> int | None:
        if anchor.end is not None:
            return anchor.end

        # An anchor of before ends were noted in it.
        entry = self.find(anchor.hash)
        return None if entry is None else entry.next.offset


def _lines_before(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each line before `end`, the last one first."""
    stop = end - 1  # of the line, without its newline, which the very last one may lack
    if stop > file.seek(0, os.SEEK_END):
        return

    block, start = b"", stop
    while stop >= 0:
        cut = block.rfind(b"\n", 0, stop - start)
        while cut < 0 and start > 0:
            # Twice as much each time: a long line is not copied once for each of its blocks.
            size = min(start, max(_BLOCK, len(block)))
            start -= size
            file.seek(start)
            block = file.read(size) + block[: stop - start - size]
            cut = block.rfind(b"\n", 0, size)

        yield start + cut + 1, block[cut + 1 : stop - start]
        stop = start + cut


def _starts_of(file: BinaryIO, digits: str) -> Iterator[int]:
    """Yield the offset of each line whose hash begins with `digits`, the last one first."""
    wanted = b"\n" + line_start(digits)
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _SEARCH_BLOCK)
        file.seek(start)
        block = file.read(end - start + len(wanted) - 1)
        at = block.rfind(wanted)
        while at >= 0:
            yield start + at + 1
            at = block.rfind(wanted, 0, at + len(wanted) - 1)

        end = start

    file.seek(0)
    if file.read(len(wanted) - 1) == wanted[1:]:
        yield 0
