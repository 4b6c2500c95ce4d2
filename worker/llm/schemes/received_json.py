"""JSON as servers really send it: read without loss, and written back as the text it might be."""

from __future__ import annotations

import json

from worker.llm.failures import not_json
from worker.llm.reports import read_json
from worker.text import clean_text

TOO_DEEP = "[nested too deeply to be kept]"


def read_object(data: str, provider: str, *, is_exact: bool = False) -> dict[str, object]:
    """Return the JSON object that `data` is; with `is_exact` no number in it is rounded.

    Raises:
        BadAnswer: It is none.
    """
    chunk = _read_exactly(data) if is_exact else read_json(data)
    if not isinstance(chunk, dict):
        raise not_json(provider, data)

    return chunk


def _read_exactly(data: str) -> object:
    """Read with the library that is slow, and that keeps integers of any size."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def arguments_text(value: object) -> str:
    """Return a tool call's arguments as text: what was received, or the JSON that it was."""
    if isinstance(value, str):
        return value
    # Some proxies cannot tell an empty object from an empty list.
    return "" if value is None or value == [] else json_text(value)


def json_text(value: object) -> str:
    """Return `value` as JSON text, valid UTF-8; what cannot be written comes to no JSON at all."""
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except RecursionError:
        return TOO_DEEP


def object_in(value: object) -> dict[str, object]:
    """Return `value` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def count_in(*values: object) -> int | None:
    """Return the first of `values` that is a count, or None. Some servers count in fractions."""
    counts = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
    return next((v for v in counts if type(v) is int and v >= 0), None)
