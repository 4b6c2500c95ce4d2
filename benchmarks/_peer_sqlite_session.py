"""The peer of store.py: openai-agents' `SQLiteSession` on the same disk, as it comes.

Called with the folder to keep its database in. Its items are what the loop of that library stores.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from _peer import Pass, serve
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")
_copies = count()


def prepare(folder: Path, runner: asyncio.Runner, history: list[dict[str, Any]]) -> dict[str, Pass]:
    """Return the passes: add the items one by one, load them all, copy them, branch off at the end.

    Each comes to how many items there are, or turns.
    """
    given = [_input(message) for message in history]
    full = SQLiteSession("full", folder / f"full-{len(given)}.db")
    advanced = AdvancedSQLiteSession(
        session_id="full", db_path=folder / f"advanced-{len(given)}.db", create_tables=True
    )
    for session in (full, advanced):
        runner.run(session.add_items(given))

    appended = SQLiteSession("appended", folder / "appended.db")
    turns = sum(message["role"] == "user" for message in history)
    calls = {
        "append": partial(_append, appended, given),
        "load": partial(_load, folder / f"full-{len(given)}.db"),
        "copy": partial(_copy, full, folder / f"full-{len(given)}.db"),
        "branch": partial(_branch, advanced, turns),
    }
    return {name: partial(_run, runner, call) for name, call in calls.items()}


def _run(runner: asyncio.Runner, call: Callable[[], Coroutine[Any, Any, int]]) -> int:
    return runner.run(call())


async def _append(session: SQLiteSession, items: list[dict[str, Any]]) -> int:
    for item in items:
        await session.add_items([item])  # one commit each

    return len(items)


async def _load(path: Path) -> int:
    session = SQLiteSession("full", path)
    found = len(await session.get_items())
    session.close()
    return found


async def _copy(full: SQLiteSession, path: Path) -> int:
    session = SQLiteSession(f"copy-{next(_copies)}", path)
    items = await full.get_items()
    await session.add_items(items)
    session.close()
    return len(items)


async def _branch(session: AdvancedSQLiteSession, turn: int) -> int:
    await session.switch_to_branch("main")
    await session.create_branch_from_turn(turn)
    return turn


def _input(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        call_id, output = message["tool_call_id"], message["content"]
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    if "tool_calls" in message:
        (call,) = message["tool_calls"]
        return {"type": "function_call", "call_id": call["id"], **call["function"]}

    return {"role": message["role"], "content": message["content"]}


def _level(path: Path) -> str:
    """Return what the session's own connections wait for with each commit."""
    session = SQLiteSession("asked", path)
    connection: sqlite3.Connection = session._get_connection()  # noqa: SLF001  nothing public tells
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    session.close()
    return f"journal_mode {journal}, synchronous {LEVELS[level]}"


if __name__ == "__main__":
    home = Path(sys.argv[1])
    about = f"openai-agents {version('openai-agents')} SQLiteSession ({_level(home / 'asked.db')})"
    with asyncio.Runner() as the_runner:
        serve(partial(prepare, home, the_runner), about)
