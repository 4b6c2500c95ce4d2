from __future__ import annotations

import pytest

from worker.llm.schemes.gemini.models import facts


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-4-argon", "none", {"thinkingLevel": "low"}),
        ("gemini-4-argon", "minimal", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-4-argon", "max", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3.8-flash", "minimal", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3.7-flash", "medium", {"thinkingLevel": "medium", "includeThoughts": True}),
        ("gemini-3.6-flash", "minimal", {"thinkingLevel": "minimal", "includeThoughts": True}),
        ("gemini-3.5-flash-lite", "none", {"thinkingLevel": "minimal"}),
        ("gemini-3-flash-preview", "low", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "medium", "includeThoughts": True}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3-pro-preview", "minimal", {"thinkingLevel": "low", "includeThoughts": True}),
        (
            "models/gemini-3-pro-preview",
            "xhigh",
            {"thinkingLevel": "high", "includeThoughts": True},
        ),
        ("gemini-flash-latest", "none", {"thinkingLevel": "low"}),
        ("gemini-3.1-flash-image", "low", {"thinkingLevel": "minimal", "includeThoughts": True}),
        ("gemini-3-pro-image-preview", "high", None),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768, "includeThoughts": True}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024, "includeThoughts": True}),
        (
            "gemini-2.5-flash-lite-preview",
            "medium",
            {"thinkingBudget": 8192, "includeThoughts": True},
        ),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576, "includeThoughts": True}),
        ("gemini-2.5-flash-image", "high", None),
        ("gemini-2.0-flash", "high", None),
        ("gemini-1.5-pro-002", "high", None),
        ("gemma-3-27b-it", "high", None),
        ("gemma-4-31b-it", "medium", {"thinkingLevel": "high", "includeThoughts": True}),
        ("somebody-else", "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("gemini-4-argon", "a new word", {"thinkingLevel": "a new word", "includeThoughts": True}),
        ("gemini-4-argon", None, None),
        ("gemini-2.5-pro", None, None),
    ],
)
def test_an_effort_is_sent_as_the_model_takes_it(
    model: str, effort: str | None, thinking: dict[str, object] | None
) -> None:
    assert facts(model).thinking(effort) == thinking


@pytest.mark.parametrize(
    ("model", "is_gemini_3", "takes_temperature"),
    [
        ("gemini-4-hydrogen", True, False),
        ("gemini-3.8-flash", True, False),
        ("gemini-3-pro-preview", True, False),
        ("gemini-pro-latest", True, False),
        ("gemini-2.5-flash", False, True),
        ("gemini-2.0-flash-001", False, True),
        ("gemini-1.5-flash", False, True),
        ("gemma-3-12b-it", False, True),
        # Nothing is known of it: what it refuses is told by its refusal.
        ("somebody-else", True, True),
    ],
)
def test_what_came_with_gemini_3(model: str, is_gemini_3: bool, takes_temperature: bool) -> None:
    known = facts(model)
    assert (known.is_gemini_3, known.takes_temperature) == (is_gemini_3, takes_temperature)


def test_early_gemma_takes_neither_a_system_instruction_nor_a_schema() -> None:
    assert not facts("gemma-3-27b-it").takes_system
    assert not facts("gemma-3-27b-it").takes_schema
    assert facts("gemma-4-31b-it").takes_system
