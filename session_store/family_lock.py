"""Whoever begins a session from another, and whoever removes one, wait for each other.

Between the look whether anything refers to a session and its removal nothing may begin from it, in
any process. The lock is the kernel's, on the folder of the logs: many may begin sessions at once,
one removes. It is held for as long as it takes to write a session's first lines, or to remove one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from .errors import StorageFailed
from .layout import Layout

PATIENCE_S = 10.0
"""How long to wait for others: much longer than any of them needs."""
_PAUSE_S = 0.005
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL})


@contextmanager
def joining(layout: Layout, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Keep every session from being removed meanwhile.

    What the new session names is to be looked for inside.

    Raises:
        StorageFailed: Somebody removes sessions and does not come to an end.
    """
    with _locked(layout, fcntl.LOCK_SH, "begin a session from another", patience_s):
        yield


@contextmanager
def leaving(layout: Layout, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Keep every session from being begun from another one meanwhile.

    Raises:
        StorageFailed: Somebody begins one, or removes one, and does not come to an end.
    """
    with _locked(layout, fcntl.LOCK_EX, "remove a session", patience_s):
        yield


@contextmanager
def _locked(layout: Layout, kind: int, what: str, patience_s: float) -> Iterator[None]:
    with ExitStack() as undo:
        with suppress(FileNotFoundError):  # no folder: nothing to begin from, nothing to remove
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(layout.sessions, flags)
            undo.callback(os.close, fd)
            if _acquire(fd, kind, what, patience_s):
                # Not left to the closing: a forked child may have a copy of the descriptor.
                undo.callback(fcntl.flock, fd, fcntl.LOCK_UN)

        yield


def _acquire(fd: int, kind: int, what: str, patience_s: float) -> bool:
    """Return whether the lock is held: no where the file system has none for a folder."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                why = f"for {patience_s:g} s others have been removing or beginning sessions"
                raise StorageFailed(what, why) from None

            time.sleep(_PAUSE_S)
        except OSError as error:
            # A network file system, where locks are not promised: all goes on as without one.
            if error.errno in _NO_LOCKS:
                return False

            raise
        else:
            return True
