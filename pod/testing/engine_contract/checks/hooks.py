"""What an engine is asked and told around requests and turns."""

from __future__ import annotations

import copy
from collections.abc import Callable

from pod.context.bridge import from_messages, from_selection, to_request_messages
from pod.context.engine import ContextEngine, Message
from pod.context.errors import BridgeError
from pod.context.signature import overrides

from ..bench import WINDOW, Bench, usage_of
from ..conversations import FIXED
from ..examine import cannot_be_json, orphan_results, shown, tokens
from ..results import Area, Broken, NotApplicable, as_messages

select = Area("select_context")
turn = Area("on_turn_complete")
when = Area("when")

SYSTEM = "You are a careful assistant."
_SIZES = (1, 100, 2_000, 20_000, 24_001, 30_000, 100_000, 1_000_000, 10_000_000)


# ------------------------------------------------------------------ select_context


def _request() -> tuple[list[Message], list[Message]]:
    """Return a conversation, and the request that a host makes of it."""
    rows = FIXED["a question at the end"].rows()
    return rows, to_request_messages(SYSTEM, from_messages(rows, [], origin="user"))


def _selected(
    bench: Bench, engine: ContextEngine, request: list[Message], rows: list[Message] | None
) -> list[Message] | None:
    if not overrides(engine, "select_context"):
        raise NotApplicable("it has no select_context of its own")

    incoming = rows[-1] if rows else None
    value = bench.call(
        "select_context()",
        engine.select_context,
        request,
        conversation_messages=rows,
        incoming_message=incoming,
        budget_tokens=WINDOW,
    )
    if value is None:
        return None

    chosen = as_messages(value, "select_context()")
    if not chosen:
        raise Broken("select_context() returned an empty list, not None", request)

    return chosen


@select.check("§1.4 S4, S6")
def _selection_can_be_sent(bench: Bench) -> None:
    """select_context returns None, or messages that can be sent as they are."""
    rows, request = _request()
    chosen = _selected(bench, bench.started(), copy.deepcopy(request), rows)
    if chosen is None:
        return

    problem = cannot_be_json(chosen)
    if problem:
        raise Broken(f"select_context() returned what is no JSON: {problem}", request)

    try:
        from_selection(chosen, SYSTEM, from_messages(rows, [], origin="user"))
    except BridgeError as error:
        raise Broken(f"a host refuses the selection: {error}", request) from None


@select.check("§1.4 S3, case L06")
def _selection_leaves_its_input_alone(bench: Bench) -> None:
    """select_context changes nothing of what it is given: it would be the transcript itself."""
    rows, request = _request()
    given, conversation = copy.deepcopy(request), copy.deepcopy(rows)
    _selected(bench, bench.started(), given, conversation)
    if given != request:
        raise Broken("select_context() changed the request it was given", request)
    if conversation != rows:
        raise Broken("select_context() changed the conversation it was given", rows)


@select.check("§1.4 S3")
def _selection_of_little(bench: Bench) -> None:
    """select_context works without a conversation, without a new message, and for one row."""
    engine = bench.started()
    _, request = _request()
    _selected(bench, engine, copy.deepcopy(request), None)
    _selected(bench, engine, copy.deepcopy(request), [])
    _selected(bench, engine, [{"role": "user", "content": "hello"}], None)


@select.check("§1.4 S8")
def _selection_is_the_same_again(bench: Bench) -> None:
    """The same request gets the same selection: it is asked again at each retry."""
    rows, request = _request()
    engine = bench.started()
    first, second = (
        _selected(bench, engine, copy.deepcopy(request), copy.deepcopy(rows)) for _ in range(2)
    )
    if first != second:
        raise Broken("select_context() chose differently for the same request", request)


# ------------------------------------------------------------------ on_turn_complete


@turn.check("§1.4 S9")
def _turn_complete_takes_every_end(bench: Bench) -> None:
    """on_turn_complete takes the end of every turn: with usage or none, failed, interrupted."""
    engine = bench.started()
    if not overrides(engine, "on_turn_complete"):
        raise NotApplicable("it has no on_turn_complete of its own")

    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    ends: tuple[dict[str, object], ...] = (
        {"interrupted": False, "failed": False, "turn_exit_reason": "finished"},
        {"interrupted": True, "failed": False, "turn_exit_reason": "cancelled"},
        {"interrupted": False, "failed": True, "turn_exit_reason": "failed"},
    )
    names: dict[str, object] = {"turn_id": "t-1", "task_id": "s-1", "api_call_count": 3}
    for rows in (FIXED["many small calls"].rows(), []):
        for end in ends:
            for told in (usage, None):
                hook = engine.on_turn_complete
                bench.call("on_turn_complete()", hook, rows, usage=told, **names, **end)


@turn.check("§1.4 S9")
def _turn_complete_leaves_its_input_alone(bench: Bench) -> None:
    """on_turn_complete changes nothing of the messages that it is shown."""
    engine = bench.started()
    if not overrides(engine, "on_turn_complete"):
        raise NotApplicable("it has no on_turn_complete of its own")

    rows = FIXED["many small calls"].rows()
    shown_rows = copy.deepcopy(rows)
    bench.call("on_turn_complete()", engine.on_turn_complete, shown_rows, usage=None)
    if shown_rows != rows:
        raise Broken("on_turn_complete() changed the messages it was shown", rows)


# ------------------------------------------------------------------ when to compress


@when.check("§1.2 should_compress")
def _should_compress_answers_every_size(bench: Bench) -> None:
    """should_compress says yes or no to every size, to None, and to what cannot be one."""
    engine = bench.started()
    for size in (None, -1, 0, *_SIZES):
        answer: object = bench.call("should_compress()", engine.should_compress, size)
        if not isinstance(answer, bool | int):
            raise Broken(f"should_compress({size}) returned {shown(answer)}, not a bool")

    bench.call("should_compress()", engine.should_compress, prompt_tokens=5)
    bench.call("should_compress()", engine.should_compress)


@when.check("§2.2")
def _should_compress_is_monotone(bench: Bench) -> None:
    """Where it wants to compress at one size, it wants so at every larger one."""
    for reading in (0, 5_000, 100_000):
        engine = bench.started()
        bench.respond(engine, usage_of(reading))
        first = next((size for size in _SIZES if bench.wants_compaction(engine, size)), None)
        for size in _SIZES:
            if first is not None and size > first and not bench.wants_compaction(engine, size):
                raise Broken(f"it wants to compress at {first:,} tokens and not at {size:,}")


@when.check("§1.2 should_compress")
def _should_compress_changes_nothing(bench: Bench) -> None:
    """Asking should_compress changes no number of the engine, nor its next answer."""
    engine = bench.started()
    bench.respond(engine, usage_of(23_000))
    names = ("last_prompt_tokens", "threshold_tokens", "compression_count", "context_length")
    before = [getattr(engine, name, None) for name in names]
    for size in (100, 23_000, 40_000):
        answers = {bench.wants_compaction(engine, size) for _ in range(5)}
        if len(answers) > 1:
            raise Broken(f"should_compress({size}) says now yes, now no")

    after = [getattr(engine, name, None) for name in names]
    if before != after:
        raise Broken("asking should_compress() changed the engine's numbers")


@when.check("§1.2 should_compress_info, should_compress_preflight and the like")
def _other_questions(bench: Bench) -> None:
    """The further questions about when answer in kind and change nothing of the messages."""
    engine = bench.started()
    rows = FIXED["many small calls"].rows()
    asked = copy.deepcopy(rows)
    _check_info(bench, engine)
    questions: tuple[tuple[str, object, Callable[[object], bool]], ...] = (
        ("should_compress_preflight", asked, _is_flag),
        ("has_content_to_compress", asked, _is_flag),
        ("should_defer_preflight_to_real_usage", 20_000, _is_flag),
        ("pending_compression_operation", asked, lambda value: value is None or _is_text(value)),
    )
    for name, argument, is_right in questions:
        function: Callable[..., object] | None = getattr(engine, name, None)
        if not callable(function):
            continue

        answer = bench.call(f"{name}()", function, argument)
        if not is_right(answer):
            raise Broken(f"{name}() returned {shown(answer)}")
        if name.startswith("should_defer") and answer:
            _must_have_real_reading(engine)

    if asked != rows:
        raise Broken("a question about when to compress changed the messages", rows)


def _must_have_real_reading(engine: ContextEngine) -> None:
    if not isinstance(getattr(engine, "last_real_prompt_tokens", None), int):
        raise Broken("it defers to a real reading and has no last_real_prompt_tokens")


def _check_info(bench: Bench, engine: ContextEngine) -> None:
    function: Callable[..., object] | None = getattr(engine, "should_compress_info", None)
    if not callable(function):
        return

    for size in (None, 100, 40_000):
        answer = bench.call("should_compress_info()", function, size)
        pair = answer if isinstance(answer, tuple | list) and len(answer) == 2 else (None, 0)
        if not (pair[1] is None or _is_text(pair[1])):
            raise Broken(f"should_compress_info({size}) returned {shown(answer)}")


@when.check("§1.2 prune_tool_results_only")
def _prune_keeps_pairs(bench: Bench) -> None:
    """prune_tool_results_only returns messages, no larger, pairs whole, and how many it cut."""
    engine = bench.started()
    if not overrides(engine, "prune_tool_results_only"):
        raise NotApplicable("it has no prune_tool_results_only of its own")

    rows = FIXED["large results"].rows()
    given = copy.deepcopy(rows)
    prune: Callable[..., object] = engine.prune_tool_results_only
    value = bench.call("prune_tool_results_only()", prune, given)
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[1], int):
        raise Broken(f"prune_tool_results_only() returned {shown(value)}", rows)

    kept = as_messages(value[0], "prune_tool_results_only()")
    if orphan_results(kept) or tokens(kept) > tokens(rows):
        raise Broken("prune_tool_results_only() parted pairs or made the messages larger", rows)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool | int)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
