"""New sessions: a log comes into being whole, with its anchor, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from .anchor import encode_anchor
from .atomic import write_files
from .blobs import blobs_of
from .chain import START, EntryRef
from .disk import Disk, storing
from .encoder import Encoder
from .errors import SessionNotFound
from .layout import Layout

FORMAT = 1
"""The version of the log's format."""


class Publisher:
    """Writes the logs of new sessions into one store."""

    def __init__(self, disk: Disk, layout: Layout, clock: Callable[[], int]) -> None:
        self._disk = disk
        self._layout = layout
        self._clock = clock

    def publish(
        self,
        session_id: str,
        start: Mapping[str, object],
        entries: Iterable[tuple[str, Mapping[str, object]]] = (),
    ) -> EntryRef:
        """Write the log of a new session: its `session_start` of these fields, then `entries`.

        All of it is durable on return, and nothing of it is there after a failure or a crash.
        Returns the log's head. An entry is written before the next one is asked for.

        Raises:
            StorageFailed: It could not be written.
            TypeError: Something in the fields cannot be JSON.
        """
        # What is large comes last, so that a look at the beginning of a log tells what it is.
        first = {"session_id": session_id, "format": FORMAT, **start}
        log = _Log(Encoder(blobs_of(self._disk, self._layout), self._clock))
        with storing(f"write session {session_id}"):
            self._disk.make_folder(self._layout.sessions)
            write_files(
                self._disk,
                {
                    self._layout.log(session_id): log.lines([("session_start", first)], entries),
                    self._layout.anchor(session_id): log.anchor(),
                },
            )

        return log.head

    def withdraw(self, session_id: str) -> None:
        """Take away a session that was published and not announced, as far as can be done."""
        layout = self._layout
        for path in (layout.log(session_id), layout.anchor(session_id), layout.lock(session_id)):
            with suppress(OSError):  # the failure that brought us here is the one to tell
                self._disk.unlink(path)

    def make_durable(self, session_id: str) -> None:
        """Return once what is in the session's log is on the medium.

        A new session may name an entry that its writer has written and not yet synced.

        Raises:
            SessionNotFound: There is no such session.
            StorageFailed: It could not be synced.
        """
        with storing(f"sync session {session_id}"):
            try:
                fd = self._layout.open_log(self._disk, session_id, os.O_RDONLY)
            except FileNotFoundError as error:
                raise SessionNotFound(session_id) from error

            try:
                self._disk.sync(fd)
            finally:
                os.close(fd)


class _Log:
    """The pieces of a new log, made one after the other, and of the anchor at its end."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._after = START

    @property
    def head(self) -> EntryRef:
        return EntryRef(self._after.seq - 1, self._after.prev)

    def lines(self, *entries: Iterable[tuple[str, Mapping[str, object]]]) -> Iterator[bytes]:
        for entry in chain(*entries):
            line, _, self._after = self._encoder.encode(self._after, [entry])
            yield line

    def anchor(self) -> Iterator[bytes]:
        yield encode_anchor(self._after)
