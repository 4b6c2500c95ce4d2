"""Small sessions in the formats of other agents, in words of our own, and what checks an import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from session_store import FileSessionStore, SessionState
from session_store.exchange import Imported, import_file
from session_store.history import check_history
from tests.session_store.builders import a_store
from worker.items import Item, ToolResult
from worker.llm.schemes.chat.scheme import OpenAiChatScheme
from worker.llm.types import LlmRequest
from worker.projection import Projector

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def put(folder: Path, data: bytes, name: str = "a-file") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def imported(home: Path, data: bytes, **options: Any) -> tuple[FileSessionStore, list[Imported]]:
    """Import the bytes, and hold all that came of it to what holds for every import."""
    store = a_store(home)
    path = put(home.parent, data)
    found = import_file(store, path, **options)
    assert path.read_bytes() == data, "the source is not changed"
    for one in found:
        for session_id in (*one.earlier, one.session_id):
            is_sound(store, session_id)

    return store, found


def one_session(home: Path, data: bytes, **options: Any) -> SessionState:
    store, (one,) = imported(home, data, **options)
    return store.restore(one.session_id)


def is_sound(store: FileSessionStore, session_id: str) -> None:
    """The log verifies, its history is one, a fork at its head is there, and a request is valid."""
    assert store.verify(session_id).ok
    state = store.restore(session_id)
    check_history(state.history)
    assert not store.fork_point(session_id).moved
    is_valid_chat(chat_request(state.system_prompt, state.history))


def chat_request(system_prompt: str, history: list[Item]) -> list[dict[str, Any]]:
    items = Projector().project(history)
    body = OpenAiChatScheme().encode(LlmRequest(system_prompt, items), "m")
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return messages


def is_valid_chat(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue

        assert not waiting, "every call is answered before anything else is said"
        assert message.get("content") or message.get("tool_calls"), "nothing is empty"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert len(waiting) == len(set(waiting))

    assert not waiting


def kinds(items: list[Item]) -> list[str]:
    return [type(item).__name__ for item in items]


def result_texts(items: list[Item]) -> list[str]:
    return [item.summary for item in items if isinstance(item, ToolResult)]


# --- Claude Code --------------------------------------------------------------------------------


def claude(
    number: int, kind: str, content: Any, parent: int | None = -1, **more: Any
) -> dict[str, Any]:
    """A record whose uuid says its number, and whose parent is the one before."""
    above = number - 1 if parent == -1 else parent
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": f"msg_{number}", "model": "claude-x", **more.pop("message", {})}

    return {
        "type": kind,
        "uuid": uuid(number),
        "parentUuid": None if not above else uuid(above),
        "sessionId": "s",
        "timestamp": f"2026-01-01T10:00:{number:02}.000Z",
        "isSidechain": False,
        "message": message,
        **more,
    }


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def uid(number: int) -> str:
    return uuid(number).replace("-", "")


def use(call_id: str, name: str = "look", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def got(call_id: str, content: Any = "seen", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}
