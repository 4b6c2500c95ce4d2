"""The index of a store: what listings and searches ask instead of the logs.

The logs are the truth. The index is brought up to date from them before each answer, by what the
folder says of their size, time and inode, so no writer has to know of it; it may be deleted at any
time. When it cannot be used, that is said, and an index in memory answers instead, made from the
logs for this one question.

Every call has a connection of its own, so one `SessionIndex` may be used from several threads.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import orjson
from attrs import asdict, frozen

from worker.text import clean_text

from .chain import Position
from .disk import Disk
from .errors import InvalidSessionId, SessionNotFound, StorageFailed, UnsafePath
from .index_messages import (
    MESSAGES,
    WORDS,
    IndexedMessage,
    SearchHit,
    add_pieces,
    hits,
    messages_in,
    messages_naming,
)
from .index_rows import (
    SCHEMA,
    Piece,
    Stamp,
    Unusable,
    forget,
    known_sessions,
    remember,
    resumable,
    stamps_of,
    to_json,
    transaction,
)
from .info import (
    LogSummary,
    SessionInfo,
    Tally,
    Writer,
    inherited_by_removed,
    inherited_tally,
    session_info,
    summarise,
    tallies_at,
    unreadable,
)
from .layout import Layout
from .lock import holder
from .messages import messages_of, words_of
from .reader import LogReader

_LOG = logging.getLogger(__name__)
_APPLICATION_ID = 0x706F6431  # "pod1": tells our file from anybody else's
_VERSION = 2
_BUSY_TIMEOUT_S = 1.0
_BATCH = 200
_REBUILD = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
# Where several machines may see one file, WAL's shared memory is not shared and the file is lost.
_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "virtiofs", "fuse", "ceph", "gfs", "lustre")

Notice = Callable[[str], None]
_Result = TypeVar("_Result")


@frozen
class SessionLink:
    """Where a session came from. `relation` is `fork`, `compact`, `salvage` or `redact`."""

    child: str
    parent: str
    hash: str
    """The entry of the parent at which the child begins."""
    relation: str
    turns: int | None
    """How many turns a fork inherits; None where nothing is inherited."""


class SessionIndex:
    """Answers listings and searches over the logs of one home.

    `sessions` is the folder of the logs, by default the home's. `on_notice` is told, in one line,
    what is wrong with the index; by default that is logged as a warning. What is wrong with the
    index never keeps a question from being answered.
    """

    def __init__(
        self,
        home: Path | str,
        *,
        sessions: Path | None = None,
        disk: Disk | None = None,
        on_notice: Notice = _LOG.warning,
    ) -> None:
        self._disk = disk or Disk()
        self._layout = Layout(home, sessions)
        self._notice = on_notice
        self._path = self._layout.home / "index.db"
        if self._layout.sessions != self._layout.home / "sessions":
            # Another folder is another index; sharing one would undo it at every change of folder.
            name = sha256(os.fsencode(self._layout.sessions)).hexdigest()[:12]
            self._path = self._layout.home / f"index-{name}.db"

    def sync(self) -> None:
        """Bring the index up to date with the logs. Every question does so first.

        Raises:
            UnsafePath: The folder of the logs is a symlink or not our own.
            StorageFailed: It cannot be read.
        """
        self._ask(lambda _: None)

    def sessions(self) -> list[SessionInfo]:
        """Return all sessions, newest activity first, damaged ones too. Raises as `sync` does."""
        return self._ask(self._list)

    def links(self) -> list[SessionLink]:
        """Return where every session that came from another came from, oldest first.

        Raises as `sync` does.
        """
        return self._ask(_links)

    def children(self, session_id: str) -> list[SessionLink]:
        """Return what came from the session, oldest first. Raises as `sync` does."""
        return [link for link in self.links() if link.parent == session_id]

    def compacted_child_of(self, session_id: str, digest: str) -> str | None:
        """Return the session that was compacted from that entry, if any. Raises as `sync` does."""
        links = (link for link in self.children(session_id) if link.relation == "compact")
        return next((link.child for link in links if link.hash == digest), None)

    def search(self, text: str, limit: int = 20) -> list[SearchHit]:
        """Return the messages that hold every word of `text`, of the newest session first.

        A word is what has no spaces in it, punctuation included; it is found inside longer ones
        and in any script, whatever its case. A message that several sessions share is found once.
        Raises as `sync` does.
        """
        words = words_of(text)
        return self._ask(lambda db: self._search(db, words, limit)) if words else []

    def messages(self, session_id: str) -> list[IndexedMessage]:
        """Return what identifies each message of the session's own log, as its history has them.

        What a fork inherits is among the messages of the session that it inherits from; of a
        session that is not there, there are none. Raises as `sync` does.
        """
        return self._ask(lambda db: messages_in(self._searchable(db), clean_text(session_id)))

    def messages_naming(self, uid: str) -> list[IndexedMessage]:
        """Return every message of the store that `uid` is, or is part of, oldest session first.

        A uid of a message finds it and those that absorbed it; one of a call finds the answer that
        made the call and its result. Raises as `sync` does.
        """
        return self._ask(lambda db: messages_naming(self._searchable(db), clean_text(uid)))

    # --- what is asked ------------------------------------------------------------------------

    def _list(self, db: sqlite3.Connection) -> list[SessionInfo]:
        known = known_sessions(db)
        infos = [session_info(known, session_id, self._writer(session_id)) for session_id in known]
        return sorted(infos, key=lambda info: (info.updated, info.session_id), reverse=True)

    def _writer(self, session_id: str) -> Writer | None:
        path = self._layout.lock(session_id)
        with suppress(OSError, UnsafePath):  # who holds it cannot be told; the listing goes on
            # A lock that was released is empty: most are not worth an open.
            if os.lstat(path).st_size:
                found = holder(self._disk, path)
                return None if found is None else Writer.of(found)

        return None

    def _search(self, db: sqlite3.Connection, words: list[str], limit: int) -> list[SearchHit]:
        return hits(self._searchable(db), words, limit)

    # --- keeping up with the logs -------------------------------------------------------------

    def _sync(self, db: sqlite3.Connection) -> None:
        try:
            self._disk.check_folder(self._layout.sessions)
            there = stamps_of(self._layout.sessions)
        except OSError as error:
            raise StorageFailed(f"list {self._layout.sessions}", error.strerror) from error

        query = "SELECT session_id, size, mtime_ns, inode FROM sessions"
        seen = {row[0]: Stamp(*row[1:]) for row in db.execute(query)}
        gone = seen.keys() - there.keys()
        changed = [name for name, stamp in there.items() if seen.get(name) != stamp]
        if gone:
            with transaction(db):
                for session_id in gone:
                    forget(db, session_id)

        for start in range(0, len(changed), _BATCH):
            self._take_in(db, {name: there[name] for name in changed[start : start + _BATCH]})

        self._find_inherited(db)

    def _take_in(self, db: sqlite3.Connection, stamps: Mapping[str, Stamp]) -> None:
        """Read what is new in these logs, then put all of it into the index at once."""
        found = []
        for session_id, stamp in stamps.items():
            known = resumable(db, session_id, stamp)
            summary = self._summarise(session_id, known)
            if summary is not None:
                is_new = known is None or summary.damaged is not None
                found.append((stamp, summary, is_new))

        with transaction(db):
            for stamp, summary, is_new in found:
                if is_new:
                    forget(db, summary.session_id)

                remember(db, stamp, summary)

    def _summarise(self, session_id: str, known: LogSummary | None) -> LogSummary | None:
        try:
            return summarise(self._disk, self._layout, session_id, known)
        except UnsafePath as error:
            return unreadable(session_id, error.message)
        except OSError as error:
            return unreadable(session_id, f"the log cannot be read: {error.strerror}")

    def _find_inherited(self, db: sqlite3.Connection) -> None:
        """Find what forks inherit: one pass over each parent, however many forks it has."""
        wanted: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(
            lambda: defaultdict(list)
        )
        query = """SELECT parent, hash, child FROM sessions JOIN links ON child = session_id
            WHERE inherited = '' AND relation = 'fork'"""
        for parent, digest, child in db.execute(query):
            wanted[parent][digest].append(child)

        for parent, children in wanted.items():
            tallies = self._tallies_at(parent, children)
            with transaction(db):
                db.executemany(
                    "UPDATE sessions SET inherited = ? WHERE session_id = ?",
                    [
                        (to_json(asdict(tally)), child)
                        for digest, tally in tallies.items()
                        for child in children[digest]
                    ],
                )

    def _tallies_at(self, parent: str, hashes: Collection[str]) -> dict[str, Tally]:
        try:
            found = tallies_at(self._disk, self._layout, parent, hashes)
            if self._layout.is_removed(parent):
                # It is in no row of its own, so what it inherited has to be told here.
                before = inherited_by_removed(self._disk, self._layout, parent)
                return {digest: one.after(inherited=before) for digest, one in found.items()}

            return found
        except (OSError, UnsafePath, InvalidSessionId):  # the listing calls such a fork damaged
            return {}

    def _searchable(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """Return `db` once it has all the messages."""
        query = "SELECT session_id, searchable_to FROM sessions WHERE searchable_to != read_to"
        pieces: list[Piece] = []
        for session_id, place in db.execute(query).fetchall():
            # Unreadable or gone by now: then nothing of it is found, as the listing says.
            with suppress(OSError, UnsafePath, SessionNotFound):
                for piece in self._pieces(session_id, place):
                    pieces.append(piece)
                    if sum(len(one.messages) for one in pieces) >= _BATCH:
                        add_pieces(db, pieces)
                        pieces = []

        if pieces:
            add_pieces(db, pieces)

        return db

    def _pieces(self, session_id: str, place: str) -> Iterator[Piece]:
        reader = LogReader(self._disk, self._layout, session_id, Position(*orjson.loads(place)))
        entries = iter(reader)
        while chunk := list(islice(entries, _BATCH)):
            before, place = place, to_json(reader.position)
            messages = [message for entry in chunk for message in messages_of(entry)]
            yield Piece(session_id, before, place, messages)

    # --- the file -----------------------------------------------------------------------------

    def _ask(self, question: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return the answer of the index, or of one in memory where the index cannot be used."""
        if self._layout.home.is_dir():
            try:
                return self._ask_file(question)
            except Unusable as error:
                why = f"the index {self._path} cannot be used ({error})"
                self._notice(f"{why}: the logs are read directly, which takes longer")

        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            _create(db)
            self._sync(db)
            return question(db)

    def _ask_file(self, question: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            return self._ask_once(question)
        except Unusable as error:
            if not error.rebuild:
                raise

            self._notice(f"the index {self._path} is made anew from the logs: {error}")

        self._remove()
        return self._ask_once(question)

    def _ask_once(self, question: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            with closing(self._open()) as db:
                self._sync(db)
                return question(db)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise Unusable(str(error), rebuild=code in _REBUILD) from error

    def _open(self) -> sqlite3.Connection:
        _make_private(self._path)
        address = f"file:{quote(os.fsencode(self._path))}?mode=rw"
        db = sqlite3.connect(address, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        with ExitStack() as on_failure:
            on_failure.callback(db.close)
            _prepare(db, self._path)
            on_failure.pop_all()
            return db

    def _remove(self) -> None:
        # The journals first: one that outlives its database would be replayed into the next.
        for suffix in ("-wal", "-shm", "-journal", ""):
            try:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            except OSError as error:
                raise Unusable(f"it cannot be removed: {error.strerror}", rebuild=False) from error


# --- the database -----------------------------------------------------------------------------


def _make_private(path: Path) -> None:
    """Make sure that there is a file of our own that nobody else can read.

    A file that is there is never opened here: closing it would drop SQLite's locks on it.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(path, flags, 0o600))
        except OSError as error:
            raise Unusable(f"it cannot be made: {error.strerror}", rebuild=False) from error
    else:
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Unusable("it is not a file of our own", rebuild=False)


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.create_function("has", 2, _has, deterministic=True)
    owner, version = _owner(db)
    if (owner, version) == (0, 0):
        if not _is_on_shared_file_system(path):
            db.execute("PRAGMA journal_mode = WAL")

        with transaction(db):
            if _owner(db) == (0, 0):
                _create_tables(db)

        owner, version = _owner(db)

    if owner != _APPLICATION_ID:
        raise Unusable("it belongs to another program", rebuild=False)

    if version != _VERSION:
        newer = version > _VERSION
        raise Unusable(f"{'a newer' if newer else 'an older'} version made it", rebuild=not newer)

    db.execute("PRAGMA synchronous = NORMAL")
    # What was redacted in a log must not live on in free pages.
    db.execute("PRAGMA secure_delete = ON")


def _owner(db: sqlite3.Connection) -> tuple[int, int]:
    """Return whose file it is and of which version; zeros for an empty one."""
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return 0, 0

    owner: int = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return owner or -1, version


def _create(db: sqlite3.Connection) -> None:
    db.create_function("has", 2, _has, deterministic=True)
    _create_tables(db)


def _create_tables(db: sqlite3.Connection) -> None:
    for statement in (*SCHEMA, *MESSAGES, *(WORDS if _has_trigrams() else ())):
        db.execute(statement)

    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {_VERSION}")


def sqlite_facts() -> tuple[str, bool]:
    """Return the version of SQLite, and whether it can index every part of a word."""
    return sqlite3.sqlite_version, _has_trigrams()


def _has_trigrams() -> bool:
    with closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute(WORDS[0])
        except sqlite3.OperationalError:
            return False

    return True


def _is_on_shared_file_system(path: Path) -> bool:
    """Tell whether the mount that holds `path` may be seen by other machines. No if unknown."""
    best, kind = "", ""
    with suppress(OSError):  # not Linux: then unknown
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        for line in mounts.split("\n"):
            fields = line.split(" ")
            if len(fields) > 2 and len(fields[1]) >= len(best) and path.is_relative_to(fields[1]):
                best, kind = fields[1], fields[2]

    return kind.startswith(_SHARED_FILE_SYSTEMS)


def _has(text: str, word: str) -> bool:
    return word.casefold() in text.casefold()


def _links(db: sqlite3.Connection) -> list[SessionLink]:
    known = known_sessions(db)
    query = "SELECT child, parent, hash, relation FROM links ORDER BY child, relation"
    links = []
    for child, parent, digest, relation in db.execute(query):
        inherits = relation == "fork" and known[child].summary.inherits
        turns = inherited_tally(known, child).turns if inherits else None
        links.append(SessionLink(child, parent, digest, relation, turns))

    return links
