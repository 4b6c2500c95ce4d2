from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.llm import ToolSpec
from worker.llm.schemes.gemini.schema import (
    declarations,
    object_schema,
    own_name,
    plain_schema,
    wire_name,
)

# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("read", "read"),
        ("_read-2", "_read-2"),
        ("mcp__xcode__build", "mcp__xcode__build"),
        ("files.read", "files_0x2E_read"),
        ("a/b:c", "a_0x2F_b_0x3A_c"),
        ("2nd", "_0x32_nd"),
        ("-x", "_0x2D_x"),
        ("日", "_0x65E5_"),
        ("a_0x2E_b", "a_0x5F_0x2E_b"),
    ],
)
def test_a_name_is_sent_in_letters_that_are_taken_and_comes_back(name: str, sent: str) -> None:
    assert wire_name(name) == sent
    assert own_name(sent) == name


ANY = st.characters(codec="utf-8") | st.sampled_from("_0x2F")


@given(st.text(alphabet=ANY, min_size=1, max_size=12))  # as many as fit, if all are escaped
def test_every_name_comes_back_as_it_was(name: str) -> None:
    sent = wire_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", sent)
    assert own_name(sent) == name


@pytest.mark.parametrize("name", ["_0xD800_", "_0x110000_", "_0xFFFFFF_", "_0xZ_"])
def test_what_is_no_escape_of_ours_stays(name: str) -> None:
    assert own_name(name) == name


def test_a_call_without_a_name_has_one_on_the_wire() -> None:
    assert wire_name("") == "unnamed"


# --- declarations -------------------------------------------------------------------------------


def test_declarations_are_sorted_and_carry_json_schema() -> None:
    tools = (ToolSpec("b", "second", {"type": "object"}), ToolSpec("a.b", "", {}))
    assert declarations(tools) == [
        {
            "name": "a_0x2E_b",
            "description": "",
            "parametersJsonSchema": {"type": "object", "properties": {}},
        },
        {
            "name": "b",
            "description": "second",
            "parametersJsonSchema": {"type": "object", "properties": {}},
        },
    ]


# --- schemas ------------------------------------------------------------------------------------


def test_a_plain_schema_is_taken_as_it_is() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where.", "minLength": 1},
            "limit": {"type": ["integer", "null"], "exclusiveMinimum": 0, "default": None},
            "mode": {"anyOf": [{"type": "string", "enum": ["r", "w"]}, {"type": "null"}]},
            "any": {},
            "lines": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    before = json.dumps(schema)
    assert object_schema(schema) == schema
    assert json.dumps(schema) == before


def test_where_a_schema_comes_from_is_left_out_but_not_a_property_of_that_name() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "type": "object",
        "properties": {"$id": {"type": "string", "$comment": "no"}, "definitions": {"const": 1}},
    }
    assert plain_schema(schema) == {
        "type": "object",
        "properties": {"$id": {"type": "string"}, "definitions": {"enum": [1]}},
    }


def test_references_are_written_out_with_what_stands_beside_them() -> None:
    schema = {
        "$defs": {
            "Colour": {"type": "string", "enum": ["red"], "title": "Colour"},
            "Shape": {"type": "object", "properties": {"colour": {"$ref": "#/$defs/Colour"}}},
        },
        "definitions": {"Old": {"type": "integer"}},
        "properties": {
            "shape": {"$ref": "#/$defs/Shape", "description": "What."},
            "shapes": {"type": "array", "items": {"$ref": "#/$defs/Shape"}},
            "old": {"anyOf": [{"$ref": "#/definitions/Old"}, {"type": "null"}]},
            "same": {"$ref": "#/properties/old"},
            "lost": {"$ref": "#/$defs/Nobody", "description": "Anything."},
            "far": {"$ref": "https://example.com/schema"},
        },
    }
    colour = {"type": "string", "enum": ["red"], "title": "Colour"}
    shape = {"type": "object", "properties": {"colour": colour}}
    old = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert object_schema(schema) == {
        "type": "object",
        "properties": {
            "shape": {**shape, "description": "What."},
            "shapes": {"type": "array", "items": shape},
            "old": old,
            "same": old,
            "lost": {"description": "Anything."},
            "far": {},
        },
    }


def test_a_reference_into_itself_ends_where_it_would_begin_again() -> None:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    }
    schema = {"$defs": {"Tree": tree}, "$ref": "#/$defs/Tree"}
    assert object_schema(schema) == {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"type": "object"}}},
    }
    assert plain_schema({"properties": {"a": {"$ref": "#"}}}) == {
        "properties": {"a": {"properties": {"a": {}}}}
    }


def test_references_that_fan_out_stay_within_bounds() -> None:
    levels = 40
    definitions: dict[str, Any] = {
        f"D{n}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/D{n + 1}"} for side in ("left", "right")},
        }
        for n in range(levels)
    }
    definitions[f"D{levels}"] = {"type": "string"}
    written = plain_schema({"$defs": definitions, "$ref": "#/$defs/D0"})
    assert len(json.dumps(written)) < 1_000_000


def test_a_schema_of_anything_is_an_object_and_one_of_nothing_is_left_out() -> None:
    schema = {"properties": {"any": True, "none": False}, "anyOf": [True, False], "items": True}
    assert plain_schema(schema) == {"properties": {"any": {}}, "anyOf": [{}], "items": True}


def test_a_list_of_items_is_a_tuple() -> None:
    pair = {"type": "array", "items": [{"type": "string"}, {"const": 2}]}
    assert plain_schema(pair) == {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"enum": [2]}],
    }
