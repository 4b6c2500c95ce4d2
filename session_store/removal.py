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
from .chain import Entry
from .disk import Disk, storing
from .errors import (
    SessionDamaged,
    SessionNotFound,
    SessionStoreError,
    StillNeeded,
    UnknownEntry,
)
from .ids import check_session_id
from .layout import Layout
from .pointers import read_pointer
from .reader import LogReader


@frozen(kw_only=True)
class Referrer:
    """A session that refers to another one."""

    session_id: str
    relation: str
    """`fork` or `compact`."""
    hash: str
    """The entry that it names."""
    inherits: bool
    """Whether its history begins there, so that it cannot be read without."""


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

    def referrers(self, session_id: str) -> list[Referrer]:
        """Return the sessions that were forked or compacted from this one, oldest first.

        What inherits from it through a session that was removed counts too. Sessions whose first
        entry does not verify refer to nothing.
        """
        found: list[Referrer] = []
        for candidate in self._ancestry.ids():
            with suppress(SessionDamaged, SessionNotFound):
                start = self._ancestry.first_entry(candidate)
                found += _named(candidate, start, session_id)
                found += self._through_removed(candidate, start, session_id)

        return found

    def parents(self, session_id: str) -> list[str]:
        """Return the sessions that this one refers to; none where its beginning is damaged."""
        with suppress(SessionDamaged, SessionNotFound):
            named = {parent for parent, _ in _origins(self._ancestry.first_entry(session_id))}
            named |= {link.session_id for link in self._ancestry.links(session_id)[1:]}
            return sorted(named)

        return []

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
        """Return the referrers that the session cannot be taken away from as things are."""
        return [
            one
            for one in self.referrers(session_id)
            if not (one.inherits and self._is_kept(session_id, one.hash))
        ]

    def check_there(self, session_id: str) -> None:
        """Return if there is something to remove.

        Raises:
            SessionNotFound: There is neither a session of this id nor anything left of one.
        """
        if not any(path.exists() for path in self._own_files(session_id)):
            why = "it was removed" if self._layout.base(session_id).exists() else ""
            raise SessionNotFound(session_id, why)

    def remove(self, session_id: str, *, detach: bool) -> RemovalReport:
        """Remove the session and all that only it needs.

        Raises:
            StillNeeded: Others refer to it, and `detach` does not ask to let them stand alone.
            SessionDamaged: What a fork inherits does not verify, so it cannot be kept.
            StorageFailed: Something could not be removed. Doing it again goes on.
        """
        needing = self.needing(session_id)
        if needing and not detach:
            raise StillNeeded(session_id, tuple((one.session_id, one.relation) for one in needing))

        log = self._layout.log(session_id)
        blobs = blobs_named_in(log)
        last_written = log.stat().st_mtime if log.exists() else 0.0
        for one in needing:
            self._keep(session_id, one.hash if one.inherits else None)

        with storing(f"remove session {session_id}"):
            pods = self._clear_pointers(session_id)
            size = self._unlink_all(session_id)
            self._drop_unneeded_bases()
            size += remove_unused(self._disk, self._layout, blobs, last_written)

        detached = tuple(one.session_id for one in needing)
        return RemovalReport(session_id=session_id, bytes=size, detached=detached, pods=pods)

    # --- what is kept -------------------------------------------------------------------------

    def _keep(self, session_id: str, upto: str | None) -> int:
        """Keep the session's lines up to that entry, or the word that it was removed on purpose."""
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

    def _through_removed(self, child: str, start: Entry, session_id: str) -> Iterator[Referrer]:
        """Yield the child if it inherits from the session through others that were removed."""
        link = _inherited_from(start)
        while link is not None and link[0] != session_id and self._layout.is_removed(link[0]):
            link = _inherited_from(self._ancestry.first_entry(link[0]))
            if link is not None and link[0] == session_id:
                yield Referrer(session_id=child, relation="fork", hash=link[1], inherits=True)

    def _drop_unneeded_bases(self) -> None:
        """Take away what was kept for forks that are no longer there."""
        needed = self._needed_bases()
        for path in sorted(self._layout.sessions.glob(f"*{BASE_SUFFIX}")):
            if needed is not None and path.name.removesuffix(BASE_SUFFIX) not in needed:
                blobs, written = blobs_named_in(path), path.stat().st_mtime
                self._disk.unlink(path)
                self._disk.sync_folder(self._layout.sessions)
                remove_unused(self._disk, self._layout, blobs, written)

    def _needed_bases(self) -> set[str] | None:
        """Return the sessions that others came from; None where that cannot be told of each."""
        needed: set[str] = set()
        try:
            for session_id in self._ancestry.ids():
                needed |= {parent for parent, _ in _origins(self._ancestry.first_entry(session_id))}
                needed |= {link.session_id for link in self._ancestry.links(session_id)[1:]}
        except (SessionDamaged, SessionNotFound):
            return None

        return needed

    # --- what is taken away -------------------------------------------------------------------

    def _own_files(self, session_id: str) -> list[Path]:
        """Return the session's files, in the order in which they go. The lock is the last."""
        layout = self._layout
        check_session_id(session_id)
        others = [*layout.sessions.glob(f"{session_id}.torn-*")]
        others += layout.sessions.glob(f".{session_id}.*.tmp")  # of a write that a crash ended
        first = [layout.anchor(session_id), layout.log(session_id)]
        return [*first, *sorted(others), layout.lock(session_id)]

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


def _origins(start: Entry) -> Iterator[tuple[str, str]]:
    for key in ("compacted_from", "forked_from"):
        match start.data.get(key):
            case [str(parent), str(digest)]:
                yield parent, digest
            case _:
                pass


def _inherited_from(start: Entry) -> tuple[str, str] | None:
    match start.data:
        case {"history": None, "forked_from": [str(parent), str(digest)]}:
            return parent, digest
        case _:
            return None


def _named(child: str, start: Entry, session_id: str) -> Iterator[Referrer]:
    for key, relation in (("compacted_from", "compact"), ("forked_from", "fork")):
        match start.data.get(key):
            case [str(parent), str(digest)] if parent == session_id:
                inherits = relation == "fork" and start.data.get("history") is None
                yield Referrer(session_id=child, relation=relation, hash=digest, inherits=inherits)
            case _:
                pass
