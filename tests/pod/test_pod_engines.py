"""A plugin engine in a whole pod: it decides for itself, and does no harm."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pod.compaction.plan import CompactionError
from pod.protocol import (
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    EngineNotice,
    RunEnd,
)
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import (
    BIG_TOOL,
    Story,
    assert_paired,
    chat,
    kinds,
    living,
    log_of,
    logs,
    manifest,
    pointer,
    prose,
    user_texts,
)

pytestmark = pytest.mark.anyio

ENGINE = """
import time
from pod.context import ContextEngine

class Toy(ContextEngine):
    threshold_tokens = {threshold}

    @property
    def name(self):
        return "toy"

    def update_model(self, model, context_length, **kwargs):
        self.context_length = context_length  # the threshold stays its own

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or self.last_prompt_tokens) > self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        head = {{"role": "user", "content": "TOY-COMPRESSED"}}
        return [head] + messages[-2:]

{more}
"""
USE = '[context]\nengine = "toy"\n'


def install(home: Path, more: str = "", *, threshold: int = 5_000) -> None:
    folder = home / "plugins" / "toy"
    folder.mkdir(parents=True, mode=0o700)
    body = "\n".join(f"    {line}" for line in more.strip("\n").split("\n"))
    (folder / "__init__.py").write_text(ENGINE.format(threshold=threshold, more=body))
    (folder / "plugin.yaml").write_text("name: toy\nversion: 0.1.0\ndescription: a toy\n")


def long(asked: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


def notices(story: Story) -> str:
    return " ".join(notice.message for notice in story.of(EngineNotice))


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_it_alone_decides_when_to_compact(home: Path) -> None:
    """The built-in's own thresholds, long passed, are not its concern."""
    install(home)
    extra = USE + "[compaction]\ncompact_threshold = 1000\ncompact_request_threshold = 1200\n"
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one", "two")
            assert not story.of(CompactionStart)
            await story.turns("three", "four")
            starts, dones = story.of(CompactionStart), story.of(CompactionDone)
            assert {(start.trigger, start.engine) for start in starts} == {("engine", "toy")}
            assert {start.threshold for start in starts} == {None}
            assert dones[0].method == "engine"
            assert not any(asked.wants_summary for asked in served.asked)
            assert any("TOY-COMPRESSED" in asked.text for asked in served.asked)
            assert log_of(home, dones[0].new_session_id)[0]["compacted_from"]
            assert story.of(RunEnd)[-1].outcome == "finished"


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_its_effect_is_for_it_to_judge(home: Path) -> None:
    """No thrash by a threshold that is not its own, by hand and after a restart neither."""
    install(home, threshold=10**9)
    extra = USE + "[compaction]\ncompact_threshold = 100\n"
    with serving(chat(long)) as served:
        path = manifest(home, served.base_url, extra)
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None
            assert (await story.pod.run("four")).outcome == "finished"
            await story.pod.compact()

        async with living(path, home, resume=pointer(home)) as story:
            assert (await story.pod.run("five")).outcome == "finished"


async def test_it_is_not_asked_again_before_the_model_answered(home: Path) -> None:
    """One that always wants to compress does so once a request, and the run goes on."""
    install(home, threshold=-1)

    def calling(asked: Asked, number: int) -> Say:
        if number <= 3:
            return Say("on it", calls=(("big", json.dumps({"n": number})),))

        return Say("finished")

    with serving(chat(calling)) as served:
        async with living(manifest(home, served.base_url, USE + BIG_TOOL), home) as story:
            result = await asyncio.wait_for(story.pod.run("go"), 15)
            assert result.outcome == "finished"
            await story.pod.idle()
            assert len(story.of(CompactionStart)) <= 5
            assert_paired(served.asked)


COMPRESS = "def compress(self, messages, current_tokens=None, focus_topic=None):\n"
BROKEN = {
    "raises": (COMPRESS + "    raise ValueError('broken on purpose')", "engine_error"),
    "exits": (COMPRESS + "    raise SystemExit(3)", "engine_error"),
    "gives nothing": (COMPRESS + "    return None", "invalid_result"),
    "gives an empty list": (COMPRESS + "    return []", "empty"),
    "gives nonsense": (COMPRESS + "    return [1, 2]", "invalid_result"),
    "gives it back": (COMPRESS + "    return messages", "no_progress"),
    "gives more": (
        COMPRESS + "    return messages + [{'role': 'user', 'content': 'x' * 900}]",
        "no_progress",
    ),
    "falls silent": (COMPRESS + "    time.sleep(1.5)\n    return messages[-1:]", "timeout"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_engine_that_fails_changes_nothing(home: Path, name: str) -> None:
    source, reason = BROKEN[name]
    install(home, source)

    def script(asked: Asked, number: int) -> Say:
        if number == 1:
            return Say(calls=(("big", '{"n": 1}'),))

        return long(asked, number)

    extra = BIG_TOOL + USE + "timeout_seconds = 0.5\n"
    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            result = await story.pod.run("one")
            await story.pod.idle()
            assert result.outcome == "finished"
            failures = story.of(CompactionFailed)
            assert {failed.reason for failed in failures} == {reason}
            assert len(failures) == len(story.of(CompactionStart)) <= 2
            assert failures[-1].consecutive_failures == len(failures)
            assert logs(home) == [story.pod.session_id]
            assert len(story.pod.history) == 4
            with pytest.raises(CompactionError):
                await story.pod.compact()

            assert story.pod.status().compaction_disabled is (len(failures) == 2)
            assert (await story.pod.run("two")).outcome == "finished"


async def test_three_failures_switch_an_engines_compaction_off_too(home: Path) -> None:
    install(home, BROKEN["gives it back"][0], threshold=1_000)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three", "four", "five")
            assert [f.disabled for f in story.of(CompactionFailed)] == [False, False, True]
            assert {end.outcome for end in story.of(RunEnd)} == {"finished"}


async def test_a_task_that_an_engine_drops_is_put_back(home: Path) -> None:
    install(
        home,
        COMPRESS + "    return [{'role': 'user', 'content': 'TOY-COMPRESSED'}]",
        threshold=10**9,
    )
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "THE-TASK")
            assert await story.pod.compact() is not None
            await story.turns("three")

        assert user_texts(served.asked[-1]) == ["TOY-COMPRESSED", "THE-TASK", "three"]


@pytest.mark.moves_prefix("the engine selects what one request holds")
async def test_what_an_engine_does_to_its_messages_stays_there(home: Path) -> None:
    install(
        home,
        """
def select_context(self, request_messages, *, conversation_messages=None,
                   incoming_message=None, budget_tokens=0):
    if "SELECT-ME" not in str(request_messages[-1]["content"]):
        return None

    for message in request_messages + conversation_messages:
        message["content"] = "SPOILED"

    conversation_messages.clear()
    return request_messages[:1] + [{"role": "user", "content": "SELECTED"}]
""",
    )
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one")
            history = story.pod.history
            await story.turns("SELECT-ME", "three")
            assert story.pod.history[:2] == history
            store = FileSessionStore(home)
            assert store.verify(story.pod.session_id).ok
            assert "SPOILED" not in str(log_of(home, story.pod.session_id))

    assert user_texts(served.asked[1]) == ["SELECTED"]
    assert user_texts(served.asked[2]) == ["one", "SELECT-ME", "three"]


@pytest.mark.parametrize(
    ("body", "warns"),
    [("return None", False), ("return []", True), ("raise ValueError('no')", True)],
)
async def test_a_selection_that_is_none_sends_all(home: Path, body: str, *, warns: bool) -> None:
    install(home, f"def select_context(self, request_messages, **kwargs):\n    {body}")
    with serving(chat(lambda _asked, n: Say(f"answer {n}"))) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            assert ("select_context" in notices(story)) is warns
            assert len(story.of(EngineNotice)) == warns, "told once"

    assert user_texts(served.asked[-1]) == ["one", "two"]


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_callbacks_that_fail_harm_no_committed_compaction(home: Path) -> None:
    install(
        home,
        """
@property
def last_prompt_tokens(self):
    return 0

def update_from_response(self, usage):
    pass

def on_session_end(self, *args, **kwargs):
    raise ValueError("end")
""",
        threshold=10**9,
    )
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            done = await story.pod.compact()
            assert done is not None
            assert story.pod.session_id == done.new_session_id == pointer(home)
            assert "on_session_end raised ValueError: end" in notices(story)
            assert (await story.pod.run("four")).outcome == "finished"

        assert kinds(home, done.new_session_id)[-1] == "run_outcome"


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_too_long_twice_in_a_row_is_an_error_though_it_could_go_on(home: Path) -> None:
    """An engine that gives up a little each time is asked once, not until nothing is left."""
    install(home, COMPRESS + "    return messages[1:]", threshold=10**9)

    def script(asked: Asked, number: int) -> Say:
        if number < 6:
            return long(asked, number)

        error = "maximum context length is 9000 tokens"
        return Say(status=400, error=error, code="context_length_exceeded")

    with serving(chat(script)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three", "four", "five", "six")
            end = story.of(RunEnd)[-1]
            assert end.error is not None
            assert end.error.code == "overflow"
            assert "did not make it fit" in end.error.message
            assert "9,000" in end.error.message
            assert [start.trigger for start in story.of(CompactionStart)] == ["overflow"]
            assert len(served.asked) == 7


async def test_a_secret_in_what_an_engine_raises_is_told_nowhere(home: Path) -> None:
    key = "sk-test-0123456789abcdef"
    install(home, COMPRESS + f"    raise ValueError('{key}')", threshold=10**9)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two")
            with pytest.raises(CompactionError):
                await story.pod.compact()

            (failed,) = story.of(CompactionFailed)
            assert "ValueError" in failed.message
            assert key not in failed.message
            assert key not in str(log_of(home, story.pod.session_id))


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_a_cancellation_after_the_commit_is_no_failure(home: Path) -> None:
    """It comes while the engine is told of the boundary: done is done, and said once."""
    install(home, "def on_session_end(self, *a, **k):\n    time.sleep(0.2)", threshold=10**9)
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            task = asyncio.create_task(story.pod.compact())

            def cancel(_: CompactionDone) -> None:
                task.cancel()

            story.pod.on(CompactionDone, cancel)
            await asyncio.wait({task})
            (done,) = story.of(CompactionDone)
            assert not story.of(CompactionFailed)
            assert story.pod.session_id == done.new_session_id == pointer(home)
            assert (await story.pod.run("four")).outcome == "finished"


@pytest.mark.moves_prefix("an engine of its own compacts without a summary")
async def test_after_a_compaction_an_engine_knows_of_no_size(home: Path) -> None:
    notes = home / "sizes"
    install(
        home,
        f"""
def select_context(self, request_messages, **kwargs):
    with open({str(notes)!r}, "a") as file:
        file.write(f"{{self.last_prompt_tokens}} ")
""",
        threshold=10**9,
    )
    with serving(chat(long)) as served:
        async with living(manifest(home, served.base_url, USE), home) as story:
            await story.turns("one", "two", "three")
            assert await story.pod.compact() is not None
            await story.turns("four", "five")

    sizes = [int(size) for size in notes.read_text().split()]
    assert [size > 0 for size in sizes] == [False, True, True, False, True]
    assert sizes[3] == -1
