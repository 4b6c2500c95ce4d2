"""What an engine is asked before a compaction, in which order, and what each answer leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from pod.context.decisions import Decision, Situation, decide
from pod.context.engine import JsonDict, Message
from tests.pod.compaction.stories import an_answer
from tests.pod.context.engine_shelf import Recorder
from worker.items import Item, user_message

ITEMS: tuple[Item, ...] = tuple(
    item for n in range(6) for item in (user_message(f"q{n}"), an_answer(f"a{n}"))
)
START = Situation(ITEMS, tokens=5_000, message_tokens=4_000, at_turn_start=True)
LATER = evolve(START, at_turn_start=False)


class Asked(Recorder):
    """Keeps the order of the questions; `answers` gives what each hook says."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(wants=lambda _: bool(answers.get("wants")))
        self.threshold_tokens = 4_500
        self.answers = answers

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        self.note("defer", rough_tokens)
        return bool(self.answers.get("defer"))

    def get_active_compression_failure_cooldown(self) -> JsonDict | None:
        self.note("cooldown")
        return self.answers.get("cooldown")

    def _automatic_compression_blocked(self) -> bool:
        self.note("blocked")
        return bool(self.answers.get("blocked"))

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        self.note("info", prompt_tokens)
        return False, self.answers.get("reason")

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        self.note("upkeep", messages)
        return bool(self.answers.get("upkeep"))


def test_the_questions_come_in_the_contract_s_order() -> None:
    engine = Asked()
    assert decide(engine, START) == Decision()
    assert engine.hooks == ["defer", "cooldown", "blocked", "should_compress", "upkeep", "info"]
    assert engine.of("defer")[0].args == (5_000,)
    assert engine.of("should_compress")[0].args == (5_000,)
    assert [row["role"] for row in engine.of("upkeep")[0].args[0]] == ["user", "assistant"] * 6


def test_upkeep_is_asked_for_at_a_turn_s_start_alone_and_below_the_threshold() -> None:
    assert decide(Asked(upkeep=True), START) == Decision(compress=True, below_threshold=True)
    assert decide(Asked(upkeep=True), LATER) == Decision()
    over = Asked(upkeep=True, wants=True)
    assert decide(over, START) == Decision(compress=True)
    assert not over.of("upkeep")


@pytest.mark.parametrize("situation", [START, LATER])
@pytest.mark.parametrize(
    "held_back",
    [{"defer": True}, {"cooldown": {"remaining_seconds": 12.4}}, {"blocked": True}],
    ids=lambda given: next(iter(given)),
)
def test_what_holds_an_engine_back_comes_before_what_it_wants(
    situation: Situation, held_back: dict[str, Any]
) -> None:
    engine = Asked(wants=True, upkeep=True, **held_back)
    decision = decide(engine, situation)
    assert not decision.compress
    assert not engine.of("should_compress")
    assert not engine.of("upkeep")
    told = "after a failure it compacts nothing by itself for another 12 s"
    assert decision.block_reason == (told if "cooldown" in held_back else "")


@pytest.mark.parametrize(
    "cooldown", [None, {}, {"remaining_seconds": 0}, {"remaining_seconds": -1}]
)
def test_a_cooldown_that_is_over_holds_nothing_back(cooldown: dict[str, Any] | None) -> None:
    is_open = cooldown == {}
    assert decide(Asked(wants=True, cooldown=cooldown), LATER).compress is not is_open


def test_a_block_is_looked_up_on_the_class_and_not_on_the_instance() -> None:
    """An instance that has every attribute, as stand-ins do, has no say in this."""
    engine = Recorder(wants=lambda _: True)
    vars(engine).update(_automatic_compression_blocked=lambda: True)
    assert decide(engine, LATER).compress


def test_the_reason_is_asked_for_where_it_does_not_want_to() -> None:
    assert decide(Asked(reason=" too \n soon "), LATER).block_reason == "too soon"
    engine = Asked(reason="too soon", wants=True)
    assert decide(engine, LATER) == Decision(compress=True)
    assert not engine.of("info")


@pytest.mark.parametrize("info", [None, False, (False,), (False, None), (False, 7), "no"])
def test_a_reason_that_is_none_is_none(info: Any) -> None:
    engine = Recorder()
    vars(engine).update(should_compress_info=lambda _tokens: info)
    assert decide(engine, LATER) == Decision()


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ({}, 100, 5_000),
        ({}, 5_001, 5_001),
        ({}, -1, -1),
        ({"at_turn_start": False}, 100, 100),
        ({"items": ITEMS[:9], "message_tokens": 4_499}, 100, 100),
        ({"items": ITEMS[:10], "message_tokens": 4_499}, 100, 100),
        ({"items": ITEMS[:11], "message_tokens": 4_499}, 100, 5_000),
        ({"items": ITEMS[:2], "message_tokens": 4_500}, 100, 5_000),
    ],
)
def test_an_estimate_raises_the_last_reading_near_the_threshold_at_a_turn_s_start(
    change: dict[str, Any], before: int, after: int
) -> None:
    """By rows (more than are protected and one) or by tokens; -1 and larger readings stay."""
    engine = Asked()
    engine.last_prompt_tokens = before
    decide(engine, evolve(START, **change))
    assert engine.last_prompt_tokens == after


def test_a_deferred_estimate_raises_nothing() -> None:
    engine = Asked(defer=True)
    decide(engine, START)
    assert engine.last_prompt_tokens == 0


def test_a_single_row_is_nothing_to_compact() -> None:
    engine = Asked(wants=True, upkeep=True)
    assert not decide(engine, evolve(START, items=ITEMS[:1])).compress
    assert not engine.of("should_compress")


HOOKS = (
    "should_defer_preflight_to_real_usage",
    "get_active_compression_failure_cooldown",
    "should_compress",
    "should_compress_preflight",
    "should_compress_info",
)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_has_no_say_and_spoils_no_other(hook: str) -> None:
    def raises(*_: object) -> None:
        raise ValueError("broken")

    engine = Asked(wants=hook not in {"should_compress_info", "should_compress_preflight"})
    setattr(engine, hook, raises)
    decision = decide(engine, START)
    assert [(what, str(error)) for what, error in decision.failed] == [(hook, "broken")]
    assert decision.compress is (hook in HOOKS[:2])


@pytest.mark.parametrize("make", [lambda: None, lambda: 7, lambda: "x"])
def test_attributes_of_any_kind_do_no_harm(make: Callable[[], Any]) -> None:
    engine = Asked()
    for name in ("threshold_tokens", "protect_first_n", "protect_last_n", "last_prompt_tokens"):
        setattr(engine, name, make())

    assert not decide(engine, START).failed


def test_an_engine_with_nothing_but_what_it_must_have_is_asked_that_alone() -> None:
    class Bare:
        name = "bare"

        def should_compress(self, tokens: int) -> bool:
            return tokens > 4_000

    assert decide(Bare(), START) == Decision(compress=True)  # type: ignore[arg-type]  # duck-typed
