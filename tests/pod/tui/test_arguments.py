from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.tui.arguments import brief, exact, visible
from pod.tui.text import CONTROL, cell_width


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"path": "a.py", "limit": 10}', 'path="a.py" limit=10'),
        ('{"n": 1e999, "m": 0.10}', "n=1e999 m=0.10"),
        ('{"deep": {"a": [1, null]}}', 'deep={"a": [1, null]}'),
        ('{"text": "two\\nlines"}', 'text="two\\nlines"'),
        ("", ""),
        ("{}", ""),
        ("[1, 2]", "[1, 2]"),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("not json \x1b[2J", "not json \\x1b[2J"),
    ],
)
def test_arguments_on_a_line(arguments: str, told: str) -> None:
    assert brief(arguments, 80) == told


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ('{"path": "a.py"}', ['path: "a.py"']),
        ('{"text": "one\\n\\ttwo"}', ["text:", "  │ one", "  │ \\ttwo"]),
        ("{}", ["(no arguments)"]),
        ('{"x": 1.50}', ["x: 1.50"]),
        # One key would hide the other: it is shown as it came.
        ('{"x": 1, "x": 2}', ["(as received)", '{"x": 1, "x": 2}']),
        ("{oops", ["(as received)", "{oops"]),
        ('"text"', ["(as received)", '"text"']),
    ],
)
def test_arguments_for_a_decision(arguments: str, lines: list[str]) -> None:
    assert exact(arguments) == lines


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202e", "\\u202e"),
        ("\u200b", "\\u200b"),
        ("\u00a0", "\\xa0"),
        ("\U000e0041", "\\U000e0041"),
        ("\t", "\\t"),
        ("\r", "\\r"),
        ("\ud800", "\\ud800"),
        ("日本", "日本"),
    ],
)
def test_nothing_hides_in_what_is_allowed(hidden: str, shown: str) -> None:
    assert visible(f"a{hidden}b") == f"a{shown}b"
    (line,) = exact(json.dumps({"x": f"a{hidden}b"}))
    assert line.isprintable()


@given(st.text(), st.integers(0, 120))
def test_any_text_is_shown_on_one_safe_line(text: str, cells: int) -> None:
    for arguments in (text, json.dumps({"key": text})):
        told = brief(arguments, cells)
        assert cell_width(told) <= cells
        assert not CONTROL.search(told)
        assert "\n" not in told


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=60), max_size=4))
def test_different_calls_are_shown_differently(values: dict[str, str]) -> None:
    shown = exact(json.dumps(values))
    for key, value in values.items():
        changed = {**values, key: value + "!"}
        assert exact(json.dumps(changed)) != shown

    assert not any(CONTROL.search(line) for line in shown)
