"""Forking reads the end of the parent's log: what that proves, and what it costs."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_store import Durability, Entry, FileSessionStore, ForkPoint, Session, SessionDamaged
from session_store.history import safe_fork_point
from tests.session_store.builders import (
    a_call,
    a_store,
    a_turn,
    answer,
    begun,
    bytes_read,
    lines_of,
    put_lines,
    result_of,
    told,
)
from worker.items import user_message


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home, durability=Durability.FLUSH)


def a_long_one(store: FileSessionStore, entries: int = 3000) -> str:
    with begun(store) as session:
        session.append_many(
            ("user_input", {"items": [user_message(f"{number} " * 150)]})
            for number in range(entries)
        )
        a_turn(session, 1)
        return session.session_id


def forget_the_end(store: FileSessionStore, session_id: str) -> None:
    """Make the anchor one of a store that did not note where its entry ends."""
    path = store.layout.anchor(session_id)
    anchor = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps({"seq": anchor["seq"], "hash": anchor["hash"]}))


@pytest.mark.parametrize("old_anchor", [False, True])
def test_a_fork_at_the_head_reads_the_end_of_its_parent_only(
    store: FileSessionStore, old_anchor: bool
) -> None:
    parent = a_long_one(store)
    size = store.layout.log(parent).stat().st_size
    head = store.restore(parent).head
    if old_anchor:
        forget_the_end(store, parent)

    before = bytes_read()
    child = store.fork(parent)
    read = bytes_read() - before
    assert read < size / (1 if old_anchor else 10)
    assert store.restore(child).forked_from == (parent, head.hash)
    assert len(store.restore(child).history) == 3004


def test_what_was_written_since_the_anchor_is_in_the_fork(store: FileSessionStore) -> None:
    with begun(store) as session:
        for number in range(5):
            a_turn(session, number)
            if number == 2:
                session.write_anchor()

        assert store.fork_point(session.session_id).hash == session.head.hash


def test_damage_far_from_the_end_is_found_when_the_fork_is_opened(
    store: FileSessionStore,
) -> None:
    parent = told(store, 5)
    lines = lines_of(store, parent)
    put_lines(store, parent, [*lines[:9], lines[9].replace(b"que", b"QUE"), *lines[10:]])
    child = store.fork(parent)
    assert not store.verify(child).ok
    for use in (store.open, store.restore):
        with pytest.raises(SessionDamaged, match=f"session {child} is damaged.*{parent}"):
            use(child)


@pytest.mark.parametrize(
    "damage", ["in the head", "in the last answer", "cut short", "glued", "one gone", "anchored"]
)
@pytest.mark.parametrize("old_anchor", [False, True])
def test_damage_at_the_end_is_found_when_the_fork_is_made(
    store: FileSessionStore, damage: str, old_anchor: bool
) -> None:
    parent = told(store, 3)
    lines = lines_of(store, parent)
    if damage == "anchored":
        # The entry that the anchor names is gone; what is there is a chain that holds.
        with store.open(told(store, 3)) as other:
            lines = lines_of(store, other.session_id)
    else:
        lines = {
            "in the head": [*lines[:-1], lines[-1].replace(b"finished", b"FINISHED")],
            "in the last answer": [
                *lines[:-4],
                lines[-4].replace(b"answer", b"ANSWER"),
                *lines[-3:],
            ],
            "cut short": lines[:-1],
            "glued": [*lines[:-2], lines[-2] + lines[-1]],
            "one gone": [*lines[:10], *lines[11:]],
        }[damage]

    put_lines(store, parent, lines)
    if old_anchor:
        forget_the_end(store, parent)

    if damage == "one gone" and old_anchor:
        child = store.fork(parent)  # its end is as it was, only not where it was
        with pytest.raises(SessionDamaged):
            store.restore(child)

        return

    with pytest.raises(SessionDamaged) as caught:
        store.fork(parent)

    report = store.verify(parent)
    assert (caught.value.seq, caught.value.reason) == (report.first_bad_seq, report.reason)
    assert store.ids().count(parent) == 1


@pytest.mark.parametrize("anchor", [b"", b"[]", b'{"seq":0,"hash":"x"}', None])
@pytest.mark.parametrize("end", [-5, 0, 1, 99, 10**12, "5", True])
def test_an_anchor_that_is_of_no_use_is_not_trusted(
    store: FileSessionStore, anchor: bytes | None, end: object
) -> None:
    parent = told(store, 3)
    head = store.restore(parent).head
    path = store.layout.anchor(parent)
    if anchor is None:
        path.write_bytes(orjson.dumps({"seq": head.seq, "hash": head.hash, "end": end}))
        assert store.fork_point(parent).hash == head.hash
        return

    path.write_bytes(anchor)
    with pytest.raises(SessionDamaged):
        store.fork(parent)


def test_without_an_anchor_the_whole_log_is_verified(store: FileSessionStore) -> None:
    parent = told(store, 3)
    store.layout.anchor(parent).unlink()
    assert store.fork_point(parent).hash == store.restore(parent).head.hash
    lines = lines_of(store, parent)
    put_lines(store, parent, [*lines[:9], lines[9].replace(b"que", b"QUE"), *lines[10:]])
    with pytest.raises(SessionDamaged):
        store.fork(parent)


def test_a_tail_that_is_torn_or_lacks_its_newline(store: FileSessionStore) -> None:
    parent = told(store, 2)
    head = store.restore(parent).head
    path = store.layout.log(parent)
    whole = path.read_bytes()
    for tail in (b'{"hash":"', b"\0" * 900, b'{"hash":"' + b"0" * 64 + b'",'):
        path.write_bytes(whole + tail)
        assert store.fork_point(parent) == ForkPoint(hash=head.hash, seq=head.seq, moved=False)

    path.write_bytes(whole[:-1])
    assert store.fork_point(parent).hash == head.hash
    assert store.fork_point(parent, head.hash[:9]).hash == head.hash


@pytest.mark.parametrize("block", [64, 500, 1 << 16])
def test_an_entry_is_found_wherever_it_is(
    store: FileSessionStore, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    parent = told(store, 4)
    size = store.layout.log(parent).stat().st_size
    # What is found must not depend on where the blocks happen to end.
    monkeypatch.setattr("session_store.tail._SEARCH_BLOCK", block)
    monkeypatch.setattr("session_store.tail._BLOCK", max(1, block // 9))
    assert size > 5000
    for entry in list(store.entries(parent)):
        assert store.restore(parent, entry.hash[:12]).head == entry.ref
        point = store.fork_point(parent, entry.hash)
        assert point.seq == entry.seq or point.moved


def test_a_hash_that_is_only_spoken_of_is_none(store: FileSessionStore) -> None:
    with begun(store) as session:
        a_turn(session, 1)
        wanted = session.append("extension", domain="d", payload=1)
        session.append("extension", domain="d", payload=f'\n{{"hash":"{wanted.hash}",')
        assert store.fork_point(session.session_id, wanted.hash).seq == wanted.seq


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_the_end_tells_the_same_boundary_as_the_whole(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # a repeatable choice, no secret
    entries = list(a_story(chance))
    for at in range(1, len(entries) + 1):
        taken: list[Entry] = []
        newest_first = (taken.append(entry) or entry for entry in reversed(entries[:at]))  # type: ignore[func-returns-value]  # it notes what is taken
        point = safe_fork_point(newest_first)
        assert point.seq == the_boundary(entries[:at]), f"at {at - 1}"
        assert point.moved == (point.seq != at - 1)
        assert len(taken) < 40, "a look back, and no more"


def a_story(chance: random.Random) -> list[Entry]:
    """Entries as a pod writes them: no request while a call lacks its result."""
    from worker.items_json import dump_item

    kinds: list[tuple[str, dict[str, object]]] = [("session_start", {"history": []})]

    def note(kind: str, *items: object) -> None:
        kinds.append((kind, {"items": [dump_item(item) for item in items]}))  # type: ignore[arg-type]  # items

    for _ in range(chance.randint(0, 8)):
        if chance.random() < 0.5:
            note("user_input", user_message("go on"))

        calls = [a_call() for _ in range(chance.choice((0, 0, 1, 3)))]
        said = answer("well", *calls)
        note("assistant_items", said)
        if chance.random() < 0.2 and calls:
            lost = calls.pop()
            changed = answer("well", *calls)
            object.__setattr__(changed, "uid", said.uid)
            assert lost not in changed.parts
            kinds.append(("item_amended", {"item": dump_item(changed)}))

        chance.shuffle(calls)
        for call in calls:
            if chance.random() < 0.4:
                kinds.append(("usage", {"input_tokens": 1}))
            note("tool_results", result_of(call))

        if chance.random() < 0.4:
            kinds += [("turn_end", {}), ("prune_advanced", {"items": 3})]

    return [
        Entry(0, b"", {"seq": seq, "hash": str(seq), "kind": kind, **fields})
        for seq, (kind, fields) in enumerate(kinds)
    ]


def the_boundary(entries: list[Entry]) -> int:
    """The same by the rule itself: every call of the whole log, in the order it was written."""
    calls: dict[str, set[str]] = {}
    answered: set[str] = set()
    safe = 0
    for entry in entries:
        items = entry.data.get("items")
        for item in [*(items if isinstance(items, list) else []), entry.data.get("item")]:
            if item and item["type"] == "assistant_message":
                calls[item["uid"]] = {
                    part["call_uid"] for part in item["parts"] if part["type"] == "tool_call"
                }
            elif item and item["type"] == "tool_result":
                answered.add(item["call_uid"])

        if all(wanted <= answered for wanted in calls.values()):
            safe = entry.seq

    return safe


def test_a_call_that_never_got_its_result_holds_later_forks_up_no_more(
    store: FileSessionStore,
) -> None:
    with begun(store) as session:
        asked = session.append_items("user_input", [user_message("go")])
        session.append_items("assistant_items", [answer("looking", a_call())])
        session_id = session.session_id
        assert store.fork_point(session_id).hash == asked.hash
        a_turn(session, 2)
        assert store.fork_point(session_id).hash == session.head.hash


def test_forking_is_the_same_for_any_reader_of_the_session(store: FileSessionStore) -> None:
    def fork_of(session: Session) -> str:
        return store.fork(session.session_id)

    with begun(store) as session:
        assert store.restore(fork_of(session)).history == []
        a_turn(session, 1)
        assert len(store.restore(fork_of(session)).history) == 4
