"""An OpenAI-compatible server on loopback that answers from a script and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field, frozen

from tests.wire_rules import watch

SECTIONS = ("## Original Task", "## Completed Work", "## Key Discoveries", "## Current State")
SUMMARY = "\n".join(f"{section}\n- kept" for section in SECTIONS)


@frozen
class Say:
    """An answer: text in pieces, tool calls as (name, arguments), or a failure by its status."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    pieces: int = 3
    status: int = 200
    error: str = "scripted failure"
    prompt_tokens: int | None = None
    wait: threading.Event | None = None
    """Holds the answer back, after its first piece, until it is set."""
    finish: str | None = None
    """The finish reason, where it is not the one that fits."""
    code: str | None = None
    """The error's code, such as `context_length_exceeded`."""
    reasoning: str = ""
    """What is thought, in a field of its own, before anything is said."""
    cached_tokens: int | None = None
    """How many of the prompt's tokens came from a cache."""
    measures: bool = True
    """Whether usage is reported; some servers never do."""


@frozen
class Asked:
    """A request as it came."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.body["messages"], ensure_ascii=False)

    @property
    def wants_summary(self) -> bool:
        # Its last message asks for the sections; a summary in a history is not the last one.
        last = str(self.body["messages"][-1]["content"])
        return all(section in last for section in SECTIONS) and not self.body.get("tools")


@define
class Served:
    """A server that is running."""

    base_url: str
    asked: list[Asked] = field(factory=list)
    arrived: threading.Condition = field(factory=threading.Condition)

    def wait_for(self, count: int, seconds: float = 10.0) -> None:
        """Return once so many requests have come."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.asked) >= count, seconds), self.asked


Script = Callable[[Asked, int], Say]
"""What to say to a request; the number counts from 1."""


def counting(_: Asked, number: int) -> Say:
    """A script that numbers its answers."""
    return Say(f"answer {number}")


@contextmanager
def serving(script: Script | Say) -> Iterator[Served]:
    """Serve until the block ends. A token is counted for every 4 bytes, given or taken."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            return

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            asked = Asked({k.lower(): v for k, v in self.headers.items()}, json.loads(raw))
            # A process that the test started is watched here, as this one is where it sends.
            watch.current().saw(self.path, raw, asked.headers)
            with served.arrived:
                served.asked.append(asked)
                number = len(served.asked)
                served.arrived.notify_all()

            with suppress(BrokenPipeError, ConnectionResetError):  # the client may leave early
                said = script if isinstance(script, Say) else script(asked, number)
                self.answer(said, len(raw))

        def answer(self, say: Say, raw_bytes: int) -> None:
            if say.status != 200:
                error = {"message": say.error, "type": "scripted", "code": say.code}
                body = json.dumps({"error": error}).encode()
                self.send_response(say.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return

            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            for number, chunk in enumerate(_chunks(say, raw_bytes)):
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()
                if number == 0 and say.wait is not None:
                    say.wait.wait(30)

            self.wfile.write(b"data: [DONE]\n\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = Served(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _chunks(say: Say, raw_bytes: int) -> Iterator[dict[str, Any]]:
    if say.reasoning:
        yield _chunk({"reasoning_content": say.reasoning})

    size = max(1, -(-len(say.text) // max(1, say.pieces)))
    for start in range(0, len(say.text), size):
        yield _chunk({"content": say.text[start : start + size]})

    for index, (name, arguments) in enumerate(say.calls):
        function = {"name": name, "arguments": arguments}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        yield _chunk({"tool_calls": [call]})

    yield _chunk({}, say.finish or ("tool_calls" if say.calls else "stop"))
    if not say.measures:
        return

    prompt = say.prompt_tokens if say.prompt_tokens is not None else raw_bytes // 4
    taken = max(1, len(say.text.encode()) // 4)
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": taken}
    if say.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": say.cached_tokens}

    yield {**_chunk({}), "choices": [], "usage": usage}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "fake", "choices": [choice]}
