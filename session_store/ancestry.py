"""Sessions that came from others: what a fork inherits, and the tree that they form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from .blobs import blobs_of
from .chain import Entry
from .disk import Disk
from .errors import SessionDamaged, SessionNotFound, UnknownEntry
from .files import FileLogs
from .fold import fold
from .history import safe_fork_point
from .ids import is_session_id
from .layout import LOG_SUFFIX, Layout
from .port import Logs, Payloads
from .reader import Reader, entries_of
from .recovery import Damaged
from .state import ForkPoint, SessionState
from .tail import LogEnd

_SHORTEST_PREFIX = 8


class Link(NamedTuple):
    """One step from a session to the one that it inherits from."""

    session_id: str
    upto: str | None
    """The hash of the last entry that counts; None for all of them."""


class Family:
    """Reads sessions together with those that they came from. Changes nothing."""

    def __init__(self, logs: Logs, payloads: Payloads) -> None:
        self._logs = logs
        self._payloads = payloads

    def first_entry(self, session_id: str) -> Entry:
        """Return the entry that starts the session, verified.

        Raises:
            SessionNotFound: There is no such session.
            SessionDamaged: Its first entry does not verify.
        """
        reader = Reader(self._logs, session_id)
        for entry in reader:
            return entry

        reader.raise_if_unusable()
        raise SessionNotFound(session_id)

    def fork_point(self, session_id: str, at: str | None) -> ForkPoint:
        """Return where a fork at `at`, or at the head, is made. Only the end of the log is read.

        Raises:
            SessionNotFound: There is no such session.
            UnknownEntry: `at` names no entry, or several.
            SessionDamaged: The end of the log does not verify.
        """
        end = LogEnd(self._logs, session_id)
        after = end.position() if at is None else self.find(session_id, at).next
        return safe_fork_point(end.backwards(after))

    def find(self, session_id: str, at: str) -> Entry:
        """Return the entry that `at` names: its hash, or the first 8 or more digits of it.

        It matches its hash; the entries before it need not have been read.

        Raises:
            UnknownEntry: It names none, or more than one.
            SessionDamaged: It cannot be found, and the log does not verify.
        """
        wanted = at.lower() if isinstance(at, str) else ""
        if len(wanted) < _SHORTEST_PREFIX or not set(wanted) <= set("0123456789abcdef"):
            raise UnknownEntry(session_id, at, "a hash has 64 hex digits, its prefix 8 or more")

        entry = LogEnd(self._logs, session_id).find(wanted)
        return self._find_among_all(session_id, at, wanted) if entry is None else entry

    def _find_among_all(self, session_id: str, at: str, wanted: str) -> Entry:
        """Return the entry, or say why there is none to be had."""
        entries = entries_of(self._logs, self._payloads, session_id)
        found = [entry for entry in entries if entry.hash.startswith(wanted)]
        if len(found) != 1:
            many = f"it begins the hashes of {len(found)} entries" if found else "no hash is that"
            raise UnknownEntry(session_id, at, many)

        return found[0]

    def links(self, session_id: str) -> list[Link]:
        """Return the session and those that it inherits from, itself first.

        Raises:
            SessionNotFound: There is no such session.
            SessionDamaged: One of those that it inherits from is not there or damaged.
        """
        links = [Link(session_id, None)]
        start = self.first_entry(session_id)
        while start.data.get("history") is None:
            parent = _parent(session_id, start)
            if parent.session_id in {link.session_id for link in links}:
                raise SessionDamaged(session_id, 0, "inherits from itself", 0)

            links.append(parent)
            try:
                start = self.first_entry(parent.session_id)
            except (SessionNotFound, SessionDamaged) as error:
                raise _through_parent(session_id, parent, error) from error

        return links

    def inherited(self, session_id: str) -> SessionState | None:
        """Return the state that the session starts from, or None where it inherits nothing.

        Raises:
            SessionDamaged: One of those that it inherits from is not there or damaged.
        """
        state: SessionState | None = None
        for link in reversed(self.links(session_id)[1:]):
            try:
                state = self._fold(link, state)
            except (SessionNotFound, SessionDamaged, UnknownEntry) as error:
                raise _through_parent(session_id, link, error) from error

        return state

    def state(self, session_id: str, upto: str | None = None) -> SessionState:
        """Return the session's state at the entry of the hash `upto`, or at its head.

        Raises:
            SessionNotFound: There is no such session.
            SessionDamaged: It does not verify so far, or one that it inherits from does not.
        """
        return self._fold(Link(session_id, upto), self.inherited(session_id))

    def why_missing(self, session_id: str, digest: str | None) -> str:
        """Return why the session does not have that entry, verified; empty where it has it."""
        reader = Reader(self._logs, session_id)
        try:
            if any(entry.hash == digest for entry in reader):
                return ""
        except SessionNotFound:
            return "which is not there"

        verdict = reader.verdict
        if isinstance(verdict, Damaged):
            return f"which is damaged: entry {verdict.seq} there {verdict.reason}"

        return f"which has no entry {digest}"

    def lineage(self, session_id: str) -> list[tuple[str, str]]:
        """Return the way from the root to the session: ids, and how each came from the one before.

        A session whose parent is gone counts as the root.
        """
        way: list[tuple[str, str]] = []
        seen: set[str] = set()
        current: str | None = session_id
        while current is not None and current not in seen:
            seen.add(current)
            try:
                origin = origin_of(self.first_entry(current))
            except SessionNotFound:
                if current == session_id:
                    raise

                origin = None

            way.append((current, origin[1] if origin else "root"))
            current = origin[0] if origin else None

        return way[::-1]

    def _fold(self, link: Link, inherited: SessionState | None) -> SessionState:
        entries = entries_of(self._logs, self._payloads, link.session_id)
        return fold(_until(entries, link), inherited)


class Ancestry(Family):
    """The family of sessions whose logs are in one folder."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        super().__init__(FileLogs(disk, layout), blobs_of(disk, layout))
        self._layout = layout

    def children(self, session_id: str) -> list[str]:
        """Return the ids of the sessions that were forked or compacted from this one, oldest first.

        Sessions whose first entry does not verify are nobody's children.
        """
        found: list[str] = []
        for candidate in self.ids():
            reader = Reader(self._logs, candidate)
            for entry in reader:
                origin = origin_of(entry)
                found += [candidate] if origin and origin[0] == session_id else []
                break

        return found

    def ids(self) -> list[str]:
        """Return the id of every log in the folder, oldest first."""
        return _ids(self._layout)


def origin_of(start: Entry) -> tuple[str, str] | None:
    """Return the parent's id and how the session came from it; None for one that has no parent.

    That is `fork`, `compact`, `salvage` or `redact`. What was mended from another comes from that
    one, whatever it may itself have come from.
    """
    mended = "redact" if start.data.get("redacted") is True else "salvage"
    origins = (("recovered_from", mended), ("compacted_from", "compact"), ("forked_from", "fork"))
    for key, relation in origins:
        match start.data.get(key):
            case [str(parent), str()]:
                return parent, relation
            case _:
                pass

    return None


def _until(entries: Iterator[Entry], link: Link) -> Iterator[Entry]:
    if link.upto is None:
        yield from entries
        return

    for entry in entries:
        yield entry
        if entry.hash == link.upto:
            return

    raise UnknownEntry(link.session_id, link.upto, "no hash is that")


def _parent(session_id: str, start: Entry) -> Link:
    match start.data.get("forked_from"):
        case [str(parent), str(digest)]:
            return Link(parent, digest)
        case _:
            raise SessionDamaged(session_id, 0, "inherits a history and names no parent", 0)


def _through_parent(session_id: str, parent: Link, error: Exception) -> SessionDamaged:
    """Return the damage of the parent as what it is to the session: its own beginning is gone."""
    match error:
        case SessionDamaged():
            why = f"which is damaged: entry {error.seq} there {error.reason}"
        case UnknownEntry():
            why = f"which has no entry {parent.upto}"
        case _:
            why = "which is not there"

    reason = f"inherits from session {parent.session_id}, {why}"
    return SessionDamaged(session_id, 0, reason, 0)


def _ids(layout: Layout) -> list[str]:
    try:
        with os.scandir(layout.sessions) as found:
            names = [entry.name for entry in found if entry.name.endswith(LOG_SUFFIX)]
    except FileNotFoundError:
        return []

    stems = sorted(name.removesuffix(LOG_SUFFIX) for name in names)
    return [stem for stem in stems if is_session_id(stem)]
