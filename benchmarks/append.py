"""What durability costs: one entry appended to a session, beside a bare write and fdatasync.

Both write the same number of bytes to a file that grows, on the same disk, in turns; the message is
made beforehand, as the bytes are. And what many writers of one process get done at a time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from _history import prose
from _measure import (
    Sample,
    SyncWatch,
    add_folder_option,
    awake_ms,
    folder_on,
    header,
    in_turns,
    table,
    timed,
    verdict,
    wall_ms,
)

if TYPE_CHECKING:
    from session_store import Session

ENTRY_BYTES = 1_024
LIMIT = 1.2
WRITERS = 64
WRITER_ROUNDS = 5
SHARED_LIMIT = 1 / 20
"""What an append may take when many share a session, of what it takes alone."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000)
    add_folder_option(parser)
    given = parser.parse_args()
    header("append")
    with folder_on(given.dir) as folder:
        _report(folder, given.rounds)
        _report_writers(folder)


def _report(folder: Path, rounds: int) -> None:
    from session_store import FileSessionStore
    from worker import user_message

    store = FileSessionStore(folder / "home")
    session = store.create(pod="bench", system_prompt="Be brief.", config={"model": "m"})
    log = store.layout.log(session.session_id)
    messages = (user_message(prose(1, ENTRY_BYTES)) for _ in itertools.count())
    made = list(itertools.islice(messages, rounds + 2))

    def append() -> None:
        session.append_items("user_input", [made.pop()])

    append()
    line = log.read_bytes().split(b"\n")[-2] + b"\n"
    bare = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write() -> None:
        os.write(bare, line)
        os.fdatasync(bare)

    with session, SyncWatch() as watch:
        actions = {"write + fdatasync": _of(write, watch), "Session.append": _of(append, watch)}
        found = in_turns(actions, rounds)

    os.close(bare)
    size = log.stat().st_size
    assert store.verify(session.session_id).entries == rounds + 3, "an append was lost"
    _print(found, len(line), size)


def _print(found: dict[str, list[Sample]], line_bytes: int, log_bytes: int) -> None:
    bare = wall_ms(found["write + fdatasync"])
    rows = [
        (
            name,
            f"{wall_ms(samples):.3f}",
            f"{statistics.quantiles((s.wall * 1e3 for s in samples), n=10)[-1]:.3f}",
            f"{awake_ms(samples):.3f}" if samples[0].syncing else "-",
            f"{wall_ms(samples) / bare:.2f}",
        )
        for name, samples in found.items()
    ]
    title = f"one durable append of {line_bytes:,} bytes, {len(found['Session.append']):,} times"
    table(title, ("what", "median ms", "p90 ms", "ms but syncing", "ratio"), rows)
    pairs = zip(found["Session.append"], found["write + fdatasync"], strict=True)
    paired = statistics.median(ours.wall / theirs.wall for ours, theirs in pairs)
    print(f"  median of the ratios of neighbours: {paired:.2f}; the log has {log_bytes:,} bytes")
    value = wall_ms(found["Session.append"]) / bare
    verdict("append / bare write and sync", value=value, limit=LIMIT)


def _report_writers(folder: Path) -> None:
    from session_store import FileSessionStore

    store = FileSessionStore(folder / "writers")
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(store.create(pod=f"p-{n}", system_prompt="", config={}))
            for n in range(WRITERS)
        ]
        actions = {
            "1 thread": partial(_write, sessions[:1], appends=100),
            f"{WRITERS} threads, one session": partial(_write, sessions[:1] * WRITERS, appends=20),
            f"{WRITERS} threads, a session each": partial(_write, sessions, appends=20),
        }
        found = in_turns(actions, WRITER_ROUNDS)

    alone, *_ = (wall_ms(taken) for taken in found.values())
    rows = [
        (
            name,
            f"{wall_ms(taken):.3f}",
            f"{1e3 / wall_ms(taken):,.0f}",
            f"{alone / wall_ms(taken):.1f}",
        )
        for name, taken in found.items()
    ]
    table("writers of one process", ("what", "ms an append", "appends/s", "of one thread"), rows)
    _, shared, *_ = (wall_ms(taken) for taken in found.values())
    verdict("an append among many to a session / alone", value=shared / alone, limit=SHARED_LIMIT)


def _write(sessions: Sequence[Session], *, appends: int) -> Sample:
    """Return what one append takes when a thread for each of these sessions appends so many."""
    from worker import user_message

    items = [user_message(prose(1, ENTRY_BYTES))]

    def write(session: Session) -> None:
        for _ in range(appends):
            session.append_items("user_input", items)

    def run() -> None:
        threads = [threading.Thread(target=write, args=[session]) for session in sessions]
        for thread in threads:
            thread.start()

        for thread in threads:
            thread.join()

    taken, count = timed(run), len(sessions) * appends
    return Sample(taken.wall / count, taken.cpu / count)


def _of(action: Callable[[], None], watch: SyncWatch) -> Callable[[], Sample]:
    """Time an action this short with nothing around it that would disturb the caches."""

    def measure() -> Sample:
        synced = watch.seconds
        began = time.perf_counter()
        action()
        taken = time.perf_counter() - began
        return Sample(taken, 0.0, watch.seconds - synced)

    return measure


if __name__ == "__main__":
    main()
