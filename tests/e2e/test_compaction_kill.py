"""Processes that are killed while they compact: the old state or the new, never a mix."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from pod.protocol import CompactionFailed
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import chat, kinds, living, logs, manifest, pointer, prose, summary

ROOT = Path(__file__).resolve().parents[2]
KILLS = 45
EXTRA = "[compaction]\ncompact_threshold = 1500\ncompact_retained_turns = 2\n"


def answers(asked: Asked, number: int) -> Say:
    return Say(f"answer {prose(1_200)}")


def summaries(asked: Asked, number: int) -> Say:
    """Say which turns came so far, as they stand in the record and in the summary before."""
    turns = sorted({int(n) for n in re.findall(r"TURN-(\d+)", asked.text)})
    return Say(summary(f"up to TURN-{turns[-1]}"))


@contextmanager
def zygote(path: Path, home: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    command = [sys.executable, str(Path(__file__).with_name("compacting_forever.py"))]
    process = subprocess.Popen(
        [*command, str(path), str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def kill_one(orders: IO[str], told: IO[str], delay_s: float, at: int) -> None:
    """Start a child and kill it so long after it began to compact for the `at`-th time."""
    orders.write("go\n")
    orders.flush()
    pid, begun = 0, 0
    while begun < at:
        line = told.readline().strip()
        assert line and line != "gone", "the child ended by itself"  # noqa: PT018
        begun += line == "compacting"
        pid = int(line.removeprefix("pid ")) if line.startswith("pid ") else pid

    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    while told.readline().strip() != "gone":
        pass


def turns_of(store: FileSessionStore, session_id: str) -> list[int]:
    """The turns of a history, that of the summary first, where it names one."""
    found = []
    for item in store.restore(session_id).history:
        numbers = re.findall(r"TURN-(\d+)", repr(item))
        if numbers:
            found.append(int(numbers[-1]))

    return found


@pytest.mark.timeout(120)
def test_killed_at_any_point_it_is_one_state_or_the_other(home: Path) -> None:
    dice = random.Random(7)  # noqa: S311
    store = FileSessionStore(home)
    seen = {"old": 0, "new": 0}
    with serving(chat(answers, summaries)) as served:
        path = manifest(home, served.base_url, EXTRA)
        with zygote(path, home) as (orders, told):
            for _ in range(KILLS):
                known = set(logs(home))
                kill_one(orders, told, dice.uniform(0, 0.03), dice.choice([1, 1, 2]))
                here = pointer(home)
                store.open(here).close()  # A line that broke off is set aside.
                recent = {here, *logs(home)[-3:]}
                assert all(store.verify(session_id).ok for session_id in recent)
                turns = turns_of(store, here)
                assert all(later == one + 1 for one, later in pairwise(turns)), turns
                newest = max(turns_of(store, session_id)[-1] for session_id in recent)
                assert turns[-1] == newest, "what was acknowledged is there"
                seen["new" if here not in known else "old"] += 1

        assert all(report.ok for report in store.verify_all())
        assert seen["old"] >= 5
        assert seen["new"] >= 5

        async def settle() -> int:
            async with living(path, home, resume=pointer(home)) as story:
                return len(story.of(CompactionFailed))

        asyncio.run(settle())
        assert asyncio.run(settle()) == 0, "told of once"

    for session_id in logs(home):
        found = kinds(home, session_id)
        committed = len(store.children(session_id))
        begun, failed = found.count("compaction_started"), found.count("compaction_failed")
        assert begun == failed + committed, session_id
