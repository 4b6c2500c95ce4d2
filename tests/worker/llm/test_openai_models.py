from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.llm.schemes.openai_models import EFFORTS, OpenAiModel, facts


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("gpt-5", "none", "minimal"),
        ("gpt-5-mini-2025-08-07", "minimal", "minimal"),
        ("gpt-5", "xhigh", "high"),
        ("gpt-5-codex", "minimal", "low"),
        ("gpt-5-pro", "low", "high"),
        ("gpt-5-chat-latest", "low", None),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.1", "max", "high"),
        ("gpt-5.1-codex-max", "none", "low"),
        ("gpt-5.1-codex-max", "xhigh", "xhigh"),
        ("gpt-5.2-pro", "low", "medium"),
        ("gpt-5.2-chat-latest", "high", "medium"),
        ("gpt-5.4-mini", "none", "none"),
        ("gpt-5.5", "max", "xhigh"),
        ("gpt-5.6-luna", "minimal", "low"),
        ("gpt-5.6", "max", "max"),
        ("gpt-6-astra", "none", "low"),
        ("gpt-6-astra", "max", "max"),
        ("gpt-6-luna", "none", "none"),
        ("gpt-6.1-sol", "minimal", "low"),
        ("gpt-6.1-terra", "none", "none"),
        ("gpt-6.2-astra", "max", "xhigh"),
        ("gpt-7-nova", "none", "low"),
        ("o3-mini", "none", "low"),
        ("o4-mini-deep-research", "high", "medium"),
        ("gpt-4.1", "high", None),
        ("openai/gpt-5", "none", "minimal"),
        ("openai.gpt-5.6-luna", "minimal", "low"),
        ("ft:gpt-4o-mini:acme::1", "high", None),
        ("my-deployment", "high", "high"),
        ("gpt-5", "ultra", "ultra"),
        ("gpt-5", None, None),
    ],
)
def test_an_effort_is_clamped_to_what_the_model_takes(
    model: str, asked: str | None, sent: str | None
) -> None:
    assert facts(model).nearest_effort(asked) == sent


@pytest.mark.parametrize(
    ("model", "effort", "takes"),
    [
        ("gpt-4o", None, True),
        ("gpt-5-chat-latest", None, True),
        ("my-deployment", "high", True),
        ("gpt-5", None, False),
        ("o3", "low", False),
        ("gpt-5.1", None, True),
        ("gpt-5.1", "none", True),
        ("gpt-5.1", "low", False),
        ("gpt-5.3-chat-latest", None, False),
        ("gpt-5.6-sol", None, False),
        ("gpt-5.6-sol", "none", True),
        ("gpt-6-astra", None, False),
        ("gpt-6-luna", "none", True),
        ("gpt-6.2-sol", None, False),
    ],
)
def test_a_temperature_is_refused_while_the_model_reasons(
    model: str, effort: str | None, takes: bool
) -> None:
    assert facts(model).takes_temperature(effort) is takes


@pytest.mark.parametrize(
    ("model", "chat_tools"),
    [
        ("gpt-4o", "always"),
        ("gpt-5", "always"),
        ("gpt-5.1", "always"),
        ("gpt-5.4", "without_reasoning"),
        ("gpt-5.6-terra", "without_reasoning"),
        ("gpt-6-sol", "without_reasoning"),
        ("gpt-6-astra", "never"),
        ("gpt-6.1-sol", "never"),
        ("unheard-of", "always"),
    ],
)
def test_where_chat_completions_takes_tools(model: str, chat_tools: str) -> None:
    assert facts(model).chat_tools == chat_tools


@pytest.mark.parametrize("model", ["gpt-5.3-codex", "gpt-5.4-mini", "gpt-5.5-pro", "gpt-6.1-sol"])
def test_models_that_tell_commentary_from_answers(model: str) -> None:
    assert facts(model).has_phases


@pytest.mark.parametrize("model", ["gpt-5.3", "gpt-5.2-pro", "gpt-5", "o3", "gpt-4o", "unheard-of"])
def test_models_that_do_not(model: str) -> None:
    assert not facts(model).has_phases


def test_what_nobody_knows_is_left_open() -> None:
    assert facts("llama-3") == OpenAiModel()
    assert not facts("llama-3").reasons
    assert not facts("llama-3").never_reasons
    assert facts("gpt-4.1-nano").never_reasons


@given(
    st.from_regex(
        r"(o[1-9]|gpt-[3-9](\.[0-9])?)(-(mini|pro|sol|codex|chat|astra))?", fullmatch=True
    ),
    st.sampled_from(EFFORTS),
)
def test_what_is_sent_is_always_one_that_the_model_takes(model: str, asked: str) -> None:
    known = facts(model)
    sent = known.nearest_effort(asked)
    assert known.efforts is not None
    assert sent in known.efforts if known.efforts else sent is None
