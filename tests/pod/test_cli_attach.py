"""`pod attach` on a real terminal, the pod served by a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fake_provider import SUMMARY, Asked, Say, serving
from tests.pod.desk import Desk, until
from tests.pod.tui.glass import Glass


@pytest.fixture
def desk(tmp_path: Path, home: Path) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    return Desk(work, home)


@contextmanager
def served(desk: Desk, manifest: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a pod until the block ends."""
    with desk.start("serve", manifest, "--foreground", *args) as process:
        until(lambda: answers(desk), 15)
        yield process


def answers(desk: Desk) -> bool:
    return b'"state"' in desk.process("ps", "--json").stdout


@contextmanager
def attached(desk: Desk, name: str = "probe", **env: str) -> Iterator[Glass]:
    environment = desk.environment(TERM="xterm", LC_ALL="C.UTF-8", **env)
    with Glass(desk.command("attach", name), desk.work, environment) as glass:
        glass.see("/help", 15)
        yield glass


def said(desk: Desk) -> list[str]:
    return [item["parts"][0]["text"] for e in desk.entries("user_input") for item in e["items"]]


# --- together -----------------------------------------------------------------------------------


def test_everybody_sees_everything_and_leaving_leaves_the_pod(desk: Desk) -> None:
    manifest = desk.scripted({"text": "A **chain**."}, {"text": "late", "delay": 2})
    with served(desk, manifest), attached(desk) as one, attached(desk) as two:
        one.enter("Explain hash chains")
        for glass in (one, two):
            glass.see("> Explain hash chains")
            glass.see("A chain.")
            glass.prompt()

        two.enter("And trees?")
        one.see("> And trees?")
        two.type("\x04")
        assert two.end() == 0
        two.see("probe goes on; pod attach probe comes back to it")
        one.see("late")
        one.prompt()
        assert "late" not in two.everything

    assert said(desk) == ["Explain hash chains", "And trees?"]


def test_who_comes_in_the_middle_of_a_run_sees_where_it_is(desk: Desk) -> None:
    desk.write(
        "slow.py",
        "import asyncio\nasync def slow(what: str) -> str:\n    'Wait.'\n"
        "    await asyncio.sleep(4)\n    return 'waited for ' + what\n",
    )
    call = {"text": "I wait.", "tool_calls": [{"name": "slow", "arguments": {"what": "paint"}}]}
    manifest = desk.scripted(
        call, {"text": "It is dry."}, extra='[tools]\npython = ["slow:slow"]\n'
    )
    with served(desk, manifest), attached(desk) as one:
        one.enter("Is it dry?")
        one.see("· slow")
        with attached(desk) as two:
            two.see("> Is it dry?")
            two.see("I wait.")
            two.see('· slow what="paint"')
            two.see("✓ slow")
            two.see("waited for paint")
            two.see("It is dry.")
            two.prompt()
            assert two.everything.count("I wait.") == 1
            assert two.everything.count("It is dry.") == 1


def test_a_compaction_is_seen_from_before_in_the_middle_and_after(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        if asked.wants_summary:
            time.sleep(4)
            return Say(SUMMARY)

        return Say("word " * 1_500)

    extra = "[compaction]\ncompact_threshold = 3000\ncompact_retained_turns = 1\n"
    with serving(script) as model, served(desk, desk.manifest(model.base_url, extra)):
        with attached(desk) as one:
            one.enter("first")
            one.enter("second")
            one.see("▸ summarizing …", 15)
            with attached(desk) as two:
                two.see("▸ summarizing …")
                one.see("compacted: ", 15)
                two.see("compacted: ", 15)
                two.lose("▸ summarizing …")

        with attached(desk) as three:
            three.see("so far")
            three.see("> second")
            three.prompt()


def test_a_call_is_decided_once_and_then_nobody_is_asked(desk: Desk) -> None:
    desk.write("deploying.py", "def deploy(where: str) -> str:\n    'Deploy.'\n    return 'done'\n")
    call = {"tool_calls": [{"name": "deploy", "arguments": {"where": "here"}}]}
    extra = '[tools]\npython = ["deploying:deploy"]\n[permissions]\ntools = { deploy = "ask" }\n'
    manifest = desk.scripted(call, {"text": "over"}, extra=extra)
    with served(desk, manifest), attached(desk) as one, attached(desk) as two:
        one.enter("go")
        one.see('allow deploy where="here"?')
        two.see('allow deploy where="here"?')
        with attached(desk) as three:
            three.see('allow deploy where="here"?')
            time.sleep(1.0)  # What comes at once may have been meant for something else.
            two.enter("/approve")
            for glass in (one, two, three):
                glass.see("deploy allowed by ")
                glass.lose("allow deploy where")

        one.see("over")

    (entry,) = desk.entries("approval")
    assert (entry["decision"], entry["scope"]) == ("allow", "once")


# --- stopping, leaving, coming back -------------------------------------------------------------


def test_ctrl_c_stops_the_run_and_a_second_one_leaves(desk: Desk) -> None:
    manifest = desk.scripted({"text": "late", "delay": 15})
    with served(desk, manifest) as process, attached(desk) as glass:
        glass.enter("go")
        glass.see("> go")
        until(lambda: desk.entries("user_input"))
        glass.type("\x03")
        glass.see("stopped; what was said so far is kept")
        glass.prompt()
        glass.type("\x03")
        assert glass.end() == 130
        assert process.poll() is None


def test_leaving_does_not_stop_what_runs(desk: Desk) -> None:
    manifest = desk.scripted({"text": "done all the same", "delay": 3})
    with served(desk, manifest):
        with attached(desk) as glass:
            glass.enter("go")
            until(lambda: desk.entries("user_input"))
            glass.enter("/detach")
            assert glass.end() == 0

        until(lambda: desk.entries("run_outcome"), 10)
        (outcome,) = desk.entries("run_outcome")
        assert outcome["outcome"] == "finished"


def test_a_terminal_that_goes_away_leaves_the_pod(desk: Desk) -> None:
    manifest = desk.scripted({"text": "done all the same", "delay": 2})
    with served(desk, manifest) as process, attached(desk) as glass:
        glass.enter("go")
        until(lambda: desk.entries("user_input"))
        glass.hang_up()
        until(lambda: desk.entries("run_outcome"), 10)
        assert desk.entries("run_outcome")[0]["outcome"] == "finished"
        assert process.poll() is None


def test_a_pod_that_is_killed_and_served_again_is_reconnected_to(desk: Desk) -> None:
    manifest = desk.scripted({"text": "one"}, {"text": "late", "delay": 15})
    with served(desk, manifest) as process, attached(desk) as glass:
        glass.enter("first")
        glass.see("one")
        glass.prompt()
        glass.type("half a li")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        glass.see("connection lost, reconnecting … 1")
        desk.scripted({"text": "two"})
        with served(desk, manifest, "--continue"):
            glass.see("connected again after ", 15)
            glass.see("> half a li")
            glass.type("ne\r")
            glass.see("> half a line", 15)
            glass.see("two", 15)
            glass.type("\x04")
            assert glass.end() == 0

    assert said(desk) == ["first", "half a line"]


def test_a_pod_that_is_stopped_ends_its_views(desk: Desk) -> None:
    with served(desk, desk.scripted({"text": "x"})) as process, attached(desk) as glass:
        assert desk.process("stop", "probe").returncode == 0
        assert glass.end(15) == 0
        glass.see("probe was stopped")
        assert process.wait(10) == 0


def test_stopping_the_pod_is_asked_about(desk: Desk) -> None:
    with served(desk, desk.scripted({"text": "x"})) as process, attached(desk) as glass:
        glass.enter("/stop")
        glass.see("end probe for everybody who uses it? y · n")
        glass.type("n")
        glass.see("left as it is")
        glass.lose("end probe for everybody")
        assert process.poll() is None
        glass.enter("/stop")
        glass.see("end probe for everybody")
        glass.type("y")
        assert glass.end() == 0
        glass.see("probe was stopped")
        assert process.wait(10) == 0


# --- commands -----------------------------------------------------------------------------------


def test_commands_on_a_served_pod(desk: Desk) -> None:
    with served(desk, desk.scripted({"text": "one"}, {"text": "two"})), attached(desk) as glass:
        glass.enter("hello")
        glass.see("one")
        glass.prompt()
        until(lambda: desk.entries("run_outcome"))
        for line, shown in (
            ("/model other", "a served pod keeps its model"),
            ("/sessions", '"hello"'),
            ("/rewind", "there is nothing to go back to"),
            ("/compact", "nothing to compact"),
            ("/status", "session     "),
            ("/cost", "1 request"),
            ("/help", "end the pod, for everybody"),
            ("/fork", "the pod stays where it is"),
            ("/new", "new session"),
        ):
            glass.enter(line)
            glass.see(shown)
            glass.prompt()

        glass.enter("again")
        glass.see("two")
        glass.enter("/detach")
        assert glass.end() == 0

    assert len(desk.logs()) == 3


def test_lines_that_are_piped_in_are_done_one_after_the_other(desk: Desk) -> None:
    with served(desk, desk.scripted({"text": "**one**"}, {"text": "two"})):
        done = subprocess.run(
            desk.command("attach", "probe"),
            cwd=desk.work,
            env=desk.environment(),
            input=b"first\n\n/cost\nsecond",
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == b"**one**\ntwo\n"
        assert b"request" in done.stderr

    assert said(desk) == ["first", "second"]


def test_a_pod_that_nobody_serves_cannot_be_attached_to(desk: Desk) -> None:
    done = desk.pod("attach", "nobody")
    assert done.exit_code == 2
    assert "nobody" in done.stderr
    assert "pod serve" in done.stderr
    assert desk.pod("attach", "../escape").exit_code == 2
