from __future__ import annotations

import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fake_provider import SUMMARY, Asked, Say, serving
from tests.pod.desk import Desk, Terminal, until
from tests.pod.tui.glass import Glass

USAGE = {"input_tokens": 2_300, "output_tokens": 10}


@pytest.fixture
def desk(tmp_path: Path, home: Path) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    return Desk(work, home)


@contextmanager
def talk(
    desk: Desk, manifest: str, *args: str, columns: int = 80, rows: int = 24, **env: str
) -> Iterator[Glass]:
    """Talk to a pod, its prompt there already."""
    environment = desk.environment(TERM="xterm", LC_ALL="C.UTF-8", **env)
    command = desk.command("run", manifest, *args)
    with Glass(command, desk.work, environment, columns, rows) as glass:
        glass.see("/help")
        glass.prompt()
        yield glass


def said(desk: Desk) -> list[str]:
    """Return what the pod was asked, from the log."""
    return [item["parts"][0]["text"] for e in desk.entries("user_input") for item in e["items"]]


def wait_for_the_prompt_in_the_log(desk: Desk) -> None:
    until(lambda: desk.entries("user_input"))


# --- a conversation -----------------------------------------------------------------------------


def test_a_conversation_from_hello_to_goodbye(desk: Desk) -> None:
    answers = [{"text": "A chain of **hashes**.", "usage": USAGE}, {"text": "Trees."}]
    extra = "context_window = 8192\n[compaction]\ncompact_threshold = 3000\n"
    with talk(desk, desk.scripted(*answers, extra=extra)) as glass:
        glass.see("probe · scripted/scripted · window 8,192 · compact at 3,000 · /help")
        glass.enter("Explain hash chains")
        glass.see("> Explain hash chains")
        glass.see("A chain of hashes.")
        glass.see("▇")
        glass.see(" of 3,000 (window 8,192)")
        glass.prompt()
        glass.paste("And\nMerkle trees?")
        glass.enter("")
        glass.see("Trees.")
        glass.prompt()
        glass.type("\x04")
        assert glass.end() == 0

    assert said(desk) == ["Explain hash chains", "And\nMerkle trees?"]
    history = desk.home / "chat_history"
    assert "Explain hash chains" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    # What scrolled by stays, the region is gone, and the terminal is as it was.
    assert "(window 8,192)" not in "\n".join(glass.display)
    assert b"\x1b[?2004l" in glass.raw[-40:]
    assert b"\x1b[?25h" in glass.raw[-40:]


def test_lines_of_the_past_come_back_with_arrow_up(desk: Desk) -> None:
    manifest = desk.scripted({"text": "one"}, {"text": "two"})
    with talk(desk, manifest) as glass:
        glass.paste("first\nof two lines")
        glass.enter("")
        glass.see("one")
        glass.enter("/quit")
        assert glass.end() == 0

    with talk(desk, manifest) as glass:
        glass.type("\x1b[A")
        glass.see("> /quit")
        glass.type("\x1b[A")
        glass.see("of two lines")
        glass.enter("")
        glass.see("one")

    assert said(desk) == ["first\nof two lines", "first\nof two lines"]


def test_wide_characters_are_edited_where_they_are(desk: Desk) -> None:
    with talk(desk, desk.scripted({"text": "はい"})) as glass:
        glass.type("日本語x")
        glass.see("> 日本語x")
        glass.type("\x1b[D\x1b[D\x1b[D")  # before 本
        glass.type("!")
        glass.see("日!本語x")
        glass.type("\x7f\x7f")
        glass.see("> 本語x")
        glass.enter("")
        glass.see("はい")

    assert said(desk) == ["本語x"]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12), (20, 6)])
def test_it_fits_a_small_terminal(desk: Desk, columns: int, rows: int) -> None:
    long = "word " * 60
    answer = {"text": f"# Head\n\n{long}\n\n```python\n{'x' * 90}\n```\n"}
    with talk(desk, desk.scripted(answer), columns=columns, rows=rows) as glass:
        glass.enter("a question that is longer than the line of a narrow terminal " * 2)
        glass.see("xxxx")
        glass.prompt()
        glass.type("\x04")
        assert glass.end() == 0
        assert glass.everything.count("Head") == 1, "nothing is drawn twice"


def test_a_resize_in_the_middle_of_an_answer_leaves_a_sound_screen(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        return Say("one two three " * 40, pieces=30)

    with serving(script) as served, talk(desk, desk.manifest(served.base_url)) as glass:
        glass.enter("go")
        glass.resize(50, 12)
        glass.see("one two three")
        glass.prompt()
        glass.resize(100, 30)
        glass.enter("again")
        glass.see("one two three", times=20)
        glass.prompt()
        glass.settle()
        assert sum(" of 100,000" in line for line in glass.display) == 1


def test_without_colour_nothing_is_coloured(desk: Desk) -> None:
    manifest = desk.scripted({"text": "**bold** and `code`"}, {"text": "x"})
    with talk(desk, manifest, NO_COLOR="1") as glass:
        glass.enter("hi")
        glass.see("bold and code")
        glass.prompt()

    colours = [f"\x1b[{n}m".encode() for n in (31, 32, 33, 34, 35, 36)]
    assert not any(colour in glass.raw for colour in colours)
    assert b"\x1b[?1049h" not in glass.raw


def test_without_cursor_or_utf_8_it_is_plain(desk: Desk) -> None:
    env = desk.environment(TERM="dumb", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    manifest = desk.scripted({"text": "**bold** é", "reasoning": "hm"})
    with Terminal(desk.command("run", manifest), desk.work, env) as terminal:
        assert "-" in terminal.see("/help")
        terminal.see("> ")
        terminal.type("hi\r")
        terminal.see("**bold** \\xe9")
        terminal.see("[#")
        terminal.see("> ")
        terminal.type("/cost\r")
        terminal.see("1 request")
        terminal.see("> ")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_what_tools_print_scrolls_by(desk: Desk) -> None:
    desk.write(
        "loud.py",
        "import sys\ndef loud() -> str:\n    'Shout.'\n    print('from stdout')\n"
        "    print('from stderr \\x1b[2J', file=sys.stderr)\n    return 'said'\n",
    )
    call = {"tool_calls": [{"name": "loud", "arguments": {}}]}
    manifest = desk.scripted(call, {"text": "done"}, extra='[tools]\npython = ["loud:loud"]\n')
    with talk(desk, manifest) as glass:
        glass.enter("go")
        glass.see("from stdout")
        glass.see("from stderr \\x1b[2J")
        glass.see("✓ loud: said")
        glass.see("done")
        glass.prompt()


# --- stopping and leaving -----------------------------------------------------------------------


def test_ctrl_c_stops_the_answer_and_gives_the_prompt_back(desk: Desk) -> None:
    answers = [
        {"text": "late", "delay": 15, "match": "first"},
        {"text": "in time", "match": "second"},
    ]
    with talk(desk, desk.scripted(*answers)) as glass:
        glass.enter("first")
        wait_for_the_prompt_in_the_log(desk)
        glass.type("\x03")
        glass.see("stopped; what was said so far is kept")
        glass.prompt()
        glass.enter("second")
        glass.see("in time")
        until(lambda: len(desk.entries("run_outcome")) == 2)
        glass.settle(0.5)  # until then Ctrl-C would be about the run
        glass.type("half a li")
        glass.see("half a li")
        glass.type("\x03")
        glass.see("(Ctrl-C once more leaves)")
        glass.prompt()
        glass.type("\x03")
        assert glass.end() == 130

    assert [entry["outcome"] for entry in desk.entries("run_outcome")] == ["cancelled", "finished"]


def test_ctrl_c_gives_back_what_was_queued(desk: Desk) -> None:
    answers = [{"text": "late", "delay": 15, "match": "first"}, {"text": "then"}]
    with talk(desk, desk.scripted(*answers)) as glass:
        glass.enter("first")
        wait_for_the_prompt_in_the_log(desk)
        glass.enter("second")
        glass.see("queued: second")
        glass.type("\x03")
        glass.see("stopped;")
        glass.see("> second")
        glass.type(", edited\r")
        glass.see("then")

    assert said(desk) == ["first", "second, edited"]


def test_a_second_ctrl_c_leaves_in_the_middle_of_what_does_not_stop(desk: Desk) -> None:
    desk.write(
        "stuck_tools.py",
        "import time\nasync def stuck() -> str:\n    'Wait.'\n    open('began', 'w').close()\n"
        "    time.sleep(15)\n    return 'late'\n",
    )
    call = {"tool_calls": [{"name": "stuck", "arguments": {}}]}
    manifest = desk.scripted(call, extra='[tools]\npython = ["stuck_tools:stuck"]\n')
    with talk(desk, manifest) as glass:
        glass.enter("go")
        until((desk.work / "began").exists)
        glass.type("\x03")
        time.sleep(0.3)  # two signals that come before the first one was heard are one
        glass.type("\x03")
        assert glass.end() == 130
        assert b"\x1b[?2004l" in glass.raw[-40:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(desk: Desk, number: signal.Signals) -> None:
    with talk(desk, desk.scripted({"text": "late", "delay": 15})) as glass:
        glass.enter("first")
        wait_for_the_prompt_in_the_log(desk)
        glass.signal(number)
        assert glass.end() == 128 + number

    assert [entry["outcome"] for entry in desk.entries("run_outcome")] == ["cancelled"]


def test_a_terminal_that_goes_away_ends_it_in_order(desk: Desk) -> None:
    with talk(desk, desk.scripted({"text": "late", "delay": 15})) as glass:
        glass.enter("first")
        wait_for_the_prompt_in_the_log(desk)
        assert glass.hang_up() in {0, 129}

    assert [entry["outcome"] for entry in desk.entries("run_outcome")] == ["cancelled"]


def test_what_is_typed_while_it_answers_is_the_next_prompt(desk: Desk) -> None:
    answers = [{"text": "one", "delay": 1.0}, {"text": "two"}]
    with talk(desk, desk.scripted(*answers)) as glass:
        glass.enter("first")
        wait_for_the_prompt_in_the_log(desk)
        glass.enter("typed ahead")
        glass.see("queued: typed ahead")
        glass.enter("/status")  # at once
        glass.see("session     ")
        assert "> typed ahead" not in glass.everything
        glass.type("and more")
        glass.see("two")
        glass.see("> and more")
        glass.enter("\x15/quit")
        assert glass.end() == 0

    assert said(desk) == ["first", "typed ahead"]


# --- compaction ---------------------------------------------------------------------------------


def test_a_compaction_is_seen_and_nothing_typed_meanwhile_is_lost(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        if asked.wants_summary:
            time.sleep(1.5)
            return Say(SUMMARY)

        return Say("short") if "three" in asked.text else Say("word " * 1_500)

    extra = "[compaction]\ncompact_threshold = 3000\ncompact_retained_turns = 1\n"
    with serving(script) as served, talk(desk, desk.manifest(served.base_url, extra)) as glass:
        glass.enter("one")
        glass.see("> one")
        glass.enter("two")
        glass.see("keeping the last 1) ▸ summarizing …", 15)
        glass.enter("three")
        glass.see("queued: three")
        glass.type("fo")
        glass.see("compacted: ", 15)
        glass.see("short")
        glass.type("ur\r")
        glass.see("> four")
        glass.prompt()
        glass.enter("/compact the names")
        glass.see("compacted: ", times=2)
        glass.enter("/status")
        glass.see("at 3,000 tokens; 2 so far")
        glass.type("\x04")
        assert glass.end() == 0

    texts = said(desk)
    assert [text for text in texts if text in {"one", "two", "three", "four"}] == [
        "one",
        "two",
        "three",
        "four",
    ]
    assert len(desk.logs()) == 3, "each compaction goes on in a session of its own"


def test_ctrl_c_stops_a_compaction(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        if asked.wants_summary:
            time.sleep(3)
            return Say(SUMMARY)

        return Say("word " * 1_500)

    extra = "[compaction]\ncompact_threshold = 90000\ncompact_retained_turns = 1\n"
    with serving(script) as served, talk(desk, desk.manifest(served.base_url, extra)) as glass:
        for text in ("one", "two"):
            glass.enter(text)
            glass.see(f"> {text}")
            glass.prompt()

        glass.enter("/compress names")
        glass.see("▸ summarizing …")
        glass.type("\x03")
        glass.see("compaction cancelled; the history is unchanged")
        glass.prompt()

    assert len(desk.logs()) == 1


# --- commands -----------------------------------------------------------------------------------


def test_commands(desk: Desk) -> None:
    answers = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    with talk(desk, desk.scripted(*answers)) as glass:
        glass.enter("hello")
        glass.see("one")
        for line, shown in (
            ("/nwe", "did you mean /new?"),
            ("/compact", "nothing to compact"),
            ("/rewind", "there is nothing to go back to"),
            ("/engine", "compressor; `pod engines list`"),
            ("/cost", "no price is known"),
            ("/model", "scripted/scripted; /model NAME"),
            ("/sessions", '"hello"'),
            ("/help", "Ctrl-C stops an answer"),
            ("/verbose", "verbose is on"),
            ("/approve", "no call waits for a decision"),
            ("/model other", "probe · scripted/other"),
            ("/fork", "forked from"),
            ("/new", "new session"),
            (" /not a command", "> /not a command"),
        ):
            glass.prompt()
            glass.enter(line)
            glass.see(shown)

        glass.prompt()
        glass.enter("/quit")
        assert glass.end() == 0

    assert len(desk.logs()) == 3


def test_going_back_in_a_conversation(desk: Desk) -> None:
    answers = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    with talk(desk, desk.scripted(*answers)) as glass:
        for line, shown in (("first question", "one"), ("second question", "two")):
            glass.enter(line)
            glass.see(shown)
            glass.prompt()

        until(lambda: len(desk.entries("run_outcome")) == 2)
        (first, _) = (entry["hash"] for entry in desk.entries("run_outcome"))
        for line, shown in (
            ("/rewind", f'{first[:12]}  after "first question"'),
            ("/rewind 00000000", "has no entry"),
            (f"/rewind {first[:12]}", "1 turn so far"),
            ("another way", "three"),
        ):
            glass.enter(line)
            glass.see(shown)
            glass.prompt()

        glass.enter("/quit")
        assert glass.end() == 0

    assert len(desk.logs()) == 2


def test_a_conversation_that_is_gone_on_with_shows_where_it_was(desk: Desk) -> None:
    manifest = desk.scripted({"text": "It is blue."}, {"text": "Red."})
    with talk(desk, manifest) as glass:
        glass.enter("Which colour?")
        glass.see("It is blue.")
        glass.enter("/quit")
        assert glass.end() == 0

    with talk(desk, manifest, "--continue") as glass:
        glass.see("1 turn so far")
        glass.see("> Which colour?")
        glass.see("It is blue.")


def test_a_refused_key_does_not_end_the_conversation(desk: Desk) -> None:
    answers = [{"error": {"status": 401, "message": "bad key"}}, {"text": "now"}]
    with talk(desk, desk.scripted(*answers)) as glass:
        glass.enter("hi")
        glass.see("bad key")
        glass.prompt()
        glass.enter("again")
        glass.see("now")
        glass.prompt()

    assert said(desk) == ["hi", "again"]


# --- approvals ----------------------------------------------------------------------------------

_DEPLOY = (
    "def deploy(where: str, how: str = '') -> str:\n    'Deploy.'\n"
    "    open('deployed', 'a').write(where + '\\n')\n    return 'deployed to ' + where\n"
)


def asking(desk: Desk, *arguments: dict[str, str]) -> str:
    """Write a manifest whose tool has to be allowed, called once an answer."""
    desk.write("deploying.py", _DEPLOY)
    calls = [{"tool_calls": [{"name": "deploy", "arguments": each}]} for each in arguments]
    extra = '[tools]\npython = ["deploying:deploy"]\n[permissions]\ntools = { deploy = "ask" }\n'
    return desk.scripted(*calls, {"text": "over"}, extra=extra)


def deployed(desk: Desk) -> list[str]:
    file = desk.work / "deployed"
    return file.read_text().split() if file.exists() else []


def test_a_call_is_asked_about_and_shown_whole(desk: Desk) -> None:
    tricky = {"where": "本番\u202e\u200b", "how": "line one\n\x1b[2Jline two"}
    with talk(desk, asking(desk, tricky)) as glass:
        glass.enter("go")
        glass.see("? deploy")
        glass.see('where: "本番\\u202e\\u200b"')
        glass.see("│ \\x1b[2Jline two")
        glass.see("y once · s for this session · n deny")
        assert deployed(desk) == []
        time.sleep(0.8)  # a key that comes at once might be meant for something else
        glass.type("y")
        glass.see("deploy allowed by ")
        glass.see("over")
        glass.prompt()

    assert len(deployed(desk)) == 1
    (entry,) = desk.entries("approval")
    assert (entry["decision"], entry["scope"]) == ("allow", "once")


def test_a_call_can_be_denied_and_a_tool_allowed_for_the_session(desk: Desk) -> None:
    places = [{"where": name} for name in ("a", "b", "c")]
    with talk(desk, asking(desk, *places)) as glass:
        glass.enter("go")
        glass.see('allow deploy where="a"?')
        time.sleep(0.8)
        glass.enter("n")
        glass.see("deploy denied by ")
        glass.see('allow deploy where="b"?')
        time.sleep(0.8)
        glass.enter("/approve session")
        glass.see("deploy allowed for this session by ")
        glass.see("over")
        glass.prompt()

    assert deployed(desk) == ["b", "c"]


def test_on_a_plain_terminal_each_call_is_asked_about_by_itself(desk: Desk) -> None:
    calls = [{"name": "deploy", "arguments": {"where": where}} for where in ("a", "b")]
    manifest = asking(desk, {"where": "unused"})
    desk.scripted({"tool_calls": calls}, {"text": "over"}, extra=extra_of(desk, manifest))
    env = desk.environment(TERM="dumb", LC_ALL="C.UTF-8")
    with Terminal(desk.command("run", manifest), desk.work, env) as terminal:
        terminal.see("> ")
        terminal.type("go\r")
        terminal.see('where: "b"')
        terminal.see('allow deploy where="a"?')
        time.sleep(0.8)
        terminal.type("n\r")
        terminal.see('allow deploy where="b"?')
        time.sleep(0.8)
        terminal.type("y\r")
        terminal.see("over")
        terminal.see("> ")
        terminal.type("\x04")
        assert terminal.end() == 0

    assert deployed(desk) == ["b"]


def extra_of(desk: Desk, manifest: str) -> str:
    """Return what a manifest has besides its provider."""
    _, _, extra = (desk.work / manifest).read_text().partition("[tools]")
    return f"[tools]{extra}"


def test_a_letter_of_what_is_being_typed_answers_nothing(desk: Desk) -> None:
    with talk(desk, asking(desk, {"where": "a"})) as glass:
        glass.enter("go")
        glass.type("maybe ")
        glass.see("allow deploy")
        time.sleep(0.8)
        glass.type("yes sir")
        glass.see("> maybe yes sir")
        glass.settle()
        assert deployed(desk) == []
        glass.type("\x15")
        glass.prompt()
        glass.type("n")
        glass.see("deploy denied by ")
        glass.see("over")


# --- where it cannot be -------------------------------------------------------------------------


def test_json_and_files_need_a_prompt_on_a_terminal(desk: Desk) -> None:
    environment = desk.environment(TERM="xterm", LC_ALL="C.UTF-8")
    command = desk.command("run", desk.scripted({"text": "x"}), "--json")
    with Glass(command, desk.work, environment) as glass:
        glass.see("--json needs a PROMPT")
        assert glass.end() == 2
