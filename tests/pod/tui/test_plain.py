"""Plain lines: what goes to which stream, and that nothing is said twice."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from typing import TextIO

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from pod import protocol
from pod.protocol import EventData
from pod.tui.model import advance
from pod.tui.past import PastLines
from pod.tui.plain import PlainLines
from pod.tui.region import Scene
from pod.tui.state import Answering, ViewState
from tests.pod.tui.events import (
    approval,
    called,
    compaction_done,
    compaction_start,
    done,
    result,
    run_end,
    run_start,
    text,
)

pytestmark = pytest.mark.anyio


class Stream(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]  # a class attribute is enough here


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


class Typing(io.TextIOBase):
    """A keyboard that is a pipe."""

    encoding = "utf-8"  # type: ignore[assignment]  # a class attribute is enough here

    def __init__(self, pipe: TextIO) -> None:
        self.pipe = pipe

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.pipe.fileno()


@define(eq=False)
class Typist:
    """Whoever types; None is the end of it."""

    lines: asyncio.Queue[str | None] = field(factory=asyncio.Queue)

    def entered(self, text: str) -> None:
        self.lines.put_nowait(text)

    def left(self) -> None:
        self.lines.put_nowait(None)

    ended = left

    def pressed(self, key: str) -> None: ...

    def takes_keys(self) -> bool:
        return False

    def is_moving(self) -> bool:
        return False

    def scene(self, rows: int, columns: int) -> tuple[ViewState, Scene]:
        raise NotImplementedError


@define
class Lines:
    answers: Stream = field(factory=Stream)
    rest: Stream = field(factory=Stream)
    is_verbose: bool = False
    has_keyboard: bool = False
    state: ViewState = field(factory=ViewState)
    stage: PlainLines = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.stage = PlainLines(
            PastLines(Path("/nonexistent/history")),
            lambda: self.is_verbose,
            stdin=Keyboard() if self.has_keyboard else None,
            answers=self.answers,
            rest=self.rest,
        )

    def tell(self, *events: EventData) -> Lines:
        for number, event in enumerate(events):
            step = advance(self.state, event, number * 1_000)
            self.state = step.state
            self.stage.update(step.state, step.said)

        return self


def test_the_answer_is_on_one_stream_and_the_rest_on_another() -> None:
    lines = Lines().tell(
        run_start("Find x"),
        text("I look.\n\nThen"),
        text(" more"),
        done("I look.\n\nThen more"),
        called("a", arguments='{"pattern": "x"}'),
        result("a"),
        text("Done\x1b[2J."),
        done("Done\x1b[2J."),
        run_end(),
        compaction_start(),
        compaction_done(),
    )
    assert lines.answers.getvalue() == "I look.\n\nThen more\nDone\\x1b[2J.\n"
    assert lines.rest.getvalue() == (
        '> Find x\n  grep: 3 hits (1.0 s)\n    pattern="x"\n'
        "compacting 3,412 tokens (0 turns) ▸ summarizing …\n"
        "compacted: 3,412 → 1,120 tokens, new session s2 from s1 (pod sessions tree)\n"
    )


def test_an_answer_is_written_as_it_comes() -> None:
    lines = Lines().tell(run_start(), text("Half a"))
    assert lines.answers.getvalue() == "Half a"
    lines.tell(protocol.Alert(level="warning", message="careful"), text(" line"))
    assert lines.answers.getvalue() == "Half a\n line"
    assert "careful" in lines.rest.getvalue()


def test_who_joined_in_the_middle_gets_the_whole_answer_once() -> None:
    lines = Lines(state=ViewState(state="running", answering=Answering(is_joined=True)))
    lines.tell(text("second half"), done("first half, second half"), run_end())
    assert lines.answers.getvalue() == "first half, second half\n"


def test_on_a_terminal_it_asks() -> None:
    lines = Lines(has_keyboard=True)
    lines.stage.ready("[#...] 1 of 2")
    assert lines.rest.getvalue() == "[#...] 1 of 2\n> "
    lines.tell(approval("1", arguments='{"command": "ls\\u202e"}', reason="it runs"))
    assert lines.rest.getvalue().endswith('> \n  ? bash: it runs\n    command: "ls\\u202e"\n')
    lines.stage.ask_about(lines.state.approvals[0])
    assert lines.rest.getvalue().endswith(
        'allow bash command="ls\\u202e"?\ny once, s for this session, n deny: '
    )
    lines.tell(protocol.Alert(level="info", message="meanwhile"))
    assert lines.rest.getvalue().endswith(
        'deny: \nmeanwhile\nallow bash command="ls\\u202e"?\ny once, s for this session, n deny: '
    )
    lines.stage.ask_about(None)
    lines.stage.ask("end it?")
    assert lines.rest.getvalue().endswith("\nend it?\ny or n: ")
    lines.stage.give_back("what was\ntyped")
    assert lines.rest.getvalue().endswith("\nnot sent: what was typed\n")
    assert not lines.stage.drop_line()


def test_a_question_stays_the_last_line_until_it_is_answered() -> None:
    """Whatever is told meanwhile, the line an answer is typed on says what it is for."""
    lines = Lines(has_keyboard=True).tell(approval("1"))
    lines.stage.ask_about(lines.state.approvals[0])
    lines.stage.ask("end it?")
    assert lines.rest.getvalue().endswith("deny: \nend it?\ny or n: ")
    lines.tell(protocol.Alert(level="info", message="meanwhile"))
    assert lines.rest.getvalue().endswith("\nmeanwhile\nend it?\ny or n: ")
    lines.stage.ask_about(lines.state.approvals[0])
    assert lines.rest.getvalue().endswith("\nend it?\ny or n: ")
    lines.stage.ask(None)
    lines.tell(protocol.Alert(level="info", message="left"))
    assert lines.rest.getvalue().endswith(
        '\nleft\nallow bash command="ls"?\ny once, s for this session, n deny: '
    )


async def test_what_others_asked_is_shown_and_what_was_typed_here_stands_there() -> None:
    lines, typist = Lines(has_keyboard=True), Typist()
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        lines.stage.stdin = Typing(stdin)
        showing = asyncio.ensure_future(lines.stage.run(typist))
        os.write(writing, b" mine \n")
        assert await typist.lines.get() == " mine "
        lines.tell(run_start("mine"), run_end(), run_start("of another"), run_end())
        lines.tell(run_start("mine"))
        assert lines.rest.getvalue() == "> of another\n> mine\n"
        os.close(writing)
        assert await typist.lines.get() is None, "the reader has ended"
        lines.stage.close()
        await showing


def test_where_nobody_types_nobody_is_asked() -> None:
    lines = Lines()
    lines.stage.ready("gauge")
    lines.stage.ask("end it?")
    assert lines.rest.getvalue() == "end it?\n"


def test_details_are_for_who_wants_them() -> None:
    events = (run_start(), protocol.ReasoningDelta(text="hm\nhm"), done("yes"), run_end(requests=2))
    assert "hm" not in Lines().tell(*events).rest.getvalue()
    told = Lines(is_verbose=True).tell(*events).rest.getvalue()
    assert "  (hm hm)\n" in told
    assert "2 requests" in told


_PIECE = st.sampled_from(["a", "\n", "\n\n", "- b\n", "```\n", "c d", "# e\n"])


@given(st.lists(_PIECE, max_size=30), st.integers(0, 30))
def test_every_answer_is_written_once(pieces: list[str], interrupted_at: int) -> None:
    whole = "".join(pieces)
    lines = Lines().tell(run_start(), *map(text, pieces), done(whole), run_end())
    written = lines.answers.getvalue()
    assert written in {whole, whole + "\n"}

    # Whatever is told in between goes elsewhere; the answer's own characters stay in order.
    events: list[EventData] = list(map(text, pieces))
    events.insert(interrupted_at, protocol.Alert(level="info", message="!"))
    lines = Lines().tell(run_start(), *events, done(whole), run_end())
    assert lines.answers.getvalue().replace("\n", "") == whole.replace("\n", "")
