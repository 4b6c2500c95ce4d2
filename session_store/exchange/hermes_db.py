"""The `state.db` of Hermes: a database of sessions, each of which is a conversation.

It is read and never written. Only what is active counts; what was compacted away or taken back
there is counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from worker.text import clean_text

from .blocks import number, string
from .chat import Messages
from .draft import Conversation, Draft
from .errors import NotImportable
from .jsontext import JsonObject, Malformed, parse
from .tally import Tally

NAME = "hermes-db"
MAGIC = b"SQLite format 3\0"
_JSON_MARKS = ("\x00json:", "\x01json:")
_SOURCE = (
    "id",
    "source",
    "model",
    "parent_session_id",
    "started_at",
    "ended_at",
    "end_reason",
    "cwd",
)


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the sessions of the database that hold any message, oldest first.

    Raises:
        NotImportable: It cannot be read, or has not the tables of Hermes.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            db.row_factory = sqlite3.Row
            # Whatever is in a text column, it must not end the reading.
            db.text_factory = lambda data: data.decode("utf-8", "replace")
            for session in db.execute("SELECT * FROM sessions ORDER BY rowid"):
                yield from _conversation(db, _row(session), tally)
    except sqlite3.Error as error:
        raise NotImportable(f"{path.name} cannot be read as a Hermes database: {error}") from error


def _conversation(
    db: sqlite3.Connection, session: JsonObject, tally: Tally
) -> Iterator[Conversation]:
    draft = Draft(NAME, tally)
    conversation = draft.conversation
    conversation.title = string(session.get("title"))
    conversation.system_prompt = _system_prompt(db, session)
    conversation.source |= {key: session[key] for key in _SOURCE if session.get(key) is not None}
    messages = Messages(draft, string(session.get("model")))
    query = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
    for row in db.execute(query, (session.get("id"),)):
        message = _row(row)
        if message.get("active") == 0:
            tally.left_out["inactive message"] += 1
            continue

        tally.records += 1
        content = string(message.get("content"))
        if content.startswith(_JSON_MARKS):
            message["content"] = _blocks(content)

        messages.take(number(message.get("id")), message)

    if not draft.is_empty:
        yield draft.finished()


def _system_prompt(db: sqlite3.Connection, session: JsonObject) -> str:
    digest = session.get("system_prompt_hash")
    if not digest:
        return string(session.get("system_prompt"))

    row = db.execute("SELECT content FROM system_prompts WHERE hash = ?", (digest,)).fetchone()
    return "" if row is None else clean_text(string(row[0]))


def _blocks(content: str) -> object:
    try:
        return parse(content.partition(":")[2])
    except Malformed:
        return content[1:]


def _row(row: sqlite3.Row) -> JsonObject:
    return {
        key: clean_text(value) if isinstance(value, str) else value
        for key, value in zip(row.keys(), tuple(row), strict=True)
    }
