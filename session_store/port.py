"""The store port: what sessions are kept in, seen from above. Nothing here knows of files.

An adapter keeps logs of bytes, hands out the right to write one, and refuses whoever no longer has
it. What the bytes mean, how they are chained and verified, is the same over every adapter: a
session can be moved from one to another byte for byte, and its hashes hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import BinaryIO, Protocol

from .anchor import Anchor
from .chain import EntryRef, Position
from .recovery import Verdict


class Logs(Protocol):
    """Logs of lines, each written by one writer at a time.

    What is called durable has reached the medium, or what the adapter promises in its place.
    """

    def create(self, session_id: str, lines: Iterable[bytes]) -> None:
        """Make a new log of these lines; each piece is one or more whole ones.

        It is there whole and durable on return, and not at all after a failure or a crash. A piece
        is stored before the next one is asked for.

        Raises:
            StorageFailed: It could not be written.
        """
        ...

    def append(self, session_id: str, expected: EntryRef, epoch: int, lines: bytes) -> int:
        """Add whole lines after the entry `expected`; return the seq of the last one once durable.

        Raises:
            HeadMismatch: The last entry is another one. Nothing was written.
            Fenced: The writer of this epoch is not the one who may write. Nothing was written.
            StorageFailed: The lines may be there or not, and this epoch writes nothing more.
        """
        ...

    def read(self, session_id: str) -> BinaryIO:
        """Return the log's bytes, to be read from anywhere; whoever gets them closes them.

        Raises:
            SessionNotFound: There is no such log.
        """
        ...

    def head(self, session_id: str) -> Anchor | str | None:
        """Return an entry that is known to have been acknowledged, the newest that was noted.

        None where nothing is known; a text says why what was noted cannot be read.
        """
        ...

    def publish(self, pod: str, session_id: str) -> None:
        """Put the pod on the session, durably and as a whole: the last thing that moves.

        Raises:
            StorageFailed: It could not be written; the pod is on the old or on the new one.
        """
        ...


class Lease(Protocol):
    """The right to write one log, from when it was got until `release`."""

    @property
    def epoch(self) -> int:
        """Which lease on the log this is. A later one has a greater number."""
        ...

    @property
    def held(self) -> bool:
        """Whether this process still has it, as far as the process knows."""
        ...

    def begin(self, verdict: Verdict, after: Position) -> Mapping[str, object] | None:
        """Make the log, which verifies up to `after`, end there; return what to say of the rest.

        What was cut off is kept aside. Of a log that needs no mending, or is beyond it, None.

        Raises:
            StorageFailed: It could not be mended.
        """
        ...

    def note(self, after: Position) -> None:
        """Note that the entry before `after` was acknowledged, durably, and apart from the log.

        Raises:
            StorageFailed: It could not be noted.
        """
        ...

    def release(self) -> None:
        """Let go. Doing so twice does nothing."""
        ...


class Payloads(Protocol):
    """Bytes too large for a line, named by their hash."""

    def put(self, data: bytes) -> str:
        """Store `data` durably and return its name. Raises `OSError`."""
        ...

    def get(self, name: str) -> bytes:
        """Return the bytes of that name. Raises `BlobUnusable`."""
        ...
