"""Engines beside each other and one engine in several threads."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence

from pod.context.engine import ContextEngine, Message

from ..bench import SMALL_WINDOW, WINDOW, Bench, Compressed, usage_of
from ..conversations import FIXED, marked
from ..examine import orphan_results, shown, text_of, tokens
from ..results import Area, Broken, NotApplicable, as_messages
from .tools import fitting, parsed, tool_schemas

clones = Area("clones")
threads = Area("threads")

MARKERS = ("MARKER-AMBER", "MARKER-BIRCH", "MARKER-CORAL", "MARKER-DELTA")
ROUNDS = 3


def _clone(bench: Bench, engine: ContextEngine) -> ContextEngine:
    function: Callable[[], ContextEngine | None] | None = getattr(engine, "clone_for_agent", None)
    if not callable(function):
        made: ContextEngine | None = bench.call("copying it", copy.deepcopy, engine)
    else:
        made = bench.call("clone_for_agent()", function)
    if made is None or made is engine:
        given = "None" if made is None else "the engine itself"
        raise Broken(f"clone_for_agent() returned {given}")
    if not callable(getattr(made, "compress", None)):
        raise Broken(f"clone_for_agent() returned a {type(made).__name__}, which is no engine")

    return made


# ------------------------------------------------------------------ clones


@clones.check("§5.4, cases L01, L02")
def _can_be_cloned(bench: Bench) -> None:
    """clone_for_agent gives another engine of the same name, which works."""
    engine = bench.started(window=SMALL_WINDOW)
    rows = FIXED["many small calls"].rows()
    for made in (_clone(bench, bench.new()), _clone(bench, engine)):
        if made.name != engine.name:
            raise Broken(f"the clone of {engine.name!r} is called {made.name!r}")

        bench.tell_model(made, SMALL_WINDOW)
        bench.start(made, "session-2")
        if not bench.compress(made, rows, current_tokens=tokens(rows), force=True).returned:
            raise Broken("the clone's compress() returned an empty list", rows)


@clones.check("§5.4, §2.3 item 5")
def _clones_share_nothing(bench: Bench) -> None:
    """What a clone is told of its model and its tokens changes nothing of the original."""
    engine = bench.started()
    bench.respond(engine, usage_of(1_111))
    made = _clone(bench, engine)
    before = (engine.last_prompt_tokens, engine.context_length, engine.threshold_tokens)
    bench.tell_model(made, WINDOW * 2, "another-model")
    bench.start(made, "session-2")
    bench.respond(made, usage_of(2_222))
    after = (engine.last_prompt_tokens, engine.context_length, engine.threshold_tokens)
    for name, was, now in zip(
        ("last_prompt_tokens", "context_length", "threshold_tokens"), before, after, strict=True
    ):
        if was != now:
            raise Broken(f"a clone and its original share {name}")


@clones.check("§5.4, §1.1")
def _sessions_share_no_numbers(bench: Bench) -> None:
    """Two sessions at once share no number: tokens, window, trigger, compressions."""
    one, other = bench.started("session-1"), bench.started("session-2", shares_home=True)
    if one is other:
        raise Broken("the factory gave the same engine twice")

    bench.respond(one, usage_of(1_111))
    bench.respond(other, usage_of(2_222))
    if one.last_prompt_tokens != 1_111:
        raise Broken("two sessions at once share last_prompt_tokens")

    before = (one.context_length, one.threshold_tokens, one.compression_count)
    bench.tell_model(other, WINDOW * 4, "another-model")
    rows = FIXED["many small calls"].rows()
    bench.compress(other, rows, current_tokens=tokens(rows), force=True)
    after = (one.context_length, one.threshold_tokens, one.compression_count)
    names = ("context_length", "threshold_tokens", "compression_count")
    for name, was, now in zip(names, before, after, strict=True):
        if was != now:
            raise Broken(f"two sessions at once share {name}")


@clones.check("§5.4")
def _sessions_share_no_text(bench: Bench) -> None:
    """Nothing of one session is in what another session's compress() returns."""
    one = bench.started("session-1", window=SMALL_WINDOW)
    other = bench.started("session-2", window=SMALL_WINDOW, shares_home=True)
    first, second = marked(MARKERS[0]).rows(), marked(MARKERS[1]).rows()
    for _ in range(2):
        _pure(bench.compress(one, first, current_tokens=tokens(first), force=True), MARKERS[0])
        _pure(bench.compress(other, second, current_tokens=tokens(second), force=True), MARKERS[1])


def _pure(compressed: Compressed, own: str) -> None:
    text = "\n".join(map(text_of, compressed.returned))
    strange = [marker for marker in MARKERS if marker != own and marker in text]
    if strange:
        raise Broken("compress() returned text of another session", compressed.given)


# ------------------------------------------------------------------ threads


@threads.check("§2.5 engine rules")
def _any_thread(bench: Bench) -> None:
    """What is told in one thread is known in every other."""
    engine = bench.started()
    bench.respond(engine, usage_of(4_321))
    readings = bench.together([("reading", lambda: engine.last_prompt_tokens) for _ in range(3)])
    here = engine.last_prompt_tokens
    if set(readings) != {4_321} or here != 4_321:
        raise Broken(f"last_prompt_tokens of 4,321 is {shown([*readings, here])} in other threads")

    answers = bench.together(
        [("should_compress()", lambda: bool(engine.should_compress(100_000))) for _ in range(3)]
    )
    if len({*answers, bool(engine.should_compress(100_000))}) > 1:
        raise Broken("should_compress() answers differently in different threads")


@threads.check("§2.5 engine rules")
def _compress_beside_other_calls(bench: Bench) -> None:
    """compress() may run while other threads ask, tell and call tools of the same engine."""
    engine = bench.started(window=SMALL_WINDOW)
    rows = FIXED["many small calls"].rows()
    calls: list[tuple[str, Callable[[], object]]] = [
        ("compress()", lambda: bench.compress(engine, rows, force=True)),
        ("should_compress()", lambda: engine.should_compress(100)),
        ("update_from_response()", lambda: engine.update_from_response(usage_of(5))),
        ("should_compress()", lambda: engine.should_compress(10_000)),
    ]
    status: Callable[[], object] | None = getattr(engine, "get_status", None)
    if callable(status):
        calls.append(("get_status()", status))

    parted_alone = _parted(bench, rows)
    for _ in range(ROUNDS):
        results = bench.together(calls * 3)
        for result in results:
            is_parted = isinstance(result, Compressed) and orphan_results(result.returned)
            if is_parted and not parted_alone:
                raise Broken("compress() beside other calls parted calls from results", rows)


def _parted(bench: Bench, rows: list[Message]) -> bool:
    """Tell whether an engine parts calls from results by itself, which other checks tell of."""
    engine = bench.started(window=SMALL_WINDOW)
    return bool(orphan_results(bench.compress(engine, rows, force=True).returned))


@threads.check("§2.5 engine rules, shared instances")
def _several_compress_at_once(bench: Bench) -> None:
    """Several compress() of one engine at once each return their own messages."""
    engine = bench.started(window=SMALL_WINDOW)
    talks = [marked(marker).rows() for marker in MARKERS]

    def compress(rows: list[Message]) -> Callable[[], Compressed]:
        return lambda: bench.compress(engine, rows, current_tokens=tokens(rows), force=True)

    parted_alone = _parted(bench, talks[0])
    for _ in range(ROUNDS):
        made = bench.together([("compress()", compress(rows)) for rows in talks])
        for marker, compressed in zip(MARKERS, made, strict=True):
            _pure(compressed, marker)
            is_parted = orphan_results(compressed.returned) and not parted_alone
            if is_parted or not compressed.returned:
                raise Broken("compress() at once with others parted or lost messages", talks[0])


@threads.check("§6 item 5, §2.5")
def _tools_beside_compress(bench: Bench) -> None:
    """Tools answer JSON text while another thread compresses."""
    engine = bench.started(window=SMALL_WINDOW)
    schemas = tool_schemas(bench, engine)
    rows = FIXED["many small calls"].rows()
    for _ in range(ROUNDS):
        compressing = bench.begin(lambda: bench.compress(engine, rows, force=True))
        _ask_tools(bench, engine, schemas, rows)
        bench.outcome("compress()", compressing)


def _ask_tools(
    bench: Bench, engine: ContextEngine, schemas: Sequence[Message], rows: list[Message]
) -> None:
    handle: Callable[..., object] = engine.handle_tool_call
    calls: list[tuple[str, Callable[[], object]]] = []
    for schema in schemas:
        name = schema["name"]
        ask = functools.partial(handle, name, fitting(schema), messages=rows)
        calls.append((f"handle_tool_call({name!r})", ask))

    for (what, _), said in zip(calls, bench.together(calls), strict=True):
        parsed(said, what)


@threads.check("§2.5, §10 #75316")
def _other_calls_while_the_model_thinks(bench: Bench) -> None:
    """While compress() waits for the model, every other call returns."""
    engine = bench.started(window=SMALL_WINDOW)
    rows = FIXED["many small calls"].rows()
    bench.model.become("waits")
    compressing = bench.begin(
        lambda: bench.compress(engine, rows, current_tokens=tokens(rows), force=True)
    )
    try:
        while not bench.model.asked.wait(0.01):
            if compressing.done():
                as_messages(bench.outcome("compress()", compressing).returned, "compress()")
                raise NotApplicable("its compress() asks no model")

        bench.wants_compaction(engine, 100)
        bench.respond(engine, usage_of(5))
        status: Callable[[], object] = getattr(engine, "get_status", dict)
        bench.call("get_status()", status)
        schemas: Callable[[], object] = getattr(engine, "get_tool_schemas", list)
        if bench.call("get_tool_schemas()", schemas):
            _ask_tools(bench, engine, tool_schemas(bench, engine)[:1], rows)
    finally:
        bench.model.release()

    bench.outcome("compress()", compressing)
