"""Does one thing to a home, in children whose memory runs out at one call of ours or another.

    run_out_of_memory.py TEMPLATE COPIES OPERATION POINTS

Every child works on a copy of its own of TEMPLATE. Says on stdout, one JSON a line, where that was,
how it ended and what was acknowledged until then. A process of its own each time: what one without
memory could not let go of, its end does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from session_store import FileSessionStore, SessionStoreError
from tests.faults.lives import QuietDisk
from tests.faults.test_io_errors import WORKS, Told, Work
from tests.session_store.builders import a_store

OURS = tuple(
    str(Path(__file__).resolve().parents[2] / name) for name in ("session_store", "worker")
)
TOO_LONG_S = 10
FINE, TOLD, BROKEN = 0, 10, 11


class Exhausted:
    """Raises `MemoryError` at the n-th call of a function of ours."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.count += 1
            if self.count == self.at:
                raise MemoryError


def restore(store: FileSessionStore, session_id: str, told: Told) -> None:
    state = store.restore(session_id)
    told.append((session_id, *state.head))


OPERATIONS: dict[str, Work] = {work.__name__: work for work in [*WORKS, restore]}


def carry_out(home: Path, operation: str, at: int) -> int:
    """Do it in a child; say how it ended; return how many calls it made."""
    said = home / "said"
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        calls, told = json.loads(said.read_text()) if said.exists() else (0, [])
        line = {"at": at, "calls": calls, "status": status, "told": told}
        sys.stdout.write(json.dumps(line) + "\n")
        return int(calls)

    told_of: Told = []
    exhausted, ended = Exhausted(at), BROKEN
    try:
        signal.alarm(TOO_LONG_S)
        store = a_store(home, disk=QuietDisk())
        (session_id,) = store.ids()
        sys.settrace(exhausted)
        try:
            OPERATIONS[operation](store, session_id, told_of)
            ended = FINE
        except (MemoryError, SessionStoreError):
            ended = TOLD
        finally:
            sys.settrace(None)
    finally:
        said.write_text(json.dumps([exhausted.count, told_of]))
        os._exit(ended)


def main(template: Path, copies: Path, operation: str, points: int) -> None:
    def at_point(at: int) -> int:
        copy = copies / str(at)
        shutil.copytree(template, copy)
        return carry_out(copy, operation, at)

    calls = at_point(sys.maxsize)
    for at in range(1, calls + 1, max(1, calls // points)):
        at_point(at)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
