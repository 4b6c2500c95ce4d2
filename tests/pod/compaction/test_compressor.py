"""The built-in engine: what it keeps, what it refuses, and the floor."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from manifests import CompactionSection
from pod.compaction.checks import SECTIONS
from pod.compaction.digest import MARK
from pod.compaction.plan import CompactionError, CompactionRequest, Sizes
from pod.compaction.summary import SummaryAnswer, SummaryCall, output_cap
from pod.compaction.thresholds import Thresholds, thresholds_for
from pod.context.compressor import Compressor, Desk, tail_threshold
from tests.pod.compaction.stories import a_call, a_result, an_answer
from worker import Item, SummaryMessage, new_uid
from worker.items import user_message
from worker.llm.types import Usage
from worker.tokens import item_tokens

GOOD = "\n".join(f"{section}\n- kept" for section in SECTIONS)


def engine(text: str = GOOD, asked: list[SummaryCall] | None = None, **sizes: int) -> Compressor:
    def summarize(call: SummaryCall) -> SummaryAnswer:
        if asked is not None:
            asked.append(call)

        return SummaryAnswer(text, "end", Usage(9, 9, 0, 0), "m")

    parts: dict[str, int] = {"system": 10, "newest_message": 10, **sizes}
    return Compressor(
        Desk(
            settings=CompactionSection(compact_threshold=5_000, compact_retained_turns=2),
            weigh=item_tokens,
            sizes=lambda: Sizes(tools=(("big", 300), ("small", 20)), **parts),
            summarize=summarize,
            window=lambda: 32_000,
        )
    )


def request(items: list[Item], **changes: Any) -> CompactionRequest:
    asked = CompactionRequest(
        session_id="s",
        head_hash="h",
        items=tuple(items),
        watermark=0,
        trigger="threshold",
        threshold=5_000,
        occupancy=6_000,
        generation=4,
    )
    return evolve(asked, **changes)


def turns(count: int, size: int = 900) -> list[Item]:
    items: list[Item] = []
    for n in range(count):
        items += [user_message(f"question {n}"), an_answer("a" * size)]

    return items


def test_a_summary_stands_for_what_it_covers() -> None:
    items = turns(4)
    plan = engine().plan(request(items))
    assert plan is not None
    summary = plan.history[0]
    assert isinstance(summary, SummaryMessage)
    assert summary.text == GOOD
    assert summary.generation == plan.generation == 5
    assert summary.covers is not None
    assert summary.covers.session_id == "s"
    assert summary.covers.head_hash == "h"
    assert (summary.covers.first_uid, summary.covers.last_uid) == (items[0].uid, items[3].uid)
    assert plan.history[1:] == tuple(items[4:])
    assert plan.base_len == 8
    assert plan.method == "summary"


def test_an_earlier_summary_is_given_as_such_and_not_as_an_item() -> None:
    asked: list[SummaryCall] = []
    earlier = SummaryMessage(new_uid(), "FORMER-SUMMARY", None, 4)
    plan = engine(asked=asked).plan(request([earlier, *turns(4)]))
    assert plan is not None
    (call,) = asked
    assert call.user.count("FORMER-SUMMARY") == 1
    assert call.user.index("FORMER-SUMMARY") < call.user.index("question 0")
    assert [type(item) for item in plan.history].count(SummaryMessage) == 1


def test_the_summarizer_sees_what_the_model_saw() -> None:
    asked: list[SummaryCall] = []
    call = a_call()
    items = [user_message("q"), an_answer("look", call), a_result(call, "PRUNED"), *turns(3)]
    plan = engine(asked=asked).plan(request(items, watermark=3))
    assert plan is not None
    assert "PRUNED" not in asked[0].user
    assert "looked" in asked[0].user


def test_a_tail_that_was_pruned_weighs_what_is_sent_of_it() -> None:
    call = a_call()
    tail = [user_message("q1"), an_answer("look", call), a_result(call, "x" * 20_000)]
    items = [*turns(2), *tail, *turns(1)]
    assert engine().cut(request(items, watermark=len(items))) is not None
    pruned, whole = (engine().cut(request(items, watermark=mark)) for mark in (len(items), 0))
    assert pruned is not None
    assert whole is not None
    assert pruned.index == 4, "two turns, as they are sent small"
    assert whole.index > 4


@pytest.mark.parametrize(("system", "fails"), [(4_600, False), (4_800, True)])
def test_what_must_stay_over_the_threshold_asks_no_model(system: int, *, fails: bool) -> None:
    asked: list[SummaryCall] = []
    compressor = engine(asked=asked, system=system)
    if not fails:
        assert compressor.plan(request(turns(4))) is not None
        return

    with pytest.raises(CompactionError) as caught:
        compressor.plan(request(turns(4), would_overflow=True))

    assert caught.value.reason == "floor"
    assert "5,000" in caught.value.message
    assert "5,130" in caught.value.message
    parts = [caught.value.message.index(name) for name in ("system prompt", "tools", "newest")]
    assert parts == sorted(parts), "largest first"
    assert "big 300" in caught.value.message
    assert not asked


def test_beside_a_large_system_prompt_the_tail_is_smaller() -> None:
    """A tail of half the threshold would be over it at once, with prompt and summary."""
    compressor = engine(system=2_500)
    plan = compressor.plan(request(turns(6, size=2_600)))
    assert plan is not None
    tail = sum(map(item_tokens, plan.history[1:]))
    assert 2_500 + 320 + output_cap(5_000, 32_000) + tail <= 5_000
    sizes = Sizes(system=100, tools=(), newest_message=0)
    assert tail_threshold(5_000, sizes, 1_250) == 5_000, "else it is as the manifest says"
    assert tail_threshold(500, sizes, 512) == 0


def test_a_full_window_takes_a_digest_where_no_summary_can_be_had() -> None:
    items = turns(4)
    with pytest.raises(CompactionError):
        engine("nothing").plan(request(items))

    plan = engine("nothing").plan(request(items, would_overflow=True))
    assert plan is not None
    assert plan.method == "digest"
    assert plan.failure is not None
    assert plan.failure.reason == "missing_section"
    summary = plan.history[0]
    assert isinstance(summary, SummaryMessage)
    assert MARK in summary.text
    assert plan.history[1:] == tuple(items[4:])


def test_nothing_to_cut_is_no_plan() -> None:
    assert engine().plan(request(turns(1, size=30))) is None


def test_by_messages_it_does_the_same() -> None:
    compressor = engine()
    messages = [
        {"role": role, "content": f"{role} {n} " + "m" * 3_000}
        for n in range(4)
        for role in ("user", "assistant")
    ]
    made = compressor.compress(list(messages), current_tokens=8_000)
    assert len(made) < len(messages)
    assert "## Original Task" in str(made[0]["content"])
    assert compressor.compression_count == 1
    few = messages[:2]
    assert compressor.compress(few) is few


def test_by_messages_what_stays_are_the_very_rows() -> None:
    note = {"role": "system", "content": "be kind", "x-vendor": 1}
    rows = [
        {"role": role, "content": f"{role} {n} " + "m" * 3_000, "x-vendor": n}
        for n in range(4)
        for role in ("user", "assistant")
    ]
    made = engine().compress([note, *rows], current_tokens=8_000)
    assert made[0] is note
    assert "## Original Task" in str(made[1]["content"])
    assert made[2:]
    assert all(any(row is kept for row in rows) for kept in made[2:])


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("no sections", []),
        (GOOD + "- and more\n" * 9_000, []),
        (GOOD, [{"role": "tool", "tool_call_id": "lost", "content": "whose?"}]),
    ],
)
def test_by_messages_what_cannot_be_done_leaves_all_as_it_is(
    text: str, more: list[dict[str, Any]]
) -> None:
    messages = [
        {"role": role, "content": f"{role} {n} " + "m" * 3_000}
        for n in range(4)
        for role in ("user", "assistant")
    ]
    given = [*messages, *more]
    compressor = engine(text)
    assert compressor.compress(given, current_tokens=8_000) is given
    assert given == [*messages, *more]
    assert compressor.compression_count == 0


# --- thresholds -----------------------------------------------------------------------------


def test_what_a_manifest_means() -> None:
    def of(section: CompactionSection | None, window: int | None = 100_000) -> Thresholds:
        return thresholds_for(section, provider="anthropic", model="claude-opus-9", window=window)

    assert of(None) == Thresholds(window=100_000)
    assert not of(None).automatic
    assert not of(CompactionSection()).automatic, "absent: prune only"
    both = CompactionSection(compact_threshold=50_000, compact_request_threshold=60_000)
    assert of(both) == Thresholds(50_000, 60_000, 100_000)
    by_model = CompactionSection(compact_threshold=50_000, model_thresholds={"opus": 0.6})
    assert of(by_model).compact == 60_000
    assert of(by_model, None).compact == 50_000, "a fraction needs a window"


def test_each_trigger_has_its_threshold() -> None:
    given = Thresholds(50_000, 60_000, 100_000)
    assert given.of("threshold") == given.of("manual") == 50_000
    assert given.of("request_threshold") == 60_000
    assert given.of("overflow") == given.of("model_switch") == 100_000
    assert Thresholds(window=100_000).of("manual") == 75_000
