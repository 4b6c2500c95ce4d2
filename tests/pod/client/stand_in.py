"""A scripted stand-in for a served pod: it says what a test has it say, right or wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from pod.client import Backoff, Patience
from worker.items import Text, UserMessage
from worker.items_json import dump_item

LAUNCH = "launch-one"
SESSION = "session-one"
QUICK = Patience(for_s=1.0, backoff=Backoff(first_s=0.001, most_s=0.01))


def line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def event(seq: int, name: str = "text_delta", *, launch: str = LAUNCH, **data: object) -> bytes:
    content = data or {"text": str(seq)}
    return line({"seq": seq, "launch": launch, "ts": 1, "event": name, "data": content})


def run_end(seq: int, text: str = "done", *, launch: str = LAUNCH) -> bytes:
    data = {"outcome": "finished", "session_id": SESSION, "text": text}
    return event(seq, "run_end", launch=launch, **data)


@define(eq=False)
class Talk:
    """One connection of a client, from the stand-in's side."""

    pod: StandIn
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    """Counts connections from 1."""

    def send(self, *lines: bytes) -> None:
        self.writer.write(b"".join(lines))

    async def hello(self, **other: object) -> None:
        said = {
            "protocol": 1,
            "pod": "stand-in",
            "launch": self.pod.launch,
            "seq": self.pod.seq,
            "session_id": SESSION,
            "version": "0",
        }
        self.send(line({"hello": said | other}))
        await self.writer.drain()

    async def asked(self) -> dict[str, Any]:
        """The next request, kept; the end of the connection ends the talk."""
        data = await self.reader.readline()
        if not data:
            raise EOFError

        request: dict[str, Any] = json.loads(data)
        self.pod.requests.append(request)
        return request

    def answer(self, request: dict[str, Any], **ok: object) -> None:
        self.send(line({"id": request["id"], "ok": ok}))

    def refuse(self, request: dict[str, Any], code: str, message: str = "no") -> None:
        self.send(line({"id": request["id"], "error": {"code": code, "message": message}}))

    def answer_plainly(self, request: dict[str, Any]) -> None:
        """Answer as an idle pod does."""
        pod = self.pod
        match request["method"]:
            case "subscribe":
                self.answer(request, launch=pod.launch, seq=pod.seq, replay=pod.replay)
            case "unsubscribe":
                self.answer(request, next_seq=pod.seq + 1)
            case "status":
                self.answer(request, **pod.status())
            case "get_history":
                start = min(request["params"]["start"], len(pod.items))
                page = {"items": pod.items[start:], "start": start, "total": len(pod.items)}
                self.answer(request, session_id=SESSION, seq=pod.seq, **page)
            case "engine_commands":
                self.answer(request, commands={})
            case "run" | "resume":
                self.answer(request, accepted=True, session_id=SESSION, seq=pod.seq)
            case "ping":
                self.answer(request, launch=pod.launch, seq=pod.seq, ts=1)
            case _:
                self.answer(request)

    async def until(self, *methods: str) -> dict[str, Any]:
        """Answer plainly until one of these is asked for, which is left to the caller."""
        while (request := await self.asked())["method"] not in methods:
            self.answer_plainly(request)

        return request

    async def ordinary(self) -> None:
        """Be an idle pod until the client goes."""
        await self.hello()
        while True:
            self.answer_plainly(await self.asked())


Script = Callable[[Talk], Awaitable[None]]


@define(eq=False)
class StandIn:
    """What the stand-in is, and what it was asked."""

    path: Path
    launch: str = LAUNCH
    seq: int = 0
    """The last event that it says to have published."""
    replay: str = "none"
    items: list[dict[str, Any]] = field(factory=list)
    requests: list[dict[str, Any]] = field(factory=list)
    connections: int = 0

    def status(self) -> dict[str, object]:
        return {
            "name": "stand-in",
            "state": "idle",
            "session_id": SESSION,
            "provider": "scripted",
            "model": "m",
            "engine": "compressor",
            "history_len": len(self.items),
            "turns": 0,
            "watermark": 0,
            "occupancy": 0,
            "occupancy_source": "guessed",
            "launch": self.launch,
            "seq": self.seq,
            "pid": 1,
            "since_ms": 1,
            "manifest": "",
            "of_a_newer_version": [1, 2],
        }

    def remember(self, text: str) -> None:
        item = UserMessage(uid="0" * 32, parts=(Text(text),))
        self.items.append(dump_item(item))

    def asked_for(self, method: str) -> list[dict[str, Any]]:
        return [asked["params"] for asked in self.requests if asked["method"] == method]


@asynccontextmanager
async def stand_in(folder: Path, script: Script) -> AsyncIterator[StandIn]:
    """Serve connections by a script, one task each, until the end of the block."""
    pod = StandIn(folder / "stand-in.sock")
    tasks: set[asyncio.Task[None]] = set()
    broken: list[BaseException] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        pod.connections += 1
        try:
            with suppress(EOFError, ConnectionError, json.JSONDecodeError):
                await script(Talk(pod, reader, writer, pod.connections))
        except Exception as error:  # noqa: BLE001  told at the end, where the test sees it
            broken.append(error)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(talk, pod.path, limit=1 << 25)
    try:
        yield pod
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()

        await asyncio.gather(*tasks, return_exceptions=True)

    if broken:
        raise broken[0]
