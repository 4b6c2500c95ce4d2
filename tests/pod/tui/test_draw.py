from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.tui.blocks import Asked, Block, Called, Said, Thought, Told, Tone, Wanted
from pod.tui.draw import Paper, scrolled
from pod.tui.text import CONTROL, cell_width

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def drawn(*blocks: Block, columns: int = 60, before: Block | None = None) -> list[str]:
    text = Paper(columns).paint(scrolled(blocks, before, columns))
    return [line.rstrip() for line in _STYLE.sub("", text).split("\n")][:-1]


CALL = Called("grep", '{"pattern": "x"}', "3 hits", is_error=False, took_ms=400)


def test_a_conversation_as_it_scrolls_by() -> None:
    assert drawn(
        Told("probe · /help"),
        Asked("Find x\nplease"),
        Said("I **look**.\n\n"),
        CALL,
        Said("- one\n- two"),
        Told("stopped", Tone.WARNING),
        Asked("And y?"),
        Said("Yes."),
    ) == [
        "probe · /help",
        "",
        "> Find x",
        "  please",
        "I look.",
        "",
        '  ✓ grep pattern="x": 3 hits  0.4 s',
        "",
        " • one",
        " • two",
        "",
        "stopped",
        "",
        "> And y?",
        "Yes.",
    ]


def test_at_40_columns_a_call_takes_the_lines_it_needs() -> None:
    long = Called("fetch", '{"url": "https://example.org/a/b/c"}', "no answer", True, 5_000)
    assert drawn(long, columns=40) == [
        '  ✗ fetch failed url="https://…  5.0 s',
        "    no answer",
    ]


def test_a_long_summary_is_shortened_and_says_so() -> None:
    long = Called("x", "{}", "\n".join(str(n) for n in range(20)), is_error=False)
    assert drawn(long) == ["  ✓ x", *(f"    {n}" for n in range(6)), "    … 14 more lines"]


def test_of_a_long_pasted_prompt_the_beginning_is_shown() -> None:
    shown = drawn(Asked("\n".join(str(n) for n in range(100))))
    assert shown == ["> 0", *(f"  {n}" for n in range(1, 40)), "  … 60 more lines"]
    (line, *more) = drawn(Asked("x" * 1_000_000), columns=3_000)
    assert (len(line), line[-1], more) == (2 + 2_000, "…", [])


def test_a_call_to_decide_about_is_folded_with_a_mark() -> None:
    wanted = Wanted("bash", '{"command": "' + "x" * 50 + '"}', "it writes")
    assert drawn(wanted, columns=40) == [
        "  ? bash: it writes",
        '    command: "' + "x" * 23,
        "    … " + "x" * 27 + '"',
    ]


def test_what_was_there_before_decides_on_the_empty_line() -> None:
    assert drawn(Asked("a")) == ["> a"]
    assert drawn(Asked("a"), before=Told("x")) == ["", "> a"]
    assert drawn(Told("a"), before=Said("x")) == ["", "a"]
    assert drawn(Told("a"), before=Told("x")) == ["a"]
    assert drawn(Said("a"), before=Asked("x")) == ["a"]


def test_colours_are_those_of_the_paper() -> None:
    block = Told("careful", Tone.WARNING)
    assert "\x1b[33mcareful" in Paper(80, "standard").paint(scrolled([block], None, 80))
    assert "\x1b[33m" not in Paper(80, None).paint(scrolled([block], None, 80))


@pytest.mark.parametrize("columns", [20, 40, 80])
@given(st.text(max_size=200))
def test_whatever_the_text_nothing_moves_the_cursor_or_leaves_the_line(
    columns: int, text: str
) -> None:
    blocks = (
        Asked(text),
        Said(text),
        Thought(text),
        Called(text, text, text, is_error=False, took_ms=1),
        Wanted(text, text, text),
        Told(text, Tone.ERROR),
    )
    painted = Paper(columns, "256").paint(scrolled(blocks, None, columns))
    bare = _STYLE.sub("", painted)
    assert not CONTROL.search(bare)
    assert all(cell_width(line) <= columns for line in bare.split("\n"))
