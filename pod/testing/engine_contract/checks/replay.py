"""Whole sessions: the same twice, again after a restart, and over many compactions."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from pod.context.engine import ContextEngine, Message

from ..bench import MODEL, SMALL_WINDOW, Bench, Compressed, usage_of
from ..conversations import Conversation, Turn
from ..examine import (
    newest_user,
    orphan_results,
    shown,
    text_of,
    tokens,
    unanswered_calls,
    visible,
)
from ..results import Area, Broken
from .sessions import end_session
from .tools import answer_of, fitting, tool_schemas

replay = Area("replay")

TURNS = 60
_TURN = Turn(20, ((60,), (120, 5)), 30)


def _live(
    bench: Bench, engine: ContextEngine, look: Callable[[Compressed], None] | None = None
) -> list[list[Message]]:
    """Lead the engine through a long session as a host does; return the history after each turn.

    `look` is shown every compaction.
    """
    history: list[Message] = []
    histories = []
    session = 1
    for number in range(TURNS):
        turn = Conversation((evolve(_TURN, script=number % 3),), marker=f"turn-{number}").rows()
        history = [*history, *turn]
        size = tokens(history)
        bench.respond(engine, usage_of(size))
        if bench.wants_compaction(engine, size):
            compressed = bench.compress(engine, history, current_tokens=size)
            if look is not None:
                compressed.look(look)

            end_session(bench, engine, f"session-{session}")
            bench.start(
                engine,
                f"session-{session + 1}",
                boundary_reason="compression",
                old_session_id=f"session-{session}",
            )
            history, session = compressed.returned, session + 1
            engine.last_prompt_tokens = -1

        histories.append(history)

    return histories


def _whole(compressed: Compressed) -> None:
    before, after = compressed.given, compressed.returned
    said = newest_user(before)
    if not after or tokens(after) > tokens(before):
        raise Broken("in a long session compress() emptied the history or made it larger")
    if orphan_results(after) or unanswered_calls(after):
        raise Broken("in a long session compress() parted calls from results")
    if said is not None and not any(text_of(said) in text_of(row) for row in after):
        raise Broken("in a long session compress() lost what was said last")


@replay.check("§2.2; §10 #27566, #14694")
def _long_session(bench: Bench) -> None:
    """Through a long session of many compactions the history stays whole and bounded."""
    engine = bench.started(window=SMALL_WINDOW)
    histories = _live(bench, engine, _whole)
    sizes = [tokens(history) for history in histories]
    whole = TURNS * tokens(Conversation((_TURN,)).rows())
    if engine.compression_count and sizes[-1] > whole * 0.9:
        raise Broken(f"after {TURNS} turns and its compactions {sizes[-1]:,} tokens are left")


@replay.check("§10 #606")
def _same_twice(bench: Bench) -> None:
    """The same session, led through two engines, comes to the same histories."""
    first = _live(bench, bench.started(window=SMALL_WINDOW))
    second = _live(bench, bench.started(window=SMALL_WINDOW))
    for number, (one, other) in enumerate(zip(first, second, strict=True), 1):
        if [*map(visible, one)] != [*map(visible, other)]:
            odd = next(
                (b for a, b in zip(one, other, strict=False) if visible(a) != visible(b)), None
            )
            said = shown(text_of(odd)) if odd is not None else f"{len(other)} rows, not {len(one)}"
            raise Broken(f"in turn {number} the second engine came to another history: {said}", one)


@replay.check("§10 #606, case L01")
def _after_a_restart(bench: Bench) -> None:
    """A new engine with the same home goes on with the session: it compresses, its tools answer."""
    engine = bench.started(window=SMALL_WINDOW)
    history = _live(bench, engine)[-1]
    again = bench.new(shares_home=True)
    bench.tell_model(again, SMALL_WINDOW, MODEL)
    bench.start(again, "session-1")
    _ask_all(bench, again, history)
    more = [*history, *Conversation((_TURN,) * 12, marker="later").rows()]
    after = bench.compress(again, more, current_tokens=tokens(more), force=True).returned
    if not after or tokens(after) > tokens(more):
        raise Broken("a new engine emptied the history or made it larger", more)

    _ask_all(bench, again, after)


def _ask_all(bench: Bench, engine: ContextEngine, history: list[Message]) -> None:
    function: Callable[[], object] = getattr(engine, "get_tool_schemas", list)
    if bench.call("get_tool_schemas()", function):
        for schema in tool_schemas(bench, engine):
            answer_of(bench, engine, schema["name"], fitting(schema), history)
