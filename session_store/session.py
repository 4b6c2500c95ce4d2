"""`Session`: one session that is open for writing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeAlias

from worker.items import Item

from .chain import EntryRef, Position
from .commit import CommitQueue, Ticket
from .encoder import Encoder
from .errors import HeadMismatch, SessionStoreError, StorageFailed
from .gist import Gist
from .port import Lease, Logs
from .state import SessionState

GoOn: TypeAlias = Callable[[HeadMismatch], "tuple[EntryRef | None, Callable[[], Session]]"]
"""Finds the head that is there now, and how to go on in a fork from the one that was left."""


class Session:
    """A session that this process writes, got from a store. Threads may share it.

    An entry is acknowledged when the call that appends it returns. Calls of several threads that
    come at the same time share one write and one sync. After a failure of storage the session
    writes nothing more: open it again to find out what is on disk. In a forked child the session is
    closed.
    """

    def __init__(
        self,
        state: SessionState,
        position: Position,
        *,
        logs: Logs,
        lease: Lease,
        encoder: Encoder,
        go_on: GoOn,
    ) -> None:
        self.session_id = state.session_id
        """The session's id."""
        self.state = state
        """What the session was when it was opened."""
        self.set_aside: Mapping[str, object] | None = None
        """The fields of `recovered`, if the tail of its log was torn when it was opened."""
        self._position = position
        self._logs = logs
        self._lease = lease
        self._encoder = encoder
        self._go_on = go_on
        self._gist = Gist.of(state)
        self._failed = False
        self._fork: Session | None = None
        self._mutex = threading.RLock()
        self._queue = CommitQueue(self._write)

    @property
    def head(self) -> EntryRef:
        """The last entry that was acknowledged."""
        return self._position.head

    @property
    def gist(self) -> Gist:
        """What the session is now, without the items of its history."""
        with self._mutex:
            return self._gist.copy()

    @property
    def closed(self) -> bool:
        """Whether the session was closed, and with it the right to write it."""
        return not self._lease.held

    def append(self, kind: str, **fields: object) -> EntryRef:
        """Append one entry and return its name once it is durable.

        Items may be given as they are, in `items`, `history` and `item`.

        Raises:
            TypeError: Something in the fields cannot be JSON. Nothing was written.
            HeadMismatch: The log was changed by somebody else. Nothing was written; the error's
                `fork` gives a session to go on in.
            Fenced: Somebody else has the right to write it now. Nothing was written.
            StorageFailed: Writing failed, now or earlier, or the session is closed.
        """
        return self.append_many([(kind, fields)])[0]

    def append_items(self, kind: str, items: Sequence[Item]) -> EntryRef:
        """Append one entry of items, as `append` does."""
        return self.append_many([(kind, {"items": list(items)})])[0]

    def append_many(self, entries: Iterable[tuple[str, Mapping[str, object]]]) -> list[EntryRef]:
        """Append the entries (kind and fields) with one write and one sync, as `append` does.

        They follow each other in the log. A crash in the middle may leave the first of them and not
        the others.
        """
        self._check_open()
        ticket = Ticket(list(entries))
        self._queue.serve(ticket)
        if ticket.error is not None:
            raise ticket.error

        return ticket.refs

    def write_anchor(self) -> None:
        """Note down apart from the log how far it goes, so that a log cut short is noticed.

        Raises:
            StorageFailed: It could not be written, or the session is closed.
        """
        self._check_open()
        with self._mutex:
            self._check_usable()
            self._note()

    def close(self) -> None:
        """Write the anchor and let go of the session. Closing twice does nothing.

        Raises:
            StorageFailed: The anchor could not be written. The session is closed all the same.
        """
        if self.closed:
            # A forked child comes here too, and somebody may hold the mutex who is not there.
            self._lease.release()
            return

        with self._mutex:
            try:
                if not self._failed and not self.closed:
                    self._note()
            finally:
                self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, tickets: list[Ticket]) -> None:
        """Append what the tickets bring with one write, and settle them."""
        why: SessionStoreError | None = None
        try:
            with self._mutex:
                self._write_encoded(*self._encoded(tickets))
        except SessionStoreError as error:
            why = error
        finally:
            for ticket in tickets:
                if not ticket.done:
                    ticket.settle(why or self._failure("the append was interrupted"))

    def _encoded(self, tickets: list[Ticket]) -> tuple[list[Ticket], Position]:
        """Encode the entries one after the other; settle tickets that cannot be."""
        self._check_usable()
        position, good = self._position, []
        # What is written at once says so: a loss of power may leave any part of it.
        batch = position.seq if sum([len(ticket.entries) for ticket in tickets]) > 1 else None
        for ticket in tickets:
            try:
                ticket.lines, ticket.refs, position = self._encoder.encode(
                    position, ticket.entries, batch=batch
                )
            except Exception as error:  # noqa: BLE001  # it is told to the one who brought it
                ticket.settle(error)
            else:
                good.append(ticket)

        return good, position

    def _write_encoded(self, tickets: list[Ticket], after: Position) -> None:
        lines = b"".join([ticket.lines for ticket in tickets])
        if lines:
            # Until all has gone well: whatever ends this early, what was written is unknown.
            self._failed = True
            try:
                self._logs.append(self.session_id, self.head, self._lease.epoch, lines)
            except HeadMismatch as error:
                raise self._mismatch(error) from error

            self._failed = False
            self._position = after

        for ticket in tickets:
            self._take(ticket)
            ticket.settle()

    def _take(self, ticket: Ticket) -> None:
        split = ticket.lines.split(b"\n") if len(ticket.entries) > 1 else [ticket.lines]
        for (kind, fields), ref, line in zip(ticket.entries, ticket.refs, split, strict=False):
            self._gist.take(ref, kind, fields, line)

    def _mismatch(self, error: HeadMismatch) -> HeadMismatch:
        found, make_fork = self._go_on(error)

        def fork() -> Session:
            with self._mutex:
                if self._fork is None:
                    self._fork = make_fork()
                    self.close()

                return self._fork

        return HeadMismatch(
            self.session_id, error.why, expected=error.expected, found=found, fork=fork
        )

    def _note(self) -> None:
        self._failed = True
        self._lease.note(self._position)
        self._failed = False

    def _check_open(self) -> None:
        # Before any lock is taken: in a forked child somebody may hold it who is not there.
        if self.closed:
            raise self._failure("it was closed")

    def _check_usable(self) -> None:
        self._check_open()
        if self._failed:
            raise self._failure("an earlier write failed")

    def _failure(self, why: str) -> StorageFailed:
        return StorageFailed(f"write session {self.session_id}", why)
