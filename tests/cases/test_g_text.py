"""Cases G: halves of surrogate pairs, in tools' results, models' texts and calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cases.conversations import (
    lines_of,
)
from tests.pod.desk import Desk
from tests.session_store.builders import a_store, audit, begun
from tests.wire_rules import watch
from worker.items import UserMessage, user_message

TOOLS = '[tools]\npython = ["tests.cases.tools:{}"]\n'


# --- G09, G10: halves of surrogate pairs ---------------------------------------------------------


class Deltas:
    """A model that sends its chunks as they are given, one script an answer, escapes included."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []


@pytest.fixture
def raw() -> Iterator[Callable[..., tuple[Deltas, str]]]:
    servers: list[ThreadingHTTPServer] = []

    def serve(*answers: list[str]) -> tuple[Deltas, str]:
        deltas = Deltas(*answers)

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                return

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                watch.current().saw(self.path, body, dict(self.headers))
                deltas.asked.append(json.loads(body))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for delta in deltas.answers.pop(0):
                    choice = f'{{"index":0,"delta":{delta},"finish_reason":null}}'
                    self.wfile.write(f'data: {{"id":"c","choices":[{choice}]}}\n\n'.encode())

                end = '{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
                self.wfile.write(f"data: {end}\n\ndata: [DONE]\n\n".encode())

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return deltas, f"http://127.0.0.1:{server.server_port}/v1"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def call_delta(arguments: str, *, name: str = "") -> str:
    """A piece of a call, whose arguments are given as they stand on the wire, escapes and all."""
    head = '"id":"call_1","type":"function",' if name else ""
    named = f'"name":"{name}",' if name else ""
    return f'{{"tool_calls":[{{"index":0,{head}"function":{{{named}"arguments":"{arguments}"}}}}]}}'


def test_g09_lone_surrogates_end_no_turn(
    desk: Desk, raw: Callable[..., tuple[Deltas, str]]
) -> None:
    """G09: in a tool's result and in a model's text: U+FFFD in the log, on stdout, in requests."""
    deltas, url = raw(
        [call_delta("{}", name="surrogate")],
        [r'{"content":"A \ud800 B"}', r'{"content":"\udc00!"}'],
    )
    path = desk.manifest(url, TOOLS.format("surrogate"))

    done = desk.process("run", path, "go")

    assert done.returncode == 0, done.stderr
    assert "A � B�!" in done.stdout.decode()
    (log,) = desk.logs()
    entries = audit(log)
    assert log.read_bytes().decode("utf-8"), "valid UTF-8, and no escaped half in it"
    assert b"\\ud8" not in log.read_bytes()
    (result,) = [entry for entry in entries if entry["kind"] == "tool_results"]
    assert result["items"][0]["summary"] == "x�y"
    assert deltas.asked[1]["messages"][-1]["content"] == "x�y"
    assert desk.pod("sessions", "verify", log.stem).exit_code == 0


def test_g09_the_hash_is_the_same_each_time(tmp_path: Path) -> None:
    """G09: of one history with lone halves anywhere, written by two stores at one time."""
    lines = []
    for name in ("one", "two"):
        store = a_store(tmp_path / name, clock=lambda: 7)
        with begun(store) as session:
            said = UserMessage("u" * 32, user_message("\ud800 a \udfff \ud83c\udf78").parts)
            session.append_items("user_input", [said])
            session.append("extension", domain="d\ud835", payload={"k\udc00": ["v\ud800"]})

        lines.append(lines_of(store.layout.log(session.session_id)))

    # The first line names the session; what follows it differs in `prev` alone.
    first, second = ([json.loads(line) for line in log[1:]] for log in lines)
    for one, other in zip(first, second, strict=True):
        assert one | {"hash": 0, "prev": 0} == other | {"hash": 0, "prev": 0}

    assert "� a � " in json.dumps(first, ensure_ascii=False)
    assert "🍸" in json.dumps(first, ensure_ascii=False), "two halves that fit are one character"


SPLITS = {
    "arguments, an escaped pair": [
        call_delta(r"{\"text\":\"\\ud83c", name="echo"), call_delta(r"\\udf78\"}")],
    "arguments, in an escape": [
        call_delta(r"{\"text\":\"\\ud83", name="echo"), call_delta(r"c\\udf78\"}")],
    "arguments, before the second backslash": [
        call_delta(r"{\"text\":\"\\ud83c\\", name="echo"), call_delta(r"udf78\"}")],
    "arguments, halves on the wire": [
        call_delta(r"{\"text\":\"\ud83c", name="echo"), call_delta(r"\udf78\"}")],
    "arguments, one piece": [call_delta(r"{\"text\":\"\\ud83c\\udf78\"}", name="echo")],
}  # fmt: skip


@pytest.mark.parametrize("pieces", SPLITS.values(), ids=list(SPLITS))
def test_g10_a_pair_that_is_split_between_fragments_is_one_character(
    desk: Desk, raw: Callable[..., tuple[Deltas, str]], pieces: list[str]
) -> None:
    """G10: the tool is given U+1F378, and that is what comes back."""
    _, url = raw(pieces, [r'{"content":"\ud83c"}', r'{"content":"\udf78"}'])
    done = desk.process("run", desk.manifest(url, TOOLS.format("echo")), "go")

    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == "\U0001f378", "so is a text that is split so"
    (result,) = desk.entries("tool_results")
    given = json.loads(json.loads(json.dumps(result["items"][0]["summary"])))
    assert given == {"text": "\U0001f378"}
    (call, *_) = [
        part for entry in desk.entries("assistant_items") for item in entry["items"]
        for part in item["parts"] if part["type"] == "tool_call"
    ]  # fmt: skip
    assert json.loads(call["arguments"]) == {"text": "\U0001f378"}
