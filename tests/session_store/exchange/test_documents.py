from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from session_store.exchange import documents
from session_store.exchange.documents import Bad, Begin, Element, End, Member, read_documents
from session_store.exchange.jsontext import Malformed, parse, storable
from tests.session_store.exchange.sources import put

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    elements=st.lists(VALUES, max_size=6),
    beside=VALUES,
    indent=st.sampled_from([None, 0, 2]),
    chunk=st.integers(1, 9),
)
def test_a_document_is_the_same_in_pieces_of_any_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    elements: list[Any],
    beside: Any,
    indent: int | None,
    chunk: int,
) -> None:
    document = {"before": beside, "list": elements, "after": beside}
    path = put(
        tmp_path,
        json.dumps(document, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    )
    with monkeypatch.context() as patch:
        patch.setattr(documents, "_CHUNK_BYTES", chunk)
        events = list(read_documents(path, {"list"}))

    assert isinstance(events[0], Begin)
    assert events[-1] == End()
    told = [event for event in events[1:-1] if isinstance(event, (Member, Element))]
    read = {event.key: event.value for event in told if isinstance(event, Member)}
    assert [event.value for event in told if isinstance(event, Element)] == parse(
        json.dumps(elements)
    )
    assert read == parse(json.dumps({"before": beside, "after": beside}))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'{\n"list": [1,\n2 3]}', 3),
        (b'{\n"list": [1,\n', 3),
        (b'{\n"a" 1}', 2),
        (b"[\n{]", 2),
        (b'[\n{"a":1,"a":2}]', 2),
    ],
)
def test_what_is_wrong_is_told_with_its_line_after_what_was_right(
    tmp_path: Path, data: bytes, line: int
) -> None:
    *before, last = read_documents(put(tmp_path, data), {"list"})

    assert isinstance(last, Bad)
    assert last.line == line
    assert isinstance(before[0], Begin)


def test_a_bad_line_costs_no_other_line(tmp_path: Path) -> None:
    events = list(
        read_documents(put(tmp_path, b'{"list":[1]}\n{"list":[2\n{"list":[3]}\n'), {"list"})
    )

    assert [event.value for event in events if isinstance(event, Element)] == [1, 3]
    assert [event.line for event in events if isinstance(event, Bad)] == [2]


def test_nesting_without_end_is_an_error_and_no_crash() -> None:
    with pytest.raises(Malformed, match="nested too deeply"):
        parse("[" * 200_000)

    value: Any = "x"
    for _ in range(500):
        value = [value]

    json.dumps(storable(value))


def test_what_json_does_not_know_is_taken_as_nothing() -> None:
    assert parse('[NaN, Infinity, -Infinity, "\\ud83d\\ude00", "\\ud83d"]') == [
        None,
        None,
        None,
        "😀",
        "\ufffd",
    ]
