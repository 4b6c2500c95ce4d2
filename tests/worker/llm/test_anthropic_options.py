"""What Claude models are asked for: how long, how much thought, how warm, in what form."""

from __future__ import annotations

from typing import Any

import pytest

from worker.llm import RequestOptions
from worker.llm.schemes.anthropic.models import facts
from worker.llm.schemes.anthropic.options import Knobs, knobs
from worker.llm.schemes.anthropic.schema import answer_schema

BOUND = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
SHOWN = {"display": "summarized"}
ADAPTIVE = {"type": "adaptive"}


def asked(model: str, **options: Any) -> dict[str, Any]:
    return dict(knobs(facts(model), RequestOptions(**options)).fields)


def thinking(model: str, effort: str | None, **options: Any) -> Any:
    return asked(model, reasoning_effort=effort, **options).get("thinking")


def effort_of(model: str, effort: str) -> Any:
    return asked(model, reasoning_effort=effort).get("output_config", {}).get("effort")


@pytest.mark.parametrize(
    ("spelling", "usual"),
    [
        ("anthropic/claude-4.6-opus", "claude-opus-4-6"),
        ("claude-4-sonnet", "claude-sonnet-4"),
        ("anthropic.claude-opus-4-1-20250805-v1:0", "claude-opus-4-1"),
        ("claude-opus-4@20250514", "claude-opus-4-0"),
        ("claude-opus-5:thinking", "claude-opus-5"),
        ("us.anthropic.claude-sonnet-5-5-v1:0", "claude-sonnet-5-5"),
        ("Claude-Haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-3-5-haiku-latest", "claude-3.5-haiku"),
    ],
)
def test_a_model_is_known_however_it_is_spelled(spelling: str, usual: str) -> None:
    assert facts(spelling) is facts(usual)
    assert facts(usual) is not facts("claude-next")


# --- the output cap -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "cap"),
    [
        # Required: there always is one.
        ("claude-sonnet-4-5", {}, 4096),
        ("claude-sonnet-4-5", {"max_tokens": 77}, 77),
        ("claude-sonnet-4-5", {"max_tokens": 500_000}, 64_000),
        ("claude-3-haiku-20240307", {"max_tokens": 9_000}, 4096),
        # What is thought counts towards it.
        ("claude-sonnet-4-5", {"reasoning_effort": "medium"}, 32_000),
        ("claude-opus-5-5", {}, 32_000),
        ("claude-opus-5-5", {"reasoning_effort": "max"}, 64_000),
        ("claude-opus-4-20250514", {"reasoning_effort": "max"}, 32_000),
        ("claude-haiku-5-5", {"reasoning_effort": "none"}, 4096),
        ("glm-5", {"max_tokens": 500_000}, 500_000),
    ],
)
def test_the_output_cap(model: str, options: dict[str, Any], cap: int) -> None:
    assert asked(model, **options)["max_tokens"] == cap


# --- thinking -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "unasked", "off", "on"),
    [
        ("claude-3-5-sonnet-latest", None, None, None),
        ("claude-3-7-sonnet-20250219", None, None, "budget"),
        ("claude-opus-4-20250514", None, None, "budget"),
        ("claude-haiku-4-5-20251001", None, None, "budget"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", None, None, "budget"),
        ("claude-opus-4-6", None, None, ADAPTIVE),
        ("anthropic/claude-opus-4.6", None, None, ADAPTIVE),
        ("claude-opus-4-8", None, None, ADAPTIVE | SHOWN),
        ("claude-sonnet-5", ADAPTIVE | SHOWN, {"type": "disabled"}, ADAPTIVE | SHOWN),
        ("claude-opus-5@20260724", ADAPTIVE | SHOWN, {"type": "disabled"}, ADAPTIVE | SHOWN),
        ("claude-fable-5", ADAPTIVE | SHOWN, ADAPTIVE | SHOWN, ADAPTIVE | SHOWN),
        ("claude-mythos-preview", ADAPTIVE | SHOWN, ADAPTIVE | SHOWN, ADAPTIVE | SHOWN),
        *(
            (model, ADAPTIVE | SHOWN | BOUND, ADAPTIVE | SHOWN | BOUND, ADAPTIVE | SHOWN | BOUND)
            for model in ("claude-fable-5-2", "claude-opus-5-5", "claude-opus-7", "claude-next")
        ),
        (
            "claude-sonnet-5-5",
            ADAPTIVE | SHOWN | BOUND,
            {"type": "between_tools"},
            ADAPTIVE | SHOWN | BOUND,
        ),
        (
            "claude-haiku-5-5",
            ADAPTIVE | SHOWN | BOUND,
            {"type": "disabled"},
            ADAPTIVE | SHOWN | BOUND,
        ),
        ("glm-5", None, None, "budget"),
    ],
)
def test_thinking_is_asked_for_as_each_model_takes_it(
    model: str, unasked: Any, off: Any, on: Any
) -> None:
    assert thinking(model, None) == unasked
    assert thinking(model, "none") == off
    on = {"type": "enabled", "budget_tokens": 8192} if on == "budget" else on
    assert thinking(model, "medium") == on


@pytest.mark.parametrize(
    ("effort", "tokens"),
    [
        ("minimal", 1024),
        ("low", 4096),
        ("medium", 8192),
        ("high", 16_384),
        ("xhigh", 32_768),
        ("max", 48_000),
        ("some new word", 8192),
    ],
)
def test_an_effort_is_a_budget_for_older_models(effort: str, tokens: int) -> None:
    sent = asked("claude-sonnet-4-5", reasoning_effort=effort)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": tokens}
    assert "output_config" not in sent


@pytest.mark.parametrize(
    ("cap", "tokens"), [(4096, 3072), (1366, 1024), (1365, None), (16, None), (100_000, 8192)]
)
def test_a_budget_leaves_room_for_the_answer_or_is_not_given(cap: int, tokens: int | None) -> None:
    # It must be 1,024 at least, and less than max_tokens.
    sent = thinking("claude-sonnet-4-5", "medium", max_tokens=cap)
    assert sent == (None if tokens is None else {"type": "enabled", "budget_tokens": tokens})


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("claude-opus-4-6", "minimal", "low"),
        ("claude-opus-4-6", "high", "high"),
        ("claude-opus-4-6", "xhigh", "max"),
        ("claude-opus-4-7", "xhigh", "xhigh"),
        ("claude-opus-5-5", "max", "max"),
        ("claude-opus-5-5", "none", "low"),
        ("claude-opus-5-5", "some new word", "some new word"),
        ("claude-haiku-5-5", "none", None),
        ("claude-sonnet-5", "none", None),
        ("claude-3-5-haiku-latest", "high", None),
    ],
)
def test_efforts(model: str, effort: str, sent: str | None) -> None:
    assert effort_of(model, effort) == sent


def test_the_beta_can_be_done_without() -> None:
    sent = knobs(facts("claude-opus-5-5"), RequestOptions(), binds=False)
    assert sent.fields["thinking"] == ADAPTIVE | SHOWN


@pytest.mark.parametrize(
    ("model", "refused", "sent"),
    [
        ("claude-opus-5-5", "thinking.adaptive.block_binding", ADAPTIVE | SHOWN),
        ("claude-opus-5-5", "thinking", None),
        ("claude-opus-5-5", "temperature", ADAPTIVE | SHOWN | BOUND),
        ("claude-haiku-5-5", "thinking.type.disabled", None),
        ("claude-opus-4-6", "thinking.type.adaptive", None),
    ],
)
def test_what_the_server_refused_by_name_is_not_sent_again(
    model: str, refused: str, sent: Any
) -> None:
    effort = "none" if model == "claude-haiku-5-5" else "low"
    assert thinking(model, effort, refused_names=frozenset({refused})) == sent


@pytest.mark.parametrize(
    ("model", "effort", "thinks", "has_budget"),
    [
        ("claude-sonnet-4-5", None, False, False),
        ("claude-sonnet-4-5", "low", True, True),
        ("claude-opus-4-8", None, False, False),
        ("claude-opus-4-8", "low", True, False),
        ("claude-opus-5", None, True, False),
        ("claude-opus-5", "none", False, False),
        ("claude-sonnet-5-5", "none", False, False),
        # Of another vendor: what it thought unasked goes back unasked.
        ("MiniMax-M2", None, True, False),
        ("glm-5", "none", False, False),
        ("glm-5", "low", True, True),
    ],
)
def test_whether_a_request_thinks(
    model: str, effort: str | None, thinks: bool, has_budget: bool
) -> None:
    sent: Knobs = knobs(facts(model), RequestOptions(reasoning_effort=effort))
    assert (sent.thinks, sent.has_budget) == (thinks, has_budget)


def test_a_model_of_another_vendor_keeps_its_temperature_and_is_asked_for_no_thought() -> None:
    assert asked("glm-5", temperature=0.5) == {
        "max_tokens": 4096,
        "stream": True,
        "temperature": 0.5,
    }


# --- temperature --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "effort", "given", "sent"),
    [
        ("claude-sonnet-4-5", None, 0.25, 0.25),
        ("claude-sonnet-4-5", None, 0.0, 0.0),
        ("claude-sonnet-4-5", None, 1.7, 1.0),
        ("claude-sonnet-4-5", "none", 0.25, 0.25),
        ("claude-sonnet-4-5", "low", 0.25, None),
        ("claude-opus-4-6", None, 0.25, 0.25),
        ("claude-opus-4-6", "low", 0.25, None),
        ("claude-opus-4-7", None, 0.25, None),
        ("claude-sonnet-5-5", "none", 1.0, None),
        ("glm-5", None, 0.5, 0.5),
    ],
)
def test_a_temperature_is_sent_where_it_is_taken(
    model: str, effort: str | None, given: float, sent: float | None
) -> None:
    assert asked(model, reasoning_effort=effort, temperature=given).get("temperature") == sent


# --- a schema for the answer --------------------------------------------------------------------


def test_a_schema_is_sent_where_it_is_taken() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    sent = asked("claude-sonnet-4-5", response_schema=schema, grammar="root ::= [a-z]")
    assert sent["output_config"] == {
        "format": {"type": "json_schema", "schema": schema | {"additionalProperties": False}}
    }
    assert "grammar" not in sent
    both = asked("claude-opus-5", response_schema=schema, reasoning_effort="low")["output_config"]
    assert set(both) == {"effort", "format"}
    assert "output_config" not in asked("claude-sonnet-4-20250514", response_schema=schema)
    assert "output_config" not in asked("glm-5", response_schema=schema)


def test_what_merely_narrows_a_value_is_left_out_of_a_schema() -> None:
    assert answer_schema(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Report",
            "type": "object",
            "properties": {
                "age": {"type": "integer", "minimum": 0, "description": "In years"},
                "name": {"type": "string", "minLength": 1, "pattern": "^a", "default": "a"},
                "when": {"type": "string", "format": "date-time"},
                "colour": {"type": "string", "format": "color"},
                "kind": {"enum": ["a", "b"]},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "pair": {"type": "array", "items": {"type": "string"}, "minItems": 2},
                "note": {"type": ["string", "null"]},
                "shape": {"oneOf": [{"$ref": "#/$defs/Dot"}, {"type": "null"}]},
            },
            "required": ["age"],
            "$defs": {"Dot": {"type": "object", "properties": {}, "additionalProperties": False}},
        }
    ) == {
        "title": "Report",
        "type": "object",
        "properties": {
            "age": {"type": "integer", "description": "In years"},
            "name": {"type": "string"},
            "when": {"type": "string", "format": "date-time"},
            "colour": {"type": "string"},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "pair": {"type": "array", "items": {"type": "string"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "shape": {"anyOf": [{"$ref": "#/$defs/Dot"}, {"type": "null"}]},
        },
        "required": ["age"],
        "additionalProperties": False,
        "$defs": {"Dot": {"type": "object", "properties": {}, "additionalProperties": False}},
    }


FREE = {"type": "object", "additionalProperties": {"type": "integer"}}
TREE = {"type": "object", "properties": {"in": {"$ref": "#/$defs/Tree"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "object", "properties": {}}, {"type": "null"}]},
        FREE,
        {"type": "object"},
        {"type": "object", "properties": {"free": FREE}},
        {"type": "object", "properties": {"any": {}}},
        {"type": "object", "properties": {"any": True}},
        {"type": "object", "properties": {"list": {"type": "array"}}},
        {"type": "object", "properties": {"not": {"type": "string", "not": {"const": "a"}}}},
        {"type": "object", "properties": {"pair": {"type": "array", "prefixItems": []}}},
        {"$ref": "#/$defs/Tree", "$defs": {"Tree": TREE}},
        {"type": "object", "properties": {"far": {"$ref": "https://example.com/a.json"}}},
        {"type": "object", "properties": {"none": {"$ref": "#/$defs/None"}}, "$defs": {}},
    ],
)
def test_a_schema_whose_form_cannot_be_enforced_is_not_sent(schema: dict[str, Any]) -> None:
    assert answer_schema(schema) is None


def test_a_schema_may_begin_with_a_reference() -> None:
    dot = {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {"$ref": "#/$defs/Dot", "$defs": {"Dot": dot}}
    assert answer_schema(schema) == schema
