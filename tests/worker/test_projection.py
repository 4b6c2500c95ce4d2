"""What a request holds: whatever the history is, pairs are whole and nothing is empty."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.histories import histories
from worker import (
    AssistantMessage,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    apply_prune,
    new_uid,
    repair,
    user_message,
)
from worker.projection import INTERRUPTED_SUMMARY, Projector, Repair
from worker.text import is_blank


def answer(*calls: str, text: str = "") -> AssistantMessage:
    parts = [Text(text)] if text else []
    made = [ToolCall(call_id, "touch", "{}", new_uid()) for call_id in calls]
    return AssistantMessage(new_uid(), (*parts, *made), "p", "m", "tool_calls" if made else "end")


def result(call_id: str, summary: str = "ok", content: str | None = None) -> ToolResult:
    return ToolResult(new_uid(), call_id, new_uid(), summary, content, is_error=False)


def assert_acceptable(items: list[Item]) -> None:
    """Every call is followed at once by its one result, in call order; no result stands alone."""
    position = 0
    while position < len(items):
        item = items[position]
        assert not isinstance(item, ToolResult), "a result without its call"
        calls = item.tool_calls if isinstance(item, AssistantMessage) else ()
        following = items[position + 1 : position + 1 + len(calls)]
        assert [getattr(i, "call_id", None) for i in following] == [c.call_id for c in calls]
        assert len({c.call_id for c in calls}) == len(calls)
        position += 1 + len(calls)

    for item in items:
        if isinstance(item, UserMessage | AssistantMessage):
            assert item.parts
            assert not any(isinstance(p, Text) and is_blank(p.text) for p in item.parts)
        elif isinstance(item, ToolResult):
            assert item.content or item.attachments or not is_blank(item.summary)
        else:
            assert not is_blank(item.text)
        if isinstance(item, AssistantMessage):
            assert not all(isinstance(p, Reasoning) for p in item.parts)


@given(histories)
def test_any_history_becomes_acceptable(history: list[Item]) -> None:
    before = list(history)
    repaired = repair(history)

    assert history == before
    assert_acceptable(repaired)
    assert repair(repaired) == repaired, "repairing again changes nothing"


@given(histories)
def test_nothing_is_made_up_and_the_order_is_kept(history: list[Item]) -> None:
    repaired = repair(history)
    place = {item.uid: n for n, item in enumerate(history)}
    for group in (UserMessage | SummaryMessage | SystemNote, AssistantMessage):
        places = [place[i.uid] for i in repaired if isinstance(i, group)]
        assert places == sorted(places)
    for item in repaired:
        if isinstance(item, ToolResult) and not item.uid:
            assert (item.summary, item.is_error) == (INTERRUPTED_SUMMARY, True)
    said = [p for i in history if isinstance(i, UserMessage) for p in i.parts]
    kept = [p for i in repaired if isinstance(i, UserMessage) for p in i.parts]
    assert kept == [p for p in said if not (isinstance(p, Text) and is_blank(p.text))]


@given(histories)
def test_feeding_one_by_one_and_reading_in_between_changes_nothing(history: list[Item]) -> None:
    fold = Repair()
    for n, item in enumerate(history):
        assert fold.items() == repair(history[:n])
        fold.feed(item)
    assert fold.items() == repair(history)


@given(histories, st.data())
def test_a_projector_gives_what_pruning_and_repairing_the_whole_gives(
    history: list[Item], data: st.DataObject
) -> None:
    projector = Projector()
    watermark = 0
    for n in range(len(history) + 1):
        watermark = data.draw(st.integers(watermark, n))
        part = history[:n]
        assert projector.project(part, watermark) == repair(apply_prune(part, watermark))
    projector.reset()
    assert projector.project(history, watermark) == repair(apply_prune(history, watermark))


@given(histories)
def test_between_prunes_each_projection_begins_with_the_one_before(history: list[Item]) -> None:
    """At the places where requests are made: every call of the newest answer has its result."""
    projector = Projector(50)
    closed = [n for n in range(len(history)) if not _is_open(history[:n])]
    sent = [projector.project(history[:n]) for n in closed]
    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier


def _is_open(history: list[Item]) -> bool:
    """Whether more results could still join what was sent last."""
    fold = Repair()
    for item in history:
        fold.feed(item)
    return any(isinstance(item, ToolResult) and not item.uid for item in fold.items())


Q = user_message("q")
CASES: list[tuple[str, list[Item], list[str]]] = [
    (
        "results come in any order",
        [answer("a", "b"), result("b", "B"), result("a", "A")],
        ["A", "B"],
    ),
    ("an orphan is left out", [Q, result("a")], []),
    ("a second result is left out", [answer("a"), result("a", "A"), result("a", "B")], ["A"]),
    (
        "an id used again in a later turn pairs with the nearest",
        [answer("a"), result("a", "A"), Q, answer("a"), result("a", "B")],
        ["A", "B"],
    ),
    (
        "a missing result is an error",
        [answer("a", "b"), result("a", "A"), Q],
        ["A", INTERRUPTED_SUMMARY],
    ),
    ("what stands in between moves back", [answer("a"), Q, result("a", "A")], ["A"]),
    (
        "an empty answer in between harms nothing",
        [answer("a"), answer(), result("a", "A")],
        ["A"],
    ),
    (
        "another answer closes the calls",
        [answer("a"), answer(text="x"), result("a", "A")],
        [INTERRUPTED_SUMMARY],
    ),
    ("one result for two calls of one id", [answer("a", "a"), result("a", "A")], ["A"]),
    ("an empty result says so", [answer("a"), result("a", "")], ["(no output)"]),
]


@pytest.mark.parametrize(
    ("history", "summaries"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_pairing(history: list[Item], summaries: list[str]) -> None:
    repaired = repair(history)
    assert_acceptable(repaired)
    assert [i.summary for i in repaired if isinstance(i, ToolResult)] == summaries
    assert (Q in history) == (Q in repaired)


def test_what_is_left_out_is_counted() -> None:
    fold = Repair()
    for item in [user_message(" "), answer(), result("a"), answer("b"), result("b"), result("b")]:
        fold.feed(item)
    assert fold.left_out == 4


def test_pruning_one_of_two_uses_of_an_id_leaves_the_other() -> None:
    history = [
        user_message("1"),
        answer("call_0"),
        result("call_0", "S1", "C1"),
        user_message("2"),
        answer("call_0"),
        result("call_0", "S2", "C2"),
    ]
    sent = [i for i in Projector().project(history, 3) if isinstance(i, ToolResult)]
    assert [(i.summary, i.content) for i in sent] == [("S1", None), ("S2", "C2")]


def test_a_long_summary_is_capped_too_also_behind_the_watermark() -> None:
    history = [answer("a"), result("a", "s" * 5_000, "c" * 5_000)]
    for watermark in (0, 2):
        sent = Projector(1_000).project(history, watermark)[1]
        assert isinstance(sent, ToolResult)
        assert len(sent.summary.encode()) <= 1_000
        assert sent.content is None or len(sent.content.encode()) <= 1_000
