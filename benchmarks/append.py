"""What durability costs: one entry appended to a session, beside a bare write and fdatasync.

Both write the same number of bytes to a file on the same disk, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

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
    verdict,
    wall_ms,
)

ENTRY_BYTES = 1_024
LIMIT = 1.3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000)
    add_folder_option(parser)
    given = parser.parse_args()
    header("append")
    with folder_on(given.dir) as folder:
        _report(folder, given.rounds)


def _report(folder: Path, rounds: int) -> None:
    from session_store import FileSessionStore
    from worker import user_message

    store = FileSessionStore(folder / "home")
    session = store.create(pod="bench", system_prompt="Be brief.", config={"model": "m"})
    log = store.layout.log(session.session_id)
    text = prose(1, ENTRY_BYTES)

    def append() -> None:
        session.append_items("user_input", [user_message(text)])

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
