"""The block of the system prompt is known again; what providers say is bounded and is data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.memory.provider import is_trivial_prompt
from pod.memory.texts import CHANGED, recalled, resumed, shown, with_block

words = st.text(st.sampled_from("ab \n<>/memoryprovider=\"'"), max_size=40)


@given(words, st.lists(words, min_size=2, max_size=5))
def test_a_prompt_is_kept_and_each_change_of_the_block_is_told_once(
    base: str, blocks: list[str]
) -> None:
    """Whoever knows the block that was recorded, and all that was told, knows the present one."""
    base, blocks = base.strip(), [f"begin\n{block}" for block in blocks]
    recorded = with_block(base, blocks[0], provider="p")
    told: list[str] = []
    for block in blocks[1:]:
        prompt = resumed(base, block, provider="p", recorded=recorded, told=told)
        assert prompt.system_prompt == recorded
        told += [prompt.note] if prompt.note else []
        again = resumed(base, block, provider="p", recorded=recorded, told=told)
        assert again.note == ""


def test_a_change_names_what_is_new_and_what_is_gone() -> None:
    recorded = with_block("Be brief.", "Notes:\n- one\n- two", provider="p")
    prompt = resumed(
        "Be brief.", "Notes:\n- one\n- three", provider="p", recorded=recorded, told=[]
    )
    assert prompt.note == f"{CHANGED}\n- - two\n+ - three"
    back = resumed(
        "Be brief.", "Notes:\n- one\n- two", provider="p", recorded=recorded, told=[prompt.note]
    )
    assert back.note == f"{CHANGED}\n- - three\n+ - two"
    empty = resumed("Be brief.", "", provider="p", recorded=recorded, told=[])
    assert empty.note == f"{CHANGED}\n- Notes:\n- - one\n- - two"


@given(words, words, words, words)
def test_another_prompt_or_provider_is_taken_anew(
    base: str, other: str, old: str, new: str
) -> None:
    base, other, old, new = base.strip(), f"X{other.strip()}", old.strip(), new.strip()
    fresh = with_block(base, new, provider="p")
    others = (with_block(other, old, provider="p"), with_block(base, old, provider="q"), base)
    for recorded in others:
        prompt = resumed(base, new, provider="p", recorded=recorded, told=[])
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
    # The cut goes through the middle of it, and half a credential has no shape to know it by.
    text = "x" * 50 + " ghp_0123456789abcdefghijklmnopqrstuvwxyz " + "y" * 200
    cut = shown(text, 120)
    assert cut.startswith("x" * 50 + " [masked: ")
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
