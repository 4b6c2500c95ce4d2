from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import MappingProxyType

import click
import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from pod.cli.main import COMMANDS, Known, LazyGroup, cli
from session_store import FileSessionStore
from tests.fake_provider import SUMMARY, Asked, Say, counting, serving
from tests.pod.desk import KEY, Desk, events, until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def names(done_stdout: str) -> list[str]:
    return [event["event"] for event in events(done_stdout)]


# --- the overview -------------------------------------------------------------------------------


def test_the_overview_says_of_each_command_what_the_command_says_of_itself(desk: Desk) -> None:
    context = cli.make_context("pod", ["run"], resilient_parsing=True)
    for name, known in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help is not None
        assert command.help.split("\n\n")[0].replace("\n", " ") == known.summary

    shown = desk.pod("--help").stdout
    assert all(name in shown for name in COMMANDS)


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(desk: Desk) -> None:
    done = desk.pod("rnu")
    assert done.exit_code == 2
    assert "did you mean run?" in done.stderr


def test_the_overview_is_there_at_once(desk: Desk) -> None:
    def processor_s(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=desk.work)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    empty = min(processor_s("-c", "pass") for _ in range(5))
    overview = min(processor_s("-c", "from pod.cli import main; main()", "-h") for _ in range(5))
    assert overview - empty < 0.150, "of processor time: the machine may be busy with other things"


def test_the_events_have_a_schema(desk: Desk) -> None:
    found = json.loads(desk.pod("protocol", "schema").stdout)["events"]
    assert {"run_start", "text_delta", "compaction_done", "lagged"} <= found.keys()
    assert "old_session_id" in found["compaction_done"]["properties"]


# --- what goes where ----------------------------------------------------------------------------


def test_stdout_carries_the_answer_and_nothing_else(desk: Desk) -> None:
    with serving(Say("Just the answer")) as served:
        done = desk.pod("run", desk.manifest(served.base_url), "what", "is", "it?")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "Just the answer\n", "")
    assert served.asked[0].body["messages"][-1]["content"] == "what is it?"


def test_several_answers_are_lines_of_their_own_and_tools_are_told_on_stderr(desk: Desk) -> None:
    desk.write(
        "run_tools.py",
        "def look(word: str) -> str:\n    'Look.'\n    print('NOISE')\n    return f'saw {word}'\n",
    )
    call = {"name": "look", "arguments": {"word": "pods"}}
    manifest = desk.scripted(
        {"text": "Let me look.", "tool_calls": [call]},
        {"text": "Done."},
        extra='[tools]\npython = ["run_tools:look"]\n',
    )
    done = desk.pod("run", manifest, "go")
    assert done.stdout == "Let me look.\nDone.\n"
    assert done.stderr == "NOISE\n  look: saw pods\n"


def test_what_a_tool_starts_cannot_print_between_the_events(desk: Desk) -> None:
    desk.write(
        "noisy_tools.py",
        "import subprocess\ndef shout() -> str:\n    'Shout.'\n"
        "    subprocess.run(['echo', 'NOISE'], check=True)\n    return 'shouted'\n",
    )
    manifest = desk.scripted(
        {"tool_calls": [{"name": "shout", "arguments": {}}]},
        {"text": "Done."},
        extra='[tools]\npython = ["noisy_tools:shout"]\n',
    )
    done = desk.process("run", manifest, "go", "--json")
    assert done.returncode == 0
    assert events(done.stdout)[-1]["event"] == "status"
    assert b"NOISE" in done.stderr


def test_events_are_printed_one_a_line_as_the_protocol_has_them(desk: Desk) -> None:
    done = desk.pod("run", desk.scripted({"text": "Hi", "deltas": ["H", "i"]}), "hello", "--json")
    assert done.exit_code == 0
    assert names(done.stdout) == snapshot(
        [
            "run_start",
            "status",
            "turn_start",
            "request_start",
            "text_delta",
            "text_delta",
            "text_done",
            "usage",
            "turn_end",
            "run_end",
            "status",
        ]
    )
    seqs = [event["seq"] for event in events(done.stdout)]
    assert seqs == sorted(set(seqs))
    assert done.stderr == ""


def test_the_closing_line_is_there_with_v_or_on_a_terminal(desk: Desk) -> None:
    usage = {"input_tokens": 84, "output_tokens": 41}
    done = desk.pod("run", desk.scripted({"text": "I am small.", "usage": usage}), "Who?", "-v")
    assert done.stdout == "I am small.\n"
    (log,) = desk.logs()
    closing = done.stderr.splitlines()[-1]
    assert closing.startswith("  scripted/scripted · 1 request · 84 tokens in, 41 out · ")
    assert closing.endswith(f" s · session {log.stem}")


def test_an_engine_that_is_not_there_is_told_without_being_asked(desk: Desk) -> None:
    manifest = desk.scripted({"text": "fine"}, extra='[context]\nengine = "missing"\n')
    done = desk.pod("run", manifest, "hi")
    assert (done.exit_code, done.stdout) == (0, "fine\n")
    assert "missing" in done.stderr
    assert "built-in compressor" in done.stderr


def test_where_nobody_is_there_to_ask_it_is_said_what_helps(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        calls = (("deploy", '{"where": "a"}'), ("deploy", '{"where": "b"}'))
        return Say("…", calls=calls) if n == 1 else Say("ok")

    tools = '[tools]\npython = ["tests.pod.asking_tools:deploy", "tests.pod.asking_tools:look"]\n'
    with serving(script) as served:
        extra = f'{tools}[permissions]\ntools = {{ deploy = "ask", look = "allow" }}\n'
        done = desk.pod("run", desk.manifest(served.base_url, extra), "go")
        read = served.asked[1].text

    helps = "  deploy: to be asked, run it without a prompt; or allow it in [permissions] tools"
    assert done.stderr.splitlines()[-1] == helps
    assert done.stderr.count("to be asked") == 1
    assert "nobody is there to ask" in read
    assert "without a prompt" not in read


def test_a_compaction_is_over_before_the_command_ends(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        return Say(SUMMARY) if asked.wants_summary else Say("word " * 3_000 if n == 1 else "ok")

    extra = "[compaction]\ncompact_threshold = 3000\ncompact_retained_turns = 1\n"
    with serving(script) as served:
        manifest = desk.manifest(served.base_url, extra)
        desk.pod("run", manifest, "one", "--set", "compaction.compact_threshold=50000")
        done = desk.pod("run", manifest, "two", "--continue")
        follow = desk.pod("run", manifest, "three", "--continue", "--json")

    assert (done.exit_code, done.stdout) == (0, "ok\n")
    first, second = done.stderr.splitlines()
    assert first.startswith("compacting ")
    assert first.endswith(" tokens (2 turns, keeping the last 1) ▸ summarizing …")
    old, new = (path.stem for path in desk.logs())
    assert second.startswith("compacted: ")
    assert second.endswith(f"new session {new} from {old} (pod sessions tree)")
    assert events(follow.stdout)[0]["data"]["session_id"] == new
    assert json.loads((desk.home / "pods" / "probe.json").read_text())["session_id"] == new


# --- the prompt ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [[""], ["  ", "\n"], ["\u200b\ufeff"], [], ["-"]])
def test_an_empty_prompt_is_refused_before_anything_happens(desk: Desk, prompt: list[str]) -> None:
    with serving(Say("no")) as served:
        done = desk.pod("run", desk.manifest(served.base_url), *prompt, stdin=" \n")

    assert done.exit_code == 2
    assert done.stderr.startswith("the prompt is empty\n  ")
    assert not served.asked
    assert not desk.logs()


@pytest.mark.parametrize(
    ("words", "stdin", "sent"),
    [
        ([], "from a pipe\n", "from a pipe"),
        (["-"], "two\nlines\n", "two\nlines"),
        (["Sum", "up:", "-"], "a text\n", "Sum up:\n\na text"),
        (["no", "reading"], "ignored", "no reading"),
        ([], b"\xff odd \xe4\xbd\xa0", "\ufffd odd 你"),
    ],
)
def test_the_prompt_is_what_was_typed_or_piped(
    desk: Desk, words: list[str], stdin: str | bytes, sent: str
) -> None:
    with serving(Say("ok")) as served:
        done = desk.pod("run", desk.manifest(served.base_url), *words, stdin=stdin)

    assert done.exit_code == 0, done.stderr
    assert served.asked[0].body["messages"][-1]["content"] == sent


def test_a_closed_stdin_is_an_empty_prompt(desk: Desk) -> None:
    script = f'exec "$@" <&-'  # noqa: F541  a shell's words
    command = ["sh", "-c", script, "sh", *desk.command("run", desk.scripted({"text": "no"}))]
    done = subprocess.run(
        command, cwd=desk.work, env=desk.environment(), capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"the prompt is empty")


def test_images_and_texts_can_be_attached(desk: Desk) -> None:
    desk.write("dot.png", PNG)
    desk.write("notes.txt", "\ufefffirst line\n")
    files = ["--attach", "dot.png", "--attach", "notes.txt"]
    with serving(Say("seen")) as served:
        done = desk.pod("run", desk.manifest(served.base_url), "look", *files)

    assert done.exit_code == 0, done.stderr
    content = served.asked[0].body["messages"][-1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "text"]
    assert content[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert content[2]["text"] == '<file name="notes.txt">\nfirst line\n</file>'


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "no such file"),
        (b"", "it is empty"),
        (b"\x7fELF\x00\x01\x02\xff", "neither an image nor text"),
        (b"a\x00b", "neither an image nor text"),
        (b"x" * 20_000_001, "larger than 20,000,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_sent_is_told_of(desk: Desk, data: bytes | None, why: str) -> None:
    if data is not None:
        desk.write("thing", data)

    done = desk.pod("run", desk.scripted({"text": "no"}), "look", "--attach", "thing")
    assert done.exit_code == 2
    assert done.stderr.startswith("cannot attach thing: ")
    assert why in done.stderr
    assert not desk.logs()


# --- which session ------------------------------------------------------------------------------


def test_continue_follows_the_pod_and_begins_where_there_is_nothing_yet(desk: Desk) -> None:
    with serving(counting) as served:
        manifest = desk.manifest(served.base_url)
        desk.pod("run", manifest, "one", "--continue")
        desk.pod("run", manifest, "two", "--continue")

    (_,) = desk.logs()
    said = [message["content"] for message in served.asked[1].body["messages"]]
    assert said[-3:] == ["one", "answer 1", "two"]


def test_resume_takes_the_beginning_of_an_id_and_fork_leaves_the_original_alone(desk: Desk) -> None:
    with serving(counting) as served:
        manifest = desk.manifest(served.base_url)
        desk.pod("run", manifest, "one")
        (log,) = desk.logs()
        assert desk.pod("run", manifest, "two", "--resume", log.stem[:13]).exit_code == 0
        before = log.read_bytes()
        assert desk.pod("run", manifest, "three", "--fork", log.stem).exit_code == 0
        pointer = json.loads((desk.home / "pods" / "probe.json").read_text())["session_id"]

    assert [m["content"] for m in served.asked[2].body["messages"]][-5:] == [
        "one",
        "answer 1",
        "two",
        "answer 2",
        "three",
    ]
    assert log.read_bytes() == before
    assert len(desk.logs()) == 2
    assert pointer == log.stem, "the pointer never moves to a fork"


def test_options_that_do_not_go_together_are_refused(desk: Desk) -> None:
    done = desk.pod("run", desk.scripted(), "hi", "--continue", "--resume", "0199f3a1")
    assert done.exit_code == 2
    assert "one of --resume, --continue and --fork" in done.stderr


def test_model_and_set_change_one_launch(desk: Desk) -> None:
    with serving(Say("ok")) as served:
        args = ["--model", 'odd "name"', "--set", "worker.max_tokens=7"]
        done = desk.pod("run", desk.manifest(served.base_url), "hi", *args)

    assert done.exit_code == 0, done.stderr
    body = served.asked[0].body
    assert body["model"] == 'odd "name"'
    assert 7 in (body.get("max_tokens"), body.get("max_completion_tokens"))


# --- when it goes wrong -------------------------------------------------------------------------


def test_a_refused_key_ends_with_4_and_names_its_variable(desk: Desk) -> None:
    with serving(Say(status=401, error="bad key")) as served:
        manifest = desk.manifest(served.base_url)
        done = desk.pod("run", manifest, "hi")
        as_json = desk.pod("run", manifest, "hi", "--json")

    assert done.exit_code == as_json.exit_code == 4
    assert done.stdout == ""
    assert "bad key" in done.stderr
    assert "FAKE_KEY" in done.stderr
    assert "Traceback" not in done.stderr
    assert KEY not in done.stderr + as_json.stdout
    end = next(e["data"] for e in events(as_json.stdout) if e["event"] == "run_end")
    assert (end["outcome"], end["error"]["code"]) == ("error", "refused")
    assert "bad key" in as_json.stderr


def test_an_unreachable_host_ends_with_1(desk: Desk) -> None:
    done = desk.pod("run", desk.manifest("http://127.0.0.1:9/v1"), "hi")
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.stderr


def test_a_limit_ends_with_1_and_says_which(desk: Desk) -> None:
    desk.write("loop_tools.py", "def again() -> str:\n    'Again.'\n    return 'once more'\n")
    call = {"tool_calls": [{"name": "again", "arguments": {}}]}
    extra = '[worker]\nmax_requests = 1\n[tools]\npython = ["loop_tools:again"]\n'
    done = desk.pod("run", desk.scripted(call, call, extra=extra), "go")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("limit reached: ")
    assert "1" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere.toml", "hi"], "cannot read nowhere.toml"),
        (["good.toml", "hi", "--set", "worker.max_tokns=5"], "max_tokens"),
        (["good.toml", "hi", "--resume", "../../etc/passwd"], "not a session id"),
        (["good.toml", "hi", "--fork", "0199f3a1"], "none begins so"),
        (["keyless.toml", "hi"], "no key for openai: the variable NO_SUCH_KEY is not set"),
        (["unbuilt.toml", "hi"], "not built in this version"),
        (["toolless.toml", "hi"], "no module named no_such_module"),
        (["model.toml", "hi"], "no model"),
        (["scriptless.toml", "hi"], "cannot be used"),
    ],
)
def test_wrong_use_and_wrong_manifests_end_with_2(desk: Desk, args: list[str], said: str) -> None:
    desk.scripted({"text": "no"}, name="good")
    desk.scripted(extra='[tools]\npython = ["no_such_module:f"]\n', name="toolless")
    desk.scripted(name="scriptless")
    (desk.work / "scriptless.jsonl").unlink()
    head = '[pod]\nname = "p"\n[provider]\nkind = '
    desk.write("keyless.toml", f'{head}"openai"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"\n')
    desk.write("unbuilt.toml", f'{head}"replay"\nscript = "r.jsonl"\n')
    desk.write("model.toml", f'{head}"local"\nmodel = "NoSuchModel"\n')
    done = desk.pod("run", *args)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not desk.logs()


def test_a_damaged_session_is_not_gone_on_with(desk: Desk) -> None:
    manifest = desk.scripted({"text": "first"})
    desk.pod("run", manifest, "one")
    (log,) = desk.logs()
    log.write_bytes(log.read_bytes().replace(b"first", b"wrong"))
    done = desk.pod("run", manifest, "two", "--resume", log.stem)
    assert done.exit_code == 3
    assert "is damaged: entry 2" in done.stderr


def test_a_session_in_use_names_its_holder_and_offers_a_fork(desk: Desk) -> None:
    manifest = desk.scripted({"text": "first"})
    desk.pod("run", manifest, "one")
    (log,) = desk.logs()
    with FileSessionStore(desk.home).open(log.stem):
        done = desk.process("run", manifest, "two", "--resume", log.stem)

    assert done.returncode == 1
    assert f"pid {os.getpid()}".encode() in done.stderr
    assert f"pod run {manifest} --fork {log.stem}".encode() in done.stderr


@click.command()
def broken() -> None:
    """Be broken."""
    raise ZeroDivisionError("an invariant that did not hold")


class Broken(LazyGroup):
    known = MappingProxyType({"broken": Known(f"{__name__}:broken", "Be broken.")})


@pytest.mark.parametrize("flags", [[], ["--debug"]])
def test_a_defect_says_so_and_shows_where_only_on_demand(flags: list[str]) -> None:
    done = CliRunner().invoke(Broken("pod", params=list(cli.params)), [*flags, "broken"])
    assert done.exit_code == 1
    assert "this is a defect of podworker: ZeroDivisionError: an invariant" in done.stderr
    assert ("Traceback" in done.stderr) == bool(flags)


def test_debug_shows_the_traceback_of_what_was_expected_too(desk: Desk) -> None:
    manifest = desk.manifest("http://127.0.0.1:9/v1")
    assert "Traceback" in desk.pod("run", manifest, "hi", "--debug").stderr
    assert "Traceback" in desk.pod("--debug", "run", manifest, "hi").stderr


# --- signals and pipes --------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_run_and_keeps_what_was_said(
    desk: Desk, number: int, code: int
) -> None:
    held = threading.Event()
    with serving(Say("one two three four five six", pieces=2, wait=held)) as served:
        with desk.start("run", desk.manifest(served.base_url), "hi") as process:
            assert process.stdout is not None
            first = os.read(process.stdout.fileno(), 100)
            process.send_signal(number)
            out, err = process.communicate(timeout=15)

        held.set()

    assert process.returncode == code
    assert first.startswith(b"one ")
    assert first + out == b"one two three \n"
    assert err == b"cancelled\n"
    (end,) = desk.entries("run_outcome")
    assert (end["outcome"], end["interrupted"]) == ("cancelled", True)
    (answer,) = desk.entries("assistant_items")
    assert answer["items"][0]["parts"][0]["text"] == "one two three "


def test_a_second_ctrl_c_ends_the_process_at_once(desk: Desk) -> None:
    desk.write(
        "stuck_tools.py",
        "import time\nasync def stuck() -> str:\n    'Wait.'\n    open('began', 'w').close()\n"
        "    time.sleep(15)\n    return 'late'\n",
    )
    call = {"tool_calls": [{"name": "stuck", "arguments": {}}]}
    manifest = desk.scripted(call, extra='[tools]\npython = ["stuck_tools:stuck"]\n')
    with desk.start("run", manifest, "go") as process:
        until((desk.work / "began").exists)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)

    assert process.returncode == 130
    assert time.monotonic() - began < 5
    assert b"Traceback" not in err


def test_ctrl_c_in_a_compaction_keeps_the_old_session(desk: Desk) -> None:
    held = threading.Event()

    def script(asked: Asked, n: int) -> Say:
        return Say(SUMMARY, wait=held) if asked.wants_summary else Say("word " * 1_500)

    extra = "[compaction]\ncompact_threshold = 2000\ncompact_retained_turns = 1\n"
    with serving(script) as served:
        manifest = desk.manifest(served.base_url, extra)
        desk.pod("run", manifest, "one", "--set", "compaction.compact_threshold=50000")
        with desk.start("run", manifest, "two", "--continue", "--json") as process:
            served.wait_for(3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=15)

        held.set()

    assert process.returncode == 130
    ended = [event["data"] for event in events(out) if event["event"] == "compaction_failed"]
    assert [end["reason"] for end in ended] == ["cancelled"]
    assert len(desk.logs()) == 1


def test_a_tool_that_failed_is_named_once(desk: Desk) -> None:
    desk.write("raising.py", "def boom() -> str:\n    'Go.'\n    raise ValueError('no luck')\n")
    answers = [{"tool_calls": [{"name": "boom", "arguments": {}}]}, {"text": "done"}]
    manifest = desk.scripted(*answers, extra='[tools]\npython = ["raising:boom"]\n')
    assert desk.pod("run", manifest, "go").stderr == "  boom failed: ValueError: no luck\n"


def test_nobody_reading_is_no_traceback(desk: Desk) -> None:
    many = [{"text": "x" * 20_000, "deltas": ["x" * 200] * 100}]
    with desk.start("run", desk.scripted(*many), "go") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        process.wait(timeout=10)

    assert process.returncode == 141
    assert err == b""


def test_a_listing_that_nobody_reads_ends_as_an_answer_does(desk: Desk) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        line = desk.command("engines", "list")
        done = subprocess.run(
            line,
            cwd=desk.work,
            env=desk.environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", [["run", "full.toml", "hi"], ["--help"]])
def test_a_full_disk_behind_stdout_is_told(desk: Desk, command: list[str]) -> None:
    desk.scripted({"text": "x"}, name="full")
    line = ["sh", "-c", 'exec "$@" > /dev/full', "sh", *desk.command(*command)]
    done = subprocess.run(
        line, cwd=desk.work, env=desk.environment(), stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 1
    assert done.stderr == b"cannot write the output: no space left on device\n"


def test_closed_streams_never_become_part_of_a_log(desk: Desk) -> None:
    desk.write(
        "rude_tools.py",
        "import os\ndef rude() -> str:\n    os.write(2, b'RUDE')\n    return 'ok'\n",
    )
    call = {"tool_calls": [{"name": "rude", "arguments": {}}]}
    extra = '[tools]\npython = ["rude_tools:rude"]\n'
    manifest = desk.scripted(call, {"text": "bye"}, extra=extra)
    line = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *desk.command("run", manifest, "hi")]
    done = subprocess.run(line, cwd=desk.work, env=desk.environment(), check=False)
    assert done.returncode == 0
    (log,) = desk.logs()
    assert b"RUDE" not in log.read_bytes()
    assert FileSessionStore(desk.home).verify(log.stem).ok


# --- other terminals ----------------------------------------------------------------------------


def test_a_terminal_without_utf_8_still_gets_its_lines(desk: Desk) -> None:
    manifest = desk.scripted({"text": "naïve → fine"})
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = desk.process("run", manifest, "hi", "-v", **env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"na\\xefve \\u2192 fine\n"
    assert b" - session " in done.stderr


def test_files_of_a_run_are_private(desk: Desk) -> None:
    desk.pod("run", desk.scripted({"text": "x"}), "hi")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in desk.home.rglob("*") if path.is_file()}
    assert modes == {0o600}
