"""Payloads of more than 1 MiB are kept beside the log, and nobody notices."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from session_store import Disk, FileSessionStore, SessionDamaged, StorageFailed
from session_store.blobs import INLINE_BYTES
from tests.session_store.builders import a_call, a_store, answer, audit, begun, result_of
from tests.session_store.faults import FailingDisk
from worker.items import Image, Item, Text, ToolResult, UserMessage, new_uid

BIG = "é\u2028" * (INLINE_BYTES // 3)
PICTURE = bytes(range(256)) * 8192


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


def big_items() -> list[Item]:
    call = a_call()
    return [
        UserMessage(new_uid(), (Text("look"), Image("image/png", PICTURE), Text(BIG))),
        answer("looking", call),
        result_of(call, BIG),
    ]


def told_big(store: FileSessionStore) -> tuple[str, list[Item]]:
    items = big_items()
    with begun(store, history=items[:1]) as session:
        session.append_items("tool_results", items[1:])
        return session.session_id, items


def test_a_large_payload_is_in_a_file_named_by_its_hash(store: FileSessionStore) -> None:
    session_id, items = told_big(store)
    start, results = audit(store.layout.log(session_id))
    assert store.layout.log(session_id).stat().st_size < 4000
    text = hashlib.sha256(BIG.encode()).hexdigest()
    picture = hashlib.sha256(PICTURE).hexdigest()
    parts = start["history"][0]["parts"]
    assert parts[1]["data"] == {"blob": picture, "bytes": len(PICTURE), "base64": True}
    assert parts[2]["text"] == {"blob": text, "bytes": len(BIG.encode())}
    assert results["items"][1]["content"] == {"blob": text, "bytes": len(BIG.encode())}
    assert sorted(path.name for path in store.layout.blobs.iterdir()) == sorted([text, picture])
    assert (store.layout.blobs / picture).read_bytes() == PICTURE, "the picture itself"

    assert store.restore(session_id).history == items
    assert store.restore(store.fork(session_id)).history == items
    assert store.restore(store.save_compacted(session_id, items)).history == items
    assert [e.data["items"][1]["content"] for e in store.entries(session_id) if e.seq == 1] == [BIG]
    with store.open(session_id) as session:
        assert session.state.history == items


def test_what_fits_stays_in_the_line(store: FileSessionStore) -> None:
    many = [result_of(a_call(), "x" * (INLINE_BYTES // 2)) for _ in range(4)]
    with begun(store) as session:
        session.append_items("tool_results", many)
        session.append("extension", domain="d", payload="x" * (INLINE_BYTES + 9))

    assert not store.layout.blobs.exists()
    assert store.restore(session.session_id).history == many


def test_an_item_that_speaks_of_blobs_is_left_alone(store: FileSessionStore) -> None:
    said = '{"blob":"' + "0" * 64 + '","bytes":1}'
    item = ToolResult(new_uid(), "c", "u", said, '"blob":', is_error=False)
    with begun(store) as session:
        session.append_items("tool_results", [item])
        session.append("extension", domain="d", payload={"blob": "x", "bytes": 1})

    state = store.restore(session.session_id)
    assert state.history == [item]
    assert state.extensions == {"d": [{"blob": "x", "bytes": 1}]}
    assert store.verify(session.session_id).ok


@pytest.mark.parametrize("harm", ["gone", "changed", "a link"])
def test_a_blob_that_is_not_as_it_was_is_damage(
    store: FileSessionStore, tmp_path: Path, harm: str
) -> None:
    session_id, _ = told_big(store)
    path = store.layout.blobs / hashlib.sha256(BIG.encode()).hexdigest()
    good = path.read_bytes()
    if harm == "gone":
        path.unlink()
    elif harm == "changed":
        path.write_bytes(good[:-1] + b"X")
    else:
        (tmp_path / "outside").write_bytes(good)
        path.unlink()
        path.symlink_to(tmp_path / "outside")

    report = store.verify(session_id)
    assert (report.ok, report.first_bad_seq, report.entries) == (False, 0, 2)
    assert path.name in (report.reason or "")
    for use in (store.restore, store.open):
        with pytest.raises(SessionDamaged, match=path.name):
            use(session_id)

    # Stored anew, by whatever holds the same payload, it is whole again.
    told_big(store)
    assert path.read_bytes() == good
    assert not path.is_symlink()
    assert store.verify(session_id).ok


def test_a_name_that_is_none_reaches_no_path(store: FileSessionStore) -> None:
    bad = {"type": "tool_result", "content": {"blob": "../../etc/passwd", "bytes": 1}}
    with begun(store) as session:
        session.append("tool_results", items=[bad])

    with pytest.raises(SessionDamaged, match="names a blob that is none"):
        store.restore(session.session_id)


def test_a_blob_is_durable_before_the_entry_that_names_it(home: Path) -> None:
    order: list[str] = []

    class Noting(Disk):
        def sync(self, fd: int) -> None:
            order.append(Path(f"/proc/self/fd/{fd}").readlink().parent.name)
            super().sync(fd)

    with begun(a_store(home, disk=Noting())) as session:
        order.clear()
        session.append_items("user_input", big_items()[:1])
        assert order == ["blobs", "blobs", "sessions"]


def test_without_the_blob_there_is_no_entry(home: Path) -> None:
    with begun(a_store(home)) as session:
        session_id = session.session_id

    for at in range(1, 40):
        disk = FailingDisk(10**9, OSError(28, "full"))
        store = a_store(home, disk=disk)
        session = store.open(session_id)
        disk.strike_in(at)
        try:
            session.append_items("user_input", big_items()[:1])
        except StorageFailed:
            disk.mend()
            session.close()
            assert a_store(home).verify(session_id).ok
        else:
            session.close()
            break

    assert at > 5
