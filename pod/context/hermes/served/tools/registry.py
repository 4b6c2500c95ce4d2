"""`tools.registry`: the JSON text that a plugin's tool answers with."""

from __future__ import annotations

import json

__all__ = ["tool_error", "tool_result"]


def tool_error(message: object, **extra: object) -> str:
    """Return the JSON text of an error, with further fields beside it."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False)


def tool_result(data: object = None, **fields: object) -> str:
    """Return the JSON text of `data`, or of an object of the fields where there is none."""
    return json.dumps(fields if data is None else data, ensure_ascii=False)
