"""What compaction remembers of its failures: three in a row, and floors, also in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod.compaction.plan import CompactionError
from pod.protocol import CompactionDone, CompactionFailed, CompactionStart, RunEnd
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, Script, serving
from tests.pod.pods import (
    COMPACT,
    Story,
    chat,
    kinds,
    living,
    log_of,
    manifest,
    pointer,
    prose,
    summary,
)

pytestmark = pytest.mark.anyio

QUESTIONS = ("one " + prose(8_000), "two " + prose(8_000), "three " + prose(8_000))
"""Each brings 2,000 tokens: the third is over 5,000."""


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def refusing_until(number: int) -> Script:
    """A summarizer that fails in its first requests; a failed summary is one repaired once."""

    def script(asked: Asked, n: int) -> Say:
        return Say(summary() if n >= number else "I can't do that.")

    return script


def counts(story: Story) -> list[tuple[int, bool]]:
    return [(f.consecutive_failures, f.disabled) for f in story.of(CompactionFailed)]


async def test_three_failures_in_a_row_switch_it_off_for_good(home: Path) -> None:
    """One attempt a run; then none, after a restart and in forks too, until one by hand."""
    with serving(chat(short, refusing_until(9))) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns(*QUESTIONS, "four", "five", "six", "seven")
            assert counts(story) == [(1, False), (2, False), (3, True)]
            assert [end.outcome for end in story.of(RunEnd)] == ["finished"] * 7
            assert story.pod.status().compaction_disabled
            session_id = story.pod.session_id

        async with living(path, home, resume=session_id) as story:
            await story.turns("eight")
            assert not story.of(CompactionStart), "also after a restart"
            async with await story.pod.fork() as child:
                assert child.status().compaction_disabled, "and in a fork"

            with pytest.raises(CompactionError):
                await story.pod.compact()  # By hand it is tried all the same.

            assert counts(story) == [(4, True)]
            done = await story.pod.compact()
            assert done is not None
            assert not story.pod.status().compaction_disabled, "a success turns it on again"
            assert story.pod.status().compaction_failures == 0
            await story.turns(*QUESTIONS)
            assert [start.trigger for start in story.of(CompactionStart)][-1] == "threshold"
            assert story.pod.session_id != done.new_session_id


async def test_failures_before_a_restart_count_on(home: Path) -> None:
    with serving(chat(short, "no summary")) as served:
        path = manifest(home, served.base_url, COMPACT)
        async with living(path, home) as story:
            await story.turns(*QUESTIONS, "four")
            assert counts(story) == [(1, False), (2, False)]

        async with living(path, home, resume=pointer(home)) as story:
            await story.turns("five", "six")
            assert counts(story) == [(3, True)]


async def test_a_success_in_between_begins_the_count_anew(home: Path) -> None:
    with serving(chat(short, refusing_until(5))) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS, "four", "five")
            assert counts(story) == [(1, False), (2, False)]
            assert len(story.of(CompactionDone)) == 1
            assert story.pod.status().compaction_failures == 0


# --- floors ---------------------------------------------------------------------------------

LARGE = "SYSTEM-PROMPT-MARKER " + prose(24_000)
"""About 6,000 tokens, over the threshold of 5,000."""


async def test_what_must_stay_over_the_threshold_is_told_once(home: Path) -> None:
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, COMPACT, system=LARGE)
        async with living(path, home) as story:
            await story.turns("one", "two", "three", "four", "five")
            (failed,) = story.of(CompactionFailed)
            assert failed.reason == "floor"
            assert failed.consecutive_failures == 0, "that says nothing against the summarizer"
            assert not failed.disabled
            assert "5,000" in failed.message
            assert failed.message.index("system prompt") < failed.message.index("newest message")
            assert not any(asked.wants_summary for asked in served.asked)
            assert [end.outcome for end in story.of(RunEnd)] == ["finished"] * 5

        async with living(path, home, resume=pointer(home)) as story:
            await story.turns("six", "seven")
            assert not story.of(CompactionStart), "also not after a restart"
            async with await story.pod.fork() as child:
                starts: list[CompactionStart] = []
                child.on(CompactionStart, starts.append)
                await child.run("eight")
                await child.idle()
                assert not starts, "nor in a fork"


async def test_another_threshold_or_another_floor_is_another_try(home: Path) -> None:
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, COMPACT, system=LARGE)
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            assert len(story.of(CompactionFailed)) == 1

        higher = COMPACT.replace("5000", "5500")
        path = manifest(home, served.base_url, higher, system=LARGE)
        async with living(path, home, resume=pointer(home)) as story:
            await story.turns("four", "five")
            assert [failed.reason for failed in story.of(CompactionFailed)] == ["floor"]

        path = manifest(home, served.base_url, higher, system="SYSTEM-PROMPT-MARKER. Be brief.")
        async with living(path, home, resume=pointer(home)) as story:
            await story.turns("six " + prose(24_000), "seven", "eight")
            assert story.of(CompactionDone), "the floor is gone"


async def test_a_floor_is_forgotten_with_what_it_was_made_of(home: Path) -> None:
    """A message that alone is too large is in the way only while it is the newest."""
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns("one", "two", "three " + prose(24_000))
            assert [failed.reason for failed in story.of(CompactionFailed)] == ["floor"]
            await story.turns("four", "five", "six")
            (done, *_) = story.of(CompactionDone)
            assert done.tokens_after < 5_000


async def test_the_log_says_why(home: Path) -> None:
    with serving(chat(short, "no summary")) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns(*QUESTIONS)
            session_id = story.pod.session_id

        (entry,) = (e for e in log_of(home, session_id) if e["kind"] == "compaction_failed")
        assert entry["reason"] == "missing_section"
        assert entry["trigger"] == "threshold"
        assert (entry["consecutive_failures"], entry["disabled"]) == (1, False)
        assert kinds(home, session_id).count("compaction_started") == 1
        assert FileSessionStore(home).restore(session_id).compaction_open is None
