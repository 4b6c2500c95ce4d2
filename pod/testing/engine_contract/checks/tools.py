"""The tools that an engine offers the model: what they say of themselves, and what they answer."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from pod.context.engine import ContextEngine, Message

from ..bench import Bench
from ..conversations import FIXED
from ..examine import cannot_be_json, shown, tokens
from ..results import Area, Broken, NotApplicable

tools = Area("tools")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SAMPLES: Mapping[object, object] = {
    "string": "file",
    "number": 1.5,
    "integer": 1,
    "boolean": True,
    "array": [],
    "object": {},
}
_Schema: TypeAlias = Mapping[str, object]


def tool_schemas(bench: Bench, engine: ContextEngine) -> list[Message]:
    """Return the engine's tools as bare function objects. Raises `NotApplicable` for none."""
    function: Callable[[], object] | None = getattr(engine, "get_tool_schemas", None)
    found = bench.call("get_tool_schemas()", function) if callable(function) else []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Broken(f"get_tool_schemas() returned {shown(found)}, not a list of dicts")
    if not found:
        raise NotApplicable("it offers no tools")

    return [_bare(schema) for schema in found]


def _bare(schema: Message) -> Message:
    inner = schema.get("function")
    return inner if isinstance(inner, dict) else schema


def answer_of(
    bench: Bench, engine: ContextEngine, name: str, args: object, rows: list[Message]
) -> object:
    """Return what a tool answers, parsed. Raises `Broken` where it is no JSON text."""
    handle: Callable[..., object] = engine.handle_tool_call
    what = f"handle_tool_call({name!r})"
    return parsed(bench.call(what, handle, name, args, messages=rows), what)


def parsed(said: object, what: str) -> object:
    """Return a tool's answer as the value that it is the JSON of. Raises `Broken`."""
    if not isinstance(said, str):
        raise Broken(f"{what} returned {shown(said)}, not JSON text")

    try:
        value: object = json.loads(said)
    except ValueError as error:
        raise Broken(f"{what} returned what is no JSON: {error}") from None

    return value


@tools.check("§6 items 1 to 3")
def _schemas(bench: Bench) -> None:
    """Every tool has a name that providers take, its own, a description and a valid JSON Schema."""
    schemas = tool_schemas(bench, bench.started())
    names = [schema.get("name") for schema in schemas]
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Broken(f"a tool is called {shown(name)}")

    if len(set(names)) != len(names):
        raise Broken("two tools have one name")

    for schema in schemas:
        if not isinstance(schema.get("description", ""), str):
            raise Broken(f"the tool {schema['name']} has no text as its description")

        parameters = schema.get("parameters", {"type": "object", "properties": {}})
        is_object = isinstance(parameters, dict) and parameters.get("type") == "object"
        problem = cannot_be_json(schema) or next(_mistakes(parameters, "parameters"), "")
        if problem or not is_object:
            raise Broken(
                f"the tool {schema['name']}: {problem or 'its parameters are not of type object'}"
            )


def _mistakes(schema: object, place: str) -> Iterator[str]:
    """Yield what is wrong with a JSON Schema, as far as tools use it."""
    if isinstance(schema, bool):
        return

    if not isinstance(schema, dict):
        yield f"{place} is {shown(schema)}, not a schema"
        return

    kinds = schema.get("type", "object")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            yield f"{place} has the type {shown(kind)}"

    yield from _wrong_kinds(schema, place)
    inner = schema.get("properties", {})
    properties = inner if isinstance(inner, dict) else {}
    required = schema.get("required", [])
    for name in required if isinstance(required, list) else []:
        if name not in properties:
            yield f"{place} requires {shown(name)}, which is not among its properties"

    for name, value in properties.items():
        yield from _mistakes(value, f"{place}.{name}")
    if "items" in schema:
        yield from _mistakes(schema["items"], f"{place}[]")


def _wrong_kinds(schema: _Schema, place: str) -> Iterator[str]:
    kinds = {"properties": dict, "required": list, "enum": list, "anyOf": list, "oneOf": list}
    for key, kind in kinds.items():
        if key in schema and not isinstance(schema[key], kind):
            yield f"{place}.{key} is {shown(schema[key])}"


@tools.check("§6 item 1")
def _schemas_stay(bench: Bench) -> None:
    """The tools are the same whenever they are asked for: they are offered once, at the launch."""
    engine = bench.started()
    before = copy.deepcopy(tool_schemas(bench, engine))
    rows = FIXED["many small calls"].rows()
    bench.compress(engine, rows, current_tokens=tokens(rows), force=True)
    if tool_schemas(bench, engine) != before:
        raise Broken("get_tool_schemas() gave other tools after a compress()")


@tools.check("§6 item 5")
def _answers_are_json(bench: Bench) -> None:
    """Every tool answers JSON text: to arguments that fit its schema, before any compaction too."""
    engine = bench.started()
    rows = FIXED["many small calls"].rows()
    for round_number in range(2):
        for schema in tool_schemas(bench, engine):
            answer_of(bench, engine, schema["name"], fitting(schema), rows)
        if round_number == 0:
            bench.compress(engine, rows, current_tokens=tokens(rows), force=True)


def fitting(schema: Message) -> dict[str, object]:
    """Return arguments that fit a tool's schema: all of its properties."""
    parameters = schema.get("parameters")
    properties = parameters.get("properties", {}) if isinstance(parameters, dict) else {}
    return {name: _sample(value) for name, value in properties.items()}


def _sample(schema: object) -> object:
    if not isinstance(schema, dict):
        return "file"

    options = schema.get("enum")
    if isinstance(options, list) and options:
        return options[0]

    kind = schema.get("type")
    return _SAMPLES.get(kind[0] if isinstance(kind, list) and kind else kind, "file")


@tools.check("§6 item 5")
def _odd_arguments_are_answered(bench: Bench) -> None:
    """A tool answers JSON text also to arguments that are missing, unknown or of a wrong kind."""
    engine = bench.started()
    rows = FIXED["many small calls"].rows()
    for schema in tool_schemas(bench, engine):
        wrong: dict[str, object] = dict.fromkeys(fitting(schema))
        listed: dict[str, object] = {name: [{"a": 1}] for name in fitting(schema)}
        huge: dict[str, object] = dict.fromkeys(fitting(schema), "x" * 20000)
        for args in ({}, {"no_such_argument": 1}, wrong, listed, huge):
            answer_of(bench, engine, schema["name"], args, rows)


@tools.check("§1.2 handle_tool_call")
def _unknown_tools_are_answered(bench: Bench) -> None:
    """A call of a tool that there is not is answered with an error in JSON."""
    engine = bench.started()
    tool_schemas(bench, engine)
    answer = answer_of(bench, engine, "no_such_tool", {}, [])
    if not isinstance(answer, dict) or "error" not in answer:
        raise Broken(f"the call of an unknown tool was answered with {shown(answer)}")


@tools.check("§6 item 5")
def _live_messages_stay(bench: Bench) -> None:
    """A tool changes nothing of the messages that it is given, which are the live ones."""
    engine = bench.started()
    rows = FIXED["many small calls"].rows()
    live = copy.deepcopy(rows)
    for schema in tool_schemas(bench, engine):
        answer_of(bench, engine, schema["name"], fitting(schema), live)
    if live != rows:
        raise Broken("a tool changed the live messages", rows)
