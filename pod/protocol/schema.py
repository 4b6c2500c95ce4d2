"""The protocol as JSON Schema: every event, method, answer and line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, TypeAdapter

from pod.protocol.envelope import EVENTS
from pod.protocol.events import ErrorInfo
from pod.protocol.methods import METHODS
from pod.protocol.wire import PROTOCOL_VERSION

Schema: TypeAlias = dict[str, Any]
_Dumped = Literal["as it is", "without nulls"]

_ID: Schema = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_TEXT: Schema = {"type": "string"}
_OBJECT: Schema = {"type": "object"}


def protocol_schema() -> Schema:
    """Return the JSON Schema of everything that goes over the wire, by its name there."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "podworker protocol",
        "protocol": PROTOCOL_VERSION,
        "lines": _lines(),
        "events": {name: model_schema(model, "without nulls") for name, model in EVENTS.items()},
        "methods": {
            name: {
                "description": method.summary,
                "params": method.params.model_json_schema(),
                "answer": model_schema(method.answer, "as it is"),
            }
            for name, method in METHODS.items()
        },
    }


def model_schema(model: type[BaseModel], dumped: _Dumped) -> Schema:
    """Return the schema of what a model is written as.

    An event leaves out what is None; an answer has all its fields, and events inside it are as
    they are by themselves.
    """
    schema: Schema = TypeAdapter(model).json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        is_whole = dumped == "as it is" and part is schema
        part["required"] = [
            key for key in part.get("properties", {}) if is_whole or _is_always_there(part, key)
        ]
        for field in part.get("properties", {}).values():
            field.pop("default", None)
            if not is_whole:
                _drop_null(field)

    return schema


def _is_always_there(part: Schema, key: str) -> bool:
    if key in part.get("required", ()):
        return True

    return part["properties"][key].get("default") is not None


def _drop_null(field: Schema) -> None:
    """Take the null out of what may be left out, but is never null."""
    options = field.get("anyOf")
    if options is None or {"type": "null"} not in options:
        return

    options.remove({"type": "null"})
    if len(options) == 1:
        field.update(options[0])
        del field["anyOf"]


def _lines() -> dict[str, Schema]:
    """Return the schema of each kind of line."""
    nobody = {"anyOf": [*_ID["anyOf"], {"type": "null"}]}
    ref = {"type": "array", "prefixItems": [_TEXT, _NUMBER], "minItems": 2, "maxItems": 2}
    event = _object(
        "What a pod tells. `ref` names the session and entry that make it durable; `first_seq` is "
        "the first of several deltas that were joined for a slow subscriber, `seq` the last.",
        {"seq": _NUMBER, "launch": _TEXT, "ts": _NUMBER, "event": _TEXT, "data": _OBJECT},
        {"ref": ref, "first_seq": _NUMBER},
    )
    event["properties"]["event"] = {"enum": list(EVENTS)}
    request = _object(
        "What a client sends; without an id it is not answered.",
        {"method": {"enum": list(METHODS)}},
        {"id": _ID, "params": _OBJECT},
    )
    hello = _object(
        "Who the pod is; `seq` is its last event so far.",
        {
            "protocol": {"const": PROTOCOL_VERSION},
            "pod": _TEXT,
            "launch": _TEXT,
            "seq": _NUMBER,
            "session_id": _TEXT,
            "version": _TEXT,
        },
        {},
    )
    beat = _object(
        "All wanted events up to `seq` were sent before it.",
        {"launch": _TEXT, "seq": _NUMBER, "ts": _NUMBER},
        {},
    )
    error = model_schema(ErrorInfo, "without nulls")
    return {
        "hello": _object("The first line of a connection.", {"hello": hello}, {}),
        "request": request,
        "answer": _object("A request went well.", {"id": _ID, "ok": _OBJECT}, {}),
        "error": _object("A line was refused.", {"id": nobody, "error": error}, {}),
        "event": event,
        "heartbeat": _object("The pod is there.", {"heartbeat": beat}, {}),
    }


def _object(
    description: str, required: Mapping[str, Schema], optional: Mapping[str, Schema]
) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {**required, **optional},
        "required": list(required),
    }
