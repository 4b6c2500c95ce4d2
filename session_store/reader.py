"""Reading a log: every entry is verified and checked, nothing is ever changed.

A log may be read while it grows. What was acknowledged when the reading began is always seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from .anchor import Anchor
from .blobs import BlobUnusable, blobs_of, names_blobs, with_blobs_put_back
from .chain import FORMAT, NOWHERE, START, Entry, EntryRef, Look, Position, Walk, pass_by
from .disk import Disk
from .errors import NewerFormat, SessionDamaged, SessionNotFound
from .files import FileLogs
from .layout import Layout
from .port import Logs, Payloads
from .recovery import Aborted, Damaged, Newer, Sound, Verdict, judge


class Scan:
    """One pass over an open log. Iterate it once; then `verdict` says what the log is."""

    def __init__(
        self, file: BinaryIO, session_id: str, anchor: EntryRef | str | None, start: Position
    ) -> None:
        self._session_id = session_id
        self._anchor = anchor
        self._walk = Walk(file, start, anchor if isinstance(anchor, EntryRef) else None)
        self._wrong = False
        self.verdict: Verdict = Sound()

    @property
    def position(self) -> Position:
        """Where the next entry begins, after the last one that verified."""
        return START if self._wrong else self._walk.position

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries that verify."""
        first = self._first()
        if first is not None:
            yield first

        if isinstance(self.verdict, Sound):
            yield from self._walk
            self.verdict = self._judge()

    def run(self, mark: bytes = NOWHERE, look: Look = pass_by) -> None:
        """Go on as far as an iteration would; `look` only at entries whose line holds `mark`."""
        first = self._first()
        if first is not None and mark in first.raw:
            look(first)

        if isinstance(self.verdict, Sound):
            self._walk.run(mark, look)
            self.verdict = self._judge()

    def _first(self) -> Entry | None:
        """Return the entry that starts the session, if the pass begins with it and it is good."""
        first = None if self.position.seq else next(iter(self._walk), None)
        verdict = None if first is None else wrong_start(first, self._session_id)
        if verdict is None:
            return first

        self._wrong, self.verdict = True, verdict
        return None

    def _judge(self) -> Verdict:
        if not isinstance(self._anchor, str):
            return judge(self._walk, self._anchor)

        head = self._walk.head
        verdict = judge(self._walk, None)
        return (
            verdict
            if isinstance(verdict, Damaged)
            else Damaged(head.seq if head else 0, self._anchor)
        )


class Reader:
    """One pass over the log of a session, by its id. Iterate it; then `verdict` says what it is."""

    def __init__(self, logs: Logs, session_id: str, start: Position = START) -> None:
        self._logs = logs
        self._session_id = session_id
        self._start = start
        self._scan: Scan | None = None
        self.verdict: Verdict = Sound()

    @property
    def position(self) -> Position:
        """Where the next entry begins, after the last one that verified."""
        return self._start if self._scan is None else self._scan.position

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries that verify.

        Raises:
            SessionNotFound: There is no such log.
            UnsafePath: It is a symlink or not our own.
        """
        # The anchor first: it is never ahead of the log, so one that is was not cut by us.
        anchor = anchor_of(self._logs, self._session_id)
        yield from self._pass(anchor)
        if isinstance(self.verdict, Damaged):
            # A writer that set a torn tail aside and went on may have done so under our eyes. Then
            # what was read is gone, and all is well from where it began.
            yield from self._pass(anchor)

    def run(self, mark: bytes = NOWHERE, look: Look = pass_by) -> None:
        """Go on as far as an iteration would; `look` only at entries whose line holds `mark`.

        Raises what an iteration raises.
        """
        anchor = anchor_of(self._logs, self._session_id)
        for _ in range(2):
            with self._scanning(anchor) as scan:
                scan.run(mark, look)

            if not isinstance(self.verdict, Damaged):
                return  # else as above

    def raise_if_unusable(self) -> None:
        """Return if the log is sound, or torn at most.

        Raises:
            SessionDamaged: It is damaged.
            SessionNotFound: Its creation was never finished.
        """
        raise_if_unusable(self._session_id, self.verdict, self.position)

    def _pass(self, anchor: EntryRef | str | None) -> Iterator[Entry]:
        with self._scanning(anchor) as scan:
            yield from scan

    @contextmanager
    def _scanning(self, anchor: EntryRef | str | None) -> Iterator[Scan]:
        with self._logs.read(self._session_id) as file:
            self._scan = Scan(file, self._session_id, anchor, self.position)
            yield self._scan
            self.verdict = self._scan.verdict


class LogReader(Reader):
    """One pass over a log in a file."""

    def __init__(
        self, disk: Disk, layout: Layout, session_id: str, start: Position = START
    ) -> None:
        super().__init__(FileLogs(disk, layout), session_id, start)


def anchor_of(logs: Logs, session_id: str) -> EntryRef | str | None:
    """Return the session's anchor, None where there is none, or what is wrong with it."""
    anchor = logs.head(session_id)
    return anchor.ref if isinstance(anchor, Anchor) else anchor


def wrong_start(entry: Entry, session_id: str) -> Damaged | None:
    """Return what is wrong with the entry as the first one of the session, or None."""
    if entry.kind != "session_start":
        return Damaged(0, "is not the start of a session")

    owner = entry.data.get("session_id")
    if owner != session_id:
        return Damaged(0, f"says that the log is of session {owner}")

    found = entry.data.get("format", FORMAT)
    if type(found) is not int or found < 1:
        return Damaged(0, "is of no format that there is")

    reason = f"is of format {found}, and this version reads up to format {FORMAT}"
    return Newer(0, reason, found) if found > FORMAT else None


def raise_if_unusable(session_id: str, verdict: Verdict, position: Position) -> None:
    """Return if a log of this verdict can be used.

    Raises:
        SessionDamaged: It is damaged, or of a format that only a newer version knows.
        SessionNotFound: Its creation was never finished.
    """
    if isinstance(verdict, Newer):
        raise NewerFormat(session_id, verdict.format, FORMAT)

    if isinstance(verdict, Damaged):
        good = min(position.seq, verdict.seq)
        raise SessionDamaged(session_id, verdict.seq, verdict.reason, good)

    if isinstance(verdict, Aborted):
        raise SessionNotFound(session_id, "its creation was never finished")


def entries_of(
    logs: Logs, payloads: Payloads, session_id: str, start: Position = START
) -> Iterator[Entry]:
    """Yield the session's entries, each verified, blobs in their places.

    Raises:
        SessionNotFound: There is no such session.
        SessionDamaged: The next entry does not verify, or a blob of it is not there.
        UnsafePath: A symlink, or not our own.
    """
    reader = Reader(logs, session_id, start)
    for entry in reader:
        yield with_payload(entry, session_id, payloads) if names_blobs(entry.raw) else entry

    reader.raise_if_unusable()


def read_entries(
    disk: Disk, layout: Layout, session_id: str, start: Position = START
) -> Iterator[Entry]:
    """Yield the entries of a session in a file, as `entries_of`."""
    return entries_of(FileLogs(disk, layout), blobs_of(disk, layout), session_id, start)


def with_payload(entry: Entry, session_id: str, blobs: Payloads) -> Entry:
    """Return the entry with its blobs in their places. Raises `SessionDamaged`."""
    if not names_blobs(entry.raw):
        return entry

    try:
        return entry._replace(data=with_blobs_put_back(entry.data, blobs.get))
    except BlobUnusable as error:
        raise SessionDamaged(session_id, entry.seq, str(error), entry.seq) from error
