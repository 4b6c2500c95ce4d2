from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.fake_provider import SUMMARY, Asked, Say, serving
from tests.pod.desk import Desk

COMPACT = "[compaction]\ncompact_threshold = 50000\ncompact_retained_turns = 2\n"


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def talking(asked: Asked, n: int) -> Say:
    return Say(SUMMARY) if asked.wants_summary else Say("word " * 800)


def grown(desk: Desk, manifest: str, turns: int) -> str:
    """A session of so many turns; returns its id."""
    for turn in range(turns):
        done = desk.pod("run", manifest, f"question {turn + 1}", "--continue")
        assert done.exit_code == 0, done.stderr

    (log,) = desk.logs()
    return log.stem


def everything(desk: Desk) -> dict[Path, bytes]:
    """What is stored. The index is a cache, and a lock file holds nothing."""
    kept = (path for path in desk.home.rglob("*") if path.suffix in {".jsonl", ".head", ".json"})
    return {path: path.read_bytes() for path in kept}


def test_a_session_is_compacted_into_a_new_one_that_the_pod_goes_on_with(desk: Desk) -> None:
    with serving(talking) as served:
        manifest = desk.manifest(served.base_url, COMPACT)
        session = grown(desk, manifest, 4)
        args = ["--manifest", manifest, "--focus", "the focus"]
        done = desk.pod("sessions", "compact", session[:13], *args)

    assert done.exit_code == 0, done.stderr
    (new,) = (log.stem for log in desk.logs() if log.stem != session)
    assert done.stdout.startswith("compacted: ")
    assert done.stdout.endswith(f"new session {new} from {session} (pod sessions tree)\n")
    assert done.stderr.startswith("compacting ")
    asked = [one for one in served.asked if one.wants_summary]
    assert len(asked) == 1
    assert "the focus" in asked[0].text
    assert "question 1" in asked[0].text
    assert "question 4" not in asked[0].text
    assert json.loads((desk.home / "pods" / "probe.json").read_text())["session_id"] == new


def test_json_is_the_data_of_the_event_and_null_where_there_is_nothing_to_cut(desk: Desk) -> None:
    with serving(talking) as served:
        manifest = desk.manifest(served.base_url, COMPACT)
        session = grown(desk, manifest, 1)
        args = ["sessions", "compact", session, "--manifest", manifest, "--json"]
        nothing = desk.pod(*args)
        assert (nothing.exit_code, nothing.stdout) == (0, "null\n")
        assert desk.pod(*args, "--dry-run").stdout == "null\n"
        grown(desk, manifest, 3)
        done = desk.pod(*args)

    data = json.loads(done.stdout)
    assert done.stderr == ""
    assert data["old_session_id"] == session
    assert data["compacted_from"][0] == session
    assert data["tokens_after"] < data["tokens_before"]
    assert (data["trigger"], data["method"], data["generation"]) == ("manual", "summary", 1)


def test_a_failure_is_told_and_leaves_everything_as_it_was(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        return Say("I can't help with that.") if asked.wants_summary else talking(asked, n)

    with serving(script) as served:
        manifest = desk.manifest(served.base_url, COMPACT)
        session = grown(desk, manifest, 4)
        done = desk.pod("sessions", "compact", session, "--manifest", manifest, "--json")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("compaction failed (1 of 3): ")
    assert "the history is unchanged" in done.stderr
    assert len(desk.logs()) == 1


def test_ctrl_c_keeps_the_old_session(desk: Desk) -> None:
    held = threading.Event()

    def script(asked: Asked, n: int) -> Say:
        return Say(SUMMARY, wait=held) if asked.wants_summary else talking(asked, n)

    with serving(script) as served:
        manifest = desk.manifest(served.base_url, COMPACT)
        session = grown(desk, manifest, 4)
        with desk.start("sessions", "compact", session, "--manifest", manifest) as process:
            served.wait_for(5)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=15)

        held.set()

    assert process.returncode == 130
    assert out == b""
    assert err.endswith(b"compaction cancelled; the history is unchanged\n")
    assert len(desk.logs()) == 1


def test_a_dry_run_foretells_what_is_done_and_does_nothing(desk: Desk) -> None:
    with serving(talking) as served:
        manifest = desk.manifest(served.base_url, COMPACT)
        session = grown(desk, manifest, 4)
        args = ["sessions", "compact", session, "--manifest", manifest]
        before, asked = everything(desk), len(served.asked)
        text, as_json = desk.pod(*args, "--dry-run"), desk.pod(*args, "--dry-run", "--json")
        assert everything(desk) == before
        assert len(served.asked) == asked
        done = json.loads(desk.pod(*args, "--json").stdout)

    seen = json.loads(as_json.stdout)
    assert text.stdout == (
        f"would summarize turns 1–2 ({seen['covered_tokens']:,} tokens), "
        f"keep 2 turns ({seen['kept_tokens']:,}): about {seen['tokens_after']:,} after\n"
    )
    assert seen["tokens_before"] == done["tokens_before"], "the estimate is that of compaction"
    assert abs(seen["tokens_after"] - done["tokens_after"]) < 500
    assert (seen["covered_items"], seen["is_possible"]) == (4, True)


def test_a_dry_run_foretells_a_tail_that_must_be_short_beside_a_long_system_prompt(
    desk: Desk,
) -> None:
    def script(asked: Asked, n: int) -> Say:
        return Say(SUMMARY if asked.wants_summary else "word " * 100)

    with serving(script) as served:
        long_prompt = f'[worker]\nsystem_prompt = "{"s" * 5_000}"\n'
        manifest = desk.manifest(served.base_url, COMPACT + long_prompt)
        session = grown(desk, manifest, 4)
        set_to = ["--set", "compaction.compact_threshold=2000"]
        args = ["sessions", "compact", session, "--manifest", manifest, *set_to, "--json"]
        seen = json.loads(desk.pod(*args, "--dry-run").stdout)
        done = json.loads(desk.pod(*args).stdout)

    assert seen["is_possible"]
    assert seen["covered_items"] == done["items_before"] - done["items_after"] + 1
    assert seen["covered_items"] > 4, "the two turns of the manifest would be too much"


def test_a_dry_run_needs_no_key(desk: Desk) -> None:
    with serving(talking) as served:
        manifest = desk.manifest(served.base_url, COMPACT)
        session = grown(desk, manifest, 4)

    args = ["sessions", "compact", session, "--manifest", manifest]
    assert desk.pod(*args, "--dry-run", FAKE_KEY="").exit_code == 0
    refused = desk.pod(*args, FAKE_KEY="")
    assert refused.exit_code == 2
    assert "FAKE_KEY is not set" in refused.stderr


def test_one_long_turn_is_cut_within(desk: Desk) -> None:
    desk.write(
        "big_tools.py",
        "from worker import ToolOutput\ndef big() -> ToolOutput:\n    'Much.'\n"
        "    return ToolOutput(summary='much', content='x' * 20000)\n",
    )

    def script(asked: Asked, n: int) -> Say:
        return Say(calls=(("big", "{}"),)) if n <= 4 else Say("done")

    extra = '[tools]\npython = ["big_tools:big"]\n' + COMPACT
    with serving(script) as served:
        manifest = desk.manifest(served.base_url, extra)
        session = grown(desk, manifest, 1)
        args = ["sessions", "compact", session, "--manifest", manifest, "--dry-run"]
        done = desk.pod(*args)

    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("would summarize turn 1, in part (")
    assert ", keep 1 turn (" in done.stdout


def test_what_cannot_be_compacted_is_told_with_its_sizes(desk: Desk) -> None:
    with serving(talking) as served:
        long_prompt = f'[worker]\nsystem_prompt = "{"s" * 9_000}"\n'
        manifest = desk.manifest(served.base_url, COMPACT + long_prompt)
        session = grown(desk, manifest, 4)
        args = ["--manifest", manifest, "--set", "compaction.compact_threshold=1000"]
        foretold = desk.pod("sessions", "compact", session, *args, "--dry-run")
        done = desk.pod("sessions", "compact", session, *args)

    assert foretold.exit_code == done.exit_code == 1
    what, sizes, advice = foretold.stderr.splitlines()
    assert what.startswith("cannot compact below 1,000 tokens: what must stay is ")
    assert sizes.startswith("  system prompt ")
    assert advice == "  raise compact_threshold, or shorten the largest of these"
    assert done.stderr.splitlines()[-3:] == [what, sizes, advice]


@pytest.mark.parametrize(
    ("session", "more", "code", "said"),
    [
        ("../up", [], 2, "not a session id"),
        ("0199f3a1", [], 2, "none begins so"),
        (None, ["--set", "context.engine=other", "--dry-run"], 2, "decides by itself"),
        (None, ["--set", "nonsense"], 2, "KEY=VALUE"),
    ],
)
def test_wrong_use(desk: Desk, session: str | None, more: list[str], code: int, said: str) -> None:
    manifest = desk.scripted({"text": "x"})
    real = grown(desk, manifest, 1)
    done = desk.pod("sessions", "compact", session or real, "--manifest", manifest, *more)
    assert done.exit_code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
