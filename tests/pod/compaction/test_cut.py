"""Where a history is cut in two, whatever it is."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from pod.compaction.cut import Cut, choose_cut
from pod.compaction.result import pairing_problem
from tests.pod.compaction.stories import a_call, a_result, an_answer, newest_user, stories
from worker import Item, SummaryMessage, SystemNote, ToolResult, apply_prune, new_uid
from worker.items import AssistantMessage, user_message
from worker.tokens import item_tokens

WHOLE = 1_000_000


def cut_of(
    items: list[Item], *, turns: int = 2, tokens: int = 8_000, threshold: int = WHOLE
) -> Cut | None:
    return choose_cut(
        items,
        retained_turns=turns,
        retained_tokens=tokens,
        threshold=threshold,
        weigh=item_tokens,
    )


a_summary = SummaryMessage(new_uid(), "all that was", None, 1)
limits = {
    "turns": st.integers(0, 4),
    "tokens": st.integers(0, 2_000),
    "threshold": st.integers(0, 4_000),
}


@given(items=stories(), **limits)
def test_calls_and_results_stay_together_and_nothing_changes_its_place(
    items: list[Item], turns: int, tokens: int, threshold: int
) -> None:
    before = copy.deepcopy(items)
    cut = cut_of(items, turns=turns, tokens=tokens, threshold=threshold)
    assert items == before, "the history is not touched"
    if cut is None:
        return

    kept, covered = cut.retained(items), cut.covered(items)
    assert not pairing_problem([a_summary, *kept])
    places = [next(n for n, item in enumerate(items) if item is one) for one in kept]
    assert places == sorted(set(places)), "as they were, in their order"
    assert {id(item) for item in items} == {id(item) for item in [*kept, *covered]}
    assert len(items) == len(kept) + len(covered)
    assert any(not isinstance(item, SummaryMessage | SystemNote) for item in covered)


@given(items=stories(may_stay_open=True), **limits)
def test_the_newest_user_message_always_stays(
    items: list[Item], turns: int, tokens: int, threshold: int
) -> None:
    cut = cut_of(items, turns=turns, tokens=tokens, threshold=threshold)
    newest = newest_user(items)
    if cut is not None and newest is not None:
        assert any(item is newest for item in cut.retained(items))


@given(stories(may_stay_open=True), st.data())
def test_an_open_call_is_never_left_without_results_that_it_had(
    items: list[Item], data: st.DataObject
) -> None:
    cut = cut_of(items, turns=data.draw(limits["turns"]), threshold=data.draw(limits["threshold"]))
    if cut is not None:
        answers = [item for item in cut.retained(items) if isinstance(item, AssistantMessage)]
        known = {call.call_uid for answer in answers for call in answer.tool_calls}
        results = [item for item in cut.retained(items) if isinstance(item, ToolResult)]
        assert {result.call_uid for result in results} <= known


@given(stories(), st.data())
def test_exactly_what_was_sent_pruned_goes_on_so(items: list[Item], data: st.DataObject) -> None:
    watermark = data.draw(st.integers(0, len(items)))
    cut = cut_of(
        items,
        turns=data.draw(limits["turns"]),
        tokens=data.draw(limits["tokens"]),
        threshold=data.draw(limits["threshold"]),
    )
    if cut is None:
        return

    sent = {item.uid: item for item in apply_prune(items, watermark)}
    new = [a_summary, *cut.retained(items)]
    for item in apply_prune(new, cut.new_watermark(watermark))[1:]:
        assert item == sent[item.uid]


@given(stories(), st.integers(1, 3))
def test_the_tail_is_the_last_turns_where_they_are_small(items: list[Item], turns: int) -> None:
    starts = [n for n, item in enumerate(items) if newest_user([item]) is not None]
    cut = cut_of(items, turns=turns)
    if cut is not None and len(starts) > turns:
        assert cut == Cut(starts[-turns])


@given(items=stories(), **limits)
def test_the_tail_takes_at_most_half_of_the_threshold(
    items: list[Item], turns: int, tokens: int, threshold: int
) -> None:
    """The newest user message aside, which stays whatever it takes."""
    cut = cut_of(items, turns=turns, tokens=tokens, threshold=threshold)
    if cut is not None:
        assert sum(map(item_tokens, items[cut.index :])) <= threshold / 2


def test_little_or_nothing_is_not_cut() -> None:
    assert cut_of([]) is None
    assert cut_of([user_message("hello")]) is None
    assert cut_of([user_message("hello"), an_answer("hi")]) is None
    assert cut_of([a_summary, SystemNote(new_uid(), "n", "k"), user_message("x")], turns=0) is None


def test_a_single_long_turn_is_cut_by_tokens_and_keeps_its_task() -> None:
    items: list[Item] = [user_message("the task")]
    for _ in range(20):
        call = a_call()
        items += [an_answer("on", call), a_result(call, "x" * 3_000)]

    cut = cut_of(items, tokens=4_000)
    assert cut is not None
    assert cut.keep == 0
    assert cut.retained(items)[0] is items[0]
    assert 1 < len(cut.retained(items)) < len(items)


def test_a_note_between_two_results_parts_nothing() -> None:
    one, two = a_call("c1"), a_call("c2")
    note = SystemNote(new_uid(), "n" * 400, "hook")
    items: list[Item] = [
        user_message("task"),
        an_answer("before", *()),
        an_answer("both", one, two),
        a_result(one, None),
        note,
        a_result(two, None),
        an_answer("done"),
    ]
    budget = sum(map(item_tokens, items[4:])) + 1
    cut = cut_of(items, tokens=round(budget))
    assert cut is not None
    assert not pairing_problem([a_summary, *cut.retained(items)])
    assert cut.index == 6


def test_a_message_injected_by_the_program_is_no_persons() -> None:
    task = user_message("the task")
    items: list[Item] = [
        user_message("persona", origin="injected"),
        task,
        an_answer("a" * 4_000),
        user_message("rules", origin="injected"),
        an_answer("b" * 40),
    ]
    cut = cut_of(items, turns=0, tokens=100)
    assert cut is not None
    assert cut.retained(items)[0] is task


def test_a_result_that_came_late_goes_with_its_call() -> None:
    """As in imported histories, where a person spoke before the tool was done."""
    call = a_call()
    items: list[Item] = [
        user_message("one"),
        an_answer("look", call),
        user_message("hurry up"),
        a_result(call),
        an_answer("done"),
    ]
    cut = cut_of(items, turns=1)
    assert cut == Cut(4, keep=2)
    assert not pairing_problem([a_summary, *cut.retained(items)])
