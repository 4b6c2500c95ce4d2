"""What every engine's plan must be, and what is put right in it."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from pod.compaction.cut import choose_cut
from pod.compaction.plan import CompactionError, CompactionPlan
from pod.compaction.result import checked, pairing_problem
from tests.pod.compaction.stories import a_call, a_result, an_answer, newest_user, stories
from worker import Item, SummaryMessage, ToolResult, apply_prune, new_uid
from worker.items import user_message
from worker.projection import repair
from worker.tokens import item_tokens


def estimate(items: Iterable[Item]) -> int:
    return round(sum(map(item_tokens, items)))


def check(plan: CompactionPlan, before: list[Item]) -> CompactionPlan:
    """Check a plan whose history is small enough."""
    large = estimate([*before, user_message("x" * 9_000)])
    return checked(plan, before, tokens_before=large, tokens_of=tokens_of)


def tokens_of(plan: CompactionPlan) -> int:
    return estimate(apply_prune(plan.history, plan.watermark))


def plan_of(*history: Item, watermark: int = 0) -> CompactionPlan:
    return CompactionPlan(tuple(history), 0, watermark, "engine", 1)


def results_of(items: Iterable[Item]) -> set[str]:
    return {item.uid for item in items if isinstance(item, ToolResult)}


a_summary = SummaryMessage(new_uid(), "all that was", None, 1)


@given(stories(may_stay_open=True), st.data())
def test_a_plan_of_any_history_becomes_one_that_can_be_sent(
    items: list[Item], data: st.DataObject
) -> None:
    watermark = data.draw(st.integers(0, len(items)))
    cut = choose_cut(
        items,
        retained_turns=data.draw(st.integers(0, 3)),
        retained_tokens=data.draw(st.integers(0, 2_000)),
        threshold=data.draw(st.integers(0, 9_000)),
        weigh=item_tokens,
    )
    if cut is None:
        return

    before = copy.deepcopy(items)
    plan = plan_of(a_summary, *cut.retained(items), watermark=cut.new_watermark(watermark))
    made = check(plan, items)
    assert items == before
    assert not pairing_problem(made.history)
    assert results_of(repair(made.history)) == results_of(made.history), "all of it is sent"
    newest = newest_user(items)
    assert newest is None or any(item is newest for item in made.history)
    sent = {item.uid: item for item in apply_prune(items, watermark)}
    for item in apply_prune(made.history, made.watermark):
        assert item.uid not in sent or item == sent[item.uid], "sent as it was before"

    added = [item for item in made.history if item.uid not in sent and item is not a_summary]
    assert all(isinstance(item, ToolResult) and item.is_error for item in added)


def test_a_call_without_its_result_gets_the_one_that_says_so() -> None:
    one, two = a_call("c1"), a_call("c2")
    open_ = [user_message("task"), an_answer("both", one, two), a_result(one), an_answer("on")]
    made = check(plan_of(a_summary, *open_, watermark=4), open_)
    assert [item.uid for item in made.history[:4]] == [a_summary.uid, *(i.uid for i in open_[:3])]
    put_in = made.history[4]
    assert isinstance(put_in, ToolResult)
    assert (put_in.call_uid, put_in.is_error) == (two.call_uid, True)
    assert made.history[5] is open_[3]
    assert made.watermark == 5, "what was pruned stays so"


def test_a_result_whose_call_was_lost_is_left_out() -> None:
    stray = a_result(a_call("gone"))
    before: list[Item] = [user_message("task"), stray, an_answer("on")]
    made = check(plan_of(a_summary, *before, watermark=3), before)
    assert made.history == (a_summary, before[0], before[2])
    assert made.watermark == 2


def test_what_an_engine_parts_is_refused() -> None:
    call = a_call()
    answer, result = an_answer("look", call), a_result(call)
    before: list[Item] = [user_message("task"), answer, result, an_answer("on")]
    for history in ([before[0], answer], [before[0], result], [before[0], result, answer]):
        with pytest.raises(CompactionError) as caught:
            check(plan_of(*history), before)

        assert caught.value.reason == "invalid_result"


def test_a_uid_twice_is_refused() -> None:
    message = user_message("task")
    with pytest.raises(CompactionError) as caught:
        check(plan_of(message, evolve(message, origin="injected")), [message])

    assert caught.value.reason == "invalid_result"


def test_nothing_is_no_history() -> None:
    with pytest.raises(CompactionError) as caught:
        check(plan_of(), [user_message("task")])

    assert caught.value.reason == "empty"


@pytest.mark.parametrize("extra", [0, 40])
def test_it_must_be_strictly_smaller(extra: int) -> None:
    before: list[Item] = [user_message("task " + "t" * 100)]
    bigger = user_message("task " + "t" * (100 + extra))
    plan = plan_of(bigger)
    with pytest.raises(CompactionError, match=r"not smaller: \d+ tokens before") as caught:
        checked(plan, [bigger], tokens_before=estimate(before), tokens_of=tokens_of)

    assert caught.value.reason == "no_progress"


def test_the_newest_user_message_is_put_back_behind_the_summary() -> None:
    call = a_call()
    task, answer, result = user_message("task"), an_answer("look", call), a_result(call)
    before: list[Item] = [task, answer, result]
    made = check(plan_of(a_summary, answer, result, watermark=3), before)
    assert made.history == (a_summary, task, answer, result)
    assert made.watermark == 4


def test_a_message_that_is_there_is_not_put_back() -> None:
    task = user_message("task")
    made = check(plan_of(a_summary, task), [task, an_answer("x")])
    assert made.history == (a_summary, task)
