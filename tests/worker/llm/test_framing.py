"""Where events end: any split of the bytes, limits, reports between events, JSON lines."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import httpx
import httpx_sse
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import BadAnswer
from worker.llm.endpoint import StreamLimits
from worker.llm.framing import Framer, fault_of, framer_for
from worker.llm.scheme import Framing

ERROR = '{\n  "error": {\n    "code": 503,\n    "message": "overloaded"\n  }\n}'


def cut(framer: Framer, *pieces: bytes) -> list[str]:
    """The data of every event in `pieces`, the end of the body included."""
    texts = [text for piece in pieces for text in framer.feed(piece)]
    return [*texts, *framer.close()]


def sse(*pieces: bytes, **limits: int) -> list[str]:
    return cut(framer_for("sse", b"d", StreamLimits(**limits), "p"), *pieces)


def lines(*pieces: bytes) -> list[str]:
    return cut(framer_for("ndjson", b"{", StreamLimits(), "p"), *pieces)


def split(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % len(body) for cut in cuts if body}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(edges)]


# --- server-sent events -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\n\ndata:  b\n\n", ["a", " b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data\n\ndata:\n\ndata: x\n\n", ["x"]),
        (b"data: a\ndata\ndata: b\n\n", ["a\n\nb"]),
        (b": hello\n\nevent: x\nid: 7\nretry: 5\ndata: a\n\nevent: y\n\n", ["a"]),
        (b"\n\n\ndata: a\n\n\n\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"dataset: no\ndata: a\n\n", ["a"]),
        # An event without its blank line was cut off.
        (b"data: a\n\ndata: b\n", ["a"]),
        (b"data: a\n\ndata: b", ["a"]),
        # Of what is not UTF-8, the rest is kept.
        (b"data: a\xffb\n\n", ["a\ufffdb"]),
        ("data: a\u2028b\u2029c\x85d\x0be\x0cf\n\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf"]),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_of_any_line_end_in_pieces_of_any_size(
    body: bytes, texts: list[str], newline: bytes, size: int
) -> None:
    body = body.replace(b"\n", newline)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert sse(*pieces) == texts


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def _by_httpx_sse(pieces: list[bytes]) -> list[str]:
    headers = {"Content-Type": "text/event-stream; charset=utf-8-sig"}
    response = httpx.Response(200, headers=headers, stream=_Pieces(pieces))
    events = [event.data async for event in httpx_sse.EventSource(response).aiter_sse()]
    # What says nothing is left out.
    return [data for data in events if data.strip(" \n") not in {"", "ping"}]


_FRAGMENTS = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"\r", b"\n\n", b"data: ", b"data:", b"data", b": note", b"event: x"),
        *(b"id: 1", b"a", b" ", b'{"k":[1]}', "世界".encode(), "\u2028".encode(), b"retry: 1"),
    ]
)


@given(st.lists(_FRAGMENTS, max_size=30), st.lists(st.integers(0, 400), max_size=8))
def test_it_reads_what_httpx_sse_reads(fragments: list[bytes], cuts: list[int]) -> None:
    # A line that begins with a brace is ours to read, and a sign that the body is no stream.
    body = b"data: begin\n\n" + b"".join(fragments).replace(b"\n{", b"\n {").replace(
        b"\r{", b"\r {"
    )
    # So is an event that is whole and lacks its end.
    pieces = split(body + b"\n\n", cuts)
    assert sse(*pieces) == asyncio.run(_by_httpx_sse(pieces))


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (b'data: {"a":{"b":1}}', ['{"a":{"b":1}}']),
        (b'data: {"a":{"b":1}}\n', ['{"a":{"b":1}}']),
        (b"data: [DONE]", ["[DONE]"]),
        (b'data: {"a":\ndata: 1}', ['{"a":\n1}']),
        (b'data: {"a":{"b":1}', []),
        (b'data: {"a":\ndata: {}', []),
        (b"data: [DON", []),
        (b"data: words", []),
        (b"no healthy upstream", ["no healthy upstream"]),
        (b"no healthy upstream\nand more\n", ["no healthy upstream"]),
        (b'no stream\n\ndata: {"a":1}\n\n', ['{"a":1}']),
        *((half, []) for half in (b"d", b"dat", b"eve", b"event: mess", b": comm", b"retr", b"id")),
    ],
)
def test_what_stands_at_the_end_is_taken_where_it_is_whole(body: bytes, texts: list[str]) -> None:
    assert sse(body) == texts
    assert sse(*(body[at : at + 1] for at in range(len(body)))) == texts


@given(st.lists(st.text(max_size=30), max_size=6), st.lists(st.integers(0, 900), max_size=12))
def test_any_split_gives_the_same(values: list[str], cuts: list[int]) -> None:
    texts = [json.dumps({"value": value}, ensure_ascii=False) for value in values]
    clean = [text.encode("utf-8", "replace") for text in texts]
    body = b"".join(b"event: x\ndata: " + text + b"\n\n" for text in clean) or b"\n"
    expected = [text.decode() for text in clean]
    assert sse(*split(body, cuts)) == expected
    found = lines(*split(b"\r\n".join(clean) or b"\n", cuts))
    assert [text.removesuffix("\r") for text in found] == expected


@pytest.mark.parametrize(
    "event",
    [
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b'data: {"type":"ping"}\n\n',
        b'data: {"type":"keepalive","sequence_number":3}\n\n',
        b'data: { "type" : "keep-alive" }\n\n',
    ],
)
def test_a_keep_alive_is_no_event(event: bytes) -> None:
    assert sse(event, b"data: a\n\n", event) == ["a"]


def test_what_only_looks_like_a_keep_alive_is_one_event() -> None:
    text = '{"type": "pinged"}'
    assert sse(f"data: {text}\n\n".encode()) == [text]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("after", ["", "\n\n", "\n\ndata: b\n\n"])
def test_a_report_that_stands_bare_between_events_is_read(
    newline: str, size: int, after: str
) -> None:
    body = f"data: a\n\n{ERROR}{after}".replace("\n", newline).encode()
    found = sse(*(body[at : at + size] for at in range(0, len(body), size)))
    assert found[0] == "a"
    assert json.loads(found[1]) == json.loads(ERROR)
    assert found[2:] == (["b"] if "b" in after else [])


def test_other_bare_lines_are_no_report() -> None:
    assert sse(b'data: a\n\n{"some": "thing"}\n\ndata: b\n\n{ no json\n\n') == ["a", "b"]


# --- JSON lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (b'{"a":1}\n{"b":2}\n', ['{"a":1}', '{"b":2}']),
        (b'{"a":1}\r\n\r\n \n\t{"b":2}  \n\n', ['{"a":1}', '{"b":2}']),
        (b'\xef\xbb\xbf{"a":1}\n', ['{"a":1}']),
        # The last one needs no newline, and half of one is none.
        (b'{"a":1}\n{"b":2}', ['{"a":1}', '{"b":2}']),
        (b'{"a":1}\n{"b":', ['{"a":1}']),
        ('{"a":"b\u2028c\x85d"}\n{}\n'.encode(), ['{"a":"b\u2028c\x85d"}', "{}"]),
        (b'{"a":"b\\nc"}\n', ['{"a":"b\\nc"}']),
        # One value on several lines is a body in one piece.
        (b'{\n  "error": "model not found"\n}\n', ['{\n  "error": "model not found"\n}\n']),
        (b'{"error":"no"}', ['{"error":"no"}']),
        (b'{"error":', []),
        (b"nonsense", ["nonsense"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_json_lines_in_pieces_of_any_size(body: bytes, texts: list[str], size: int) -> None:
    found = lines(*(body[at : at + size] for at in range(0, len(body), size)))
    assert [text.strip() for text in found] == [text.strip() for text in texts]


# --- what is no stream --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framing", "first"), [("sse", b"{"), ("sse", b"["), ("sse", b"<"), ("ndjson", b"[")]
)
def test_a_body_that_is_no_stream_is_one_piece(framing: Framing, first: bytes) -> None:
    framer = framer_for(framing, first, StreamLimits(), "p")
    body = b"\xef\xbb\xbf" + first + b"\ndata: a\n\n"
    assert cut(framer, body[:5], body[5:]) == [body[3:].decode()]


# --- limits -------------------------------------------------------------------------------------

SMALL = StreamLimits(line_bytes=1000, event_bytes=3000)


@pytest.mark.parametrize(
    ("framing", "piece", "said"),
    [
        ("sse", b"x" * 100, "a line of over 1,000 bytes"),
        ("sse", b"data: x\n" * 10, "an event of over 3,000 bytes"),
        ("sse", b": ping\n\n" * 10, "an event of over 3,000 bytes"),
        ("sse", b'data: {"type":"ping"}\n\n', "an event of over 3,000 bytes"),
        ("ndjson", b'{"a":' + b" " * 100, "a line of over 1,000 bytes"),
        ("ndjson", b"\n" * 100, "an event of over 3,000 bytes"),
    ],
)
def test_what_never_becomes_an_event_is_refused(framing: Framing, piece: bytes, said: str) -> None:
    framer = framer_for(framing, b"d", SMALL, "p")

    def feed_for_ever() -> None:
        for _ in range(200):
            assert framer.feed(piece) == []
            framer.check()

    with pytest.raises(BadAnswer, match=said):
        feed_for_ever()


def test_what_is_handed_on_counts_no_more() -> None:
    framer = framer_for("sse", b"d", SMALL, "p")
    for _ in range(100):
        assert framer.feed(b"data: " + b"x" * 500 + b"\n\ndata: half") != []
        framer.check()
        framer.feed(b"\n\n")


def test_long_events_in_small_pieces_take_linear_time() -> None:
    body = b"data: " + b"x" * 900_000 + b"\n\n"
    (text,) = sse(*(body[at : at + 16] for at in range(0, len(body), 16)))
    assert len(text) == 900_000


# --- shape --------------------------------------------------------------------------------------

LIMITS = StreamLimits()


def nested(depth: int, *, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (nested(64), None),
        (nested(65), "64 deep"),
        (nested(65, opening='{"a":', closing="}"), "64 deep"),
        ("[" * 1000, "64 deep"),
        ("[" + "[]," * 99_000 + "[]]", None),
        ("[" + "[]," * 100_000 + "[]]", "100,000 objects"),
        ("[" + "{}," * 100_000 + "{}]", "100,000 objects"),
        # What stands in strings is no object.
        ('{"a":"' + "[{" * 500_000 + '"}', None),
        ('{"a":"\\"' + "[" * 500 + '\\\\"}', None),
        ('{"a":"' + "[" * 500, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_shape_of_an_event(text: str, fault: str | None) -> None:
    found = fault_of(text, LIMITS)
    assert found is None if fault is None else fault in (found or "")


_NESTED = st.recursive(
    st.none() | st.sampled_from(["", "[", '"', "\\"]), lambda inner: st.lists(inner, max_size=2)
)


@given(_NESTED)
def test_depth_is_that_of_the_value(value: object) -> None:
    def depth_of(value: object) -> int:
        return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0

    depth, text = depth_of(value), json.dumps(value)
    assert fault_of(text, StreamLimits(json_depth=depth)) is None
    if depth:
        assert fault_of(text, StreamLimits(json_depth=depth - 1)) is not None


def test_the_shape_of_a_hostile_string_takes_linear_time() -> None:
    assert fault_of('["' + '\\"' * 400_000 + "[" * 100, LIMITS) is None
