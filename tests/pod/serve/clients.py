"""A client of a served pod that knows nothing of ours: a socket, lines, JSON."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

from pod import Home, Pod
from pod.serve import Places, PodServer, ensure_run_folder, reachable
from pod.serve.claim import claim
from pod.serve.ledger import Ledger
from session_store import FileSessionStore
from tests.pod.pods import KEY

Line = dict[str, Any]
_WAIT_S = 10.0


@define(eq=False)
class Client:
    """One connection. Every line that came is in `lines`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    lines: list[Line] = field(factory=list)
    _ids: Any = field(factory=lambda: itertools.count(1))

    @classmethod
    async def connect(cls, path: Path) -> Client:
        with reachable(path) as short:
            reader, writer = await asyncio.open_unix_connection(short, limit=1 << 26)

        client = cls(reader, writer)
        assert "hello" in await client.line()
        return client

    @property
    def hello(self) -> Line:
        found: Line = self.lines[0]["hello"]
        return found

    @property
    def events(self) -> list[Line]:
        return [line for line in self.lines if "event" in line]

    @property
    def names(self) -> list[str]:
        return [line["event"] for line in self.events]

    async def line(self) -> Line:
        """Return the next line. Raises `EOFError` at the end."""
        async with asyncio.timeout(_WAIT_S):
            data = await self.reader.readline()

        if not data:
            raise EOFError

        line: Line = json.loads(data)
        self.lines.append(line)
        return line

    async def until(self, wanted: Callable[[Line], bool]) -> Line:
        while not wanted(line := await self.line()):
            pass

        return line

    async def event(self, name: str) -> Line:
        return await self.until(lambda line: line.get("event") == name)

    async def seq(self, seq: int) -> Line:
        """Return the event of that number."""
        known = next((event for event in self.events if event["seq"] == seq), None)
        return known or await self.until(lambda line: line.get("seq") == seq)

    async def rest(self) -> list[Line]:
        """Read on to the end and return what came."""
        before = len(self.lines)
        try:
            while True:
                await self.line()
        except EOFError:
            return self.lines[before:]

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, method: str, **params: Any) -> int:
        number: int = next(self._ids)
        request = {"id": number, "method": method, "params": params}
        self.write(json.dumps(request).encode() + b"\n")
        return number

    async def answer(self, number: int) -> Line:
        known = next((line for line in self.lines if line.get("id") == number), None)
        return known or await self.until(lambda line: line.get("id") == number)

    async def call(self, method: str, **params: Any) -> Line:
        """Return what was answered; it must have gone well."""
        line = await self.answer(self.send(method, **params))
        assert "ok" in line, line
        ok: Line = line["ok"]
        return ok

    async def refused(self, method: str, **params: Any) -> Line:
        """Return the error that was answered."""
        line = await self.answer(self.send(method, **params))
        assert "error" in line, line
        error: Line = line["error"]
        return error

    async def run(self, prompt: str) -> Line:
        """Run a prompt and return its end; the client must be subscribed."""
        await self.call("run", input=prompt)
        return await self.event("run_end")

    def close(self) -> None:
        self.writer.close()


@define(eq=False)
class Scene:
    """A pod that is served in this process."""

    pod: Pod
    server: PodServer
    places: Places
    clients: list[Client] = field(factory=list)

    async def client(self, **subscription: Any) -> Client:
        """Return a new client; one with parameters is subscribed with them."""
        client = await Client.connect(self.places.socket)
        self.clients.append(client)
        if subscription:
            await client.call("subscribe", **{k: v for k, v in subscription.items() if v != ()})

        return client

    async def subscriber(self, **params: Any) -> Client:
        client = await self.client()
        await client.call("subscribe", **params)
        return client


@asynccontextmanager
async def serving_pod(
    path: Path, home: Path, *, resume: str | None = None, **options: Any
) -> AsyncIterator[Scene]:
    """Serve the pod of a manifest and shut it down at the end of the block."""
    where = Home(home)
    ensure_run_folder(where)
    pod = Pod.launch(path, home=home, resume=resume, env={"FAKE_KEY": KEY, "NO_PROXY": "*"})
    places = Places.of(where, pod.name)
    held = claim(places)
    server = PodServer(
        pod=pod,
        store=lambda: FileSessionStore(home),
        manifest=str(path),
        ledger_of=lambda launch: Ledger(places.ledger, launch),
        **options,
    )
    await server.start()
    server.listen(places)
    scene = Scene(pod, server, places)
    try:
        yield scene
    finally:
        server.shutdown()
        await server.ended()
        held.release()
        for client in scene.clients:
            client.close()
