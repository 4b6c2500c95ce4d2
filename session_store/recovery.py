"""What a log is found to be when it is opened, and what a writer then does about it.

`judge` decides and touches nothing; readers use it alone. The rest does for a writer what the
verdict says, and is the only place where bytes of a log are ever cut off: first they are copied
aside.
"""

from __future__ import annotations

import errno
import os
from typing import TypeAlias

from attrs import frozen

from .chain import EntryRef, Walk
from .disk import Disk, write_all
from .layout import Layout


@frozen
class Sound:
    """Every line verifies, up to the anchor at least."""


@frozen
class NoNewline:
    """Every line verifies, and the last one lacks its newline."""


@frozen
class Torn:
    """The last line was not finished, and nobody was told that it was."""

    offset: int
    bytes: int


@frozen
class Aborted:
    """Not even the first line was finished: the session was never announced to anybody."""

    size: int


@frozen
class Damaged:
    """Something that was acknowledged does not verify, or is not there."""

    seq: int
    reason: str


@frozen
class Newer(Damaged):
    """The log is of a format that only a newer version knows."""

    format: int


Verdict: TypeAlias = Sound | NoNewline | Torn | Aborted | Damaged


def judge(walk: Walk, anchor: EntryRef | None) -> Verdict:
    """Return what the log is that `walk` went through, as far as it could."""
    head, failure = walk.head, walk.failure
    if failure is None:
        return _judge_whole(walk, head, anchor)

    acknowledged = anchor is not None and anchor.seq >= failure.seq
    if not failure.last or acknowledged:
        return Damaged(failure.seq, failure.reason)

    if head is None:
        # A whole first line that is wrong was once a right one; half a line never was.
        return Damaged(0, failure.reason) if failure.terminated else Aborted(failure.size)

    return Torn(failure.offset, failure.size)


def _judge_whole(walk: Walk, head: EntryRef | None, anchor: EntryRef | None) -> Verdict:
    if head is None:
        return Aborted(0) if anchor is None else Damaged(0, "and all after it are missing")

    if anchor is not None and anchor.seq > head.seq:
        missing = f"the log was cut short: entries up to {anchor.seq} were acknowledged"
        return Damaged(head.seq, f"is the last one there and should not be: {missing}")

    return NoNewline() if walk.unterminated else Sound()


def set_aside(disk: Disk, layout: Layout, session_id: str, fd: int, torn: Torn) -> str:
    """Copy the torn bytes into a sidecar, cut them off the log, and return the sidecar's name.

    All of it is durable on return. Raises `OSError`.
    """
    data = os.pread(fd, torn.bytes, torn.offset)
    name = _write_sidecar(disk, layout, session_id, torn.offset, data)
    disk.truncate(fd, torn.offset)
    disk.sync(fd)
    return name


def finish_line(disk: Disk, fd: int) -> None:
    """Give the last line its newline, durably. Raises `OSError`."""
    write_all(disk, fd, b"\n")
    disk.sync(fd)


def remove_aborted(disk: Disk, layout: Layout, session_id: str, fd: int, aborted: Aborted) -> None:
    """Take away the log of a session that was never announced; what it holds is put aside."""
    if aborted.size:
        data = os.pread(fd, aborted.size, 0)
        _write_sidecar(disk, layout, session_id, 0, data)

    disk.unlink(layout.log(session_id))
    disk.sync_folder(layout.sessions)


def _write_sidecar(disk: Disk, layout: Layout, session_id: str, offset: int, data: bytes) -> str:
    # A crash after this and before the cut leaves a sidecar behind; the next attempt takes the
    # next name, for nothing that was set aside is ever written over.
    for number in range(1000):
        path = layout.sidecar(session_id, offset, number)
        try:
            fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            continue

        try:
            write_all(disk, fd, data)
            disk.sync(fd)
        finally:
            os.close(fd)

        disk.sync_folder(path.parent)
        return path.name

    raise OSError(errno.EEXIST, f"too many sidecars of session {session_id}")
