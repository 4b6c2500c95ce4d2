"""How much room the sessions of a store take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from .blob_use import BASE_SUFFIX, blob_sizes, blobs_named_in
from .ids import is_session_id
from .layout import LOG_SUFFIX, Layout


@frozen(kw_only=True)
class SessionUsage:
    """The room that one session takes, in bytes."""

    session_id: str
    log: int
    sidecars: int
    """Anchor, lock, and what was set aside from its log."""
    blobs: int
    """Blobs that only this session names."""
    shared_blobs: int
    """Blobs that it names and others do too. Removing it frees none of them."""

    @property
    def bytes(self) -> int:
        """What removing the session frees."""
        return self.log + self.sidecars + self.blobs


@frozen(kw_only=True)
class DiskUsage:
    """The room that a store takes, in bytes."""

    sessions: tuple[SessionUsage, ...]
    """The largest first."""
    shared_blobs: int
    """Blobs that more than one session names, each counted once."""
    unused_blobs: int
    """Blobs that no session names."""
    kept: int
    """What is kept of removed sessions for their forks."""
    index: int

    @property
    def bytes(self) -> int:
        """All of it."""
        own = sum(session.bytes for session in self.sessions)
        return own + self.shared_blobs + self.unused_blobs + self.kept + self.index


def usage_on_disk(layout: Layout) -> DiskUsage:
    """Return what the store takes. Logs are searched for blobs only where there are any."""
    sizes = blob_sizes(layout)
    files = list(_files_in(layout.sessions))
    named: dict[str, set[str]] = {}
    for _, path, _ in files if sizes else ():
        if path.name.endswith((LOG_SUFFIX, BASE_SUFFIX)):
            named[path.name] = blobs_named_in(path) & sizes.keys()

    users = Counter(name for names in named.values() for name in names)
    logs = {owner for owner, path, _ in files if path.name == owner + LOG_SUFFIX}
    sessions = [_usage(owner, files, named, sizes, users) for owner in logs]
    return DiskUsage(
        sessions=tuple(sorted(sessions, key=lambda one: (-one.bytes, one.session_id))),
        shared_blobs=sum(size for name, size in sizes.items() if users[name] > 1)
        + _only_kept(named, sizes, users),
        unused_blobs=sum(size for name, size in sizes.items() if not users[name]),
        kept=sum(size for _, path, size in files if path.name.endswith(BASE_SUFFIX)),
        index=sum(_size(path) for path in layout.home.glob("index*.db*")),
    )


def _only_kept(named: dict[str, set[str]], sizes: dict[str, int], users: Counter[str]) -> int:
    """Return the bytes of blobs that only what is kept of a removed session names."""
    kept = [names for file, names in named.items() if file.endswith(BASE_SUFFIX)]
    return sum(sizes[name] for names in kept for name in names if users[name] == 1)


def _usage(
    session_id: str,
    files: list[tuple[str, Path, int]],
    named: dict[str, set[str]],
    sizes: dict[str, int],
    users: Counter[str],
) -> SessionUsage:
    log = session_id + LOG_SUFFIX
    own = [(path.name, size) for owner, path, size in files if owner == session_id]
    blobs = named.get(log, set())
    return SessionUsage(
        session_id=session_id,
        log=sum(size for name, size in own if name == log),
        sidecars=sum(size for name, size in own if not name.endswith((log, BASE_SUFFIX))),
        blobs=sum(sizes[name] for name in blobs if users[name] == 1),
        shared_blobs=sum(sizes[name] for name in blobs if users[name] > 1),
    )


def _files_in(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield the session that each file of the folder belongs to, the file, and its size."""
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            owner = entry.name.removeprefix(".").partition(".")[0]
            if is_session_id(owner):
                with suppress(FileNotFoundError):  # removed while we looked
                    size = entry.stat(follow_symlinks=False).st_size
                    yield owner, folder / entry.name, size


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):  # a journal comes and goes
        return path.stat().st_size

    return 0
