"""A client at the other end of which is no good pod: told clearly, never hanging, never fooled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from pod.client import (
    Backoff,
    ConnectionLost,
    NotServed,
    Patience,
    PodClient,
    ProtocolMismatch,
    RemoteError,
    RunUnknown,
)
from pod.client.connection import MAX_LINE_BYTES
from pod.protocol import Envelope, TextDelta
from tests.pod.client.served import until
from tests.pod.client.stand_in import QUICK, Talk, event, line, run_end, stand_in

pytestmark = pytest.mark.anyio
AT_ONCE = Patience(for_s=0.0, backoff=Backoff(first_s=0.001, most_s=0.001))


async def test_nobody_there_is_told_at_once_with_what_to_do(home: Path) -> None:
    with pytest.raises(NotServed, match="no pod is served") as caught:
        await PodClient.connect("nobody").start()

    assert "pod serve" in caught.value.hint


async def test_a_socket_that_was_left_behind_is_told_as_that(tmp_path: Path) -> None:
    async def nothing(_: Talk) -> None:
        return

    async with stand_in(tmp_path, nothing) as pod:
        kept = tmp_path / "kept.sock"
        os.link(pod.path, kept)

    with pytest.raises(NotServed, match="has ended"):
        await PodClient.connect(kept).start()


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no pod"),
        (b"\xff\xfe\x00\n", "no pod"),
        (b"[]\n", "no pod"),
        (b'{"hello": 5}\n', "no pod"),
        (b'{"hello": {"protocol": 1}}\n', "cannot be read"),
        (line({"hello": {"protocol": 2, "pod": "p", "version": "9.9"}}), "protocol 2"),
        (line({"hello": {"protocol": "1", "pod": "p", "version": "9.9"}}), "protocol 1"),
        (line({"id": None, "error": {"code": "forbidden", "message": "not yours"}}), "not yours"),
    ],
)
async def test_what_is_no_pod_or_another_protocol_is_refused(
    tmp_path: Path, first: bytes, says: str
) -> None:
    async def script(talk: Talk) -> None:
        talk.send(first)
        await talk.asked()

    async with stand_in(tmp_path, script) as pod:
        with pytest.raises((ProtocolMismatch, RemoteError), match=says):
            await PodClient.connect(pod.path).start()

        assert pod.connections == 1, "it is not tried again"


@pytest.mark.parametrize("first", [b"", b'{"hello": {"proto'])
async def test_a_connection_that_ends_before_the_hello_is_lost(
    tmp_path: Path, first: bytes
) -> None:
    async def script(talk: Talk) -> None:
        talk.send(first)

    async with stand_in(tmp_path, script) as pod:
        with pytest.raises(ConnectionLost, match="hello"):
            await PodClient.connect(pod.path, patience=AT_ONCE).start()


async def test_a_hello_that_never_comes_is_not_waited_for_for_ever(
    tmp_path: Path,
) -> None:
    async def script(talk: Talk) -> None:
        await talk.asked()

    async with stand_in(tmp_path, script) as pod:
        with pytest.raises(ConnectionLost, match="within"):
            await PodClient.connect(pod.path, patience=Patience(hello_s=0.05)).start()


async def test_a_pod_that_says_nothing_any_more_is_connected_to_anew(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer_plainly(await talk.until("subscribe"))
        if talk.number > 1:
            talk.send(event(1))

        await talk.until("never")

    reasons: list[str] = []
    patience = Patience(silence_s=0.1, backoff=QUICK.backoff)
    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path, patience=patience)
        client.watch_link(lambda state: reasons.append(state.reason))
        events = client.events(TextDelta)
        async with client, asyncio.timeout(5):
            assert await anext(events) == TextDelta(text="1")

    assert any("nothing was heard" in reason for reason in reasons)


@pytest.mark.parametrize(
    "rubbish",
    [b"this is not json\n", b"\x00\xff\n", b"17\n", b'{"ok": {}}\n', b'{"event": "status"}\n'],
)
async def test_rubbish_among_the_lines_costs_a_connection_and_no_event(
    tmp_path: Path, rubbish: bytes
) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        asked = await talk.until("subscribe")
        talk.answer_plainly(asked)
        first = asked["params"].get("from_seq", 1)
        if talk.number == 1:
            talk.pod.seq = 3
            talk.send(event(1), rubbish, event(2))
        else:
            talk.send(*(event(seq) for seq in range(first, 4)))
            await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path, patience=QUICK)
        events = client.events(TextDelta)
        async with client:
            async with asyncio.timeout(5):
                got = [(await anext(events)) for _ in range(3)]

    assert [delta.text for delta in got if isinstance(delta, TextDelta)] == ["1", "2", "3"]
    assert pod.asked_for("subscribe")[1]["from_seq"] == 2


async def test_a_line_without_end_is_not_kept(tmp_path: Path) -> None:
    seen: list[str] = []

    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer_plainly(await talk.until("subscribe"))
        while talk.number == 1:
            talk.send(b"x" * (1 << 20))
            await talk.writer.drain()

        await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path, patience=QUICK)
        client.watch_link(lambda state: seen.append(state.reason))
        async with client:
            what = f"more than {MAX_LINE_BYTES:,} bytes"
            await until(lambda: any(what in reason for reason in seen))
            await until(lambda: client.link.phase == "connected")
            assert pod.connections == 2, "it was given up once"


async def test_rubbish_for_ever_is_given_up_in_the_end(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer_plainly(await talk.until("subscribe"))
        talk.send(b"rubbish\n")
        await talk.until("never")

    patience = Patience(for_s=0.2, first_for_s=0.2, backoff=Backoff(first_s=0.01, most_s=0.05))
    async with stand_in(tmp_path, script) as pod:
        with pytest.raises(ConnectionLost, match="not JSON"):
            async with asyncio.timeout(10):
                await PodClient.connect(pod.path, patience=patience).start()

        assert pod.connections < 100, "not in a hurry"


async def test_half_lines_are_put_together(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer_plainly(await talk.until("subscribe"))
        talk.pod.seq = 2
        for byte in event(1) + event(2):
            talk.send(bytes([byte]))
            await talk.writer.drain()

        await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path)
        events = client.events(TextDelta)
        async with client, asyncio.timeout(5):
            assert [(await anext(events)) for _ in range(2)] == [
                TextDelta(text="1"),
                TextDelta(text="2"),
            ]


async def test_a_gap_that_nobody_announced_is_noticed_and_asked_for(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        asked = await talk.until("subscribe")
        talk.answer_plainly(asked)
        if talk.number == 1:
            talk.send(event(1), event(3))
        else:
            talk.send(*(event(seq) for seq in range(asked["params"]["from_seq"], 4)))

        await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path, patience=QUICK)
        numbers: list[int] = []
        client.listen(lambda envelope: numbers.append(envelope.seq))
        async with client, asyncio.timeout(5):
            await until(lambda: len(numbers) >= 3)

    assert numbers == [1, 2, 3]


async def test_a_heartbeat_that_names_an_event_that_never_came_is_a_gap_too(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        asked = await talk.until("subscribe")
        talk.answer_plainly(asked)
        if talk.number == 1:
            talk.send(line({"heartbeat": {"launch": talk.pod.launch, "seq": 1, "ts": 1}}))
        else:
            talk.send(event(1))

        await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path, patience=QUICK)
        events = client.events()
        async with client, asyncio.timeout(5):
            assert await anext(events) == TextDelta(text="1")


async def test_what_came_already_is_not_given_twice(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer_plainly(await talk.until("subscribe"))
        if talk.number == 1:
            talk.send(event(1), event(2), b"rubbish\n")
        else:
            talk.send(event(1), event(2), event(3))

        await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path, patience=QUICK)
        numbers: list[int] = []
        client.listen(lambda envelope: numbers.append(envelope.seq))
        async with client, asyncio.timeout(5):
            await until(lambda: 3 in numbers)

    assert numbers == [1, 2, 3]


async def test_what_only_a_newer_version_knows_is_passed_over(tmp_path: Path) -> None:
    newer = [
        event(1, "weather", warm=True),
        event(2, "status", state="dreaming"),
        line(
            {
                "seq": 3,
                "launch": "launch-one",
                "ts": 1,
                "event": "text_delta",
                "what": 1,
                "data": {"text": "3", "colour": "red"},
            }
        ),
        line({"notice": "of something"}),
        line({"id": 999, "ok": {}}),
    ]

    async def script(talk: Talk) -> None:
        talk.pod.items.append({"type": "poem", "uid": "1" * 32})
        await talk.hello(more=1)
        talk.answer_plainly(await talk.until("subscribe"))
        talk.send(*newer)
        await talk.until("never")

    async with stand_in(tmp_path, script) as pod:
        client = PodClient.connect(pod.path)
        heard: list[Envelope] = []
        client.listen(heard.append)
        async with client, asyncio.timeout(5):
            await until(lambda: bool(heard))

            (item,) = client.history
            assert "poem" in getattr(item, "text", "")

    assert [envelope.seq for envelope in heard] == [3]
    assert pod.connections == 1


async def test_an_end_that_only_a_newer_version_can_read_does_not_hang(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer_plainly(await talk.until("run"))
        talk.send(event(1, "run_end", outcome="ascended", session_id="s"))
        await talk.until("never")

    async with stand_in(tmp_path, script) as pod, PodClient.connect(pod.path) as client:
        with pytest.raises(RunUnknown, match="does not know"):
            async with asyncio.timeout(5):
                await client.run("hello")


async def test_answers_that_cannot_be_read_are_errors_and_no_tracebacks(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        talk.answer(await talk.until("run"), accepted="perhaps")
        talk.answer(await talk.until("fork"), session="s")
        talk.send(line({"id": (await talk.until("rewind"))["id"], "ok": [1]}))
        await talk.until("never")

    async with stand_in(tmp_path, script) as pod, PodClient.connect(pod.path) as client:
        async with asyncio.timeout(5):
            with pytest.raises(RemoteError, match="cannot be read"):
                await client.run("hello")

            with pytest.raises(RemoteError, match="cannot be read"):
                await client.fork()

            await client.rewind("0" * 64)


async def test_an_older_end_is_not_taken_for_that_of_a_run(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.hello()
        asked = await talk.until("run")
        talk.pod.seq = 7
        # Another one's run ended just before: its end comes first, and behind the answer too.
        talk.send(*(event(seq) for seq in range(1, 7)), run_end(7, "another's"))
        talk.answer_plainly(asked)
        talk.send(event(8), run_end(9, "mine"))
        await talk.until("never")

    async with stand_in(tmp_path, script) as pod, PodClient.connect(pod.path) as client:
        async with asyncio.timeout(5):
            assert (await client.run("hello")).text == "mine"
