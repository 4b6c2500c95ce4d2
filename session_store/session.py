"""`Session`: one session that is open for writing."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from worker.items import Item

from .chain import EntryRef
from .encoder import Encoder
from .errors import StorageFailed
from .gist import Gist
from .lock import SessionLock
from .log import LogWriter
from .state import SessionState


class Session:
    """A session that this process writes, got from a store. Threads may share it.

    An entry is acknowledged when the call that appends it returns. After a failure of storage the
    session writes nothing more: open it again to find out what is on disk. In a forked child the
    session is closed.
    """

    def __init__(
        self, state: SessionState, *, writer: LogWriter, encoder: Encoder, lock: SessionLock
    ) -> None:
        self.session_id = state.session_id
        """The session's id."""
        self.state = state
        """What the session was when it was opened."""
        self._writer = writer
        self._encoder = encoder
        self._lock = lock
        self._gist = Gist.of(state)
        self._mutex = threading.Lock()

    @property
    def head(self) -> EntryRef:
        """The last entry that was acknowledged."""
        return self._writer.head

    @property
    def gist(self) -> Gist:
        """What the session is now, without the items of its history."""
        with self._mutex:
            return self._gist.copy()

    @property
    def closed(self) -> bool:
        """Whether the session was closed, and with it the right to write it."""
        return not self._lock.held

    def append(self, kind: str, **fields: object) -> EntryRef:
        """Append one entry and return its name once it is durable.

        Items may be given as they are, in `items`, `history` and `item`.

        Raises:
            TypeError: Something in the fields cannot be JSON. Nothing was written.
            HeadMismatch: The log was changed by somebody else. Nothing was written.
            StorageFailed: Writing failed, now or earlier, or the session is closed.
        """
        (ref,) = self.append_many([(kind, fields)])
        return ref

    def append_items(self, kind: str, items: Sequence[Item]) -> EntryRef:
        """Append one entry of items, as `append` does."""
        return self.append(kind, items=list(items))

    def append_many(self, entries: Iterable[tuple[str, Mapping[str, object]]]) -> list[EntryRef]:
        """Append the entries (kind and fields) with one write and one sync, as `append` does.

        A crash in the middle may leave the first of them and not the others.
        """
        self._check_open()
        with self._mutex:
            self._check_open()
            given = list(entries)
            lines, refs, after = self._encoder.encode(self._writer.position, given)
            if refs:
                self._writer.append(lines, after)
                self._note(given, refs, lines)

            return refs

    def write_anchor(self) -> None:
        """Note down apart from the log how far it goes, so that a log cut short is noticed.

        Raises:
            StorageFailed: It could not be written, or the session is closed.
        """
        self._check_open()
        with self._mutex:
            self._check_open()
            self._writer.anchor()

    def close(self) -> None:
        """Write the anchor and let go of the session. Closing twice does nothing.

        Raises:
            StorageFailed: The anchor could not be written. The session is closed all the same.
        """
        if self.closed:
            # A forked child comes here too; the descriptor is its own copy.
            self._writer.close()
            return

        with self._mutex:
            try:
                if not self._writer.failed and not self.closed:
                    self._writer.anchor()
            finally:
                self._writer.close()
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _note(
        self, entries: list[tuple[str, Mapping[str, object]]], refs: list[EntryRef], lines: bytes
    ) -> None:
        for (kind, fields), ref, line in zip(entries, refs, lines.split(b"\n"), strict=False):
            self._gist.take(ref, kind, fields, line)

    def _check_open(self) -> None:
        # Before the mutex is taken: in a forked child somebody may hold it who is not there.
        if self.closed:
            raise StorageFailed(f"write session {self.session_id}", "it was closed")
