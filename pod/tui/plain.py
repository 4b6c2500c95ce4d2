"""Plain lines: for terminals without a cursor, for what is not UTF-8, for pipes.

The answer goes to one stream as it comes and everything around it to another, as `pod run` with a
prompt does it. Nothing is ever drawn anew.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TextIO

from attrs import define, field

from . import wording
from .arguments import brief, exact, visible
from .blocks import Asked, Block, Called, Said, Thought, Told, Wanted, is_detail
from .draw import asked
from .past import PastLines
from .stage import Listener
from .state import Answering, Approval, ViewState
from .text import one_line, showable

_PROMPT = "> "
_QUESTION = "y once, s for this session, n deny: "
_ARGUMENT_CELLS = 100
_READ_BYTES = 65_536
_MOST_TYPED = 100


@define(eq=False)
class PlainLines:
    """A stage of lines."""

    past: PastLines
    is_verbose: Callable[[], bool]
    stdin: TextIO | None = field(factory=lambda: sys.stdin)
    answers: TextIO = field(factory=lambda: sys.stdout)
    rest: TextIO = field(factory=lambda: sys.stderr)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _streamed: str = field(default="", init=False)
    """What was written of an answer and has not come as finished."""
    _seen: int = field(default=0, init=False)
    """How much of the answer that is coming was written."""
    _is_line_open: bool = field(default=False, init=False)
    _has_prompt: bool = field(default=False, init=False)
    _question: str | None = field(default=None, init=False)
    _asked: Approval | None = field(default=None, init=False)
    _typed: deque[str] = field(factory=lambda: deque(maxlen=_MOST_TYPED), init=False)
    """Lines that were typed here, and have not been heard of as prompts."""
    _compacting: object = field(default=None, init=False)

    # ------------------------------------------------------------------ the stage

    async def run(self, listener: Listener) -> None:
        """Take lines until `close`, or until there are no more."""
        self.past.trim()
        self._loop = asyncio.get_running_loop()
        # A thread of its own, which nobody waits for: reading cannot be cancelled.
        threading.Thread(target=self._read, args=(listener,), daemon=True).start()
        await self._over.wait()
        if self._has_prompt and self._is_terminal():
            self._tell("")

    def update(self, state: ViewState, said: Sequence[Block]) -> None:
        """Write what is new of the answer, then what else there is to say."""
        self._stream(state.answering)
        for block in said:
            if self.is_verbose() or not is_detail(block):
                self._say(block)

        if not state.answering.text:
            self._end_line()
            self._streamed, self._seen = "", 0

        if state.compaction is not None and state.compaction != self._compacting:
            self._tell(state.compaction.text)

        self._compacting = state.compaction
        self._ask_again()

    def ready(self, line: str) -> None:
        """Say how full the context is, and ask for the next line."""
        if not self._is_terminal():
            return

        if not self._has_prompt:
            self._tell(line)

        self._prompt(_PROMPT)

    def ask(self, question: str | None) -> None:
        """Ask on a line of its own, until it is answered."""
        self._question = question
        if question is not None and not self._is_terminal():
            self._tell(question)
        elif question is not None:
            self._break_prompt()

        self._ask_again()

    def ask_about(self, approval: Approval | None) -> None:
        """Ask on a line of its own: with several that wait, it says which one an answer is for."""
        self._asked = approval
        self._ask_again()

    def give_back(self, text: str) -> None:
        """Say what is not going to be sent: a line cannot be put back here."""
        self._tell(f"not sent: {one_line(text)}")

    def drop_line(self) -> bool:
        """Do nothing: the terminal keeps the line until it is entered."""
        return False

    def close(self) -> None:
        """End `run`."""
        self._over.set()

    # ------------------------------------------------------------------ what is written

    def _stream(self, now: Answering) -> None:
        if now.is_joined:
            return

        new = now.text[self._seen :]
        if new:
            self._seen = len(now.text)
            self._streamed += new
            self._answer(new)

    def _say(self, block: Block) -> None:
        match block:
            case Said():
                self._said(block.text)
            case Asked():
                self._say_asked(block.text)
            case Thought():
                self._tell(f"  ({one_line(block.text)})")
            case Called():
                arguments = brief(block.arguments, _ARGUMENT_CELLS).strip()
                took = "" if block.took_ms is None else f" ({wording.seconds(block.took_ms)})"
                said = wording.tool_said(block.name, block.summary, is_error=block.is_error)
                self._tell(f"  {said}{took}" + (f"\n    {arguments}" if arguments else ""))
            case Wanted():
                self._tell(_whole(block))
            case Told():
                self._tell(block.text)

    def _say_asked(self, text: str) -> None:
        """Say what was asked, unless it stands there as it was typed."""
        if self._is_terminal() and text.strip() in self._typed:
            self._typed.remove(text.strip())
        elif self._is_terminal():
            self._tell(asked(text).plain)
        else:
            self._tell(_PROMPT + text)

    def _said(self, text: str) -> None:
        """Write what was not streamed of it already."""
        if self._streamed.startswith(text):
            self._streamed = self._streamed.removeprefix(text)
            return

        if not text.startswith(self._streamed):  # it is not what was streamed
            self._end_line()
            self._streamed = ""

        rest, self._streamed = text.removeprefix(self._streamed), ""
        self._answer(rest)

    def _ask_again(self) -> None:
        """Ask what is asked now, where the question does not stand on the last line."""
        call = self._asked
        if self._has_prompt or not self._is_terminal():
            return

        if self._question is not None:
            self._tell(self._question)
            self._prompt("y or n: ")
        elif call is not None:
            told = brief(call.arguments, _ARGUMENT_CELLS)
            self._tell(f"allow {one_line(call.name)} {told}".rstrip() + "?")
            self._prompt(_QUESTION)

    def _answer(self, text: str) -> None:
        self._break_prompt()
        self._write(self.answers, text, "")
        self._is_line_open = not text.endswith("\n")

    def _tell(self, text: str) -> None:
        self._end_line()
        self._break_prompt()
        self._write(self.rest, text, "\n")

    def _prompt(self, text: str) -> None:
        self._end_line()
        self._break_prompt()
        self._write(self.rest, text, "")
        self._has_prompt = True

    def _end_line(self) -> None:
        if self._is_line_open:
            self._write(self.answers, "", "\n")
            self._is_line_open = False

    def _break_prompt(self) -> None:
        """Begin a new line, where the last one is a prompt that waits."""
        if self._has_prompt:
            self._has_prompt = False
            self._write(self.rest, "", "\n")

    def _write(self, stream: TextIO, text: str, end: str) -> None:
        stream.write(showable(text, stream.encoding or "ascii") + end)
        stream.flush()

    def _is_terminal(self) -> bool:
        return self.stdin is not None and self.stdin.isatty()

    # ------------------------------------------------------------------ what is read

    def _read(self, listener: Listener) -> None:
        """Hand on every line. It runs in a thread, and stops with the process at the latest."""
        for line in self._lines():
            if not self._call(partial(self._entered, listener, line)):
                return

        self._call(listener.left if self._is_terminal() else listener.ended)

    def _lines(self) -> Iterator[str]:
        if self.stdin is None:
            return

        encoding = self.stdin.encoding or "utf-8"
        held = b""
        while True:
            # Not by the stream itself: a thread that waits in there would hold its lock when the
            # interpreter ends.
            data = os.read(self.stdin.fileno(), _READ_BYTES)
            *whole, held = (held + data).split(b"\n")
            yield from (line.decode(encoding, "replace") for line in whole)
            if not data:
                if held:
                    yield held.decode(encoding, "replace")

                return

    def _call(self, work: Callable[[], object]) -> bool:
        """Have the loop do something; tell whether it is still there."""
        if self._loop is None:
            return False

        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:  # it is closed: nobody is interested any more
            return False

        return True

    def _entered(self, listener: Listener, line: str) -> None:
        self._has_prompt = False  # the line that was entered ended it
        if line.strip():
            self.past.add(line)
            self._typed.append(line.strip())

        listener.entered(line)


def _whole(wanted: Wanted) -> str:
    why = f": {wanted.reason}" if wanted.reason else ""
    lines = [f"  ? {visible(wanted.name)}{why}", *(f"    {a}" for a in exact(wanted.arguments))]
    return "\n".join(lines)
