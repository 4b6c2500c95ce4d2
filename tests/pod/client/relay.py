"""A socket in between: what a client and a pod say goes through it, until it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import define, field

from pod.serve import reachable


@define(eq=False)
class Relay:
    """Where the client connects, in the place of the pod's own socket."""

    path: Path
    target: Path
    is_open: bool = True
    """Whether new connections are taken."""
    cut_after: int | None = None
    """Cut each connection as soon as so many bytes came from the pod."""
    swallow: bytes | None = None
    """Cut the connection when this comes from the client, after it was handed on; once."""
    swallow_before: bytes | None = None
    """The same, and it is not handed on."""
    connections: int = 0
    _writers: set[asyncio.StreamWriter] = field(factory=set)
    _tasks: set[asyncio.Task[None]] = field(factory=set)

    def cut(self) -> None:
        """End every connection at once."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return

        self.connections += 1
        with reachable(self.target) as short:
            try:
                there, onward = await asyncio.open_unix_connection(short)
            except OSError:
                writer.transport.abort()
                return

        mine = {writer, onward}
        self._writers |= mine
        try:
            await asyncio.gather(self._up(reader, onward), self._down(there, writer))
        except ConnectionError:
            pass  # cut, which is what this is for
        finally:
            self._writers -= mine
            for one in mine:
                one.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.swallow_before is not None and self.swallow_before in data:
                self.swallow_before = None
                self.cut()
                return

            writer.write(data)
            await writer.drain()
            if self.swallow is not None and self.swallow in data:
                self.swallow = None
                await asyncio.sleep(0.05)  # the pod has it by then, and its answer is on the way
                self.cut()

        self.cut()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.cut_after
        while data := await reader.read(1 << 16):
            if self.swallow is None or not self._is_swallowing(data):
                writer.write(data if left is None else data[:left])

            await writer.drain()
            if left is not None:
                left -= len(data)
                if left <= 0:
                    break

        writer.transport.abort()

    def _is_swallowing(self, data: bytes) -> bool:
        return b'"accepted":true' in data or b'"done":' in data


@asynccontextmanager
async def relaying(target: Path, folder: Path) -> AsyncIterator[Relay]:
    """Relay to the pod at `target` until the end of the block."""
    relay = Relay(folder / "relay.sock", target)
    server = await asyncio.start_unix_server(relay.serve, relay.path)
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        await asyncio.sleep(0.02)
