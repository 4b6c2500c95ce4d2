"""Memory that runs out: at each call of ours in an operation, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.figures import figure, report, within
from tests.faults.lives import POD, QuietDisk
from tests.faults.run_out_of_memory import FINE, OPERATIONS, TOLD
from tests.session_store.builders import a_store, audit, told

POINTS = figure("MEMORY_POINTS", 40)
ROOT = Path(__file__).resolve().parents[2]


@within(120)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_memory_that_runs_out_loses_nothing_that_was_told(ram: Path, operation: str) -> None:
    template = a_store(ram / "template", disk=QuietDisk())
    old = told(template, 1)
    template.set_pointer(POD, old)
    with template.layout.log(old).open("ab") as log:
        log.write(b'{"hash":"torn')

    (ram / "copies").mkdir()
    script = Path(__file__).with_name("run_out_of_memory.py")
    done = subprocess.run(
        [sys.executable, script, ram / "template", ram / "copies", operation, str(POINTS)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, *points = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert whole["status"] == FINE
    for point in points:
        assert point["status"] in (FINE, TOLD), f"call {point['at']} of {whole['calls']}: {point}"
        keeps_its_word(ram / "copies" / str(point["at"]), old, point["told"])

    told_of = sum(point["status"] == TOLD for point in points)
    report("T06 memory", points=len(points), told=told_of, lost=0)
    assert told_of > len(points) // 2


def keeps_its_word(home: Path, old: str, told_of: list[tuple[str, int, str]]) -> None:
    store = a_store(home, disk=QuietDisk())
    assert all(found.ok for found in store.verify_all())
    assert store.pointer(POD) in store.ids()
    for session_id in {old, *(session_id for session_id, *_ in told_of)}:
        with store.open(session_id) as session:
            session.append("turn_end", turn=9)

    for session_id, seq, digest in told_of:
        entries = audit(store.layout.log(session_id))
        assert not digest or entries[seq]["hash"] == digest
