"""The compressor as a class to build upon: its sizes, its cuts, its summaries, its failures."""

# ruff: noqa: SLF001  the names that engines of others know it by begin with an underscore

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from pod.context.engine import ContextEngine
from pod.context.hermes.chat_shapes import AnswerMessage, Choice, Completion, completion
from pod.context.hermes.compressor import HermesCompressor
from pod.context.hermes.handoff import (
    LEGACY_SUMMARY_PREFIX,
    SUMMARY_PREFIX,
    handoff_row,
    is_handoff,
    with_prefix,
    without_prefix,
)
from pod.context.hermes.rough_tokens import messages_tokens
from pod.context.hermes.row_cuts import before_call, tail_start
from pod.context.hermes.threshold_rules import trigger_tokens
from tests.fake_provider import SUMMARY
from worker.items import Text, ToolCall
from worker.llm.types import Answer, Usage

Rows = list[dict[str, Any]]


class Scripted(HermesCompressor):
    """One whose model says what it is told to; what it was asked is kept."""

    def __init__(self, *answers: str | Exception, **settings: Any) -> None:
        super().__init__("m", **{"config_context_length": 20_000, "protect_first_n": 0, **settings})
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def _call_llm(self, **kwargs: Any) -> Completion:
        self.asked.append(kwargs)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said

        return completion(Answer((Text(said),), "end", Usage(10, 5), "m"), "m")


def talk(turns: int, size: int = 1_000, name: str = "u") -> Rows:
    rows: Rows = []
    for turn in range(turns):
        rows.append({"role": "user", "content": f"ask {turn}", "message_uid": f"{name}{turn}"})
        rows.append({"role": "assistant", "content": f"say {turn} " + "x" * size})

    return rows


def with_tool(place: int, size: int) -> Rows:
    call = {"id": f"c{place}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{place}", "content": f"line {place}\n" + "y" * size},
    ]


# ------------------------------------------------------------------ sizes


@pytest.mark.parametrize(
    ("window", "share", "settings", "tokens"),
    [
        (1_000_000, 0.5, {}, 500_000),
        (200_000, 0.5, {}, 150_000),
        (200_000, 0.9, {}, 180_000),
        (64_000, 0.5, {}, 54_400),
        (8_000, 0.5, {}, 6_800),
        (200_000, 0.5, {"max_tokens": 40_000}, 120_000),
        (200_000, 0.5, {"threshold_tokens_cap": 9_000}, 9_000),
        (0, 0.5, {}, 0),
    ],
)
def test_the_trigger_is_a_share_of_the_window_within_bounds(
    window: int, share: float, settings: dict[str, Any], tokens: int
) -> None:
    made = Scripted(threshold_percent=share, **settings)
    made.update_model("m", window)
    assert made.threshold_tokens == tokens
    assert not made.should_compress(tokens - 1)
    assert made.should_compress(tokens) is bool(tokens)


def test_a_model_s_own_share_holds_for_it_alone() -> None:
    made = Scripted(threshold_percent=0.5, model_thresholds={"big": 0.3, "openai:big": 0.4})
    for model, provider, share in (("big", "", 0.3), ("big", "OpenAI", 0.4), ("other", "", 0.5)):
        made.update_model(model, 1_000_000, provider=provider)
        assert (made.threshold_percent, made.threshold_tokens) == (share, int(1_000_000 * share))


def test_what_leaves_no_room_for_an_answer_is_measured_by_the_window_alone() -> None:
    assert trigger_tokens(1_000, 0.5, answer_tokens=4_000) == 850


def test_it_is_held_back_by_whoever_says_so_in_a_subclass() -> None:
    class Careful(Scripted):
        def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
            return False, "cooling down"

    assert Careful().should_compress(10**9) is False


# ------------------------------------------------------------------ compress


def test_the_older_turns_are_summarized_and_the_newest_stay_as_they_are() -> None:
    made, rows = Scripted(SUMMARY), talk(20)
    before = copy.deepcopy(rows)
    out = made.compress(rows, current_tokens=messages_tokens(rows))
    assert rows == before
    assert out[0]["content"].startswith(SUMMARY_PREFIX)
    assert "## Current State" in out[0]["content"]
    assert is_handoff(out[0])
    assert out[1:] == rows[-len(out[1:]) :]
    assert 2 <= len(out[1:]) <= len(rows) / 2
    assert messages_tokens(out) < 0.7 * messages_tokens(rows)
    assert (made.compression_count, made._last_compression_made_progress) == (1, True)
    assert made.asked[0]["task"] == "compression"
    assert [row["role"] for row in made.asked[0]["messages"]] == ["system", "user"]
    assert made.should_defer_preflight_to_real_usage(made.threshold_tokens)
    made.update_from_response({"prompt_tokens": 100})
    assert not made.should_defer_preflight_to_real_usage(made.threshold_tokens)


def test_the_next_one_builds_on_the_summary_before() -> None:
    made = Scripted(SUMMARY, SUMMARY.replace("kept", "kept anew"))
    first = made.compress(talk(20))
    again = made.compress([*first, *talk(20, name="v")])
    prompt = made.asked[1]["messages"][1]["content"]
    assert "- kept" in prompt, "the summary before is what the next one goes on from"
    assert SUMMARY_PREFIX not in prompt
    assert [is_handoff(row) for row in again].count(True) == 1
    assert "kept anew" in again[0]["content"]


def test_what_was_asked_last_stands_behind_the_summary_even_if_it_was_asked_first() -> None:
    asked: Rows = [{"role": "user", "content": "ask", "message_uid": "u"}]
    rows = asked + [row for place in range(12) for row in with_tool(place, 2_000)]
    out = Scripted(SUMMARY, protect_first_n=3).compress(rows)
    assert is_handoff(out[0])
    assert out[1] is rows[0]
    assert out[2:] == rows[len(rows) - len(out) + 2 :]


def test_system_rows_and_the_protected_head_stay_in_front_the_first_time() -> None:
    made, rows = Scripted(SUMMARY, protect_first_n=2), talk(20)
    system = {"role": "system", "content": "rules"}
    out = made.compress([system, *rows])
    assert out[:3] == [system, *rows[:2]]
    assert is_handoff(out[3])


def test_focus_memory_and_model_reach_whoever_writes_the_summary() -> None:
    made = Scripted(SUMMARY, summary_model_override="small")
    made.compress(talk(20), focus_topic="herons", memory_context="likes 'lakes'")
    (asked,) = made.asked
    assert asked["model"] == "small"
    assert "herons" in asked["messages"][1]["content"]
    assert "likes 'lakes'" in asked["messages"][1]["content"]


@pytest.mark.parametrize("rows", [[], talk(1), [{"role": "system", "content": "rules"}]])
def test_where_there_is_nothing_to_summarize_the_same_list_comes_back(rows: Rows) -> None:
    made = Scripted()
    assert made.compress(rows) is rows
    assert made.compression_count == 0
    assert not made._last_compress_aborted
    assert not made.has_content_to_compress(rows)


@pytest.mark.parametrize("answer", [RuntimeError("no route"), "I cannot do that", ""])
def test_a_failed_summary_leaves_all_as_it_was_and_says_why(
    answer: str | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    made, rows = Scripted(answer, answer), talk(20)
    assert made.compress(rows, current_tokens=10_000) is rows
    assert made._last_compress_aborted
    assert made._last_summary_error
    assert made.compression_count == 0
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not warned, "a provider may quote a key; the pod, which tells of it, masks that"


def test_a_digest_stands_in_where_the_window_is_full() -> None:
    made, rows = Scripted(RuntimeError("no route")), talk(20)
    out = made.compress(rows, current_tokens=20_001)
    assert made._last_summary_fallback_used
    assert "digest" in out[0]["content"]
    assert "no route" in (made._last_summary_error or "")

    strict = Scripted(RuntimeError("no route"), abort_on_summary_failure=True)
    assert strict.compress(rows, current_tokens=20_001) is rows


# ------------------------------------------------------------------ its steps


def test_old_tool_results_come_to_a_line_and_new_ones_stay() -> None:
    rows = [*with_tool(1, 5_000), *talk(3), *with_tool(2, 5_000)]
    out, count = Scripted()._prune_old_tool_results(rows, protect_tail_count=2)
    assert count == 1
    assert out[1]["content"].startswith("[Old tool output left out: read, 5,007 characters; line 1")
    assert out[-1] is rows[-1]
    assert Scripted()._prune_old_tool_results(out, 2) == (out, 0)
    short, none = Scripted()._prune_old_tool_results([*with_tool(1, 100), *talk(3)], 2)
    assert (none, short[1]["content"][:6]) == (0, "line 1")


def test_pruning_by_itself_is_off_unless_a_size_is_given() -> None:
    rows = [*with_tool(1, 9_000), *talk(30, 10)]
    assert Scripted().prune_tool_results_only(rows) == (rows, 0)
    on = Scripted(proactive_prune_tokens=1_000, protect_last_n=4)
    assert on.prune_tool_results_only(rows)[1] == 1
    assert on.prune_tool_results_only(rows, current_tokens=10) == (rows, 0)


class Legacy(Scripted):
    """Written before there was a memory, and with a summary of its own."""

    def _generate_summary(  # type: ignore[override]  # an older signature
        self, turns_to_summarize: Rows, focus_topic: str | None = None
    ) -> str | None:
        self.given = (len(turns_to_summarize), focus_topic)
        return "mine alone"

    def _prune_old_tool_results(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        self.pruned = (len(messages), args, kwargs)
        return messages, 0


def test_a_subclass_replaces_a_step_in_the_signature_of_its_time() -> None:
    made = Legacy()
    out = made.compress(talk(20), focus_topic="f", memory_context="m")
    assert made.given[1] == "f"
    assert made.pruned[0] == 40
    assert "mine alone" in out[0]["content"]


def test_cuts_part_no_call_from_its_results() -> None:
    made = Scripted()
    rows = [*talk(1), *with_tool(1, 10), *talk(1)]
    assert made._align_boundary_forward(rows, 3) == 4
    assert made._align_boundary_backward(rows, 3) == before_call(rows, 3) == 2
    assert tail_start(rows, 0, 1) <= 3
    assert made._find_tail_cut_by_tokens(rows, 5) == 5
    assert made._sanitize_tool_pairs(rows[3:]) == rows[4:]
    assert made._sanitize_tool_pairs([rows[2], rows[4]]) == [rows[4]]


def test_a_summary_is_known_by_any_prefix_it_ever_had() -> None:
    for text in (
        with_prefix("said"),
        f"{LEGACY_SUMMARY_PREFIX} said",
        handoff_row("said")["content"],
    ):
        assert without_prefix(text) == "said"
        assert is_handoff({"role": "user", "content": text})

    assert not is_handoff({"role": "user", "content": "said"})
    assert with_prefix(with_prefix("said")) == with_prefix("said")


def test_one_s_state_is_its_own_and_is_forgotten_at_a_reset() -> None:
    made = Scripted(SUMMARY)
    made.compress(talk(20))
    other = copy.deepcopy(made)
    other.on_session_reset()
    assert (other.compression_count, other._previous_summary) == (0, None)
    assert made.compression_count == 1
    assert made._previous_summary is not None
    made.on_session_end("s", [])
    assert made._previous_summary is None


def test_hooks_that_cost_a_request_are_not_its_own() -> None:
    for hook in ("select_context", "on_turn_complete", "cache_plan"):
        assert getattr(HermesCompressor, hook) is getattr(ContextEngine, hook)


def test_an_answer_of_tool_calls_alone_is_no_summary() -> None:
    made, rows = Scripted(), talk(20)
    call = completion(Answer((ToolCall("c", "look", "{}", ""),), "tool_calls", None, ""), "m")
    bare = Completion([Choice(AnswerMessage(""), "stop")], call.usage, "m")
    made._call_llm = lambda **_: bare  # type: ignore[method-assign]  # as a test of an engine would
    assert made.compress(rows) is rows
    assert call.choices[0].finish_reason == "tool_calls"
    assert [one.function.name for one in call.choices[0].message.tool_calls or []] == ["look"]
