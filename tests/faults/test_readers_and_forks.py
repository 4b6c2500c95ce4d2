"""Readers that follow a session, and forks of it, while it is written, torn and mended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from session_store import EntryRef, FileSessionStore, Position
from tests.faults.figures import figure, report, within
from tests.faults.lives import QuietDisk
from tests.session_store.builders import a_store, answer, audit, begun, texts
from worker.items import user_message

ROOT = Path(__file__).resolve().parents[2]
TAILED = figure("TAILED_ENTRIES", 20_000)
READERS = 2
MOST_ENTRIES = 20_000
LOOKED_AT = 40
FORKS_WHILE_WRITTEN = figure("FORKS_WHILE_WRITTEN", 300)
FORKS_OF_ONE = figure("FORKS_OF_ONE", 1_000)
ITEMS_OF_ONE = figure("ITEMS_OF_ONE", 100_000)


def writer(home: Path, session_id: str, upto: int, pause_s: float = 0.0) -> subprocess.Popen[bytes]:
    script = str(Path(__file__).with_name("write_for_ever.py"))
    return subprocess.Popen(
        [sys.executable, script, str(home), session_id, str(upto), str(pause_s)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def a_session(home: Path) -> tuple[FileSessionStore, str]:
    store = a_store(home)
    with begun(store) as session:
        return store, session.session_id


class Tail:
    """A reader that goes on where it stopped, as often as it can."""

    def __init__(self, home: Path, session_id: str) -> None:
        self.seen: list[EntryRef] = []
        self.looks = 0
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._store = a_store(home)
        self._session_id = session_id
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def finish(self) -> None:
        self.done.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _follow(self) -> None:
        place, last = Position(), False
        try:
            while True:
                last = self.done.is_set()
                for entry in self._store.entries(self._session_id, place):
                    self.seen.append(entry.ref)
                    place = entry.next

                self.looks += 1
                time.sleep(0.001)
                if last:
                    return
        except BaseException as error:  # noqa: BLE001  the test raises it
            self.error = error


@within(120)
def test_who_follows_a_session_misses_nothing_and_sees_nothing_twice(ram: Path) -> None:
    """While it is appended to, its writers are killed, and torn tails are set aside."""
    store, session_id = a_session(ram)
    readers = [Tail(ram, session_id) for _ in range(READERS)]
    chance = random.Random(1)  # noqa: S311  a repeatable choice, no secret
    lives = 0
    try:
        while store.restore(session_id).head.seq < TAILED:
            with writer(ram, session_id, TAILED) as process:
                time.sleep(0.3 + chance.random() * 0.3)
                process.send_signal(signal.SIGKILL)

            lives += 1
            if lives % 2:
                # As if the kill had come in the middle of a write, which it seldom does.
                with store.layout.log(session_id).open("ab") as log:
                    log.write(b'{"hash":"' + b"0" * chance.randint(0, 3000))

        store.open(session_id).close()
    finally:
        for reader in readers:
            reader.finish()

    there = [EntryRef(entry["seq"], entry["hash"]) for entry in audit(store.layout.log(session_id))]
    assert len(there) > TAILED
    for reader in readers:
        assert reader.seen == there

    looks = min(reader.looks for reader in readers)
    torn = len(list(store.layout.sessions.glob("*.torn-*")))
    report("T13 tailed", entries=len(there) * READERS, looks=looks, lives=lives, torn=torn)
    assert torn > 0


@within(120)
def test_forks_of_a_session_that_is_written_name_what_is_there(ram: Path) -> None:
    store, session_id = a_session(ram)
    forks: list[str] = []
    with writer(ram, session_id, MOST_ENTRIES, 0.02) as process:
        try:
            while len(forks) < FORKS_WHILE_WRITTEN:
                # Every third is a fork of a fork.
                parent = forks[-1] if len(forks) % 3 == 1 else session_id
                forks.append(store.fork(parent))
        finally:
            process.send_signal(signal.SIGKILL)

    store.open(session_id).close()
    hashes = {entry["hash"] for entry in audit(store.layout.log(session_id))}
    for fork in forks:
        (start,) = list(store.entries(fork))[:1]
        parent, digest = start.data["forked_from"]
        if parent == session_id:
            assert digest in hashes
        else:
            assert digest in [entry.hash for entry in store.entries(parent)]

    chance = random.Random(1)  # noqa: S311  a repeatable choice, no secret
    for fork in chance.sample(forks, min(LOOKED_AT, len(forks))):
        assert store.verify(fork).ok
        store.open(fork).close()

    assert max(len(store.lineage(fork)) for fork in forks[:20]) > 2, "some are forks of forks"
    report("T12 forks while written", forks=len(forks), unresolved=0)


@within(120)
def test_many_forks_of_a_long_session(ram: Path) -> None:
    """Each is one line, whatever the size of the parent, and all are what the parent was."""
    store = a_store(ram, disk=QuietDisk())
    with begun(store) as session:
        session_id = session.session_id
        turns = [
            entry
            for _ in range(ITEMS_OF_ONE // 2)
            for entry in (
                ("user_input", {"items": [user_message("a question")]}),
                ("assistant_items", {"items": [answer("an answer")]}),
            )
        ]
        for start in range(0, len(turns), 2000):
            session.append_many(turns[start : start + 2000])

    size = store.layout.log(session_id).stat().st_size
    begin = time.monotonic()
    forks = [store.fork(session_id) for _ in range(FORKS_OF_ONE)]
    took = time.monotonic() - begin
    sizes = {store.layout.log(fork).stat().st_size for fork in forks}
    assert max(sizes) < 1000 < size
    assert set(store.children(session_id)) == set(forks)
    chance = random.Random(1)  # noqa: S311  as above
    for fork in chance.sample(forks, min(3, len(forks))):
        assert store.verify(fork).ok
        assert len(store.restore(fork).history) == ITEMS_OF_ONE

    us = round(1e6 * took / len(forks))
    report("T12 forks of one", forks=len(forks), items=ITEMS_OF_ONE, us_each=us, unresolved=0)


@pytest.mark.parametrize("depth", [20])
def test_forks_of_forks_resolve_however_deep(ram: Path, depth: int) -> None:
    store, session_id = a_session(ram)
    chain = [session_id]
    for number in range(depth):
        with store.open(chain[-1]) as session:
            session.append_items("user_input", [user_message(str(number))])

        chain.append(store.fork(chain[-1]))

    state = store.restore(chain[-1])
    assert texts(state.history) == [str(n) for n in range(depth)]
    assert [known for known, _ in store.lineage(chain[-1])] == chain
    assert all(found.ok for found in store.verify_all())
