"""A fork whose beginning is lost goes on with what is left of it, and says what is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import evolve

from pod.cli.sessions import sessions
from session_store import FileSessionStore, SessionDamaged
from session_store.chain import FORMAT
from session_store.salvage import Lost
from tests.fake_provider import counting, serving
from tests.pod.pods import living, manifest
from tests.session_store.builders import (
    a_store,
    a_turn,
    audit,
    begun,
    lines_of,
    put_lines,
    texts,
    told,
)
from tests.session_store.test_formats import with_format
from worker.items import Text, UserMessage, user_message

ENTRIES_A_TURN = 8


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def forked(store: FileSessionStore, parent: str, turn: int) -> str:
    """A fork at the head, with a turn of its own."""
    fork = store.fork(parent)
    with store.open(fork) as session:
        a_turn(session, turn)

    return fork


def turn(number: int) -> list[str]:
    words = ("question {}", "let me see {}", "looked", "answer {}")
    return [word.format(number) for word in words]


def flip(store: FileSessionStore, session_id: str, seq: int) -> None:
    lines = lines_of(store, session_id)
    lines[seq] = lines[seq][:-3] + bytes([lines[seq][-3] ^ 1]) + lines[seq][-2:]
    put_lines(store, session_id, lines)


def files(store: FileSessionStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.layout.sessions.glob("*.jsonl")}


def goes_on(store: FileSessionStore, session_id: str) -> None:
    """It verifies, is written, forked and listed as any other."""
    assert store.verify(session_id).ok
    with store.open(session_id) as session:
        a_turn(session, 9)

    assert texts(store.restore(store.fork(session_id)).history)[-4:] == turn(9)
    assert store.verify(session_id).ok
    (info,) = [info for info in store.sessions() if info.session_id == session_id]
    assert (info.damaged, info.items) == (None, len(store.restore(session_id).history))
    audit(store.layout.log(session_id))


def test_what_is_left_of_the_parent_and_all_of_the_fork_go_on(store: FileSessionStore) -> None:
    parent = told(store, 3)
    fork = forked(store, parent, 4)
    store.set_pointer("probe", fork)
    flip(store, parent, 1 + ENTRIES_A_TURN)
    before = files(store)

    report = store.salvage(fork)

    new = report.new_session_id
    assert {name: data for name, data in files(store).items() if name in before} == before
    lost = Lost(
        first_seq=1 + ENTRIES_A_TURN,
        last_seq=3 * ENTRIES_A_TURN,
        bytes=0,
        reason="does not verify",
        inherited_from=parent,
    )
    assert (report.lost, report.entries_kept) == ((lost,), 1 + ENTRIES_A_TURN)
    state = store.restore(new)
    assert texts(state.history) == [*turn(1), *turn(4)]
    assert (state.pod, state.system_prompt, state.config) == ("probe", "Be brief.", {"model": "m"})
    assert (state.recovered_from or ("",))[0] == fork
    assert (state.forked_from, state.turns, state.title) == (None, 2, "question 1")
    assert store.pointer("probe") == new
    assert not store.may_be_pointed_at(new), "what came of a fork is no place for a pod's pointer"
    assert [step[0] for step in store.lineage(new)][-2:] == [fork, new]
    goes_on(store, new)


def put_in_zeros(store: FileSessionStore, parent: str) -> None:
    lines = lines_of(store, parent)
    put_lines(store, parent, [*lines[:3], b"\0" * 300, *lines[3:]])


def glue(store: FileSessionStore, parent: str) -> None:
    lines = lines_of(store, parent)
    put_lines(store, parent, [*lines[:3], lines[3] + lines[4], *lines[5:]])


@pytest.mark.parametrize("damage", [put_in_zeros, glue])
def test_where_no_entry_is_missing_nothing_is(
    store: FileSessionStore, damage: Callable[[FileSessionStore, str], None]
) -> None:
    parent = told(store, 2)
    fork = forked(store, parent, 3)
    whole = store.restore(fork)
    damage(store, parent)
    with pytest.raises(SessionDamaged):
        store.restore(fork)

    report = store.salvage(fork)
    state = store.restore(report.new_session_id)
    assert report.lost == ()
    assert (state.history, state.usage, state.totals) == (whole.history, whole.usage, whole.totals)
    goes_on(store, report.new_session_id)


def test_a_parent_that_is_gone_leaves_what_the_fork_has_itself(store: FileSessionStore) -> None:
    parent = told(store, 2)
    fork = forked(store, parent, 3)
    store.layout.log(parent).unlink()

    report = store.salvage(fork)

    (lost,) = report.lost
    assert (lost.inherited_from, lost.first_seq, lost.last_seq) == (parent, 0, None)
    assert lost.reason == "is not there"
    state = store.restore(report.new_session_id)
    assert texts(state.history) == turn(3)
    assert (state.pod, state.system_prompt) == ("probe", "")
    goes_on(store, report.new_session_id)


@pytest.mark.parametrize("damage", ["first line", "no file", "in the middle", "empty"])
def test_what_is_whole_between_two_gaps_is_kept(store: FileSessionStore, damage: str) -> None:
    root = told(store, 2)
    parent = forked(store, root, 3)
    fork = forked(store, parent, 4)
    if damage == "no file":
        store.layout.log(root).unlink()
    elif damage == "empty":
        store.layout.log(root).write_bytes(b"")
    else:
        flip(store, root, 0 if damage == "first line" else 1 + ENTRIES_A_TURN)

    report = store.salvage(fork)

    assert [lost.inherited_from for lost in report.lost] == [root]
    left = turn(1) if damage == "in the middle" else []
    state = store.restore(report.new_session_id)
    assert texts(state.history) == [*left, *turn(3), *turn(4)]
    goes_on(store, report.new_session_id)


def test_damage_of_the_fork_itself_comes_on_top(store: FileSessionStore) -> None:
    parent = told(store, 2)
    fork = forked(store, parent, 3)
    flip(store, parent, 1 + ENTRIES_A_TURN)
    flip(store, fork, 5)

    report = store.salvage(fork)

    assert [lost.inherited_from for lost in report.lost] == [parent, None, None]
    assert [lost.first_seq for lost in report.lost] == [1 + ENTRIES_A_TURN, 5, 6]
    state = store.restore(report.new_session_id)
    assert texts(state.history) == [*turn(1), *turn(3)[:3]]
    assert state.interrupted
    goes_on(store, report.new_session_id)


def test_what_counts_items_that_are_lost_counts_those_that_are_there(
    store: FileSessionStore,
) -> None:
    """An amendment of what is lost, a watermark and usage of what was longer."""
    with begun(store) as session:
        a_turn(session, 1)
        a_turn(session, 2)
        parent = session.session_id

    whole = store.restore(parent).history
    fork = store.fork(parent)
    with store.open(fork) as session:
        lost_item, kept_item = whole[4], whole[0]
        assert isinstance(lost_item, UserMessage)
        assert isinstance(kept_item, UserMessage)
        said = user_message("own")
        session.append_items("user_input", [said])
        session.append("item_amended", item=evolve(lost_item, parts=(Text("changed"),)))
        session.append("item_amended", item=evolve(kept_item, parts=(Text("changed too"),)))
        session.append("item_amended", item=evolve(said, parts=(Text("own, changed"),)))
        for index, uid in ((7, whole[6].uid), (9, said.uid)):
            session.append(
                "prune_advanced", upto_index=index, upto_uid=uid, items=1, est_savings=1, reason="x"
            )

        session.append("usage", history_len=9, input_tokens=500, output_tokens=5, model="m")
        a_turn(session, 3)

    flip(store, parent, 1 + ENTRIES_A_TURN)
    report = store.salvage(fork)

    state = store.restore(report.new_session_id)
    assert texts(state.history) == ["changed too", *turn(1)[1:], "own, changed", *turn(3)]
    assert state.watermark == 5
    assert all(record.history_len <= len(state.history) for record in state.usage)
    assert state.totals.input_tokens > 500
    assert [(lost.first_seq, lost.reason) for lost in report.lost if not lost.inherited_from] == [
        (2, "changes what is lost")
    ]
    goes_on(store, report.new_session_id)


@pytest.mark.parametrize("how", ["no entries of its own", "all of it damaged"])
def test_where_nothing_is_left_nothing_is_made(store: FileSessionStore, how: str) -> None:
    parent = told(store, 1)
    fork = store.fork(parent) if how == "no entries of its own" else forked(store, parent, 2)
    store.layout.log(parent).unlink()
    if how != "no entries of its own":
        flip(store, fork, 1)

    with pytest.raises(SessionDamaged, match="nothing of it can be salvaged"):
        store.salvage(fork)

    assert store.ids() == [fork]


def test_what_was_amended_between_two_sessions_is_left_out_where_it_is_lost(
    store: FileSessionStore,
) -> None:
    root = told(store, 2)
    second = store.restore(root).history[4]
    assert isinstance(second, UserMessage)
    parent = store.fork(root)
    with store.open(parent) as session:
        session.append("item_amended", item=evolve(second, parts=(Text("changed"),)))
        a_turn(session, 3)

    fork = forked(store, parent, 4)
    flip(store, root, 1 + ENTRIES_A_TURN)
    report = store.salvage(fork)
    history = store.restore(report.new_session_id).history
    assert texts(history) == [*turn(1), *turn(3), *turn(4)]
    goes_on(store, report.new_session_id)


@pytest.mark.parametrize("generations", [1, 2])
def test_a_parent_of_a_newer_format_is_not_taken_for_damaged(
    store: FileSessionStore, generations: int
) -> None:
    root = fork = told(store, 1)
    for number in range(generations):
        fork = forked(store, fork, 2 + number)

    with_format(store, root, FORMAT + 1)
    with pytest.raises(SessionDamaged, match=f"of format {FORMAT + 1}"):
        store.salvage(fork)

    assert len(store.ids()) == 1 + generations


def test_what_names_a_lost_session_and_needs_nothing_of_it(store: FileSessionStore) -> None:
    """What was compacted from it, and a fork with a history of its own."""
    old = told(store, 2)
    compacted = store.save_compacted(old, store.restore(old).history[-4:])
    deep = old
    for _ in range(8):
        deep = store.fork(deep)

    copied = store.fork(deep)
    assert audit(store.layout.log(copied))[0]["history"] is not None
    flip(store, old, 1)
    store.layout.log(deep).unlink()
    for session_id, items in ((compacted, 4), (copied, 8)):
        assert not store.verify(session_id).ok
        report = store.salvage(session_id)
        assert report.lost == ()
        assert len(store.restore(report.new_session_id).history) == items
        goes_on(store, report.new_session_id)


@pytest.mark.anyio
async def test_a_pod_goes_on_with_it(home: Path, store: FileSessionStore) -> None:
    parent = told(store, 2)
    fork = forked(store, parent, 3)
    flip(store, parent, 1 + ENTRIES_A_TURN + 2)
    new = store.salvage(fork).new_session_id
    with serving(counting) as served:
        async with living(manifest(home, served.base_url), home, resume=new) as story:
            assert (await story.pod.run("and now?")).outcome == "finished"

        sent = served.asked[0].text
        assert all(words in sent for words in ("answer 1", "question 3", "answer 3", "and now?"))
        assert "answer 2" not in sent


def test_the_command_says_what_is_missing_of_which_session(store: FileSessionStore) -> None:
    from click.testing import CliRunner

    parent = told(store, 2)
    fork, other = forked(store, parent, 3), forked(store, parent, 4)
    flip(store, parent, 1 + ENTRIES_A_TURN)
    done = CliRunner().invoke(sessions, ["salvage", fork])
    assert done.exit_code == 0, done.output
    assert f"  inherited entries 9–16 of session {parent}: does not verify\n" in done.stdout
    store.layout.log(parent).unlink()
    done = CliRunner().invoke(sessions, ["salvage", other])
    assert f"  all that it inherits of session {parent}: is not there\n" in done.stdout


@pytest.mark.parametrize("seed", range(30))
def test_any_damage_of_a_parent_leaves_a_session_that_verifies(
    store: FileSessionStore, seed: int
) -> None:
    """What can be read of the parent comes first, then all of the fork, and nothing else."""
    chance = random.Random(seed)  # noqa: S311  a repeatable choice, no secret
    parent = told(store, 2)
    fork = forked(store, parent, 3)
    whole = store.restore(fork).history
    path = store.layout.log(parent)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + chance.randrange(1, 200)] = b""
            case 2:
                data[at:at] = chance.randbytes(30)
            case _:
                data[at : at + 50] = b"\0" * 50

    path.write_bytes(data)
    if store.verify(fork).ok:  # only what comes after the fork, or nothing, was changed
        return

    with suppress(SessionDamaged):
        store.verify(parent)

    new = store.salvage(fork).new_session_id
    history = store.restore(new).history
    assert history[-4:] == whole[-4:]
    assert history[:-4] == whole[: len(history) - 4]
    goes_on(store, new)
