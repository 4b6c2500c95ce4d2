"""A served pod, over its socket: every method, many clients, and whatever a client may do wrong."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pod.protocol.methods import METHODS
from tests.fake_provider import Asked, Say, serving
from tests.pod.full_disk import files_no_larger_than
from tests.pod.pods import chat, logs, manifest, prose
from tests.pod.serve.clients import Scene, serving_pod

pytestmark = pytest.mark.anyio


def short(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


async def test_everybody_sees_the_same_events_and_the_answer_comes_first(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            clients = [await scene.client() for _ in range(3)]
            for client in clients:
                client.send("subscribe")

            await clients[0].call("run", input="hello")
            for client in clients:
                await client.event("run_end")

            for client in clients:
                kinds = ["id" in line for line in client.lines[1:3]]
                assert kinds[0], "the answer to subscribe comes before its events"
                assert client.events == clients[1].events

            seqs = [line["seq"] for line in clients[0].events]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
            assert {line["launch"] for line in clients[0].events} == {clients[0].hello["launch"]}


async def test_the_hello_says_who_it_is(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            hello = (await scene.client()).hello
            assert hello["protocol"] == 1
            assert hello["pod"] == "probe"
            assert hello["session_id"] == scene.pod.session_id
            assert hello["seq"] == scene.server.hub.seq
            assert hello["version"]


async def test_the_socket_is_for_its_owner_alone(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            assert stat.S_IMODE(scene.places.socket.stat().st_mode) == 0o600
            for path in scene.places.folder.iterdir():
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
            assert stat.S_IMODE(scene.places.folder.stat().st_mode) == 0o700

        assert not scene.places.socket.exists()
        assert not scene.places.lock.exists()


async def test_the_first_run_wins_and_the_second_is_told(home: Path) -> None:
    go_on = threading.Event()
    with serving(chat(lambda _asked, _n: Say("slow", wait=go_on))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            first, second = await scene.subscriber(), await scene.client()
            accepted = await first.call("run", input="one")
            assert accepted["accepted"] is True
            assert accepted["session_id"] == scene.pod.session_id
            error = await second.refused("run", input="two")
            assert error["code"] == "busy"
            assert error["hint"]
            go_on.set()
            await first.event("run_end")
            assert (await second.call("status"))["state"] == "idle"


async def test_cancel_right_behind_run_is_about_that_run(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            client.send("run", input="one")
            client.send("cancel")
            end = await client.event("run_end")
            assert end["data"]["outcome"] == "cancelled"
            assert not served.asked
            client.send("resume")
            assert (await client.event("run_end"))["data"]["outcome"] == "finished"


async def test_sessions_are_compacted_forked_rewound_and_begun(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(4_000)))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            first = scene.pod.session_id
            assert await client.call("compact") == {"done": None}
            for number in range(4):
                await client.run(f"question {number}")

            turn_end = next(e for e in client.events if e["event"] == "turn_end")
            forked = (await client.call("fork"))["session_id"]
            assert forked in logs(home)
            assert scene.pod.session_id == first, "a fork is not where the pod goes on"
            done = (await client.call("compact", focus="the plan"))["done"]
            assert done["old_session_id"] == first
            assert done["new_session_id"] == scene.pod.session_id
            told = next(e for e in client.events if e["event"] == "compaction_done")
            assert done == told["data"]
            entry = json.loads(
                (home / "sessions" / f"{first}.jsonl").read_bytes().split(b"\n")[turn_end["ref"][1]]
            )
            rewound = await client.call("rewind", to=entry["hash"])
            assert rewound["session_id"] == scene.pod.session_id != first
            begun = await client.call("new")
            assert begun["session_id"] == scene.pod.session_id != rewound["session_id"]
            moved = [e["data"] for e in client.events if e["event"] == "session_changed"]
            assert [m["reason"] for m in moved] == ["compaction", "rewind", "new"]
            assert moved[-1]["new_session_id"] == begun["session_id"]
            assert (await client.refused("rewind", to="f" * 64))["code"] == "unknown_entry"
            assert (await client.refused("fork", at="nonsense"))["code"] == "unknown_entry"


async def test_the_history_comes_in_pages_also_of_a_session_that_was_left(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            for number in range(3):
                await client.run(f"question {number}")

            items: list[Any] = []
            start: int | None = 0
            page: Any = None
            while start is not None:
                page = await client.call("get_history", start=start, limit=4)
                assert page["start"] == start
                assert page["total"] == 6
                items += page["items"]
                start = page["next"]

            assert page is not None
            assert [item["uid"] for item in items] == [item.uid for item in scene.pod.history]
            assert page["seq"] == client.events[-1]["seq"]
            last = await client.call("get_history", start=-1)
            assert last["items"] == items[-1:]
            old = scene.pod.session_id
            await client.call("new")
            assert (await client.call("get_history"))["items"] == []
            assert (await client.call("get_history", session_id=old))["items"] == items
            error = await client.refused("get_history", session_id="../../etc/passwd")
            assert error["code"] == "unknown_session"
            beyond = await client.call("get_history", session_id=old, start=99)
            assert (beyond["items"], beyond["next"]) == ([], None)


async def test_a_large_history_is_cut_into_lines_that_can_be_read(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(700_000)))) as served:
        path = manifest(home, served.base_url, window=2_000_000)
        async with serving_pod(path, home) as scene:
            client = await scene.subscriber(events=["run_end"])
            for number in range(3):
                await client.run(f"question {number}")

            page = await client.call("get_history")
            assert page["next"] == 3
            assert len((await client.call("get_history", start=3))["items"]) == 2


async def test_status_says_where_the_pod_stands(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            await client.run("hello")
            status = await client.call("status")
            assert status["name"] == "probe"
            assert status["history_len"] == 2
            assert status["session_id"] == scene.pod.session_id
            assert status["launch"] == client.hello["launch"]
            assert status["subscribers"] == 1
            assert status["approvals"] == []
            assert status["window"] == 200_000
            ping = await client.call("ping")
            assert ping["launch"] == status["launch"]
            assert ping["seq"] == scene.server.hub.seq


@pytest.mark.parametrize(
    ("method", "params", "code", "said"),
    [
        ("no_such", {}, "unknown_method", "no_such"),
        ("subscrib", {}, "unknown_method", "subscribe"),
        ("run", {}, "bad_params", "input"),
        ("run", {"input": 7}, "bad_params", "input"),
        ("run", {"input": "x", "imput": "y"}, "bad_params", "imput"),
        ("run", {"input": "  "}, "bad_params", "empty"),
        (
            "run",
            {"input": "x", "images": [{"media_type": "image/png", "data": "%"}]},
            "bad_params",
            "base64",
        ),
        ("status", {"verbose": True}, "bad_params", "no parameters"),
        ("subscribe", {"from_seq": 0}, "bad_params", "from_seq"),
        ("subscribe", {"form_seq": 3}, "bad_params", "did you mean from_seq"),
        ("subscribe", {"events": ["compaction_stop"]}, "bad_params", "compaction_start"),
        ("subscribe", {"launch": "f" * 32}, "bad_params", "from_seq"),
        ("subscribe", {"from_seq": 10_000}, "ahead", "10000"),
        ("approve", {"call_id": "c", "decision": "maybe"}, "bad_params", "decision"),
        ("approve", {"call_id": "c", "decision": "allow"}, "unknown_approval", "c"),
        ("engine_command", {"name": "dance"}, "unknown_command", "dance"),
        ("get_history", {"limit": 0}, "bad_params", "limit"),
        ("unsubscribe", {}, "not_subscribed", "not subscribed"),
        ("subscribe", {"from_seq": "1"}, "bad_params", "from_seq: input should be a valid int"),
        ("subscribe", {"from_seq": True}, "bad_params", "from_seq"),
        ("subscribe", {"observe": "no"}, "bad_params", "observe"),
        ("subscribe", {"events": "run_end"}, "bad_params", "events"),
        ("shutdown", {"wait": 1}, "bad_params", "wait"),
    ],
)
async def test_what_cannot_be_done_is_answered_with_what_to_do(
    home: Path, method: str, params: dict[str, Any], code: str, said: str
) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.client()
            error = await client.refused(method, **params)
            assert error["code"] == code
            assert said in error["message"] + error.get("hint", "")
            assert await client.call("engine_commands") == {"commands": {}, "hints": {}}


def nested(depth: int) -> dict[str, Any]:
    return {"x": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("x" * (2 << 20), {}),
        ("status", {"x" * (2 << 20): 1}),
        ("status", dict.fromkeys(map(str, range(100_000)), 1)),
        ("run", {"input": "x", "images": [{}] * 100_000}),
        ("subscribe", {"events": ["run_*"] * 100_000}),
        ("subscribe", {"events": ["x" * (2 << 20)]}),
        ("compact", {"focus": "x" * (2 << 20)}),
        ("run", {"input": "x", "output_schema": nested(500)}),
    ],
    ids=["method", "name", "names", "images", "events", "event", "focus", "schema"],
)
async def test_however_large_a_mistake_is_its_answer_is_short_and_soon_there(
    home: Path, method: str, params: dict[str, Any]
) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.client()
            await client.call("ping")
            number = client.send(method, **params)
            began = time.process_time()
            await client.answer(number)
            assert time.process_time() - began < 1.0
            assert len(json.dumps(client.lines[-1])) < 2_000


async def test_lines_that_are_no_requests_harm_nobody(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client, other = await scene.client(), await scene.subscriber()
            client.write(b'this is not json\n\n[]\n{"id":9,"method":"no_such"}\n{"method":"no"}\n')
            client.write(b"\xff\xfe\n" + b"[" * 5_000 + b"\n")
            got = [await client.line() for _ in range(7)]
            assert [line["id"] for line in got] == [None, None, None, 9, None, None, None]
            assert all("error" in line for line in got)
            assert (await client.call("ping"))["launch"]
            await other.run("hello")


def any_requests() -> st.SearchStrategy[list[bytes]]:
    """Lines of any kind: bytes, JSON, requests with any method and parameters."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=6,
    )
    fields = sorted({name for m in METHODS.values() for name in m.params.model_fields})
    params = st.dictionaries(st.sampled_from(fields), values, max_size=3)
    harmless = sorted(set(METHODS) - {"shutdown", "run", "resume", "idle"})
    requests = st.fixed_dictionaries(
        {"id": values, "method": st.sampled_from(harmless) | st.text(max_size=8)},
        optional={"params": params | values},
    )
    as_json = (values | requests).map(lambda value: json.dumps(value).encode())
    return st.lists(as_json | st.binary(max_size=30), max_size=12)


@given(lines=any_requests())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_is_sent_it_is_answered_and_harms_nobody(
    scene_of_all: Scene, caplog: pytest.LogCaptureFixture, lines: list[bytes]
) -> None:
    client, other = await scene_of_all.client(), await scene_of_all.client()
    client.write(b"\n".join(lines) + b'\n{"id":"last one","method":"ping"}\n')
    await client.until(lambda line: line.get("id") == "last one")
    answers = [line for line in client.lines if "ok" in line or "error" in line]
    assert all("id" in line for line in answers)
    assert not [a for a in answers if a.get("error", {}).get("code") == "internal"]
    assert await other.call("ping")
    client.close()
    other.close()
    assert not caplog.records


@pytest.fixture
async def scene_of_all(home: Path) -> AsyncIterator[Scene]:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            yield scene


async def test_a_line_may_come_in_pieces_and_several_at_once(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.client()
            for byte in b'{"id":"slow","method":"ping"}\n':
                client.write(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)

            assert (await client.line())["id"] == "slow"
            client.write(b"".join(b'{"id":%d,"method":"ping"}\n' % n for n in range(500)))
            assert [(await client.line())["id"] for _ in range(500)] == list(range(500))


async def test_a_request_without_an_id_is_not_answered(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.client()
            client.write(b'{"method":"subscribe"}\n{"method":"run","params":{"input":"hi"}}\n')
            await client.event("run_end")
            assert all("id" not in line for line in client.lines)


async def test_a_prompt_of_ten_megabytes_is_taken_and_one_of_twenty_is_not(home: Path) -> None:
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url, window=None)
        async with serving_pod(path, home) as scene:
            client = await scene.subscriber(events=["run_end"])
            end = await client.run("x" * (10 << 20))
            assert end["data"]["outcome"] == "finished"
            assert len(served.asked[-1].body["messages"][-1]["content"]) == 10 << 20
            client.write(b'{"id":1,"method":"run","params":{"input":"' + b"x" * (20 << 20))
            error = await client.until(lambda line: "error" in line)
            assert (error["id"], error["error"]["code"]) == (None, "too_large")
            client.write(b'"}}\n')
            assert (await client.call("status"))["history_len"] == 2


async def test_clients_that_vanish_are_forgotten(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            watcher = await scene.subscriber()
            for data in (b"", b'{"id":1,"met', b'{"id":1,"method":"subscribe"}\n'):
                client = await scene.client()
                client.write(data)
                await client.writer.drain()
                client.close()

            await watcher.run("hello")
            await watcher.run("again")
            assert (await watcher.call("status"))["subscribers"] == 1


async def test_a_client_that_ends_its_half_is_still_answered(home: Path) -> None:
    go_on = threading.Event()
    with serving(chat(lambda _asked, _n: Say("slow", wait=go_on))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.client()
            client.write(b'{"id":1,"method":"subscribe"}\n')
            client.write(b'{"id":2,"method":"run","params":{"input":"hi"}}\n')
            client.writer.write_eof()
            await client.event("text_delta")
            go_on.set()
            await client.event("run_end")
            other = await scene.client()
            other.send("status")
            other.writer.write_eof()
            assert [line["id"] for line in await other.rest()] == [1]


async def test_a_subscription_can_be_ended_and_begun_again(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client, watcher = await scene.subscriber(), await scene.subscriber()
            assert (await client.refused("subscribe"))["code"] == "subscribed"
            twice = await scene.client()
            numbers = [twice.send("subscribe", from_seq=1, launch="e" * 32) for _ in range(2)]
            answers = [await twice.answer(number) for number in numbers]
            assert sorted("ok" in answer for answer in answers) == [False, True]
            await client.run("one")
            await client.event("status")
            place = await client.call("unsubscribe")
            assert place["launch"] == client.hello["launch"]
            next_seq = place["next_seq"]
            assert next_seq == client.events[-1]["seq"] + 1
            await watcher.run("two")
            await client.call("subscribe", from_seq=next_seq)
            await client.event("run_end")
            seqs = [event["seq"] for event in client.events]
            assert seqs == list(range(seqs[0], seqs[-1] + 1))


async def test_what_is_not_wanted_is_not_sent(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber(events=["run_*", "turn_end"])
            await client.run("one")
            assert client.names == ["run_start", "turn_end", "run_end"]


async def test_a_heartbeat_tells_that_all_is_well_and_where_it_stands(home: Path) -> None:
    with serving(chat(short)) as served:
        path = manifest(home, served.base_url)
        async with serving_pod(path, home, heartbeat_s=0.05) as scene:
            silent, client = await scene.client(), await scene.subscriber()
            await client.run("one")
            beat = await client.until(lambda line: "heartbeat" in line)
            while beat["heartbeat"]["seq"] != scene.server.hub.seq:
                beat = await client.until(lambda line: "heartbeat" in line)

            assert beat["heartbeat"]["launch"] == client.hello["launch"]
            assert "event" not in beat
            assert "id" not in beat
            assert await silent.call("ping")
            assert not any("heartbeat" in line for line in silent.lines)


async def test_when_the_disk_is_full_the_run_ends_and_the_pod_still_answers(home: Path) -> None:
    with serving(chat(lambda _asked, _n: Say(prose(30_000)))) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            client = await scene.subscriber()
            with files_no_larger_than(16_000):
                end = await client.run("one")
                assert end["data"]["outcome"] == "error"
                assert end["data"]["error"]["code"] == "storage"
                assert (await client.call("status"))["state"] == "idle"
                late = await scene.subscriber(from_seq=1)
                await late.event("run_end")
                assert late.events == client.events[: len(late.events)]


async def test_another_user_is_refused(home: Path) -> None:
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home, uid=4711) as scene:
            reader, writer = await asyncio.open_unix_connection(str(scene.places.socket))
            line = json.loads(await reader.readline())
            assert line["error"]["code"] == "forbidden"
            assert await reader.read() == b""
            writer.close()


async def test_a_home_of_two_hundred_characters_is_no_obstacle(tmp_path: Path) -> None:
    home = tmp_path / ("deep" * 25) / ("down" * 25)
    home.mkdir(parents=True)
    with serving(chat(short)) as served:
        async with serving_pod(manifest(home, served.base_url), home) as scene:
            assert len(str(scene.places.socket)) > 200
            assert (await (await scene.client()).call("status"))["name"] == "probe"
