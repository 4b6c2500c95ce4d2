from __future__ import annotations

from pathlib import Path

from tests.session_store.exchange.sources import (
    PIXEL,
    claude,
    got,
    imported,
    kinds,
    lines,
    one_session,
    result_texts,
    text,
    uid,
    use,
    uuid,
)
from worker.items import (
    AssistantMessage,
    Reasoning,
    SummaryMessage,
    Text,
    ToolResult,
    UserMessage,
)


def test_a_turn_with_a_call_is_taken_over_with_uids_times_and_usage(home: Path) -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7}
    state = one_session(
        home,
        lines(
            claude(1, "user", "Look around"),
            claude(2, "assistant", [use("c1", at="/")], message={"usage": usage}),
            claude(3, "user", [got("c1", [text("three files")])], toolUseResult={"n": 3}),
            claude(4, "assistant", [text("There are three.")], message={"stop_reason": "end_turn"}),
        ),
    )

    question, call, result, answer = state.history
    assert [item.uid for item in state.history] == [uid(1), uid(2), uid(3), uid(4)]
    assert isinstance(question, UserMessage)
    assert question.origin == "user"
    assert isinstance(call, AssistantMessage)
    assert (call.provider, call.model, call.stop_reason) == ("anthropic", "claude-x", "tool_calls")
    assert call.tool_calls[0].arguments == '{"at":"/"}'
    assert isinstance(result, ToolResult)
    assert (result.summary, result.call_uid) == ("three files", call.tool_calls[0].call_uid)
    assert isinstance(answer, AssistantMessage)
    assert answer.stop_reason == "end"
    assert [(u.history_len, u.input_tokens, u.cache_read) for u in state.usage] == [(1, 50, 40)]
    assert (state.title, state.turns, state.last_outcome) == ("Look around", 1, "finished")


def test_each_entry_of_items_says_when_they_were_said(home: Path) -> None:
    store, (one,) = imported(
        home, lines(claude(1, "user", "Hi"), claude(2, "assistant", [text("Hello")]))
    )

    said = [e.data["said_at"] for e in store.entries(one.session_id) if "said_at" in e.data]
    assert said == [1_767_261_601_000, 1_767_261_602_000]


def test_records_of_one_answer_become_one_message(home: Path) -> None:
    same = {"id": "msg_same"}
    state = one_session(
        home,
        lines(
            claude(1, "user", "Do both"),
            claude(
                2,
                "assistant",
                [{"type": "thinking", "thinking": "hm", "signature": "Sig+/=="}],
                message=same,
            ),
            claude(3, "assistant", [text("Both then.")], message=same),
            claude(4, "assistant", [use("c1")], message=same),
            claude(5, "user", [got("c1", "one")]),
            # The second call of the same answer was written after the first one's result.
            claude(6, "assistant", [use("c2")], parent=4, message=same),
            claude(7, "user", [got("c2", "two", is_error=True)]),
            claude(8, "assistant", [text("Done.")]),
        ),
    )

    assert kinds(state.history) == [
        "UserMessage",
        "AssistantMessage",
        *["ToolResult"] * 2,
        "AssistantMessage",
    ]
    answer = state.history[1]
    assert isinstance(answer, AssistantMessage)
    assert answer.parts[0] == Reasoning("hm", "Sig+/==", None, "anthropic", "claude-x")
    assert [call.call_id for call in answer.tool_calls] == ["c1", "c2"]
    assert (answer.uid, answer.absorbed_uids) == (uid(2), (uid(3), uid(4), uid(6)))
    assert [r.is_error for r in state.history if isinstance(r, ToolResult)] == [False, True]


def test_results_of_parallel_calls_are_siblings_and_all_count(home: Path) -> None:
    same = {"id": "msg_same"}
    state = one_session(
        home,
        lines(
            claude(1, "user", "Go"),
            claude(2, "assistant", [use("c1")], message=same),
            claude(3, "assistant", [use("c2")], message=same),
            claude(4, "user", [got("c1", "one")], parent=2),
            claude(5, "user", [got("c2", "two")], parent=3),
            claude(6, "assistant", [text("Done.")]),
        ),
    )

    assert result_texts(state.history) == ["one", "two"]


def test_text_beside_a_result_is_kept_as_what_a_person_said(home: Path) -> None:
    state = one_session(
        home,
        lines(
            claude(1, "user", "Bump it"),
            claude(2, "assistant", [use("c1")]),
            claude(3, "user", [got("c1", "bumped"), text("also bump version")]),
            claude(4, "assistant", [text("Yes.")]),
        ),
    )

    assert kinds(state.history)[2:4] == ["ToolResult", "UserMessage"]
    assert state.history[3].text == "also bump version"  # type: ignore[union-attr]


def test_text_beside_a_result_whose_call_is_gone_is_kept_and_the_result_is_not_sent(
    home: Path,
) -> None:
    store, (one,) = imported(
        home,
        lines(
            claude(1, "user", [got("c1", "bumped"), text("also bump version")]),
            claude(2, "assistant", [text("Yes.")]),
        ),
    )

    state = store.restore(one.session_id)
    assert kinds(state.history) == ["UserMessage", "AssistantMessage"]
    assert state.history[0].text == "also bump version"  # type: ignore[union-attr]
    assert one.tally.kept == {"orphan result": 1}
    assert state.extensions["import"][1]["record"]["content"] == "bumped"


def test_only_the_branch_of_the_newest_message_counts(home: Path) -> None:
    store, (one,) = imported(
        home,
        lines(
            claude(1, "user", "Start"),
            claude(2, "assistant", [text("Started.")]),
            claude(3, "user", "This way"),
            claude(4, "assistant", [text("This way it is.")]),
            claude(5, "user", "No, that way", parent=2),
            claude(6, "assistant", [text("That way it is.")]),
        ),
    )

    said = [item.text for item in store.restore(one.session_id).history]  # type: ignore[union-attr]
    assert said == ["Start", "Started.", "No, that way", "That way it is."]
    assert one.tally.left_out == {"other-branch record": 2}


def test_a_lost_parent_costs_only_itself(home: Path) -> None:
    data = lines(
        claude(1, "user", "Start"),
        claude(2, "assistant", [text("lost")]),
        claude(3, "user", "Go on"),
        claude(4, "assistant", [text("Gone on.")]),
    ).split(b"\n")
    data[1] = data[1][:40]
    store, (one,) = imported(home, b"\n".join(data))

    said = [item.text for item in store.restore(one.session_id).history]  # type: ignore[union-attr]
    assert said == ["Start", "Go on", "Gone on."]
    assert [line for line, _ in one.tally.bad_lines] == [2]


def test_a_compaction_begins_a_session_that_names_the_one_before(home: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": uuid(5),
        "parentUuid": None,
        "logicalParentUuid": uuid(4),
        "sessionId": "s",
        "compactMetadata": {"preservedMessages": {"uuids": [uuid(3), uuid(4)]}},
    }
    store, (one,) = imported(
        home,
        lines(
            claude(1, "user", "A long story"),
            claude(2, "assistant", [text("I see.")]),
            claude(3, "user", "And its end"),
            claude(4, "assistant", [text("Fine.")]),
            boundary,
            claude(6, "user", "What it was about", parent=5, isCompactSummary=True),
            claude(7, "user", "Go on", parent=6),
            claude(8, "assistant", [text("Gone on.")]),
        ),
    )

    (earlier,) = one.earlier
    before, now = store.restore(earlier), store.restore(one.session_id)
    assert [item.uid for item in before.history] == [uid(n) for n in (1, 2, 3, 4)]
    assert [item.uid for item in now.history] == [uid(n) for n in (6, 3, 4, 7, 8)]
    assert now.compacted_from == (earlier, before.head.hash)
    summary = now.history[0]
    assert isinstance(summary, SummaryMessage)
    assert summary.covers is not None
    covers = summary.covers
    assert (covers.first_uid, covers.last_uid, covers.head_hash) == (
        uid(1),
        uid(2),
        before.head.hash,
    )
    assert (now.generation, summary.generation) == (1, 1)
    assert store.lineage(one.session_id) == [(earlier, "root"), (one.session_id, "compact")]


def test_what_the_program_says_is_no_turn(home: Path) -> None:
    store, (one,) = imported(
        home,
        lines(
            claude(1, "user", "Hi"),
            claude(2, "assistant", [text("Hello.")]),
            claude(3, "user", "Stop hook feedback", isMeta=True),
            claude(4, "user", "<local-command-stdout>ok</local-command-stdout>"),
            claude(5, "assistant", [text("sorry")], message={"model": "<synthetic>"}),
            claude(6, "assistant", [text("Still here.")]),
        ),
    )

    assert one.turns == 1
    assert one.tally.kept == {"program notice": 1}
    assert kinds(store.restore(one.session_id).history).count("UserMessage") == 3


def test_what_fits_no_item_is_kept_as_it_is(home: Path) -> None:
    snapshot = {"type": "file-history-snapshot", "snapshot": {"n": 1 << 70}, "deep": "x"}
    hook = {"type": "system", "subtype": "stop_hook_summary", "sessionId": "s"}
    store, (one,) = imported(
        home,
        lines(
            snapshot,
            claude(1, "user", "Hi"),
            claude(2, "assistant", [text("Hello.")]),
            hook,
            claude(9, "user", "aside", parent=None, isSidechain=True),
        ),
    )

    kept = store.restore(one.session_id).extensions["import"]
    assert one.tally.kept == {"file snapshot": 1, "hook record": 1, "sub-agent record": 1}
    assert kept[0]["source"]["format"] == "claude-code"
    assert kept[1] == {
        "what": "file snapshot",
        "line": 1,
        "record": {**snapshot, "snapshot": {"n": str(1 << 70)}},
    }


def test_images_come_along_in_messages_and_results(home: Path) -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
    }
    pdf = {"type": "document", "source": {"type": "base64", "data": "AAAA"}}
    store, (one,) = imported(
        home,
        lines(
            claude(1, "user", [text("See"), image, pdf]),
            claude(2, "assistant", [use("c1")]),
            claude(3, "user", [got("c1", [image])]),
            claude(4, "assistant", [text("A pixel.")]),
        ),
    )

    question, _, result, _ = store.restore(one.session_id).history
    assert isinstance(question, UserMessage)
    assert isinstance(result, ToolResult)
    assert question.parts[1] == result.attachments[0]
    assert question.parts[2] == Text("[document, not carried over]")
    assert one.tally.left_out["document block"] == 1


def test_the_file_of_a_sub_agent_is_a_conversation(home: Path) -> None:
    state = one_session(
        home,
        lines(
            claude(1, "user", "Explore", isSidechain=True),
            claude(2, "assistant", [text("Explored.")], isSidechain=True),
        ),
    )

    assert [item.uid for item in state.history] == [uid(1), uid(2)]
