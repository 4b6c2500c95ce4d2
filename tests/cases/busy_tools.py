"""Tools that take long, fail, print too much, and note that they ran."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from worker import Abort, ToolOutput, run_command
from worker.hooks import ToolResultView


def _ran(word: str) -> None:
    with Path("ran.txt").open("a") as file:
        file.write(f"{word}\n")


def note(word: str) -> str:
    """Note a word."""
    _ran(word)
    return f"noted {word}"


def sync_slow() -> str:
    """Block a thread, until it is let go."""
    let_go = Path("let-go").absolute()
    _ran("sync_slow")
    deadline = time.monotonic() + 15
    while not let_go.exists() and time.monotonic() < deadline:
        time.sleep(0.02)

    return "late"


async def async_slow() -> str:
    """Wait, and then write."""
    _ran("async_slow")
    await asyncio.sleep(30)
    _ran("wrote")
    return "late"


async def async_deaf() -> str:
    """Wait, whatever anybody says, and write only where nobody said anything."""
    _ran("async_deaf")
    deadline, asked = time.monotonic() + 8, False
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(deadline - time.monotonic())
        except asyncio.CancelledError:
            asked = True

    if not asked:
        _ran("wrote")

    return "late"


async def short_nap() -> str:
    """Take a moment."""
    await asyncio.sleep(0.2)
    return "rested"


def fails() -> str:
    """Fail."""
    message = "kaput"
    raise RuntimeError(message)


async def cancels_itself() -> str:
    """Raise what cancellation raises."""
    raise asyncio.CancelledError


def give_up_on_error(result: ToolResultView) -> Abort | None:
    """Give the run up where a call failed."""
    return Abort(result.summary) if result.is_error else None


async def shell(command: str) -> ToolOutput:
    """Run a command."""
    return await run_command(command)


def much(lines: bool) -> str:
    """Return two million characters."""
    filling = ("x" * 79 + "\n" if lines else "x" * 80) * 25_000
    return f"BEGINNING{filling}THE-END"


def gives_bytes() -> bytes:
    """Return what is no text."""
    return b"\x00\xff\xfe" * 400_000


def gives_a_blob() -> dict[str, Any]:
    """Return a lot of what is no text, in a mapping."""
    return {"blob": b"\x00\xff" * 500_000, "name": "n"}
