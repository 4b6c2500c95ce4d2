"""The two ends of measuring a peer: it lives in an interpreter of its own, and is asked in turns.

The peer's script calls `serve`; ours makes a `Peer`. A line with the number of items asks, a line
of JSON answers: how long one pass took, and what it came to.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from _history import messages

Pass = Callable[[], object]


def serve(prepare: Callable[[list[dict[str, Any]]], dict[str, Pass]], about: str) -> None:
    """Answer until the input ends. `prepare` makes the passes over a history, each by its name."""
    ready: dict[int, dict[str, Pass]] = {}
    print(json.dumps({"about": about}), flush=True)
    for line in sys.stdin:
        count, _, name = line.strip().partition(" ")
        passes = ready.setdefault(int(count), {})
        if not passes:
            passes |= prepare(messages(int(count)))

        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        result = passes[name]()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(json.dumps({"wall": wall, "cpu": cpu, "result": result}), flush=True)


class Peer:
    """A peer's script, running under its own interpreter while the block lasts."""

    def __init__(self, python: Path, script: str, *arguments: str) -> None:
        path = Path(__file__).with_name(script)
        command = [str(python), "-W", "ignore", str(path), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about: str = self._read()["about"]
        """The peer and its version."""

    def measure(self, count: int, name: str) -> dict[str, Any]:
        """Return what one pass over `count` items took, in seconds, and what it came to."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count} {name}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the peer ended with status {self._process.wait()}; see above")

        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
