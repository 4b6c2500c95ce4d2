"""Our own export, read back: the same session under a new id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from session_store import FileSessionStore, SessionState
from session_store.exchange import UnknownFormat, export_session, import_file
from tests.session_store.builders import a_call, a_store, answer, begun, result_of, told
from tests.session_store.exchange.sources import chat_request, is_valid_chat, put
from tests.worker.histories import histories
from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    new_uid,
)
from worker.projection import repair


def again(store: FileSessionStore, session_id: str, folder: Path) -> SessionState:
    """The session, exported and imported into the same store."""
    path = put(folder, b"".join(export_session(store, session_id)), "export.jsonl")
    (one,) = import_file(store, path)
    assert store.verify(one.session_id).ok
    assert one.tally.bad_line_count == 0
    assert not one.tally.notes
    return store.restore(one.session_id)


def as_a_value(state: SessionState) -> dict[str, Any]:
    """What must be the same; the import's own note apart."""
    names = (
        "history",
        "system_prompt",
        "config",
        "title",
        "pod",
        "usage",
        "watermark",
        "approvals",
    )
    more = (
        "generation",
        "consecutive_failures",
        "compaction_disabled",
        "last_outcome",
        "interrupted",
    )
    value = {name: getattr(state, name) for name in (*names, *more)}
    value["extensions"] = {k: v for k, v in state.extensions.items() if k != "import"}
    return value


def everything() -> list[Item]:
    call = ToolCall("c1", "look", '{ "at": 1 }', new_uid())
    image = Image("image/png", b"\x89PNG" * 5)
    return [
        SummaryMessage(new_uid(), "Before", None, 2, (new_uid(), new_uid())),
        UserMessage(new_uid(), (Text("See"), image), "user", (new_uid(),)),
        SystemNote(new_uid(), "mind it", "hook"),
        AssistantMessage(
            new_uid(),
            (Reasoning("hm", "S=+/", None, "anthropic", "m"), Reasoning("", None, "B=="), call),
            "anthropic",
            "m",
            "tool_calls",
            (new_uid(),),
        ),
        ToolResult(
            new_uid(), "c1", call.call_uid, "seen", "detail", is_error=True, attachments=(image,)
        ),
        UserMessage(new_uid(), (Text("injected"),), "injected"),
    ]


def test_everything_that_a_state_holds_is_there_again(home: Path, tmp_path: Path) -> None:
    store = a_store(home)
    start: dict[str, Any] = {"pod": "probe", "system_prompt": "S", "config": {"a": [1]}}
    with store.create(**start, history=everything()) as session:
        session.append(
            "usage",
            history_len=3,
            input_tokens=50,
            cache_read=9,
            output_tokens=5,
            model="m",
            cost=0.5,
        )
        session.append("usage", history_len=3, input_tokens=None)
        session.append(
            "prune_advanced", upto_index=2, upto_uid="x", items=0, est_savings=0, reason="r"
        )
        session.append("extension", domain="todo", payload={"n": [1, None]})
        session.append("approval", call_uid="u", decision="allow", scope="once", by="me")
        session.append(
            "compaction_failed", trigger="manual", consecutive_failures=2, disabled=False
        )
        session.append_items("user_input", [UserMessage(new_uid(), (Text("go on"),))])
        session.append("run_outcome", outcome="paused", interrupted=False)
        before = session.session_id

    old = store.restore(before)
    new = again(store, before, tmp_path)
    assert as_a_value(new) == as_a_value(old)
    assert new.totals == old.totals
    assert new.extensions["import"][-1]["source"]["session_id"] == before
    twice = again(store, new.session_id, tmp_path)
    assert as_a_value(twice) == as_a_value(old)


def test_a_fork_is_exported_with_what_it_inherits_and_its_times(home: Path, tmp_path: Path) -> None:
    store = a_store(home)
    parent = told(store, turns=2)
    child = store.fork(parent)
    with store.open(child) as session:
        session.append_items("user_input", [UserMessage(new_uid(), (Text("and now"),))])

    exported = [json.loads(line) for line in export_session(store, child)]
    times = [line["at"] for line in exported if "item" in line]
    assert len(times) == len(store.restore(child).history)
    assert times == sorted(times)
    assert as_a_value(again(store, child, tmp_path))["history"] == store.restore(child).history


def test_an_imported_session_can_be_forked_at_each_of_its_turns(home: Path, tmp_path: Path) -> None:
    store = a_store(home)
    state = again(store, told(store, turns=3), tmp_path)

    ends = [e.hash for e in store.entries(state.session_id) if e.kind == "run_outcome"]
    assert len(ends) == 3
    forked = store.restore(store.fork(state.session_id, ends[0]))
    assert len(forked.history) == 4


def test_a_call_without_a_result_stays_so(home: Path, tmp_path: Path) -> None:
    store = a_store(home)
    with begun(store) as session:
        session.append_items("user_input", [UserMessage(new_uid(), (Text("go"),))])
        session.append_items("assistant_items", [answer("", a_call())])

    old = store.restore(session.session_id)
    assert as_a_value(again(store, session.session_id, tmp_path)) == as_a_value(
        evolve(old, last_outcome=None)
    )


def test_an_export_that_was_cut_short_is_taken_as_far_as_it_goes(
    home: Path, tmp_path: Path
) -> None:
    store = a_store(home)
    data = b"".join(export_session(store, told(store)))
    lines = data.splitlines(keepends=True)
    path = put(tmp_path, b"".join(lines[:4]) + lines[4][:50])
    (one,) = import_file(store, path)

    assert len(one.items) == 2
    assert one.tally.notes == [
        "the file is not whole: it says nothing of its end, and 2 items are there"
    ]
    assert one.tally.bad_line_count == 1


def test_items_that_are_none_are_bad_lines(home: Path, tmp_path: Path) -> None:
    store = a_store(home)
    data = b"".join(export_session(store, told(store)))
    nameless = json.loads(data.splitlines()[1])
    nameless["item"]["uid"] = " "
    path = put(
        tmp_path, data + json.dumps(nameless).encode() + b'\n{"item": {"type": "x"}}\n{"z": 1}\n'
    )
    (one,) = import_file(store, path)

    assert [why.split(":")[0] for _, why in one.tally.bad_lines] == [
        "an item without a uid",
        "not an item (type 'x')",
    ]
    assert one.tally.left_out == {"unknown line": 1}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
def test_any_history_is_the_same_again(tmp_path: Path, history: list[Item]) -> None:
    store = a_store(tmp_path / new_uid())
    with begun(store, history=history) as session:
        old = session.state

    exported = b"".join(export_session(store, old.session_id))
    if history:
        (one,) = import_file(store, put(tmp_path, exported))
        assert store.restore(one.session_id).history == old.history

    messages = json.loads(
        b"".join(export_session(store, old.session_id, "openai-chat", paired=repair))
    )
    is_valid_chat(messages)


@given(st.lists(st.text(alphabet="`a\n<>", max_size=12), min_size=1, max_size=4))
def test_no_text_breaks_out_of_its_fence(texts: list[str]) -> None:
    from session_store.exchange.markdown import _fenced

    for text in texts:
        fenced = _fenced(text).split("\n")
        assert fenced[0] == fenced[-1]
        assert all(not line.startswith(fenced[0]) for line in fenced[1:-1])


def test_chat_messages_are_those_of_a_request(home: Path) -> None:
    store = a_store(home)
    with begun(store, history=everything()) as session:
        state = session.state

    exported = json.loads(
        b"".join(export_session(store, state.session_id, "openai-chat", paired=repair))
    )
    assert exported == chat_request(state.system_prompt, state.history)


def test_markdown_shows_every_item(home: Path) -> None:
    store = a_store(home)
    call = a_call()
    history = [*everything(), answer("``` here", call), result_of(call, "long\n````\nmore")]
    with begun(store, history=history) as session:
        shown = b"".join(export_session(store, session.session_id, "markdown")).decode()

    for part in (
        "# See",
        "## User",
        "## Note · hook",
        "Thought",
        "→ look",
        "Result of look",
        "20 bytes",
        "`````\n",
    ):
        assert part in shown


def test_a_format_that_is_not_written_is_refused(home: Path) -> None:
    store = a_store(home)
    with pytest.raises(UnknownFormat, match="no format 'pi'"):
        list(export_session(store, told(store), "pi"))

    with pytest.raises(UnknownFormat):
        import_file(store, store.layout.log(store.ids()[0]), format="nope")


def test_an_export_that_somebody_changed_still_makes_a_session_that_can_be_restored(
    home: Path, tmp_path: Path
) -> None:
    store = a_store(home)
    first, *rest = b"".join(export_session(store, told(store))).splitlines()
    about = json.loads(first)
    odd = {
        "watermark": "x",
        "generation": -1,
        "consecutive_failures": None,
        "totals": [1],
        "config": 3,
    }
    about["session"] |= {
        **odd,
        "title": 5,
        "pod": "probe",
        "last_outcome": {},
        "compaction_disabled": "no",
    }
    more = [
        {"usage": {"history_len": "many", "input_tokens": None, "cost": "dear"}},
        {"approval": {"decision": 1}},
        {"extension": {"domain": "d", "payload": 1 << 90}},
    ]
    data = [json.dumps(line).encode() for line in (about, *more)]
    (one,) = import_file(store, put(tmp_path, b"\n".join([data[0], *rest, *data[1:]])))

    state = store.restore(one.session_id)
    assert len(state.history) == 12
    assert (state.watermark, state.generation, state.config) == (0, 0, {})
    assert one.tally.left_out == {"unknown line": 1}
