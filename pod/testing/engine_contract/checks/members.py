"""What an engine must have, and what of it a host reads, writes and calls."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

from pod.context.engine import ContextEngine
from pod.context.signature import compress_arguments

from ..bench import WINDOW, Bench, numbers_of
from ..examine import cannot_be_json, shown
from ..results import Area, Broken, NotApplicable

members = Area("members")
status = Area("status")

_WHOLE = {
    "last_prompt_tokens": 0,
    "last_completion_tokens": 0,
    "last_total_tokens": 0,
    "threshold_tokens": 0,
    "context_length": 0,
    "compression_count": 0,
    "protect_first_n": 0,
    "protect_last_n": 0,
}
"""Attributes that are whole numbers, and the least that each may be."""
_FRESH = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "compression_count")


@members.check("§1.2")
def _name(bench: Bench) -> None:
    """The name is one line of text, the same for every engine that the plugin makes."""
    first, second = bench.new(), bench.new()
    name: object = bench.call("name", lambda: first.name)
    if not isinstance(name, str) or not name.strip() or "\n" in name:
        raise Broken(f"its name is {shown(name)}")

    other: object = bench.call("name", lambda: second.name)
    if other != name:
        raise Broken(f"one engine is called {shown(name)}, the next {shown(other)}")


@members.check("§1.2")
def _required_methods(bench: Bench) -> None:
    """update_from_response, should_compress and compress can be called as the contract has it."""
    engine = bench.new()
    for method, args in (("update_from_response", 1), ("should_compress", 1), ("compress", 1)):
        function = getattr(engine, method, None)
        if not callable(function):
            raise Broken(f"{method} cannot be called")

        _must_take(function, method, *([None] * args))

    keywords = compress_arguments(engine, current_tokens=1, force=True).kwargs
    _must_take(engine.compress, "compress", None, **keywords)
    _must_take(engine.should_compress, "should_compress")


@members.check("§1.2, §1.3 item 6")
def _hooks_take_what_they_are_given(bench: Bench) -> None:
    """select_context, on_turn_complete and handle_tool_call take every argument of the contract."""
    engine = bench.new()
    _must_take_if_there(
        engine,
        "select_context",
        None,
        conversation_messages=None,
        incoming_message=None,
        budget_tokens=0,
    )
    known = ("turn_id", "task_id", "api_call_count", "interrupted", "failed", "turn_exit_reason")
    _must_take_if_there(engine, "on_turn_complete", None, usage=None, **dict.fromkeys(known))
    if bench.call("get_tool_schemas()", _schemas, engine):
        _must_take_if_there(engine, "handle_tool_call", None, None, messages=None)


@members.check("§1.1")
def _attributes(bench: Bench) -> None:
    """The numbers that a host reads are there, of the right kind, and 0 where nothing happened."""
    engine = bench.new()
    for name, least in _WHOLE.items():
        value = getattr(engine, name, None)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise Broken(f"{name} of a new engine is {shown(value)}")

    for name in _FRESH:
        if getattr(engine, name) != 0:
            raise Broken(f"{name} of a new engine is {getattr(engine, name)}, not 0")

    share = getattr(engine, "threshold_percent", None)
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise Broken(f"threshold_percent is {shown(share)}, not a share of the window")

    said = getattr(engine, "emit_automatic_compaction_status", True)
    if not isinstance(said, bool):
        raise Broken(f"emit_automatic_compaction_status is {shown(said)}")


@members.check("§1.1")
def _host_may_assign(bench: Bench) -> None:
    """The host may set an engine's numbers; they keep what was set, and only in that engine."""
    engine, other = bench.started("session-1"), bench.started("session-2", shares_home=True)
    before = dict(numbers_of(other))
    written = {"last_prompt_tokens": -1, "last_completion_tokens": 0, "threshold_tokens": 123}
    for name, value in written.items():
        bench.call(f"setting {name}", setattr, engine, name, value)
        if getattr(engine, name) != value:
            raise Broken(f"{name} was set to {value} and is {shown(getattr(engine, name))}")

    if dict(numbers_of(other)) != before:
        raise Broken("setting a number of one engine changed another engine")


@status.check("§1.2 get_status")
def _status(bench: Bench) -> None:
    """get_status has its five numbers within bounds, also right after a compaction, and is JSON."""
    engine = bench.started()
    _look_at_status(bench, engine)
    for reading in (-1, 10, WINDOW * 3):
        engine.last_prompt_tokens = reading
        _look_at_status(bench, engine)


def _look_at_status(bench: Bench, engine: ContextEngine) -> None:
    function = getattr(engine, "get_status", None)
    if not callable(function):
        raise NotApplicable("it has no get_status")

    found = bench.call("get_status()", function)
    if not isinstance(found, dict):
        raise Broken(f"get_status() returned {shown(found)}, not a dict")

    names = (
        *("last_prompt_tokens", "threshold_tokens", "context_length"),
        *("usage_percent", "compression_count"),
    )
    for name in names:
        value = found.get(name)
        if not isinstance(value, int | float) or value < 0:
            raise Broken(f"get_status() has {name} {shown(value)}")

    if not 0 <= found["usage_percent"] <= 100:
        raise Broken(f"get_status() has usage_percent {found['usage_percent']}")

    problem = cannot_be_json(found)
    if problem:
        raise Broken(f"get_status() is no JSON: {problem}")


@status.check("§1.2 get_automatic_compaction_status_message")
def _status_message(bench: Bench) -> None:
    """What it says of a routine compaction is text, or None to say nothing."""
    engine = bench.started()
    function: Callable[..., object] | None = getattr(
        engine, "get_automatic_compaction_status_message", None
    )
    if not callable(function):
        raise NotApplicable("it has no get_automatic_compaction_status_message")

    contexts: tuple[dict[str, object], ...] = (
        {"approx_tokens": 1, "threshold_tokens": 2, "context_length": 3, "model": "m"},
        {},
    )
    for phase in ("preflight", "compress"):
        for context in contexts:
            answer = bench.call(
                "get_automatic_compaction_status_message()",
                function,
                phase=phase,
                default_message="compacting",
                **context,
            )
            if answer is not None and not isinstance(answer, str):
                raise Broken(f"the message for {phase!r} is {shown(answer)}")


def _schemas(engine: ContextEngine) -> object:
    function = getattr(engine, "get_tool_schemas", None)
    return function() if callable(function) else []


def _must_take_if_there(
    engine: ContextEngine, method: str, *args: object, **kwargs: object
) -> None:
    function = getattr(engine, method, None)
    if callable(function):
        _must_take(function, method, *args, **kwargs)


def _must_take(
    function: Callable[..., object], method: str, *args: object, **kwargs: object
) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # It tells nothing about itself; whether it works is seen when it is called.

    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = json.dumps([*("…" for _ in args), *(f"{name}=" for name in kwargs)])
        raise Broken(f"{method}{signature} does not take {given}: {error}") from None
