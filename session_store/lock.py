"""One writer per session: a lock of the kernel's, which dies with the process that holds it.

The lock is an `flock` on `<id>.lock`. The kernel alone decides; what the holder writes into the
file is only there to be shown. A lock is never broken. A forked child lets go of its copy at once,
and other programs never inherit it, so nothing outlives the process that opened the session.
"""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import sys
import time
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import orjson

from .disk import Disk
from .errors import Holder, SessionInUse

_TRIES = 4
_PAUSE_S = 0.02


class SessionLock:
    """The right to write one session, until `release`."""

    def __init__(self, fd: int, path: Path, epoch: int) -> None:
        self._fd = fd
        self._path = os.fspath(path)
        found = os.fstat(fd)
        self._file = (found.st_dev, found.st_ino)
        self.epoch = epoch
        """Greater than that of whoever had the lock before."""
        _let_go_in_children()
        _HELD.add(self)

    @property
    def held(self) -> bool:
        """Whether this process holds it: not after `release`, and not in a forked child."""
        return self._fd >= 0

    @property
    def is_the_one(self) -> bool:
        """Whether it is the one that others ask for: not if its file was replaced."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return True  # and so nobody has another one

        return (found.st_dev, found.st_ino) == self._file

    def release(self) -> None:
        """Let go. Doing so twice does nothing."""
        if not self.held:
            return

        with suppress(OSError):  # the disk may be why we leave; what is there has the epoch too
            _write(self._fd, {"epoch": self.epoch})

        self.let_go()

    def let_go(self) -> None:
        """Close this process's hold on the file and leave the record as it is."""
        fd, self._fd = self._fd, -1
        _HELD.discard(self)
        if fd >= 0:
            os.close(fd)


def acquire(disk: Disk, path: Path, session_id: str, now_ms: int, *, above: int = 0) -> SessionLock:
    """Return the lock on `path`, held by this process, its epoch greater than `above`.

    Raises:
        SessionInUse: Somebody holds it. Who looks only whether it is held (`holder`) holds it
            for an instant, so it is asked for a few times.
        OSError: What the system said of the file.
    """
    found = _UNKNOWN
    for attempt in range(_TRIES):
        with ExitStack() as undo:
            fd = disk.open(path, os.O_RDWR | os.O_CREAT)
            undo.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found = _read_record(fd)
            else:
                # Not so if the session was removed, lock and all, since we opened the file.
                if _is_at(path, fd):
                    epoch = max(_read_epoch(fd), above) + 1
                    _write_record(fd, now_ms, epoch)
                    undo.pop_all()
                    return SessionLock(fd, path, epoch)

        if attempt < _TRIES - 1:
            time.sleep(_PAUSE_S)

    raise SessionInUse(session_id, found)


def holder(disk: Disk, path: Path) -> Holder | None:
    """Return who holds the lock now, or None where nobody does. Never waits, never keeps it."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None

    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_record(fd)
    finally:
        os.close(fd)

    return None


_HELD: weakref.WeakSet[SessionLock] = weakref.WeakSet()
_UNKNOWN = Holder(0, "", 0, "")


@functools.cache
def _let_go_in_children() -> None:
    os.register_at_fork(after_in_child=_let_go_of_all)


def _let_go_of_all() -> None:
    for lock in list(_HELD):
        lock.let_go()


def _is_at(path: Path, fd: int) -> bool:
    with suppress(FileNotFoundError):  # removed: then it is not there
        return os.path.samestat(os.lstat(path), os.fstat(fd))

    return False


def _write_record(fd: int, now_ms: int, epoch: int) -> None:
    record = {
        "pid": os.getpid(),
        "host": platform.node(),
        "boot_id": _boot_id(),
        "started": _started(os.getpid()),
        "since_ms": now_ms,
        "command": _command(sys.argv),
        "epoch": epoch,
    }
    # A full disk must not keep anybody from opening. Then two may have the same epoch, one after
    # the other, and the kernel's word alone keeps them apart.
    with suppress(OSError):
        _write(fd, record)


def _write(fd: int, record: dict[str, Any]) -> None:
    data = orjson.dumps(record) + b"\n"
    # In this order, for the epoch must be there whenever we are killed.
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))


def _read_epoch(fd: int) -> int:
    # The first line: whoever was killed may have left the end of a longer record after it.
    line = os.pread(fd, 4096, 0).split(b"\n", 1)[0]
    with suppress(ValueError, TypeError, KeyError):  # none yet, or no record at all
        epoch = orjson.loads(line)["epoch"]
        return epoch if type(epoch) is int and epoch > 0 else 0

    return 0


def _read_record(fd: int) -> Holder:
    try:
        value: dict[str, Any] = orjson.loads(os.pread(fd, 4096, 0).split(b"\n", 1)[0])
        here = (value["host"], value["boot_id"]) == (platform.node(), _boot_id())
        pid, since_ms = int(value["pid"]), int(value["since_ms"])
        return Holder(pid, str(value["host"]), since_ms, str(value["command"]), here)
    except (ValueError, KeyError, TypeError):
        return _UNKNOWN


def _boot_id() -> str:
    with suppress(OSError):  # not Linux: the host's name has to do
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    return ""


def _started(pid: int) -> int:
    """Return when the process began, in clock ticks since boot: pids come again, pairs do not."""
    with suppress(OSError):  # not Linux: then unknown
        # The program's name stands in brackets and may itself hold spaces and brackets.
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(after_name.rpartition(")")[2].split()[19])

    return 0


def _command(argv: list[str]) -> str:
    """Return the program and its subcommand. No more: arguments hold prompts."""
    words = [Path(argv[0]).name, *argv[1:2]] if argv and argv[0] else []
    return " ".join(word for word in words if word.isidentifier())
