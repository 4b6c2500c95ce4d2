"""Killed with -9 at any moment: what was acknowledged is there, and the session goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.session_store.builders import a_store, audit, begun

ROOT = Path(__file__).resolve().parents[2]
KILLS = 40

# Each child opens the session and appends for ever, from 10 bytes to 70,000, and says what is
# acknowledged: a short write to a pipe is whole or not there. Its parent kills it soon after.
KILLER = r"""
import os, random, signal, sys, time
from session_store import FileSessionStore
home, session_id, kills = sys.argv[1:]

def write(chance):
    with FileSessionStore(home).open(session_id) as session:
        os.write(started, b"x")
        while True:
            size = chance.choice((10, 100, 3000, 70_000))
            payload = {"domain": "d", "payload": "x" * size}
            many = [("extension", payload)] * chance.choice((1, 1, 1, 3))
            said = "".join(f"{seq} {digest}\n" for seq, digest in session.append_many(many))
            os.write(1, said.encode())
            if chance.random() < 0.2:
                session.write_anchor()

waiting, started = os.pipe()
for seed in range(int(kills)):
    child = os.fork()
    if child == 0:
        write(random.Random(seed))
    os.read(waiting, 1)
    time.sleep(random.Random(-seed).random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_many_kills_lose_nothing(home: Path) -> None:
    store = a_store(home)
    with begun(store) as session:
        session_id = session.session_id

    command = [sys.executable, "-c", KILLER, str(home), session_id, str(KILLS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    acknowledged = dict(line.split() for line in done.stdout.split("\n")[:-1])

    assert store.verify(session_id).ok
    with store.open(session_id):
        pass

    entries = audit(store.layout.log(session_id))
    assert len(acknowledged) > KILLS
    assert {seq: entries[int(seq)]["hash"] for seq in acknowledged} == acknowledged
