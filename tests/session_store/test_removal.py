"""Removing takes away one session and nothing that another one needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from session_store import (
    FileSessionStore,
    InvalidSessionId,
    SessionIndex,
    SessionInUse,
    SessionNotFound,
    StillNeeded,
    StorageFailed,
)
from tests.session_store.builders import (
    a_store,
    a_turn,
    begun,
    lines_of,
    put_lines,
    texts,
    told,
)
from tests.session_store.faults import FailingDisk, PowerCut
from worker.items import Image, Text, UserMessage, new_uid, user_message

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def with_image(store: FileSessionStore, byte: int = 1) -> str:
    image = Image("image/png", bytes([byte]) * (2 << 20))
    with begun(store) as session:
        session.append_items("user_input", [UserMessage(new_uid(), (Text("look"), image))])
        return session.session_id


def blobs(store: FileSessionStore) -> list[str]:
    if not store.layout.blobs.exists():
        return []

    return sorted(path.name for path in store.layout.blobs.iterdir() if len(path.name) == 64)


def files(store: FileSessionStore) -> list[str]:
    return sorted(path.name for path in store.layout.sessions.iterdir())


# --- rm ------------------------------------------------------------------------------------------


def test_all_of_it_is_gone_and_nothing_else(store: FileSessionStore) -> None:
    session_id = with_image(store)
    with store.layout.log(session_id).open("ab") as log:
        log.write(b'{"hash":"torn')

    store.open(session_id).close()
    assert any(".torn-" in name for name in files(store))
    (store.layout.sessions / f".{session_id}.jsonl.{'0' * 32}.tmp").write_bytes(b"left by a crash")
    other = told(store, 1)
    kept = {name for name in files(store) if name.startswith(other)}
    usage = {one.session_id: one.bytes for one in store.usage_on_disk().sessions}

    report = store.remove(session_id)

    assert set(files(store)) == kept
    assert blobs(store) == []
    assert (report.session_id, report.detached, report.pods) == (session_id, (), ())
    assert report.bytes >= usage[session_id] > 2 << 20
    assert store.verify(other).ok
    assert [info.session_id for info in store.sessions()] == [other]
    with pytest.raises(SessionNotFound):
        store.remove(session_id)


def test_a_pod_that_was_on_it_is_on_none(store: FileSessionStore) -> None:
    session_id, other = told(store, 1), told(store, 1)
    store.set_pointer("probe", session_id)
    store.set_pointer("else", other)
    assert store.remove(session_id).pods == ("probe",)
    assert store.pointer("probe") is None
    assert store.pointer("else") == other


@pytest.mark.parametrize("how", ["fork", "rewind", "compact", "deep"])
def test_what_others_came_from_is_kept_and_they_are_named(
    store: FileSessionStore, how: str
) -> None:
    session_id = told(store, 1)
    head = store.restore(session_id).head.hash
    if how == "compact":
        child = store.save_compacted(session_id, [user_message("so far")])
    else:
        child = store.rewind(session_id, head) if how == "rewind" else store.fork(session_id)

    if how == "deep":
        store.fork(child)

    before = files(store)
    with pytest.raises(StillNeeded) as refused:
        store.remove(session_id)

    assert child in refused.value.message
    assert "--detach" in refused.value.hint
    assert refused.value.by == ((child, "compact" if how == "compact" else "fork"),)
    assert set(files(store)) == set(before)


def test_the_damaged_one_may_go_once_it_was_salvaged(store: FileSessionStore) -> None:
    session_id = told(store, 1)
    lines = lines_of(store, session_id)
    put_lines(store, session_id, [*lines[:-1], lines[-1][:-4] + b"xxxx"])
    new = store.salvage(session_id).new_session_id
    store.remove(session_id)
    assert store.verify(new).ok
    assert store.ids() == [new]


def test_one_that_is_written_is_refused(store: FileSessionStore) -> None:
    with begun(store) as session:
        with pytest.raises(SessionInUse):
            store.remove(session.session_id)

        session.append("turn_end", turn=1)

    assert store.verify(session.session_id).entries == 2


@pytest.mark.parametrize("text", ["../x", "", "x", None])
def test_what_is_no_id_never_reaches_a_path(store: FileSessionStore, text: str) -> None:
    for use in (store.remove, store.detach, store.salvage, store.uncompact):
        with pytest.raises(InvalidSessionId):
            use(text)


def test_what_is_not_there_is_told_and_leaves_no_lock(store: FileSessionStore) -> None:
    told(store, 1)
    before = files(store)
    with pytest.raises(SessionNotFound):
        store.remove(NOBODY)

    assert files(store) == before


# --- blobs ---------------------------------------------------------------------------------------


def test_blobs_that_others_name_stay(store: FileSessionStore) -> None:
    first, second = with_image(store), with_image(store)
    alone = with_image(store, 2)
    assert len(blobs(store)) == 2
    store.remove(first)
    assert len(blobs(store)) == 2
    assert store.verify(second).ok
    store.remove(alone)
    assert len(blobs(store)) == 1
    assert store.verify(second).ok


def test_a_blob_that_somebody_is_about_to_name_stays(store: FileSessionStore) -> None:
    session_id = with_image(store)
    (blob,) = blobs(store)
    written = store.layout.log(session_id).stat().st_mtime
    # Another writer found it there and will name it in a moment.
    store.disk.touch(store.layout.blobs / blob)
    assert (store.layout.blobs / blob).stat().st_mtime > written
    store.remove(session_id)
    assert blobs(store) == [blob]
    assert store.usage_on_disk().unused_blobs == 2 << 20


def test_storing_a_blob_again_marks_it_as_new(store: FileSessionStore) -> None:
    with_image(store)
    (blob,) = blobs(store)
    before = (store.layout.blobs / blob).stat().st_mtime_ns
    with_image(store)
    assert (store.layout.blobs / blob).stat().st_mtime_ns > before


def test_logs_in_another_folder_count_too(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    here, there = a_store(home), a_store(home, sessions=elsewhere)
    ours, theirs = with_image(here), with_image(there)
    here.remove(ours)
    assert there.verify(theirs).ok

    ours = with_image(here)
    elsewhere.rename(tmp_path / "unplugged")
    here.remove(ours)
    (tmp_path / "unplugged").rename(elsewhere)
    assert there.verify(theirs).ok, "what cannot be seen may be needed"


# --- detach --------------------------------------------------------------------------------------


def test_a_detached_fork_is_what_it_was_without_its_parents(store: FileSessionStore) -> None:
    root = told(store, 2)
    parent = store.fork(root)
    with store.open(parent) as session:
        a_turn(session, 3)

    child = store.fork(parent)
    with store.open(parent) as session:
        a_turn(session, 4)

    with store.open(child) as session:
        a_turn(session, 5)
        report = store.detach(child)
        session.append("turn_end", turn=6)

    assert report.parents == (parent, root)
    before, log = store.restore(child), store.layout.log(child).read_bytes()

    store.remove(parent)
    store.remove(root)

    assert store.layout.log(child).read_bytes() == log, "its hashes are what they were"
    assert store.restore(child) == before
    assert store.verify(child).ok
    assert store.verify(child).entries == 10
    assert "question 4" not in texts(store.restore(child).history)
    assert store.ids() == [child]
    grandchild = store.fork(child)
    with store.open(grandchild) as session:
        a_turn(session, 7)

    assert store.verify(grandchild).ok
    (info,) = [one for one in store.sessions() if one.session_id == child]
    assert (info.turns, info.items, info.damaged) == (4, 16, None)


def test_a_kept_beginning_is_proved_by_the_same_hashes(store: FileSessionStore) -> None:
    parent = told(store, 2)
    child = store.fork(parent)
    store.remove(parent, detach=True)
    base = store.layout.base(parent)
    good = base.read_bytes()
    base.write_bytes(good.replace(b"question 2", b"question 9"))
    assert not store.verify(child).ok
    base.write_bytes(good)
    assert store.verify(child).ok


def test_removing_can_detach_what_came_from_it(store: FileSessionStore) -> None:
    parent = told(store, 3)
    early, late = (
        store.fork(parent, at=lines_of(store, parent)[8][9:73].decode()),
        store.fork(parent),
    )
    compacted = store.save_compacted(parent, [user_message("so far")])
    deep = store.fork(early)
    states = {each: store.restore(each) for each in (early, late, compacted, deep)}

    report = store.remove(parent, detach=True)

    assert sorted(report.detached) == sorted([early, late, compacted])
    assert store.ids() == sorted([early, late, compacted, deep])
    assert {each: store.restore(each) for each in states} == states
    assert all(found.ok for found in store.verify_all())
    assert store.lineage(deep)[-2:] == [(early, "fork"), (deep, "fork")]


def test_what_no_fork_needs_any_more_is_not_kept(store: FileSessionStore) -> None:
    parent = told(store, 3)
    first = lines_of(store, parent)[8][9:73].decode()
    child = store.fork(parent, at=first)
    compacted = store.save_compacted(parent, [user_message("so far")])
    size = store.layout.log(parent).stat().st_size
    store.remove(parent, detach=True)
    assert store.layout.base(parent).stat().st_size < size / 2, "only what the fork inherits"
    assert store.usage_on_disk().kept == store.layout.base(parent).stat().st_size
    store.remove(child)
    assert store.layout.base(parent).exists(), "it tells the other one that it went on purpose"
    store.remove(compacted)
    assert files(store) == []


def test_a_parent_that_vanished_by_itself_is_damage_as_ever(store: FileSessionStore) -> None:
    parent = told(store, 1)
    compacted = store.save_compacted(parent, [user_message("so far")])
    store.layout.log(parent).unlink()
    assert not store.verify(compacted).ok


def test_the_root_of_a_removed_parent_is_still_needed(store: FileSessionStore) -> None:
    root = told(store, 2)
    parent = store.fork(root)
    with store.open(parent) as session:
        a_turn(session, 3)

    child = store.fork(parent)
    store.remove(parent, detach=True)
    with pytest.raises(StillNeeded) as refused:
        store.remove(root)

    assert refused.value.by == ((child, "fork"),)
    store.remove(root, detach=True)
    assert store.verify(child).ok
    assert len(store.restore(child).history) == 12


def test_detaching_twice_or_what_stands_alone_changes_nothing(store: FileSessionStore) -> None:
    parent = told(store, 1)
    child = store.fork(parent)
    assert store.detach(child).bytes > 0
    before = files(store)
    assert store.detach(child).bytes == 0
    assert store.detach(parent).parents == ()
    assert files(store) == before


def test_the_blobs_of_what_is_inherited_stay(store: FileSessionStore) -> None:
    parent = with_image(store)
    child = store.fork(parent)
    store.remove(parent, detach=True)
    assert len(blobs(store)) == 1
    assert store.verify(child).ok
    (image,) = [
        p for item in store.restore(child).history for p in item.parts if isinstance(p, Image)
    ]
    assert len(image.data) == 2 << 20
    store.remove(child)
    assert blobs(store) == []


def test_a_removed_session_is_not_listed_opened_or_written(store: FileSessionStore) -> None:
    parent = told(store, 1)
    child = store.fork(parent)
    store.remove(parent, detach=True)
    assert [info.session_id for info in store.sessions()] == [child]
    with pytest.raises(SessionNotFound):
        store.open(parent)

    with pytest.raises(SessionNotFound, match="it was removed"):
        store.remove(parent)


def test_the_index_knows_what_is_inherited_from_what_is_gone(
    store: FileSessionStore, home: Path
) -> None:
    root = told(store, 2)
    parent = store.fork(root)
    with store.open(parent) as session:
        a_turn(session, 3)

    child = store.fork(parent)
    listed = {info.session_id: info for info in store.sessions()}[child]
    store.remove(parent, detach=True)
    (there,) = [info for info in store.sessions() if info.session_id == child]
    assert (there.turns, there.items, there.tokens) == (listed.turns, listed.items, listed.tokens)
    assert there.damaged is None
    for name in home.glob("index.db*"):
        name.unlink()

    assert there in SessionIndex(home).sessions(), "the same when it is made anew"
    store.remove(root, detach=True)
    assert there in store.sessions()


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_error", [PowerCut, lambda: OSError(5, "broken")])
def test_stopped_anywhere_removing_again_goes_on(
    home: Path, tmp_path: Path, make_error: type[BaseException]
) -> None:
    parent = with_image(a_store(home))
    child = a_store(home).fork(parent)
    with a_store(home).open(parent) as session:
        a_turn(session, 2)

    compacted = a_store(home).save_compacted(parent, [user_message("so far")])
    a_store(home).set_pointer("probe", parent)
    history = a_store(home).restore(child).history
    steps = 0
    for at in range(1, 100):
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(home, copy)
        disk = FailingDisk(at, make_error())
        try:
            a_store(copy, disk=disk).remove(parent, detach=True)
        except (PowerCut, StorageFailed):
            steps += 1

        store = a_store(copy)
        for other in (child, compacted):
            assert store.verify(other).ok, f"step {at}"

        assert store.restore(child).history == history
        if parent in store.ids():
            assert store.verify(parent).ok
        elif store.pointer("probe") is not None:
            raise AssertionError("a pod is on what is gone")

        try:
            store.remove(parent, detach=True)
        except SessionNotFound:
            assert store.ids() == sorted([child, compacted])

        left = [name for name in files(store) if not name.startswith((child, compacted))]
        assert [name for name in left if not name.endswith(".tmp")] == [f"{parent}.base"]
        assert store.verify(child).ok
        if not disk.struck:
            break

    assert steps > 15
