"""Resuming from any event: whole while it is held, else from the log, else from a snapshot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pod.protocol import ApprovalRequest
from pod.serve.record import Record
from pod.serve.replay import batched
from pod.serve.ring import Ring
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import (
    BIG_TOOL,
    COMPACT,
    chat,
    kinds,
    living,
    manifest,
    prose,
    summary,
    user_texts,
)
from tests.pod.serve.clients import Client, Line, Scene, serving_pod

pytestmark = pytest.mark.anyio

TRANSIENT = {
    *("run_start", "status", "turn_start", "request_start", "text_delta", "reasoning_delta"),
    *("tool_call_start", "tool_call_args_delta", "retry", "alert", "engine_notice", "error"),
    "approval_request",
}
TOOLS = COMPACT + BIG_TOOL


def busy(asked: Asked, number: int) -> Say:
    """Every other answer calls two tools at once; all are long."""
    if number % 2:
        return Say("on it " + prose(300), calls=(("big", '{"n":1}'), ("big", '{"n":2}')))

    return Say(prose(3_000))


def durable(events: Sequence[Line]) -> list[Line]:
    """The events that a log can tell again, without what it does not have."""
    return [stripped(event) for event in events if event["event"] not in TRANSIENT]


def stripped(event: Line) -> Line:
    data = {k: v for k, v in event["data"].items() if k not in {"error", "focus", "message"}}
    return {**event, "data": data}


async def told(scene: Scene, *prompts: str) -> list[Line]:
    """Run the prompts, each with the compaction that follows it; return all that was told."""
    client = await scene.subscriber(from_seq=1)
    for prompt in prompts:
        await client.run(prompt)
        await scene.pod.idle()

    seq = scene.server.hub.seq
    if client.events[-1]["seq"] < seq:
        await client.until(lambda line: line.get("seq") == seq)

    return client.events


async def replayed(scene: Scene, upto: int, **params: Any) -> tuple[Line, list[Line]]:
    """What a new subscriber is answered, and given up to the event `upto` of this launch."""
    client = await scene.client()
    answer = await client.call("subscribe", **params)
    launch = scene.server.hub.bus.launch
    while not any(e["seq"] >= upto and e["launch"] == launch for e in client.events):
        await client.line()

    events = client.events
    client.close()
    return answer, events


async def test_from_every_event_of_a_launch_the_rest_is_what_everybody_got(home: Path) -> None:
    with serving(chat(busy)) as served:
        async with serving_pod(manifest(home, served.base_url, TOOLS), home) as scene:
            events = await told(scene, "one", "two " + prose(4_000), "three")
            names = [event["event"] for event in events]
            assert "compaction_done" in names
            assert "tool_result" in names
            last = events[-1]["seq"]
            assert [event["seq"] for event in events] == list(range(1, last + 1))
            for seq in range(1, last + 1):
                answer, rest = await replayed(scene, last, from_seq=seq)
                assert answer["replay"] == "memory"
                assert events[: seq - 1] + rest == events

            client = await scene.client()
            answer = await client.call("subscribe", from_seq=last + 1)
            assert answer["replay"] == "none"


async def test_what_comes_while_somebody_catches_up_comes_after_it(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(2_000), pieces=300))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            watcher = await scene.subscriber(from_seq=1)
            running = asyncio.create_task(watcher.run("hello"))
            followers: list[Client] = []
            while not running.done():
                client = await scene.client()
                client.send("subscribe", from_seq=1)
                followers.append(client)
                await asyncio.sleep(0.01)

            assert len(followers) > 1
            for follower in followers:
                await follower.event("run_end")
                assert follower.events == watcher.events[: len(follower.events)]


@pytest.mark.parametrize("held", [1, 5, 20])
async def test_what_is_no_longer_held_comes_from_the_log(home: Path, held: int) -> None:
    with serving(chat(busy)) as served:
        async with serving_pod(manifest(home, served.base_url, TOOLS), home) as scene:
            hub = scene.server.hub
            hub.ring = Ring(hub.meter, max_events=held)
            events = await told(scene, "one", "two " + prose(4_000), "three")
            assert "compaction_done" in [event["event"] for event in events]
            last = events[-1]["seq"]
            first_held = hub.ring.first_seq
            assert first_held is not None
            for seq in range(1, first_held):
                answer, rest = await replayed(scene, last, from_seq=seq)
                assert (answer["replay"], answer["reason"]) == ("log", "too_old")
                missed = [e for e in events if seq <= e["seq"] < first_held]
                again = [e for e in rest if e["seq"] < first_held]
                assert [stripped(e) for e in again] == durable(missed)
                assert [e for e in rest if e["seq"] >= first_held] == events[first_held - 1 :]


EVERYTHING = """[compaction]
compact_threshold = 12000
compact_request_threshold = 16000
compact_retained_turns = 2
prune_protected_turns = 1
prune_min_savings = 1000
[permissions]
tools = { big = "ask" }
"""


async def test_every_durable_event_is_told_again_as_it_was(home: Path) -> None:
    """Tools, approvals, Prune, compactions after a run and in it, failures, runs that end badly."""
    refused: list[bool] = []

    def summaries(_: Asked, number: int) -> Say:
        return Say("no sections") if number <= 2 else Say(summary())

    def answers(asked: Asked, number: int) -> Say:
        if "FAIL" in user_texts(asked)[-1]:
            return Say(status=400, error="no")

        return busy(asked, number)

    with serving(chat(answers, summaries)) as served:
        path = manifest(home, served.base_url, EVERYTHING + BIG_TOOL)
        async with serving_pod(path, home) as scene:
            hub = scene.server.hub
            hub.ring = Ring(hub.meter, max_events=1)
            client = await scene.subscriber()

            def decide(request: ApprovalRequest) -> None:
                refused.append(len(refused) % 3 == 2)
                decision: Any = "deny" if refused[-1] else "allow"
                asyncio.get_running_loop().call_soon(
                    lambda: scene.pod.approve(request.call_id, decision, by="ada")
                )

            scene.pod.on(ApprovalRequest, decide)
            for prompt in ("one", "two", "FAIL", "three", "four", "five", "six"):
                await client.run(prompt)
                await scene.pod.idle()

            client.send("run", input="cancelled")
            client.send("cancel")
            await client.event("run_end")
            await client.call("compact")
            await client.call("new")
            await client.run("seven")
            last = await client.event("status")
            done = [e["data"] for e in client.events if e["event"] == "compaction_done"]
            assert {one["trigger"] for one in done} >= {"threshold", "request_threshold"}
            names = set(client.names)
            assert names >= {
                *("prune_applied", "compaction_failed", "compaction_done", "approval_resolved"),
                *("tool_result", "tool_call_done", "usage", "session_changed"),
            }
            _, rest = await replayed(scene, last["seq"], from_seq=1)
            again = [stripped(e) for e in rest[:-1]]
            assert again == durable(client.events)


async def test_a_launch_that_is_over_comes_from_the_log(home: Path) -> None:
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        async with serving_pod(path, home) as scene:
            before = await told(scene, "one", "two " + prose(4_000))
            old = scene.server.hub.bus.launch
            session = scene.pod.session_id

        async with serving_pod(path, home, resume=session) as scene:
            assert scene.server.hub.bus.launch != old
            after = await told(scene, "three")
            last = after[-1]["seq"]
            for seq in range(1, before[-1]["seq"] + 3):
                answer, rest = await replayed(scene, last, from_seq=seq, launch=old)
                assert (answer["replay"], answer["reason"]) == ("log", "other_launch")
                again = [e for e in rest if e["launch"] == old]
                assert [stripped(e) for e in again] == durable(
                    [e for e in before if e["seq"] >= seq]
                )
                assert [e for e in rest if e["launch"] != old] == after

            end = next(e["seq"] for e in after if e["event"] == "run_end")
            _, rest = await replayed(scene, end, from_seq=1, launch=old, events=["run_end"])
            assert [e["event"] for e in rest if e["launch"] == old] == ["run_end"] * 2


async def test_three_launches_later_all_of_them_are_told(home: Path) -> None:
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        session: str | None = None
        all_told: list[Line] = []
        launches: list[str] = []
        for prompt in ("one", "two " + prose(4_000), "three", "four"):
            async with serving_pod(path, home, resume=session) as scene:
                all_told += await told(scene, prompt)
                launches.append(scene.server.hub.bus.launch)
                session = scene.pod.session_id
                _, rest = await replayed(scene, all_told[-1]["seq"], from_seq=1, launch=launches[0])
                if len(launches) > 1:
                    past = [e for e in rest if e["launch"] != launches[-1]]
                    expected = [e for e in all_told if e["launch"] != launches[-1]]
                    assert [stripped(e) for e in past] == durable(expected)


async def test_what_was_run_without_being_served_is_told_too(home: Path) -> None:
    """Between two launches somebody else goes on with the session, over a compaction."""
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        async with serving_pod(path, home) as scene:
            before = await told(scene, "one")
            old, session = scene.server.hub.bus.launch, scene.pod.session_id

        async with living(path, home, resume=session) as story:
            await story.turns("two " + prose(4_000), "three")
            session = story.pod.session_id

        between = [envelope for envelope in story.told if envelope.ref is not None]
        assert "compaction_done" in [envelope.event for envelope in between]
        async with serving_pod(path, home, resume=session) as scene:
            after = await told(scene, "four")
            seq = before[-1]["seq"] + 1
            answer, rest = await replayed(scene, after[-1]["seq"], from_seq=seq, launch=old)
            assert answer["replay"] == "log"
            past = [e for e in rest if e["launch"] == old]
            assert [(e["event"], tuple(e["ref"])) for e in past] == [
                (envelope.event, envelope.ref) for envelope in between
            ]
            seqs = [e["seq"] for e in past]
            assert seqs == list(range(seq, seq + len(seqs)))
            assert [e for e in rest if e["launch"] != old] == after


async def test_what_the_ledger_lost_is_told_from_the_log(home: Path) -> None:
    """A crash of the machine may cost the ledger its end; what was acknowledged is in the log."""
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        async with serving_pod(path, home) as scene:
            before = await told(scene, "one")
            old, session = scene.server.hub.bus.launch, scene.pod.session_id
            ledger = scene.places.ledger

        data = ledger.read_bytes()
        ledger.write_bytes(data[: len(data) // 2])
        async with serving_pod(path, home, resume=session) as scene:
            after = await told(scene, "two")
            _, rest = await replayed(scene, after[-1]["seq"], from_seq=1, launch=old)
            past = [e for e in rest if e["launch"] == old]
            expected = [e for e in durable(before) if "ref" in e]
            assert [(e["event"], e["ref"]) for e in past] == [
                (e["event"], e["ref"]) for e in expected
            ]
            seqs = [e["seq"] for e in past]
            assert seqs == sorted(set(seqs))


async def test_what_comes_and_goes_while_the_ledger_is_read_is_told_too(home: Path) -> None:
    with serving(chat(busy)) as served:
        async with serving_pod(manifest(home, served.base_url, TOOLS), home) as scene:
            hub, ledger = scene.server.hub, scene.places.ledger
            hub.ring = Ring(hub.meter, max_events=1)
            watcher = await scene.subscriber(from_seq=1)
            await watcher.run("one")
            before, aside = ledger.read_bytes(), ledger.with_name("aside")
            # Whoever reads it waits, as on a slow disk, and gets what it was then.
            ledger.rename(aside)
            os.mkfifo(ledger)
            client = await scene.client()
            client.send("subscribe", from_seq=1)
            writing = await asyncio.to_thread(os.open, ledger, os.O_WRONLY)
            aside.replace(ledger)
            await watcher.run("two")
            os.write(writing, before)
            os.close(writing)
            await scene.pod.idle()
            for one in (client, watcher):
                await one.seq(hub.seq)

            assert durable(client.events) == durable(watcher.events)


def test_what_is_handed_over_at_once_is_bounded() -> None:
    sizes = [10] * 100 + [600_000] * 3 + [3_000_000, 10]
    batches = list(batched(iter([Record(b"x" * size, seq=1) for size in sizes])))
    assert [len(record.line) for batch in batches for record in batch] == sizes
    assert [len(batch) for batch in batches] == [64, 37, 1, 1, 1, 1]


@pytest.mark.parametrize("how", ["unknown launch", "no ledger", "no log"])
async def test_what_nobody_can_tell_begins_with_a_snapshot(home: Path, how: str) -> None:
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        async with serving_pod(path, home) as scene:
            await told(scene, "one")
            old = scene.server.hub.bus.launch
            ledger, session = scene.places.ledger, scene.pod.session_id

        if how == "no ledger":
            ledger.unlink()
        elif how == "no log":
            (home / "sessions" / f"{session}.jsonl").unlink()

        launch = "e" * 32 if how == "unknown launch" else old
        async with serving_pod(path, home) as scene:
            client = await scene.client()
            answer = await client.call("subscribe", from_seq=3, launch=launch)
            assert answer["reason"] == "other_launch"
            snapshot = await client.event("snapshot")
            assert snapshot["data"]["session_id"] == scene.pod.session_id
            assert snapshot["data"]["state"] == "idle"
            assert snapshot["seq"] == scene.server.hub.seq
            await client.run("two")
            seqs = [event["seq"] for event in client.events]
            assert seqs == sorted(seqs)
            assert client.names[1] == "run_start"


async def test_a_snapshot_comes_whatever_was_wanted(home: Path) -> None:
    with serving(chat(busy)) as served:
        async with serving_pod(manifest(home, served.base_url, TOOLS), home) as scene:
            client = await scene.client()
            wanted = {"from_seq": 1, "launch": "e" * 32, "events": ["run_end"]}
            assert (await client.call("subscribe", **wanted))["replay"] == "snapshot"
            await client.run("one")
            assert client.names == ["snapshot", "run_end"]


async def test_whoever_leaves_in_the_middle_of_it_is_told_where_to_go_on(home: Path) -> None:
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        async with serving_pod(path, home) as scene:
            before = await told(scene, *[f"{n} " + prose(4_000) for n in range(8)])
            old, session = scene.server.hub.bus.launch, scene.pod.session_id

        async with serving_pod(path, home, resume=session) as scene:
            after = await told(scene, "nine")
            expected = durable(before)
            client = await scene.client()
            transport: Any = client.writer.transport
            transport.pause_reading()
            client.send("subscribe", launch=old, from_seq=1)
            await asyncio.sleep(0.3)
            number = client.send("unsubscribe")
            transport.resume_reading()
            place = (await client.answer(number))["ok"]
            got = client.events
            assert len(got) < len(expected), "it was in the middle"
            assert place["launch"] == old
            _, rest = await replayed(
                scene, after[-1]["seq"], launch=old, from_seq=place["next_seq"]
            )
            again = [e for e in got + rest if e["launch"] == old]
            assert [stripped(e) for e in again] == expected


async def test_a_number_of_an_earlier_launch_is_not_taken_for_one_of_this(home: Path) -> None:
    with serving(chat(busy)) as served:
        path = manifest(home, served.base_url, TOOLS)
        async with serving_pod(path, home) as scene:
            seq = (await told(scene, "one"))[-1]["seq"]

        async with serving_pod(path, home) as scene:
            client = await scene.client()
            error = await client.refused("subscribe", from_seq=seq)
            assert error["code"] == "ahead"
            assert "launch" in error["hint"]


async def test_a_tool_result_that_was_told_is_in_the_log(home: Path) -> None:
    with serving(chat(busy)) as served:
        async with serving_pod(manifest(home, served.base_url, TOOLS), home) as scene:
            client = await scene.subscriber(events=["tool_result"])
            client.send("run", input="one")
            event = await client.event("tool_result")
            session, entry = event["ref"]
            assert kinds(home, session)[entry] == "tool_results"
