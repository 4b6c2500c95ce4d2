"""Operations on one pod at once: each waits for the one before, and no session stays open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest
from attrs import evolve

from manifests import load_manifest
from pod import Pod
from pod.bus import EventBus
from pod.errors import PodClosed
from pod.home import Home
from pod.launching.launch import launch
from pod.launching.preparing import prepare
from pod.protocol import SessionChanged
from pod.providers import Provider
from session_store import FileSessionStore, SessionStoreError, StorageFailed
from tests.fake_provider import Asked, Say, serving
from tests.pod.full_disk import files_no_larger_than
from tests.pod.pods import chat, living, logs, manifest, prose
from worker.llm import ScriptedClient

pytestmark = pytest.mark.anyio

KEY = {"FAKE_KEY": "sk-test-0123456789abcdef", "NO_PROXY": "*"}


def short(asked: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def assert_all_let_go(home: Path) -> None:
    """Nobody holds a session any more, though this process is still here."""
    store = FileSessionStore(home)
    for session_id in logs(home):
        store.open(session_id).close()


async def test_a_run_that_waits_for_a_new_session_runs_in_that_one(home: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.pod.run("one")
            old_id = story.pod.session_id
            _, result = await asyncio.gather(story.pod.new(), story.pod.run("two"))
            assert result.outcome == "finished"
            assert result.session_id == story.pod.session_id != old_id


async def test_new_sessions_asked_for_at_once_leave_none_of_them_open(home: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await asyncio.gather(story.pod.new(), story.pod.new(), story.pod.new())
            assert (await story.pod.run("one")).outcome == "finished"

        assert len(logs(home)) == 4
        assert_all_let_go(home)


async def test_starting_twice_at_once_starts_one_session(home: Path) -> None:
    with serving(chat(short)) as served:
        pod = Pod.launch(manifest(home, served.base_url), home=home, env=KEY)
        await asyncio.gather(pod.start(), pod.start())
        await pod.aclose()
        assert len(logs(home)) == 1
        assert_all_let_go(home)


async def test_what_waits_when_the_pod_is_closed_is_told_so(home: Path) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            fresh = asyncio.create_task(story.pod.new())
            await asyncio.sleep(0)
            waiting = asyncio.create_task(story.pod.run("one"))
            await asyncio.sleep(0)
            await story.pod.aclose()
            await fresh
            with pytest.raises(PodClosed):
                await waiting

        assert_all_let_go(home)


@pytest.mark.parametrize("steps", range(0, 24, 3))
async def test_wherever_a_change_of_session_is_cancelled_the_pod_works_on(
    home: Path, steps: int
) -> None:
    with serving(chat(short)) as served:
        async with living(manifest(home, served.base_url), home) as story:
            await story.pod.run("one")
            task = asyncio.create_task(story.pod.new())
            for _ in range(steps):
                await asyncio.sleep(0.0005)

            task.cancel()
            await asyncio.wait({task})
            assert (await story.pod.run("two")).outcome == "finished"

        assert_all_let_go(home)


async def test_a_new_session_that_cannot_be_made_leaves_the_pod_in_the_old_one(home: Path) -> None:
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, system=prose(4_000))
        async with living(path, home) as story:
            await story.pod.run("one")
            old_id, history = story.pod.session_id, story.pod.history
            with files_no_larger_than(2_000), pytest.raises(StorageFailed):
                await story.pod.new()

            assert story.pod.session_id == old_id
            assert story.pod.history == history
            assert (await story.pod.run("two")).outcome == "finished"
            assert not story.of(SessionChanged)


class Closing(ScriptedClient):
    """A client that tells whether it was closed."""

    is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True
        await super().aclose()


async def test_the_client_is_closed_also_where_the_session_cannot_be_in_order(home: Path) -> None:
    """It may be a model of this machine, with a process of its own."""
    loaded = load_manifest(manifest(home, "http://127.0.0.1:1/v1"), env=KEY)
    prepared = prepare(loaded, Home(home), KEY)
    client = Closing(())
    provider = Provider(client, prepared.provider.keys)
    launched = await launch(
        evolve(prepared, provider=provider, summaries=provider), EventBus(), resume=None
    )
    anchor = home / "sessions" / f"{launched.core.session.session_id}.head"
    anchor.unlink(missing_ok=True)
    anchor.mkdir()
    with anyio.fail_after(5), pytest.raises(SessionStoreError):
        await launched.aclose()

    assert client.is_closed
