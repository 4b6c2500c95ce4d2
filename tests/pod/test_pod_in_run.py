"""Compaction in the middle of a run: by size, by the provider's word, and when it does not help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pod.protocol import (
    Alert,
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    PruneApplied,
    RunEnd,
    RunStart,
)
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, Script, serving
from tests.pod.pods import (
    BIG_TOOL,
    COMPACT,
    assert_paired,
    chat,
    kinds,
    living,
    log_of,
    logs,
    manifest,
    pointer,
    prose,
    summary,
    user_texts,
)

pytestmark = pytest.mark.anyio

IN_RUN = BIG_TOOL + (
    "[compaction]\ncompact_threshold = 50000\ncompact_request_threshold = 20000\n"
    "compact_retained_turns = 1\ncompact_retained_tokens = 12000\n"
)
TOO_LONG = Say(
    status=400,
    error="maximum context length is 8192 tokens",
    code="context_length_exceeded",
)


def calling(times: int, *, measures: bool = True, prompt_tokens: int | None = None) -> Script:
    """A model that calls the big tool so often, and then is done."""

    def script(asked: Asked, number: int) -> Say:
        if number <= times:
            call = ("big", json.dumps({"n": number}))
            return Say(calls=(call,), measures=measures, prompt_tokens=prompt_tokens)

        return Say("finished", measures=measures, prompt_tokens=prompt_tokens)

    return script


@pytest.mark.parametrize("usage", ["measured", "none", "zero"])
async def test_it_compacts_as_often_as_one_run_needs_it(home: Path, usage: str) -> None:
    """Also on servers that report no usage, or a usage of zero."""
    zero = 0 if usage == "zero" else None
    script = calling(14, measures=usage != "none", prompt_tokens=zero)
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, IN_RUN), home) as story:
            result = await story.pod.run("ONE-LONG-TASK")
            await story.pod.idle()
            assert result.outcome == "finished"
            starts, dones = story.of(CompactionStart), story.of(CompactionDone)
            assert {start.trigger for start in starts} == {"request_threshold"}
            assert {start.threshold for start in starts} == {20_000}
            assert len(dones) == len(starts) >= 3
            assert len(story.of(RunStart)) == len(story.of(RunEnd)) == 1, "one run all along"
            assert pointer(home) == story.pod.session_id == dones[-1].new_session_id
            assert result.requests == 15

        chats = [asked for asked in served.asked if not asked.wants_summary]
        assert len(chats) == 15
        assert_paired(chats)
        assert all("ONE-LONG-TASK" in user_texts(asked)[-1] for asked in chats)
        assert all(asked.text.count("ONE-LONG-TASK") == 1 for asked in chats)

        for done in dones:
            old = log_of(home, done.old_session_id)
            assert [entry["kind"] for entry in old][-2:] == ["compaction_started", "run_outcome"]
            assert old[-1]["outcome"] == "yielded"
            assert old[-1]["interrupted"] is False, "it goes on in the new session"
            new = log_of(home, done.new_session_id)
            assert new[0]["compacted_from"] == [done.old_session_id, old[-1]["hash"]]
            assert new[1]["in_run"] is True

        store = FileSessionStore(home)
        assert not store.restore(logs(home)[-1]).interrupted, "it has an outcome of its own"
        assert all(store.verify(session_id).ok for session_id in logs(home))
        assert kinds(home, logs(home)[-1])[-1] == "run_outcome"


async def test_a_run_that_compacted_and_broke_off_counts_as_interrupted(home: Path) -> None:
    with serving(chat(calling(14))) as served:
        async with living(manifest(home, served.base_url, IN_RUN), home) as story:
            seen: list[bool] = []

            def look(done: CompactionDone) -> None:
                state = FileSessionStore(home).restore(done.new_session_id)
                seen.append(state.interrupted)
                assert FileSessionStore(home).restore(done.old_session_id).interrupted

            story.pod.on(CompactionDone, look)
            await story.pod.run("ONE-LONG-TASK")
            assert seen
            assert all(seen)


async def test_pruning_comes_first_and_what_was_pruned_stays_so(home: Path) -> None:
    extra = IN_RUN + "prune_protected_tokens = 10000\nprune_min_savings = 5000\n"
    with serving(chat(calling(10))) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.pod.run("ONE-LONG-TASK")
            assert story.of(PruneApplied)
            await story.pod.compact()

        chats = [asked for asked in served.asked if not asked.wants_summary]
        gone: set[int] = set()
        for asked in chats:
            shown = {n for n in range(1, 11) if f"CONTENT-{n} " in asked.text}
            assert not shown & gone, "never un-pruned, also not by a compaction"
            named = {n for n in range(1, 11) if f"big result {n}" in asked.text}
            gone |= named - shown


# --- the provider's "prompt too long" -------------------------------------------------------


def overflowing(at: int, times: int = 1) -> Script:
    """A provider that refuses the request of that number, and so many after it."""

    def script(asked: Asked, number: int) -> Say:
        return TOO_LONG if at <= number < at + times else Say("ok " + prose(2_000))

    return script


async def test_too_long_a_prompt_is_compacted_and_asked_again(home: Path) -> None:
    with serving(chat(overflowing(4))) as served:
        path = manifest(home, served.base_url, COMPACT.replace("5000", "50000"))
        async with living(path, home) as story:
            await story.turns("one", "two", "three", "four")
            (start,), (done,) = story.of(CompactionStart), story.of(CompactionDone)
            assert start.trigger == "overflow"
            assert start.threshold == 8_192, "what the provider named"
            assert story.of(RunEnd)[-1].outcome == "finished"
            assert log_of(home, done.new_session_id)[1]["in_run"] is True
            assert story.pod.status().window == 8_192
            assert story.pod.status().turns == 4


@pytest.mark.parametrize("window", [None, 200_000])
async def test_a_share_of_the_window_counts_for_the_one_that_the_provider_named(
    home: Path, window: int | None
) -> None:
    """With no other threshold it is what makes compaction automatic at all."""
    extra = '[compaction.model_thresholds]\n"fake" = 0.5\n'
    with serving(chat(overflowing(4))) as served:
        async with living(manifest(home, served.base_url, extra, window=window), home) as story:
            await story.turns("one", "two", "three", "four")
            assert story.of(RunEnd)[-1].outcome == "finished"
            assert [start.trigger for start in story.of(CompactionStart)] == ["overflow"]
            assert story.pod.status().compact_threshold == 4_096


async def test_too_long_again_is_an_error_with_the_numbers(home: Path) -> None:
    with serving(chat(overflowing(4, times=99))) as served:
        path = manifest(home, served.base_url, COMPACT.replace("5000", "50000"))
        async with living(path, home) as story:
            await story.turns("one", "two", "three", "four")
            end = story.of(RunEnd)[-1]
            assert end.outcome == "error"
            assert end.error is not None
            assert end.error.code == "overflow"
            assert "8,192" in end.error.message
            assert end.error.hint
            assert len(story.of(CompactionStart)) == 1
            assert sum(not asked.wants_summary for asked in served.asked) == 5


async def test_after_an_answer_it_may_be_too_long_once_more(home: Path) -> None:
    """One run: overflow, compaction, answers, and again overflow and compaction."""

    def script(asked: Asked, number: int) -> Say:
        if number in {4, 7}:
            return TOO_LONG

        if number < 9:
            return Say("again " + prose(3_000), calls=(("big", json.dumps({"n": number})),))

        return Say("finished")

    extra = BIG_TOOL + COMPACT.replace("5000", "50000")
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            result = await story.pod.run("ONE-LONG-TASK")
            assert result.outcome == "finished"
            triggers = [start.trigger for start in story.of(CompactionStart)]
            assert triggers == ["overflow", "overflow"]


@pytest.mark.parametrize("extra", ["", "[compaction]\nprune_protected_turns = 2\n"])
async def test_off_means_off_and_the_error_says_what_can_be_done(home: Path, extra: str) -> None:
    with serving(chat(overflowing(4))) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three", "four")
            end = story.of(RunEnd)[-1]
            assert end.outcome == "error"
            assert end.error is not None
            assert "automatic compaction is off" in end.error.message
            assert "8,192" in end.error.message
            assert end.error.hint is not None
            assert "compact_threshold" in end.error.hint
            assert not story.of(CompactionStart)
            assert not any(asked.wants_summary for asked in served.asked)


async def test_too_long_with_nothing_to_cut_says_so(home: Path) -> None:
    with serving(chat(overflowing(1, times=99))) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            result = await story.pod.run("only this")
            assert result.outcome == "error"
            assert "nothing to compact" in result.message
            assert not story.of(CompactionStart)


# --- the digest -----------------------------------------------------------------------------


async def test_a_digest_takes_the_summarys_place_when_the_window_is_full(home: Path) -> None:
    with serving(chat(overflowing(4), "no summary")) as served:
        path = manifest(home, served.base_url, COMPACT.replace("5000", "50000"))
        async with living(path, home) as story:
            await story.turns("THE-TASK", "two", "three", "four")
            (done,) = story.of(CompactionDone)
            assert done.method == "digest"
            assert not story.of(CompactionFailed), "one end for one start"
            assert story.of(RunEnd)[-1].outcome == "finished"
            assert any("digest" in alert.message for alert in story.of(Alert))
            assert story.pod.status().compaction_failures == 1

        sent = user_texts(served.asked[-1])[0]
        assert "digest" in sent
        assert "THE-TASK" in sent
        state = FileSessionStore(home).restore(done.new_session_id)
        assert state.consecutive_failures == 1
        assert log_of(home, done.new_session_id)[1]["method"] == "digest"


async def test_without_a_full_window_there_is_no_digest(home: Path) -> None:
    with serving(chat(calling(14), "no summary")) as served:
        async with living(manifest(home, served.base_url, IN_RUN), home) as story:
            result = await story.pod.run("ONE-LONG-TASK")
            assert result.outcome == "finished"
            assert not story.of(CompactionDone)
            assert len(story.of(CompactionFailed)) == 1, "not tried again in the same run"


async def test_after_a_failure_a_full_window_is_tried_once_more(home: Path) -> None:
    with serving(chat(calling(14), "no summary")) as served:
        path = manifest(home, served.base_url, IN_RUN, window=60_000)
        async with living(path, home) as story:
            result = await story.pod.run("ONE-LONG-TASK")
            assert result.outcome == "finished"
            assert len(story.of(CompactionFailed)) == 1
            assert story.of(CompactionDone)[0].method == "digest"


async def test_a_full_window_that_nothing_helps_is_no_endless_loop(home: Path) -> None:
    """What must stay is over the threshold: told once, and the run goes on to its end."""
    system = "SYSTEM-PROMPT-MARKER " + prose(100_000)
    with serving(chat(calling(4))) as served:
        path = manifest(home, served.base_url, IN_RUN, window=30_000, system=system)
        async with living(path, home) as story:
            result = await story.pod.run("ONE-LONG-TASK")
            assert result.outcome == "finished"
            assert [failed.reason for failed in story.of(CompactionFailed)] == ["floor"]
            assert not any(asked.wants_summary for asked in served.asked)


# --- thrash ---------------------------------------------------------------------------------


def thrashing(asked: Asked, number: int) -> Say:
    """A provider whose counts stay high whatever is sent, from the fifth request on."""
    return Say(
        f"answer {number} " + (prose(14_000) if number == 1 else ""),
        prompt_tokens=8_000 if number >= 5 else None,
    )


QUESTIONS = ("one", "two", "three", "four " + prose(8_000))


async def test_thrash_ends_the_run_with_an_error_and_its_answer_stands(home: Path) -> None:
    with serving(chat(thrashing)) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns(*QUESTIONS)
            result = await story.pod.run("five")
            await story.pod.idle()
            assert result.outcome == "error"
            assert result.text.startswith("answer 5")
            assert result.error is not None
            assert result.error.code == "thrash"
            for number in ("8,000", "5,000", f"{story.pod.status().compact_threshold:,}"):
                assert number in result.message
            assert "system prompt" in result.message
            assert len(story.of(CompactionStart)) == 1

            await story.turns("six", "seven")
            assert story.of(RunEnd)[-1].outcome == "finished", "latched: it goes on without"
            assert len(story.of(CompactionStart)) == 1

        async with living(path, home, resume=pointer(home)) as story:
            await story.turns("eight")
            assert not story.of(CompactionStart), "the latch outlives the process"
            assert story.of(RunEnd)[-1].outcome == "finished"

            async with await story.pod.fork() as child:
                starts: list[CompactionStart] = []
                child.on(CompactionStart, starts.append)
                assert (await child.run("nine")).outcome == "finished"
                await child.idle()
                assert not starts, "and holds in a fork"


async def test_the_first_measurement_is_judged_also_in_the_next_process(home: Path) -> None:
    with serving(chat(thrashing)) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns(*QUESTIONS)

        async with living(path, home, resume=pointer(home)) as story:
            result = await story.pod.run("five")
            assert result.error is not None
            assert result.error.code == "thrash"


async def test_what_was_added_since_the_compaction_is_not_held_against_it(home: Path) -> None:
    def growing(asked: Asked, number: int) -> Say:
        return Say(f"answer {number} " + (prose(14_000) if number == 1 else ""))

    with serving(chat(growing)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS, "five " + prose(20_000))
            assert story.of(RunEnd)[-1].outcome == "finished"
            # The large message was added later; now that it is old enough it is compacted.
            await story.turns("six", "seven")
            assert len(story.of(CompactionDone)) >= 2


async def test_a_prompt_that_grew_by_a_quarter_of_the_threshold_is_tried_again(home: Path) -> None:
    def script(asked: Asked, number: int) -> Say:
        said = thrashing(asked, number).text
        if number < 5:
            return Say(said)

        return Say(said, prompt_tokens=6_000 if number == 5 else len(asked.text) // 4)

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS)
            assert (await story.pod.run("five")).outcome == "error"
            await story.turns("six " + prose(10_000), "seven " + prose(14_000))
            assert len(story.of(CompactionStart)) >= 2


async def test_many_notes_of_a_hook_do_not_make_overflows_endless(home: Path) -> None:
    """Each request adds a note, so that no two histories are of one length."""
    extra = COMPACT.replace("5000", "50000") + (
        '[[hooks]]\npoint = "PreLlmRequest"\npython = "tests.pod.big_tools:note"\n'
    )
    with serving(chat(overflowing(4, times=99))) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three", "four")
            assert story.of(RunEnd)[-1].outcome == "error"
            assert len(story.of(CompactionStart)) == 1


async def test_calls_that_compaction_made_an_end_of_leave_no_results_behind(home: Path) -> None:
    """Call ids that a provider uses again and again stay with their own results."""

    def script(asked: Asked, number: int) -> Say:
        if asked.body["messages"][-1]["role"] == "tool":
            return Say("noted")

        return Say(calls=(("big", json.dumps({"n": number})),))

    with serving(chat(script, summary())) as served:
        extra = BIG_TOOL + "[compaction]\ncompact_retained_turns = 1\n"
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None
            await story.turns("four")

        last = served.asked[-1].body["messages"]
        assert [m["role"] for m in last].count("tool") == 2
        assert_paired([asked for asked in served.asked if not asked.wants_summary])
