"""Opening a session for writing: verified as a whole, mended if its tail was torn, else refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from attrs import evolve

from .ancestry import Ancestry
from .blobs import blobs_of
from .chain import START
from .disk import Disk, storing
from .encoder import Encoder
from .errors import SessionNotFound
from .fold import Fold
from .layout import Layout
from .lock import SessionLock, acquire
from .log import Durability, LogWriter
from .reader import Scan, anchor_or_why_not, raise_if_unusable, with_payload
from .recovery import Aborted, NoNewline, Torn, finish_line, remove_aborted, set_aside
from .session import Session


class Opener:
    """Opens the sessions of one store for writing."""

    def __init__(
        self, disk: Disk, layout: Layout, clock: Callable[[], int], durability: Durability
    ) -> None:
        self._disk = disk
        self._layout = layout
        self._clock = clock
        self._durability = durability
        self._blobs = blobs_of(disk, layout)

    def lock(self, session_id: str) -> SessionLock:
        """Return the right to write the session, whether or not it is there.

        Raises:
            SessionInUse: Somebody else has it.
            StorageFailed: The lock's file could not be made.
        """
        path = self._layout.lock(session_id)
        with storing(f"lock session {session_id}"):
            self._disk.make_folder(self._layout.sessions)
            return acquire(self._disk, path, session_id, self._clock())

    def open(self, session_id: str) -> Session:
        """Return the session, open for writing and mended if its tail was torn.

        Raises:
            SessionNotFound: There is none.
            SessionInUse: Somebody else writes it.
            SessionDamaged: It does not verify. Nothing was changed.
            StorageFailed: It could not be opened for writing, or not be mended.
            UnsafePath: A symlink, or not our own.
        """
        if not self._layout.log(session_id).exists():
            raise SessionNotFound(session_id)

        with ExitStack() as undo:
            lock = self.lock(session_id)
            undo.callback(lock.release)
            session = self.open_locked(session_id, lock)
            undo.pop_all()
            return session

    def open_locked(self, session_id: str, lock: SessionLock) -> Session:
        """Return the session whose lock is held already, as `open` does."""
        # The anchor before the log, as everywhere.
        anchor = anchor_or_why_not(self._disk, self._layout, session_id)
        with storing(f"open session {session_id}"):
            try:
                fd = self._layout.open_log(self._disk, session_id, os.O_RDWR | os.O_APPEND)
            except FileNotFoundError as error:
                raise SessionNotFound(session_id) from error

        with ExitStack() as undo:
            undo.callback(os.close, fd)
            with os.fdopen(fd, "rb", closefd=False) as file:
                scan = Scan(file, session_id, anchor, START)
                fold = self._folded(scan, session_id)

            session = self._writable(session_id, scan, fold, fd, lock)
            undo.pop_all()
            return session

    def _folded(self, scan: Scan, session_id: str) -> Fold:
        fold = Fold()
        for entry in scan:
            if entry.seq == 0:
                fold = Fold(Ancestry(self._disk, self._layout).inherited(session_id))

            fold.take(with_payload(entry, session_id, self._blobs))

        return fold

    def _writable(
        self, session_id: str, scan: Scan, fold: Fold, fd: int, lock: SessionLock
    ) -> Session:
        recovered = self._mend(session_id, scan, fd)
        raise_if_unusable(session_id, scan.verdict, scan.position)
        state = fold.state()
        writer = LogWriter(
            self._disk,
            self._layout,
            session_id,
            fd=fd,
            position=scan.position,
            durability=self._durability,
        )
        encoder = Encoder(self._blobs, self._clock, state.updated)
        if recovered is not None:
            lines, _, after = encoder.encode(writer.position, [("recovered", recovered)])
            writer.append(lines, after)
            state = evolve(state, head=writer.head)

        return Session(state, writer=writer, encoder=encoder, lock=lock)

    def _mend(self, session_id: str, scan: Scan, fd: int) -> dict[str, int | str] | None:
        """Do for the log what the verdict asks for; return the fields of the entry that tells."""
        with storing(f"mend session {session_id}"):
            match scan.verdict:
                case NoNewline():
                    finish_line(self._disk, fd)
                case Torn(offset, size) as torn:
                    sidecar = set_aside(self._disk, self._layout, session_id, fd, torn)
                    return {"offset": offset, "bytes": size, "sidecar": sidecar}
                case Aborted() as aborted:
                    remove_aborted(self._disk, self._layout, session_id, fd, aborted)
                case _:
                    pass

        return None
