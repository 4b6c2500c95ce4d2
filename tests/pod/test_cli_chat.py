from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from pod.cli.chat_view import status_lines
from pod.cli.gauge import gauge
from pod.cli.markdown_stream import finished_blocks
from pod.pod import PodStatus
from tests.fake_provider import SUMMARY, Asked, Say, serving
from tests.pod.desk import Desk, Terminal, until

USAGE = {"input_tokens": 2_300, "output_tokens": 10}


@pytest.fixture
def desk(tmp_path: Path, home: Path) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    return Desk(work, home)


def talk(desk: Desk, manifest: str, *args: str, **env: str) -> Terminal:
    environment = desk.environment(TERM="xterm", LC_ALL="C.UTF-8", **env)
    return Terminal(desk.command("run", manifest, *args), desk.work, environment)


def test_a_conversation_from_hello_to_goodbye(desk: Desk) -> None:
    answers = [{"text": "A chain of **hashes**.", "usage": USAGE}, {"text": "Trees."}]
    extra = "context_window = 8192\n[compaction]\ncompact_threshold = 3000\n"
    with talk(desk, desk.scripted(*answers, extra=extra)) as terminal:
        terminal.see("probe · scripted/scripted · window 8,192 · compact at 3,000 · /help")
        terminal.see("> ")
        terminal.type("Explain hash chains\r")
        terminal.see("A chain of hashes.")
        terminal.see("▇")
        terminal.see(" of 3,000 (window 8,192)")
        terminal.see("> ")
        terminal.type("\x1b[200~And\nMerkle trees?\x1b[201~\r")
        terminal.see("Trees.")
        terminal.see("> ")
        terminal.type("\x04")
        assert terminal.end() == 0

    said = [item["parts"][0]["text"] for e in desk.entries("user_input") for item in e["items"]]
    assert said == ["Explain hash chains", "And\nMerkle trees?"]
    history = desk.home / "chat_history"
    assert "Explain hash chains" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_ctrl_c_stops_the_answer_and_gives_the_prompt_back(desk: Desk) -> None:
    answers = [
        {"text": "late", "delay": 15, "match": "first"},
        {"text": "in time", "match": "second"},
    ]
    with talk(desk, desk.scripted(*answers)) as terminal:
        terminal.see("> ")
        terminal.type("first\r")
        terminal.see("first")
        wait_for_the_prompt_in_the_log(desk)
        terminal.type("\x03")
        terminal.see("stopped; what was said so far is kept")
        terminal.see("> ")
        terminal.type("second\r")
        terminal.see("in time")
        terminal.see("> ")
        terminal.type("half a li")
        terminal.see("half a li")
        # A signal in the very moment in which readline goes to sleep is heard with the next key
        # only (CPython's input does so); no person is that quick.
        time.sleep(0.5)
        terminal.type("\x03")
        terminal.see("(Ctrl-C once more leaves)")
        terminal.see("> ")
        assert terminal.end_by("\x03") == 130

    assert [entry["outcome"] for entry in desk.entries("run_outcome")] == ["cancelled", "finished"]


def wait_for_the_prompt_in_the_log(desk: Desk) -> None:
    until(lambda: desk.entries("user_input"))


def test_a_second_ctrl_c_leaves_in_the_middle_of_what_does_not_stop(desk: Desk) -> None:
    desk.write(
        "stuck_tools.py",
        "import time\nasync def stuck() -> str:\n    'Wait.'\n    open('began', 'w').close()\n"
        "    time.sleep(15)\n    return 'late'\n",
    )
    call = {"tool_calls": [{"name": "stuck", "arguments": {}}]}
    manifest = desk.scripted(call, extra='[tools]\npython = ["stuck_tools:stuck"]\n')
    with talk(desk, manifest) as terminal:
        terminal.see("> ")
        terminal.type("go\r")
        until((desk.work / "began").exists)
        terminal.type("\x03")
        terminal.see("^C")
        assert terminal.end_by("\x03") == 130


def test_what_is_typed_while_it_answers_is_the_next_prompt(desk: Desk) -> None:
    answers = [{"text": "one", "delay": 1.0}, {"text": "two"}]
    with talk(desk, desk.scripted(*answers)) as terminal:
        terminal.see("> ")
        terminal.type("first\r")
        wait_for_the_prompt_in_the_log(desk)
        terminal.type("typed ahead\r")
        terminal.see("one")
        terminal.see("two")
        terminal.see("> ")
        terminal.type("/quit\r")
        assert terminal.end() == 0

    said = [item["parts"][0]["text"] for e in desk.entries("user_input") for item in e["items"]]
    assert said == ["first", "typed ahead"]


def test_a_compaction_is_seen_and_the_conversation_goes_on(desk: Desk) -> None:
    def script(asked: Asked, n: int) -> Say:
        return Say(SUMMARY) if asked.wants_summary else Say("word " * 1_500)

    extra = "[compaction]\ncompact_threshold = 3000\ncompact_retained_turns = 1\n"
    with (
        serving(script) as served,
        talk(desk, desk.manifest(served.base_url, extra)) as terminal,
    ):
        for text in ("one\r", "two\r"):
            terminal.see("> ")
            terminal.type(text)

        terminal.see("keeping the last 1) ▸ summarizing …")
        terminal.see("compacted: ", 15)
        terminal.see("> ")
        terminal.type("/compact the names\r")
        terminal.see("> ")
        terminal.type("/status\r")
        terminal.see("at 3,000 tokens; ")
        terminal.see("> ")
        terminal.type("\x04")
        assert terminal.end() == 0

    assert len(desk.logs()) >= 2


def test_commands(desk: Desk) -> None:
    answers = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    with talk(desk, desk.scripted(*answers)) as terminal:
        terminal.see("> ")
        terminal.type("hello\r")
        terminal.see("one")
        for line, said in (
            ("/nwe", "did you mean /new?"),
            ("/compact", "nothing to compact"),
            ("/rewind", "there is nothing to go back to"),
            ("/engine", "compressor"),
            ("/cost", "no price is known"),
            ("/model", "scripted/scripted"),
            ("/sessions", "hello"),
            ("/help", "Ctrl-C stops an answer"),
            ("/model other", "probe · scripted/other"),
            ("/fork", "forked from"),
            ("/new", "new session"),
            (" /not a command", "one"),
        ):
            terminal.see("> ")
            terminal.type(f"{line}\r")
            terminal.see(said)

        terminal.see("> ")
        terminal.type("/quit\r")
        assert terminal.end() == 0

    assert len(desk.logs()) == 3


def test_without_colour_cursor_or_utf_8_it_is_plain(desk: Desk) -> None:
    env = desk.environment(TERM="dumb", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    manifest = desk.scripted({"text": "**bold** é"})
    with Terminal(desk.command("run", manifest), desk.work, env) as terminal:
        assert "-" in terminal.see("/help")
        terminal.see("> ")
        terminal.type("hi\r")
        terminal.see("**bold** \\xe9")
        terminal.see("[#")
        terminal.see("> ")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_a_refused_key_does_not_end_the_conversation(desk: Desk) -> None:
    answers = [{"error": {"status": 401, "message": "bad key"}}, {"text": "now"}]
    with talk(desk, desk.scripted(*answers)) as terminal:
        terminal.see("> ")
        terminal.type("hi\r")
        terminal.see("bad key")
        terminal.see("> ")
        terminal.type("again\r")
        terminal.see("now")
        terminal.see("> ")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_json_and_files_need_a_prompt_on_a_terminal(desk: Desk) -> None:
    with talk(desk, desk.scripted({"text": "x"}), "--json") as terminal:
        terminal.see("--json needs a PROMPT")
        assert terminal.end() == 2


# --- pure parts ---------------------------------------------------------------------------------


def status(occupancy: int, **changes: object) -> PodStatus:
    values: dict[str, object] = {
        "name": "p",
        "state": "idle",
        "session_id": "s",
        "provider": "p",
        "model": "m",
        "engine": "compressor",
        "history_len": 2,
        "turns": 1,
        "watermark": 0,
        "occupancy": occupancy,
        "occupancy_source": "measured",
        "window": 8_192,
        "compact_threshold": 3_000,
        "request_threshold": None,
        "compaction_failures": 0,
        "compaction_disabled": False,
        "generation": 0,
    }
    return PodStatus(**{**values, **changes})  # type: ignore[arg-type]  # values by name


def test_status_counts_one_turn_as_one() -> None:
    assert "context     40 tokens (measured), 2 items, 1 turn" in status_lines(status(40))


@pytest.mark.parametrize(
    ("shown", "drawn"),
    [
        (status(2_310), "▏▇▇▇▇▇▇▇░░│░░░░░░░░░░░░░░ 2,310 of 3,000 (window 8,192)"),
        (status(0), "▏░░░░░░░░░│░░░░░░░░░░░░░░ 0 of 3,000 (window 8,192)"),
        (status(9_000), "▏▇▇▇▇▇▇▇▇▇│▇▇▇▇▇▇▇▇▇▇▇▇▇▇ 9,000 of 3,000 (window 8,192)"),
        (status(100, compact_threshold=None), "▏▇" + "░" * 22 + " 100 of 8,192"),
        (status(100, compaction_disabled=True), "▏▇" + "░" * 22 + " 100 of 8,192"),
        (status(1_500, window=None), "▏" + "▇" * 12 + "░" * 11 + " 1,500 of 3,000"),
        (status(5, window=None, compact_threshold=None), "5 tokens"),
        (
            status(5, occupancy_source="guessed", window=None, compact_threshold=None),
            "about 5 tokens",
        ),
    ],
)
def test_the_gauge_shows_how_full_the_window_is(shown: PodStatus, drawn: str) -> None:
    assert gauge(shown) == drawn
    assert gauge(shown, in_ascii=True).isascii()


@pytest.mark.parametrize(
    ("text", "blocks", "rest"),
    [
        ("one", [], "one"),
        ("one\n\n", [], "one\n\n"),
        ("one\n\ntwo\n", ["one\n\n"], "two\n"),
        ("one\n\ntwo", [], "one\n\ntwo"),
        ("- a\n\n- b\n\ntext\n", ["- a\n\n- b\n\n"], "text\n"),
        ("- a\n\n  more\n\ntext\n", ["- a\n\n  more\n\n"], "text\n"),
        ("```\na\n\nb\n```\n\ntext\n", ["```\na\n\nb\n```\n\n"], "text\n"),
        ("````\n```\n\nb\n", [], "````\n```\n\nb\n"),
        ("", [], ""),
    ],
)
def test_a_block_is_finished_when_nothing_later_can_change_it(
    text: str, blocks: list[str], rest: str
) -> None:
    assert finished_blocks(text) == (blocks, rest)
    assert "".join(blocks) + rest == text


def test_going_back_in_a_conversation(desk: Desk) -> None:
    answers = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    with talk(desk, desk.scripted(*answers)) as terminal:
        for line, said in (("first question", "one"), ("second question", "two")):
            terminal.see("> ")
            terminal.type(f"{line}\r")
            terminal.see(said)

        terminal.see("> ")
        (first, _) = (entry["hash"] for entry in desk.entries("run_outcome"))
        for line, said in (
            ("/rewind", f'{first[:12]}  after "first question"'),
            ("/rewind 00000000", "has no entry"),
            (f"/rewind {first[:12]}", "1 turn so far"),
            ("another way", "three"),
        ):
            terminal.type(f"{line}\r")
            terminal.see(said)
            terminal.see("> ")

        terminal.type("/quit\r")
        assert terminal.end() == 0

    assert len(desk.logs()) == 2
