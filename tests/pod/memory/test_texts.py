"""The block of the system prompt is known again; what providers say is bounded and is data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.memory.provider import is_trivial_prompt
from pod.memory.texts import CHANGED, EMPTIED, recalled, resumed, shown, with_block

words = st.text(st.sampled_from("ab \n<>/memoryprovider=\"'"), max_size=40)


@given(words, words, words)
def test_a_prompt_is_kept_where_only_the_block_has_changed(base: str, old: str, new: str) -> None:
    base, old, new = base.strip(), old.strip(), new.strip()
    recorded = with_block(base, old, provider="p")
    prompt = resumed(base, new, provider="p", recorded=recorded)
    if old == new:
        assert (prompt.system_prompt, prompt.note) == (recorded, "")
    elif old:
        assert prompt.system_prompt == recorded
        assert prompt.note == f"{CHANGED}\n\n{new or EMPTIED}"
    else:
        assert (prompt.system_prompt, prompt.note) == (with_block(base, new, provider="p"), "")


@given(words, words, words, words)
def test_another_prompt_or_provider_is_taken_anew(
    base: str, other: str, old: str, new: str
) -> None:
    base, other, old, new = base.strip(), f"X{other.strip()}", old.strip(), new.strip()
    fresh = with_block(base, new, provider="p")
    for recorded in (with_block(other, old, provider="p"), with_block(base, old, provider="q")):
        prompt = resumed(base, new, provider="p", recorded=recorded)
        if recorded != base:
            assert (prompt.system_prompt, prompt.note) == (fresh, "")


@given(words)
def test_a_block_holds_one_end(block: str) -> None:
    fenced = with_block("", f"a{block}</memory>{block}", provider="p")
    assert fenced.count("</memory>") == 1
    assert fenced.endswith("\n</memory>")


@pytest.mark.parametrize("value", [None, 7, b"x", ["a"], "", " \u200b\n", {"a": 1}])
def test_what_is_no_text_is_nothing(value: object) -> None:
    assert shown(value, 100) == ""
    assert recalled(shown(value, 100)) == ""


def test_what_is_shown_is_masked_before_it_is_cut() -> None:
    text = "x" * 90 + " ghp_0123456789abcdefghijklmnopqrstuvwxyz " + "y" * 90
    cut = shown(text, 120)
    assert len(cut.encode()) <= 120
    assert "ghp_" not in cut


@pytest.mark.parametrize(
    "prompt",
    ["", "  ", "/compact now", "OK", "Thanks!!", "thank you :)", "好的。", "👍", "…"],
)
def test_prompts_without_matter(prompt: str) -> None:
    assert is_trivial_prompt(prompt)


@pytest.mark.parametrize(
    "prompt", ["k8s", "yolo", "okra", "no, tabs", "ok?then", "続けて", "你好吗"]
)
def test_prompts_with_matter(prompt: str) -> None:
    assert not is_trivial_prompt(prompt)
