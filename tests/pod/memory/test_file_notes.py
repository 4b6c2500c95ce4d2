"""A page of notes keeps every byte that nobody asked to change."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from pod.memory.providers.file.notes import Note, Page, numbered, plain

WRITTEN = """\
# People

Ann runs operations.

- [k3f9a2 2026-12-01] The staging database is db-7.
  It is reset every Monday.

  ```
  psql db-7
  ```
- a person wrote this
* and this,
    over two lines
not a note

1. nor this
  - nor this, it is inside of something else
- [p8w1zz 2026-12-03] 毎週火曜日にデプロイする
"""


def test_notes_are_items_at_the_margin_with_what_is_indented_under_them() -> None:
    notes = Page.read("team", WRITTEN).notes
    assert [(note.id, note.date, note.text) for note in notes] == [
        (
            "k3f9a2",
            "2026-12-01",
            "The staging database is db-7.\nIt is reset every Monday.\n\n```\npsql db-7\n```",
        ),
        ("", "", "a person wrote this"),
        ("", "", "and this,\n  over two lines"),
        ("p8w1zz", "2026-12-03", "毎週火曜日にデプロイする"),
    ]


def test_a_change_touches_the_lines_of_its_note_and_no_others() -> None:
    page = Page.read("team", WRITTEN)
    (old, *_) = page.notes
    new = evolve(old, text="It is db-8 now.", date="2026-12-04")
    before, _, after = WRITTEN.partition("- [k3f9a2")
    rest = after.split("```\n", 2)[2]
    changed = page.with_change(old, new)
    assert changed.text == f"{before}- [k3f9a2 2026-12-04] It is db-8 now.\n{rest}"
    assert page.without(old).text == before + rest


def test_a_note_goes_to_the_end_of_the_list() -> None:
    note = Note("abcd12", "2026-12-01", "one\n\ntwo", "notes")
    assert Page("notes", (), ()).with_note(note).text == (
        "# notes\n\n- [abcd12 2026-12-01] one\n\n  two\n"
    )
    assert Page.read("t", "- by hand").with_note(note).text == (
        "- by hand\n- [abcd12 2026-12-01] one\n\n  two\n"
    )
    assert Page.read("t", "prose\n\n\n").with_note(note).text == (
        "prose\n\n- [abcd12 2026-12-01] one\n\n  two\n"
    )


def test_every_note_has_an_id_of_its_own_which_stays() -> None:
    text = "- same\n- same\n- [aaaa 2026-01-01] one\n- [aaaa 2026-01-02] two\n- other\n"
    pages = numbered([Page.read("a", text), Page.read("b", "- same\n")])
    ids = [note.id for page in pages for note in page.notes]
    assert len(set(ids)) == len(ids) == 6
    assert ids[2] == "aaaa"
    assert all(ids)
    assert [n.id for p in numbered([Page.read("a", text)]) for n in p.notes] == ids[:5]
    # A note that is added before others does not take their ids away.
    (page,) = numbered([Page.read("a", "- new\n- other\n")])
    assert page.notes[1].id == ids[4]


lines = st.text(st.sampled_from("-*+ \tab#`[]0文\ufeff\r\\\udc80"), max_size=12)
pages = st.lists(lines, max_size=14).map("\n".join)
texts = st.text(st.characters(codec="utf-8"), max_size=60).map(plain).filter(bool)


@given(pages)
def test_reading_loses_nothing(text: str) -> None:
    page = Page.read("t", text)
    assert page.text == text
    for note in page.notes:
        assert note.text
        kept = page.without(note).text
        first = text.split("\n")[: note.start]
        last = text.split("\n")[note.end :]
        assert kept == "\n".join([*first, *last])


@given(pages, texts)
@example("- a\n\n", "- b")
@example("", "[abcd 2026-12-01] x")
@example("- a", "x\n\n\ny")
@example("", "x\n    code\n  half")
def test_what_is_written_is_read_again(text: str, kept: str) -> None:
    page = Page.read("t", text)
    note = Note("abcd12", "2026-12-01", kept, "t")
    added = page.with_note(note)
    assert [(n.id, n.text) for n in added.notes] == [
        *((n.id, n.text) for n in page.notes),
        ("abcd12", kept),
    ]
    assert added.text.startswith(text.rstrip())
    changed = added.with_change(added.notes[-1], evolve(note, text="short"))
    assert [n.text for n in changed.notes] == [*(n.text for n in page.notes), "short"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  a \r\n b\x00\x1b[31m ", "a\n b[31m"),
        ("a\u2028b\x0bc", "a\nb\nc"),
        ("\n\n", ""),
    ],
)
def test_a_text_is_kept_as_lines_without_control_characters(given: str, kept: str) -> None:
    assert plain(given) == kept
