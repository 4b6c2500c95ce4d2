from __future__ import annotations

import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pod.tui.past import PastLines


def test_what_was_typed_is_remembered_privately(tmp_path: Path) -> None:
    past = PastLines(tmp_path / "chat_history")
    assert past.read() == []
    for text in ("one", "two\nlines", "back\\nslash \\", "日本"):
        past.add(text)

    assert past.read() == ["one", "two\nlines", "back\\nslash \\", "日本"]
    assert stat.S_IMODE(past.path.stat().st_mode) == 0o600


def test_a_home_that_takes_no_file_only_forgets(tmp_path: Path) -> None:
    past = PastLines(tmp_path / "missing" / "chat_history")
    past.add("one")
    past.trim()
    assert past.read() == []


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    past = PastLines(tmp_path / "chat_history")
    past.path.write_text("".join(f"{n}\n" for n in range(2_500)))
    past.trim()
    assert past.read() == [str(n) for n in range(1_500, 2_500)]
    assert stat.S_IMODE(past.path.stat().st_mode) == 0o600
    past.trim()
    assert len(past.read()) == 1_000


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\r" not in text))
def test_any_text_comes_back_as_it_was(tmp_path_factory: object, text: str) -> None:
    path = tmp_path_factory.mktemp("past") / "h"  # type: ignore[attr-defined]  # pytest's own
    PastLines(path).add(text)
    assert PastLines(path).read() == [text]
