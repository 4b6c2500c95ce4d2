"""Which keys a manifest has and where, and what was probably meant by one it does not have."""

from __future__ import annotations

import difflib
import types
from functools import cache
from typing import get_args, get_origin

from attrs import frozen
from pydantic import BaseModel

from .schema import PodManifest

TablePath = tuple[str, ...]

# What other agents and older manifests call these things.
_OTHER_NAMES = {
    "max_turns": "max_requests",
    "max_steps": "max_requests",
    "max_iterations": "max_requests",
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "system": "system_prompt",
    "instructions_file": "system_prompt_file",
    "api_base": "base_url",
    "endpoint": "base_url",
    "url": "base_url",
    "type": "kind",
    "num_ctx": "context_window",
    "context_length": "context_window",
}
# A key given as itself; the shorter names only mean that beside the ways to name one.
_LITERAL_KEYS = frozenset({"api_key", "apikey", "api_token"})
_LITERAL_PROVIDER_KEYS = _LITERAL_KEYS | {"key", "token", "secret"}


@frozen
class _Table:
    """A section, and whether it stands in a list of such sections."""

    model: type[BaseModel]
    repeats: bool


@frozen
class UnknownKey:
    """What to say about a key that is not there: the message, the key meant, or all there are."""

    message: str
    suggestion: str | None = None
    allowed: tuple[str, ...] = ()


@cache
def tables() -> dict[TablePath, tuple[str, ...]]:
    """Return the keys of every table, by its path without list indices; `()` is the top level."""
    return {path: tuple(table.model.model_fields) for path, table in _walk().items()}


def header(path: TablePath) -> str:
    """Return a table's path the way its header is written."""
    name = ".".join(path)
    return f"[[{name}]]" if _walk()[path].repeats else f"[{name}]"


def unknown_key(table: TablePath, key: str, *, is_table: bool) -> UnknownKey:
    """Say what to do about `key`, which `table` does not have."""
    plain = key.lower().replace("-", "_")
    literal = _LITERAL_PROVIDER_KEYS if "api_key_env" in tables()[table] else _LITERAL_KEYS
    if plain in literal:
        return UnknownKey(
            'a key never stands in a manifest: name where it is, as api_key_env = "…", '
            "api_key_file or api_key_command",
            suggestion="api_key_env",
        )

    if table and table[-1] == "fallbacks" and plain == "fallbacks":
        return UnknownKey("a fallback has no fallbacks of its own; list it beside this one")

    return _meant(table, _OTHER_NAMES.get(plain, plain), is_table=is_table)


def _meant(table: TablePath, key: str, *, is_table: bool) -> UnknownKey:
    """Look for `key` here, then elsewhere, then for what resembles it here, then elsewhere."""
    here = tables()[table]
    noun = "unknown section" if is_table and not table else "unknown key"
    if key in here:
        return UnknownKey(f'{noun}; did you mean "{key}"?', suggestion=key)

    if key in tables()[()]:
        return UnknownKey(f"{noun} here; it belongs at the top level, as {header((key,))}")

    home = _home_of(key)
    if home is not None:
        return UnknownKey(f"{noun} here; it belongs in {header(home)}", suggestion=key)

    near = difflib.get_close_matches(key, here, n=1)
    if near:
        meant = header((near[0],)) if is_table and not table else f'"{near[0]}"'
        return UnknownKey(f"{noun}; did you mean {meant}?", suggestion=near[0])

    everywhere = sorted({name for names in tables().values() for name in names})
    for name in difflib.get_close_matches(key, everywhere, n=1, cutoff=0.8):
        home = _home_of(name)
        where = "at the top level" if home is None else f"in {header(home)}"
        return UnknownKey(f'{noun}; did you mean "{name}" {where}?', suggestion=name)

    return UnknownKey(noun, allowed=here)


def _home_of(key: str) -> TablePath | None:
    """Return the table nearest to the top that has `key`, the top level itself left out."""
    homes = (path for path, names in tables().items() if path and key in names)
    return next(homes, None)


@cache
def _walk() -> dict[TablePath, _Table]:
    """Return every table by its path, those nearer to the top first, in order of declaration."""
    found: dict[TablePath, _Table] = {(): _Table(PodManifest, repeats=False)}
    pending: list[TablePath] = [()]
    for path in pending:
        for name, field in found[path].model.model_fields.items():
            for table in _tables_in(field.annotation):
                found[(*path, name)] = table
                pending.append((*path, name))

    return found


def _tables_in(annotation: object) -> list[_Table]:
    """Return the section inside an annotation such as `tuple[HookSection, ...] | None`, if any."""
    if get_origin(annotation) is types.UnionType:
        return [table for part in get_args(annotation) for table in _tables_in(part)]

    repeats = get_origin(annotation) is tuple
    model = get_args(annotation)[0] if repeats else annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [_Table(model, repeats=repeats)]

    return []
