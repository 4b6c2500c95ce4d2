"""Whatever a log's file holds, reading it ends in a verdict or in one of the store's errors."""

from __future__ import annotations

import io
import random
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from session_store import FileSessionStore, SessionDamaged, SessionStoreError
from session_store.blobs import Blobs
from session_store.chain import START, Position, Walk, encode_entry
from session_store.index import SessionIndex
from tests.faults.figures import SEED, figure, report, shares, within
from tests.faults.lives import QuietDisk
from tests.session_store.builders import a_store, begun, told

RUNS = figure("FUZZ_RUNS", 6_000)
PARSED_RUNS = figure("PARSED_RUNS", 200_000)
PARTS = 4
HUGE_BYTES = figure("HUGE_LINE_MIB", 32) << 20

ODD = [
    b"\xef\xbb\xbf",  # a byte order mark
    b"\r\n",
    b"\r",
    b"\0",
    b"\n\n",
    "\u2028".encode(),
    "\u0085".encode(),
    b"\xff\xfe",
    b"\xed\xa0\x80",  # half a surrogate pair
    b'"blob":',
    b"1e999",
    b"-0",
    b"9" * 400,
    b"{" * 2000,
    b"[" * 2000 + b"]" * 2000,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b'"\\ud800"',
    b"null",
    b"true",
]
ODD_VALUES: list[object] = [
    *(None, True, 0, -1, 2**53, 0.5, "", "x", [], {}, [[]], [None], [1], [{}], {"a": 1}),
    *([{"type": "user_message"}], [{"type": "tool_result", "uid": 7}], {"blob": "x", "bytes": 1}),
    *([{"type": "user_message", "uid": "u", "parts": [{"blob": "0" * 64, "bytes": 2}]}], [["x"]]),
    *(["x", "y", "z"], ["01a22d69-5f4b-768f-a732-54847892a8e4", "0" * 64]),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    store = a_store(tmp_path_factory.mktemp("home"))
    session_id = told(store, 2)
    with store.open(session_id) as session:
        session.append("prune_advanced", upto_index=2, upto_uid="x", items=1, est_savings=9)
        session.append("approval", call_uid="c", decision="allow")
        session.append("config_changed", config={"model": "n"})
        session.append("compaction_started", trigger="manual")
        session.append("compaction_failed", trigger="manual", consecutive_failures=1)
        (message,) = session.state.history[:1]
        session.append("item_amended", item=message)
        session.append("recovered", offset=1, bytes=1, sidecar="s")

    return session_id, store.layout.log(session_id).read_bytes()


def changed_anywhere(data: bytes, chance: random.Random) -> bytes:
    """Bytes put in, taken out, changed, doubled; nothing fits its hash any more."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        end = min(len(data), at + chance.choice((0, 1, 8, 200, 3000)))
        data = data[:at] + chance.choice([*ODD, data[at:end] * 2, chance.randbytes(9)]) + data[end:]

    return data


def changed_within(data: bytes, chance: random.Random) -> bytes:
    """Entries that hold what none should, with hashes that fit."""
    lines, position = data.split(b"\n")[:-1], START
    wrong = set(chance.sample(range(len(lines)), k=chance.randint(1, 3)))
    made = b""
    for seq, before in enumerate(lines):
        fields = orjson.loads(before)
        kind, ts = fields["kind"], fields["ts"]
        fields = {k: v for k, v in fields.items() if k not in {"hash", "prev", "seq", "ts", "kind"}}
        if seq in wrong:
            key = chance.choice(
                [*fields, "history", "items", "item", "x", "forked_from", "carried"]
            )
            fields[key] = odd_value(fields.get(key), chance)
            kind = chance.choice((kind, kind, kind, "system_item", "item_amended", "new"))

        line, digest = encode_entry(position, ts, kind, fields)
        made += line
        position = Position(position.seq + 1, digest, len(made))

    return made


def odd_value(value: object, chance: random.Random) -> object:
    """Another value, or the same with one of its parts another."""
    if isinstance(value, list) and value and chance.random() < 0.6:
        at = chance.randrange(len(value))
        return [*value[:at], odd_value(value[at], chance), *value[at + 1 :]]

    if isinstance(value, dict) and value and chance.random() < 0.6:
        key = chance.choice(list(value))
        return {**value, key: odd_value(value[key], chance)}

    return chance.choice(ODD_VALUES)


def rehashed(data: bytes, chance: random.Random) -> bytes:
    """A line of odd bytes with a hash that fits, in the place of one of the lines."""
    lines = data.split(b"\n")[:-1]
    at = chance.randrange(len(lines))
    body = lines[at][75:]
    cut = chance.randint(0, len(body))
    body = (body[:cut] + chance.choice(ODD) + body[cut:]).replace(b"\n", b"")
    lines[at] = b'{"hash":"' + sha256(body).hexdigest().encode() + b'",' + body
    return b"\n".join([*lines, b""])


@within(60)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("change", [changed_anywhere, changed_within, rehashed])
def test_any_bytes_end_in_a_verdict_or_an_error_of_ours(
    ram: Path,
    good: tuple[str, bytes],
    part: int,
    change: Callable[[bytes, random.Random], bytes],
) -> None:
    session_id, data = good
    store = a_store(ram, disk=QuietDisk())
    store.disk.make_folder(store.layout.sessions)
    path = store.layout.log(session_id)
    runs, refused = shares(RUNS // 3, PARTS)[part], 0
    for number in range(runs):
        chance = random.Random(f"{SEED} {part} {number}")  # noqa: S311  a repeatable choice, no secret
        path.write_bytes(change(data, chance))
        path.chmod(0o600)
        refused += uses_it(store, session_id)

    report("T08 any bytes", runs=runs, refused=refused, other_errors=0)
    assert 0 < refused <= runs


@within(60)
@pytest.mark.parametrize("part", range(PARTS))
def test_any_bytes_end_the_walk_through_a_log_where_they_are(part: int) -> None:
    """Many more of them, in memory: what comes out is what was put in, up to the first change."""
    data, position = b"", START
    for fields in ({"n": 0}, {"text": "日本 \u2028"}, {"items": [{"uid": "a"}]}, {}):
        line, digest = encode_entry(position, 7, "note", fields)
        data += line
        position = Position(position.seq + 1, digest, len(data))

    good = [entry.hash for entry in Walk(io.BytesIO(data), START)]
    runs, refused = shares(PARSED_RUNS, PARTS)[part], 0
    chance = random.Random(f"{SEED} walk {part}")  # noqa: S311  a repeatable choice, no secret
    for _ in range(runs):
        changed = changed_anywhere(data, chance)
        slow, quick = (Walk(io.BytesIO(changed), START) for _ in range(2))
        found = [entry.hash for entry in slow]
        quick.run()
        assert (quick.position, quick.failure) == (slow.position, slow.failure)
        assert found == good[: len(found)]
        refused += slow.failure is not None

    report("T08 any bytes, walked", runs=runs, refused=refused, other_errors=0)
    assert refused > runs // 2


def uses_it(store: FileSessionStore, session_id: str) -> bool:
    """Read it in every way; tell whether it was refused."""
    refused = False
    store.verify(session_id)
    for use in (
        store.restore,
        lambda known: list(store.entries(known)),
        store.fork_point,
        store.lineage,
        lambda known: store.restore(known, "0" * 64),
        lambda known: store.open(known).close(),
    ):
        try:
            use(session_id)
        except SessionStoreError:
            refused = True

    return refused


def test_the_index_lists_what_it_can_of_any_bytes(home: Path, good: tuple[str, bytes]) -> None:
    session_id, data = good
    store = a_store(home, disk=QuietDisk())
    store.disk.make_folder(store.layout.sessions)
    path = store.layout.log(session_id)
    for number in range(60):
        chance = random.Random(number)  # noqa: S311  as above
        path.write_bytes(chance.choice([changed_anywhere, changed_within, rehashed])(data, chance))
        path.chmod(0o600)
        assert len(SessionIndex(home).sessions()) <= 1
        SessionIndex(home).search("question")


@pytest.mark.parametrize(("before", "after"), [("[", "]"), ('{"blob":', "}")])
@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900, 1000, 3000])
def test_nesting_without_end(home: Path, before: str, after: str, depth: int) -> None:
    """Also where every hash fits: a log may come from anywhere."""
    store = a_store(home)
    session_id = told(store, 1)
    path = store.layout.log(session_id)
    lines = path.read_bytes().split(b"\n")[:-1]
    head = orjson.loads(lines[-1])
    parts = before * depth + '"x"' + after * depth
    body = (
        f'"prev":"{head["hash"]}","seq":{len(lines)},"ts":{head["ts"]},"kind":"user_input",'
        f'"items":[{{"type":"user_message","uid":"u","parts":{parts},"blob":"x"}}]}}'
    ).encode()
    line = b'{"hash":"' + sha256(body).hexdigest().encode() + b'",' + body
    path.write_bytes(b"\n".join([*lines, line, b""]))
    assert uses_it(store, session_id)


def test_a_text_whose_blob_is_none(home: Path) -> None:
    store = a_store(home)
    with begun(store) as session:
        name = Blobs(store.disk, store.layout.blobs).put(b"\xff\xd8")
        text = {"type": "text", "text": {"blob": name, "bytes": 2}}
        item = {"type": "user_message", "uid": "u", "parts": [text], "origin": "user"}
        session.append("user_input", items=[item])

    with pytest.raises(SessionDamaged, match="that is no text"):
        store.restore(session.session_id)


@within(60)
@pytest.mark.parametrize("ends", [b"", b"\n"], ids=["endless", "ended"])
def test_a_huge_line_is_read_once_and_refused(
    ram: Path, good: tuple[str, bytes], ends: bytes
) -> None:
    session_id, _ = good
    store = a_store(ram, disk=QuietDisk())
    store.disk.make_folder(store.layout.sessions)
    path = store.layout.log(session_id)
    with path.open("wb") as log:
        log.write(b'{"hash":"' + b"0" * 64 + b'","x":"')
        log.truncate(HUGE_BYTES)
        log.seek(0, 2)
        log.write(ends)

    path.chmod(0o600)
    tracemalloc.start()
    try:
        assert store.verify(session_id).entries == 0
        with pytest.raises(SessionStoreError):
            store.restore(session_id)

        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    # A line is held whole, some times over; what is before and after it is not held at all.
    assert peak < 16 * HUGE_BYTES
    report("T08 huge line", mib=HUGE_BYTES >> 20, peak_mib=peak >> 20)
