"""Calling an engine with what its signature takes: found out by looking, never by trying.

Engines were written against several versions of the contract. Each function here calls at most
once, and a `TypeError` from the body of an engine's method passes through.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from .attempt import tried
from .engine import ContextEngine, Message

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Parameters: TypeAlias = "list[inspect.Parameter]"


@frozen
class CompressArguments:
    """The keywords for one `compress`, after the messages."""

    kwargs: dict[str, object]
    drops_memory: bool
    """Whether there is memory text that this engine does not take."""

    @staticmethod
    def warning(engine_name: str) -> str:
        """Return what is said, once an engine, where `drops_memory`."""
        return (
            f"context engine {engine_name} does not accept memory_context; "
            "continuing without provider-supplied summary context"
        )


def overrides(engine: object, hook: str) -> bool:
    """Tell whether an engine brings a hook of its own, so that a default costs nothing."""
    bound, failure = tried(lambda: getattr(engine, hook, None))
    if failure is not None:
        return True  # There is something; the call of it is where that is told.

    if not callable(bound):
        return False

    # A hook assigned to the instance is no method, and nobody's default.
    return getattr(bound, "__func__", None) is not getattr(ContextEngine, hook)


def without_async(engine: ContextEngine) -> list[str]:
    """Give an engine the default in the place of each hook that is async; return what to say.

    Hooks are called in a thread and nobody awaits what they return: one that is async would do
    nothing at all, and Python would warn of that with our file names.
    """
    left_out = []
    for hook in sorted({*vars(ContextEngine), *_WITHOUT_DEFAULT}):
        bound, _ = tried(lambda hook=hook: getattr(engine, hook, None))  # type: ignore[misc]  # bound now
        # On the class too: a copy may have been given the default of what it is a copy of.
        if not any(map(inspect.iscoroutinefunction, (bound, getattr(type(engine), hook, None)))):
            continue

        default = getattr(ContextEngine, hook, None)
        plain = default.__get__(engine) if default is not None else None
        tried(lambda hook=hook, plain=plain: setattr(engine, hook, plain))  # type: ignore[misc]  # bound now
        left_out.append(f"its {hook} is async; it must be a plain function: going on without it")

    return left_out


_WITHOUT_DEFAULT = (
    *("bind_session_state", "carry_over_new_session_context"),
    *("get_active_compression_failure_cooldown", "should_defer_preflight_to_real_usage"),
)
"""Hooks that are called where an engine has them, and that `ContextEngine` has not."""


def accepted_keywords(
    function: Callable[..., object], candidates: Mapping[str, object], *, positional: int = 0
) -> dict[str, object]:
    """Return those of `candidates` that `function` takes beside its first `positional` arguments.

    One that says nothing about itself is given them all.
    """
    parameters = _parameters(function)
    return dict(candidates) if parameters is None else _accepted(parameters, candidates, positional)


def compress_arguments(
    engine: ContextEngine,
    *,
    current_tokens: int | None,
    focus_topic: str | None = None,
    force: bool = False,
    memory_context: str = "",
) -> CompressArguments:
    """Return the keywords that `engine.compress` takes. Blank memory text is never passed."""
    has_memory = bool(memory_context.strip())
    candidates: dict[str, object] = {
        "current_tokens": current_tokens,
        "focus_topic": focus_topic,
        "force": force,
    }
    if has_memory:
        candidates["memory_context"] = memory_context

    parameters = _parameters(engine.compress)
    if parameters is None:
        return CompressArguments({"current_tokens": current_tokens}, has_memory)

    kwargs = _accepted(parameters, candidates, 1)
    return CompressArguments(kwargs, has_memory and "memory_context" not in kwargs)


def update_context_engine_model(
    engine: ContextEngine, *, model: str, context_length: int, **details: object
) -> None:
    """Call `engine.update_model` once, with as much of `details` as it takes.

    `details`: `base_url`, `api_key`, `provider`, `api_mode`. Nothing happens where the engine has
    no such method.
    """
    function: Callable[..., object] | None = getattr(engine, "update_model", None)
    if not callable(function):
        return

    known = ("base_url", "api_key", "provider", "api_mode")
    candidates: dict[str, object] = {"model": model, "context_length": context_length}
    candidates |= {name: details.get(name, "") for name in known}
    parameters = _parameters(function)
    if parameters is None:
        function(model, context_length)
        return

    count = _must_be_positional(parameters, candidates)
    values = _by_position(parameters[:count], candidates)
    function(*values, **_accepted(parameters, candidates, count))


def start_context_engine_session(engine: ContextEngine, session_id: str, **kwargs: object) -> None:
    """Call `engine.on_session_start` once, with the id and as many of `kwargs` as it takes.

    The id goes to the first positional parameter, whatever it is called. Nothing happens where the
    engine has no such method.
    """
    function = getattr(engine, "on_session_start", None)
    if not callable(function):
        return

    parameters = _parameters(function)
    if parameters is None:
        function(session_id)
    elif any(p.kind in (*_POSITIONAL, p.VAR_POSITIONAL) for p in parameters):
        function(session_id, **_accepted(parameters, kwargs, 1))
    else:
        function(**_accepted(parameters, {"session_id": session_id, **kwargs}, 0))


def end_context_engine_session(
    engine: ContextEngine, session_id: str, messages: list[Message]
) -> None:
    """Call `engine.on_session_end` once, with the id and the messages as it takes them.

    It may take both in either order (told by their names), or the messages alone. Nothing happens
    where the engine has no such method.
    """
    function = getattr(engine, "on_session_end", None)
    if not callable(function):
        return

    parameters = _parameters(function)
    if parameters is None or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        function(session_id, messages)
        return

    names = [p.name for p in parameters if p.kind in _POSITIONAL]
    if not names:
        both = {"session_id": session_id, "messages": messages}
        function(**_accepted(parameters, both, 0))
    elif len(names) == 1:
        function(session_id if _is_id(names[0]) else messages)
    elif _is_id(names[1]) and not _is_id(names[0]):
        function(messages, session_id)
    else:
        function(session_id, messages)


def _is_id(name: str) -> bool:
    return "id" in name.split("_") or name.startswith("session")


def _parameters(function: Callable[..., object]) -> _Parameters | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None  # A builtin or an extension type: it tells nothing about itself.


def _accepted(
    parameters: _Parameters, candidates: Mapping[str, object], positional: int
) -> dict[str, object]:
    by_position = [p for p in parameters if p.kind in _POSITIONAL]
    taken = {p.name for p in by_position[:positional]}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return {name: value for name, value in candidates.items() if name not in taken}

    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {p.name for p in parameters if p.kind in keywords} - taken
    return {name: value for name, value in candidates.items() if name in names}


def _must_be_positional(parameters: _Parameters, candidates: Mapping[str, object]) -> int:
    """Return how many leading parameters can only be filled by position."""
    count = 0
    for index, parameter in enumerate(parameters):
        if parameter.kind not in _POSITIONAL:
            break

        is_foreign = parameter.name not in candidates and parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY or is_foreign:
            count = index + 1

    return count


def _by_position(
    parameters: Sequence[inspect.Parameter], candidates: Mapping[str, object]
) -> list[Any]:
    """Return the values for `parameters`: by name where known, else in the contract's order."""
    named = {p.name for p in parameters}
    others = iter([value for name, value in candidates.items() if name not in named])
    return [candidates[p.name] if p.name in candidates else next(others, "") for p in parameters]
