"""What an engine is told of sessions: in every order, and what a reset leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from attrs import evolve

from pod.context.engine import ContextEngine
from pod.context.signature import end_context_engine_session

from ..bench import SMALL_WINDOW, Bench, usage_of
from ..conversations import FIXED
from ..examine import tokens
from ..results import Area, Broken, NotApplicable

sessions = Area("sessions")

_ORDERS = (
    ("end a",),
    ("end a", "end a"),
    ("reset",),
    ("start a", "start a"),
    ("start a", "end a", "end a"),
    ("start a", "start b", "end a", "end b"),
    ("start a", "reset", "start b", "end a"),
)


@sessions.check("§2.1")
def _callbacks_in_any_order(bench: Bench) -> None:
    """Start, end and reset may come in any order, doubled or missing; then it still compresses."""
    for order in _orders():
        engine = bench.new()
        bench.tell_model(engine, SMALL_WINDOW)
        for step in order:
            _take(bench, engine, step)

    rows = FIXED["many small calls"].rows()
    for order in _ORDERS:
        engine = bench.new()
        bench.tell_model(engine, SMALL_WINDOW)
        for step in order:
            _take(bench, engine, step)
        if not bench.compress(engine, rows, current_tokens=tokens(rows), force=True).returned:
            raise Broken(f"after {', '.join(order)} compress() returned an empty list", rows)


def _orders() -> Iterator[Sequence[str]]:
    steps = ("start a", "end a", "reset", "start b")
    for length in (1, 2, 3):
        yield from permutations(steps, length)


def _take(bench: Bench, engine: ContextEngine, step: str) -> None:
    name, _, session = step.partition(" ")
    if name == "start":
        bench.start(engine, f"session-{session}")
    elif name == "end":
        end_session(bench, engine, f"session-{session}")
    else:
        reset(bench, engine)


def end_session(bench: Bench, engine: ContextEngine, session_id: str) -> None:
    """Tell the engine that a session ends."""
    rows = FIXED["a short one"].rows()
    bench.call("on_session_end()", end_context_engine_session, engine, session_id, rows)


def reset(bench: Bench, engine: ContextEngine) -> None:
    """Tell the engine to forget its session, if it can be told so."""
    function: Callable[[], object] | None = getattr(engine, "on_session_reset", None)
    if callable(function):
        bench.call("on_session_reset()", function)


@sessions.check("§2.1")
def _start_takes_more_or_less(bench: Bench) -> None:
    """on_session_start takes the id alone, all that the contract names, and what is named later."""
    engine = bench.new()
    bench.tell_model(engine, SMALL_WINDOW)
    function: Callable[..., object] | None = getattr(engine, "on_session_start", None)
    if not callable(function):
        raise NotApplicable("it has no on_session_start")

    bench.call("on_session_start() with the id alone", function, "session-1")
    bench.start(engine, "session-2", old_session_id="session-1", carry_over_context=True)
    bench.start(engine, "session-3", something_new={"of a": "later version"})


@sessions.check("§1.2 on_session_reset")
def _reset_sets_zero(bench: Bench) -> None:
    """After a reset the token counts and compression_count are 0, never -1."""
    for reading in (-1, 5_000):
        engine = bench.started()
        bench.respond(engine, usage_of(5_000))
        engine.last_prompt_tokens = reading
        reset(bench, engine)
        names = (
            *("last_prompt_tokens", "last_completion_tokens", "last_total_tokens"),
            "compression_count",
        )
        for name in names:
            value = getattr(engine, name, None)
            if value != 0:
                raise Broken(f"after a reset {name} is {value}, not 0")


@sessions.check("§2.1, §10 hermes-lcm#68")
def _compaction_boundary(bench: Bench) -> None:
    """A session that goes on under another id after a compaction can be compressed again."""
    engine = bench.started("session-1", window=SMALL_WINDOW)
    rows = FIXED["many small calls"].rows()
    first = bench.compress(engine, rows, current_tokens=tokens(rows), force=True).returned
    end_session(bench, engine, "session-1")
    bench.start(engine, "session-2", boundary_reason="compression", old_session_id="session-1")
    engine.last_prompt_tokens = -1
    engine.last_completion_tokens = 0
    bench.wants_compaction(engine, 100)
    more = [*first, *evolve(FIXED["large results"], marker="later").rows()]
    again = bench.compress(engine, more, current_tokens=tokens(more), force=True)
    if not again.returned or tokens(again.returned) > tokens(more):
        raise Broken("after a compaction's boundary compress() lost or added messages", more)


@sessions.check("§1.2 on_session_end")
def _end_leaves_its_input_alone(bench: Bench) -> None:
    """on_session_end changes nothing of the messages that it is shown."""
    engine = bench.started()
    rows = FIXED["many small calls"].rows()
    given = copy.deepcopy(rows)
    bench.call("on_session_end()", end_context_engine_session, engine, "session-1", given)
    if given != rows:
        raise Broken("on_session_end() changed the messages it was shown", rows)
