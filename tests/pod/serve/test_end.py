"""How a served pod ends: runs have their end, subscribers have the rest, nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import COMPACT, chat, kinds, logs, manifest, prose, summary
from tests.pod.serve.clients import serving_pod

pytestmark = pytest.mark.anyio

ASK = '[tools]\npython = ["tests.pod.big_tools:big"]\n[permissions]\ntools = { big = "ask" }\n'


def short(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


async def test_a_run_that_is_going_on_is_cancelled_and_everybody_hears_its_end(home: Path) -> None:
    go_on = threading.Event()
    with serving(chat(lambda _asked, _n: Say("slow", wait=go_on))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client, watcher = await scene.subscriber(), await scene.subscriber(events=["run_end"])
            await client.call("run", input="one")
            await client.event("text_delta")
            assert await client.call("shutdown") == {}
            rest = [line for line in await client.rest() if "event" in line]
            assert [e["data"]["outcome"] for e in rest if e["event"] == "run_end"] == ["cancelled"]
            assert rest[-1]["event"] == "status"
            (end,) = [line for line in await watcher.rest() if "event" in line]
            assert end["data"]["outcome"] == "cancelled"
            await scene.server.ended()
            session = end["data"]["session_id"]
            go_on.set()

        assert kinds(home, session)[-1] == "run_outcome"
        assert not scene.places.socket.exists()


async def test_told_to_wait_it_ends_after_the_run_and_the_compaction(home: Path) -> None:
    go_on = threading.Event()
    answers = chat(lambda _asked, _n: Say(prose(9_000), wait=go_on))
    with serving(answers) as served:
        async with serving_pod(manifest(home, served.base_url, COMPACT), home) as scene:
            client = await scene.subscriber()
            go_on.set()
            await client.run("one")
            await client.run("two")
            go_on.clear()
            await client.call("run", input="three")
            await client.event("text_delta")
            await client.call("shutdown", wait=True)
            error = await client.refused("run", input="four")
            assert error["code"] == "closed"
            assert "pod serve" in error["hint"]
            assert (await client.call("status"))["state"] == "running"
            go_on.set()
            names = [line["event"] for line in await client.rest() if "event" in line]
            assert "run_end" in names
            assert names.index("run_end") < names.index("compaction_done")
            assert client.events[-1]["event"] == "status"

        assert len(logs(home)) == 2


async def test_asked_again_without_waiting_it_ends_at_once(home: Path) -> None:
    go_on = threading.Event()
    with serving(chat(lambda _asked, _n: Say("slow", wait=go_on))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            await client.call("run", input="one")
            await client.event("text_delta")
            await client.call("shutdown", wait=True)
            await client.call("shutdown")
            end = await client.event("run_end")
            assert end["data"]["outcome"] == "cancelled"
            await client.rest()
            go_on.set()


async def test_a_compaction_that_is_going_on_leaves_the_old_state(home: Path) -> None:
    go_on = threading.Event()

    def summaries(_: Asked, __: int) -> Say:
        return Say(summary(), wait=go_on)

    with serving(chat(lambda _asked, _n: Say(prose(9_000)), summaries)) as served:
        async with serving_pod(manifest(home, served.base_url, COMPACT), home) as scene:
            client = await scene.subscriber()
            for number in range(3):
                await client.run(f"question {number}")
                if "compaction_start" in client.names:
                    break

            if "compaction_start" not in client.names:
                await client.event("compaction_start")

            session = scene.pod.session_id
            await client.call("shutdown")
            await client.rest()
            failed = next(e for e in client.events if e["event"] == "compaction_failed")
            assert failed["data"]["reason"] == "cancelled"
            assert client.events[-1]["data"] == {"state": "idle"}
            await scene.server.ended()
            go_on.set()

        assert logs(home) == [session]
        assert kinds(home, session)[-1] == "compaction_failed"


async def test_whoever_does_not_read_does_not_keep_it_from_ending(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(400_000)))) as served:
        path = manifest(home, served.base_url)
        async with serving_pod(path, home, farewell_s=0.2) as scene:
            slow, fast = await scene.subscriber(), await scene.subscriber()
            transport: Any = slow.writer.transport
            transport.pause_reading()
            await fast.run("one")
            await fast.call("shutdown")
            await fast.rest()
            assert fast.events[-1]["event"] == "status"
            async with asyncio.timeout(5):
                await scene.server.ended()

            transport.resume_reading()


async def test_all_who_do_not_read_keep_it_no_longer_than_one(home: Path) -> None:
    """Also one that is being told what it missed, and one that is told nothing more."""
    with serving(chat(lambda _asked, _n: Say(prose(800_000)))) as served:
        async with serving_pod(manifest(home, served.base_url), home, farewell_s=2.5) as scene:
            fast, *slow = [await scene.client() for _ in range(3)]
            for client in slow:
                transport: Any = client.writer.transport
                transport.pause_reading()

            await fast.call("subscribe")
            await fast.run("one")
            slow[0].send("subscribe", from_seq=1)
            slow[1].send("get_history")
            await fast.call("ping")
            await asyncio.sleep(0.1)
            began = time.monotonic()
            scene.server.shutdown()
            await scene.server.ended()
            took = time.monotonic() - began
            assert 2.4 < took < 4.9, "two farewells, one after the other, would take 5 s"


async def test_whoever_comes_after_the_end_of_a_run_gets_the_remainder(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            await client.run("one")
            late = await scene.subscriber(from_seq=client.events[2]["seq"])
            scene.server.shutdown()
            names = [line["event"] for line in await late.rest() if "event" in line]
            assert names[-2:] == ["run_end", "status"]
            assert late.events[0]["seq"] == client.events[2]["seq"]


# --- approvals ------------------------------------------------------------------------------


def calls_big(asked: Asked, number: int) -> Say:
    return Say("on it", calls=(("big", '{"n":1}'),)) if number == 1 else Say("done")


@pytest.mark.parametrize(("decision", "is_error"), [("allow", False), ("deny", True)])
async def test_a_call_is_decided_by_whoever_is_subscribed(
    home: Path, decision: str, is_error: bool
) -> None:
    with serving(chat(calls_big)) as served:
        async with serving_pod(manifest(home, served.base_url, ASK), home) as scene:
            client, other = await scene.subscriber(), await scene.client()
            await client.call("run", input="one")
            request = (await client.event("approval_request"))["data"]
            (waiting,) = (await other.call("status"))["approvals"]
            assert waiting["call_id"] == request["call_id"]
            assert waiting["name"] == "big"
            await other.call("approve", call_id=request["call_id"], decision=decision)
            error = await client.refused("approve", call_id=request["call_id"], decision="allow")
            assert error["code"] == "unknown_approval"
            await client.event("run_end")
            resolved = next(e for e in client.events if e["event"] == "approval_resolved")
            assert resolved["data"]["decision"] == decision
            assert "pid" in resolved["data"]["by"]
            result = next(e for e in client.events if e["event"] == "tool_result")
            assert result["data"]["is_error"] is is_error


@pytest.mark.parametrize("subscription", [None, {"observe": True}, {"events": ["run_*", "tool_*"]}])
async def test_nobody_is_asked_who_could_not_answer(
    home: Path, subscription: dict[str, Any] | None
) -> None:
    with serving(chat(calls_big)) as served:
        async with serving_pod(manifest(home, served.base_url, ASK), home) as scene:
            client = await scene.client()
            if subscription is not None:
                await client.call("subscribe", **subscription)

            await client.call("run", input="one")
            await scene.pod.idle()
            page = await client.call("get_history")
            (result,) = [i for i in page["items"] if i["type"] == "tool_result"]
            assert result["is_error"]


async def test_whoever_leaves_attends_no_more(home: Path) -> None:
    with serving(chat(calls_big)) as served:
        async with serving_pod(manifest(home, served.base_url, ASK), home) as scene:
            gone, left = await scene.subscriber(), await scene.subscriber()
            gone.close()
            await left.call("unsubscribe")
            client = await scene.subscriber(observe=True)
            await client.run("one")
            assert "approval_request" not in client.names
            (result,) = [e for e in client.events if e["event"] == "tool_result"]
            assert result["data"]["is_error"], "nobody was there to ask"
