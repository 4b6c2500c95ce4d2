"""A secret that got into a session: a new session without it, and a list of what still has it."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from session_store import (
    FileSessionStore,
    SessionDamaged,
    SessionInUse,
    StorageFailed,
    Unsuitable,
)
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    audit,
    begun,
    lines_of,
    put_lines,
    told,
)
from tests.session_store.faults import FailingDisk, PowerCut
from worker.items import (
    AssistantMessage,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    new_uid,
    user_message,
)

SECRET = 'hunter2-"quoted"-0123456789'


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def leaky(store: FileSessionStore, size: int = 2 << 20) -> str:
    """A session that has the secret wherever one can be; in a payload of so many bytes too."""
    with begun(store, config={"note": SECRET, "model": "m"}) as session:
        call = ToolCall(
            "call_1", "sh", '{"cmd": "login ' + SECRET.replace('"', '\\"') + '"}', new_uid()
        )
        session.append_items("user_input", [user_message(f"my password is {SECRET}, keep it")])
        session.append_items(
            "assistant_items", [AssistantMessage(new_uid(), (Text(SECRET), call), "fake", "m", "t")]
        )
        session.append_items(
            "tool_results",
            [ToolResult(new_uid(), "call_1", call.call_uid, "ok", "x" * size + SECRET, False)],
        )
        session.append("extension", domain="todos", payload={"do": [f"change {SECRET}"]})
        session.append("of_the_future", items=[{"said": SECRET}])
        session.append("turn_end", turn=1)
        session.append("run_outcome", outcome="finished", interrupted=False)
        return session.session_id


def everything(store: FileSessionStore, session_id: str) -> str:
    """All that a session is read as, payloads and all."""
    state = store.restore(session_id)
    return repr(state) + repr([entry.data for entry in store.entries(session_id)])


def has(text: str) -> bool:
    spellings = [SECRET, SECRET.replace('"', '\\"'), base64.b64encode(SECRET.encode()).decode()]
    return any(spelling in text for spelling in spellings)


def test_the_new_session_is_the_old_one_without_the_secret(store: FileSessionStore) -> None:
    old = leaky(store)
    before, log = store.restore(old), store.layout.log(old).read_bytes()
    assert has(everything(store, old))

    report = store.redact(old, {"DB_PASSWORD": SECRET})

    assert store.layout.log(old).read_bytes() == log
    new = report.new_session_id
    assert new is not None
    assert store.verify(new).ok
    assert not has(everything(store, new))
    assert not has(store.layout.log(new).read_text(encoding="utf-8"))
    after = store.restore(new)
    assert [item.uid for item in after.history] == [item.uid for item in before.history]
    assert after.history[0].text == "my password is [masked: DB_PASSWORD], keep it"
    assert (after.turns, after.last_outcome, after.title != before.title) == (1, "finished", True)
    times = [(entry.kind, entry.ts) for entry in store.entries(old)]
    assert [(entry.kind, entry.ts) for entry in store.entries(new)] == times
    start = audit(store.layout.log(new))[0]
    assert start["recovered_from"] == [old, before.head.hash]
    assert start["redacted"] is True
    assert store.lineage(new) == [(old, "root"), (new, "redact")]
    assert report.entries_changed == 6
    assert report.left_in == ()
    assert not has(repr(report))


def test_what_still_has_it_is_listed(store: FileSessionStore, home: Path) -> None:
    old = leaky(store)
    fork = store.fork(old)
    compacted = store.save_compacted(old, [user_message(f"remember {SECRET}")])
    clean = told(store, 1)
    clean_fork = store.fork(clean)
    (home / "chat_history").write_text(f"my password is {SECRET}\n", encoding="utf-8")
    (home / "models").mkdir()
    (home / "models" / "m.gguf").write_text(SECRET, encoding="utf-8")
    store.set_pointer("probe", clean)
    store.sessions()

    report = store.redact(old, {"it": SECRET})

    held = {one.session_id: one.why for one in report.still_in if one.session_id}
    assert held == {old: "its log", fork: f"begins in {old}", compacted: "its log"}
    others = {one.file for one in report.still_in if not one.session_id}
    assert "chat_history" in others
    assert any(name.startswith("blobs/") for name in others)
    assert not any(name.startswith("models") for name in others)
    assert {clean, clean_fork}.isdisjoint(held)


def test_once_the_rest_is_removed_nothing_has_it(store: FileSessionStore, home: Path) -> None:
    old = leaky(store)
    assert FileSessionStore(home).sessions()
    from session_store import SessionIndex

    assert SessionIndex(home).search("hunter2")
    new = store.redact(old, {"it": SECRET}).new_session_id
    store.remove(old)
    assert not SessionIndex(home).search("hunter2")
    for path in home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path

    assert store.verify(str(new)).ok


def test_a_fork_is_redacted_with_what_it_inherits(store: FileSessionStore) -> None:
    parent = leaky(store)
    fork = store.fork(parent)
    with store.open(fork) as session:
        a_turn(session, 2)

    report = store.redact(fork, {"it": SECRET})
    new = str(report.new_session_id)
    before, after = store.restore(fork), store.restore(new)
    assert [item.uid for item in after.history] == [item.uid for item in before.history]
    assert (after.turns, after.usage, after.totals) == (before.turns, before.usage, before.totals)
    assert after.config == {"note": "[masked: it]", "model": "m"}
    assert not has(everything(store, new))
    store.remove(fork)
    store.remove(parent)
    assert store.verify(new).ok, "it stands alone"


def test_a_pattern_takes_what_it_matches_for_a_secret(store: FileSessionStore) -> None:
    old = leaky(store)
    new = store.redact(old, {}, patterns=[r"hunter2-\S+?789"]).new_session_id
    assert not has(everything(store, str(new)))
    assert "[masked: pattern-" in everything(store, str(new))


def test_what_a_provider_signed_is_kept_and_told(store: FileSessionStore) -> None:
    with begun(store) as session:
        signed = Reasoning("thought of it", f"sig-{SECRET}-nature", None, "fake", "m")
        session.append_items("user_input", [user_message(f"it is {SECRET}")])
        session.append_items(
            "assistant_items", [AssistantMessage(new_uid(), (signed,), "fake", "m", "end")]
        )
        old = session.session_id

    report = store.redact(old, {"it": SECRET})
    assert report.left_in == (2,)
    assert report.entries_changed == 1


def test_a_session_without_it_is_not_written_anew(store: FileSessionStore) -> None:
    clean, other = told(store, 1), leaky(store)
    report = store.redact(clean, {"it": SECRET})
    assert report.new_session_id is None
    assert other in {one.session_id for one in report.still_in}
    assert store.ids() == [clean, other]


@pytest.mark.parametrize(
    ("secrets", "patterns", "why"),
    [({"PIN": "1234"}, [], "PIN names is shorter than 6"), ({}, ["pass"], "is shorter than 6")],
)
def test_what_would_mask_ordinary_words_is_refused(
    store: FileSessionStore, secrets: dict[str, str], patterns: list[str], why: str
) -> None:
    old = leaky(store)
    with pytest.raises(Unsuitable, match=why):
        store.redact(old, secrets, patterns=patterns)

    assert store.ids() == [old]


def test_a_pattern_that_matches_everything_is_refused(store: FileSessionStore) -> None:
    with begun(store) as session:
        for number in range(1_100):
            session.append_items("user_input", [user_message(f"word-{number:06}")])

    with pytest.raises(Unsuitable, match="more than 1,000 texts"):
        store.redact(session.session_id, {}, patterns=[r"word-\d+"])


def test_damaged_or_running_sessions_are_refused(store: FileSessionStore) -> None:
    old = leaky(store)
    with store.open(old), pytest.raises(SessionInUse):
        store.redact(old, {"it": SECRET})

    lines = lines_of(store, old)
    put_lines(store, old, [*lines[:2], lines[2][:-4] + b"xxxx", *lines[3:]])
    with pytest.raises(SessionDamaged):
        store.redact(old, {"it": SECRET})

    assert store.ids() == [old]


def test_pods_that_were_on_it_go_on_without_the_secret(store: FileSessionStore) -> None:
    old = leaky(store)
    store.set_pointer("probe", old)
    report = store.redact(old, {"it": SECRET})
    assert report.pods == ("probe",)
    assert store.pointer("probe") == report.new_session_id


def test_an_open_call_stays_open(store: FileSessionStore) -> None:
    with begun(store) as session:
        session.append_items("user_input", [user_message(SECRET)])
        session.append_items(
            "assistant_items", [AssistantMessage(new_uid(), (a_call(),), "fake", "m", "t")]
        )

    new = store.redact(session.session_id, {"it": SECRET}).new_session_id
    assert store.restore(str(new)).interrupted


def test_stopped_anywhere_it_is_there_whole_or_not_at_all(home: Path, tmp_path: Path) -> None:
    old = leaky(a_store(home), 10)
    a_store(home).set_pointer("probe", old)
    for at in range(1, 60):
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(home, copy)
        disk = FailingDisk(at, PowerCut() if at % 2 else OSError(28, "full"))
        try:
            a_store(copy, disk=disk).redact(old, {"it": SECRET})
        except (PowerCut, StorageFailed):
            stopped = True
        else:
            stopped = False

        check = a_store(copy)
        assert all(found.ok for found in check.verify_all())
        assert check.pointer("probe") in check.ids()
        shutil.rmtree(copy)
        if not stopped:
            break

    assert at > 15
