from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.session_store.exchange.sources import imported, kinds, lines, one_session, result_texts
from worker.items import AssistantMessage, Reasoning, SummaryMessage, SystemNote, UserMessage

META = {
    "type": "session_meta",
    "payload": {"id": "s", "cwd": "/w", "base_instructions": {"text": "Be good."}},
}
TURN = {"type": "turn_context", "payload": {"model": "gpt-x"}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "response_item",
        "timestamp": "2026-01-01T10:00:00Z",
        "payload": {"type": kind, **fields},
    }


def message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **fields}}


def test_items_between_outputs_are_one_answer(home: Path) -> None:
    state = one_session(
        home,
        lines(
            META,
            TURN,
            message("developer", "Mind the rules."),
            message("user", "<environment_context>linux</environment_context>"),
            message("user", "List the files"),
            event("user_message", message="List the files"),
            item(
                "reasoning",
                summary=[{"type": "summary_text", "text": "ls"}],
                encrypted_content="Enc==",
            ),
            item("function_call", name="shell", arguments='{"command":["ls"]}', call_id="c1"),
            item("custom_tool_call", name="patch", input="*** Begin", call_id="c2"),
            item("function_call_output", call_id="c2", output="patched"),
            item(
                "function_call_output", call_id="c1", output={"content": "a.txt", "success": False}
            ),
            event(
                "token_count",
                info={
                    "last_token_usage": {
                        "input_tokens": 70,
                        "cached_input_tokens": 9,
                        "output_tokens": 5,
                    }
                },
            ),
            message("assistant", "One file."),
        ),
    )

    assert state.system_prompt == "Be good."
    note, context, question, answer, listed, patched, last = state.history
    assert isinstance(note, SystemNote)
    assert isinstance(context, UserMessage)
    assert isinstance(question, UserMessage)
    assert (note.kind, context.origin, question.origin) == ("developer", "injected", "user")
    assert isinstance(answer, AssistantMessage)
    assert answer.parts[0] == Reasoning("ls", None, "Enc==", "openai_responses", "gpt-x")
    assert [call.name for call in answer.tool_calls] == ["shell", "patch"]
    assert result_texts(state.history) == ["a.txt", "patched"], "in the order of the calls"
    assert (listed.is_error, patched.is_error) == (True, False)  # type: ignore[union-attr]
    assert last.text == "One file."  # type: ignore[union-attr]
    assert [(u.history_len, u.input_tokens, u.cache_read) for u in state.usage] == [(3, 70, 9)]


def test_what_replaced_the_history_begins_a_session(home: Path) -> None:
    def plain(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    replaced = [plain("user", "First"), plain("user", "Before you: it went well")]
    store, (one,) = imported(
        home,
        lines(
            META,
            message("user", "First"),
            message("assistant", "Done."),
            {
                "type": "compacted",
                "payload": {"message": "it went well", "replacement_history": replaced},
            },
            message("user", "Second"),
            message("assistant", "Done too."),
        ),
    )

    before, now = store.restore(one.earlier[0]), store.restore(one.session_id)
    assert kinds(now.history) == [
        "UserMessage",
        "SummaryMessage",
        "UserMessage",
        "AssistantMessage",
    ]
    assert now.history[0] == before.history[0], "it is the same message, uid and all"
    assert isinstance(now.history[1], SummaryMessage)


def test_a_compaction_without_a_replacement_keeps_what_people_said(home: Path) -> None:
    store, (one,) = imported(
        home,
        lines(
            META,
            message("user", "First"),
            message("assistant", "Done."),
            {"type": "compacted", "payload": {"message": "it went well"}},
            message("user", "Second"),
            message("assistant", "Done too."),
        ),
    )

    history = store.restore(one.session_id).history
    assert [i.text for i in history] == ["First", "it went well", "Second", "Done too."]  # type: ignore[union-attr]


def test_a_summary_that_only_its_provider_can_read_leaves_the_history_whole(home: Path) -> None:
    sealed = [{"type": "compaction", "encrypted_content": "Enc=="}]
    _, (one,) = imported(
        home,
        lines(
            META,
            message("user", "First"),
            message("assistant", "Done."),
            {"type": "compacted", "payload": {"message": "", "replacement_history": sealed}},
            message("user", "Second"),
            message("assistant", "Done too."),
        ),
    )

    assert (one.earlier, len(one.items)) == ((), 4)
    assert one.tally.kept == {"compaction": 1}
    assert any("whole" in note for note in one.tally.notes)


def test_turns_that_were_taken_back_are_gone(home: Path) -> None:
    _, (one,) = imported(
        home,
        lines(
            META,
            message("user", "First"),
            message("assistant", "Done."),
            message("user", "Oops"),
            message("assistant", "Oops indeed."),
            event("thread_rolled_back", num_turns=1),
            message("user", "Second"),
            message("assistant", "Done too."),
        ),
    )

    assert [i.text for i in one.items] == ["First", "Done.", "Second", "Done too."]  # type: ignore[union-attr]
    assert one.tally.left_out == {"taken-back item": 2}


def test_rollouts_of_early_versions_have_items_without_an_envelope(home: Path) -> None:
    state = one_session(
        home,
        lines(
            {"id": "s", "timestamp": "2025-01-01T10:00:00Z", "instructions": "Be good.", "git": {}},
            {"record_type": "state"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello."}],
            },
        ),
    )

    assert (state.system_prompt, kinds(state.history)) == (
        "Be good.",
        ["UserMessage", "AssistantMessage"],
    )
