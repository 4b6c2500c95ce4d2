"""Tables that are handed to a plugin as they are: any keys, plain values."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, JsonValue

from ._expansion import mistake

DEEPEST_OPTION = 32
LARGEST_INTEGER = 2**63 - 1


def _checked_options(given: object) -> object:
    """Refuse what cannot be handed on as JSON, naming the first such option."""
    pending: list[tuple[str, object, int]] = [("", given, 0)]
    while pending:
        where, value, depth = pending.pop()
        if depth > DEEPEST_OPTION:
            raise mistake(f"is nested more than {DEEPEST_OPTION} levels deep")

        if isinstance(value, dict):
            pending.extend((f"{where}.{key}", inner, depth + 1) for key, inner in value.items())
        elif isinstance(value, list):
            pending.extend((f"{where}[{n}]", inner, depth + 1) for n, inner in enumerate(value))
        elif not _fits_json(value):
            raise mistake(f'has {where.lstrip(".")!r}, which is no plain value; write it as "…"')

    return given


def _fits_json(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST_INTEGER

    if isinstance(value, float):
        return abs(value) < float("inf")

    return value is None or isinstance(value, str)


Options: TypeAlias = Annotated[dict[str, JsonValue], BeforeValidator(_checked_options)]
"""A table of options, which is valid JSON."""
