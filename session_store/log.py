"""A log that is open for writing: lines go in at its end, and are durable when that returns."""

from __future__ import annotations

import enum
import os

from .anchor import read_anchor, write_anchor
from .chain import PREFIX_BYTES, EntryRef, Position, advanced
from .disk import Disk, storing, write_all
from .errors import HeadMismatch, StorageFailed
from .layout import Layout


class Durability(enum.Enum):
    """What an acknowledged entry survives."""

    FSYNC = "fsync"
    """The loss of power: each append waits for the medium."""
    FLUSH = "flush"
    """The death of the process: each append waits for the system only."""


class LogWriter:
    """The end of one log, and its anchor. Owns the descriptor; the caller holds the lock.

    After any failure the file may hold less than was written or more than was acknowledged, and
    only reading it again tells. So the writer writes nothing more, and tries nothing twice.
    """

    def __init__(
        self,
        disk: Disk,
        layout: Layout,
        session_id: str,
        *,
        fd: int,
        position: Position,
        durability: Durability,
    ) -> None:
        self._disk = disk
        self._session_id = session_id
        self._doing = f"write {layout.log(session_id).name}"
        self._writing = storing(self._doing)
        self._anchor = layout.anchor(session_id)
        self._fd = fd
        self._durability = durability
        self._failed = False
        self._position = position
        self._last: tuple[int, bytes] | None = None  # where the last line begins, and how

    def append(self, expected: EntryRef, lines: bytes) -> int:
        """Write the lines after the entry `expected`; return the last one's seq once durable.

        Raises:
            HeadMismatch: The file is not as this writer left it. Nothing was written.
            StorageFailed: The lines may be on disk or not; this writer is done.
        """
        self._check_usable()
        before = self._position
        if expected != (before.seq - 1, before.prev):
            why = f"entry {before.seq - 1} is its last one, not entry {expected.seq}"
            raise HeadMismatch(self._session_id, why, expected=expected)

        # Before the sync, while the processor's caches are warm.
        after = advanced(before, lines)
        last = lines.rfind(b"\n", 0, -1) + 1
        beginning = (before.offset + last, lines[last : last + PREFIX_BYTES])
        # Until all has gone well: whatever ends this early, how much was written is unknown.
        self._failed = True
        with self._writing:
            self._check_untouched()
            write_all(self._disk, self._fd, lines)
            if self._durability is Durability.FSYNC:
                self._disk.sync(self._fd)

        self._failed = False
        self._last, self._position = beginning, after
        return after.seq - 1

    def anchor(self, after: Position) -> None:
        """Put the anchor at the entry before `after`, unless it is there.

        Raises:
            StorageFailed: It could not be written, or an earlier write failed.
        """
        self._check_usable()
        self._failed = True
        with storing(f"write {self._anchor.name}"):
            anchor = read_anchor(self._disk, self._anchor)
            if anchor != (*after.head, after.offset):
                # The anchor must never be ahead of the log, also after a loss of power.
                if self._durability is Durability.FLUSH:
                    self._disk.sync(self._fd)

                write_anchor(self._disk, self._anchor, after)

        self._failed = False

    def close(self) -> None:
        """Let go of the file. Doing so twice does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _check_usable(self) -> None:
        if self._failed:
            raise StorageFailed(self._doing, "an earlier write failed")

        if self._fd < 0:
            raise StorageFailed(self._doing, "the session was closed")

    def _check_untouched(self) -> None:
        found = os.fstat(self._fd)
        why = ""
        if found.st_nlink == 0:
            why = "it was removed"
        elif found.st_size != self._position.offset:
            why = f"it has {found.st_size:,} bytes where {self._position.offset:,} were left"
        elif self._last and os.pread(self._fd, PREFIX_BYTES, self._last[0]) != self._last[1]:
            why = "its last entry is another one"

        if why:
            raise HeadMismatch(self._session_id, why, expected=self._position.head)
