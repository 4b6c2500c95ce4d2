"""The index's messages: what identifies each, which words it holds, and how that is asked for.

One row is one item of one session's own log, in the order of its history. What a fork inherits is
in the rows of the session that it inherits from. A uid may be in many rows: it names a message, and
an item that is amended keeps its row. It names no database library, as `index_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import orjson
from attrs import frozen

from .index_rows import Database, Piece, transaction
from .messages import CallUids, Message, snippet

MESSAGES = (
    # The text comes last: who asks for what identifies a message reads none of it. No row is kept
    # from having the uid of another one.
    """CREATE TABLE messages(
        id INTEGER PRIMARY KEY, session_id TEXT, seq INTEGER, ts INTEGER, role TEXT,
        message_uid TEXT, absorbed_message_uids TEXT, tool_call_uids TEXT, tool_call_uid TEXT,
        text TEXT)""",
    "CREATE INDEX idx_messages_session_uid ON messages(session_id, message_uid)",
)
# Trigrams find a part of a word in any script, also where words have no spaces between them.
WORDS = (
    """CREATE VIRTUAL TABLE words USING fts5(
        text, content='messages', content_rowid='id', tokenize='trigram')""",
    """CREATE TRIGGER messages_in AFTER INSERT ON messages BEGIN
        INSERT INTO words(rowid, text) VALUES (new.id, new.text); END""",
    """CREATE TRIGGER messages_out AFTER DELETE ON messages BEGIN
        INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text); END""",
    """CREATE TRIGGER messages_anew AFTER UPDATE OF text ON messages BEGIN
        INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text);
        INSERT INTO words(rowid, text) VALUES (new.id, new.text); END""",
)
_TRIGRAM_CHARS = 3

_Row: TypeAlias = tuple[str, int, int, str, str, str | None, str | None, str | None]


@frozen
class SearchHit:
    """One message that holds all the words."""

    session_id: str
    uid: str
    role: str
    """user, assistant, tool, summary or note."""
    snippet: str
    """The text around the first word, on one line."""


@frozen(kw_only=True)
class IndexedMessage:
    """What identifies one message, as the log has it."""

    session_id: str
    seq: int
    """The entry that holds it, or its newest version."""
    ts: int
    """That entry's time, in milliseconds of Unix time."""
    role: str
    """user, assistant, tool, summary or note."""
    message_uid: str
    absorbed_message_uids: tuple[str, ...] = ()
    """The messages that were merged into it."""
    tool_call_uids: CallUids = None
    """Of an answer with calls: the uid of each call by the provider's id, or, where an id names
    several calls, one for each call in their order."""
    tool_call_uid: str | None = None
    """Of a result: the uid of the call that it answers."""

    def names(self, uid: str) -> bool:
        """Tell whether it is the message `uid`, or absorbed it, made that call, or answers it."""
        calls = self.tool_call_uids or ()
        made = calls.values() if isinstance(calls, dict) else calls
        return (
            uid in (self.message_uid, self.tool_call_uid)
            or uid in self.absorbed_message_uids
            or uid in made
        )


def add_pieces(db: Database, pieces: Iterable[Piece]) -> None:
    """Make all the messages searchable at once."""
    with transaction(db):
        for piece in pieces:
            moved = db.execute(
                "UPDATE sessions SET searchable_to = ? WHERE session_id = ? AND searchable_to = ?",
                (piece.after, piece.session_id, piece.before),
            )
            # Another process may have done the same meanwhile; then its work stands.
            for message in piece.messages if moved.rowcount == 1 else ():
                _add(db, piece.session_id, message)


def messages_in(db: Database, session_id: str) -> list[IndexedMessage]:
    """Return the messages of the session's own log, in the order of its history."""
    return _found(db, "session_id = ? ORDER BY id", [session_id])


def messages_naming(db: Database, uid: str) -> list[IndexedMessage]:
    """Return every message that the uid identifies or is part of, of the oldest session first."""
    # As it stands in a list or an object of JSON. That finds a provider's id of the same text too.
    quoted = _to_json(uid)
    condition = """message_uid = ? OR tool_call_uid = ? OR instr(absorbed_message_uids, ?)
        OR instr(tool_call_uids, ?) ORDER BY session_id, id"""
    found = _found(db, condition, [uid, uid, quoted, quoted])
    return [message for message in found if message.names(uid)]


def hits(db: Database, words: list[str], limit: int) -> list[SearchHit]:
    """Return the messages that hold all the words, of the newest session first, each once."""
    has_trigrams = bool(db.execute("SELECT 1 FROM sqlite_master WHERE name='words'").fetchone())
    long = [word for word in words if len(word) >= _TRIGRAM_CHARS] if has_trigrams else []
    short = [word for word in words if word not in long]
    conditions = ["has(text, ?)"] * len(short)
    if long:
        conditions.append("id IN (SELECT rowid FROM words WHERE words MATCH ?)")

    query = " AND ".join(conditions)
    phrase = " AND ".join('"' + word.replace('"', '""') + '"' for word in long)
    rows = db.execute(
        # The conditions are our own words; what is searched for goes in as parameters.
        "SELECT session_id, message_uid, role, text FROM messages "  # noqa: S608  as said above
        f"WHERE {query} ORDER BY session_id DESC, id DESC",
        [*short, *([phrase] if long else [])],
    )
    return _first_of_each(rows, words, limit)


def _add(db: Database, session_id: str, message: Message) -> None:
    values = (
        message.seq,
        message.ts,
        message.role,
        _to_json(message.absorbed) if message.absorbed else None,
        None if message.call_uids is None else _to_json(message.call_uids),
        message.call_uid,
        message.text,
    )
    if message.amends:
        changed = db.execute(
            # The newest of that uid, as a history has it.
            """UPDATE messages SET seq = ?, ts = ?, role = ?, absorbed_message_uids = ?,
            tool_call_uids = ?, tool_call_uid = ?, text = ? WHERE id =
            (SELECT max(id) FROM messages WHERE session_id = ? AND message_uid = ?)""",
            (*values, session_id, message.uid),
        )
        if changed.rowcount:
            return

    # What a fork amends of its inheritance gets a row of its own.
    db.execute(
        """INSERT INTO messages(seq, ts, role, absorbed_message_uids, tool_call_uids,
        tool_call_uid, text, session_id, message_uid) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (*values, session_id, message.uid),
    )


def _found(db: Database, condition: str, parameters: Sequence[object]) -> list[IndexedMessage]:
    query = f"""SELECT session_id, seq, ts, role, message_uid, absorbed_message_uids,
        tool_call_uids, tool_call_uid FROM messages WHERE {condition}"""  # noqa: S608  our own words
    return list(map(_message, db.execute(query, parameters)))


def _message(row: _Row) -> IndexedMessage:
    session_id, seq, ts, role, uid, absorbed, call_uids, call_uid = row
    return IndexedMessage(
        session_id=session_id,
        seq=seq,
        ts=ts,
        role=role,
        message_uid=uid,
        absorbed_message_uids=tuple(orjson.loads(absorbed)) if absorbed else (),
        tool_call_uids=orjson.loads(call_uids) if call_uids else None,
        tool_call_uid=call_uid,
    )


def _first_of_each(
    rows: Iterable[tuple[str, str, str, str]], words: list[str], limit: int
) -> list[SearchHit]:
    found: dict[str, SearchHit] = {}
    for session_id, uid, role, text in rows:
        if len(found) >= limit:
            break

        if uid not in found:
            found[uid] = SearchHit(session_id, uid, role, snippet(text, words))

    return list(found.values())


def _to_json(value: object) -> str:
    return orjson.dumps(value).decode()
