"""Deciding about calls from a client: who attends, what waits, the first decision counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pod import RunResult
from pod.client import PodClient
from pod.errors import PodClosed, UnknownApproval
from pod.protocol import ApprovalRequest, ApprovalResolved
from tests.fake_provider import Asked, Say
from tests.pod.client.relay import relaying
from tests.pod.client.served import Served, served, until
from tests.pod.client.stand_in import QUICK

pytestmark = pytest.mark.anyio
ASKS = '[tools]\npython = ["tests.pod.big_tools:big"]\n[permissions]\ntools = { big = "ask" }\n'


def script(asked: Asked, number: int) -> Say:
    if asked.body["messages"][-1]["role"] == "tool":
        return Say(f"said: {asked.body['messages'][-1]['content'][:40]}")

    return Say("on it", calls=(("big", '{"n":1}'),))


@asynccontextmanager
async def asking(home: Path) -> AsyncIterator[Served]:
    async with served(home, script, ASKS) as pod:
        yield pod


async def test_whoever_only_watches_does_not_attend(home: Path) -> None:
    async with asking(home) as pod, pod.client() as client:
        client.listen(lambda _: None)
        resolved = client.events(ApprovalResolved)
        result = await client.run("go")
        assert result.outcome == "finished"
        event = await anext(resolved)
        assert isinstance(event, ApprovalResolved)
        assert event.decision == "deny"


async def test_a_call_is_allowed_by_whoever_listens_for_it(home: Path) -> None:
    async with asking(home) as pod, pod.client() as client, pod.client() as other:
        asked: list[ApprovalRequest] = []

        def decide(request: ApprovalRequest) -> None:
            asked.append(request)
            client.approve(request.call_uid, "allow", by="ada")

        stop = client.on(ApprovalRequest, decide)
        resolved = other.events(ApprovalResolved)
        await until(lambda: pod.pod.status() is not None and attended(pod))
        assert (await client.run("go")).outcome == "finished"
        event = await anext(resolved)
        assert isinstance(event, ApprovalResolved)
        assert (event.decision, event.by) == ("allow", "ada")
        assert [request.name for request in asked] == ["big"]
        stop()
        await until(lambda: not attended(pod))


async def test_what_waits_is_seen_by_who_comes_later_and_decided_once(home: Path) -> None:
    async with asking(home) as pod, pod.client() as client:
        with client.attended():
            await until(lambda: attended(pod))
            running = asyncio.create_task(client.run("go"))
            await until(lambda: bool(client.waiting_approvals()))
            async with pod.client() as later:
                (call,) = later.waiting_approvals()
                assert call == client.waiting_approvals()[0] == pod.pod.waiting_approvals()[0]
                await later.approve(call.call_id, "deny")
                with pytest.raises(UnknownApproval, match="decided already"):
                    await client.approve(call.call_uid, "allow")

                result: RunResult = await running
                assert "denied" in result.text
                await until(lambda: later.waiting_approvals() == ())

        await until(lambda: not attended(pod))


async def test_a_session_is_allowed_once_for_all(home: Path) -> None:
    async with asking(home) as pod, pod.client() as client:
        requests = client.events(ApprovalRequest)
        await until(lambda: attended(pod))
        running = asyncio.create_task(client.run("go"))
        request = await anext(requests)
        assert isinstance(request, ApprovalRequest)
        await client.approve(request.call_id, "allow", scope="session")
        await running
        await client.run("again")
        requests.end()
        assert [event async for event in requests] == []


async def test_attending_survives_a_new_connection(home: Path, tmp_path: Path) -> None:
    async with (
        asking(home) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        requests = client.events(ApprovalRequest)
        await until(lambda: attended(pod))
        relay.cut()
        await until(lambda: relay.connections == 2 and client.link.phase == "connected")
        await until(lambda: attended(pod))
        running = asyncio.create_task(client.run("go"))
        request = await anext(requests)
        assert isinstance(request, ApprovalRequest)
        relay.cut()
        await client.approve(request.call_id, "allow")
        assert "said" in (await running).text


def attended(pod: Served) -> bool:
    return pod.pod._approvals._attending > 0  # noqa: SLF001  nothing else shows it


async def test_a_decision_that_is_refused_is_told_once(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To whoever awaits it; where nobody does, in the log."""
    async with asking(home) as pod, pod.client() as client:
        with pytest.raises(UnknownApproval):
            await client.approve("nothing", "allow")

        assert caplog.messages == []
        client.approve("nothing", "allow")
        await until(lambda: len(caplog.messages) == 1)
        assert caplog.messages[0].startswith("approve: ")


async def test_leaving_without_a_connection_is_told_to_who_asked_for_something(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        asking(home) as pod,
        relaying(pod.path, tmp_path) as relay,
        PodClient.connect(relay.path, patience=QUICK) as client,
    ):
        relay.is_open = False
        relay.cut()
        await until(lambda: client.link.phase == "waiting")
        cancelling = asyncio.ensure_future(_awaited(client.cancel()))
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(PodClosed):
            await cancelling

        assert caplog.messages == []


async def _awaited(sent: Awaitable[None]) -> None:
    await sent
