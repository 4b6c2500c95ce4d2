"""Tools as function declarations: names that Gemini takes, and schemas that it can read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from worker.llm.types import ToolSpec

UNNAMED = "unnamed"
"""What a call is sent as that names no tool."""
# An underscore before `0x` is written out as well, so that nothing but ours reads as an escape.
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]|^[^A-Za-z_]|_(?=0x)")
_ESCAPE = re.compile(r"_0x([0-9A-F]{1,6})_")

_SCHEMA = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
)
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMAS_BY_NAME = frozenset({"patternProperties", "properties"})
# Where a schema comes from, and what its references meant: all references are written out.
_LEFT_OUT = frozenset({"$anchor", "$comment", "$defs", "$id", "$schema", "definitions"})
_LONGEST_NAME = 128
# A schema whose references fan out without end is cut here: what is deeper takes any value.
_MOST_NODES = 2000


def wire_name(name: str) -> str:
    """Return a tool's name as it is sent: letters, digits, `_` and `-`, no digit or `-` first.

    Every other character is written as its number, so that `own_name` finds the name again. What
    is too long then is cut: a model may make up a name of any length, and it is in the history.
    """
    escaped = _ILLEGAL.sub(lambda match: f"_0x{ord(match[0]):X}_", name)
    return escaped[:_LONGEST_NAME] or UNNAMED


def own_name(name: str) -> str:
    """Return the name of the tool that `name` was sent for; any other name as it is."""
    return _ESCAPE.sub(_character, name)


def _character(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


def declarations(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    """Return the declarations of `tools`, sorted by the names that are sent."""
    named = {wire_name(tool.name): tool for tool in tools}
    return [
        {
            "name": name,
            "description": tool.description,
            # Not `parameters`: that is a subset of OpenAPI, whose parser refuses whole requests.
            "parametersJsonSchema": object_schema(tool.parameters),
        }
        for name, tool in sorted(named.items())
    ]


def object_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """Return a tool's parameters as Gemini takes them: `plain_schema`, surely of an object."""
    plain = plain_schema(schema)
    return {"type": "object", "properties": {}, **plain}


def plain_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """Return a JSON Schema without what Gemini stumbles over.

    References are replaced by what they refer to, since anything beside a `$ref` is refused; one
    that leads back into itself, or nowhere, takes any value of its type. `const` becomes `enum`.
    """
    return _Writer(schema).write(schema)


class _Writer:
    """Writes out one schema."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._open: list[str] = []
        self._nodes = 0

    def write(self, schema: Mapping[str, object]) -> dict[str, object]:
        self._nodes += 1
        reference = schema.get("$ref")
        if isinstance(reference, str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return self._referred(reference) | self._members(beside)

        return self._members(schema)

    def _referred(self, reference: str) -> dict[str, object]:
        target = self._target(reference)
        if target is None:
            return {}
        if reference in self._open or self._nodes > _MOST_NODES:
            kind = target.get("type")
            return {"type": kind} if isinstance(kind, str) else {}

        self._open.append(reference)
        written = self.write(target)
        self._open.pop()
        return written

    def _target(self, reference: str) -> Mapping[str, object] | None:
        if not reference.startswith("#"):
            return None

        found: object = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None

    def _members(self, schema: Mapping[str, object]) -> dict[str, object]:
        members: dict[str, object] = {}
        for key, value in schema.items():
            if key == "const":
                members["enum"] = [value]
            elif key == "items" and isinstance(value, list):
                members["prefixItems"] = self._member("prefixItems", value)
            elif key not in _LEFT_OUT:
                members[key] = self._member(key, value)

        return members

    def _member(self, key: str, value: object) -> object:
        if key in _SCHEMAS_BY_NAME and isinstance(value, dict):
            return {name: self._schema(each) for name, each in value.items() if each is not False}
        if key in _SCHEMAS and isinstance(value, list):
            return [self._schema(each) for each in value if each is not False]
        # Here alone `true` and `false` may stand for a schema of anything and of nothing.
        return self.write(value) if key in _SCHEMA and isinstance(value, dict) else value

    def _schema(self, value: object) -> object:
        return self.write(value) if isinstance(value, dict) else {}
