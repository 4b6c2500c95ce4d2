"""Models that stand in for others, and what requests cost: from the manifest to log and event."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from pod.errors import PricesMissing
from pod.protocol import CompactionDone, Retry, RunEnd, Usage
from session_store import FileSessionStore
from tests.fake_provider import SUMMARY, Asked, Say, Served, serving
from tests.pod.pods import living, log_of, manifest

pytestmark = pytest.mark.anyio

PRICES = "prices = { input = 1000000.0, output = 2000000.0 }"  # a dollar a token, and two
TOKENS = {"prompt_tokens": 3}


def written(home: Path, *served: Served, extra: str = "", prices: str = PRICES) -> Path:
    """A manifest whose models are those servers, in this order."""
    others = ", ".join(
        f'{{ kind = "openai_compatible", model = "m{n}", base_url = "{each.base_url}", {prices} }}'
        for n, each in enumerate(served[1:], 1)
    )
    path = manifest(home, served[0].base_url, extra)
    lines = f"{prices}\n" + (f"fallbacks = [{others}]\n" if others else "")
    path.write_text(path.read_text().replace("\n[worker]", f"\n{lines}[worker]", 1))
    return path


async def test_the_next_model_answers_and_the_log_says_which(home: Path) -> None:
    with ExitStack() as stack:
        down = stack.enter_context(serving(Say(status=401, error="no such key")))
        up = stack.enter_context(serving(Say("hello", **TOKENS)))
        retries: list[Retry] = []
        async with living(written(home, down, up), home) as story:
            story.pod.on(Retry, retries.append)
            result = await story.pod.run("hi")
            again = await story.pod.run("and again")

        assert (result.outcome, result.text) == ("finished", "hello")
        assert again.text == "hello"
        assert "asking openai_compatible/m1 instead" in retries[0].reason
        # It rests: the second run went to the other at once.
        assert (len(down.asked), len(up.asked)) == (1, 2)

        state = FileSessionStore(home).restore(result.session_id)
        answers = [item for item in state.history if type(item).__name__ == "AssistantMessage"]
        assert {item.provider for item in answers} == {"openai_compatible"}
        assert up.asked[0].body["model"] == "m1"


async def test_where_nobody_answers_the_error_names_all(home: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(serving(Say(status=401, error="no such key")))
        second = stack.enter_context(serving(Say(status=404, error="no such model")))
        async with living(written(home, first, second), home) as story:
            result = await story.pod.run("hi")

    assert result.outcome == "error"
    assert "no model answered" in result.message
    assert "no such key" in result.message
    assert "no such model" in result.message


async def test_a_request_that_is_wrong_is_not_asked_of_others(home: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(serving(Say(status=400, error="malformed")))
        second = stack.enter_context(serving(Say("hello")))
        async with living(written(home, first, second), home) as story:
            result = await story.pod.run("hi")

        assert result.outcome == "error"
        assert not second.asked


async def test_what_a_request_costs_is_in_log_event_and_result(home: Path) -> None:
    with serving(Say("hello", **TOKENS)) as served:
        told: list[Usage | RunEnd] = []
        async with living(written(home, served), home) as story:
            story.pod.on(Usage, told.append)
            story.pod.on(RunEnd, told.append)
            result = await story.pod.run("hi")

    usage, end = told
    assert isinstance(usage, Usage)
    assert isinstance(end, RunEnd)
    assert usage.output_tokens is not None
    right = 3 + 2 * usage.output_tokens
    assert usage.cost == end.cost == result.cost == right
    assert end.usage is not None
    assert end.usage.cost == right
    state = FileSessionStore(home).restore(result.session_id)
    assert state.usage[-1].cost == right


async def test_without_prices_no_cost_is_made_up(home: Path) -> None:
    with serving(Say("hello")) as served:
        async with living(manifest(home, served.base_url), home) as story:
            result = await story.pod.run("hi")

    assert result.cost is None
    lines = next((home / "sessions").glob("*.jsonl")).read_text().splitlines()
    assert not any('"cost"' in line for line in lines if '"kind":"usage"' in line)


async def test_a_run_ends_where_its_cost_is_spent(home: Path) -> None:
    calls = (("look", "{}"),)
    with serving(Say(calls=calls, **TOKENS)) as served:
        path = written(home, served, extra="[budgets.run]\ncost = 10.0\n")
        async with living(path, home) as story:
            result = await story.pod.run("look on and on")

    assert result.outcome == "limit_reached"
    assert "the limit of one run is $10" in result.message
    assert result.cost is not None
    assert result.cost >= 10


async def test_a_limit_that_nobody_can_hold_is_refused_at_launch(home: Path) -> None:
    path = manifest(home, "http://127.0.0.1:9/v1", "[budgets.run]\ncost = 10.0\n")
    with pytest.raises(PricesMissing, match="no price is known for openai_compatible/"):
        async with living(path, home):
            pass


async def test_a_summary_has_a_cost_of_its_own(home: Path) -> None:
    def script(asked: Asked, number: int) -> Say:
        return Say(SUMMARY if asked.wants_summary else "word " * 50, prompt_tokens=1000)

    with serving(script) as served:
        async with living(written(home, served), home) as story:
            for number in range(4):
                await story.pod.run(f"question {number} " + "and more " * 40)
            done = await story.pod.compact()

    assert isinstance(done, CompactionDone)
    assert done.usage is not None
    assert done.usage.cost is not None
    assert done.usage.cost > 1000
    entries = FileSessionStore(home).entries(done.new_session_id)
    (made,) = [entry.data for entry in entries if entry.kind == "compaction"]
    assert made["cost"] == done.usage.cost


async def test_a_window_that_the_provider_named_outlives_the_process(home: Path) -> None:
    too_long = "This model's maximum context length is 9000 tokens."

    def script(asked: Asked, number: int) -> Say:
        if asked.wants_summary:
            return Say(SUMMARY)
        if number == 4:
            return Say(status=400, error=too_long, code="context_length_exceeded")
        return Say("word " * 50)

    with serving(script) as served:
        extra = "[compaction]\ncompact_threshold = 50000\ncompact_retained_turns = 1\n"
        path = manifest(home, served.base_url, extra)
        async with living(path, home) as story:
            for number in range(4):
                result = await story.pod.run(f"question {number} " + "and more " * 200)
            assert result.outcome == "finished"
            session_id = story.pod.session_id

        async with living(path, home, resume=session_id) as story:
            assert story.pod.status().window == 9000


async def test_how_long_a_model_may_be_silent_is_the_manifests_to_say(home: Path) -> None:
    never = threading.Event()
    with serving(Say("hello and more", wait=never)) as served:
        path = written(home, served, prices=f"{PRICES}\nidle_timeout_seconds = 0.3")
        async with living(path, home) as story:
            result = await story.pod.run("hi")
        never.set()

    assert result.outcome == "error"
    assert "for 0.3 s" in result.message


async def test_what_a_stand_in_says_of_its_window_is_not_held_against_the_first(home: Path) -> None:
    too_long = "This model's maximum context length is 9000 tokens."

    def second(asked: Asked, number: int) -> Say:
        if asked.wants_summary:
            return Say(SUMMARY)
        if number == 4:
            return Say(status=400, error=too_long, code="context_length_exceeded")
        return Say("word " * 50)

    with ExitStack() as stack:
        down = stack.enter_context(serving(Say(status=401, error="no such key")))
        up = stack.enter_context(serving(second))
        extra = "[compaction]\ncompact_threshold = 50000\ncompact_retained_turns = 1\n"
        path = written(home, down, up, extra=extra)
        async with living(path, home) as story:
            for number in range(4):
                result = await story.pod.run(f"question {number} " + "and more " * 200)
            assert result.outcome == "finished"
            session_id = story.pod.session_id

        async with living(path, home, resume=session_id) as story:
            assert story.pod.status().window == 200_000

    (first, *_) = log_of(home, session_id)
    assert first["config"]["learned_windows"] == {"openai_compatible/m1": 9000}
