"""Many writers at once, stopped writers, dead ones, and those that only look alive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from session_store import FileSessionStore, SessionInUse
from tests.faults.figures import figure, report, within
from tests.session_store.builders import a_store, audit, begun

ROOT = Path(__file__).resolve().parents[2]
APPENDS = figure("CONTENDED_APPENDS", 10_000)
TAKEOVERS = figure("TAKEOVERS", 50)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@within(120)
@pytest.mark.parametrize("writers", [2, 4, 8])
def test_contended_appends_never_mix(ram: Path, writers: int) -> None:
    store = a_store(ram)
    for _ in range(max(1, APPENDS // 5000)):
        begun(store).close()

    each = APPENDS // 3 // writers + 1
    script = str(Path(__file__).with_name("contend.py"))
    # Into files: who waits for a pipe to be read, with a session open, would keep the others out.
    processes = []
    for seed in range(writers):
        with (ram / f"told-{seed}").open("wb") as told_to:
            command = [sys.executable, script, str(ram), str(seed), str(each)]
            processes.append(subprocess.Popen(command, env=ENVIRONMENT, stdout=told_to))

    told: Counter[tuple[str, str, str]] = Counter()
    refused = 0
    for seed, process in enumerate(processes):
        assert process.wait() == 0
        out = (ram / f"told-{seed}").read_text()
        for line in out.split("\n")[:-1]:
            session_id, seq, digest = line.split()
            refused += int(seq) if session_id == "refused" else 0
            told[session_id, seq, digest] += session_id != "refused"

    appended = told.total()
    assert appended == each * writers
    assert set(told.values()) <= {0, 1}, "no entry was acknowledged to two"
    for session_id in store.ids():
        there = {str(entry["seq"]): entry["hash"] for entry in audit(store.layout.log(session_id))}
        mine = {seq: digest for known, seq, digest in told if known == session_id}
        # All but the first: that is of the one who made it.
        assert mine == {seq: there[seq] for seq in there if seq != "0"}

    report("T10 contended appends", appends=appended, refused=refused, undetected=0)
    assert refused > 0 or writers == 2, "nobody had to wait: this tests less than it should"


HOLD = r"""
import os, sys, time
from session_store import FileSessionStore
session = FileSessionStore(sys.argv[1]).open(sys.argv[2])
print(os.getpid(), flush=True)
for line in sys.stdin:
    try:
        ref = session.append("extension", domain="d", payload=line)
        print(ref.seq, flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@contextmanager
def holding(home: Path, session_id: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the session open, and appends for each line that it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home), session_id],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            answer(process)
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("append\n")
    process.stdin.flush()
    return answer(process)


def a_session(home: Path) -> tuple[FileSessionStore, str]:
    store = a_store(home)
    with begun(store) as session:
        return store, session.session_id


@within(120)
def test_a_dead_writer_is_taken_over_from_at_once(ram: Path) -> None:
    store, session_id = a_session(ram)
    waits = []
    for number in range(TAKEOVERS):
        with holding(ram, session_id) as process:
            assert ask(process) == str(2 * number + 1)
            os.kill(process.pid, signal.SIGKILL)
            before = time.monotonic()
            while True:
                with suppress(SessionInUse), store.open(session_id) as session:
                    waits.append(time.monotonic() - before)
                    assert session.append("turn_end", turn=number).seq == 2 * number + 2
                    break

    report("T11 takeovers", kills=len(waits), slowest_ms=round(1000 * max(waits)))
    assert max(waits) < 5, "and the machine may be busy"


@within(60)
def test_a_stopped_writer_is_still_the_writer(ram: Path) -> None:
    """However long it is stopped: nobody takes its place, and it goes on when it is woken."""
    store, session_id = a_session(ram)
    with holding(ram, session_id) as process:
        assert ask(process) == "1"
        for number in range(TAKEOVERS):
            os.kill(process.pid, signal.SIGSTOP)
            with pytest.raises(SessionInUse) as caught:
                store.open(session_id)

            assert caught.value.holder.pid == process.pid
            os.kill(process.pid, signal.SIGCONT)
            assert ask(process) == str(number + 2)

    audit(store.layout.log(session_id))
    report("T11 stops", stops=TAKEOVERS, double_writers=0)


def test_a_stopped_writer_that_was_fenced_off_writes_nothing_when_it_wakes(ram: Path) -> None:
    """Somebody took the lock's file away, and another one writes: the first one is told."""
    store, session_id = a_session(ram)
    with holding(ram, session_id) as process:
        assert ask(process) == "1"
        os.kill(process.pid, signal.SIGSTOP)
        store.layout.lock(session_id).unlink()
        with store.open(session_id) as session:
            session.append("turn_end", turn=1)
            os.kill(process.pid, signal.SIGCONT)
            assert ask(process) == "Fenced"
            session.append("turn_end", turn=2)

    assert len(audit(store.layout.log(session_id))) == 4


def test_a_pid_that_came_again_keeps_nobody_out(ram: Path) -> None:
    """The record names a process that lives, began at another time, and holds nothing."""
    store, session_id = a_session(ram)
    lock = store.layout.lock(session_id)
    for started in (0, 1, 2**40, "?", None):
        record = json.loads(lock.read_bytes().split(b"\n")[0])
        alive = {"pid": os.getpid(), "host": os.uname().nodename, "since_ms": 1, "command": "pod"}
        lock.write_text(json.dumps({**record, **alive, "started": started}) + "\n")
        assert store.holder(session_id) is None
        with store.open(session_id) as session:
            session.append("turn_end", turn=1)


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_moved_changes_nothing_of_who_writes(ram: Path, step_ms: int) -> None:
    store, session_id = a_session(ram)
    now = [1_796_058_210_123]
    moved = a_store(ram, clock=lambda: now[0])
    with moved.open(session_id) as session:
        now[0] += step_ms
        with pytest.raises(SessionInUse):
            a_store(ram, clock=lambda: now[0]).open(session_id)

        session.append("turn_end", turn=1)

    times = [entry["ts"] for entry in audit(store.layout.log(session_id))]
    assert times == sorted(times)


TRY = """
import sys
from session_store import FileSessionStore, SessionInUse
try:
    FileSessionStore(sys.argv[1]).open(sys.argv[2])
except SessionInUse as error:
    print(error.holder.pid)
"""


def test_reading_in_the_writers_own_process_lets_nobody_in(ram: Path) -> None:
    """A record lock would be gone as soon as this process closes the log that it has read."""
    store, session_id = a_session(ram)
    with store.open(session_id) as session:
        for read in (store.restore, store.verify, lambda known: list(store.entries(known))):
            read(session_id)
            store.layout.log(session_id).read_bytes()
            store.layout.lock(session_id).read_bytes()
            done = subprocess.run(
                [sys.executable, "-c", TRY, str(ram), session_id],
                env=ENVIRONMENT, capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert done.stdout.strip() == str(os.getpid())
            session.append("turn_end", turn=1)

    assert len(audit(store.layout.log(session_id))) == 4


INHERITED = r"""
import os, subprocess, sys
from session_store import FileSessionStore
session = FileSessionStore(sys.argv[1]).open(sys.argv[2])
session.append("turn_end", turn=1)
sleep = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
child = subprocess.Popen(sleep, stdout=subprocess.PIPE, close_fds=False, text=True)
child.stdout.readline()
forked = os.fork()
if forked == 0:
    import time
    time.sleep(60)
print(child.pid, forked, flush=True)
sys.stdin.read()
"""


def test_what_a_dead_writer_started_keeps_nobody_out(ram: Path) -> None:
    """Neither a program that got all descriptors, nor a forked copy of the process."""
    store, session_id = a_session(ram)
    with subprocess.Popen(
        [sys.executable, "-c", INHERITED, str(ram), session_id],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = [int(pid) for pid in process.stdout.readline().split()]
        try:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            for pid in started:
                os.kill(pid, 0)  # it lives

            with store.open(session_id) as session:
                assert session.append("turn_end", turn=2).seq == 2
        finally:
            for pid in started:
                os.kill(pid, signal.SIGKILL)


def test_a_writer_in_another_pid_namespace_is_a_writer(ram: Path) -> None:
    store, session_id = a_session(ram)
    prefix = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    with suppress(FileNotFoundError):
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            with subprocess.Popen(
                [*prefix, sys.executable, "-c", HOLD, str(ram), session_id],
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as process:
                answer(process)
                with pytest.raises(SessionInUse):
                    store.open(session_id)

                assert ask(process) == "1"
                process.communicate()

            store.open(session_id).close()
            return

    pytest.skip("NOT TESTED: another pid namespace, for this system lets nobody make one")
