"""A pod's name, held by whoever serves it: a lock of the kernel's, which dies with the process."""

from __future__ import annotations

import fcntl
import functools
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from attrs import asdict, define, field, frozen

from pod.errors import PodError
from pod.home import Home

from .places import Places, usable

_TRIES = 5
_PAUSE_S = 0.02


class AlreadyServed(PodError):
    """A pod of that name is served already."""

    def __init__(self, name: str, serving: Serving | None) -> None:
        who = (
            f"pid {serving.pid}{_since(serving)}" if serving and serving.pid else "another process"
        )
        message = f"the pod {name} is served already, by {who}"
        hint = f"watch it: pod attach {name}      end it: pod stop {name}"
        super().__init__(message, hint=hint)
        self.serving = serving


class NotServed(PodError):
    """No pod of that name is served."""

    exit_code = 2


@frozen
class Serving:
    """What a served pod says of itself."""

    name: str
    pid: int
    """0 where it did not say: it is about to begin, or could not write."""
    since_ms: int
    """Milliseconds of Unix time; 0 as `pid`."""
    manifest: str
    socket: str


@define(eq=False)
class Claim:
    """The right to serve a pod of one name, until `release`."""

    places: Places
    _fd: int = field(default=-1)

    def publish(self, serving: Serving) -> None:
        """Say who serves the pod."""
        data = orjson.dumps(asdict(serving)) + b"\n"
        # It is only there to be shown: a full disk keeps nobody from serving.
        with suppress(OSError):
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    def release(self) -> None:
        """Let go of the name, and leave no trace of it; idempotent."""
        if self._fd < 0:
            return

        with suppress(OSError):  # what is left behind is recognised as that
            self.places.lock.unlink()

        self.let_go()

    def let_go(self) -> None:
        """Close this process's hold on the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def claim(places: Places) -> Claim:
    """Return the right to serve the pod; what an earlier one left behind is removed.

    Raises:
        AlreadyServed: Somebody serves it.
        OSError: What the system said.
    """
    _let_go_in_children()
    found: Serving | None = None
    for attempt in range(_TRIES):
        fd = _open(places.lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = _read(fd)
            os.close(fd)
            # Somebody may only have looked whether it is held.
            if attempt < _TRIES - 1:
                time.sleep(_PAUSE_S)
            continue

        if not _is_at(places.lock, fd):
            os.close(fd)
            continue

        # What a dead one said of itself is no longer so, whatever becomes of what is said next.
        os.ftruncate(fd, 0)
        for left_behind in (places.socket, *places.folder.glob(f".{places.name}.*")):
            left_behind.unlink(missing_ok=True)

        claimed = Claim(places, fd)
        _HELD.add(claimed)
        return claimed

    raise AlreadyServed(places.name, found)


def served(home: Home) -> Iterator[Serving]:
    """Yield the pods that are served now, by name; what dead ones left behind is removed."""
    try:
        names = sorted(path.stem for path in home.run.glob("*.lock"))
    except OSError:
        return

    for name in names:
        places = Places(home.run, name)
        found = serving(places)
        if found is not None:
            yield found


def serving(places: Places) -> Serving | None:
    """Return who serves the pod, or None where nobody does; then nothing of it is left behind.

    Raises `UnusableRunFolder` where its lock is no file that can be opened.
    """
    with usable(places.folder):
        try:
            fd = _open(places.lock, os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            return None

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd) or Serving(places.name, 0, 0, "", os.fspath(places.socket))
    else:
        # Nobody holds it, and nobody can while we do.
        if _is_at(places.lock, fd):
            with suppress(OSError):  # then somebody else tidies up
                places.socket.unlink(missing_ok=True)
                places.lock.unlink()

        return None
    finally:
        os.close(fd)


def find(places: Places) -> Serving:
    """Return who serves the pod. Raises `NotServed`, which says which ones are."""
    found = serving(places)
    if found is None:
        others = [other.name for other in served(Home(places.folder.parent))]
        hint = f"there are: {', '.join(others)}" if others else "start it: pod serve MANIFEST"
        message = f"no pod {places.name} is served"
        raise NotServed(message, hint=hint)

    return found


_HELD: weakref.WeakSet[Claim] = weakref.WeakSet()


@functools.cache
def _let_go_in_children() -> None:
    os.register_at_fork(after_in_child=_let_go_of_all)


def _let_go_of_all() -> None:
    for held in list(_HELD):
        held.let_go()


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_at(path: Path, fd: int) -> bool:
    with suppress(FileNotFoundError):  # removed by whoever tidied up: then it is not there
        return os.path.samestat(os.lstat(path), os.fstat(fd))

    return False


def _read(fd: int) -> Serving | None:
    try:
        value: dict[str, Any] = orjson.loads(os.pread(fd, 8192, 0).split(b"\n", 1)[0])
        return Serving(
            name=str(value["name"]),
            pid=max(0, int(value["pid"])),  # never a group of processes, whatever is written there
            since_ms=int(value["since_ms"]),
            manifest=str(value["manifest"]),
            socket=str(value["socket"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _since(serving: Serving) -> str:
    return f" since {time.strftime('%H:%M', time.localtime(serving.since_ms / 1000))}"
