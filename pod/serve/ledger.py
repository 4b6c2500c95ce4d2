"""The ledger: which event of which launch an entry of a log was told by.

A log says what happened, and nothing of the numbers that its events had. The ledger keeps those, a
line for each durable event, so that a later launch can say what somebody missed of an earlier one.
Nothing depends on it but that: without it a subscriber is given a snapshot.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import orjson
from attrs import define, field, frozen

from pod.protocol import Envelope, SessionChanged

MAX_BYTES = 4 << 20
"""How large the file becomes before it is the old one; as much again is kept of that."""

_log = logging.getLogger("pod.serve")
Ref: TypeAlias = tuple[str, int]


@frozen
class Row:
    """One durable event: its number, and the entry that it told of."""

    launch: str
    seq: int
    ts: int
    event: str
    ref: Ref
    """The session and the entry; of `session_changed`, the old session and -1."""
    to: str = ""
    """Of `session_changed`, the new session."""
    reason: str = ""


@frozen
class Launch:
    """What the ledger has of one launch, in order."""

    launch: str
    since: int
    """The first number from which on nothing is missing."""
    rows: tuple[Row, ...]


@define(eq=False)
class Ledger:
    """Writes one pod's ledger. Whoever holds the pod's name is the only one who does.

    It never raises: a ledger that cannot be written only makes later replays snapshots.
    """

    path: Path
    launch: str
    max_bytes: int = MAX_BYTES
    _fd: int = field(default=-1, init=False)
    _size: int = field(default=0, init=False)
    _is_whole: bool = field(default=True, init=False)
    _last_seq: int = field(default=0, init=False)

    def open(self) -> None:
        """Begin this launch's part."""
        with suppress(OSError):  # told of when it is written to
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
            self._size = os.fstat(self._fd).st_size

        self._mark(1)

    def close(self) -> None:
        """Let go of the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        """Return the descriptor of the file; -1 where there is none."""
        return self._fd

    def note(self, envelope: Envelope) -> None:
        """Note an event, where it is one that a log tells of."""
        row: list[object]
        match envelope:
            case Envelope(ref=(session_id, entry)):
                row = [envelope.seq, envelope.ts, envelope.event, session_id, entry]
            case Envelope(data=SessionChanged() as moved):
                row = [envelope.seq, envelope.ts, envelope.event, moved.old_session_id, -1]
                row += [moved.new_session_id, moved.reason]
            case _:
                return

        if not self._is_whole:
            self._mark(envelope.seq)

        if self._is_whole:
            self._write(row)

    def _mark(self, since: int) -> None:
        """Say whose the rows that follow are, and from which number on they are all there."""
        self._is_whole = True
        # The newline ends what a full disk, or a crash, may have left of a row.
        self._write({"launch": self.launch, "since": since}, b"\n")

    def _write(self, row: object, before: bytes = b"") -> None:
        line = before + orjson.dumps(row) + b"\n"
        try:
            if self._size > self.max_bytes:
                self._turn_over()

            whole = os.write(self._fd, line) == len(line)
        except OSError as error:
            whole = False
            _log.debug("the ledger %s cannot be written: %s", self.path, error)

        self._size += len(line)
        self._is_whole = whole

    def _turn_over(self) -> None:
        """Begin a new file; the old one is kept under another name, and the one before is gone."""
        self.path.replace(old_path(self.path))
        os.close(self._fd)
        self._fd = -1
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        mark = b"\n" + orjson.dumps({"launch": self.launch, "goes_on": True}) + b"\n"
        self._size = os.write(self._fd, mark)


def old_path(path: Path) -> Path:
    """Return where the part of a ledger is that was written before the present one."""
    return path.with_name(path.name + ".old")


def read_ledger(path: Path) -> list[Launch]:
    """Return what is known of each launch, oldest first. What cannot be read is not there."""
    launches: list[_Draft] = []
    for part in (old_path(path), path):
        # What is missing was turned over twice, or never written.
        with suppress(OSError):
            for value in _values(part.read_bytes()):
                _take(launches, value)

    return [Launch(draft.launch, draft.since, tuple(draft.rows)) for draft in launches]


@define
class _Draft:
    launch: str
    since: int
    rows: list[Row] = field(factory=list)


def _values(data: bytes) -> Iterator[object]:
    for line in data.split(b"\n"):
        with suppress(orjson.JSONDecodeError):  # a row that a crash or a full disk cut short
            yield orjson.loads(line)


def _take(launches: list[_Draft], value: object) -> None:
    match value:
        case {"launch": str(launch), "since": int(since)}:
            _begin(launches, launch, since)
        case {"launch": str(launch), "goes_on": True}:
            if not launches or launches[-1].launch != launch:
                launches.append(_Draft(launch, -1))
        case [int(seq), int(ts), str(event), str(session_id), int(entry), *rest] if launches:
            draft = launches[-1]
            if draft.since < 0:
                draft.since = seq

            to, reason = (*map(str, rest), "", "")[:2]
            draft.rows.append(Row(draft.launch, seq, ts, event, (session_id, entry), to, reason))
        case _:
            return


def _begin(launches: list[_Draft], launch: str, since: int) -> None:
    if launches and launches[-1].launch == launch:
        # Rows are missing before this one: what is there of them proves nothing.
        launches[-1].since = since
        launches[-1].rows.clear()
    else:
        launches.append(_Draft(launch, since))
