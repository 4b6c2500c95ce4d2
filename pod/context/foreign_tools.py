"""A plugin's tool as a model may be told of it: checked, as one bad schema spoils every request."""

from __future__ import annotations

import json
import re
from typing import Any

from worker.llm.types import ToolSpec
from worker.text import clean_text, cut_middle, utf8_len

SCHEMA_MAX_BYTES = 65_536
DESCRIPTION_MAX_BYTES = 16_384

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class BadToolSchema(Exception):
    """What a plugin gave for a tool is none; the text says why."""


def spec_of(schema: object) -> ToolSpec:
    """Return the tool that a function object describes, bare or wrapped as `function`.

    Raises:
        BadToolSchema: It has no name that providers take, or parameters that are no JSON Schema of
            an object.
    """
    function = schema.get("function", schema) if isinstance(schema, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise BadToolSchema("one of its tools has no name")

    if not _NAME.fullmatch(name):
        shown = clean_text(name[:60])
        raise BadToolSchema(
            f"its tool {shown!r} has a name not of 1 to 64 letters, digits, - and _"
        )

    description = function.get("description")
    said = clean_text(description) if isinstance(description, str) else ""
    return ToolSpec(
        name, cut_middle(said, DESCRIPTION_MAX_BYTES), _parameters(name, function.get("parameters"))
    )


def _parameters(name: str, given: object) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}} | (given if isinstance(given, dict) else {})
    if parameters["type"] != "object" or not isinstance(parameters["properties"], dict):
        raise BadToolSchema(f"the parameters of its tool {name} are no object")

    try:
        text = json.dumps(parameters, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        why = f"the parameters of its tool {name} are no JSON ({type(error).__name__})"
        raise BadToolSchema(why) from error

    if utf8_len(text) > SCHEMA_MAX_BYTES:
        raise BadToolSchema(
            f"the parameters of its tool {name} are over {SCHEMA_MAX_BYTES:,} bytes"
        )

    read: dict[str, Any] = json.loads(clean_text(text))
    return read
