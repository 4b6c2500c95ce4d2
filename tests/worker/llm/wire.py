"""A server on loopback that sends exactly the bytes it is told to, and builders for such bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.wire_rules import watch


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One Chat Completions chunk."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def call_delta(
    index: int | None,
    call_id: str | None = None,
    name: str | None = None,
    arguments: str | None = None,
) -> dict[str, Any]:
    """The delta of one tool call fragment; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    fragment: dict[str, Any] = {
        "index": index,
        "id": call_id,
        "function": {key: value for key, value in function.items() if value is not None},
    }
    return {"tool_calls": [{key: value for key, value in fragment.items() if value is not None}]}


def usage_chunk(prompt: int, completion: int, **details: int) -> dict[str, Any]:
    """The last chunk: usage, and an empty list of choices."""
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if details:
        usage["prompt_tokens_details"] = details
    return {"object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage}


def sse(*chunks: dict[str, Any] | str, done: bool = True, newline: str = "\n") -> bytes:
    """The chunks as server-sent events; a string stands for itself as data."""
    texts = [c if isinstance(c, str) else json.dumps(c, ensure_ascii=False) for c in chunks]
    texts += ["[DONE]"] if done else []
    return "".join(f"data: {text}{newline}{newline}" for text in texts).encode()


def hello(text: str = "Hello") -> bytes:
    """A whole, plain answer."""
    return sse(
        chunk({"role": "assistant", "content": text}), chunk(finish="stop"), usage_chunk(9, 2)
    )


def head(status: str = "200 OK", content_type: str = "text/event-stream", **headers: str) -> bytes:
    """A response head whose body ends with the connection."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {content_type}", "connection: close"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(body: bytes, size: int) -> list[bytes]:
    """A response with chunked framing, `size` bytes a chunk, on a connection that stays open."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    start = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    return [start, *framed, b"0\r\n\r\n"]


@dataclass
class Reply:
    """What one request is answered with: bytes, and what happens after them."""

    pieces: list[bytes]
    pause_s: float = 0.0
    """Between two pieces."""
    then: str = "close"
    """`close`, `hold` the connection open in silence, `keep` it for the next request, or `repeat`
    the last piece for ever."""


@dataclass
class WireServer:
    """Answers request n with `script(n)`, counted from 1."""

    script: Callable[[int], Reply]
    base_url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a request has come."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a client has hung up."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await reader.readuntil(b"\r\n\r\n")
        first, *lines = request.decode().split("\r\n")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append(request + body)
        watch.current().saw(first.split(" ")[1], body, headers)
        self.asked.set()

        reply = self.script(len(self.requests))
        for piece in reply.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(reply.pause_s)
        while reply.then == "repeat":
            writer.write(reply.pieces[-1])
            await writer.drain()
            await asyncio.sleep(reply.pause_s)
        if reply.then == "hold":
            await reader.read()  # until the client hangs up
            self.closed.set()
        return reply.then == "keep"


@asynccontextmanager
async def serving(script: Callable[[int], Reply] | Reply) -> AsyncIterator[WireServer]:
    """Serve on a free port of loopback until the block ends."""
    answer = script if callable(script) else lambda _: script
    server = WireServer(answer)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        tasks.add(task)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.base_url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
