"""Which sessions refer to which: what has to be known before one is taken away."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from attrs import frozen

from .ancestry import Ancestry
from .blob_use import BASE_SUFFIX
from .chain import Entry
from .disk import Disk
from .errors import SessionDamaged, SessionNotFound
from .ids import is_session_id
from .layout import LOG_SUFFIX, Layout


@frozen(kw_only=True)
class Origin:
    """What a session says it came from."""

    parent: str
    relation: str
    """`fork` or `compact`."""
    hash: str
    """The entry that it names."""
    inherits: bool
    """Whether its history begins there, so that it cannot be read without."""


@frozen(kw_only=True)
class Referrer:
    """A session that refers to another one."""

    session_id: str
    origin: Origin


class Referrals:
    """Who refers to whom, brought up to date with the folder of the logs by `look`.

    The first line of a log never changes, so of each log it is read once: a look at thousands of
    sessions that were there before costs one listing of the folder.
    """

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self._layout = layout
        self._ancestry = Ancestry(disk, layout)
        self._origins: dict[str, tuple[Origin, ...]] = {}
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self._removed: set[str] = set()
        self._unknown: set[str] = set()
        self.names: list[str] = []
        """The names of all files in the folder at the last look, in no order."""

    def look(self) -> None:
        """Take in what came to the folder and what went."""
        with suppress(FileNotFoundError), os.scandir(self._layout.sessions) as found:
            self.names = [entry.name for entry in found]

        logs = self._ids(LOG_SUFFIX)
        self._removed = self._ids(BASE_SUFFIX) - logs
        there = logs | self._removed
        for gone in self._origins.keys() - there:
            for origin in self._origins.pop(gone):
                self._children[origin.parent].discard(gone)

        self._unknown = set()
        for new in there - self._origins.keys():
            self._take_in(new)

    @property
    def all_known(self) -> bool:
        """Whether of every session it can be told what it refers to."""
        return self._unknown <= self._removed

    def referrers(self, session_id: str) -> list[Referrer]:
        """Return the sessions that refer to this one, oldest first.

        What inherits from it through others that were removed counts too.
        """
        found: list[Referrer] = []
        for child in self._children[session_id]:
            for origin in self._origins[child]:
                if origin.parent != session_id:
                    continue

                users = self._heirs(child) if child in self._removed else {child}
                found += [Referrer(session_id=one, origin=origin) for one in users]

        return sorted(found, key=lambda one: one.session_id)

    def parents(self, session_id: str) -> set[str]:
        """Return the sessions that this one refers to, itself or through one that was removed."""
        found: set[str] = set()
        todo = list(self._origins.get(session_id, ()))
        while todo:
            origin = todo.pop()
            if origin.parent not in found:
                found.add(origin.parent)
                if origin.inherits and origin.parent in self._removed:
                    todo += [one for one in self._origins.get(origin.parent, ()) if one.inherits]

        return found

    def needed(self) -> set[str]:
        """Return every session that another one refers to."""
        logs = self._origins.keys() - self._removed
        return {parent for session_id in logs for parent in self.parents(session_id)}

    def _heirs(self, removed: str) -> set[str]:
        """Return the sessions that inherit from a removed one, also through others."""
        heirs: set[str] = set()
        seen, todo = {removed}, [removed]
        while todo:
            parent = todo.pop()
            for child in self._children[parent] - seen:
                if any(one.inherits and one.parent == parent for one in self._origins[child]):
                    seen.add(child)
                    todo += [child] if child in self._removed else []
                    heirs |= set() if child in self._removed else {child}

        return heirs

    def _take_in(self, session_id: str) -> None:
        try:
            origins = tuple(_origins(self._ancestry.first_entry(session_id)))
        except (SessionDamaged, SessionNotFound):
            self._unknown.add(session_id)
            return

        self._origins[session_id] = origins
        for origin in origins:
            self._children[origin.parent].add(session_id)

    def _ids(self, suffix: str) -> set[str]:
        found = {name.removesuffix(suffix) for name in self.names if name.endswith(suffix)}
        return {name for name in found if name in self._origins or is_session_id(name)}


def _origins(start: Entry) -> Iterator[Origin]:
    for key, relation in (("compacted_from", "compact"), ("forked_from", "fork")):
        match start.data.get(key):
            case [str(parent), str(digest)]:
                inherits = relation == "fork" and start.data.get("history") is None
                yield Origin(parent=parent, relation=relation, hash=digest, inherits=inherits)
            case _:
                pass
