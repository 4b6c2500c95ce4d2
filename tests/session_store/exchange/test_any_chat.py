"""Whatever was said in whatever order, what is imported is a history that every provider takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from session_store.exchange import NotImportable
from tests.session_store.exchange.sources import claude, got, imported, lines, use
from worker.items import ToolResult, new_uid

# A chat told in no format: (who, text), (calls, ids), (result, id, text).
IDS = st.sampled_from(["c1", "c2", ""])
WORDS = st.sampled_from(["", " ", "hello", "done", "\ud800x", "x" * 300])
CHATS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), WORDS),
        st.tuples(st.just("answer"), WORDS, st.lists(IDS, max_size=3)),
        st.tuples(st.just("result"), IDS, WORDS),
        st.tuples(st.just("both"), IDS, WORDS),
    ),
    max_size=12,
)
Told = tuple[Any, ...]


def as_openai(chat: list[Told]) -> bytes:
    def message(told: Told) -> dict[str, Any]:
        match told:
            case ("user", said):
                return {"role": "user", "content": said}
            case ("answer", said, ids):
                calls = [
                    {"id": i, "function": {"name": "a", "arguments": f'{{"n":{n}}}'}}
                    for n, i in enumerate(ids)
                ]
                return {"role": "assistant", "content": said, "tool_calls": calls}
            case ("result", call_id, said):
                return {"role": "tool", "tool_call_id": call_id, "content": said}
            case (_, call_id, said):
                return {
                    "role": "user",
                    "content": [got(call_id, said), {"type": "text", "text": said}],
                }

    return lines(*map(message, chat))


def as_claude(chat: list[Told]) -> bytes:
    def record(number: int, told: Told) -> dict[str, Any]:
        match told:
            case ("user", said):
                return claude(number, "user", said)
            case ("answer", said, ids):
                content = [
                    {"type": "text", "text": said},
                    *(use(i, "a", n=n) for n, i in enumerate(ids)),
                ]
                return claude(number, "assistant", content)
            case ("result", call_id, said):
                return claude(number, "user", [got(call_id, said)])
            case (_, call_id, said):
                return claude(number, "user", [got(call_id, said), {"type": "text", "text": said}])

    return lines(*(record(number, told) for number, told in enumerate(chat, 1)))


def as_pi(chat: list[Told]) -> bytes:
    def messages(told: Told) -> list[dict[str, Any]]:
        match told:
            case ("user", said):
                return [{"role": "user", "content": said}]
            case ("answer", said, ids):
                calls = [
                    {"type": "toolCall", "id": i, "name": "a", "arguments": {"n": n}}
                    for n, i in enumerate(ids)
                ]
                return [
                    {
                        "role": "assistant",
                        "content": [{"type": "text", "text": said}, *calls],
                        "provider": "anthropic",
                    }
                ]
            case (_, call_id, said):
                result = {"role": "toolResult", "toolCallId": call_id, "content": said}
                return (
                    [result] if told[0] == "result" else [result, {"role": "user", "content": said}]
                )

    flat = [message for told in chat for message in messages(told)]
    return lines(
        {"type": "session", "id": "s", "cwd": "/"},
        *({"type": "message", "message": m} for m in flat),
    )


def as_codex(chat: list[Told]) -> bytes:
    def items(told: Told) -> list[dict[str, Any]]:
        match told:
            case ("user", said):
                return [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [{"type": "input_text", "text": said}],
                    }
                ]
            case ("answer", said, ids):
                message = {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": said}],
                }
                return [
                    message,
                    *(
                        {"type": "function_call", "name": "a", "arguments": f"[{n}]", "call_id": i}
                        for n, i in enumerate(ids)
                    ),
                ]
            case (_, call_id, said):
                return [{"type": "function_call_output", "call_id": call_id, "output": said}]

    flat = [item for told in chat for item in items(told)]
    return lines(
        {"type": "session_meta", "payload": {"id": "s"}},
        *({"type": "response_item", "payload": i} for i in flat),
    )


def as_trajectory(chat: list[Told]) -> bytes:
    def turn(told: Told) -> dict[str, str]:
        match told:
            case ("user", said):
                return {"from": "human", "value": said}
            case ("answer", said, ids):
                calls = "".join(
                    f'<tool_call>\n{{"name": "a", "arguments": {{"n": {n}}}}}\n</tool_call>'
                    for n, _ in enumerate(ids)
                )
                return {"from": "gpt", "value": f"<think>\n{said}\n</think>\n{said}{calls}"}
            case (_, _, said):
                return {"from": "tool", "value": f"<tool_response>\n{said}\n</tool_response>"}

    return lines({"conversations": list(map(turn, chat))})


@pytest.mark.parametrize("write", [as_openai, as_claude, as_pi, as_codex, as_trajectory])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chat=CHATS)
def test_any_chat_becomes_a_valid_history(tmp_path: Path, write: Any, chat: list[Told]) -> None:
    home = tmp_path / new_uid() / "home"
    home.parent.mkdir()
    try:
        _, found = imported(home, write(chat))
    except NotImportable:
        return

    for one in found:
        results = [item for item in one.items if isinstance(item, ToolResult)]
        assert len(results) == one.calls
        assert one.unanswered <= one.calls
        said = sum(told[0] in {"result", "both"} for told in chat)
        assert one.calls - one.unanswered + one.tally.kept["orphan result"] <= said
