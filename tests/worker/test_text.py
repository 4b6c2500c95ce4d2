"""Text hygiene: what leaves is valid UTF-8, short enough, and says what is missing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.text import clean_text, cut_middle, first_line, is_blank, utf8_len

raw_text = st.lists(
    st.one_of(st.integers(0xD800, 0xDFFF).map(chr), st.text(max_size=3)), max_size=12
).map("".join)


@given(raw_text)
def test_cleaned_text_is_valid_and_cleaning_is_idempotent(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert clean_text(cleaned) == cleaned
    assert len(cleaned) <= len(text)


@given(st.text())
def test_valid_text_is_left_alone(text: str) -> None:
    assert clean_text(text) is text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("x\ud835y", "x\ufffdy"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("a\udfffb😀", "a\ufffdb😀"),
        ("end\ud800", "end\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced_and_pairs_joined(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n", "\u200b ", "\ufeff", "\u2060\u3000"])
def test_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(text + "x")


@given(st.text())
def test_sizes_are_utf8(text: str) -> None:
    assert utf8_len(text) == len(text.encode())


@given(st.text(max_size=400) | st.text("é你😀a", min_size=100, max_size=400), st.integers(0, 500))
def test_a_cut_text_fits_keeps_head_and_tail_and_says_how_much_is_missing(
    text: str, max_bytes: int
) -> None:
    cut = cut_middle(text, max_bytes, note="; elsewhere")
    if utf8_len(text) <= max_bytes:
        assert cut is text
        return

    mark = re.search(r"\n\[… ([\d,]+) bytes left out; elsewhere …\]\n", cut)
    assert mark
    head, tail = cut[: mark.start()], cut[mark.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    left_out = int(mark[1].replace(",", ""))
    assert left_out == utf8_len(text) - utf8_len(head) - utf8_len(tail)
    assert utf8_len(cut) <= max_bytes or (head, tail) == ("", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n \n", ""),
        ("  one \ntwo", "one"),
        ("\n\none\r\ntwo", "one"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
    ],
)
def test_the_first_line_that_shows_anything(text: str, line: str) -> None:
    assert first_line(text) == line
