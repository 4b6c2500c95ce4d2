"""A session is compacted without its log being read again, and nothing of it is missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_store import Durability, FileSessionStore
from session_store.gist import Gist
from tests.session_store.builders import a_store, a_turn, answer, begun, bytes_read, told
from worker.items import SystemNote, new_uid, user_message

FIELDS = {"trigger": "threshold", "engine": "compressor", "method": "summary"}


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home, durability=Durability.FLUSH)


def test_a_compaction_reads_nothing_of_the_old_log(store: FileSessionStore) -> None:
    with begun(store) as old:
        for number in range(300):
            a_turn(old, number)

        size = store.layout.log(old.session_id).stat().st_size
        before = bytes_read()
        new = store.publish_compacted(
            old, history=[user_message("go on")], watermark=0, compaction=FIELDS
        )
        assert bytes_read() - before < size / 10
        compaction = next(entry for entry in store.entries(new.session_id) if entry.seq == 1).data
        assert (compaction["old"], compaction["generation"]) == (old.session_id, 1)
        assert (compaction["items_before"], compaction["items_after"]) == (1200, 1)
        new.close()


ENTRIES = st.lists(
    st.sampled_from(
        [
            ("user_input", lambda: {"items": [user_message("\n a title\nmore")]}),
            ("user_input", lambda: {"items": [user_message("by a hook", origin="injected")]}),
            ("user_input", lambda: {"items": (user_message(""), user_message("another"))}),
            ("assistant_items", lambda: {"items": [answer("well")]}),
            ("system_item", lambda: {"items": [SystemNote(new_uid(), "note", "hook")]}),
            ("config_changed", lambda: {"config": {"model": "new\ud800"}}),
            ("config_changed", lambda: {"config": {}}),
            ("config_changed", lambda: {"config": {}, "system_prompt": "another prompt"}),
            ("extension", lambda: {"domain": "todo", "payload": {"n": ("\ud800", None)}}),
            ("extension", lambda: {"domain": "todo", "payload": [1, 2]}),
            ("extension", lambda: {"domain": "lcm"}),
            ("usage", lambda: {"history_len": 1, "input_tokens": 5}),
            ("turn_end", lambda: {"turn": 1}),
            ("prune_advanced", lambda: {"upto_index": 1, "upto_uid": "x", "items": 1}),
            ("of another version", lambda: {"items": 5}),
        ]
    ),
    max_size=8,
)


@settings(max_examples=50)
@given(before=ENTRIES, after=ENTRIES, title=st.sampled_from(["", "given"]))
def test_the_gist_is_that_of_the_state_that_a_restore_gives(
    tmp_path_factory: pytest.TempPathFactory, before: list, after: list, title: str
) -> None:
    store = a_store(tmp_path_factory.mktemp("home"), durability=Durability.FLUSH)
    with begun(store, spawned_by=["a", "b"]) as session:
        session.append_many((kind, make()) for kind, make in before)
        session_id = session.session_id
        assert session.gist == Gist.of(store.restore(session_id))

    with store.open(store.fork(session_id)) as session:
        for kind, make in after:
            session.append(kind, **make())

        assert session.gist == Gist.of(store.restore(session.session_id))


def test_a_gist_stays_as_it_was_and_is_of_the_entries_as_written(store: FileSessionStore) -> None:
    payload = {"n": 1}
    with begun(store) as session:
        session.append("extension", domain="todo", payload=payload)
        before = session.gist
        payload["n"] = 2
        session.append("extension", domain="todo", payload=payload)
        payload["n"] = 3
        assert before.extensions == {"todo": {"n": 1}}
        assert session.gist.extensions == {"todo": {"n": 2}}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("config_changed", {"config": 5}),
        ("config_changed", {}),
        ("extension", {"payload": 1}),
        ("extension", {"domain": [1]}),
        ("user_input", {"items": 5}),
        ("user_input", {"items": [5]}),
        ("user_input", {}),
        ("compaction", {"generation": "many"}),
    ],
)
def test_what_cannot_be_read_later_is_appended_all_the_same(
    store: FileSessionStore, kind: str, fields: dict
) -> None:
    session_id = told(store, 1)
    with store.open(session_id) as session:
        ref = session.append(kind, **fields)
        assert session.gist.head == ref == session.head
