"""Cases H: forks, and which session a run goes on with."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pod.protocol import CompactionDone
from session_store import FileSessionStore
from tests.cases.conversations import (
    ENTRIES_A_RUN,
    calling,
    lines_of,
    listed,
    put_lines,
    state,
    talk,
    told,
)
from tests.fake_provider import Asked, Say, counting, serving
from tests.pod.desk import Desk, until
from tests.pod.pods import COMPACT, chat, living, log_of, logs, manifest, pointer, prose
from tests.session_store.builders import a_store, answer, audit, begun
from worker.items import AssistantMessage, Item, ToolResult, user_message

TOOL = '[tools]\npython = ["tests.cases.tools:background"]\n'

# --- H01, H03: what a fork is --------------------------------------------------------------------


def ends(log: Path) -> list[str]:
    """The hashes at which the runs of a session ended."""
    return [entry["hash"] for entry in audit(log) if entry["kind"] == "run_outcome"]


def forked(desk: Desk, session_id: str, *args: str) -> str:
    done = desk.pod("sessions", "fork", session_id, *args, "--json")
    assert done.exit_code == 0, done.output
    found: str = json.loads(done.stdout)["session_id"]
    return found


@pytest.mark.parametrize("way", ["fork, then resume", "run --fork"])
def test_h01_a_fork_is_written_and_its_parent_is_not(desk: Desk, way: str) -> None:
    """H01: three turns, a fork at the second, one more turn; the parent's bytes and time stay."""
    run, log = talk(desk, 3)
    at, before = ends(log)[1], state(desk.home)
    if way == "run --fork":
        at = ends(log)[2]
        assert desk.pod("run", run, "NEW", "--fork", log.stem).exit_code == 0
        (child,) = set(desk.logs()) - {log}
    else:
        child = log.with_stem(forked(desk, log.stem, "--at", at))
        assert desk.pod("run", run, "NEW", "--resume", child.stem).exit_code == 0

    assert {name: kept for name, kept in state(desk.home).items() if name in before} == before
    start = audit(child)[0]
    assert start["forked_from"] == [log.stem, at]
    turns = ["QUESTION-1", "QUESTION-2", *(["QUESTION-3"] if way == "run --fork" else []), "NEW"]
    store = FileSessionStore(desk.home)
    assert told(store, child.stem)[::2] == turns
    assert told(store, log.stem)[::2] == ["QUESTION-1", "QUESTION-2", "QUESTION-3"]
    (info,) = [info for info in listed(desk) if info["session_id"] == child.stem]
    assert info["forked_from"] == [log.stem, at]


def test_h03_every_fork_has_all_of_it_the_first_and_the_last(desk: Desk) -> None:
    """H03: of the original, of a fork, again and again, in any order, after more was said too."""
    run, log = talk(desk, 2)
    store = FileSessionStore(desk.home)
    whole = store.restore(log.stem).history
    forks = [forked(desk, log.stem)]
    for number in range(12):
        forks.append(forked(desk, [log.stem, forks[0], forks[-1]][number % 3]))

    assert desk.pod("run", run, "MORE", "--resume", log.stem).exit_code == 0
    assert desk.pod("run", run, "ELSE", "--resume", forks[0]).exit_code == 0
    late = [forked(desk, log.stem, "--at", ends(log)[1]), forked(desk, forks[3])]
    for fork in [*forks[1:], *late]:
        assert store.restore(fork).history == whole
        assert store.verify(fork).ok

    counts = {info["session_id"]: info["items"] for info in listed(desk)}
    assert {counts[fork] for fork in [*forks[1:], *late]} == {len(whole)}
    assert counts[log.stem] == counts[forks[0]] == len(whole) + 2


def test_h03_a_fork_of_nothing_is_a_session_all_the_same(desk: Desk) -> None:
    """H01, H03: of a session without a turn, at its first entry, and of that fork again."""
    run, log = talk(desk, 1)
    store = FileSessionStore(desk.home)
    first = audit(log)[0]["hash"]
    empty = forked(desk, log.stem, "--at", first)
    with begun(store) as session:
        new = session.session_id

    for parent in (empty, new):
        fork = forked(desk, forked(desk, parent))
        assert told(store, fork) == []
        assert desk.pod("run", run, "HELLO", "--resume", fork).exit_code == 0
        assert told(store, fork)[::2] == ["HELLO"]
        assert told(store, parent) == []

    assert told(store, log.stem)[::2] == ["QUESTION-1"]


# --- H04, H07: a fork of what is at work ---------------------------------------------------------


@pytest.mark.timeout(60)  # several processes, on a machine that may be busy
def test_h04_a_fork_leaves_a_running_session_and_what_it_started_alone(desk: Desk) -> None:
    """H04: a run whose tool has a program running is forked twice by others; all ends well."""
    arguments = json.dumps({"folder": str(desk.work)})
    with serving(calling(("background", arguments))) as served, serving(counting) as plain:
        run = desk.manifest(served.base_url, TOOL)
        by_itself = desk.manifest(plain.base_url, name="plain")
        with desk.start("run", run, "go") as process:
            until(lambda: text_of(desk.work / "started"), 25)
            child = int((desk.work / "started").read_text())
            (log,) = desk.logs()

            fork = forked(desk, log.stem)
            other = desk.pod("run", by_itself, "and you?", "--fork", log.stem)
            assert other.exit_code == 0, other.output

            os.kill(child, 0)  # it lives
            assert process.poll() is None
            (running,) = [info for info in listed(desk) if info["session_id"] == log.stem]
            assert running["writer"]["pid"] == process.pid
            (desk.work / "go").touch()
            out, err = process.communicate(timeout=15)
            assert process.returncode == 0, err

    assert out.decode().strip().endswith("done")
    store = FileSessionStore(desk.home)
    (result,) = [i for i in store.restore(log.stem).history if isinstance(i, ToolResult)]
    assert result.summary == "child alive: True, ended with 0"
    for known in {path.stem for path in desk.logs()} - {log.stem}:
        history = store.restore(known).history
        assert not open_calls(history)
        assert not any(isinstance(item, ToolResult) for item in history)

    assert told(store, fork) == ["go"]
    assert store.holder(fork) is None


@pytest.mark.anyio
async def test_h04_a_pod_that_is_asked_for_a_fork_finishes_what_it_is_at(home: Path) -> None:
    """H04: by the pod itself, in the middle of a tool; the fork begins when nothing is open."""
    arguments = json.dumps({"folder": str(home)})
    with serving(calling(("background", arguments))) as served:
        async with living(manifest(home, served.base_url, TOOL), home) as story:
            running = asyncio.create_task(story.pod.run("go"))
            await asyncio.to_thread(until, (home / "started").exists, 25)
            asking = asyncio.create_task(story.pod.fork())
            await asyncio.sleep(0.1)
            assert not running.done()
            (home / "go").touch()
            assert (await running).outcome == "finished"
            async with await asking as fork:
                assert fork.session_id != story.pod.session_id
                assert not open_calls(list(fork.history))
                assert fork.status().state == "idle"
                assert (await story.pod.run("still here?")).outcome == "finished"


def open_calls(history: list[Item]) -> set[str]:
    answered = {item.call_uid for item in history if isinstance(item, ToolResult)}
    made = {
        call.call_uid
        for item in history
        if isinstance(item, AssistantMessage)
        for call in item.tool_calls
    }
    return made - answered


def test_h07_a_fork_between_call_and_result_has_no_open_call(desk: Desk) -> None:
    """H07: at each entry of a run of two parallel calls: moved to before them, and said so."""
    arguments = json.dumps({"folder": str(desk.work)})
    (desk.work / "go").touch()
    calls = (("background", arguments), ("background", arguments.replace("}", " }")))
    with serving(calling(*calls)) as served:
        run = desk.manifest(served.base_url, TOOL)
        assert desk.pod("run", run, "first").exit_code == 0
        (log,) = desk.logs()
        store = FileSessionStore(desk.home)
        entries = audit(log)
        (asked,) = [e["seq"] for e in entries if "tool_call" in json.dumps(e.get("items"))]
        last = max(e["seq"] for e in entries if e["kind"] == "tool_results")
        assert last - asked >= 2
        for entry in entries:
            done = desk.pod("sessions", "fork", log.stem, "--at", entry["hash"], "--json")
            told_of = json.loads(done.stdout)
            is_between = asked <= entry["seq"] < last
            assert (told_of["moved"], bool(told_of["reason"])) == (is_between, is_between)
            history = store.restore(told_of["session_id"]).history
            assert not open_calls(history)
            if is_between:
                assert len(history) == 1

        said = desk.pod("sessions", "fork", log.stem, "--at", entries[asked]["hash"])
        assert "earlier than asked for: " in said.stderr
        child = said.stdout.split()[1].rstrip(",")
        again = desk.pod("run", run, "and now?", "--resume", child)
        assert again.exit_code == 0, again.output


# --- H08: the chosen one -------------------------------------------------------------------------


def test_h08_the_session_that_was_chosen_is_the_one_that_goes_on(desk: Desk) -> None:
    """H08: by its id or its beginning, each of three, whichever the pod was on or is the newest."""
    with serving(counting) as served:
        run = desk.manifest(served.base_url)
        sessions: list[Path] = []
        for name in ("oldest", "middle", "newest"):
            assert desk.pod("run", run, f"I am the {name}").exit_code == 0
            sessions += set(desk.logs()) - set(sessions)

        for chosen, name in zip(sessions, ("oldest", "middle", "newest"), strict=True):
            others = {path: path.read_bytes() for path in sessions if path != chosen}
            for wanted in (chosen.stem, chosen.stem[:-4]):
                done = desk.pod("run", run, "who are you?", "--resume", wanted)
                assert done.exit_code == 0, done.output
                sent = served.asked[-1].text
                assert f"I am the {name}" in sent
                assert sent.count("I am the") == 1
                assert {path: path.read_bytes() for path in others} == others
                assert pointer(desk.home) == chosen.stem

            assert desk.pod("run", run, "and you?", "--continue").exit_code == 0
            assert f"I am the {name}" in served.asked[-1].text, "the pod goes on where it was"
            assert desk.pod("sessions", "show", chosen.stem).output.count(f"I am the {name}") >= 1

        assert set(desk.logs()) == set(sessions)


# --- H09: what can be gone on with ---------------------------------------------------------------


@pytest.mark.timeout(60)  # as above
def test_h09_each_session_is_listed_as_what_it_is_and_refused_for_its_own_reason(
    desk: Desk,
) -> None:
    """H09: running, damaged, interrupted, orphaned, finished."""
    run, fine = talk(desk, 1)
    _, damaged = talk(desk, 2)
    lines = lines_of(damaged)
    put_lines(damaged, [*lines[:3], lines[3][:-10], *lines[4:]])
    _, cut_short = talk(desk, 2)
    put_lines(cut_short, lines_of(cut_short)[:-1])
    _, parent = talk(desk, 1)
    orphan = forked(desk, parent.stem)
    parent.unlink()
    _, interrupted = talk(desk, 1)
    put_lines(interrupted, lines_of(interrupted)[:-1])
    interrupted.with_suffix(".head").unlink()

    with a_run_at_work(desk) as (running, pid):
        by_id = {info["session_id"]: info for info in listed(desk)}
        assert set(by_id) == {
            fine.stem, damaged.stem, cut_short.stem, orphan, interrupted.stem, running.stem,
        }  # fmt: skip
        states = {
            known: (
                (info["writer"] or {}).get("pid"),
                info["interrupted"],
                info.get("damaged", "")[:8],
            )
            for known, info in by_id.items()
        }
        assert states == {
            fine.stem: (None, False, ""),
            damaged.stem: (None, False, "entry 3 "),
            cut_short.stem: (None, False, f"entry {2 * ENTRIES_A_RUN - 1} "[:8]),
            orphan: (None, False, "history "),
            interrupted.stem: (None, True, ""),
            running.stem: (pid, False, ""),
        }
        reasons = {
            running: (1, f"in use by pid {pid}"),
            damaged: (3, "is damaged: entry 3 "),
            cut_short: (3, f"is damaged: entry {2 * ENTRIES_A_RUN - 1} "),
            Path(orphan): (3, f"inherits from session {parent.stem}, which is not there"),
        }
        before = state(desk.home)
        for log, (code, reason) in reasons.items():
            done = desk.process("run", run, "more", "--resume", log.stem)
            assert done.returncode == code, done.stderr
            assert reason in done.stderr.decode()
            assert len(done.stderr.decode().strip().split("\n")) <= 3, "what, why, what to do"

        assert state(desk.home) == before

    for log in (fine, interrupted):
        assert desk.pod("run", run, "more", "--resume", log.stem).exit_code == 0


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def a_run_at_work(desk: Desk) -> Iterator[tuple[Path, int]]:
    """A run of another process whose tool has not ended."""
    known = set(desk.logs())
    arguments = json.dumps({"folder": str(desk.work)})
    with (
        serving(calling(("background", arguments))) as served,
        desk.start("run", desk.manifest(served.base_url, TOOL, "atwork"), "go") as process,
    ):
        until((desk.work / "started").exists, 25)
        (log,) = set(desk.logs()) - known
        yield log, process.pid
        (desk.work / "go").touch()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=15)


# --- H11, H12: what an engine sees after its session was left ------------------------------------

ENGINE = '''
import json
from pathlib import Path
from pod.context import ContextEngine

class Noter(ContextEngine):
    """Keeps what it is shown, once each by its identity, in its own file; cuts when it must."""

    @property
    def name(self):
        return "noter"

    def update_model(self, model, context_length, **kwargs):
        self.context_length = context_length

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or self.last_prompt_tokens) > {threshold}

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self._note(messages)
        head = {{"role": "user", "content": "SO FAR", "_compressed_summary": True}}
        return [head] + messages[-4:]

    def on_session_start(self, session_id, **kwargs):
        self._note(kwargs.get("messages") or [])

    def on_turn_complete(self, messages, *args, **kwargs):
        self._note(messages)

    def on_session_end(self, session_id, messages, **kwargs):
        self._note(messages)

    def _note(self, messages):
        path = Path({notes!r})
        known = json.loads(path.read_text()) if path.exists() else {{}}
        for message in messages:
            if message["role"] != "system" and message.get("message_uid"):
                known[message["message_uid"]] = message["content"]
        path.write_text(json.dumps(known))
'''


def noting(home: Path, threshold: int) -> tuple[str, Path]:
    """Install the engine; return the manifest's section and the file in which it keeps."""
    folder, notes = home / "plugins" / "noter", home / "notes.json"
    folder.mkdir(parents=True, mode=0o700)
    code = ENGINE.format(notes=str(notes), threshold=threshold)
    (folder / "__init__.py").write_text(code)
    (folder / "plugin.yaml").write_text("name: noter\nversion: 0.1.0\ndescription: notes\n")
    return '[context]\nengine = "noter"\n', notes


def at_length(_: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(1_500)}")


@pytest.mark.timeout(60)
@pytest.mark.anyio
@pytest.mark.parametrize("engine", ["noter", "compressor"])
@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "restarted each time"])
async def test_h11_after_a_compaction_everything_new_is_seen_and_it_is_compacted_again(
    home: Path, engine: str, *, restarts: bool
) -> None:
    """H11: 30 turns after the first one, in the session that it made."""
    extra, notes = noting(home, 5_000) if engine == "noter" else (COMPACT, home / "none")
    with serving(chat(at_length)) as served:
        path = manifest(home, served.base_url, extra)
        done: list[CompactionDone] = []
        turns, last, resume = 0, 60, None
        while turns < last:
            async with living(path, home, resume=resume) as story:
                seen = 0
                while turns < last:
                    turns += 1
                    await story.turns(f"TURN-{turns}")
                    new = story.of(CompactionDone)[seen:]
                    last = turns + 30 if new and not done else last
                    done, seen = done + new, seen + len(new)
                    if restarts:
                        break

                resume = story.pod.session_id

    assert len(done) >= 2
    assert len({one.new_session_id for one in done}) == len(done)
    store = FileSessionStore(home)
    assert all(report.ok for report in store.verify_all())
    said = [f"TURN-{n}" for n in range(1, turns + 1)]
    everything = {
        item["uid"]: item["parts"][0]["text"]
        for known in logs(home)
        for entry in log_of(home, known)
        for item in entry.get("items") or []
        if isinstance(entry.get("items"), list) and item["type"] == "user_message"
    }
    assert sorted(everything.values()) == sorted(said), "each once, none left out"
    if engine == "noter":
        assert everything.items() <= json.loads(notes.read_text()).items()


@pytest.mark.anyio
async def test_h12_equal_messages_are_neither_joined_nor_taken_in_again(home: Path) -> None:
    """H12: 200 of them; three restarts, each without and with the session being left."""
    extra, notes = noting(home, 10**9)
    store = a_store(home)
    with begun(store) as session:
        for _ in range(100):
            session.append_items("user_input", [user_message("ok")])
            session.append_items("assistant_items", [answer("ok")])
            session.append("run_outcome", outcome="finished", interrupted=False)

    session_id = session.session_id
    uids = {item.uid for item in store.restore(session_id).history}
    with serving(Say("ok")) as served:
        path = manifest(home, served.base_url, extra)
        sizes = []
        for _ in range(3):
            async with living(path, home, resume=session_id) as story:
                assert [item.uid for item in story.pod.history] == [
                    item.uid for item in store.restore(session_id).history
                ]
                assert len(story.pod.history) == 200

            # The first launch notes its own model and prompt down.
            sizes.append(store.layout.log(session_id).stat().st_size)
            assert set(sizes) == {sizes[0]}
            assert json.loads(notes.read_text()) == {}, "nothing was said: nothing is handed over"
            (info,) = store.sessions()
            assert (info.items, info.turns) == (200, 100)

        for number in range(1, 4):
            async with living(path, home, resume=session_id) as story:
                await story.turns("ok")

            assert len(store.restore(session_id).history) == 200 + 2 * number
            kept = json.loads(notes.read_text())
            assert len(kept) == 200 + 2 * number
            assert (uids <= set(kept), set(kept.values())) == (True, {"ok"})
