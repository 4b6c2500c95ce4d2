"""Tools from functions: the schema is what the signature says, and calls are held to it."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.worker import tool_examples as examples
from worker import Image, ToolDefinitionError, ToolOutput, tool
from worker.tools import BadArguments, render_output

pytestmark = pytest.mark.anyio


# --- schemas ------------------------------------------------------------------------------------


def properties(function: Any) -> dict[str, Any]:
    found = tool(function).parameters["properties"]
    assert isinstance(found, dict)
    return found


def test_a_function_becomes_a_tool_with_its_docstring() -> None:
    made = tool(examples.plain)
    assert made.name == "plain"
    assert made.description == "Read a file.\n\nOnly text files.\n\nReturns:\n    The text."
    assert made.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["path"],
        "properties": {
            "path": {
                "type": "string",
                "description": "Where the file is, relative to the work folder: see docs.",
            },
            "limit": {"type": "integer", "default": 10, "description": "How many lines."},
        },
    }
    assert (made.spec.name, made.spec.description) == (made.name, made.description)


def test_the_decorator_may_say_it_better() -> None:
    made = tool(name="look-up", description="Look.", timeout_s=3.0)(examples.plain)
    assert (made.name, made.description, made.timeout_s) == ("look-up", "Look.", 3.0)


SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (examples.nothing, {}),
    (
        examples.optional,
        {
            "a": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
    ),
    (
        examples.annotated,
        {
            "count": {"type": "integer", "minimum": 1, "description": "How many."},
            "size": {"type": "integer", "maximum": 9, "default": 3, "description": "How big."},
        },
    ),
    (
        examples.awkward,
        {
            "schema": {"type": "string"},
            "model_config": {"type": "integer"},
            "json": {"type": "boolean"},
            "_x": {"type": "integer", "default": 1},
            "p_x": {"type": "integer", "default": 2},
        },
    ),
    (examples.sentinel, {"a": {}}),
    (
        examples.keyword_only,
        {"title": {"type": "string"}, "self": {"type": "integer", "default": 0}},
    ),
    (examples.bound, {"path": {"type": "string"}}),
    (examples.bound_first, {"limit": {"type": "integer", "default": 10}}),
    (examples.wrapped, {"path": {"type": "string"}, "limit": {"type": "integer", "default": 10}}),
    (examples.Service().method, {"word": {"type": "string"}}),
    (examples.Service.of_class, {"word": {"type": "string"}}),
    (examples.Service.static, {"word": {"type": "string"}}),
    (examples.Service(), {"word": {"type": "string"}}),
    (examples.asynchronous, {"a": {"type": "integer"}}),
]


@pytest.mark.parametrize(("function", "expected"), SCHEMAS)
def test_the_schema_is_what_the_signature_says(function: Any, expected: dict[str, Any]) -> None:
    found = properties(function)
    documented = {"plain", "bound", "bound_first", "wrapped"}
    if tool(function).name in documented or isinstance(function, examples.Service):
        found = {
            name: {k: v for k, v in value.items() if k != "description"}
            for name, value in found.items()
        }
    assert found == expected
    json.dumps(tool(function).parameters)


def test_models_and_enums_are_described_with_their_own_words() -> None:
    schema = tool(examples.models).parameters
    assert schema["$defs"] == {
        "Point": {
            "title": "Point",
            "description": "A point.",
            "type": "object",
            "properties": {"x": {"type": "integer"}, "title": {"type": "string", "default": "t"}},
            "required": ["x"],
        }
    }
    mode = properties(examples.literal)["mode"]
    assert mode == {"type": "string", "enum": ["r", "w"]}


NAMES = [
    (examples.Service().method, "method"),
    (examples.Service(), "Service"),
    (examples.bound, "plain"),
    (functools.partial(examples.Service().method, word="x"), "method"),
    (examples.wrapped, "plain"),
]


@pytest.mark.parametrize(("function", "name"), NAMES)
def test_names(function: Any, name: str) -> None:
    assert tool(function).name == name


def test_a_partial_is_described_by_what_it_binds() -> None:
    made = tool(examples.bound)
    assert made.description.startswith("Read a file.")
    assert properties(examples.bound)["path"]["description"].startswith("Where the file is")


REFUSED = [
    (examples.no_annotation, "parameter a has no type annotation"),
    (examples.many, "parameter args takes any number of values"),
    (examples.any_names, "parameter kwargs takes any number of values"),
    (examples.positional, "parameter a is positional only"),
    (examples.unknown_type, "annotations cannot be read: name 'NoSuchType' is not defined"),
    (examples.unspeakable_type, "Unable to generate pydantic-core schema"),
    (examples.generator, "async generator"),
    (lambda: "", "'<lambda>' is not a tool name"),
    (max, "signature cannot be read"),
]


@pytest.mark.parametrize(("function", "words"), REFUSED)
def test_what_cannot_be_offered_is_refused_with_a_way_out(function: Any, words: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "1st", "a b", "a.b", "x" * 65, "naïve"])
def test_a_name_that_providers_refuse_is_refused_here(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="not a tool name"):
        tool(name=name)(examples.nothing)


# --- calls --------------------------------------------------------------------------------------

CALLS: list[tuple[Any, dict[str, Any], str]] = [
    (examples.plain, {"path": "a"}, "a:10"),
    (examples.plain, {"path": "a", "limit": "7"}, "a:7"),
    (examples.optional, {"b": "x"}, "None/x"),
    (examples.literal, {"mode": "w", "colour": "blue"}, "w/BLUE"),
    (examples.models, {"points": [{"x": 1}, {"x": 2}]}, "3"),
    (examples.annotated, {"count": 2}, "6"),
    (examples.collections, {"names": ["a"], "table": {"k": 1}, "where": "/x"}, "['a']{'k': 1}/x"),
    (examples.awkward, {"schema": "s", "model_config": 5, "json": True}, "s5True12"),
    (examples.sentinel, {}, "nothing"),
    (examples.sentinel, {"a": 1}, "1"),
    (examples.keyword_only, {"title": "t", "self": 4}, "t4"),
    (examples.bound, {"path": "a"}, "a:3"),
    (examples.bound_first, {"limit": 1}, "fixed:1"),
    (examples.wrapped, {"path": "a"}, "a:10"),
    (examples.Service().method, {"word": "w"}, "-w"),
    (examples.Service.of_class, {"word": "w"}, "-w"),
    (examples.Service(), {"word": "w"}, "-w"),
    (examples.asynchronous, {"a": 2}, "2"),
    (functools.partial(examples.asynchronous, a=9), {}, "9"),
    (examples.nothing, {}, "nothing"),
]


@pytest.mark.parametrize(("function", "given_arguments", "summary"), CALLS)
async def test_a_call_has_the_types_of_the_signature(
    function: Any, given_arguments: dict[str, Any], summary: str
) -> None:
    assert await tool(function).call(given_arguments) == ToolOutput(summary)


BAD: list[tuple[Any, dict[str, Any], str]] = [
    (examples.plain, {}, "path: Field required"),
    (examples.plain, {"path": "a", "p_path": "b"}, "p_path: Extra inputs are not permitted"),
    (examples.models, {"points": [{"x": 1}, {"x": "one"}]}, "points.1.x: Input should be a valid"),
    (examples.literal, {"mode": "rw"}, "mode: Input should be 'r' or 'w'"),
    (examples.annotated, {"count": 0}, "count: Input should be greater than or equal to 1"),
    (examples.annotated, {"count": 1, "size": 10}, "size: Input should be less than"),
    (examples.bound, {"path": "a", "limit": 99}, "limit: Extra inputs are not permitted"),
    (examples.keyword_only, {"title": 1, "x": 2}, "title: Input should be a valid string; x: Ext"),
]


@pytest.mark.parametrize(("function", "given_arguments", "words"), BAD)
async def test_arguments_that_do_not_fit_are_told_by_place(
    function: Any, given_arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        await tool(function).call(given_arguments)
    assert str(caught.value).startswith(words)


# --- what is given back -------------------------------------------------------------------------


class Level(enum.Enum):
    HIGH = "high"


@dataclasses.dataclass
class Data:
    a: int
    when: datetime


class Model(BaseModel):
    a: int
    b: bytes = b"x"


@attrs.frozen
class Attributes:
    a: int
    inner: Data


class Pair(NamedTuple):
    left: int
    right: str


class Opaque:
    pass


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

RENDERED: list[tuple[Any, str]] = [
    (None, "(no output)"),
    ("", "(no output)"),
    (" \n\u200b", "(no output)"),
    ("  two words \n", "two words"),
    ("first\nsecond", "first\nsecond"),
    (b"bytes", "bytes"),
    (bytearray(b"\xff"), "\ufffd"),
    (memoryview(b"view"), "view"),
    (0, "0"),
    (False, "false"),
    (1.5, "1.5"),
    (math.nan, "null"),
    ({"x": math.inf}, '{"x":null}'),
    (10**30, "1" + "0" * 30),
    (Decimal("1.10"), '"1.10"'),
    ([], "[]"),
    ({"k": [1, None, "é"]}, '{"k":[1,null,"é"]}'),
    ({1: (2, 3)}, '{"1":[2,3]}'),
    ({"b": b"\xff\xfe"}, '{"b":"__4="}'),
    ({7}, "[7]"),
    (Level.HIGH, '"high"'),
    (Path("/a/b"), '"/a/b"'),
    (Data(1, NOON), '{"a":1,"when":"2026-01-01T12:00:00Z"}'),
    (Model(a=1), '{"a":1,"b":"x"}'),
    (Attributes(1, Data(2, NOON)), '{"a":1,"inner":{"a":2,"when":"2026-01-01T12:00:00Z"}}'),
    (Pair(1, "r"), '[1,"r"]'),
    (MappingProxyType({"a": 1}), '{"a":1}'),
    (Opaque(), '"<Opaque>"'),
    ([Opaque(), Opaque], '["<Opaque>","<type>"]'),
    (ToolOutput("kept", is_error=True), "kept"),
    (ToolOutput("  a\ud800b "), "a\ufffdb"),
    (ToolOutput(""), "(no output)"),
    (ToolOutput("s", " \n"), "s"),
]


@pytest.mark.parametrize(("value", "summary"), RENDERED)
def test_anything_short_is_a_summary(value: Any, summary: str) -> None:
    output = render_output(value)
    assert (output.summary, output.content) == (summary, None)


LONG: list[tuple[Any, str, str]] = [
    ("a\nb\nc", "a (3 lines, 5 bytes)", "a\nb\nc"),
    ("x" * 201, "x" * 79 + "… (1 line, 201 bytes)", "x" * 201),
    ("é" * 101, "é" * 79 + "… (1 line, 202 bytes)", "é" * 101),
    (
        "\n\n first\n" + "x\n" * 999,
        "first (1,002 lines, 2,007 bytes)",
        "\n\n first\n" + "x\n" * 999,
    ),
    (ToolOutput("", "detail"), "detail", ""),
    (ToolOutput("", "a\nb\nc"), "a (3 lines, 5 bytes)", "a\nb\nc"),
    (ToolOutput("s" * 2_000), "s" * 79 + "… (1 line, 2,000 bytes)", "s" * 2_000),
    (
        ToolOutput("s" * 2_000, "detail"),
        "s" * 79 + "… (2 lines, 2,007 bytes)",
        "s" * 2_000 + "\ndetail",
    ),
    (ToolOutput("s", b"raw"), "s", "raw"),  # type: ignore[arg-type]
    (ToolOutput("s", {"a": 1}), "s", '{"a":1}'),  # type: ignore[arg-type]
    (ToolOutput(None, "c\n" * 300), "c (300 lines, 600 bytes)", "c\n" * 300),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("value", "summary", "content"), LONG)
def test_what_is_long_becomes_content_under_its_first_line_and_size(
    value: Any, summary: str, content: str
) -> None:
    output = render_output(value)
    assert (output.summary, output.content or "") == (summary, content)


def test_ten_megabytes_stay_whole_in_the_content() -> None:
    text = "é\n" * 3_500_000
    output = render_output(text)
    assert output.content == text
    assert output.summary == "é (3,500,000 lines, 10,500,000 bytes)"


def test_images_and_the_error_flag_are_kept() -> None:
    image = Image("image/png", b"x")
    output = render_output(ToolOutput("s" * 5_000, is_error=True, attachments=(image,)))
    assert (output.is_error, output.attachments) == (True, (image,))


def test_a_circular_value_is_the_tools_failure() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="Circular"):
        render_output(loop)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_like | st.builds(ToolOutput, st.text(), st.none() | st.text()))
def test_rendering_is_idempotent_bounded_and_valid(value: Any) -> None:
    output = render_output(value)
    assert render_output(output) == output
    assert output.summary.strip()
    assert len(output.summary.encode()) <= 1_000
    (output.content or "").encode()
