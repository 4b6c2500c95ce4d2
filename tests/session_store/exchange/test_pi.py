from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.session_store.exchange.sources import imported, kinds, lines, one_session, result_texts
from worker.items import AssistantMessage, Reasoning, SummaryMessage, ToolResult

HEAD = {
    "type": "session",
    "version": 3,
    "id": "x",
    "cwd": "/work",
    "timestamp": "2026-01-01T10:00:00Z",
}


def entry(
    number: int, message: dict[str, Any] | None = None, parent: int | None = -1, **more: Any
) -> dict[str, Any]:
    above = number - 1 if parent == -1 else parent
    return {
        "type": "message" if message else more.pop("type"),
        "id": f"{number:08x}",
        "parentId": f"{above:08x}" if above else None,
        "timestamp": f"2026-01-01T10:00:{number:02}.000Z",
        **({"message": message} if message else {}),
        **more,
    }


def user(said: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": said}]}


def answer(*content: dict[str, Any], stop: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": list(content),
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "claude-x",
        "stopReason": stop,
        **more,
    }


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": "a"}}


def result(call_id: str, text: str = "seen") -> dict[str, Any]:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": "read",
        "isError": False,
        "content": [said(text)],
    }


def test_a_session_is_taken_over_with_usage_and_cost(home: Path) -> None:
    usage = {"input": 3, "output": 9, "cacheRead": 40, "cacheWrite": 7, "cost": {"total": 0.25}}
    state = one_session(
        home,
        lines(
            HEAD,
            entry(1, user("Read it")),
            entry(2, answer(call("c1"), stop="toolUse", usage=usage)),
            entry(3, result("c1")),
            entry(
                4,
                answer(
                    {"type": "thinking", "thinking": "hm", "thinkingSignature": "S="}, said("Read.")
                ),
            ),
        ),
    )

    assert kinds(state.history) == [
        "UserMessage",
        "AssistantMessage",
        "ToolResult",
        "AssistantMessage",
    ]
    assert state.history[3].parts[0] == Reasoning("hm", "S=", None, "anthropic", "claude-x")  # type: ignore[union-attr]
    (measured,) = state.usage
    assert (measured.history_len, measured.input_tokens, measured.cost) == (1, 50, 0.25)
    assert state.totals.output_tokens == 9


def test_empty_answers_are_kept_out_and_calls_that_were_cut_off_have_one_error_result(
    home: Path,
) -> None:
    store, (one,) = imported(
        home,
        lines(
            HEAD,
            entry(1, user("Read both")),
            entry(2, answer(stop="aborted")),
            entry(3, user("Well?")),
            entry(4, answer(call("c1"), call("c2"), stop="error")),
            entry(5, result("c2")),
            entry(6, user("Again")),
            entry(7, answer(said("Sorr"), stop="aborted")),
        ),
    )

    state = store.restore(one.session_id)
    assert one.tally.left_out == {"empty answer": 1}
    assert (one.calls, one.unanswered) == (2, 1)
    results = [item for item in state.history if isinstance(item, ToolResult)]
    assert [(r.call_id, r.is_error) for r in results] == [("c1", True), ("c2", False)]
    assert results[0].summary.startswith("interrupted")
    assert state.last_outcome == "cancelled"
    outcomes = [e.data["outcome"] for e in store.entries(one.session_id) if e.kind == "run_outcome"]
    assert outcomes == ["cancelled"] * 3


def test_sessions_without_ids_are_a_plain_list(home: Path) -> None:
    records = [entry(n, message) for n, message in enumerate([user("Hi"), answer(said("Hello."))])]
    state = one_session(
        home, lines(HEAD, *({k: v for k, v in r.items() if "d" not in k[-2:]} for r in records))
    )

    assert kinds(state.history) == ["UserMessage", "AssistantMessage"]


def test_only_the_path_to_the_last_entry_counts(home: Path) -> None:
    store, (one,) = imported(
        home,
        lines(
            HEAD,
            entry(1, user("Start")),
            entry(2, answer(said("Started."))),
            entry(3, user("This way")),
            entry(4, type="branch_summary", parent=2, summary="This way was tried", fromId="3"),
            entry(5, user("That way")),
            entry(6, answer(said("That way."))),
        ),
    )

    history = store.restore(one.session_id).history
    assert kinds(history) == [
        "UserMessage",
        "AssistantMessage",
        "SystemNote",
        "UserMessage",
        "AssistantMessage",
    ]
    assert one.tally.left_out == {"other-branch entry": 1}


def test_a_compaction_keeps_what_pi_would_have_sent(home: Path) -> None:
    store, (one,) = imported(
        home,
        lines(
            HEAD,
            entry(1, user("Old")),
            entry(2, answer(said("Old answer."))),
            entry(3, user("Kept")),
            entry(4, answer(call("c1"))),
            entry(5, result("c1", "kept result")),
            entry(
                6,
                type="compaction",
                summary="Old things",
                firstKeptEntryId=f"{3:08x}",
                tokensBefore=99,
            ),
            entry(7, answer(said("Kept answer."))),
            entry(8, type="compaction", summary="Older things", firstKeptEntryId=f"{7:08x}"),
            entry(9, user("New")),
            entry(10, answer(said("New answer."))),
        ),
    )

    first, second = map(store.restore, one.earlier)
    now = store.restore(one.session_id)
    assert kinds(first.history) == ["UserMessage", "AssistantMessage"] * 2 + ["ToolResult"]
    assert kinds(second.history) == [
        "SummaryMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolResult",
        "AssistantMessage",
    ]
    assert second.history[1:4] == first.history[2:5], "what was kept is the same, uids and all"
    assert kinds(now.history) == [
        "SummaryMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
    ]
    summary = now.history[0]
    assert isinstance(summary, SummaryMessage)
    assert (summary.text, summary.generation) == ("Older things", 2)
    entries = list(store.entries(one.earlier[1]))
    assert entries[1].data["tokens_before"] == 99


def test_a_signature_that_is_a_whole_item_gives_its_proof(home: Path) -> None:
    proof = json.dumps({"id": "rs_1", "encrypted_content": "Enc=="})
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": proof}
    state = one_session(
        home,
        lines(
            HEAD,
            entry(1, user("Hi")),
            entry(2, answer(thought, said("Hello."), api="openai-responses")),
        ),
    )

    answered = state.history[1]
    assert isinstance(answered, AssistantMessage)
    assert answered.provider == "openai_responses"
    assert answered.parts[0] == Reasoning("hm", "rs_1", "Enc==", "openai_responses", "claude-x")


def test_commands_a_person_ran_are_shown_to_the_model_unless_left_out(home: Path) -> None:
    ran = {"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 1}
    store, (one,) = imported(
        home,
        lines(
            HEAD,
            entry(1, ran),
            entry(2, {**ran, "excludeFromContext": True}),
            entry(3, user("Well?")),
            entry(4, answer(said("One file."))),
            entry(5, type="session_info", name="Files"),
        ),
    )

    history = store.restore(one.session_id).history
    assert history[0].text == "Ran `ls`\n```\na.txt\n```\n\nExit code: 1"  # type: ignore[union-attr]
    assert (one.turns, one.title, result_texts(history)) == (1, "Files", [])
    assert one.tally.kept == {"bashExecution message": 1}
