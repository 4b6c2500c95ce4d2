"""The commit of a compaction on a disk that fails at any one operation."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from manifests import load_manifest
from pod.bus import EventBus
from pod.compaction.plan import CompactionError
from pod.home import Home
from pod.launching.launch import Launched, launch
from pod.launching.preparing import prepare
from pod.protocol import (
    Alert,
    CompactionDone,
    CompactionFailed,
    CompactionStart,
    Envelope,
    EventData,
    RunEnd,
)
from session_store import FileSessionStore, Session, StorageFailed
from tests.fake_provider import Say, serving
from tests.pod.pods import chat, kinds, logs, manifest, pointer, prose
from tests.session_store.faults import FailingDisk
from worker.items import user_message

pytestmark = pytest.mark.anyio

E = TypeVar("E", bound=EventData)


@asynccontextmanager
async def working(home: Path, base_url: str) -> AsyncIterator[tuple[Launched, list[Envelope]]]:
    """The parts of a pod after three turns, and all events."""
    env = {"FAKE_KEY": "sk-test-0123456789abcdef", "NO_PROXY": "*"}
    loaded = load_manifest(manifest(home, base_url), env=env)
    bus, told = EventBus(), list[Envelope]()
    bus.listen(told.append)
    launched = await launch(prepare(loaded, Home(home), env), bus, resume=None)
    try:
        for prompt in ("one", "two", "three"):
            await launched.driver.run(user_message(prompt), None)

        yield launched, told
    finally:
        await launched.aclose()


def of(told: list[Envelope], cls: type[E]) -> list[E]:
    return [envelope.data for envelope in told if isinstance(envelope.data, cls)]


async def attempt(home: Path, launched: Launched, told: list[Envelope]) -> str:
    """Compact, see that it is the old state or the new, and return which."""
    core = launched.core
    old_id, history, before = core.session.session_id, list(core.worker.history), logs(home)
    told.clear()
    done = failure = None
    try:
        done = await launched.compactor.compact("manual")
    except CompactionError as error:
        failure = error

    assert len(of(told, CompactionStart)) == 1
    assert len(of(told, CompactionDone)) + len(of(told, CompactionFailed)) == 1
    if done is not None:
        assert core.session.session_id == done.new_session_id != old_id
        assert kinds(home, old_id)[-1] == "compaction_started"
        assert logs(home) == sorted([*before, done.new_session_id])
        return "new"

    assert failure is not None
    assert failure.reason == "storage"
    assert "No space left" in failure.message
    assert core.session.session_id == old_id == pointer(home)
    assert list(core.worker.history) == history
    assert logs(home) == before, "nothing half made is left"
    assert kinds(home, old_id)[-1] == "compaction_failed"
    return "old"


@pytest.mark.timeout(60)
async def test_a_disk_that_fails_once_leaves_the_old_state_or_the_new(home: Path) -> None:
    """At its first operation, at its second, and so on until one attempt needs no more."""
    disk = FailingDisk(10**9, OSError(errno.ENOSPC, "No space left on device"))
    states: list[str] = []
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as served:
        async with working(home, served.base_url) as (launched, told):
            core = launched.core
            core.store = FileSessionStore(home, disk=disk)
            for step in range(1, 200):
                disk.strike_in(step)
                states.append(await attempt(home, launched, told))
                struck = disk.struck
                disk.mend()
                if states[-1] == "new" and struck:
                    assert of(told, Alert), "what went wrong beside it is told"

                result = await launched.driver.run(user_message("go on"), None)
                assert result.outcome == "finished"
                assert pointer(home) == core.session.session_id
                if not struck:
                    break

    assert not struck, "the last attempt met no failure"
    assert states.count("old") >= 5
    assert states[-1] == "new"
    assert all(report.ok for report in FileSessionStore(home).verify_all())


async def test_a_log_that_takes_nothing_more_still_ends_what_it_began(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as served:
        async with working(home, served.base_url) as (launched, told):
            core = launched.core
            session_id = core.session.session_id
            stop = core.bus.on(CompactionStart, lambda _: core.session.close())
            with pytest.raises(StorageFailed):
                await launched.compactor.compact("manual")

            stop()
            (failed,) = of(told, CompactionFailed)
            assert failed.reason == "storage"
            (envelope,) = (e for e in told if e.event == "compaction_failed")
            assert envelope.ref is None, "it is in no log"
            assert core.state == "idle"
            assert logs(home) == [session_id]
            result = await launched.driver.run(user_message("four"), None)
            assert result.outcome == "error"
            assert result.error is not None
            assert result.error.code == "storage"
            end = of(told, RunEnd)[-1]
            assert end.error == result.error


class SlowStore(FileSessionStore):
    """A store that calls somebody once the new session is there, and then takes its time."""

    on_published: Callable[[], object] = staticmethod(lambda: None)

    def publish_compacted(self, *args: Any, **kwargs: Any) -> Session:
        session = super().publish_compacted(*args, **kwargs)
        self.on_published()
        time.sleep(0.1)
        return session


@pytest.mark.parametrize("times", [1, 3])
async def test_a_task_that_is_cancelled_while_it_commits_commits(home: Path, times: int) -> None:
    """However often: what is on disk is what is told, and the cancellation comes after it."""
    loop = asyncio.get_running_loop()
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as served:
        async with working(home, served.base_url) as (launched, told):
            core, old_id = launched.core, launched.core.session.session_id
            heard: list[str] = []

            async def compact() -> None:
                await launched.compactor.compact("manual")
                heard.append("done")
                await asyncio.sleep(1)
                heard.append("not cancelled")

            task = asyncio.create_task(compact())
            core.store = store = SlowStore(home)

            def cancel() -> None:
                for n in range(times):
                    loop.call_soon_threadsafe(loop.call_later, n / 50, task.cancel)

            store.on_published = cancel  # type: ignore[method-assign]
            await asyncio.wait({task})
            assert task.cancelled()
            assert heard == ["done"]
            (done,) = of(told, CompactionDone)
            assert not of(told, CompactionFailed)
            assert core.session.session_id == done.new_session_id == pointer(home)
            assert kinds(home, old_id)[-1] == "compaction_started"
            assert (await launched.driver.run(user_message("on"), None)).outcome == "finished"
