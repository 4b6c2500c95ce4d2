from __future__ import annotations

import pytest

from pod.tui.markdown_blocks import begins_list, finished_blocks


@pytest.mark.parametrize(
    ("text", "blocks", "rest"),
    [
        ("one", [], "one"),
        ("one\n\n", [], "one\n\n"),
        ("one\n\ntwo\n", ["one\n\n"], "two\n"),
        ("one\n\ntwo", [], "one\n\ntwo"),
        ("- a\n\n- b\n\ntext\n", ["- a\n\n- b\n\n"], "text\n"),
        ("- a\n\n  more\n\ntext\n", ["- a\n\n  more\n\n"], "text\n"),
        ("```\na\n\nb\n```\n\ntext\n", ["```\na\n\nb\n```\n\n"], "text\n"),
        ("````\n```\n\nb\n", [], "````\n```\n\nb\n"),
        ("", [], ""),
    ],
)
def test_a_block_is_finished_when_nothing_later_can_change_it(
    text: str, blocks: list[str], rest: str
) -> None:
    assert finished_blocks(text) == (blocks, rest)
    assert "".join(blocks) + rest == text


@pytest.mark.parametrize(
    ("block", "is_list"), [("- a", True), ("12. b", True), ("12.b", False), ("a - b", False)]
)
def test_a_list_is_known_by_its_first_line(block: str, is_list: bool) -> None:
    assert begins_list(block) is is_list
