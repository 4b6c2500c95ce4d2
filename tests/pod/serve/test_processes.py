"""Served pods as processes of their own: started, looked at, killed, stopped, one of each name."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Self

import pytest

from pod.home import Home
from pod.serve import AlreadyServed, Places, ensure_run_folder, reachable
from pod.serve.claim import claim
from tests.fake_provider import Asked, Say, serving
from tests.pod.desk import ROOT, Desk, events, until
from tests.pod.pods import chat, kinds

HERE = {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def short(_: Asked, number: int) -> Say:
    return Say(f"answer {number}")


def places(desk: Desk, name: str = "probe") -> Places:
    return Places.of(Home(desk.home), name)


class Wire:
    """A client that blocks."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        with reachable(path) as short_path:
            self.sock.connect(short_path)

        self.file = self.sock.makefile("rwb")
        self.hello = self.line()["hello"]

    def line(self) -> dict[str, Any]:
        data = self.file.readline()
        if not data:
            raise EOFError

        line: dict[str, Any] = json.loads(data)
        return line

    def send(self, method: str, **params: Any) -> None:
        self.file.write(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
        self.file.flush()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.send(method, **params)
        while "id" not in (line := self.line()):
            pass

        ok: dict[str, Any] = line["ok"]
        return ok

    def until(self, name: str) -> list[dict[str, Any]]:
        """Read on to an event of that name; return the events up to it."""
        got: list[dict[str, Any]] = []
        while not got or got[-1]["event"] != name:
            line = self.line()
            if "event" in line:
                got.append(line)

        return got

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.sock.close()


@contextmanager
def foreground(desk: Desk, *args: str, name: str = "probe") -> Iterator[subprocess.Popen[bytes]]:
    """A pod that is served in the foreground, and takes clients."""
    with desk.start("serve", *args, "--foreground") as process:
        until(lambda: places(desk, name).socket.exists() or process.poll() is not None)
        yield process


def test_a_pod_outlives_the_command_that_started_it(desk: Desk) -> None:
    manifest = desk.scripted({"deltas": ["All ", "is well."]}, {"deltas": ["Yes."]})
    started = desk.pod("serve", manifest, **HERE)
    assert started.exit_code == 0, started.output
    assert "probe is served: pid " in started.stdout
    (row,) = json.loads(desk.pod("ps", "--json").stdout)
    try:
        assert row["name"] == "probe"
        assert row["state"] == "idle"
        assert row["manifest"] == str(desk.work / manifest)
        assert row["socket"] == str(places(desk).socket)
        assert abs(row["since"] - time.time() * 1000) < 60_000
        assert os.getsid(row["pid"]) == row["pid"], "a session of its own: no terminal ends it"
        (line, *rest) = desk.pod("ps").stdout.split("\n")
        assert line.split() == ["NAME", "PID", "STATE", "SINCE", "SESSION", "MANIFEST"]
        assert rest[0].split()[:3] == ["probe", str(row["pid"]), "idle"]
        sent = desk.pod("send", "probe", "run", "input=How are things?")
        assert json.loads(sent.stdout)["accepted"] is True
        until(lambda: json.loads(desk.pod("send", "probe", "status").stdout)["history_len"] == 2)
        for path in places(desk).folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    finally:
        stopped = desk.pod("stop", "probe")

    assert stopped.exit_code == 0, stopped.output
    assert "probe has ended" in stopped.stderr
    assert json.loads(desk.pod("ps", "--json").stdout) == []
    assert desk.pod("ps").stderr == "no pods are served\n"
    assert not places(desk).socket.exists()
    logged = desk.pod("logs", "probe").stdout
    assert f"serving probe: pid {row['pid']}, session {row['session_id']}" in logged
    assert "run ended: finished, 1 request" in logged
    assert "How are things?" not in logged, "conversations are in the session's log"
    assert desk.pod("logs", "probe", "-n", "1").stdout.endswith("probe has ended\n")
    assert desk.pod("logs", "probe", "-n", "1").stdout.count("\n") == 1
    assert kinds(desk.home, row["session_id"])[-1] == "run_outcome"


def test_what_keeps_it_from_starting_is_said_where_it_was_started(desk: Desk) -> None:
    manifest = desk.manifest("http://127.0.0.1:9/v1")
    failed = desk.pod("serve", manifest, FAKE_KEY="", **HERE)
    assert failed.exit_code == 2
    assert "FAKE_KEY" in failed.stderr
    assert not places(desk).lock.exists()
    mistaken = desk.write("wrong.toml", '[pod]\nname = "wrong"\n')
    assert desk.pod("serve", mistaken, **HERE).exit_code == 2
    assert desk.pod("serve", "missing.toml", **HERE).exit_code == 2
    assert desk.pod("serve", manifest, "--resume", "nonsense", **HERE).exit_code == 2
    assert desk.pod("serve", manifest, "--stdio", "--foreground").exit_code == 2
    assert desk.pod("serve", manifest, "--resume", "a", "--continue").exit_code == 2


def test_there_is_one_of_each_name_and_the_other_is_named(desk: Desk) -> None:
    manifest = desk.scripted({"deltas": ["Yes."]})
    with foreground(desk, manifest) as process:
        for more in ((), ("--foreground",)):
            second = desk.pod("serve", manifest, *more, **HERE)
            assert second.exit_code == 1
            assert f"pid {process.pid}" in second.stderr
            assert "pod attach probe" in second.stderr

        assert places(desk).socket.exists()
        session = json.loads(desk.pod("ps", "--json").stdout)[0]["session_id"]
        run = desk.pod("run", manifest, "hi", "--resume", session)
        assert run.exit_code == 1
        assert f"pid {process.pid}" in run.stderr
        assert "watch it: pod attach probe      work on a copy: pod run probe.toml" in run.stderr
        assert desk.pod("stop", "probe").exit_code == 0
        assert process.wait(10) == 0


def test_of_several_that_start_at_once_one_is_served_and_the_others_say_only_that(
    desk: Desk,
) -> None:
    manifest = desk.scripted({"deltas": ["Yes."]})
    with ExitStack() as stack:
        starting = [stack.enter_context(desk.start("serve", manifest)) for _ in range(4)]
        said = [(process.communicate(timeout=15)[1], process.returncode) for process in starting]

    try:
        refused = [errors.decode() for errors, code in said if code]
        assert [code for _, code in said].count(0) == 1
        assert len(refused) == 3
        for text in refused:
            assert text.startswith("the pod probe is served already, by pid ")
            assert text.count("\n") == 2
    finally:
        assert desk.pod("stop", "probe").exit_code == 0


def test_several_pods_are_listed_by_name(desk: Desk) -> None:
    names = ("one", "two")
    manifests = [desk.scripted({"deltas": ["Yes."]}, name=name) for name in names]
    with foreground(desk, manifests[1], name="two"), foreground(desk, manifests[0], name="one"):
        rows = json.loads(desk.pod("ps", "--json").stdout)
        assert [row["name"] for row in rows] == ["one", "two"]
        unknown = desk.pod("stop", "three")
        assert unknown.exit_code == 2
        assert "no pod three is served" in unknown.stderr
        assert "one, two" in unknown.stderr
        for command in (("send", "three", "ping"), ("events", "three")):
            assert desk.pod(*command).exit_code == 2


def test_a_killed_one_leaves_nothing_that_is_in_the_way_and_tells_what_was_missed(
    desk: Desk,
) -> None:
    with serving(chat(short)) as served:
        manifest = desk.manifest(served.base_url)
        with foreground(desk, manifest) as process, Wire(places(desk).socket) as wire:
            wire.call("subscribe")
            wire.call("run", input="one")
            before = wire.until("run_end")
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            with pytest.raises((EOFError, ConnectionResetError)):
                wire.until("never")

        assert places(desk).socket.exists(), "nobody could remove it"
        assert desk.pod("ps").stderr == "no pods are served\n"
        assert not places(desk).socket.exists()
        assert not places(desk).lock.exists()
        with foreground(desk, manifest, "--continue"), Wire(places(desk).socket) as wire:
            old = before[0]["launch"]
            assert wire.hello["launch"] != old
            assert wire.hello["session_id"] == before[0]["data"]["session_id"]
            middle = before[len(before) // 2]["seq"]
            answer = wire.call("subscribe", from_seq=middle, launch=old)
            assert answer["replay"] == "log"
            again = wire.until("run_end")
            assert [e["seq"] for e in again] == [
                e["seq"] for e in before if e["seq"] >= middle and "ref" in e
            ]
            assert again[-1]["ref"] == before[-1]["ref"]


def test_a_stale_socket_without_a_lock_is_no_obstacle(desk: Desk) -> None:
    folder = places(desk).folder
    folder.mkdir(mode=0o755)
    left = socket.socket(socket.AF_UNIX)
    with reachable(places(desk).socket) as path:
        left.bind(path)

    left.close()
    with foreground(desk, desk.scripted({"deltas": ["Yes."]})):
        until(lambda: desk.pod("send", "probe", "ping").exit_code == 0)
        assert json.loads(desk.pod("send", "probe", "ping").stdout)["launch"]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_well_also_in_the_middle_of_a_run(desk: Desk, number: int) -> None:
    go_on = Event()
    with serving(chat(lambda _asked, _n: Say("slow", wait=go_on))) as served:
        manifest = desk.manifest(served.base_url)
        with foreground(desk, manifest) as process, Wire(places(desk).socket) as wire:
            wire.call("subscribe")
            wire.call("run", input="one")
            wire.until("text_delta")
            process.send_signal(number)
            end = wire.until("run_end")[-1]
            assert end["data"]["outcome"] == "cancelled"
            assert process.wait(10) == 0
            with pytest.raises(EOFError):
                wire.until("never")

            go_on.set()
        assert not places(desk).socket.exists()
        assert kinds(desk.home, end["data"]["session_id"])[-1] == "run_outcome"


def test_events_are_printed_until_the_pod_ends(desk: Desk) -> None:
    manifest = desk.scripted({"deltas": ["All ", "is well."]}, {"deltas": ["Yes."]})
    with foreground(desk, manifest) as process:
        with Wire(places(desk).socket) as wire:
            wire.call("subscribe")
            wire.call("run", input="one")
            told = wire.until("run_end")
            told += wire.until("status")

        with (
            desk.start("events", "probe", "--from", "1", "--json") as everything,
            desk.start("events", "probe", "--from", "1", "--only", "run_*") as some,
        ):
            assert everything.stdout is not None
            assert some.stdout is not None
            lines = [everything.stdout.readline() for _ in told]
            shown = some.stdout.readline() + some.stdout.readline()
            assert desk.pod("stop", "probe").exit_code == 0
            assert process.wait(10) == 0
            rest, errors = everything.communicate(timeout=10)
            assert some.communicate(timeout=10)[0] == b""

        assert (everything.returncode, some.returncode, errors) == (0, 0, b"")
        assert events(b"".join(lines)) == told
        assert rest == b""
        assert [line.split()[1:3] for line in shown.decode().split("\n")[:-1]] == [
            [str(told[0]["seq"]), "run_start"],
            [str(told[-2]["seq"]), "run_end"],
        ]


@pytest.mark.parametrize("more", [(), ("--foreground",)], ids=["detached", "foreground"])
@pytest.mark.parametrize("where", ["/dev/null", "/proc/nowhere"])
def test_a_home_that_cannot_be_written_is_told_in_a_line(
    desk: Desk, where: str, more: tuple[str, ...]
) -> None:
    manifest = desk.scripted({"deltas": ["Yes."]})
    refused = desk.pod("serve", manifest, *more, POD_HOME=where)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"cannot write in {where}/run: ")
    assert "set POD_HOME" in refused.stderr
    assert "defect" not in refused.stderr


def test_a_number_that_is_yet_to_come_is_refused(desk: Desk) -> None:
    with foreground(desk, desk.scripted({"deltas": ["Yes."]})):
        refused = desk.pod("events", "probe", "--from", "99")
        assert refused.exit_code == 2
        assert "event 99 is yet to come" in refused.stderr
        assert desk.pod("events", "probe", "--only", "nonsense").exit_code == 2
        assert desk.pod("send", "probe", "no_such").exit_code == 2
        assert desk.pod("send", "probe", "run").exit_code == 2
        assert desk.pod("send", "probe", "run", "nonsense").exit_code == 2
        assert desk.pod("send", "probe", "run", "{nonsense").exit_code == 2
        assert desk.pod("send", "probe", "resume").exit_code == 0
        whole = desk.pod("send", "probe", "get_history", '{"limit": 1}')
        assert json.loads(whole.stdout)["total"] == 0
        assert json.loads(desk.pod("send", "probe", "get_history", "limit=1").stdout)["items"] == []


def test_one_that_hangs_is_listed_and_can_be_killed(desk: Desk) -> None:
    with foreground(desk, desk.scripted({"deltas": ["Yes."]})) as process:
        until(lambda: json.loads(desk.pod("ps", "--json").stdout)[0]["pid"] == process.pid)
        process.send_signal(signal.SIGSTOP)
        (row,) = json.loads(desk.pod("ps", "--json").stdout)
        assert (row["pid"], row["state"], row["session_id"]) == (process.pid, "silent", None)
        stopped = desk.pod("stop", "probe", "--now")
        assert stopped.exit_code == 0, stopped.output
        assert f"killed pid {process.pid}" in stopped.stderr
        assert process.wait(5) == -signal.SIGKILL
        assert json.loads(desk.pod("ps", "--json").stdout) == []


def test_one_that_does_not_say_its_pid_is_not_killed_by_guessing(desk: Desk) -> None:
    where = places(desk)
    ensure_run_folder(Home(desk.home))
    where.lock.write_text('{"name":"probe","pid":1,"since_ms":1,"manifest":"","socket":""}')
    held = claim(where)
    try:
        (row,) = json.loads(desk.pod("ps", "--json").stdout)
        assert row["pid"] is None, "what a dead one said of itself is gone"
        stopped = desk.pod("stop", "probe", "--now")
        assert stopped.exit_code == 1, stopped
        assert "nor said its pid" in stopped.stderr
    finally:
        held.release()


def test_one_that_is_still_being_launched_can_be_stopped(desk: Desk) -> None:
    manifest = desk.write(
        "probe.toml",
        '[pod]\nname = "probe"\n[provider]\nkind = "openai_compatible"\nmodel = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\napi_key_command = "sleep 30"\n',
    )
    with desk.start("serve", manifest, "--foreground") as process:
        until(lambda: desk.pod("ps").stdout)
        assert json.loads(desk.pod("ps", "--json").stdout)[0]["state"] == "silent"
        assert desk.pod("send", "probe", "ping").exit_code == 1
        stopped = desk.pod("stop", "probe")
        assert stopped.exit_code == 0, stopped.output
        assert process.wait(5) == 128 + signal.SIGTERM
        assert not places(desk).lock.exists()


def test_giving_up_to_wait_for_a_launch_ends_it(desk: Desk) -> None:
    manifest = desk.write(
        "probe.toml",
        '[pod]\nname = "probe"\n[provider]\nkind = "openai_compatible"\nmodel = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\napi_key_command = "sleep 30"\n',
    )
    with desk.start("serve", manifest) as process:
        until(lambda: desk.pod("ps").stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        until(lambda: not desk.pod("ps").stdout)


def test_told_to_wait_stopping_waits_for_the_run(desk: Desk) -> None:
    go_on = Event()
    with serving(chat(lambda _asked, _n: Say("slow", wait=go_on))) as served:
        manifest = desk.manifest(served.base_url)
        with foreground(desk, manifest) as process, Wire(places(desk).socket) as wire:
            wire.call("subscribe")
            wire.call("run", input="one")
            wire.until("text_delta")
            with desk.start("stop", "probe", "--wait") as stopping:
                until(lambda: _is_closing(desk))
                assert stopping.poll() is None
                assert json.loads(desk.pod("ps", "--json").stdout)[0]["state"] == "running"
                go_on.set()
                assert wire.until("run_end")[-1]["data"]["outcome"] == "finished"
                assert stopping.wait(10) == 0

            assert process.wait(5) == 0


def _is_closing(desk: Desk) -> bool:
    """Whether the pod takes nothing new."""
    refused = desk.pod("send", "probe", "run", "input=two")
    return "is being shut down" in refused.stderr


def test_when_no_more_clients_fit_those_that_are_there_stay(desk: Desk) -> None:
    with foreground(desk, desk.scripted({"deltas": ["Yes."]})) as process:
        first = Wire(places(desk).socket)
        opened = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (opened + 3, opened + 3))
        fitting = [Wire(places(desk).socket) for _ in range(3)]
        late = socket.socket(socket.AF_UNIX)
        with reachable(places(desk).socket) as path:
            late.connect(path)

        assert first.call("ping")
        assert fitting[-1].call("ping")
        fitting[0].__exit__()
        late.settimeout(5)
        assert b"hello" in late.recv(1_000), "it waits, and comes in when there is room"
        late.close()
        for wire in (first, *fitting[1:]):
            wire.__exit__()


def test_a_child_that_is_forked_does_not_hold_the_name(desk: Desk) -> None:
    folder = ensure_run_folder(Home(desk.home))
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from pod.serve.claim import claim\n"
        "from pod.serve.places import Places\n"
        f"held = claim(Places(Path({str(folder)!r}), 'probe'))\n"
        "pid = os.fork()\n"
        "pid and print(pid, flush=True)\n"
        "time.sleep(30)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=desk.environment(), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with pytest.raises(AlreadyServed):
                claim(places(desk))

            parent.kill()
            parent.wait(5)
            claim(places(desk)).release()
        finally:
            parent.kill()
            os.kill(child, signal.SIGKILL)


def test_a_log_is_followed_to_the_end_of_the_pod(desk: Desk) -> None:
    assert desk.pod("logs", "probe").exit_code == 1
    assert desk.pod("serve", desk.scripted({"deltas": ["Yes."]}), **HERE).exit_code == 0
    with desk.start("logs", "probe", "-f") as following:
        stream = following.stdout
        assert stream is not None
        assert b"serving probe" in stream.readline()
        assert desk.pod("stop", "probe").exit_code == 0
        rest, _ = following.communicate(timeout=10)
        assert rest.endswith(b"probe has ended\n")
        assert following.returncode == 0


def test_a_run_folder_of_somebody_elses_making_is_not_used(desk: Desk) -> None:
    (desk.work / "elsewhere").mkdir()
    places(desk).folder.symlink_to(desk.work / "elsewhere")
    refused = desk.pod("serve", desk.scripted({"deltas": ["Yes."]}), "--foreground")
    assert refused.exit_code == 1
    assert "is not a folder of its own" in refused.stderr
    assert list((desk.work / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("what", ["link", "folder"])
@pytest.mark.parametrize("name", ["lock", "sock", "log"])
def test_what_is_in_the_place_of_a_file_of_ours_is_named_and_left_alone(
    desk: Desk, name: str, what: str
) -> None:
    folder = ensure_run_folder(Home(desk.home))
    victim = desk.write("victim", "precious")
    place = folder / f"probe.{name}"
    place.mkdir() if what == "folder" else place.symlink_to(desk.work / victim)
    manifest = desk.scripted({"deltas": ["Yes."]})
    done = [desk.pod("serve", manifest, **HERE)]
    done += [desk.pod(*words, "probe") for words in (("stop",), ("logs",), ("events",))]
    done += [desk.pod("ps"), desk.pod("send", "probe", "ping")]
    assert not [one for one in done if "defect" in one.stderr or "Traceback" in one.stderr]
    assert (desk.work / victim).read_text() == "precious"
    if (name, what) != ("sock", "link"):  # a stale socket is replaced, whatever it is
        assert done[0].exit_code == 1
        assert f"probe.{name}" in done[0].stderr


# --- stdio ----------------------------------------------------------------------------------


@contextmanager
def stdio(desk: Desk, manifest: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        desk.command("serve", manifest, "--stdio"),
        cwd=desk.work,
        env=desk.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_over_stdin_and_stdout_it_serves_whoever_started_it(desk: Desk) -> None:
    loud = "def shout(word: str) -> str:\n    '''Shout.'''\n    print('LOUD')\n    return word\n"
    desk.write("loud.py", loud)
    call = {"tool_calls": [{"name": "shout", "arguments": {"word": "hey"}}]}
    extra = '[tools]\npython = ["loud:shout"]\n'
    manifest = desk.scripted(call, {"deltas": ["Done."]}, extra=extra)
    requests = [
        {"id": 1, "method": "subscribe"},
        {"id": 2, "method": "run", "params": {"input": "shout"}},
        {"id": 3, "method": "nonsense"},
    ]
    data = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    with stdio(desk, manifest) as process:
        out, errors = process.communicate(data + b"no json\n", timeout=15)

    lines = events(out)
    assert process.returncode == 0, errors
    assert lines[0]["hello"]["pod"] == "probe"
    assert [line["id"] for line in lines if "id" in line] == [1, 2, 3, None]
    told = [line for line in lines if "event" in line]
    assert told[-1]["event"] == "status"
    (end,) = [line for line in told if line["event"] == "run_end"]
    assert end["data"]["outcome"] == "finished", "stdin ended, and the run came to its end"
    assert b"LOUD" not in out
    assert not places(desk).folder.exists()


def test_when_nobody_reads_stdout_any_more_it_ends(desk: Desk) -> None:
    with stdio(desk, desk.scripted({"deltas": ["Yes."]})) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"hello" in process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b'{"id":1,"method":"ping"}\n' * 100)
        process.stdin.flush()
        assert process.wait(10) == 0
