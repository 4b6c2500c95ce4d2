"""Prune: a pure plan, a projection, and a watermark that only moves forward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.histories import histories
from worker import (
    AssistantMessage,
    Image,
    Item,
    PruneConfig,
    ToolCall,
    ToolResult,
    apply_prune,
    new_uid,
    plan_prune,
    user_message,
)
from worker.prune import IMAGE_TOKENS, PRUNED_SUMMARY, prune_boundary

configs = st.builds(
    PruneConfig,
    st.integers(0, 4),
    st.integers(0, 300),
    st.none() | st.integers(0, 400),
)


def weigh(item: Item) -> float:
    return len(item.content or "") / 4 + 1 if isinstance(item, ToolResult) else 1.0


def result(content: str | None, **options: Any) -> ToolResult:
    return ToolResult(new_uid(), "c", new_uid(), "s", content, is_error=False, **options)


def call_answer(text_only: bool = False) -> AssistantMessage:
    parts = () if text_only else (ToolCall("c", "touch", "{}", new_uid()),)
    return AssistantMessage(new_uid(), parts, "p", "m", "end")


@given(histories, configs, st.integers(0, 14))
def test_a_plan_touches_nothing_moves_forward_and_is_idempotent(
    history: list[Item], config: PruneConfig, watermark: int
) -> None:
    before = copy.deepcopy(history)
    plan = plan_prune(history, config, watermark, weigh=weigh)
    assert history == before
    if plan is None:
        return

    assert watermark < plan.watermark <= len(history)
    assert plan.est_savings >= config.min_savings
    assert plan_prune(history, config, plan.watermark, weigh=weigh) is None

    sent = apply_prune(history, plan.watermark)
    assert history == before
    assert apply_prune(sent, plan.watermark) == sent
    assert [i.uid for i in sent] == [i.uid for i in history]
    changed = [n for n, pair in enumerate(zip(history, sent, strict=True)) if pair[0] != pair[1]]
    assert all(isinstance(history[n], ToolResult) and n < plan.watermark for n in changed)
    assert plan.items <= len(changed)


@given(histories, configs)
def test_more_history_never_unprunes(history: list[Item], config: PruneConfig) -> None:
    boundaries = [prune_boundary(history[:n], config, weigh=weigh) for n in range(len(history) + 1)]
    assert (
        boundaries == sorted(boundaries)
        or config.protected_turns == 0
        or (config.protected_tokens is not None)
    )
    plan = plan_prune(history, config, weigh=weigh)
    for n in range(len(history)):
        earlier = plan_prune(history[:n], config, weigh=weigh)
        if earlier is not None and plan is not None:
            later = plan_prune(history, config, earlier.watermark, weigh=weigh)
            assert later is None or later.watermark > earlier.watermark


def turns(count: int, content: str | None) -> list[Item]:
    return [i for n in range(count) for i in (user_message(f"q{n}"), result(content))]


@pytest.mark.parametrize(
    ("protected", "boundary"), [(0, 10), (1, 8), (2, 6), (4, 2), (5, 0), (6, 0)]
)
def test_the_boundary_is_the_start_of_the_oldest_protected_turn(
    protected: int, boundary: int
) -> None:
    assert prune_boundary(turns(5, "x"), PruneConfig(protected_turns=protected)) == boundary


def test_an_injected_message_is_no_turn() -> None:
    items = [*turns(2, "x"), user_message("hook", origin="injected"), *turns(1, "x")]
    assert prune_boundary(items, PruneConfig(protected_turns=2)) == 2


def test_savings_count_bytes_and_only_what_is_new() -> None:
    items = turns(5, "é" * 2_000)
    config = PruneConfig(protected_turns=2, min_savings=3_000)
    plan = plan_prune(items, config)
    assert plan is not None
    assert (plan.watermark, plan.items, plan.est_savings) == (6, 3, 3_000)
    assert plan_prune(items, PruneConfig(protected_turns=2, min_savings=3_001)) is None
    more = [*items, *turns(2, "é" * 2_000)]
    assert plan_prune(more, config, plan.watermark) is None, "2,000 new tokens are below 3,000"
    assert plan_prune(more, PruneConfig(2, 2_000), plan.watermark) is not None


def test_images_count_and_go_too() -> None:
    items: list[Item] = [
        user_message("1"),
        result(None, attachments=(Image("image/png", b"x"),)),
        user_message("2"),
    ]
    plan = plan_prune(items, PruneConfig(protected_turns=1, min_savings=1))
    assert plan is not None
    assert (plan.items, plan.est_savings) == (1, IMAGE_TOKENS)
    assert apply_prune(items, plan.watermark)[1].attachments == ()  # type: ignore[union-attr]


def test_what_is_pruned_already_stops_nothing() -> None:
    """Ten big outputs, the eighth pruned; keeping the last two, one to seven go."""
    items = [
        i for n in range(10) for i in (user_message(f"{n}"), result("x" * 400 if n != 7 else None))
    ]
    plan = plan_prune(items, PruneConfig(protected_turns=2, min_savings=1))
    assert plan is not None
    assert plan.items == 7
    contents = [i.content for i in apply_prune(items, plan.watermark) if isinstance(i, ToolResult)]
    assert [c is None for c in contents] == [True] * 8 + [False] * 2


def test_by_tokens_a_single_long_turn_is_pruned_too() -> None:
    steps = [i for _ in range(5) for i in (call_answer(), result("x" * 396))]
    items = [user_message("one turn"), *steps, call_answer(text_only=True)]
    config = PruneConfig(min_savings=1, protected_tokens=150)
    plan = plan_prune(items, config, weigh=weigh)
    assert plan is not None
    kept = [
        i for i in apply_prune(items, plan.watermark) if isinstance(i, ToolResult) and i.content
    ]
    assert len(kept) == 2, "the one that crosses the limit is protected"
    with pytest.raises(ValueError, match="weigh"):
        plan_prune(items, config)


@pytest.mark.parametrize("config", [PruneConfig(0, 1), PruneConfig(3, 1, protected_tokens=10)])
def test_results_that_the_model_has_not_seen_are_never_pruned(config: PruneConfig) -> None:
    items = [user_message("q"), call_answer(), result("x" * 4_000), result("y" * 4_000)]
    assert plan_prune(items, config, weigh=weigh) is None
    seen = [*items, call_answer(), result("z" * 4_000)]
    plan = plan_prune(seen, config, weigh=weigh)
    assert plan is not None
    assert (plan.items, plan.watermark) == (2, 5)


def test_a_pruned_result_without_a_summary_says_something() -> None:
    silent = ToolResult(new_uid(), "c", new_uid(), "", "content", is_error=False)
    (sent,) = apply_prune([silent], 1)
    assert isinstance(sent, ToolResult)
    assert (sent.summary, sent.content) == (PRUNED_SUMMARY, None)


@pytest.mark.parametrize(
    "wrong", [{"protected_turns": -1}, {"min_savings": -1}, {"protected_tokens": -1}]
)
def test_a_config_holds_no_negative_numbers(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PruneConfig(**wrong)
