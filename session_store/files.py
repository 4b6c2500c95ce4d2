"""The store port over files: a log, its anchor and its lock beside each other in one folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from .anchor import Anchor, encode_anchor, read_anchor
from .atomic import sweep, write_files
from .chain import START, EntryRef, Position, advanced
from .disk import Disk, storing
from .errors import Fenced, SessionNotFound
from .ids import now_ms
from .layout import Layout
from .lock import SessionLock, acquire
from .log import Durability, LogWriter
from .pointers import write_pointer
from .recovery import Aborted, NoNewline, Torn, Verdict, finish_line, remove_aborted, set_aside

_READ_AT_ONCE = 1 << 15


class FileLogs:
    """Logs in files. What a writer has open is kept here, so a lease is of use here only."""

    def __init__(
        self,
        disk: Disk,
        layout: Layout,
        *,
        durability: Durability = Durability.FSYNC,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._disk = disk
        self._layout = layout
        self._durability = durability
        self._clock = clock
        self._leases: dict[str, FileLease] = {}
        self._swept: set[Path] = set()

    def create(self, session_id: str, lines: Iterable[bytes]) -> None:
        """Make a new log, and its anchor, as the port says."""
        log = _NewLog(lines)
        with storing(f"write session {session_id}"):
            self._disk.make_folder(self._layout.sessions)
            write_files(
                self._disk,
                {
                    self._layout.log(session_id): log.lines(),
                    self._layout.anchor(session_id): log.anchor(),
                },
            )

        self._sweep_once(self._layout.sessions)

    def append(self, session_id: str, expected: EntryRef, epoch: int, lines: bytes) -> int:
        """Add lines to a log, as the port says."""
        lease = self._leases.get(session_id)
        if lease is None or lease.epoch != epoch:
            raise Fenced(session_id, epoch, None if lease is None else lease.epoch)

        return lease.append(expected, lines)

    def read(self, session_id: str) -> BinaryIO:
        """Return the log, open for reading, as the port says."""
        try:
            fd = self._layout.open_log(self._disk, session_id, os.O_RDONLY)
        except FileNotFoundError as error:
            raise SessionNotFound(session_id) from error

        return os.fdopen(fd, "rb", _READ_AT_ONCE)

    def head(self, session_id: str) -> Anchor | str | None:
        """Return the anchor, as the port says."""
        path = self._layout.anchor(session_id)
        try:
            return read_anchor(self._disk, path)
        except ValueError:
            return f"may not be the last one: the anchor {path.name} cannot be read"

    def publish(self, pod: str, session_id: str) -> None:
        """Move the pod's pointer, as the port says."""
        path = self._layout.pointer(pod)
        with storing(f"move the pointer of pod {pod}"):
            write_pointer(self._disk, path, session_id)

        self._sweep_once(path.parent)

    def make_durable(self, session_id: str) -> None:
        """Return once what is in the session's log is on the medium.

        A new session may name an entry that its writer has written and not yet synced.

        Raises:
            SessionNotFound: There is no such session.
            StorageFailed: It could not be synced.
        """
        with storing(f"sync session {session_id}"), self.read(session_id) as file:
            self._disk.sync(file.fileno())

    def withdraw(self, session_id: str) -> None:
        """Take away a session that was made and not announced, as far as can be done."""
        layout = self._layout
        for path in (layout.log(session_id), layout.anchor(session_id), layout.lock(session_id)):
            with suppress(OSError):  # the failure that brought us here is the one to tell
                self._disk.unlink(path)

    def claim(self, session_id: str) -> FileLease:
        """Return the right to write the session, whether or not it is there.

        Raises:
            SessionInUse: Somebody else has it.
            StorageFailed: The lock's file could not be made.
        """
        path = self._layout.lock(session_id)
        with storing(f"lock session {session_id}"):
            self._disk.make_folder(self._layout.sessions)
            # A lease that we know may be on a lock whose file is gone, and its epoch with it.
            known = self._leases.get(session_id)
            above = 0 if known is None else known.epoch
            lock = acquire(self._disk, path, session_id, self._clock(), above=above)

        lease = FileLease(self, self._disk, self._layout, session_id, lock)
        self._leases[session_id] = lease
        return lease

    def writer(self, session_id: str, fd: int, after: Position) -> LogWriter:
        """Return what writes the open file, whose end is `after`."""
        return LogWriter(
            self._disk,
            self._layout,
            session_id,
            fd=fd,
            position=after,
            durability=self._durability,
        )

    def _sweep_once(self, folder: Path) -> None:
        # Once, for a look at every name in a folder is not for each of the sessions made in it.
        if folder not in self._swept:
            self._swept.add(folder)
            sweep(self._disk, folder)

    def forget(self, lease: FileLease) -> None:
        """Let `append` refuse the epoch of this lease from now on."""
        if self._leases.get(lease.session_id) is lease:
            del self._leases[lease.session_id]


class FileLease:
    """The lock of one session, and its log once it is open for writing."""

    def __init__(
        self, logs: FileLogs, disk: Disk, layout: Layout, session_id: str, lock: SessionLock
    ) -> None:
        self.session_id = session_id
        """Whose right it is."""
        self._logs = logs
        self._disk = disk
        self._layout = layout
        self._lock = lock
        self._writer: LogWriter | None = None

    @property
    def epoch(self) -> int:
        """The lock's generation."""
        return self._lock.epoch

    @property
    def held(self) -> bool:
        """Whether the lock is held: not after `release`, and not in a forked child."""
        return self._lock.held

    def begin(self, verdict: Verdict, after: Position) -> Mapping[str, object] | None:
        """Open the log for writing and do for it what the verdict asks for, as the port says."""
        with ExitStack() as undo:
            with storing(f"open session {self.session_id}"):
                flags = os.O_RDWR | os.O_APPEND
                try:
                    fd = self._layout.open_log(self._disk, self.session_id, flags)
                except FileNotFoundError as error:
                    raise SessionNotFound(self.session_id) from error

                undo.callback(os.close, fd)

            with storing(f"mend session {self.session_id}"):
                told = self._mend(verdict, fd)

            self._writer = self._logs.writer(self.session_id, fd, after)
            undo.pop_all()

        return told

    def append(self, expected: EntryRef, lines: bytes) -> int:
        """Add lines to the log and return the seq of the last, as the port's `append` does."""
        if self._writer is None or not self._lock.is_the_one:
            raise Fenced(self.session_id, self.epoch, None)

        return self._writer.append(expected, lines)

    def note(self, after: Position) -> None:
        """Put the anchor at the entry before `after`, as the port says."""
        if self._writer is not None:
            self._writer.anchor(after)

    def release(self) -> None:
        """Close the log and let go of the lock. Doing so twice does nothing."""
        self._logs.forget(self)
        if self._writer is not None:
            # In a forked child too: the descriptor is its own copy.
            self._writer.close()

        self._lock.release()

    def _mend(self, verdict: Verdict, fd: int) -> Mapping[str, object] | None:
        match verdict:
            case NoNewline():
                finish_line(self._disk, fd)
            case Torn(offset, size) as torn:
                sidecar = set_aside(self._disk, self._layout, self.session_id, fd, torn)
                return {"offset": offset, "bytes": size, "sidecar": sidecar}
            case Aborted() as aborted:
                remove_aborted(self._disk, self._layout, self.session_id, fd, aborted)
            case _:
                pass

        return None


class _NewLog:
    """The lines of a new log as they pass by, and then the anchor at its end."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self._after = START

    def lines(self) -> Iterator[bytes]:
        for piece in self._lines:
            self._after = advanced(self._after, piece)
            yield piece

    def anchor(self) -> Iterator[bytes]:
        yield encode_anchor(self._after)
