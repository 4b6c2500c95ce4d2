"""Group commit: threads that append at the same time share one write and one sync.

Whoever comes first leads: it writes what all who wait have brought, while the next ones gather.
Then it hands the lead to the first of those. Nobody leads twice in a row for others, and there is
no thread of its own: one writer alone pays next to nothing for this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import Factory, define

from .chain import EntryRef

Draft: TypeAlias = tuple[str, Mapping[str, Any]]
"""An entry to be: its kind and fields."""


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@define(eq=False)
class Ticket:
    """What one call wants appended, and what became of it."""

    entries: Sequence[Draft]
    refs: list[EntryRef] = Factory(list)
    lines: bytes = b""
    error: Exception | None = None
    done: bool = False
    leads: bool = False
    turn: threading.Lock = Factory(_locked)
    """Free once it is settled, or has the lead."""

    def settle(self, error: Exception | None = None) -> None:
        """Say what became of it. Only the first word counts."""
        if not self.done:
            self.error = error
            self.done = True


class CommitQueue:
    """Lets threads that come at the same time be served together, in the order they came."""

    def __init__(self, write: Callable[[list[Ticket]], None]) -> None:
        """Serve by `write`, which settles every ticket that it is given."""
        self._write = write
        self._gate = threading.Lock()
        self._waiting: list[Ticket] = []
        self._led = False

    def serve(self, ticket: Ticket) -> None:
        """Return once the ticket is settled, by this thread or by another one."""
        with self._gate:
            self._waiting.append(ticket)
            ticket.leads = not self._led
            self._led = True

        if not ticket.leads:
            self._wait(ticket)

        if not ticket.done:
            self._lead()

    def _wait(self, ticket: Ticket) -> None:
        try:
            ticket.turn.acquire()
        except BaseException:
            # An interrupt: this thread leaves, and the others must not wait for it.
            with self._gate:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)

            if ticket.leads and not ticket.done:
                self._hand_over()

            raise

    def _lead(self) -> None:
        with self._gate:
            batch, self._waiting = self._waiting, []

        try:
            self._write(batch)
        finally:
            # First the next leader, so that the medium has something to do while these wake up.
            self._hand_over()
            for ticket in batch:
                if not ticket.leads:
                    ticket.turn.release()

    def _hand_over(self) -> None:
        with self._gate:
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].turn.release()
            else:
                self._led = False
