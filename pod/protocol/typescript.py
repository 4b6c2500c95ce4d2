"""The protocol as TypeScript declarations, made from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, TypeAlias

from pydantic import BaseModel

from pod.protocol.envelope import EVENTS
from pod.protocol.events import ErrorInfo
from pod.protocol.methods import METHODS
from pod.protocol.schema import model_schema, protocol_schema

Schema: TypeAlias = Mapping[str, Any]

_HEAD = """\
// The protocol of podworker: one JSON object a line, over a Unix socket or stdin and stdout.
// Made by `pod protocol typescript`; do not edit.
"""

_ENVELOPE = """\
/** An event, by its name. `seq` rises by one within a launch. */
export interface Envelope<Name extends keyof Events> {
  seq: number;
  launch: string;
  /** Milliseconds since 1970, UTC. */
  ts: number;
  event: Name;
  data: Events[Name];
  /** The session and the entry that make a durable event durable. */
  ref?: [string, number];
  /** The first of several deltas that were joined for a slow subscriber; `seq` is the last. */
  first_seq?: number;
}

/** Any event. */
export type PodEvent = { [Name in keyof Events]: Envelope<Name> }[keyof Events];

/** A request; without an id it is not answered. */
export interface Request<Name extends keyof Methods = keyof Methods> {
  id?: string | number;
  method: Name;
  params?: Methods[Name]["params"];
}

/** The answer of a request that went well. */
export interface Answer<Name extends keyof Methods = keyof Methods> {
  id: string | number;
  ok: Methods[Name]["answer"];
}

/** The answer of one that did not; of a line that is no request, the id is null. */
export interface Refusal {
  id: string | number | null;
  error: ErrorInfo;
}
"""

_LINE = """\
/** Any line that a pod sends. Readers pass over what they do not know. */
export type Line = { hello: Hello } | { heartbeat: Heartbeat } | Answer | Refusal | PodEvent;
"""


def typescript() -> str:
    """Return declarations of every event, method and line."""
    lines = protocol_schema()["lines"]
    written: dict[str, str] = {}
    for event in EVENTS.values():
        _declare(event, written, model_schema(event, "without nulls"))

    _declare(ErrorInfo, written, model_schema(ErrorInfo, "without nulls"))
    for method in METHODS.values():
        _declare(method.params, written, method.params.model_json_schema())
        _declare(method.answer, written, model_schema(method.answer, "as it is"))

    parts = [
        _HEAD,
        *written.values(),
        _interface("Hello", lines["hello"]["properties"]["hello"]),
        _interface("Heartbeat", lines["heartbeat"]["properties"]["heartbeat"]),
        _table("Events", "Every event's data, by the event's name.", _events()),
        _table("Methods", "What every method takes and answers.", _methods()),
        _ENVELOPE,
        _LINE,
    ]
    return "\n".join(parts)


def _events() -> Iterator[str]:
    for name, model in EVENTS.items():
        yield f"  {name}: {model.__name__};"


def _methods() -> Iterator[str]:
    for name, method in METHODS.items():
        yield f"  /** {method.summary} */"
        yield f"  {name}: {{ params: {method.params.__name__}; answer: {method.answer.__name__} }};"


def _table(name: str, said: str, rows: Iterator[str]) -> str:
    return "\n".join([f"/** {said} */", f"export interface {name} {{", *rows, "}", ""])


def _declare(model: type[BaseModel], written: dict[str, str], schema: Schema) -> None:
    """Declare a model and those it consists of, unless that is done."""
    for name, inner in schema.get("$defs", {}).items():
        if name not in written and name != "JsonValue":
            written[name] = _interface(name, inner)

    written.setdefault(model.__name__, _interface(model.__name__, schema))


def _interface(name: str, schema: Schema) -> str:
    lines = [*_comment(schema.get("description", ""), ""), f"export interface {name} {{"]
    required = schema.get("required", ())
    for key, field in schema.get("properties", {}).items():
        mark = "" if key in required else "?"
        lines += _comment(field.get("description", ""), "  ")
        lines.append(f"  {key}{mark}: {kind(field)};")

    return "\n".join([*lines, "}", ""])


def _comment(text: str, indent: str) -> Sequence[str]:
    text = " ".join(text.split())
    if not text:
        return ()

    if len(indent) + len(text) + len("/**  */") <= 100:
        return (f"{indent}/** {text} */",)

    rows = wrap(text, 100 - len(indent) - 3)
    return (f"{indent}/**", *(f"{indent} * {row}" for row in rows), f"{indent} */")


def kind(schema: Schema) -> str:
    """Return the type of what a schema describes."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return "unknown" if name == "JsonValue" else name

    if "anyOf" in schema:
        return " | ".join(kind(option) for option in schema["anyOf"])

    if "const" in schema or "enum" in schema:
        return " | ".join(map(_literal, schema.get("enum", [schema.get("const")])))

    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            held = schema.get("additionalProperties")
            return f"Record<string, {kind(held) if isinstance(held, dict) else 'unknown'}>"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as plain:
            return str(plain)
        case _:
            return "unknown"


def _list(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(map(kind, schema['prefixItems']))}]"

    inner = kind(schema["items"])
    return f"({inner})[]" if " | " in inner else f"{inner}[]"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
