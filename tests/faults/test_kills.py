"""Killed with -9 at any moment, in the middle of writes of any size; told of from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.figures import SEED, figure, report, shares, within
from tests.session_store.builders import a_store, audit, begun

ROOT = Path(__file__).resolve().parents[2]
KILLS = figure("KILLS", 500)
KILLS_OF_ONE_SESSION = 25
PARTS = 4


@within(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_acknowledged_entry_outlives_the_kill(ram: Path, home: Path, part: int) -> None:
    """Half of them on the disk of the tests, half in memory, where more writes are torn."""
    place = ram if part % 2 else home
    left, torn, told, session_number = shares(KILLS, PARTS)[part], 0, 0, 0
    while left > 0:
        kills = min(left, KILLS_OF_ONE_SESSION)
        seed = SEED + part * 10**6 + left
        acknowledged, recovered = killed(place / str(session_number), seed, kills)
        told, torn = told + acknowledged, torn + recovered
        left, session_number = left - kills, session_number + 1

    where = "in memory" if part % 2 else "on disk"
    kills = shares(KILLS, PARTS)[part]
    report(f"T01 kill -9 {where}", kills=kills, acknowledged=told, torn=torn, lost=0, damaged=0)
    assert told > kills
    if place == ram and kills >= 100:
        assert torn > 0, "no kill came in the middle of a write: this tests less than it should"


def killed(place: Path, seed: int, kills: int) -> tuple[int, int]:
    """Kill so many writers of one session; return how much was acknowledged, and was torn."""
    store = a_store(place)
    with begun(store) as session:
        session_id = session.session_id

    script = Path(__file__).with_name("kill_children.py")
    done = subprocess.run(
        [sys.executable, str(script), str(place), session_id, str(seed), str(kills)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert store.verify(session_id).ok
    with store.open(session_id):
        pass

    log = store.layout.log(session_id)
    entries = audit(log)
    acknowledged = dict(line.split() for line in done.stdout.split("\n")[:-1])
    assert {seq: entries[int(seq)]["hash"] for seq in acknowledged} == acknowledged
    log.unlink()  # they are large, and there are many
    return len(acknowledged), sum(entry["kind"] == "recovered" for entry in entries)
