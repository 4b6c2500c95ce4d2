"""Cases K: tools that are cancelled, run in parallel, print too much or take too long."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pod.protocol import ApprovalRequest, Retry, RunEnd, TextDelta, ToolCallDone, ToolResult
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, Script, serving
from tests.pod.pods import Story, living, log_of, manifest
from worker import ToolResult as ToolResultItem

pytestmark = pytest.mark.anyio


def tools(*names: str, more: str = "") -> str:
    listed = ", ".join(f'"tests.cases.busy_tools:{name}"' for name in names)
    return f"[tools]\npython = [{listed}]\n{more}"


def calling(*calls: tuple[str, str]) -> Script:
    """A model that makes these calls at once, and then says that it is done."""
    return lambda _asked, n: Say(calls=calls) if n == 1 else Say("done")


def results(asked: Asked) -> list[str]:
    """What a request says that its calls came to, in the order of the request."""
    return [str(m["content"]) for m in asked.body["messages"] if m["role"] == "tool"]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def ran(work: Path) -> list[str]:
    path = work / "ran.txt"
    return path.read_text().split() if path.exists() else []


async def until_started(work: Path, *names: str) -> None:
    async with asyncio.timeout(10):
        while not set(names) <= set(ran(work)):  # noqa: ASYNC110  another thread tells by a file
            await asyncio.sleep(0.01)


# --- K02, K14: stopped in the middle -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync_slow", "async_slow", "async_deaf"])
async def test_k02_a_cancelled_tool_ran_once_and_its_batch_is_closed_before_the_next_prompt(
    home: Path, work: Path, kind: str
) -> None:
    """K02: a sync one is left behind, an async one ends, a deaf one is left behind too."""
    with serving(calling((kind, "{}"), ("note", '{"word": "quick"}'))) as served:
        async with living(manifest(home, served.base_url, tools(kind, "note")), home) as story:
            quick = story.pod.events(ToolResult)
            run = asyncio.create_task(story.pod.run("go"))
            await until_started(work, kind)
            await anext(quick)
            began = time.monotonic()
            story.pod.cancel()
            assert (await run).outcome == "cancelled"
            assert time.monotonic() - began < 6, "each of them would take 8 s or more"
            await story.pod.run("and now?")

    (work / "let-go").touch()
    assert ran(work).count(kind) == 1
    told = results(served.asked[1])
    assert told[0].startswith("cancelled: the run was stopped")
    assert told[1] == "noted quick"
    roles = [m["role"] for m in served.asked[1].body["messages"]]
    assert roles[-3:] == ["tool", "tool", "user"]
    assert_one_result_each(home, story, 2)


async def test_k02_the_task_itself_is_cancelled_and_a_resume_runs_nothing_again(
    home: Path, work: Path
) -> None:
    with serving(calling(("async_slow", "{}"))) as served:
        path = manifest(home, served.base_url, tools("async_slow"))
        async with living(path, home) as story:
            run = asyncio.create_task(story.pod.run("go"))
            await until_started(work, "async_slow")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run

            session_id = story.pod.session_id

        async with living(path, home, resume=session_id) as again:
            await again.pod.resume()

    assert ran(work).count("async_slow") == 1
    assert results(served.asked[1])[0].startswith("cancelled")
    assert_one_result_each(home, again, 1)


async def test_k02_calls_that_never_began_say_so(home: Path, work: Path) -> None:
    asking = '[permissions]\ntools = { note = "ask" }\n'
    with serving(calling(("note", '{"word": "never"}'))) as served:
        path = manifest(home, served.base_url, tools("note", more=asking))
        async with living(path, home) as story:
            story.pod.on(ApprovalRequest, lambda _: story.pod.cancel())
            await story.pod.run("go")
            await story.pod.run("and now?")

    assert ran(work) == []
    assert results(served.asked[1]) == ["not run: the run was stopped before this call began"]


@pytest.mark.parametrize("kind", ["async_slow", "async_deaf"])
async def test_k14_a_policy_to_give_up_stops_the_siblings(
    home: Path, work: Path, kind: str
) -> None:
    """K14: the first call fails, a hook gives up; the second, which would write, is cancelled."""
    hook = '[[hooks]]\npoint = "PostToolCall"\npython = "tests.cases.busy_tools:give_up_on_error"\n'
    calls = (("fails", "{}"), (kind, "{}"))
    with serving(calling(*calls)) as served:
        path = manifest(home, served.base_url, tools("fails", kind, more=hook))
        async with living(path, home) as story:
            result = await story.pod.run("go")
            await story.pod.run("and now?")

    assert result.outcome == "cancelled"
    assert "wrote" not in ran(work)
    told = results(served.asked[1])
    assert told[0].startswith("fails failed: RuntimeError")
    assert told[1].startswith("cancelled: fails failed")
    assert_one_result_each(home, story, 2)


# --- K03, K05, K11: in parallel ------------------------------------------------------------------


async def test_k03_a_sibling_that_cancels_itself_costs_the_others_nothing(home: Path) -> None:
    calls = (("cancels_itself", "{}"), ("note", '{"word": "good"}'), ("fails", "{}"))
    with serving(calling(*calls)) as served:
        path = manifest(home, served.base_url, tools("cancels_itself", "note", "fails"))
        async with living(path, home) as story:
            result = await story.pod.run("go")

    assert (result.outcome, result.text) == ("finished", "done")
    assert results(served.asked[1]) == [
        "cancels_itself cancelled itself",
        "noted good",
        "fails failed: RuntimeError: kaput",
    ]


async def test_k05_results_are_sent_in_the_order_of_the_calls(home: Path) -> None:
    """K05: the first is slow, the second denied at once; events come as things end."""
    denied = '[permissions]\ntools = { note = "deny" }\n'
    calls = (("short_nap", "{}"), ("note", '{"word": "x"}'))
    with serving(calling(*calls)) as served:
        path = manifest(home, served.base_url, tools("short_nap", "note", more=denied))
        async with living(path, home) as story:
            await story.pod.run("go")

    first, second = [done.call_id for done in story.of(ToolCallDone)]
    assert [r.call_id for r in story.of(ToolResult)] == [second, first]
    sent = [m for m in served.asked[1].body["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in sent] == [first, second]
    assert sent[1]["content"].startswith("not run: permission denied")


async def test_k11_each_call_that_ran_out_of_time_had_begun(home: Path, work: Path) -> None:
    """K11: ten calls with a short limit, two of which never begin: none is told what is untrue."""
    denied = '[permissions]\ntools = { note = "deny" }\n'
    calls = (*[("sync_slow", "{}")] * 8, *[("note", '{"word": "x"}')] * 2)
    with serving(calling(*calls)) as served:
        path = manifest(home, served.base_url, tools("sync_slow", "note", more=denied))
        limited = "[worker]\ntool_timeout_seconds = 0.3\n"
        path.write_text(path.read_text().replace("[worker]\n", limited))
        async with living(path, home) as story:
            await story.pod.run("go")

    told = results(served.asked[1])
    (work / "let-go").touch()
    assert ran(work).count("sync_slow") == 8
    assert told[:8] == ["sync_slow timed out after 0.3 s"] * 8
    assert all(text.startswith("not run:") for text in told[8:])


# --- K06, K07, K10: too much, and not text -------------------------------------------------------


async def test_k06_bytes_that_are_no_text_are_shown_with_replacement_characters(
    home: Path,
) -> None:
    with serving(calling(("shell", json.dumps({"command": r"printf '\377\376\000'"})))) as served:
        path = manifest(home, served.base_url, tools("shell"))
        async with living(path, home) as story:
            assert (await story.pod.run("go")).outcome == "finished"

    assert results(served.asked[1]) == ["��\x00"]


async def test_k06_two_hundred_megabytes_are_told_by_size_and_take_little_memory(
    home: Path,
) -> None:
    printing = "head -c 200000000 /dev/zero | tr '\\0' x"
    with serving(calling(("shell", json.dumps({"command": printing})))) as served:
        async with living(manifest(home, served.base_url, tools("shell")), home) as story:
            tracemalloc.start()
            try:
                result = await story.pod.run("go")
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert result.outcome == "finished"
    assert peak < 30_000_000
    (told,) = results(served.asked[1])
    assert "200,000,000 bytes of output" in told
    assert "bytes left out" in told
    assert len(told) < 70_000


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "one line"])
async def test_k07_a_huge_result_fits_the_request_and_all_of_it_can_be_had(
    home: Path, lines: bool
) -> None:
    """K07, K10: two million characters, with and without an end of line."""
    calls = (("much", json.dumps({"lines": lines})),)
    with serving(calling(*calls)) as served:
        async with living(manifest(home, served.base_url, tools("much")), home) as story:
            await story.pod.run("go")
            (item,) = [i for i in story.pod.history if isinstance(i, ToolResultItem)]

    (told,) = results(served.asked[1])
    assert len(told.encode()) <= 65_536 + 1_000
    assert "BEGINNING" in told
    assert "THE-END" in told
    assert f"the session log holds all of it, uid {item.uid}" in told
    (kept,) = [
        kept
        for kept in FileSessionStore(home).restore(session_of(story)).history
        if isinstance(kept, ToolResultItem)
    ]
    assert kept.uid == item.uid
    assert kept.content is not None
    assert len(kept.content) > 2_000_000


@pytest.mark.parametrize("kind", ["gives_bytes", "gives_a_blob"])
async def test_k10_what_is_no_text_is_never_sent_as_python_writes_it(home: Path, kind: str) -> None:
    with serving(calling((kind, "{}"))) as served:
        async with living(manifest(home, served.base_url, tools(kind)), home) as story:
            await story.pod.run("go")

    (told,) = results(served.asked[1])
    assert len(told.encode()) <= 65_536 + 1_000
    beginning = told.partition("\n")[0]
    assert re.search(r"… \(1 line, \d,\d{3},\d{3} bytes\)$", beginning), "how much it was"
    assert "b'" not in told
    assert "\\x00" not in told


# --- K12: silence --------------------------------------------------------------------------------


@contextmanager
def silent_server(said: bytes) -> Iterator[tuple[str, list[float]]]:
    """A server that takes requests, sends `said`, and then nothing more until the block ends."""
    came: list[float] = []
    over = threading.Event()

    def attend(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1_000_000)
            came.append(time.monotonic())
            connection.sendall(said)
            over.wait(20)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", came
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DELTA: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "half an ans"}}]}


@pytest.mark.parametrize("begins", [False, True], ids=["nothing", "a delta"])
async def test_k12_silence_is_a_retry_before_any_answer_and_a_clean_failure_after(
    home: Path, begins: bool
) -> None:
    said = HEAD + b"data: " + json.dumps(DELTA).encode() + b"\n\n" if begins else b""
    with silent_server(said) as (url, came):
        path = manifest(home, url)
        path.write_text(path.read_text().replace(
            'model = "fake"\n', 'model = "fake"\nidle_timeout_seconds = 0.3\n'))  # fmt: skip
        async with living(path, home) as story:
            run = asyncio.create_task(story.pod.run("go"))
            if begins:
                await run
            else:
                await anext(story.pod.events(Retry))
                story.pod.cancel()
                await run

    (end,) = story.of(RunEnd)
    if begins:
        assert len(came) == 1
        assert not story.of(Retry)
        assert end.outcome == "error"
        assert "".join(d.text for d in story.of(TextDelta)) == "half an ans"
        (kept,) = [e for e in log_of(home, end.session_id) if e["kind"] == "assistant_items"]
        assert kept["items"][0]["stop_reason"] == "partial"
    else:
        assert story.of(Retry)


# -------------------------------------------------------------------------------------------------


def session_of(story: Story) -> str:
    return story.of(RunEnd)[-1].session_id


def assert_one_result_each(home: Path, story: Story, count: int) -> None:
    entries = log_of(home, session_of(story))
    kept = [item for e in entries if e["kind"] == "tool_results" for item in e["items"]]
    assert len({item["call_uid"] for item in kept}) == len(kept) == count
