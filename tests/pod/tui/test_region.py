from __future__ import annotations

import re

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from pod import protocol
from pod.tui.draw import Paper
from pod.tui.region import Scene, region
from pod.tui.state import Answering, ViewState
from pod.tui.text import cell_width
from tests.pod.tui.events import (
    approval,
    called,
    compaction_start,
    resolved,
    run_start,
    status,
    story,
    text,
)

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
GAUGE = "▏▇▇▇▇▇▇▇░░│░░░░░░░░░░░░░░"


def lines(state: ViewState, *, rows: int = 22, columns: int = 80, **fields: object) -> list[str]:
    scene = Scene(now_ms=10_000, rows=rows, paper=Paper(columns), status=status(2_310))
    drawn = region(state, evolve(scene, **fields))
    return [line.rstrip() for line in _STYLE.sub("", drawn).split("\n")]


def test_nothing_goes_on_but_the_gauge() -> None:
    assert lines(ViewState()) == [f"{GAUGE} 2,310 of 3,000 (window 8,192) · measured"]
    assert lines(ViewState(), columns=40) == [f"{GAUGE} 2,310/3,000"]


def test_parallel_calls_count_their_seconds() -> None:
    state, _ = story(run_start(), called("a", arguments='{"x": 1}'), called("b", "日本"))
    assert lines(state)[:2] == ["  · grep x=1 9.0 s", "  · 日本 8.0 s"]


def test_many_calls_are_counted() -> None:
    state, _ = story(*(called(str(n)) for n in range(9)))
    assert lines(state)[5] == "  and 4 more calls"


def test_a_call_whose_arguments_still_come_says_no_more_than_its_name() -> None:
    state, _ = story(protocol.ToolCallStart(call_id="a", name="write"))
    assert lines(state)[0] == "  · write … 10.0 s"


def test_a_question_shows_the_call_and_the_time_left() -> None:
    state, _ = story(called("c-1", "bash"), approval("1"), approval("2"))
    assert lines(state)[:3] == [
        "  · bash waits",
        'allow bash command="ls"? (1 of 2)',
        "  y once · s for this session · n deny · 51.0 s left",
    ]
    assert lines(state, columns=40)[1:3] == [
        'allow bash command="ls"? (1 of 2)',
        "  y once, s session, n deny, 51.0 s",
    ]


def test_a_call_that_is_allowed_waits_for_the_others_to_be_decided() -> None:
    calls = (called("c-1", "a"), called("c-2", "b"), approval("1"), approval("2"), resolved("1"))
    state, _ = story(*calls)
    assert lines(state)[:2] == ["  · a waits for the others", "  · b waits"]


def test_a_compaction_counts_its_seconds_and_what_was_typed_waits() -> None:
    state, _ = story(compaction_start(), state=ViewState(turns=6, retained_turns=2))
    assert lines(state, queued=["and then?", "a", "b", "c"])[:-1] == [
        "compacting 3,412 tokens (6 turns, keeping the last 2) ▸ summarizing … 10.0 s",
        "queued: and then?",
        "queued: a",
        "and 2 more queued",
    ]
    assert lines(state, columns=40)[0] == "compacting 3,412 tokens (6 turn… 10.0 s"


def test_what_is_waited_for_is_said() -> None:
    request = protocol.RequestStart(request=1, input_tokens=5)
    state, _ = story(run_start(), request)
    assert lines(state)[0] == "  waiting for the model … 9.0 s"
    assert lines(state, is_stopping=True)[0] == "stopping …"
    retrying, _ = story(protocol.Retry(attempt=1, delay_s=4, reason="busy"), state=state)
    assert lines(retrying)[0] == "  busy; trying again in 4.0 s (try 2) 10.0 s"
    thinking, _ = story(protocol.ReasoningDelta(text="let me see"), state=state)
    assert lines(thinking)[0] == "  thinking …"
    assert lines(thinking, is_verbose=True)[0] == "let me see"
    lost = evolve(state, lost_ms=4_000)
    assert lines(lost)[0] == "connection lost, reconnecting … 6.0 s"


def test_of_an_answer_its_end_is_shown_as_far_as_there_is_room() -> None:
    state, _ = story(run_start(), text("".join(f"- item {n}\n" for n in range(50))))
    shown = lines(state, rows=8)
    assert len(shown) == 8
    assert shown[-2] == " • item 49"


def test_who_came_in_the_middle_sees_that_something_is_missing() -> None:
    here = ViewState(state="running", answering=Answering(is_joined=True))
    state, _ = story(text("the end of it"), state=here)
    assert lines(state)[:2] == ["…", "the end of it"]


def test_a_huge_open_block_costs_no_more_than_what_is_seen() -> None:
    code = "```python\n" + "x = 1\n" * 100_000
    state, _ = story(run_start(), text(code))
    shown = lines(state, rows=10)
    assert len(shown) == 10
    assert "x = 1" in shown[5]


@given(
    st.integers(1, 30),
    st.integers(20, 90),
    st.text(max_size=120),
    st.integers(0, 6),
    st.booleans(),
)
def test_it_never_is_larger_than_its_room(
    rows: int, columns: int, content: str, many: int, is_verbose: bool
) -> None:
    state, _ = story(
        run_start(),
        protocol.ReasoningDelta(text=content),
        *(called(str(n), content or "x", content) for n in range(many)),
        *(approval(str(n), content or "x", arguments=content) for n in range(many)),
        compaction_start(),
        text(content),
    )
    shown = lines(state, rows=rows, columns=columns, queued=[content] * many, is_verbose=is_verbose)
    assert len(shown) <= rows
    assert all(cell_width(line) <= columns for line in shown)
