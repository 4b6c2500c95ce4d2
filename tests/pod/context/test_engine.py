from __future__ import annotations

import inspect
import json
import threading
from typing import Any

import pytest

import pod.context
from pod.context import ContextEngine
from pod.context.engine import (
    MEMORY_CONTEXT_MAX_CHARS,
    automatic_compaction_status_message,
    sanitize_memory_context,
)
from pod.context.thresholds import resolve_model_threshold


class Engine(ContextEngine):
    """As small as a plugin may be; its name is a class attribute."""

    name = "small"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) > 10

    def compress(self, messages: list[Any], current_tokens: int | None = None) -> list[Any]:  # type: ignore[override]  # a strict legacy signature
        return messages[-1:]


def test_the_four_members_that_an_engine_must_have() -> None:
    assert ContextEngine.__abstractmethods__ == {
        "name",
        "update_from_response",
        "should_compress",
        "compress",
    }


def test_the_attributes_have_the_contract_s_defaults_on_the_class() -> None:
    defaults = {
        "last_prompt_tokens": 0,
        "last_completion_tokens": 0,
        "last_total_tokens": 0,
        "threshold_tokens": 0,
        "context_length": 0,
        "compression_count": 0,
        "threshold_percent": 0.75,
        "protect_first_n": 3,
        "protect_last_n": 6,
        "emit_automatic_compaction_status": True,
    }
    assert {name: getattr(ContextEngine, name) for name in defaults} == defaults
    assert not hasattr(ContextEngine, "model_thresholds")
    engine = Engine()
    engine.whatever = 1  # type: ignore[attr-defined]  # plugins assign what they like
    assert vars(engine) == {"whatever": 1}


def test_the_optional_methods_have_the_contract_s_defaults() -> None:
    engine = Engine()
    messages: list[Any] = [{"role": "user", "content": "x"}]
    assert engine.should_compress_info(11) == (True, None)
    assert engine.should_compress_preflight(messages) is False
    assert engine.pending_compression_operation(messages) is None
    assert engine.should_defer_preflight_to_real_usage(5) is False
    assert engine.prune_tool_results_only(messages, 5) == (messages, 0)
    assert engine.select_context(messages, conversation_messages=[], budget_tokens=1) is None
    assert engine.has_content_to_compress(messages) is True
    assert engine.get_tool_schemas() == []
    assert json.loads(engine.handle_tool_call("grep", {}, messages=messages)) == {
        "error": "Unknown context engine tool: grep"
    }
    assert engine.cache_plan([], []) is None


def test_hooks_that_do_nothing_take_all_that_the_contract_passes() -> None:
    engine = Engine()
    engine.on_turn_complete([], usage={}, turn_id="t", interrupted=False)
    engine.on_session_start("s", hermes_home="h", platform="cli", boundary_reason="compression")
    engine.on_session_end("s", [])
    assert vars(engine) == {}


def test_compress_offers_the_arguments_of_the_contract() -> None:
    names = list(inspect.signature(ContextEngine.compress).parameters)
    assert names == [
        "self",
        "messages",
        "current_tokens",
        "focus_topic",
        "force",
        "memory_context",
    ]


def test_a_reset_forgets_the_session() -> None:
    engine = Engine()
    engine.update_from_response({"prompt_tokens": 5})
    engine.last_completion_tokens = engine.last_total_tokens = engine.compression_count = 3
    engine.on_session_reset()
    assert engine.last_prompt_tokens == 0
    assert (engine.last_completion_tokens, engine.last_total_tokens) == (0, 0)
    assert engine.compression_count == 0


def test_status_is_in_bounds() -> None:
    engine = Engine()
    assert engine.get_status() == {
        "last_prompt_tokens": 0,
        "threshold_tokens": 0,
        "context_length": 0,
        "usage_percent": 0,
        "compression_count": 0,
    }
    engine.update_model("m", 1_000)
    engine.last_prompt_tokens = 250
    assert engine.get_status()["usage_percent"] == 25
    engine.last_prompt_tokens = 2_500
    assert engine.get_status()["usage_percent"] == 100
    engine.last_prompt_tokens = -1
    status = engine.get_status()
    assert (status["last_prompt_tokens"], status["usage_percent"]) == (0, 0)


def test_a_model_without_an_entry_returns_to_the_configured_share() -> None:
    engine = Engine()
    engine.threshold_percent = 0.5
    engine.model_thresholds = {"opus": 0.9, "anthropic:haiku": 0.2}

    engine.update_model("claude-opus", 1_000)
    assert (engine.threshold_percent, engine.threshold_tokens) == (0.9, 900)
    engine.update_model("claude-haiku", 1_000, provider="Anthropic ")
    assert engine.threshold_tokens == 200
    engine.update_model("gpt", 2_000, api_key=lambda: "k")
    assert (engine.threshold_percent, engine.threshold_tokens) == (0.5, 1_000)
    assert engine.context_length == 2_000


@pytest.mark.parametrize(
    ("model", "thresholds", "provider", "share"),
    [
        ("claude-opus", {}, "", 0.75),
        ("claude-opus", None, "", 0.75),
        (None, {"opus": 0.5}, "", 0.75),
        ("", {"": 0.5}, "", 0.75),
        ("claude-opus-4", {"opus": 0.5, "opus-4": 0.6}, "", 0.6),
        ("claude-opus-4", {"opus-4": 0.6, "x:opus-4": 0.7}, "x", 0.7),
        ("claude-opus-4", {"opus-4": 0.6, "x:opus": 0.7}, "x", 0.6),
        ("claude-opus-4", {"x:opus": 0.7}, "y", 0.75),
        ("claude-opus-4", {"x:opus": 0.7}, "", 0.75),
        ("claude-opus-4", {" X :opus": 0.7}, "x", 0.7),
        ("claude-opus-4", {"Opus": 0.7}, "", 0.75),
        ("llama3:8b", {"llama3:8b": 0.7}, "ollama", 0.7),
    ],
)
def test_the_longest_part_of_the_model_s_name_decides(
    model: str | None, thresholds: dict[str, float] | None, provider: str, share: float
) -> None:
    assert resolve_model_threshold(model, thresholds, 0.75, provider) == share


def test_a_clone_shares_nothing_and_an_override_is_used() -> None:
    engine = Engine()
    engine.model_thresholds = {"a": 0.5}
    clone = engine.clone_for_agent()
    clone.model_thresholds["a"] = 0.1
    assert type(clone) is Engine
    assert engine.model_thresholds == {"a": 0.5}

    class Locked(Engine):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def clone_for_agent(self) -> Locked:
            return type(self)()

    assert isinstance(Locked().clone_for_agent(), Locked)


def test_routine_status_is_the_engine_s_to_suppress() -> None:
    class Quiet(Engine):
        emit_automatic_compaction_status = False

    class Own(Engine):
        def get_automatic_compaction_status_message(
            self, *, phase: str, default_message: str, **context: Any
        ) -> str | None:
            return " " if phase == "preflight" else f"{default_message} {context['model']}"

    def said(engine: object, phase: str = "compress") -> str | None:
        return automatic_compaction_status_message(
            engine, phase=phase, default_message="compacting", model="opus"
        )

    assert said(Engine()) == "compacting"
    assert said(Quiet()) is None
    assert said(Own()) == "compacting opus"
    assert said(Own(), "preflight") is None
    assert said(object()) == "compacting"


def test_memory_text_is_masked_before_it_is_cut() -> None:
    secret = "https://bob:hunter2222@example.com/"
    text = "a" * 3_990 + secret + "b" * 5_000 + "end"

    cut = sanitize_memory_context(text)

    assert "hunter" not in cut
    assert len(cut) < MEMORY_CONTEXT_MAX_CHARS
    assert cut.startswith("a" * 3_990)
    assert cut.endswith("b" * 1_497 + "end")
    assert "characters left out" in cut


def test_short_memory_text_stays_and_what_is_no_text_comes_to_none() -> None:
    assert sanitize_memory_context(" likes tea ") == "likes tea"
    assert sanitize_memory_context("x" * MEMORY_CONTEXT_MAX_CHARS) == "x" * 6_000
    assert sanitize_memory_context(None) == ""
    assert sanitize_memory_context("half \ud83d of a pair") == "half \ufffd of a pair"


def test_the_facade_knows_its_names_only() -> None:
    assert "ContextEngine" in dir(pod.context)
    with pytest.raises(AttributeError, match="Unknown"):
        pod.context.Unknown  # noqa: B018  # the lookup is the test
