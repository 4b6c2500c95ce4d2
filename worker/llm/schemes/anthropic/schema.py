"""JSON schemas as the Messages API takes them: those of tools, and that of an answer.

A schema for the answer is enforced while it is written, and only part of JSON Schema can be. What
merely narrows a value (a minimum, a pattern) is left out: whoever asked checks the answer anyway.
Where the form itself cannot be enforced (free keys, recursion), no schema is sent at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from worker.llm.types import JsonObject

_TOP_LEVEL_UNIONS = frozenset({"oneOf", "anyOf", "allOf"})
_SHAPING = frozenset(
    {
        "prefixItems",
        "patternProperties",
        "propertyNames",
        "contains",
        "additionalItems",
        "unevaluatedItems",
        "unevaluatedProperties",
        "dependentRequired",
        "dependentSchemas",
        "not",
        "if",
        "$dynamicRef",
    }
)
_FORMATS = frozenset(
    {
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    }
)
_DEFS = ("#/$defs/", "#/definitions/")
_KEPT = ("title", "description", "enum", "const", "required")


def tool_schema(parameters: JsonObject) -> dict[str, object]:
    """Return a tool's parameters as they are taken: an object, without a union at the top."""
    kept = {key: value for key, value in parameters.items() if key not in _TOP_LEVEL_UNIONS}
    return kept if kept.get("type") == "object" else {**kept, "type": "object"}


def answer_schema(schema: JsonObject) -> dict[str, object] | None:
    """Return `schema` as far as it can be enforced, or None where its form cannot be."""
    try:
        fitted = _fit(schema)
    except _NotEnforceable:
        return None

    definitions = _definitions(fitted)
    refs = {name: set(_refs(node)) for name, node in definitions.items()}
    if any(ref not in refs for ref in _refs(fitted)) or _has_cycle(refs):
        return None

    root = definitions.get(_name(fitted.get("$ref")), fitted)
    return fitted if root.get("type") == "object" else None


class _NotEnforceable(Exception):
    """The form that a schema describes cannot be enforced."""


def _fit(node: object) -> dict[str, object]:
    if not isinstance(node, Mapping) or not _SHAPING.isdisjoint(node):
        raise _NotEnforceable

    kind = node.get("type")
    if isinstance(kind, list):
        rest = {key: value for key, value in node.items() if key != "type"}
        return {"anyOf": [_fit({**rest, "type": one}) for one in kind]}

    fitted: dict[str, object] = {}
    for key in ("$defs", "definitions"):
        if isinstance(node.get(key), Mapping):
            fitted[key] = {name: _fit(value) for name, value in node[key].items()}
    if "$ref" in node:
        return {**fitted, "$ref": node["$ref"]}

    fitted |= {key: node[key] for key in _KEPT if key in node}
    fitted |= _fit_unions(node)
    fitted |= _fit_type(node, kind)
    if fitted.keys().isdisjoint({"type", "enum", "const", "anyOf", "allOf"}):
        raise _NotEnforceable  # anything at all
    return fitted


def _fit_unions(node: Mapping[str, object]) -> dict[str, object]:
    unions: dict[str, object] = {}
    for key, sent_as in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        branches = node.get(key)
        if isinstance(branches, list):
            unions[sent_as] = [_fit(branch) for branch in branches]
    return unions


def _fit_type(node: Mapping[str, object], kind: object) -> dict[str, object]:
    """Return the members that go with the node's type."""
    if not isinstance(kind, str):
        return {}

    fitted: dict[str, object] = {"type": kind}
    if kind == "object":
        properties = node.get("properties")
        if not isinstance(properties, Mapping) or node.get("additionalProperties"):
            raise _NotEnforceable  # keys that the schema does not name

        fitted["properties"] = {name: _fit(value) for name, value in properties.items()}
        fitted["additionalProperties"] = False
    elif kind == "array":
        fitted["items"] = _fit(node.get("items"))
        if node.get("minItems") == 1:
            fitted["minItems"] = 1
    elif node.get("format") in _FORMATS:
        fitted["format"] = node["format"]
    return fitted


def _definitions(schema: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for key in ("$defs", "definitions"):
        nodes = schema.get(key)
        found |= nodes if isinstance(nodes, Mapping) else {}
    return found


def _refs(node: object) -> Iterator[str]:
    """Yield the name of every definition that `node` refers to; an empty one for other places."""
    if isinstance(node, list):
        for one in node:
            yield from _refs(one)
    elif isinstance(node, Mapping):
        if "$ref" in node:
            yield _name(node["$ref"])
        for value in node.values():
            yield from _refs(value)


def _name(ref: object) -> str:
    start = next((start for start in _DEFS if isinstance(ref, str) and ref.startswith(start)), None)
    return str(ref).removeprefix(start) if start else ""


def _has_cycle(refs: Mapping[str, set[str]]) -> bool:
    """Tell whether a definition leads back to itself."""
    left = {name: set(names) for name, names in refs.items()}
    while left:
        ends = {name for name, names in left.items() if names.isdisjoint(left)}
        if not ends:
            return True

        left = {name: names for name, names in left.items() if name not in ends}
    return False
