"""What the tests of the store are made with: a ticking clock, short stories, an audit, a count."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from session_store import FileSessionStore, Session
from worker.items import (
    AssistantMessage,
    Item,
    Text,
    ToolCall,
    ToolResult,
    new_uid,
    user_message,
)

NOON_MS = 1_796_058_210_123


def ticking(start: int = NOON_MS) -> Callable[[], int]:
    """A clock that goes on by one millisecond each time it is read."""
    return itertools.count(start).__next__


def a_store(home: Path, **options: Any) -> FileSessionStore:
    return FileSessionStore(home, clock=options.pop("clock", ticking()), **options)


def begun(store: FileSessionStore, **changes: Any) -> Session:
    given = {"pod": "probe", "system_prompt": "Be brief.", "config": {"model": "m"}, **changes}
    return store.create(**given)


def answer(text: str, *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(new_uid(), (Text(text), *calls), "fake", "m", "end_turn")


def a_call(name: str = "look") -> ToolCall:
    return ToolCall("call_1", name, '{"at": "it"}', new_uid())


def result_of(call: ToolCall, content: str | None = "detail") -> ToolResult:
    return ToolResult(new_uid(), call.call_id, call.call_uid, "looked", content, is_error=False)


def a_turn(session: Session, number: int) -> None:
    """One run: a question, a tool call, its result, an answer; nine entries with one write each."""
    call = a_call()
    session.append_items("user_input", [user_message(f"question {number}")])
    session.append_items("assistant_items", [answer(f"let me see {number}", call)])
    session.append("usage", history_len=2, input_tokens=100 + number, output_tokens=5, model="m")
    session.append_items("tool_results", [result_of(call, f"detail {number}")])
    session.append_items("assistant_items", [answer(f"answer {number}")])
    session.append("usage", history_len=4, input_tokens=120 + number, output_tokens=5, model="m")
    session.append("turn_end", turn=number)
    session.append("run_outcome", outcome="finished", interrupted=False)


def told(store: FileSessionStore, turns: int = 3, **changes: Any) -> str:
    """A closed session of so many turns; its id."""
    with begun(store, **changes) as session:
        for number in range(1, turns + 1):
            a_turn(session, number)

        return session.session_id


def texts(items: list[Item]) -> list[str]:
    return [item.summary if isinstance(item, ToolResult) else item.text for item in items]


def audit(path: Path) -> list[dict[str, Any]]:
    """Read a log and check its chain with nothing but hashlib and json."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    entries, prev = [], "0" * 64
    for seq, line in enumerate(data[:-1].split(b"\n")):
        entry = json.loads(line)
        assert line.startswith(b'{"hash":"' + entry["hash"].encode() + b'",')
        assert hashlib.sha256(line[75:]).hexdigest() == entry["hash"]
        assert (entry["seq"], entry["prev"]) == (seq, prev)
        prev = entry["hash"]
        entries.append(entry)

    return entries


def lines_of(store: FileSessionStore, session_id: str) -> list[bytes]:
    """The lines of a log, without their newlines."""
    return store.layout.log(session_id).read_bytes()[:-1].split(b"\n")


def put_lines(store: FileSessionStore, session_id: str, lines: list[bytes]) -> None:
    store.layout.log(session_id).write_bytes(b"".join(line + b"\n" for line in lines))


def calls_in(what: Callable[[], object]) -> int:
    """How many functions `what` calls, Python's and C's: its work, however busy the machine is."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # else a collection, and what it finalises, is counted where it happens to come
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        what()
    finally:
        sys.setprofile(before)
        gc.enable()

    return count


def bytes_read() -> int:
    """How many bytes this process has asked the system for, so far."""
    words = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(words[words.index("rchar:") + 1])
