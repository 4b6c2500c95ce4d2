"""The index's sessions, and how what is known of one is written into its tables and read back.

It names no database library: a `Database` is what `session_store.index` opens.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
from attrs import asdict

from .chain import START, Position
from .ids import is_session_id
from .info import Known, LogSummary, Tally
from .layout import LOG_SUFFIX
from .messages import Message

SCHEMA = (
    # `read_to` and `searchable_to` are places in the log; where they differ, there are new words.
    # `inherited` is NULL where nothing is, and empty where it is still to be found in the parent.
    """CREATE TABLE sessions(
        session_id TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER,
        summary TEXT, inherited TEXT, read_to TEXT, searchable_to TEXT)""",
    """CREATE TABLE links(
        child TEXT, parent TEXT, hash TEXT, relation TEXT, PRIMARY KEY(child, relation))""",
    "CREATE INDEX links_by_parent ON links(parent)",
)


class Answer(Protocol):
    """What a statement came to."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any:  # noqa: ANN401 - the types of a row are the statement's
        """Return the next row, or None."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection in autocommit mode."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and has not ended."""

    def execute(self, sql: str, parameters: Sequence[object] = ..., /) -> Answer:
        """Run one statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[object]], /) -> Answer:
        """Run one statement for each row of parameters."""


class Stamp(NamedTuple):
    """By what a changed log is noticed."""

    size: int
    mtime_ns: int
    inode: int


class Piece(NamedTuple):
    """What a stretch of a session's log adds to what can be searched for."""

    session_id: str
    before: str
    """The place where the stretch begins, as a column holds it."""
    after: str
    """The place where it ends."""
    messages: list[Message]


class Unusable(Exception):
    """The index cannot be used as it is. `rebuild`: it is ours, and may be made anew."""

    def __init__(self, why: str, *, rebuild: bool) -> None:
        super().__init__(why)
        self.rebuild = rebuild


@contextmanager
def transaction(db: Database) -> Iterator[None]:
    """Make all that is done inside happen at once, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        # Of some failures, such as a full disk, the database has rolled back by itself.
        if db.in_transaction:
            db.execute("ROLLBACK")


def known_sessions(db: Database) -> dict[str, Known]:
    """Return what is known of every session, by its id. Raises `Unusable`."""
    query = "SELECT session_id, summary, inherited FROM sessions"
    return {
        session_id: Known(_summary(summary), _tally(inherited))
        for session_id, summary, inherited in db.execute(query)
    }


def resumable(db: Database, session_id: str, stamp: Stamp) -> LogSummary | None:
    """Return what is known of a log that only grew since, or None. Raises `Unusable`."""
    query = "SELECT inode, summary FROM sessions WHERE session_id = ?"
    row = db.execute(query, (session_id,)).fetchone()
    if row is None or row[0] != stamp.inode:
        return None

    summary = _summary(row[1])
    grew = summary.damaged is None and 0 < summary.position.offset <= stamp.size
    return summary if grew else None


def remember(db: Database, stamp: Stamp, summary: LogSummary) -> None:
    """Put what is known of a session in the place of what was; its messages stay."""
    db.execute(
        """INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(session_id) DO UPDATE
        SET size = excluded.size, mtime_ns = excluded.mtime_ns, inode = excluded.inode,
        summary = excluded.summary, read_to = excluded.read_to""",
        (
            summary.session_id,
            # What cannot be read is looked at again each time: mending it leaves no other trace.
            -1 if summary.position == START else stamp.size,
            stamp.mtime_ns,
            stamp.inode,
            to_json(asdict(summary)),
            "" if summary.inherits else None,
            to_json(summary.position),
            to_json(START),
        ),
    )
    links = {
        "fork": summary.forked_from,
        "compact": summary.compacted_from,
        "redact" if summary.redacted else "salvage": summary.recovered_from,
    }
    db.executemany(
        "INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?)",
        [(summary.session_id, *source, kind) for kind, source in links.items() if source],
    )


def forget(db: Database, session_id: str) -> None:
    """Take out all that is known of a session."""
    db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
    db.execute("DELETE FROM links WHERE child = ?", (session_id,))
    # What its forks inherit may be found elsewhere from now on.
    db.execute(
        """UPDATE sessions SET inherited = '' WHERE inherited IS NOT NULL AND session_id IN
        (SELECT child FROM links WHERE parent = ? AND relation = 'fork')""",
        (session_id,),
    )
    db.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))


def to_json(value: object) -> str:
    """Return `value` as the text that a column holds."""
    return json.dumps(value)


def stamps_of(folder: Path) -> dict[str, Stamp]:
    """Return the stamps of all that has the name of a session's log."""
    stamps: dict[str, Stamp] = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            session_id = entry.name.removesuffix(LOG_SUFFIX)
            if session_id != entry.name and is_session_id(session_id):
                with suppress(FileNotFoundError):  # removed while we looked
                    found = entry.stat(follow_symlinks=False)
                    stamps[session_id] = Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    return stamps


def _summary(text: str) -> LogSummary:
    try:
        values = orjson.loads(text)
        for name in ("forked_from", "compacted_from", "recovered_from"):
            values[name] = values[name] and tuple(values[name])

        values["tally"] = Tally(**values["tally"])
        values["position"] = Position(*values["position"])
        return LogSummary(**values)
    except (ValueError, TypeError, KeyError) as error:
        raise Unusable(f"a row of it cannot be read ({error!r})", rebuild=True) from error


def _tally(text: str | None) -> Tally | None:
    try:
        return Tally(**orjson.loads(text)) if text else None
    except (ValueError, TypeError) as error:
        raise Unusable(f"a row of it cannot be read ({error!r})", rebuild=True) from error
