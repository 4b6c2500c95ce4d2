"""The generated parts of the reference pages: every manifest key, event and method, from the code.

    python tests/docs/reference.py     # rewrites them where they are

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
_PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
Schema: TypeAlias = Mapping[str, Any]


def generated_parts(page: str) -> dict[str, str]:
    """Return the generated parts of a page, by name, as they stand."""
    return {name: text for _, name, text, _ in _PART.findall(page)}


def rewritten(page: str) -> str:
    """Return the page with its generated parts made anew."""
    return _PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}{found[4]}", page)


# --- the manifest ---------------------------------------------------------------------------


def manifest_keys() -> str:
    """Return the tables of every manifest key, section by section."""
    from manifests import manifest_json_schema

    schema: Any = manifest_json_schema()
    definitions: Mapping[str, Schema] = schema["$defs"]
    lines: list[str] = []
    for name, field in schema["properties"].items():
        lines += _section(name, field, definitions)

    return "\n".join(lines) + "\n"


def _section(name: str, field: Schema, definitions: Mapping[str, Schema]) -> Iterator[str]:
    is_list = field.get("type") == "array"
    section = definitions[_refers_to(field)]
    yield f"\n### `[[{name}]]`\n" if is_list else f"\n### `[{name}]`\n"
    yield f"{_one_line(field.get('description') or section['description'])}\n"
    yield "| key | value | default | |"
    yield "|---|---|---|---|"
    for key, held, required in _keys("", section, definitions):
        default = "required" if required else _default(held)
        said = _one_line(held.get("description") or "")
        yield f"| `{key}` | {_kind(held, definitions)} | {default} | {said} |"


def _keys(
    prefix: str, section: Schema, definitions: Mapping[str, Schema]
) -> Iterator[tuple[str, Schema, bool]]:
    """Yield each key of a section; tables inside it follow, but for a provider's own."""
    for key, field in section["properties"].items():
        inner = _refers_to(field)
        yield f"{prefix}{key}", field, key in section.get("required", ())
        if inner and not inner.endswith("Provider") and inner != "ProviderSection":
            mark = "[]" if field.get("type") == "array" else ""
            yield from _keys(f"{prefix}{key}{mark}.", definitions[inner], definitions)


def _refers_to(field: Schema) -> str:
    """Return the name of the section that a field holds, or of those it lists; else empty."""
    options = [field, field.get("items", {}), *field.get("anyOf", ())]
    refs = [option["$ref"].rsplit("/", 1)[-1] for option in options if "$ref" in option]
    return next((ref for ref in refs if ref != "JsonValue"), "")


def _kind(field: Schema, definitions: Mapping[str, Schema]) -> str:
    if "anyOf" in field:
        kinds = [_kind(option, definitions) for option in field["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null")

    if "$ref" in field:
        return "table"

    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))

    match field.get("type"):
        case "array":
            return f"list of {_kind(field['items'], definitions)}"
        case "object":
            return "table"
        case "integer":
            return "whole number" + _bounds(field)
        case "number":
            return "number" + _bounds(field)
        case "boolean":
            return "`true`, `false`"
        case "string":
            return "text"
        case other:
            return str(other)


def _bounds(field: Schema) -> str:
    most = field.get("maximum")
    if most is not None and most < 1_000_000:
        return f", up to {most:g}"

    return ", above 0" if field.get("minimum") == 1 or "exclusiveMinimum" in field else ""


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None or (isinstance(value, dict) and value):
        return ""

    if value in ([], {}):
        return "none"

    if isinstance(value, float) and value.is_integer():
        value = int(value)

    shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    listed = isinstance(value, list)
    return ", ".join(f"`{v}`" for v in value) if listed else f"`{shown or value}`"


# --- the events -----------------------------------------------------------------------------


def event_fields() -> str:
    """Return every event, with its fields."""
    from pod.protocol import EVENTS

    lines: list[str] = []
    for name, model in EVENTS.items():
        schema: Schema = model.model_json_schema()
        definitions = schema.get("$defs", {})
        lines += [f"\n### `{name}`\n", f"{_one_line(schema['description'])}\n"]
        fields = schema.get("properties", {})
        for key, field in fields.items():
            said = _one_line(field.get("description") or "")
            optional = "" if key in schema.get("required", ()) else ", may be missing"
            told = f": {said}" if said else ""
            lines.append(f"* `{key}` ({_event_kind(field, definitions)}{optional}){told}")

    return "\n".join(lines) + "\n"


def _event_kind(field: Schema, definitions: Mapping[str, Schema]) -> str:
    ref = _refers_to(field)
    if ref:
        return f"as `{_wire_name(ref)}`" if ref != "ErrorInfo" else "`code`, `message`, `hint`"

    if field.get("type") == "array" and "prefixItems" in field:
        return "list: " + ", ".join(_kind(x, definitions) for x in field["prefixItems"])

    return _kind(field, definitions)


def _wire_name(cls: str) -> str:
    from pod.protocol import EVENTS

    return next((name for name, model in EVENTS.items() if model.__name__ == cls), cls)


# --- the methods ----------------------------------------------------------------------------


def method_fields() -> str:
    """Return every method, with what it takes and what it answers."""
    from pod.protocol.methods import METHODS
    from pod.protocol.schema import model_schema

    lines: list[str] = []
    for name, method in METHODS.items():
        answer = model_schema(method.answer, "as it is")
        lines += [f"\n### `{name}`\n", f"{method.summary}"]
        lines += _method_part("Takes", method.params.model_json_schema())
        lines += _method_part("Answers", answer)

    return "\n".join(lines) + "\n"


def _method_part(said: str, schema: Schema) -> Iterator[str]:
    definitions = schema.get("$defs", {})
    fields = schema.get("properties", {})
    if fields:
        yield f"\n{said}:\n"

    for key, field in fields.items():
        optional = "" if key in schema.get("required", ()) else ", may be missing"
        about = _one_line(field.get("description") or "")
        kind = _method_kind(field, definitions)
        yield f"* `{key}` ({kind}{optional})" + (f": {about}" if about else "")


def _method_kind(field: Schema, definitions: Mapping[str, Schema]) -> str:
    ref = _refers_to(field)
    if isinstance(field.get("const"), bool):
        return f"`{str(field['const']).lower()}`"

    if ref and field.get("type") == "array":
        return f"list of {_members(definitions[ref])}"

    if ref:
        return (
            f"as `{_wire_name(ref)}`, or null" if "anyOf" in field else _members(definitions[ref])
        )

    if "anyOf" in field and {"type": "null"} in field["anyOf"]:
        return f"{_kind(field, definitions)}, or null"

    return _kind(field, definitions)


def _members(schema: Schema) -> str:
    return ", ".join(f"`{key}`" for key in schema["properties"])


# --- the checks of engines ------------------------------------------------------------------


def engine_checks() -> str:
    """Return every check that engines are held to."""
    from pod.testing.engine_contract import CHECKS

    lines = ["\n| area | check | what holds | says |", "|---|---|---|---|"]
    lines += [
        f"| {check.area} | `{check.id}` | {_one_line(check.statement)} | {check.source} |"
        for check in CHECKS
    ]
    return "\n".join(lines) + "\n\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PARTS: dict[str, Callable[[], str]] = {
    "keys": manifest_keys,
    "events": event_fields,
    "methods": method_fields,
    "checks": engine_checks,
}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for path in sorted(ROOT.glob("docs/*.md")):
        text = path.read_text(encoding="utf-8")
        if rewritten(text) != text:
            path.write_text(rewritten(text), encoding="utf-8")
            sys.stdout.write(f"rewrote {path.relative_to(ROOT)}\n")
