"""What the index has of each message: its identity, and words that are found whatever they are."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from session_store import Durability, FileSessionStore, IndexedMessage, SessionIndex
from session_store.chain import Position, encode_entry
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    answer,
    begun,
    result_of,
    told,
)
from worker.items import (
    AssistantMessage,
    Image,
    Item,
    SummaryMessage,
    SystemNote,
    Text,
    ToolResult,
    UserMessage,
    new_uid,
    user_message,
)
from worker.text import clean_text


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home, durability=Durability.FLUSH)


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def index(store: FileSessionStore, notices: list[str]) -> SessionIndex:
    return SessionIndex(store.layout.home, on_notice=notices.append)


def identities(store: FileSessionStore, session_id: str) -> list[IndexedMessage]:
    """What the index must say of the session, from what a restore gives."""
    places: dict[str, tuple[int, int]] = {}
    for entry in store.entries(session_id):
        for key in ("history", "items", "item"):
            held = entry.data.get(key)
            for one in held if isinstance(held, list) else [held]:
                if isinstance(one, dict):
                    places[one["uid"]] = (entry.seq, entry.ts)

    return [
        identity(session_id, item, places[item.uid]) for item in store.restore(session_id).history
    ]


def identity(session_id: str, item: Item, place: tuple[int, int]) -> IndexedMessage:
    roles = {
        UserMessage: "user",
        AssistantMessage: "assistant",
        ToolResult: "tool",
        SummaryMessage: "summary",
        SystemNote: "note",
    }
    calls = item.tool_calls if isinstance(item, AssistantMessage) else ()
    return IndexedMessage(
        session_id=session_id,
        seq=place[0],
        ts=place[1],
        role=roles[type(item)],
        message_uid=item.uid,
        absorbed_message_uids=getattr(item, "absorbed_uids", ()),
        tool_call_uids={call.call_id: call.call_uid for call in calls} or None,
        tool_call_uid=item.call_uid if isinstance(item, ToolResult) else None,
    )


def a_session_of_every_kind(store: FileSessionStore) -> tuple[str, list[Item]]:
    one, other = a_call("look"), evolve(a_call("see"), call_id="call_2")
    image = Image("image/png", b"\x89PNG")
    items: list[Item] = [
        SummaryMessage(new_uid(), "so far", None, 1, (new_uid(),)),
        UserMessage(new_uid(), (Text("look at it"),), "user", (new_uid(), new_uid())),
        evolve(answer("I look", one, other), absorbed_uids=(new_uid(),)),
        result_of(other),
        ToolResult(new_uid(), one.call_id, one.call_uid, "", None, is_error=True),
        UserMessage(new_uid(), (image,)),
        SystemNote(new_uid(), "be brief", "hook"),
    ]
    with begun(store, history=items[:1]) as session:
        session.append_items("user_input", items[1:2])
        session.append_items("assistant_items", items[2:3])
        for item in items[3:5]:
            session.append_items("tool_results", [item])

        session.append_items("user_input", items[5:6])
        session.append_items("system_item", items[6:])
        return session.session_id, items


# --- identity -----------------------------------------------------------------------------------


def test_each_message_is_in_the_index_with_all_that_identifies_it(
    store: FileSessionStore, index: SessionIndex
) -> None:
    """U3, U4, U20, U24, U27: also those without a word in them."""
    session_id, items = a_session_of_every_kind(store)

    found = index.messages(session_id)

    assert found == identities(store, session_id)
    assert [message.message_uid for message in found] == [item.uid for item in items]
    assert [message.seq for message in found] == [0, 1, 2, 3, 4, 5, 6]


def test_the_table_has_the_columns_of_the_contract(
    store: FileSessionStore, index: SessionIndex
) -> None:
    session_id, items = a_session_of_every_kind(store)
    index.messages(session_id)

    db = sqlite3.connect(store.layout.home / "index.db")
    rows = db.execute(
        """SELECT message_uid, absorbed_message_uids, tool_call_uids, tool_call_uid
        FROM messages WHERE session_id = ? ORDER BY id""",
        (session_id,),
    ).fetchall()
    unique = [row[2] for row in db.execute("PRAGMA index_list(messages)")]
    db.close()

    said, asked, result = items[1], items[2], items[3]
    assert isinstance(said, UserMessage)
    assert isinstance(asked, AssistantMessage)
    assert isinstance(result, ToolResult)
    first, second = asked.tool_calls
    assert rows[1] == (said.uid, '["{}","{}"]'.format(*said.absorbed_uids), None, None)
    assert rows[2][2] == (
        f'{{"{first.call_id}":"{first.call_uid}","{second.call_id}":"{second.call_uid}"}}'
    )
    assert rows[3] == (result.uid, None, None, second.call_uid)
    assert not any(unique), "no uid has to be there once only (U21)"


def test_an_id_that_names_several_calls_has_a_uid_for_each_in_their_order(
    store: FileSessionStore, index: SessionIndex
) -> None:
    """U25, U26."""
    calls = [a_call(), a_call()]
    shared = evolve(calls[0], name="again")
    with begun(store) as session:
        session.append_items("assistant_items", [answer("two", *calls)])
        session.append_items("assistant_items", [answer("one", calls[0], shared)])

    two, one = index.messages(session.session_id)
    assert two.tool_call_uids == [call.call_uid for call in calls]
    assert one.tool_call_uids == {calls[0].call_id: calls[0].call_uid}


def test_an_amended_message_keeps_its_row_and_its_place(
    store: FileSessionStore, index: SessionIndex
) -> None:
    """U11, U22: same row and uid, new words, new witnesses."""
    said, absorbed = user_message("the former words"), new_uid()
    with begun(store) as session:
        session.append_items("user_input", [said, user_message("another")])
        before = index.messages(session.session_id)
        amended = evolve(said, parts=(Text("latter"),), absorbed_uids=(absorbed,))
        session.append("item_amended", item=amended)

    after = index.messages(session.session_id)
    assert [message.message_uid for message in after] == [one.message_uid for one in before]
    assert (after[0].seq, after[0].absorbed_message_uids) == (2, (absorbed,))
    assert after == identities(store, session.session_id)
    assert [hit.uid for hit in index.search("latter")] == [said.uid]
    assert index.search("former") == []


def test_of_two_rows_with_one_uid_the_newer_is_amended(
    store: FileSessionStore, index: SessionIndex
) -> None:
    """U21: as a history has it."""
    said = user_message("shared first")
    with begun(store) as session:
        session.append_items("user_input", [said])
        session.append_items("user_input", [evolve(said, parts=(Text("shared second"),))])
        session.append("item_amended", item=evolve(said, parts=(Text("shared third"),)))

    assert [message.seq for message in index.messages(session.session_id)] == [1, 3]
    texts = [
        item.text for item in store.restore(session.session_id).history if hasattr(item, "text")
    ]
    assert texts == ["shared first", "shared third"]
    assert index.search("second") == []
    assert index.search("third")
    assert index.search("first")


def test_a_uid_finds_what_it_names_and_what_it_is_part_of(
    store: FileSessionStore, index: SessionIndex
) -> None:
    session_id, items = a_session_of_every_kind(store)
    compacted = store.save_compacted(session_id, items)
    said, asked = items[1], items[2]
    assert isinstance(said, UserMessage)
    assert isinstance(asked, AssistantMessage)

    def where(uid: str) -> list[tuple[str, str]]:
        return [(found.session_id, found.role) for found in index.messages_naming(uid)]

    assert where(said.uid) == [(session_id, "user"), (compacted, "user")]
    assert where(said.absorbed_uids[1]) == [(session_id, "user"), (compacted, "user")]
    each = [(session_id, "assistant"), (session_id, "tool")]
    assert where(asked.tool_calls[1].call_uid) == [
        *each,
        *((compacted, role) for _, role in each),
    ]
    assert where(asked.tool_calls[0].call_id) == [], "the provider's id is no uid"
    assert where(new_uid()) == where('"') == where("%") == where("\ud800") == where("") == []


def test_a_fork_has_rows_of_its_own_entries_and_its_parents_are_the_parents(
    store: FileSessionStore, index: SessionIndex
) -> None:
    """U13: one item, one uid; what a fork amends of its inheritance is a row of the fork."""
    parent, items = a_session_of_every_kind(store)
    fork = store.fork(parent)
    said = items[1]
    assert isinstance(said, UserMessage)
    with store.open(fork) as session:
        session.append("item_amended", item=evolve(said, parts=(Text("in the fork"),)))

    (row,) = index.messages(fork)
    assert (row.session_id, row.message_uid) == (fork, said.uid)
    assert len(index.messages(parent)) == len(items)
    assert [one.session_id for one in index.messages_naming(said.uid)] == [parent, fork]


def test_what_is_made_anew_is_identical(
    store: FileSessionStore, index: SessionIndex, notices: list[str]
) -> None:
    """In steps or at once, from an index that an older version made, or in memory."""
    session_id, items = a_session_of_every_kind(store)
    stepwise = [told(store, 2), store.fork(session_id), session_id]
    for known in stepwise:
        index.messages(known)
        with store.open(known) as session:
            a_turn(session, 7)
            index.messages(known)

    store.save_compacted(session_id, items)
    in_steps = everything(store, index)
    path = store.layout.home / "index.db"

    path.unlink()
    assert everything(store, index) == in_steps
    assert notices == []

    older = sqlite3.connect(path)
    older.executescript("DROP TABLE messages; PRAGMA user_version = 1")
    older.close()
    assert everything(store, index) == in_steps
    assert len(notices) == 1
    assert "an older version made it" in notices[0]

    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    in_memory = index.messages(session_id)
    holder.close()
    assert in_memory == in_steps[session_id]


def everything(store: FileSessionStore, index: SessionIndex) -> dict[str, list[IndexedMessage]]:
    return {session_id: index.messages(session_id) for session_id in store.ids()}


def test_what_is_malformed_counts_as_absent_and_breaks_nothing(
    store: FileSessionStore, index: SessionIndex
) -> None:
    """U30, U35: whatever an entry that verifies holds in the place of identities."""
    session_id = told(store, 1)
    store.layout.anchor(session_id).unlink()
    path = store.layout.log(session_id)
    before = index.messages(session_id)
    entries = list(store.entries(session_id))
    position = Position(len(entries), entries[-1].hash, path.stat().st_size)
    bad: list[object] = [None, 7, "x", {}, {"a": []}, [], [[]], [None, 1, {}]]
    items: list[object] = []
    for value in bad:
        items += [
            {"type": "user_message", "uid": "u", "parts": value, "absorbed_uids": value},
            {"type": "tool_result", "uid": "r", "call_uid": value, "summary": value},
            {"type": "assistant_message", "uid": "a", "parts": [
                {"type": "tool_call", "call_id": value, "call_uid": value, "name": value}]},
            {"type": "user_message", "uid": value},
        ]  # fmt: skip

    with path.open("ab") as file:
        line, _ = encode_entry(position, 1_900_000_000_000, "user_input", {"items": items})
        file.write(line)

    found = index.messages(session_id)
    assert found[: len(before)] == before
    rest = found[len(before) :]
    assert {one.absorbed_message_uids for one in rest if one.role == "user"} == {()}
    assert {one.tool_call_uid for one in rest if one.role == "tool"} == {None, "x"}
    assert index.messages_naming("x")


# --- words --------------------------------------------------------------------------------------

SAID = [
    "移行計画を確認します。了解。",
    "emoji 🍸 👩🏽‍🔬 and flags 🇯🇵",
    "a\"b'c(d)*e:f^g-h+i{j}[k]%l_m\\n;o--p/*q*/r",
    "İstanbul STRASSE straße ΣΊΣΥΦΟΣ",
    "العربية עברית ไทย हिन्दी 한국어",
    "zero\u200bwidth e\u0301 combining \ufeff",
    'NEAR AND OR NOT text: * ^ "',
]
KINDS = ["trigrams", "no trigrams"]


@pytest.fixture(params=KINDS)
def library(request: pytest.FixtureRequest, store: FileSessionStore) -> FileSessionStore:
    with begun(store) as session:
        for words in SAID:
            session.append_items("user_input", [user_message(words)])

    if request.param == "no trigrams":
        SessionIndex(store.layout.home).sync()
        db = sqlite3.connect(store.layout.home / "index.db")
        # As an SQLite without them would have made it.
        for trigger in ("in", "out", "anew"):
            db.execute(f"DROP TRIGGER messages_{trigger}")

        db.execute("DROP TABLE words")
        db.close()

    return store


def test_every_part_of_every_word_is_found(
    library: FileSessionStore, index: SessionIndex, notices: list[str]
) -> None:
    history = library.restore(library.ids()[0]).history
    for item, words in zip(history, SAID, strict=True):
        for word in words.split():
            for part in {word, word[:1], word[-2:], word[1:4], word[:3]} - {""}:
                assert item.uid in {hit.uid for hit in index.search(part, 100)}, part

    assert notices == []


@pytest.mark.timeout(60)
@settings(
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text() | st.text("\"'*()^-+:{}[]%_\\;/,.~`|&<>=!?@#$ \0\t\n\r", max_size=8))
@example('"')
@example('a"b')
@example("\0")
@example("\ud83c\udf78")
@example("\ud83c")
@example("🍸")
@example("計")
def test_no_question_is_an_error(
    library: FileSessionStore, index: SessionIndex, notices: list[str], query: str
) -> None:
    """Whatever is asked: what is found holds each word, and the index stays as it is."""
    history = library.restore(library.ids()[0]).history
    said = {item.uid: words for item, words in zip(history, SAID, strict=True)}
    wanted = clean_text(query).replace("\0", " ").split()
    for hit in index.search(query):
        assert all(word.casefold() in said[hit.uid].casefold() for word in wanted)

    assert index.messages_naming(query) == index.messages(query) == []
    assert notices == []


@settings(deadline=None, max_examples=40)
@given(st.text(min_size=1), st.data())
def test_any_text_is_found_by_any_part_of_a_word_of_it(said: str, data: st.DataObject) -> None:
    words = clean_text(said).replace("\0", " ").split()
    if not words:
        return

    word = data.draw(st.sampled_from(words))
    begin = data.draw(st.integers(0, len(word) - 1))
    part = word[begin : data.draw(st.integers(begin + 1, len(word)))]
    with tempfile.TemporaryDirectory() as folder:
        store = a_store(Path(folder), durability=Durability.FLUSH)
        with begun(store) as session:
            session.append_items("user_input", [user_message(said)])

        assert SessionIndex(folder).search(part), (said, part)
