"""Calls whose arguments come in pieces, each with the JSON path where it belongs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.calls import parse_arguments
from worker.errors import BadAnswer
from worker.items import Reasoning, ToolCall
from worker.llm import StreamEvent, ToolCallArgsDelta, ToolCallDone, ToolCallStart
from worker.llm.schemes.gemini.arguments import PartialArguments
from worker.llm.schemes.gemini.decoder import GeminiDecoder
from worker.tools import BadArguments

Fields = dict[str, Any]


def piece(path: str, value: object, *, goes_on: bool = False) -> Fields:
    """One value at its path."""
    kinds = {str: "stringValue", bool: "boolValue", int: "numberValue", float: "numberValue"}
    key = kinds.get(type(value), "nullValue")
    made: Fields = {"jsonPath": path, key: "NULL_VALUE" if value is None else value}
    return made | ({"willContinue": True} if goes_on else {})


def going_on(*pieces: Fields, **more: Any) -> Fields:
    """A `functionCall` behind which more is to come."""
    return more | ({"partialArgs": list(pieces)} if pieces else {}) | {"willContinue": True}


def last(*pieces: Fields, **more: Any) -> Fields:
    """A `functionCall` that ends its call."""
    return more | ({"partialArgs": list(pieces)} if pieces else {})


def decode(
    *calls: Fields, finish: str = "STOP", signature: str | None = "S"
) -> tuple[list[StreamEvent], list[ToolCall], list[str | None]]:
    """The events, the calls and the signatures of a stream of one `functionCall` a chunk."""
    decoder = GeminiDecoder("gemini", "m")
    events: list[StreamEvent] = []
    for number, fields in enumerate(calls):
        part: Fields = {"functionCall": fields}
        if signature and number == 0:
            part["thoughtSignature"] = signature
        events += decoder.feed(json.dumps({"candidates": [{"content": {"parts": [part]}}]}))
    events += decoder.feed(json.dumps({"candidates": [{"finishReason": finish}]}))
    parts = decoder.finish().parts
    made = [part for part in parts if isinstance(part, ToolCall)]
    return events, made, [part.blob for part in parts if isinstance(part, Reasoning)]


def arguments(*pieces: Fields) -> Any:
    """What the pieces of one call come to."""
    _, (made,), _ = decode(going_on(name="f"), last(*pieces))
    return json.loads(made.arguments)


def items(*, ends: str) -> list[Fields]:
    """A call that writes two items, text in two pieces each; `ends` says how it ends."""
    sent = [going_on(name="write_items")]
    for number, (name, price) in enumerate((("pear_1", 0.5), ("plum_1", 0.3))):
        path = f"$.operations[{number}]"
        sent += [
            going_on(piece(f"{path}.action", "a", goes_on=True)),
            going_on(piece(f"{path}.action", "dd")),
            going_on(piece(f"{path}.itemid", name, goes_on=True)),
            going_on(piece(f"{path}.itemid", "")),
            going_on(piece(f"{path}.price", price)),
        ]
    if ends == "flag":
        del sent[-1]["willContinue"]
    return [*sent, {}] if ends == "terminal" else sent


WRITTEN = {
    "operations": [
        {"action": "add", "itemid": "pear_1", "price": 0.5},
        {"action": "add", "itemid": "plum_1", "price": 0.3},
    ]
}


@pytest.mark.parametrize("ends", ["terminal", "flag"])
def test_i27_pieces_are_one_whole_call_with_and_without_a_closing_part(ends: str) -> None:
    """I27: the last piece may just lack the flag that more is to come."""
    events, (made,), signatures = decode(*items(ends=ends))
    assert made.name == "write_items"
    assert json.loads(made.arguments) == WRITTEN
    assert signatures == ["S"]
    assert events == [
        ToolCallStart(made.call_id, "write_items"),
        ToolCallArgsDelta(made.call_id, made.arguments),
        ToolCallDone(made.call_id, "write_items", made.arguments),
    ]


def test_i27_a_call_that_never_ended_is_not_run() -> None:
    """I27: it may lack what was still to come, so its arguments must not pass for whole ones."""
    _, (made,), _ = decode(*items(ends="never"))
    with pytest.raises(BadArguments):
        parse_arguments(made)


def test_i23_a_call_that_the_cap_cuts_is_dropped_with_its_signature() -> None:
    """I23: what is left of it must never run."""
    _, made, signatures = decode(*items(ends="never"), finish="MAX_TOKENS")
    assert (made, signatures) == ([], [])


def test_calls_one_after_the_other_and_whole_ones_between() -> None:
    _, made, signatures = decode(
        going_on(name="read", id="a"),
        going_on(piece("$.path", "x", goes_on=True)),
        going_on(piece("$.path", "")),
        {},
        {"name": "theme"},
        going_on(piece("$.path", "y"), name="read", id="b"),
        last(id="b"),
        {"name": "look", "args": {"n": 1}, "id": "c"},
        {},
    )
    assert [(one.name, one.arguments) for one in made] == [
        ("read", '{"path":"x"}'),
        ("theme", ""),
        ("read", '{"path":"y"}'),
        ("look", '{"n":1}'),
    ]
    assert [made[index].call_id for index in (0, 2, 3)] == ["a", "b", "c"]
    assert signatures == ["S"]


def test_a_name_and_an_id_may_be_repeated_with_every_piece() -> None:
    _, made, _ = decode(
        going_on(name="read", id="a"),
        going_on(piece("$.path", "x"), name="read", id="a"),
        going_on(piece("$.mode", "r"), name="read"),
        last(name="read", id="a"),
    )
    assert [one.arguments for one in made] == ['{"path":"x","mode":"r"}']


def test_a_call_that_another_one_interrupts_is_not_run() -> None:
    _, (first, second), _ = decode(
        going_on(piece("$.path", "x"), name="read"), {"name": "look", "args": {}}
    )
    with pytest.raises(BadArguments):
        parse_arguments(first)
    assert (second.name, second.arguments) == ("look", "{}")


def test_a_part_with_another_id_is_another_call_whatever_its_name() -> None:
    _, (first, second), _ = decode(
        going_on(piece("$.path", "x"), name="read", id="a"),
        last(piece("$.path", "y"), name="read", id="b"),
    )
    with pytest.raises(BadArguments):
        parse_arguments(first)
    assert (second.call_id, second.arguments) == ("b", '{"path":"y"}')


def test_a_text_that_is_to_go_on_keeps_its_call_open() -> None:
    _, (made,), _ = decode(
        last(piece("$.path", "x", goes_on=True), name="read"), last(piece("$.path", "y"))
    )
    assert made.arguments == '{"path":"xy"}'


def test_a_call_without_any_argument_has_none() -> None:
    _, (made,), _ = decode(going_on(name="theme"), {})
    assert made.arguments == ""


def test_a_signature_may_come_with_a_later_piece() -> None:
    decoder = GeminiDecoder("gemini", "m")
    for part in (
        {"functionCall": going_on(name="f")},
        {"functionCall": {}, "thoughtSignature": "S"},
    ):
        decoder.feed(json.dumps({"candidates": [{"content": {"parts": [part]}}]}))
    decoder.feed(json.dumps({"candidates": [{"finishReason": "STOP"}]}))
    assert [getattr(part, "blob", None) for part in decoder.finish().parts] == ["S", None]


def test_values_of_every_kind_at_paths_of_every_kind() -> None:
    assert arguments(
        piece("$.a.b", True),
        piece("$.a.c[0][0]", 1),
        piece("$.a.c[0][1]", 2.5),
        piece("$.a.c[1].d", None),
        piece("$['it\\'s \"x\"'].y", "q"),
        piece('$["a.b"][0]', "r"),
        piece("$.\u540d", "s"),
        piece("plain", "t") | {"jsonPath": ".plain"},
        piece("$.zero", 0),
        piece("$.no", False),
        piece("$.empty", ""),
    ) == {
        "a": {"b": True, "c": [[1, 2.5], {"d": None}]},
        'it\'s "x"': {"y": "q"},
        "a.b": ["r"],
        "\u540d": "s",
        "plain": "t",
        "zero": 0,
        "no": False,
        "empty": "",
    }


def test_text_that_comes_in_pieces_grows_inside_a_list_too() -> None:
    assert arguments(
        piece("$.lines[0]", "a", goes_on=True),
        piece("$.lines[0]", "b", goes_on=True),
        piece("$.lines[0]", ""),
        piece("$.lines[1]", "c"),
    ) == {"lines": ["ab", "c"]}


@pytest.mark.parametrize(
    "bad",
    [
        {"jsonPath": "$", "stringValue": "x"},
        {"jsonPath": "", "stringValue": "x"},
        {"stringValue": "x"},
        {"jsonPath": 1, "stringValue": "x"},
        {"jsonPath": "$.a[", "stringValue": "x"},
        {"jsonPath": "$.a[*]", "stringValue": "x"},
        {"jsonPath": "$..a", "stringValue": "x"},
        {"jsonPath": "$['\\q']", "stringValue": "x"},
        {"jsonPath": "$.a[1]", "stringValue": "x"},
        {"jsonPath": "$.a[99999999]", "stringValue": "x"},
        {"jsonPath": "$[0]", "stringValue": "x"},
        {"jsonPath": "$.s.t", "stringValue": "x"},
        {"jsonPath": "$.s[0]", "stringValue": "x"},
        {"jsonPath": "$" + ".a" * 200, "stringValue": "x"},
        {"jsonPath": "$.a"},
        {"jsonPath": "$.a", "newValue": 1},
        {"jsonPath": "$.a", "numberValue": "NaN"},
        "not an object",
    ],
)
def test_a_piece_that_cannot_be_placed_is_no_answer(bad: object) -> None:
    """Left out, the call would run with other arguments than were meant."""
    partial = PartialArguments()
    partial.add([piece("$.s", "text")])
    with pytest.raises(BadAnswer):
        partial.add([bad])


def test_arguments_without_end_are_no_answer() -> None:
    partial = PartialArguments()
    endless = [piece("$.a", "x" * 100_000, goes_on=True)] * 20
    with pytest.raises(BadAnswer, match="over 1 MiB"):
        partial.add(endless)


def test_a_piece_may_announce_a_value_that_follows() -> None:
    partial = PartialArguments()
    assert partial.add([{"jsonPath": "$.a", "willContinue": True}])
    assert partial.text == ""
    assert not partial.add([piece("$.a", "x")])
    assert partial.text == '{"a":"x"}'


_names = st.sampled_from(["a", "b c", "it's", 'say "x"', "\u540d", "d.e", "f[0]"])
_leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6)
_trees = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(_names, inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def _pieces(value: Any, path: str) -> list[Fields]:
    if isinstance(value, dict):
        steps = [(f"[{json.dumps(key)}]", each) for key, each in value.items()]
    elif isinstance(value, list):
        steps = [(f"[{index}]", each) for index, each in enumerate(value)]
    elif isinstance(value, str):
        half = len(value) // 2
        return [piece(path, value[:half], goes_on=True), piece(path, value[half:])]
    else:
        return [piece(path, value)]

    return [one for step, each in steps for one in _pieces(each, path + step)]


@given(st.dictionaries(_names, _trees, min_size=1, max_size=3), st.integers(1, 3))
def test_any_arguments_come_back_whole_however_they_are_cut(value: Any, size: int) -> None:
    pieces = _pieces(value, "$")
    groups = [pieces[at : at + size] for at in range(0, len(pieces), size)]
    _, (made,), _ = decode(going_on(name="f"), *(going_on(*group) for group in groups), {})
    assert json.loads(made.arguments) == value
