"""A whole pod compacts: when it does, what it tells, and what it leaves in the logs."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from pod.compaction.plan import CompactionError
from pod.protocol import (
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    RunEnd,
    Status,
    Usage,
)
from session_store import FileSessionStore
from tests.fake_provider import SECTIONS, Asked, Say, serving
from tests.pod.pods import (
    BIG_TOOL,
    COMPACT,
    SYSTEM,
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
from worker import SummaryMessage

pytestmark = pytest.mark.anyio


def growing(asked: Asked, number: int) -> Say:
    """Say much at first, so that the fourth turn is over 5,000 tokens, and little later."""
    return Say(f"answer {number} " + (prose(14_000) if number == 1 else ""))


QUESTIONS = ("QUESTION-1", "QUESTION-2", "QUESTION-3", "QUESTION-4 " + prose(8_000))


# --- after a run ----------------------------------------------------------------------------


async def test_a_run_over_the_threshold_is_followed_by_a_compaction(home: Path) -> None:
    with serving(chat(growing)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS)
            (start,), (done,) = story.of(CompactionStart), story.of(CompactionDone)
            measured = story.of(Usage)[-1].input_tokens
            assert start.trigger == "threshold"
            assert start.threshold == 5_000
            assert measured is not None
            assert 5_000 < measured <= start.input_tokens <= measured + 100
            assert done.old_session_id == start.session_id
            assert done.new_session_id == story.pod.session_id == pointer(home)
            assert done.tokens_after < done.tokens_before
            assert (done.items_before, done.items_after) == (8, 5)
            assert done.method == "summary"
            assert done.usage is not None
            assert len(story.of(Usage)) == 4, "the summarizer's use is no usage of the pod's"

        old, new = log_of(home, done.old_session_id), log_of(home, done.new_session_id)
        assert done.compacted_from == (done.old_session_id, old[-1]["hash"])
        assert new[0]["compacted_from"] == [done.old_session_id, old[-1]["hash"]]
        assert new[0]["system_prompt"] == old[0]["system_prompt"] == SYSTEM
        assert [entry["kind"] for entry in old][-2:] == ["run_outcome", "compaction_started"]
        told = new[1]
        assert told["kind"] == "compaction"
        assert told["old"] == done.old_session_id
        assert told["prompt_digest"]
        assert told["model"] == "fake"
        assert "in_run" not in told
        covers = new[0]["history"][0]["covers"]
        items = [item for entry in old for item in entry.get("items") or []]
        assert covers == {
            "session_id": done.old_session_id,
            "first_uid": items[0]["uid"],
            "last_uid": items[3]["uid"],
            "head_hash": old[-2]["hash"],
        }

        store = FileSessionStore(home)
        assert store.verify(done.old_session_id).ok
        assert store.verify(done.new_session_id).ok
        assert not store.restore(done.old_session_id).interrupted
        assert not store.restore(done.new_session_id).interrupted


async def test_its_events_come_in_order_and_only_after_their_entries(home: Path) -> None:
    with serving(chat(growing)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            seen_in_log: list[bool] = []

            def check(envelope: object) -> None:
                ref = getattr(envelope, "ref", None)
                if ref is not None:
                    seen_in_log.append(len(log_of(home, ref[0])) > ref[1])

            story.pod.listen(check)
            await story.turns(*QUESTIONS)
            tail = [
                (envelope.event, getattr(envelope.data, "state", None))
                for envelope in story.told
                if envelope.event.startswith(("run_end", "status", "compaction", "session"))
            ][-7:]
            assert tail == [
                ("run_end", None),
                ("status", "idle"),
                ("status", "compacting"),
                ("compaction_start", None),
                ("compaction_done", None),
                ("session_changed", None),
                ("status", "idle"),
            ]
            assert seen_in_log
            assert all(seen_in_log)
            assert [envelope.seq for envelope in story.told] == list(range(1, len(story.told) + 1))
            durable = {"compaction_start", "compaction_done", "text_done", "usage", "run_end"}
            for envelope in story.told:
                assert (envelope.ref is not None) or envelope.event not in durable


async def test_the_next_request_begins_with_the_summary_and_keeps_the_newest_turns(
    home: Path,
) -> None:
    with serving(chat(growing)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS, "QUESTION-5")

        sent = served.asked[-1]
        said = user_texts(sent)
        assert sent.text.count("SUMMARY-MARKER 1") == 1
        assert "SUMMARY-MARKER 1" in said[0]
        assert said[0].startswith("[Summary of the conversation so far.")
        assert [text[:10] for text in said[1:]] == ["QUESTION-3", "QUESTION-4", "QUESTION-5"]
        assert sent.body["messages"][0] == {"role": "system", "content": SYSTEM}


async def test_requests_share_their_prefix_but_for_the_compaction(home: Path) -> None:
    with serving(chat(growing)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS, "QUESTION-5", "QUESTION-6", "QUESTION-7")
            assert len(story.of(CompactionDone)) == 1

    chats = [asked.body["messages"] for asked in served.asked if not asked.wants_summary]
    breaks = [n for n, (one, two) in enumerate(pairwise(chats), 1) if two[: len(one)] != one]
    assert breaks == [4], "only the first request after the compaction begins anew"


async def test_the_old_session_is_not_touched_and_goes_on_by_itself(home: Path) -> None:
    with serving(chat(growing)) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns(*QUESTIONS)
            (done,) = story.of(CompactionDone)
            before = (home / "sessions" / f"{done.old_session_id}.jsonl").read_bytes()
            await story.turns("QUESTION-5")

        assert (home / "sessions" / f"{done.old_session_id}.jsonl").read_bytes() == before
        async with living(path, home, resume=done.old_session_id) as old:
            assert not old.of(CompactionFailed), "it ended in a session of its own"
            await old.pod.run("QUESTION-OLD")
            assert "QUESTION-1" in served.asked[-1].text


async def test_a_threshold_below_which_all_fits_compacts_nothing(home: Path) -> None:
    with serving(chat(growing)) as served:
        extra = "[compaction]\ncompact_threshold = 50000\n"
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns(*QUESTIONS)
            assert not story.of(CompactionStart)
            assert not any(asked.wants_summary for asked in served.asked)


@pytest.mark.parametrize("extra", ["", "[compaction]\nprune_protected_turns = 1\n"])
async def test_without_a_threshold_nothing_compacts_by_itself(home: Path, extra: str) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(60_000)))) as served:
        path = manifest(home, served.base_url, extra, window=40_000)
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            assert not story.of(CompactionStart)
            done = await story.pod.compact()
            assert done is not None, "by hand it works with the defaults"
            assert done.trigger == "manual"


async def test_a_history_too_short_to_cut_is_left_alone_without_a_word(home: Path) -> None:
    """No event, no call, no entry, also where the prompt is over the threshold."""
    with serving(chat(lambda _asked, _n: Say("yes"))) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns("only one question " + prose(24_000))
            before = (kinds(home, story.pod.session_id), len(story.told), len(served.asked))
            assert await story.pod.compact() is None
            await story.pod.idle()
            assert (kinds(home, story.pod.session_id), len(story.told), len(served.asked)) == before
            assert not story.of(CompactionStart)


# --- by hand --------------------------------------------------------------------------------


async def test_by_hand_with_a_focus(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two", "three")
            done = await story.pod.compact(focus="FOCUS-TOPIC")
            assert done is not None
            assert isinstance(story.pod.history[0], SummaryMessage)
            assert story.of(CompactionStart)[0].focus == "FOCUS-TOPIC"
            assert "FOCUS-TOPIC" in served.asked[-1].text
            assert await story.pod.compact() is None, "nothing new to cut"


async def test_by_hand_in_the_middle_of_a_run_comes_after_it_and_once(home: Path) -> None:
    """And the run's own trigger finds nothing left to do."""
    go_on = threading.Event()

    def answers(asked: Asked, number: int) -> Say:
        return Say(growing(asked, number).text, wait=go_on if number == 4 else None)

    with serving(chat(answers)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS[:3])
            running = asyncio.create_task(story.pod.run(QUESTIONS[3]))
            await asyncio.to_thread(served.wait_for, 4)
            by_hand = asyncio.create_task(story.pod.compact())
            await asyncio.sleep(0.05)
            assert not story.of(CompactionStart)
            go_on.set()
            assert (await running).outcome == "finished"
            done = await by_hand
            await story.pod.idle()
            assert done is not None
            assert await story.pod.compact() is None
            assert [start.trigger for start in story.of(CompactionStart)] == ["manual"]
            assert len(story.of(CompactionDone)) == 1
            assert len(logs(home)) == 2
            assert sum(asked.wants_summary for asked in served.asked) == 1


async def test_input_that_comes_while_compacting_is_in_the_new_session_alone(home: Path) -> None:
    go_on = threading.Event()

    def summaries(asked: Asked, number: int) -> Say:
        return Say(summary(), wait=go_on)

    with serving(chat(growing, summaries)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            for question in QUESTIONS:
                await story.pod.run(question)

            await asyncio.to_thread(served.wait_for, 5)
            waiting = asyncio.create_task(story.pod.run("MEANWHILE"))
            await asyncio.sleep(0.05)
            assert len(served.asked) == 5
            go_on.set()
            assert (await waiting).outcome == "finished"
            (done,) = story.of(CompactionDone)

        old, new = log_of(home, done.old_session_id), log_of(home, done.new_session_id)
        assert "MEANWHILE" not in str(old)
        assert sum("MEANWHILE" in str(entry) for entry in new) == 1
        assert served.asked[-1].text.count("MEANWHILE") == 1
        said = user_texts(served.asked[-1])
        assert "SUMMARY-MARKER" in said[0]
        assert said[-1] == "MEANWHILE"


# --- the summarizer's requests --------------------------------------------------------------


async def test_a_summary_is_asked_for_without_tools_by_its_own_prompt(home: Path) -> None:
    def answers(asked: Asked, number: int) -> Say:
        if asked.body["messages"][-1]["role"] == "tool":
            return Say("noted")

        return Say(calls=(("big", f'{{"n": {number}}}'),))

    with serving(chat(answers)) as served:
        async with living(manifest(home, served.base_url, BIG_TOOL), home) as story:
            await story.turns("one", "two", "three", "four")
            assert await story.pod.compact() is not None

        asked = [request.body for request in served.asked if request.wants_summary]
        assert len(asked) == 1
        body = asked[0]
        assert "tools" not in body
        assert body["temperature"] == 0
        assert body["max_tokens"] > 0
        system, user = body["messages"]
        assert system["role"] == "system"
        assert SYSTEM not in system["content"]
        assert user["role"] == "user"
        last = user["content"].rpartition("=====\n")[2]
        assert all(title in last for title in SECTIONS), "the instruction comes last"
        assert "CONTENT-1" in user["content"]
        assert user["content"].count("x") < 10_000, "results are cut"
        assert_paired([request for request in served.asked if not request.wants_summary])


async def test_a_provider_of_its_own_writes_the_summaries(home: Path) -> None:
    with (
        serving(chat(growing)) as served,
        serving(lambda _asked, _n: Say(summary("OTHER-MODEL"))) as other,
    ):
        extra = (
            f'{COMPACT}[compaction.provider]\nkind = "openai_compatible"\nmodel = "small"\n'
            f'base_url = "{other.base_url}"\napi_key_env = "FAKE_KEY"\n'
        )
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns(*QUESTIONS, "five")

        assert [asked.body["model"] for asked in other.asked] == ["small"]
        assert not any(asked.wants_summary for asked in served.asked)
        assert "OTHER-MODEL" in served.asked[-1].text


async def test_facts_outlive_three_compactions_in_a_row(home: Path) -> None:
    """The summarizer repeats every needle that it is shown: each must be shown to it."""
    seen: list[list[str]] = []

    def summaries(asked: Asked, number: int) -> Say:
        needles = sorted({f"NEEDLE-{n}" for n in range(1, 10) if f"NEEDLE-{n}!" in asked.text})
        seen.append(needles)
        return Say(summary("kept") + "\n" + "".join(f"- {needle}!\n" for needle in needles))

    with serving(chat(lambda _asked, _n: Say(prose(3_000)), summaries)) as served:
        extra = "[compaction]\ncompact_retained_turns = 1\n"
        async with living(manifest(home, served.base_url, extra), home) as story:
            for n in range(1, 7):
                await story.turns(f"NEEDLE-{n}! is a fact")
                if n % 2 == 0:
                    done = await story.pod.compact()
                    assert done is not None
                    assert done.generation == n // 2

            await story.turns("what do you know?")

        assert seen == [
            ["NEEDLE-1"],
            ["NEEDLE-1", "NEEDLE-2", "NEEDLE-3"],
            ["NEEDLE-1", "NEEDLE-2", "NEEDLE-3", "NEEDLE-4", "NEEDLE-5"],
        ]
        last = served.asked[-1].text
        assert all(f"NEEDLE-{n}!" in last for n in range(1, 7))
        assert [relation for _, relation in FileSessionStore(home).lineage(logs(home)[-1])] == [
            "root",
            "compact",
            "compact",
            "compact",
        ]


# --- bad summaries --------------------------------------------------------------------------

GOOD = summary()
BAD: dict[str, tuple[Say, str]] = {
    "empty": (Say(""), "empty"),
    "white space": (Say(" \n "), "empty"),
    "reasoning only": (Say("", reasoning="let me see " + GOOD), "empty"),
    "refusal": (Say("I can't help with that."), "refusal"),
    "filtered": (Say("I", finish="content_filter"), "refusal"),
    "tool markup": (Say('<tool_call>{"name": "big"}</tool_call>'), "tool_markup"),
    "tool call": (Say(calls=(("big", "{}"),)), "tool_markup"),
    "error text": (Say('{"error": {"message": "upstream broke"}}'), "error_text"),
    "cut off": (Say(GOOD, finish="length"), "truncated"),
    "a section missing": (Say(GOOD.replace(SECTIONS[2], "## Other")), "missing_section"),
    "headings alone": (Say("\n".join(SECTIONS)), "empty"),
    "refused by the provider": (Say(status=400, error="no"), "provider_error"),
    "no smaller": (Say(GOOD + prose(30_000)), "no_progress"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_is_no_summary_changes_nothing(home: Path, name: str) -> None:
    bad, reason = BAD[name]
    with serving(chat(lambda _asked, _n: Say(prose(3_000)), lambda _asked, _n: bad)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two", "three")
            history, session_id = story.pod.history, story.pod.session_id
            with pytest.raises(CompactionError) as caught:
                await story.pod.compact()

            assert caught.value.reason == reason
            assert story.pod.history == history
            assert story.pod.session_id == session_id
            (failed,) = story.of(CompactionFailed)
            assert failed.reason == reason
            assert failed.message
            assert failed.consecutive_failures == 1
            assert logs(home) == [session_id]
            assert kinds(home, session_id)[-2:] == ["compaction_started", "compaction_failed"]
            asked = [request.text for request in served.asked if request.wants_summary]
            assert 1 <= len(asked) <= 2
            assert len(set(asked)) == len(asked), "a repair is another request"
            assert all(title in text for text in asked for title in SECTIONS)
            assert (await story.pod.run("four")).outcome == "finished"


async def test_only_visible_text_becomes_the_summary(home: Path) -> None:
    def summaries(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say("", reasoning="I think that " + GOOD)

        return Say(GOOD, reasoning="SECRET-THOUGHT")

    with serving(chat(lambda _asked, _n: Say(prose(3_000)), summaries)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None
            (first, *_) = story.pod.history
            assert isinstance(first, SummaryMessage)
            assert first.text == GOOD


async def test_a_summary_that_was_cut_is_asked_for_again_with_more_room(home: Path) -> None:
    def summaries(asked: Asked, number: int) -> Say:
        return Say(GOOD, finish="length" if number == 1 else None)

    with serving(chat(lambda _asked, _n: Say(prose(3_000)), summaries)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None

        one, two = (request.body for request in served.asked if request.wants_summary)
        assert two["max_tokens"] > one["max_tokens"]


async def test_text_that_was_refused_as_a_summary_is_never_the_previous_one(home: Path) -> None:
    def summaries(asked: Asked, number: int) -> Say:
        return Say("<tool_call>BAD-TEXT</tool_call>" if number <= 2 else GOOD)

    with serving(chat(lambda _asked, _n: Say(prose(3_000)), summaries)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two", "three")
            with pytest.raises(CompactionError):
                await story.pod.compact()

            assert await story.pod.compact() is not None

        assert "BAD-TEXT" not in "".join(asked.text for asked in served.asked)


async def test_the_run_before_a_failed_compaction_has_ended_well(home: Path) -> None:
    with serving(chat(growing, "no summary")) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS)
            assert [end.outcome for end in story.of(RunEnd)] == ["finished"] * 4
            assert len(story.of(CompactionFailed)) == 1
            assert story.of(Status)[-1].state == "idle"
            assert not FileSessionStore(home).restore(story.pod.session_id).interrupted


async def test_a_secret_that_a_provider_repeats_is_told_nowhere(home: Path) -> None:
    key = "sk-test-0123456789abcdef"

    def summaries(asked: Asked, number: int) -> Say:
        return Say(status=400, error=f"bad key {key}")

    with serving(chat(lambda _asked, _n: Say(prose(3_000)), summaries)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.turns("one", "two", "three")
            with pytest.raises(CompactionError):
                await story.pod.compact()

            (failed,) = story.of(CompactionFailed)
            assert key not in failed.message
            assert key not in str(log_of(home, story.pod.session_id))
