"""Occupancy: what providers measured, and an estimate that would rather be too high."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.histories import histories, items
from worker import Image, Item, Reasoning, Text, TokenMeter, ToolResult, UserMessage, new_uid
from worker.items import AssistantMessage, user_message
from worker.llm.types import ToolSpec
from worker.tokens import Occupancy, data_tokens, fixed_tokens, item_tokens, text_tokens


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("你好世界" * 250, 600, 2_000),
        ("안녕하세요" * 200, 500, 2_000),
        ("😀" * 100, 100, 400),
        ("a" * 1_000, 200, 400),
        ("é" * 1_000, 500, 1_000),
        ("", 0, 0),
    ],
)
def test_estimates_by_script(text: str, low: int, high: int) -> None:
    assert low <= text_tokens(text) <= high


@given(st.text(min_size=1))
def test_no_text_weighs_nothing(text: str) -> None:
    assert text_tokens(text) > 0
    assert data_tokens(text) > 0


@given(items)
def test_every_item_weighs_something(item: Item) -> None:
    assert item_tokens(item) > 0
    assert item_tokens(item) >= item_tokens(item, content_max_bytes=10)


def test_what_is_not_sent_weighs_nothing() -> None:
    def weight(*parts: Text | Reasoning) -> float:
        return item_tokens(AssistantMessage(new_uid(), parts, "p", "m", "end"))

    assert weight(Text("x")) == weight(Text("x"), Reasoning("long thought " * 99))
    assert weight(Text("x")) < weight(Text("x"), Reasoning("thought", signature="proof"))
    image = UserMessage(new_uid(), (Image("image/png", b"x" * 10_000_000),))
    assert item_tokens(image) < 2_000


def test_without_a_measurement_prompt_and_tools_count() -> None:
    meter = TokenMeter()
    meter.fixed_raw = fixed_tokens("x" * 3_500, [ToolSpec("t", "d", {"type": "object"})])
    occupancy = meter.occupancy()
    assert occupancy.source == "guessed"
    assert occupancy.tokens > 1_000


def test_the_last_measurement_is_the_occupancy_never_the_sum() -> None:
    meter = TokenMeter()
    for measured in (1_000, 1_200, 1_100):
        meter.request_sent()
        meter.measured(measured)
    assert meter.occupancy() == Occupancy(1_100, "measured")


def test_what_was_added_since_is_estimated_with_the_fitted_ratio() -> None:
    meter = TokenMeter()
    text = UserMessage(new_uid(), (Text("word " * 20_000),))
    meter.add(text)
    meter.request_sent()
    meter.measured(40_000)
    meter.add(text)
    occupancy = meter.occupancy()
    assert occupancy.source == "interpolated"
    assert occupancy.tokens == pytest.approx(80_000, rel=0.05)


def test_a_broken_report_is_ignored() -> None:
    meter = TokenMeter()
    meter.measured(500)
    assert meter.occupancy().source == "guessed", "nothing was sent"
    meter.request_sent()
    meter.measured(0)
    meter.measured(-5)
    assert (meter.occupancy().source, meter.scale) == ("guessed", 1.0)


def test_a_request_that_measures_nothing_loses_nothing() -> None:
    meter = TokenMeter()
    meter.request_sent()
    meter.measured(1_000)
    meter.add(ToolResult(new_uid(), "c", new_uid(), "s", "x" * 25_000, is_error=False))
    before = meter.occupancy()
    assert before.tokens > 10_000 * meter.scale
    meter.request_sent()
    assert meter.occupancy() == before, "sent, and not measured"
    meter.measured(9_000)
    assert meter.occupancy() == Occupancy(9_000, "measured")


@given(st.floats(0.3, 4.0), st.integers(10_000, 500_000))
def test_the_fit_converges_to_the_true_ratio(ratio: float, size: int) -> None:
    meter = TokenMeter()
    item = UserMessage(new_uid(), (Text("x" * size),))
    meter.add(item)
    true = meter.items_raw * ratio
    for _ in range(3):
        meter.request_sent()
        meter.measured(round(true))
    prior = 1_000
    assert abs(meter.weigh(item) - true) <= abs(1 - ratio) * prior + 1
    assert 0.2 <= meter.scale <= 5.0


@given(histories, st.data())
def test_occupancy_is_never_negative_and_a_reset_forgets(
    history: list[Item], data: st.DataObject
) -> None:
    meter = TokenMeter(content_max_bytes=200)
    for item in history:
        meter.add(item)
        if data.draw(st.booleans()):
            meter.request_sent()
            meter.measured(data.draw(st.integers(-1, 50)))
        if data.draw(st.booleans()):
            meter.remove_raw(data.draw(st.floats(0, meter.items_raw)))
        assert meter.occupancy().tokens >= 0
    scale = meter.scale
    meter.reset(history)
    assert meter.scale == scale
    assert meter.occupancy() == Occupancy(meter.estimate(history), "guessed")


@given(histories, histories)
def test_a_restored_measurement_is_what_adding_up_gives(
    sent: list[Item], added: list[Item]
) -> None:
    grown, restored = TokenMeter(), TokenMeter()
    for item in sent:
        grown.add(item)
    grown.request_sent()
    grown.measured(700)
    for item in added:
        grown.add(item)
    restored.restore(sent, [*sent, *added], 700)
    assert restored.occupancy().tokens == pytest.approx(grown.occupancy().tokens, abs=1)


def test_what_is_pruned_takes_its_share_of_the_measurement_along() -> None:
    meter = TokenMeter()
    kept, pruned = user_message("a" * 350), user_message("b" * 3_150)
    meter.add(kept)
    meter.add(pruned)
    meter.request_sent()
    meter.measured(150)  # Far fewer than the cautious estimate of about 1,000.
    meter.remove_raw(meter.weigh_raw(pruned))

    left = meter.occupancy()

    share = meter.weigh_raw(kept) / (meter.weigh_raw(kept) + meter.weigh_raw(pruned))
    assert left.tokens == round(150 * share) > 0
    assert left.source == "interpolated"
