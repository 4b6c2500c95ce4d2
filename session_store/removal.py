"""Removing a session, and letting its forks stand alone first.

A fork by reference begins in its parent's log, and its hashes prove that beginning byte for byte.
So a fork is detached without a new log: the parent's lines up to the fork are kept beside the logs
in `<parent>.base`, once for all its forks, and are read where the parent's log is no longer there.
The fork keeps its id, its log and its hashes, and its writer, if it has one, notices nothing.

What was compacted from a session, or forked with a copy of its history, only names it. Such a
session is whole without it; an empty base says that the one it names was removed on purpose.

Steps that a crash may part: detach, then the pods' pointers, the anchor, the log, and what is left.
After each of them every other session verifies, and removing the session again takes up the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from .ancestry import Ancestry
from .atomic import write_file
from .blob_use import BASE_SUFFIX, blobs_named_in, remove_unused
from .disk import Disk, storing
from .errors import (
    SessionNotFound,
    SessionStoreError,
    StillNeeded,
    UnknownEntry,
)
from .family_lock import leaving
from .layout import Layout
from .pointers import read_pointer
from .reader import LogReader
from .referrals import Referrals, Referrer


@frozen(kw_only=True)
class DetachReport:
    """What a session can now be read without."""

    session_id: str
    parents: tuple[str, ...]
    """The sessions that it inherits from, nearest first; none where it stood alone."""
    bytes: int
    """How many were written to keep what it needs of them."""


@frozen(kw_only=True)
class RemovalReport:
    """What is gone."""

    session_id: str
    bytes: int
    """How many the session's own files and blobs had."""
    detached: tuple[str, ...]
    """The sessions that were made to stand alone."""
    pods: tuple[str, ...]
    """The pods that were on it, and are on no session now."""


class Remover:
    """Detaches and removes the sessions of one store. The caller has the lock where one is due."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self._disk = disk
        self._layout = layout
        self._ancestry = Ancestry(disk, layout)
        self._referrals = Referrals(disk, layout)

    def parents(self) -> dict[str, set[str]]:
        """Return what each session refers to."""
        self._referrals.look()
        ids = self._ancestry.ids()
        return {session_id: self._referrals.parents(session_id) for session_id in ids}

    def detach(self, session_id: str) -> DetachReport:
        """Keep what the session inherits, so that those it inherits from may be removed.

        Raises:
            SessionNotFound: There is no such session.
            SessionDamaged: What it inherits does not verify.
            StorageFailed: It could not be kept.
        """
        links = self._ancestry.links(session_id)[1:]
        written = sum(self._keep(parent, upto) for parent, upto in links if upto is not None)
        parents = tuple(parent for parent, _ in links)
        return DetachReport(session_id=session_id, parents=parents, bytes=written)

    def needing(self, session_id: str) -> list[Referrer]:
        """Return the sessions for which this one has to stay as things are, oldest first.

        Sessions whose first entry does not verify refer to nothing.
        """
        self._referrals.look()
        return [
            one
            for one in self._referrals.referrers(session_id)
            if not (one.origin.inherits and self._is_kept(session_id, one.origin.hash))
        ]

    def check_there(self, session_id: str) -> None:
        """Return if there is something to remove.

        Raises:
            SessionNotFound: There is neither a session of this id nor anything left of one.
        """
        self._referrals.look()
        layout = self._layout
        usual = (layout.log(session_id), layout.anchor(session_id), layout.lock(session_id))
        if not any(path.exists() for path in usual) and not self._leftovers(session_id):
            why = "it was removed" if layout.base(session_id).exists() else ""
            raise SessionNotFound(session_id, why)

    def remove(self, session_id: str, *, detach: bool) -> RemovalReport:
        """Remove the session and all that only it needs.

        Raises:
            StillNeeded: Others refer to it, and `detach` does not ask to let them stand alone.
            SessionDamaged: What a fork inherits does not verify, so it cannot be kept.
            StorageFailed: Something could not be removed. Doing it again goes on.
        """
        # From the look who needs it until it is gone, nothing may begin from it.
        with leaving(self._layout):
            needing = self.needing(session_id)
            if needing and not detach:
                raise StillNeeded(
                    session_id, tuple((one.session_id, one.origin.relation) for one in needing)
                )

            return self._take_away(session_id, needing)

    def _take_away(self, session_id: str, needing: list[Referrer]) -> RemovalReport:
        log = self._layout.log(session_id)
        blobs = blobs_named_in(log)
        last_written = log.stat().st_mtime if log.exists() else 0.0
        for one in needing:
            self._keep(session_id, one.origin.hash if one.origin.inherits else None)

        with storing(f"remove session {session_id}"):
            pods = self._clear_pointers(session_id)
            size = self._unlink_all(session_id)
            self._drop_unneeded_bases()
            size += remove_unused(self._disk, self._layout, blobs, last_written)

        detached = tuple(one.session_id for one in needing)
        return RemovalReport(session_id=session_id, bytes=size, detached=detached, pods=pods)

    # --- what is kept -------------------------------------------------------------------------

    def _keep(self, session_id: str, upto: str | None) -> int:
        """Keep the session's lines up to that entry; without one, the word that it was removed."""
        path = self._layout.base(session_id)
        if path.exists() and (upto is None or self._is_kept(session_id, upto)):
            return 0

        data = b"" if upto is None else b"".join(self._lines(session_id, upto))
        with storing(f"keep what is inherited from session {session_id}"):
            write_file(self._disk, path, data)

        return len(data)

    def _lines(self, session_id: str, upto: str) -> Iterator[bytes]:
        reader = LogReader(self._disk, self._layout, session_id)
        for entry in reader:
            yield entry.raw + b"\n"
            if entry.hash == upto:
                return

        reader.raise_if_unusable()
        raise UnknownEntry(session_id, upto, "no hash is that")

    def _is_kept(self, session_id: str, upto: str) -> bool:
        path = self._layout.base(session_id)
        wanted = b'{"hash":"' + upto.encode() + b'",'
        with suppress(FileNotFoundError), path.open("rb") as file:
            return any(line.startswith(wanted) for line in file)

        return False

    def _drop_unneeded_bases(self) -> None:
        """Take away what was kept for forks that are no longer there."""
        if not any(name.endswith(BASE_SUFFIX) for name in self._referrals.names):
            return

        self._referrals.look()
        # What a damaged session inherits cannot be told: then everything stays.
        needed = self._referrals.needed() if self._referrals.all_known else None
        for path in sorted(self._layout.sessions.glob(f"*{BASE_SUFFIX}")):
            if needed is not None and path.name.removesuffix(BASE_SUFFIX) not in needed:
                blobs, written = blobs_named_in(path), path.stat().st_mtime
                self._disk.unlink(path)
                self._disk.sync_folder(self._layout.sessions)
                remove_unused(self._disk, self._layout, blobs, written)

    # --- what is taken away -------------------------------------------------------------------

    def _own_files(self, session_id: str) -> list[Path]:
        """Return the session's files, in the order in which they go. The lock is the last."""
        layout = self._layout
        first = [layout.anchor(session_id), layout.log(session_id)]
        return [*first, *self._leftovers(session_id), layout.lock(session_id)]

    def _leftovers(self, session_id: str) -> list[Path]:
        """Return what was set aside from the log, and what a crash left of a write."""
        ours = (f"{session_id}.torn-", f".{session_id}.")
        names = [name for name in self._referrals.names if name.startswith(ours)]
        return [self._layout.sessions / name for name in sorted(names)]

    def _unlink_all(self, session_id: str) -> int:
        size = 0
        for path in self._own_files(session_id):
            with suppress(FileNotFoundError):  # an earlier attempt came so far
                found = os.lstat(path)
                self._disk.unlink(path)
                size += found.st_size
                # One after the other also after a loss of power: an anchor without its log would
                # call what is kept of it cut short.
                self._disk.sync_folder(self._layout.sessions)

        return size

    def _clear_pointers(self, session_id: str) -> tuple[str, ...]:
        pods = pods_on(self._disk, self._layout, session_id)
        for pod in pods:
            self._disk.unlink(self._layout.pointer(pod))

        if pods:
            self._disk.sync_folder(self._layout.pods)

        return tuple(pods)


def pods_on(disk: Disk, layout: Layout, session_id: str | None = None) -> dict[str, str]:
    """Return each pod that has a pointer and the session it is on, or only those on `session_id`.

    Pointers that cannot be read are passed over.
    """
    found: dict[str, str] = {}
    for path in sorted(layout.pods.glob("*.json")):
        with suppress(SessionStoreError, OSError):
            current = read_pointer(disk, layout.pointer(path.stem))
            if current is not None and session_id in (None, current):
                found[path.stem] = current

    return found
