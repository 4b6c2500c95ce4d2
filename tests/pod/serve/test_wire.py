"""The line codec: any cut, any bytes, within limits; what is written is read as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.protocol import Envelope, ErrorInfo, RunEnd, TextDelta
from pod.protocol.methods import METHODS, RunParams
from pod.protocol.wire import (
    AnswerLine,
    Heartbeat,
    Hello,
    LineBuffer,
    Request,
    RequestId,
    UnknownLine,
    WireError,
    answer_line,
    error_line,
    heartbeat_line,
    hello_line,
    parse_request,
    parse_server_line,
    request_line,
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in at})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=8),
    rest=st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"")),
    at=st.lists(st.integers(0, 80), max_size=12),
)
def test_lines_come_out_whole_however_they_were_cut(
    lines: list[bytes], rest: bytes, at: list[int]
) -> None:
    limit = 8
    buffer = LineBuffer(limit)
    data = b"".join(line + b"\n" for line in lines) + rest
    got = [line for piece in cut(data, at) for line in buffer.feed(piece)]
    expected = [line if len(line) <= limit else None for line in lines]
    assert got == expected + ([None] if len(rest) > limit else [])
    assert buffer.held == (0 if len(rest) > limit else len(rest))


def test_a_line_that_never_ends_is_told_of_once_and_not_held() -> None:
    buffer = LineBuffer(1_000)
    told = [line for _ in range(100) for line in buffer.feed(b"x" * 100)]
    assert told == [None]
    assert buffer.held == 0
    assert buffer.feed(b'x\n{"id":1}\n') == [b'{"id":1}']


@pytest.mark.parametrize("request_id", [None, 0, 7, -1, "a", ""])
def test_a_request_is_read_as_it_was_written(request_id: RequestId) -> None:
    line = request_line("run", {"input": "hi\u2028\x85\n"}, request_id)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_request(line) == Request(request_id, "run", {"input": "hi\u2028\x85\n"})


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"", "bad_json", None),
        (b"this is not json", "bad_json", None),
        (b'{"id":1,"method":"run"', "bad_json", None),
        (b"\xff\xfe", "bad_json", None),
        (b"[" * 100_000, "bad_json", None),
        (b"[1]", "bad_request", None),
        (b"null", "bad_request", None),
        (b'{"id":3}', "bad_request", 3),
        (b'{"id":3,"method":""}', "bad_request", 3),
        (b'{"id":"x","method":7}', "bad_request", "x"),
        (b'{"id":3,"method":"run","params":[1]}', "bad_request", 3),
        (b'{"id":true,"method":"run"}', "bad_request", None),
        (b'{"id":{},"method":"run"}', "bad_request", None),
        (b'{"id":1.5,"method":"run"}', "bad_request", None),
    ],
)
def test_what_is_no_request_says_why(line: bytes, code: str, request_id: RequestId) -> None:
    with pytest.raises(WireError) as caught:
        parse_request(line)

    assert caught.value.code == code
    assert caught.value.id == request_id
    assert caught.value.message
    assert caught.value.hint


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_a_clear_refusal(line: bytes) -> None:
    try:
        parse_request(line)
    except WireError as error:
        assert error.code in {"bad_json", "bad_request"}  # noqa: PT017  both outcomes are right


def test_what_a_pod_writes_is_read_as_it_was() -> None:
    hello = Hello("reviewer", "f" * 32, 41, "0199", "0.1.0")
    beat = Heartbeat("f" * 32, 41, 1_796_058_210_123)
    error = ErrorInfo(code="busy", message="a run is going on already", hint="wait")
    delta = Envelope(3, "f" * 32, 5, TextDelta(text="hi"), first_seq=2)
    end = Envelope(4, "f" * 32, 6, RunEnd(outcome="finished", session_id="s"), ("s", 7))
    written = [
        hello_line(hello),
        heartbeat_line(beat),
        answer_line(1, {"session_id": "s"}),
        error_line(None, error),
        delta.to_json() + b"\n",
        end.to_json() + b"\n",
    ]
    assert [parse_server_line(line) for line in written] == [
        hello,
        beat,
        AnswerLine(1, ok={"session_id": "s"}),
        AnswerLine(None, error=error),
        delta,
        end,
    ]
    assert all(line.count(b"\n") == 1 for line in written)
    assert list(json.loads(written[0])["hello"]) == [
        "protocol",
        "pod",
        "launch",
        "seq",
        "session_id",
        "version",
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"event": "invented", "seq": 1, "launch": "l", "ts": 2, "data": {}},
        {"weather": "fine"},
    ],
)
def test_a_reader_passes_what_a_newer_pod_says(value: dict[str, Any]) -> None:
    assert parse_server_line(json.dumps(value).encode()) == UnknownLine(value)


@pytest.mark.parametrize("line", [b"", b"[]", b'{"event":"text_delta"}', b'{"hello":{}}'])
def test_a_line_that_cannot_be_read_is_an_error(line: bytes) -> None:
    with pytest.raises(WireError):
        parse_server_line(line)


def test_an_engine_may_say_what_is_no_json() -> None:
    line = answer_line(1, {"engine_status": {1: {2}, "path": object}})
    assert json.loads(line)["ok"]["engine_status"]["1"] == "{2}"


def test_every_method_has_its_models_described() -> None:
    assert set(METHODS) >= {
        *("run", "resume", "cancel", "pause", "new", "compact", "fork", "rewind"),
        *("get_history", "status", "subscribe", "approve", "shutdown"),
    }
    for name, method in METHODS.items():
        assert method.summary, name
        assert method.params.__doc__, name
        assert method.answer.__doc__, name

    assert RunParams(input="hi").images == ()
