from __future__ import annotations

import hashlib
import io
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_store.chain import START, Entry, EntryRef, Position, Walk, encode_entry

_HARD = ["a\u2028b\u2029c", "\x85\x0b\x0c\x1c", "nul \x00 in it", "\r\n\n", "😀é\u200b", '"\\']
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(_HARD),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def log_of(*fields: dict[str, Any]) -> bytes:
    data, position = b"", START
    for number, each in enumerate(fields):
        line, digest = encode_entry(position, 1000 + number, "note", each)
        data += line
        position = Position(position.seq + 1, digest, len(data))

    return data


def walked(data: bytes, start: Position = START) -> tuple[Walk, list[Any]]:
    walk = Walk(io.BytesIO(data), start)
    entries = list(walk)
    quick = Walk(io.BytesIO(data), start)
    quick.run()
    assert_same(quick, walk)
    return walk, entries


def assert_same(one: Walk, other: Walk) -> None:
    """Assert that both came to the same end."""
    assert (one.position, one.failure, one.head) == (other.position, other.failure, other.head)
    assert one.unterminated == other.unterminated


def test_a_line_is_as_the_format_says() -> None:
    line, digest = encode_entry(START, 1796058210123, "user_input", {"items": [1], "x": None})
    head, body = line[:75], line[75:-1]
    assert head == b'{"hash":"' + digest.encode() + b'",'
    assert digest == hashlib.sha256(body).hexdigest()
    assert line.endswith(b"\n")
    assert body == (
        b'"prev":"' + b"0" * 64 + b'","seq":0,"ts":1796058210123,'
        b'"kind":"user_input","items":[1],"x":null}'
    )


@given(st.lists(st.dictionaries(st.text().filter(lambda key: key not in _OWN), _JSON), max_size=5))
def test_what_goes_in_comes_out_of_a_walk(fields: list[dict[str, Any]]) -> None:
    data = log_of(*fields)
    assert data.count(b"\n") == len(fields), "no value ever makes a second line"
    walk, entries = walked(data)
    assert walk.failure is None
    assert walk.position.offset == len(data)
    assert [{k: v for k, v in e.data.items() if k not in _OWN} for e in entries] == fields
    assert b"".join(e.raw + b"\n" for e in entries) == data


_OWN = ("hash", "prev", "seq", "ts", "kind", "batch")


@given(st.text(st.characters(), max_size=30).filter(lambda text: text not in _OWN))
def test_any_text_gets_into_a_log_as_valid_utf8(text: str) -> None:
    (entry,) = walked(log_of({"text": text, text: [text]}))[1]
    entry.raw.decode("utf-8")
    assert "\ud800" not in json.dumps(entry.data, ensure_ascii=False)


def test_lone_surrogates_become_replacement_characters_the_same_way_each_time() -> None:
    fields = {"items": [{"text": "x\ud835y"}, ("\ud83c\udf78",)]}
    assert log_of(fields) == log_of(fields)
    (entry,) = walked(log_of(fields))[1]
    assert entry.data["items"] == [{"text": "x\ufffdy"}, ["\U0001f378"]]


@pytest.mark.parametrize("own", _OWN)
def test_an_entrys_own_keys_cannot_be_fields(own: str) -> None:
    with pytest.raises(TypeError, match=own):
        encode_entry(START, 1, "note", {own: 1})


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {3}}, 2**70])
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode_entry(START, 1, "note", {"value": value})


def test_a_walk_goes_on_from_where_an_earlier_one_stopped() -> None:
    data = log_of({"n": 0}, {"n": 1}, {"n": 2})
    first = walked(data)[1][0]
    walk, rest = walked(data, first.next)
    assert [entry.data["n"] for entry in rest] == [1, 2]
    assert walk.head == rest[-1].ref


def test_a_last_line_without_its_newline_is_an_entry() -> None:
    data = log_of({"n": 0}, {"n": 1})
    walk, entries = walked(data[:-1])
    assert len(entries) == 2
    assert walk.unterminated
    assert walk.position.offset == len(data), "the next line begins after the newline to come"


def test_a_line_whose_hash_leaves_its_end_out_does_not_verify() -> None:
    body = b'"prev":"' + b"0" * 64 + b'","seq":0,"ts":1,"kind":"note"}'
    walk, entries = walked(rehashed(body[:-1])[:-1] + b"}")
    assert entries == []
    assert walk.failure is not None


def test_the_quick_way_goes_on_once_the_last_line_is_finished() -> None:
    data = log_of({"n": 0}, {"n": 1}, {"n": 2})
    file = io.BytesIO(data[: data.rindex(b"\n", 0, -1)])
    walk = Walk(file)
    walk.run()
    assert (walk.position.seq, walk.unterminated) == (2, True)
    file.seek(0)
    file.write(data)
    walk.run()
    assert (walk.position.seq, walk.unterminated) == (3, False)


def rehashed(body: bytes) -> bytes:
    return b'{"hash":"' + hashlib.sha256(body).hexdigest().encode() + b'",' + body + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "is not an entry"),
        (b"\x00" * 300 + b"\n", "is not an entry"),
        (b'{"hash":"' + b"0" * 64 + b'","prev":1}\n', "does not match its hash"),
        (rehashed(b"not json"), "is not JSON"),
        (rehashed(b'"prev":"x","seq":1,"ts":1}'), "is not an entry"),
        (rehashed(b'"prev":"x","seq":1,"ts":1,"kind":7}'), "is not an entry"),
        (rehashed(b'"prev":"x","seq":1,"ts":1,"kind":"note"}'), "does not follow entry 0"),
    ],
)
def test_what_does_not_verify_is_named(line: bytes, reason: str) -> None:
    good = log_of({"n": 0})
    walk, entries = walked(good + line + b"more")
    assert len(entries) == 1
    assert walk.failure is not None
    failure = walk.failure
    assert (failure.seq, failure.reason, failure.offset) == (1, reason, len(good))
    assert (failure.last, failure.terminated, failure.size) == (False, True, len(line))


def test_more_that_must_hold_of_a_line() -> None:
    good = log_of({"n": 0})
    prev = json.loads(good)["hash"].encode()
    start = b'"prev":"' + prev + b'","seq":'
    for rest, reason in [
        (b'1.0,"ts":1,"kind":"note"}', "does not follow entry 0"),
        (b'true,"ts":1,"kind":"note"}', "does not follow entry 0"),
        (b'2,"ts":1,"kind":"note"}', "does not follow entry 0"),
        (b'1,"kind":"note"}', "has no time"),
        (b'1,"ts":1.5,"kind":"note"}', "has no time"),
        (b'1,"ts":1,"kind":7}', "is not an entry"),
        (b'1,"ts":1,"kind":"note","hash":"' + b"0" * 64 + b'"}', "is not an entry"),
    ]:
        walk, _ = walked(good + rehashed(start + rest))
        assert walk.failure is not None
        assert walk.failure.reason == reason, rest

    assert walked(rehashed(start + b'1,"ts":1,"kind":"note"}'))[0].failure.reason == (  # type: ignore[union-attr]  # it failed
        "is not the first of a log"
    )


def test_the_hash_begins_at_its_place_and_ends_there() -> None:
    # What is hashed begins at byte 75, which is one byte further here than it should be.
    for opening in (b'{ "hash":"', b'{"hash": "'):
        body = b',"prev":"' + b"0" * 64 + b'","seq":0,"ts":1,"kind":"note"}'
        digest = hashlib.sha256(body).hexdigest().encode()
        walk, entries = walked(opening + digest + b'"' + body + b"\n")
        assert entries == []
        assert walk.failure is not None


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_a_walk_raise(data: bytes) -> None:
    walk, entries = walked(data)
    assert entries == []
    assert (walk.failure is None) == (data == b"")


@settings(max_examples=300)
@given(st.integers(0, 10**9))
def test_the_quick_way_through_a_log_finds_what_the_slow_way_finds(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # a repeatable choice, no secret
    fields = [
        {"n": number, "text": chance.choice(("x", "{", '"blob":', "blob", "\n", "long" * 10_000))}
        | ({"blob": {"blob": "0" * 64}} if chance.random() < 0.2 else {})
        for number in range(chance.randint(1, 6))
    ]
    data = bytearray(log_of(*fields))
    for _ in range(chance.choice((0, 0, 1, 2))):
        data[chance.randrange(len(data))] = chance.choice((10, 32, 34, 44, 48, 49, 123, 125))

    whole = bytes(data)[: chance.choice((len(data), len(data), len(data) - 1, len(data) // 2))]
    if chance.random() < 0.2:
        whole += rehashed(b'"prev":"x","seq":1,"ts":1,"kind":"note"}')

    anchor = None
    if chance.random() < 0.4:
        seq = chance.randrange(len(fields))
        hashes = [entry.hash for entry in walked(log_of(*fields))[1]]
        anchor = EntryRef(seq, chance.choice((hashes[seq], "0" * 64)))

    slow = Walk(io.BytesIO(whole), anchor=anchor)
    marked = [entry for entry in slow if b'"blob":' in entry.raw]
    quick, seen = Walk(io.BytesIO(whole), anchor=anchor), list[Entry]()
    quick.run(b'"blob":', seen.append)
    assert seen == marked
    assert_same(quick, slow)


def test_the_quick_way_sees_every_flip_of_every_byte() -> None:
    data = log_of({"n": 0}, {"n": 1})
    for offset in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[offset] ^= 1 << bit
            walk = Walk(io.BytesIO(flipped))
            walk.run()
            assert walk.failure is not None or walk.unterminated, (offset, bit)
