"""Conversations that the cases are played with, as `pod run` makes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from session_store import FileSessionStore
from tests.fake_provider import Asked, Say
from tests.pod.desk import Desk
from worker.items import AssistantMessage, Item, UserMessage

ENTRIES_A_RUN = 5
"""What is said, the answer, its usage, the turn's end, the run's."""


def talk(desk: Desk, turns: int, *args: str) -> tuple[str, Path]:
    """Have so many runs, in one session of a pod; return the manifest's name and the log."""
    manifest = desk.scripted(*({"text": f"ANSWER-{n}"} for n in range(1, 100)))
    before = set(desk.logs())
    for turn in range(1, turns + 1):
        way = ["--continue"] if turn > 1 else list(args)
        done = desk.pod("run", manifest, f"QUESTION-{turn}", *way)
        assert done.exit_code == 0, done.output

    (log,) = set(desk.logs()) - before
    return manifest, log


def told(store: FileSessionStore, session_id: str) -> list[str]:
    """What was said in a session, by whom does not matter."""
    return [words(item) for item in store.restore(session_id).history]


def words(item: Item) -> str:
    return item.text if isinstance(item, UserMessage | AssistantMessage) else type(item).__name__


def lines_of(log: Path) -> list[bytes]:
    return log.read_bytes().split(b"\n")[:-1]


def put_lines(log: Path, lines: list[bytes]) -> None:
    log.write_bytes(b"".join(line + b"\n" for line in lines))


def state(home: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of the sessions, with its time, but for the locks, which come and go."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted((home / "sessions").iterdir())
        if path.suffix != ".lock"
    }


def listed(desk: Desk) -> list[dict[str, Any]]:
    done = desk.pod("sessions", "list", "--json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def calling(*calls: tuple[str, str]) -> Callable[[Asked, int], Say]:
    """A model that makes the calls when it is asked something, and then says that it is done."""

    def script(asked: Asked, _: int) -> Say:
        is_result = asked.body["messages"][-1]["role"] == "tool"
        return Say("done") if is_result else Say("I look", calls=calls)

    return script
