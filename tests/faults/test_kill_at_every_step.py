"""Killed at each single operation of the disk: the old state or the new one, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.figures import report, within
from tests.faults.kill_at_step import OPERATIONS
from tests.session_store.builders import a_store, audit, told

ROOT = Path(__file__).resolve().parents[2]


def template(home: Path, operation: str) -> str:
    """A home with one session that the pod is on; with a torn line where that is to be mended."""
    store = a_store(home)
    session_id = told(store, 1)
    store.set_pointer("probe", session_id)
    if operation == "recover":
        with store.layout.log(session_id).open("ab") as log:
            log.write(b'{"hash":"torn')

    return session_id


@within(60)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_step_it_is_one_state_or_the_other(ram: Path, operation: str) -> None:
    old = template(ram / "template", operation)
    copies = ram / "copies"
    script = Path(__file__).with_name("kill_at_step.py")
    done = subprocess.run(
        [sys.executable, str(script), str(ram / "template"), str(copies), operation],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    kills, facts = 0, []
    for line in done.stdout.split("\n")[:-1]:
        fact = json.loads(line)
        if "home" in fact:
            home, facts = Path(fact["home"]), []
        elif "killed" in fact:
            assert fact["killed"] or fact["ended"], "it ended in another way"
            check(home, old, facts)
            kills += fact["killed"]
        else:
            facts.append(fact)

    report("T02 kill at every step", operations=1, kills=kills, lost=0)
    assert kills > 10


def check(home: Path, old: str, facts: list[dict[str, object]]) -> None:
    store = a_store(home)
    for report_ in store.verify_all():
        assert report_.ok, (home.name, report_)

    pointer = old
    for fact in facts:
        session_id = str(fact.get("session", old))
        if "seq" in fact:
            assert audit_of(home, session_id)[int(str(fact["seq"]))] == fact["hash"]

        assert session_id in store.ids()
        pointer = str(fact.get("pointer", pointer))

    # Of a pointer that was on its way, the old one or the new; never one that leads nowhere.
    assert store.pointer("probe") in {pointer, *store.ids()}
    assert len(store.ids()) <= 2
    for session_id in store.ids():
        if store.verify(session_id).entries:
            with store.open(session_id) as session:
                session.append("extension", domain="after", payload=1)

            audit(store.layout.log(session_id))

    assert all(found.ok for found in store.verify_all())
    shutil.rmtree(home)


def audit_of(home: Path, session_id: str) -> list[str]:
    """The hashes of the lines that are whole."""
    lines = (home / "sessions" / f"{session_id}.jsonl").read_bytes().split(b"\n")[:-1]
    return [line[9:73].decode() for line in lines]
