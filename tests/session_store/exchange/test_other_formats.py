from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from session_store.exchange import NotImportable, import_file
from tests.session_store.builders import a_store
from tests.session_store.exchange.sources import (
    imported,
    is_sound,
    kinds,
    lines,
    one_session,
    put,
    result_texts,
)
from worker.items import AssistantMessage, Reasoning, SummaryMessage, ToolResult

# --- Hermes trajectories ------------------------------------------------------------------------

CALLS = """<think>
two at once
</think>
Looking.
<tool_call>
{"name": "look", "arguments": {"at": "a"}}
</tool_call>
<tool_call>
{"name": "find", "arguments": {"what": "b"}}
</tool_call>"""
RESPONSES = """<tool_response>
{"tool_call_id": "call_2", "name": "find", "content": {"found": 1}}
</tool_response>
<tool_response>
{"tool_call_id": "call_1", "name": "look", "content": "seen"}
</tool_response>"""


def turns(*said: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": who, "value": what} for who, what in said]


TRAJECTORY = turns(
    ("system", "You may call."),
    ("human", "Go"),
    ("gpt", CALLS),
    ("tool", RESPONSES),
    ("gpt", "Done."),
)


def test_calls_thoughts_and_results_are_found_in_the_text(home: Path) -> None:
    state = one_session(home, lines({"conversations": TRAJECTORY, "model": "k", "completed": True}))

    answer = state.history[1]
    assert state.system_prompt == "You may call."
    assert isinstance(answer, AssistantMessage)
    assert answer.parts[0] == Reasoning("two at once")
    assert answer.text.strip() == "Looking."
    assert [(c.name, c.arguments) for c in answer.tool_calls] == [
        ("look", '{"at":"a"}'),
        ("find", '{"what":"b"}'),
    ]
    assert result_texts(state.history) == ["seen", '{"found":1}'], "paired by the tool's name"
    assert answer.model == "k", "though it is named after the turns"
    assert state.extensions["import"][0]["source"]["model"] == "k"


def test_text_that_only_looks_like_a_call_stays_text(home: Path) -> None:
    said = "Write <tool_call>not json</tool_call> for a call."
    state = one_session(
        home, json.dumps(turns(("human", "How?"), ("gpt", said)), indent=1).encode()
    )

    assert state.history[1].text == said  # type: ignore[union-attr]


def test_each_record_is_a_session(home: Path) -> None:
    record = {"conversations": TRAJECTORY}
    for data in (lines(record, record), json.dumps([record, record], indent=1).encode()):
        _, found = imported(home, data)
        assert [len(one.items) for one in found] == [5, 5]


def test_a_document_that_breaks_off_is_taken_as_far_as_it_goes(home: Path) -> None:
    data = json.dumps({"conversations": TRAJECTORY}, indent=1).encode()
    _, (one,) = imported(home, data[: data.rindex(b"Done.") - 40])

    assert kinds(list(one.items))[:2] == ["UserMessage", "AssistantMessage"]
    assert one.tally.bad_line_count == 1


def test_a_bad_record_costs_no_other(home: Path) -> None:
    good = lines({"conversations": TRAJECTORY})
    _, found = imported(home, good + good[:70] + b"\n" + good)

    assert [len(one.items) for one in found] == [5, 5]
    assert [line for line, _ in found[0].tally.bad_lines] == [2]


# --- SWE-agent ----------------------------------------------------------------------------------


def step(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", **more}


def test_the_history_of_a_trajectory_is_taken_and_its_steps_are_not(home: Path) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]
    history = [
        step("system", "SETTING"),
        step("user", "Fix it"),
        step("assistant", "ls first", tool_calls=calls, action="ls", thought="ls first"),
        step("tool", "a.txt\r\nb.txt\r\n" * 30, tool_call_ids=["c"]),
    ]
    document = {
        "environment": "swe",
        "trajectory": [{"action": "ls", "messages": history}] * 3,
        "history": history,
        "info": {"exit_status": "submitted"},
    }
    store, (one,) = imported(home, json.dumps(document, indent=2).encode())

    state = store.restore(one.session_id)
    result = state.history[2]
    assert (state.system_prompt, kinds(state.history)[:2]) == (
        "SETTING",
        ["UserMessage", "AssistantMessage"],
    )
    assert isinstance(result, ToolResult)
    assert result.content == "a.txt\r\nb.txt\r\n" * 30
    assert result.summary == "a.txt (60 lines, 420 bytes)"
    assert one.tally.left_out == {"repeated trajectory step": 3}
    assert (state.interrupted, state.last_outcome) == (True, "cancelled")


# --- Hermes state.db ----------------------------------------------------------------------------

SCHEMA = """
CREATE TABLE sessions(id TEXT PRIMARY KEY, source TEXT, model TEXT, title TEXT, system_prompt TEXT,
    system_prompt_hash TEXT, started_at REAL, parent_session_id TEXT);
CREATE TABLE system_prompts(hash TEXT PRIMARY KEY, content TEXT);
CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL, finish_reason TEXT,
    reasoning TEXT, reasoning_details TEXT, codex_reasoning_items TEXT, active INTEGER DEFAULT 1,
    _compressed_summary INTEGER DEFAULT 0, message_uid TEXT, absorbed_message_uids TEXT,
    tool_call_uids TEXT, tool_call_uid TEXT);
"""


def database(path: Path, messages: list[dict[str, Any]], **session: Any) -> Path:
    row = {"id": "h1", "source": "cli", "model": "k", "started_at": 1.0, **session}
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA)
        db.execute("INSERT INTO system_prompts VALUES ('p', 'You are Hermes.')")
        insert(db, "sessions", row)
        insert(db, "sessions", {"id": "empty"})
        for number, message in enumerate(messages, 1):
            insert(
                db,
                "messages",
                {"id": number, "session_id": "h1", "timestamp": 2.5 + number, **message},
            )

    return path


def insert(db: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table}({', '.join(row)}) VALUES ({marks})", tuple(row.values()))  # noqa: S608


def test_a_session_of_the_database_is_taken_over_with_its_identities(
    home: Path, tmp_path: Path
) -> None:
    parts = "\x00json:" + json.dumps(
        [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]
    )
    calls = json.dumps(
        [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    )
    items = json.dumps([{"type": "reasoning", "encrypted_content": "Enc==", "summary": []}])
    path = database(
        tmp_path / "state.db",
        [
            {"role": "user", "content": "gone", "active": 0},
            {
                "role": "user",
                "content": "What was before",
                "_compressed_summary": 1,
                "message_uid": "a" * 32,
            },
            {
                "role": "user",
                "content": parts,
                "message_uid": "b" * 32,
                "absorbed_message_uids": json.dumps(["c" * 32]),
            },
            {
                "role": "assistant",
                "tool_calls": calls,
                "tool_call_uids": json.dumps({"c": "d" * 32}),
                "codex_reasoning_items": items,
                "finish_reason": "tool_calls",
            },
            {"role": "tool", "content": "seen", "tool_call_id": "c", "tool_name": "look"},
            {"role": "assistant", "content": "Seen.", "reasoning": "hm", "finish_reason": "stop"},
        ],
        system_prompt_hash="p",
        title="Looking",
    )
    before = path.read_bytes()
    store = a_store(home)
    (one,) = import_file(store, path)

    is_sound(store, one.session_id)
    assert path.read_bytes() == before
    state = store.restore(one.session_id)
    summary, user, answer, result, last = state.history
    assert isinstance(summary, SummaryMessage)
    assert (state.system_prompt, state.title) == ("You are Hermes.", "Looking")
    assert (user.uid, user.absorbed_uids, len(user.parts)) == ("b" * 32, ("c" * 32,), 2)  # type: ignore[union-attr]
    assert answer.parts[0] == Reasoning("", None, "Enc==", "openai_responses", "k")  # type: ignore[union-attr]
    assert result.call_uid == "d" * 32  # type: ignore[union-attr]
    assert last.parts[0] == Reasoning("hm", model="k")  # type: ignore[union-attr]
    assert one.tally.left_out == {"inactive message": 1}


def test_a_database_of_something_else_is_refused(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t(a)")

    with pytest.raises(NotImportable, match="no such table"):
        import_file(a_store(home), path)

    broken = put(tmp_path, b"SQLite format 3\0" + b"\xff" * 5_000)
    with pytest.raises(NotImportable, match="cannot be read"):
        import_file(a_store(home), broken)


def test_a_database_that_was_made_before_uids_is_read_too(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            "CREATE TABLE sessions(id TEXT, system_prompt TEXT);"
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT,"
            " role TEXT, content TEXT);"
            "INSERT INTO sessions VALUES ('s', 'Old.');"
            "INSERT INTO messages(session_id, role, content) VALUES ('s', 'user', 'Hi');"
        )

    (one,) = import_file(a_store(home), path)
    assert len(one.items[0].uid) == 32
