"""What a listing says of a session, found in one pass over its log that keeps nothing of it.

A listing must be possible whatever the logs hold: nothing here raises for what an entry says, and
a damaged log is described by what verifies of it. What an entry *means* is told in `fold`; here it
is only counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TypeAlias

from attrs import Factory, define, evolve, frozen

from worker.text import first_line

from .chain import START, Entry, Position
from .disk import Disk
from .errors import Holder, SessionNotFound
from .layout import Layout
from .reader import LogReader
from .recovery import Aborted, Damaged

Provenance: TypeAlias = tuple[str, str]
"""A session's id and the hash of one of its entries."""

_BYTES_PER_TOKEN = 4
_IN_A_RUN = frozenset({"user_input", "assistant_items", "tool_results"})
_WITH_ITEMS = _IN_A_RUN | {"system_item"}


@frozen(kw_only=True)
class Writer:
    """Who holds a session open for writing."""

    pid: int
    host: str
    since: int
    """Milliseconds of Unix time."""

    @classmethod
    def of(cls, holder: Holder) -> Writer:
        """Return the writer that the lock's `holder` is."""
        return cls(pid=holder.pid, host=holder.host, since=holder.since_ms)


@frozen(kw_only=True)
class SessionInfo:
    """One session as listings show it."""

    session_id: str
    pod: str
    title: str
    """The first line of the first thing a person said in it, at most 80 characters."""
    created: int
    """Milliseconds of Unix time, of its first entry."""
    updated: int
    """Milliseconds of Unix time, of its last entry."""
    turns: int
    """How many messages of a person the history holds, inherited ones included."""
    items: int
    """How many items the history holds, inherited ones included."""
    tokens: int
    """Occupancy as last measured; where nothing was, a rough estimate from the bytes."""
    forked_from: Provenance | None = None
    compacted_from: Provenance | None = None
    interrupted: bool = False
    """Whether the last run has no outcome, and nobody is at it."""
    writer: Writer | None = None
    damaged: str | None = None
    """What does not verify, or None. The rest then describes what does."""


@frozen(kw_only=True)
class Tally:
    """What the entries of one log add up to, so far. What is inherited is not in it."""

    turns: int = 0
    items: int = 0
    item_bytes: int = 0
    occupancy: int | None = None
    """None until something was measured."""
    title: str = ""
    """Empty until a person said something."""
    run_open: bool | None = None
    """Whether the last run has no outcome, or one that says interrupted. None: no run yet."""

    def after(self, *, inherited: Tally) -> Tally:
        """Return this tally on top of what the session inherited."""
        return Tally(
            turns=inherited.turns + self.turns,
            items=inherited.items + self.items,
            item_bytes=inherited.item_bytes + self.item_bytes,
            occupancy=inherited.occupancy if self.occupancy is None else self.occupancy,
            title=inherited.title or self.title,
            run_open=inherited.run_open if self.run_open is None else self.run_open,
        )

    @property
    def tokens(self) -> int:
        """Occupancy, or a rough estimate of it."""
        return self.item_bytes // _BYTES_PER_TOKEN if self.occupancy is None else self.occupancy


@define(kw_only=True)
class LogSummary:
    """What one log says of its session, up to `position`, from where it can be taken further."""

    session_id: str
    pod: str = ""
    """Empty where it is the parent's."""
    created: int = 0
    updated: int = 0
    forked_from: Provenance | None = None
    compacted_from: Provenance | None = None
    recovered_from: Provenance | None = None
    redacted: bool = False
    """Whether `recovered_from` is where it was redacted from, and not a damaged session."""
    inherits: bool = False
    """Whether the history begins with the parent's, by reference."""
    tally: Tally = Factory(Tally)
    position: Position = START
    damaged: str | None = None

    def take(self, entry: Entry) -> None:
        """Take one more entry into account, whatever it holds."""
        data = entry.data
        self.updated = entry.ts
        if entry.seq == 0:
            self._begin(entry)
        elif entry.kind in _WITH_ITEMS:
            self._count(data.get("items"), len(entry.raw))
            if entry.kind in _IN_A_RUN:
                self._run(is_open=True)
        elif entry.kind == "usage":
            self._measured(data.get("input_tokens"))
        elif entry.kind == "compaction":
            self._measured(data.get("tokens_after"))
            self._run(is_open=bool(data.get("in_run")))
        elif entry.kind == "run_outcome":
            self._run(is_open=bool(data.get("interrupted")))

    def _begin(self, entry: Entry) -> None:
        data = entry.data
        self.created = entry.ts
        self.pod = _text(data.get("pod"))
        self.forked_from = _provenance(data.get("forked_from"))
        self.compacted_from = _provenance(data.get("compacted_from"))
        self.recovered_from = _provenance(data.get("recovered_from"))
        self.redacted = data.get("redacted") is True
        self.inherits = self.forked_from is not None and data.get("history") is None
        self.tally = Tally(title=_text(data.get("title")))
        self._count(data.get("history"), len(entry.raw))
        carried = data.get("carried")
        if isinstance(carried, dict):
            self._run(is_open=bool(carried.get("interrupted")))
            for record in _dicts(carried.get("usage"))[-1:]:
                self._measured(record.get("input_tokens"))

    def _count(self, items: object, size: int) -> None:
        found = _dicts(items)
        said = [item for item in found if _is_said(item)]
        title = self.tally.title or next(filter(None, map(_title, said)), "")
        self.tally = evolve(
            self.tally,
            items=self.tally.items + len(found),
            turns=self.tally.turns + len(said),
            item_bytes=self.tally.item_bytes + (size if found else 0),
            title=title,
        )

    def _run(self, *, is_open: bool) -> None:
        self.tally = evolve(self.tally, run_open=is_open)

    def _measured(self, tokens: object) -> None:
        if isinstance(tokens, int):
            self.tally = evolve(self.tally, occupancy=tokens)


def summarise(
    disk: Disk, layout: Layout, session_id: str, known: LogSummary | None = None
) -> LogSummary | None:
    """Return what the log says of its session, or None where there is no session in it.

    With `known`, an earlier answer, only what came since is read, unless it no longer fits.

    Raises:
        UnsafePath: The log is a symlink or not our own.
        OSError: It cannot be read.
    """
    summary = LogSummary(session_id=session_id) if known is None else evolve(known)
    reader = LogReader(disk, layout, session_id, summary.position)
    try:
        for entry in reader:
            summary.take(entry)
    except SessionNotFound:
        return None

    if isinstance(reader.verdict, Damaged) and known is not None:
        return summarise(disk, layout, session_id)

    if isinstance(reader.verdict, Aborted):
        return None

    summary.position = reader.position
    if isinstance(reader.verdict, Damaged):
        summary.damaged = f"entry {reader.verdict.seq} {reader.verdict.reason}"
        summary.created = summary.created or _birth(session_id)
        summary.updated = summary.updated or summary.created

    return summary


def unreadable(session_id: str, why: str) -> LogSummary:
    """Return what can be said of a session whose log cannot be read at all."""
    birth = _birth(session_id)
    return LogSummary(session_id=session_id, created=birth, updated=birth, damaged=why)


def tallies_at(
    disk: Disk, layout: Layout, session_id: str, hashes: Collection[str]
) -> dict[str, Tally]:
    """Return the log's own tally right after each of the named entries that is there.

    Reads no further than the last of them. Raises as `summarise` does.
    """
    found: dict[str, Tally] = {}
    summary = LogSummary(session_id=session_id)
    try:
        for entry in LogReader(disk, layout, session_id):
            summary.take(entry)
            if entry.hash in hashes:
                found[entry.hash] = summary.tally
                if len(found) == len(hashes):
                    break
    except SessionNotFound:
        return found

    return found


def inherited_by_removed(disk: Disk, layout: Layout, session_id: str) -> Tally:
    """Return what the history of a removed session begins with, as far as it can be read.

    Raises as `summarise` does.
    """
    inherited = Tally()
    line: list[Provenance] = []
    current = session_id
    while (link := _inherited_link(disk, layout, current)) is not None and link not in line:
        line.append(link)
        current, _ = link

    for parent, digest in reversed(line):
        own = tallies_at(disk, layout, parent, [digest]).get(digest, Tally())
        inherited = own.after(inherited=inherited)

    return inherited


def _inherited_link(disk: Disk, layout: Layout, session_id: str) -> Provenance | None:
    summary = LogSummary(session_id=session_id)
    with suppress(SessionNotFound):  # then nothing is known of it
        for entry in LogReader(disk, layout, session_id):
            summary.take(entry)
            break

    return summary.forked_from if summary.inherits else None


@frozen
class Known:
    """What is known of one session: its own log, and what its history begins with elsewhere."""

    summary: LogSummary
    inherited: Tally | None = None
    """The parent's own tally at the fork; None where nothing is inherited, or nothing was found."""

    @property
    def lacks_parent(self) -> bool:
        """Whether the history begins in a parent where it was not found."""
        return self.summary.inherits and self.inherited is None


def session_info(known: Mapping[str, Known], session_id: str, writer: Writer | None) -> SessionInfo:
    """Return the session as listings show it, with what it has from the one it was forked from."""
    summary = known[session_id].summary
    line = _line_of_descent(known, session_id)
    tally = summary.tally.after(inherited=inherited_tally(known, session_id))
    orphan = next((one for one in line if one.lacks_parent), None)
    damaged = summary.damaged or (_lost_parent(orphan) if orphan else None)
    return SessionInfo(
        session_id=session_id,
        pod=next((one.summary.pod for one in line if one.summary.pod), ""),
        title=tally.title,
        created=summary.created,
        updated=summary.updated,
        turns=tally.turns,
        items=tally.items,
        tokens=tally.tokens,
        forked_from=summary.forked_from,
        compacted_from=summary.compacted_from,
        # Of a damaged log nobody knows how its last run ended.
        interrupted=bool(tally.run_open) and writer is None and damaged is None,
        writer=writer,
        damaged=damaged,
    )


def inherited_tally(known: Mapping[str, Known], session_id: str) -> Tally:
    """Return what the session's history begins with, through all that it was forked from."""
    inherited = Tally()
    for one in reversed(_line_of_descent(known, session_id)):
        if one.inherited is not None:
            inherited = one.inherited.after(inherited=inherited)

    return inherited


def _line_of_descent(known: Mapping[str, Known], session_id: str) -> list[Known]:
    """Return the session and those that its history begins in, nearest first."""
    line = [known[session_id]]
    seen = {session_id}
    while line[-1].summary.inherits and line[-1].summary.forked_from is not None:
        parent, _ = line[-1].summary.forked_from
        if parent not in known or parent in seen:
            break

        seen.add(parent)
        line.append(known[parent])

    return line


def _lost_parent(one: Known) -> str:
    parent, digest = one.summary.forked_from or ("", "")
    return f"history begins in session {parent}, which has no entry {digest[:12]}"


def _birth(session_id: str) -> int:
    """Return the time that a UUID of version 7 begins with, in milliseconds."""
    return int(session_id[:8] + session_id[9:13], 16) if session_id[14] == "7" else 0


def _title(item: dict[str, object]) -> str:
    texts = (_text(part.get("text")) for part in _dicts(item.get("parts")))
    return next((line for line in map(first_line, texts) if line), "")


def _is_said(item: dict[str, object]) -> bool:
    return item.get("type") == "user_message" and item.get("origin", "user") == "user"


def _provenance(value: object) -> Provenance | None:
    match value:
        case [str(session_id), str(digest)]:
            return session_id, digest
        case _:
            return None


def _dicts(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
