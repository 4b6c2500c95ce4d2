from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pod.status import PodStatus
from pod.tui.gauge import gauge, gauge_line
from pod.tui.reports import cost_lines, header, status_lines
from pod.tui.state import Spent
from pod.tui.text import cell_width
from tests.pod.tui.events import status
from worker.llm.types import Usage


def test_status_counts_one_turn_as_one() -> None:
    assert "context     40 tokens (measured), 2 items, 1 turn" in status_lines(status(40))


@pytest.mark.parametrize(
    ("shown", "drawn"),
    [
        (status(2_310), "▏▇▇▇▇▇▇▇░░│░░░░░░░░░░░░░░ 2,310 of 3,000 (window 8,192)"),
        (status(0), "▏░░░░░░░░░│░░░░░░░░░░░░░░ 0 of 3,000 (window 8,192)"),
        (status(9_000), "▏▇▇▇▇▇▇▇▇▇│▇▇▇▇▇▇▇▇▇▇▇▇▇▇ 9,000 of 3,000 (window 8,192)"),
        (status(100, compact_threshold=None), "▏▇" + "░" * 22 + " 100 of 8,192"),
        (status(100, compaction_disabled=True), "▏▇" + "░" * 22 + " 100 of 8,192"),
        (status(1_500, window=None), "▏" + "▇" * 12 + "░" * 11 + " 1,500 of 3,000"),
        (status(5, window=None, compact_threshold=None), "5 tokens"),
        (
            status(5, occupancy_source="guessed", window=None, compact_threshold=None),
            "about 5 tokens",
        ),
    ],
)
def test_the_gauge_shows_how_full_the_window_is(shown: PodStatus, drawn: str) -> None:
    assert gauge(shown) == drawn
    assert gauge(shown, in_ascii=True).isascii()


BAR = "▏▇▇▇▇▇▇▒▒▒│▒░░░░░░░░░░░░░"


def test_what_was_pruned_is_drawn_behind_what_is_used() -> None:
    assert gauge(status(2_000), pruned=1_500) == f"{BAR} 2,000 of 3,000 (window 8,192)"
    assert "~" in gauge(status(2_000), pruned=1_500, in_ascii=True)


@pytest.mark.parametrize(
    ("columns", "drawn"),
    [
        (100, f"{BAR} 2,000 of 3,000 (window 8,192) · measured · 1,500 pruned · $0.0421"),
        (80, f"{BAR} 2,000 of 3,000 (window 8,192) · $0.0421"),
        (60, f"{BAR} 2,000 of 3,000 (window 8,192)"),
        (40, f"{BAR} 2,000/3,000"),
        (30, "▏▇▇▇▇▒▒│▒░░░░░░░░ 2,000/3,000"),
        (15, "2,000/3,000"),
    ],
)
def test_where_there_is_little_room_less_is_said(columns: int, drawn: str) -> None:
    assert gauge_line(status(2_000), columns, pruned=1_500, cost=0.0421) == drawn


@example(occupancy=10**7, pruned=0, limit=None, window=1_000_000, columns=20)
@given(
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.sampled_from([None, 1_000, 200_000]),
    st.sampled_from([None, 8_192, 1_000_000]),
    st.integers(20, 200),
)
def test_a_gauge_fits_its_line_whatever_the_numbers(
    occupancy: int, pruned: int, limit: int | None, window: int | None, columns: int
) -> None:
    shown = status(occupancy, compact_threshold=limit, window=window)
    for in_ascii in (False, True):
        line = gauge_line(shown, columns, pruned=pruned, cost=1.5, in_ascii=in_ascii)
        assert cell_width(line) < columns
        assert f"{occupancy:,}" in line


def test_the_first_line_says_who_is_there() -> None:
    assert header(status(0)) == "p · p/m · window 8,192 · compact at 3,000 · /help"
    assert header(status(0, window=None, compact_threshold=None)) == "p · p/m · /help"


def test_status_says_what_compaction_does() -> None:
    def last(**changes: object) -> str:
        return status_lines(status(1, **changes))[5]

    assert last(generation=2) == "compaction  at 3,000 tokens; 2 so far"
    assert last(compact_threshold=None) == "compaction  by hand only (/compact)"
    off = last(compaction_disabled=True, compaction_failures=3)
    assert off == "compaction  off after 3 failures in a row; /compact tries by hand"
    assert status_lines(status(1, watermark=7))[-1] == ("pruned      tool results before item 7")


def test_costs_are_said_as_far_as_they_are_known() -> None:
    assert cost_lines(Spent(2, Usage(100, 20), 0.25)) == [
        "2 requests · 100 tokens in, 20 out",
        "$0.2500",
    ]
    assert cost_lines(Spent(1)) == [
        "1 request · how many tokens is not known",
        "no price is known for this model",
    ]
