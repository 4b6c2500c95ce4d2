"""A terminal with a live region at its bottom and a line to type on: the home of prompt_toolkit.

What scrolls by is written above the region and belongs to the terminal from then on; the region is
drawn anew in place. The alternate screen is never used, nor any escape beyond those of a VT100 and
bracketed paste.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sys
import termios
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from typing import TextIO

from attrs import define, field
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import VerticalAlign
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.vt100 import Vt100_Output

from .blocks import Block, is_detail
from .draw import ColourSystem, Paper, scrolled
from .past import PastLines
from .region import region
from .stage import ANSWERS, Listener
from .state import Approval, ViewState
from .text import cell_width, showable

_PROMPT = "> "
_MOST_INPUT_ROWS = 8
_FEWEST_COLUMNS = 20
_TICK_S = 0.2
_LOCAL_FLAGS, _CHARACTERS = 3, 6
_KEY_WAIT_S = 0.05
"""How long an escape key waits for what may belong to it."""


@define(eq=False)
class Screen:
    """A stage on a terminal that can move its cursor."""

    past: PastLines
    colours: ColourSystem | None
    is_verbose: Callable[[], bool]
    stdin: TextIO = field(factory=lambda: sys.stdin)
    stdout: TextIO = field(factory=lambda: sys.stdout)
    _app: Application[None] | None = field(default=None, init=False)
    _output: _Output | None = field(default=None, init=False)
    _buffer: Buffer | None = field(default=None, init=False)
    _before: Block | None = field(default=None, init=False)

    # ------------------------------------------------------------------ the stage

    async def run(self, listener: Listener) -> None:
        """Take what the person does, until `close`."""
        output = _Output(self.stdout, _size_of(self.stdout), term="xterm", enable_cpr=False)
        self.past.trim()
        self._output = output
        self._buffer = Buffer(multiline=True, history=_History(self.past))
        self._app = self._application(listener, output, self._buffer)
        ticking = asyncio.ensure_future(self._tick(listener))
        above = _Above(self.write_above, asyncio.get_running_loop())
        try:
            # What tools and plugins print, and what is logged, must not fall into the region.
            with redirect_stdout(above), redirect_stderr(above):
                await self._app.run_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):  # the terminal is gone, and so is the person
            listener.left()
        finally:
            ticking.cancel()
            self._app = None
            output.leave()

    def update(self, state: ViewState, said: Sequence[Block]) -> None:
        """Show what scrolls by, and draw the rest anew."""
        shown = [block for block in said if self.is_verbose() or not is_detail(block)]
        if shown:
            columns = self._columns()
            drawn = scrolled(shown, self._before, columns)
            self._before = shown[-1]
            self.write_above(Paper(columns, self.colours).paint(drawn))
        elif self._app is not None:
            self._app.invalidate()

    def ready(self, line: str) -> None:
        """Draw the gauge anew, which is always there."""
        if self._app is not None:
            self._app.invalidate()

    def ask(self, question: str | None) -> None:
        """Do nothing: the question is drawn with the rest."""

    def ask_about(self, approval: Approval | None) -> None:
        """Do nothing: the first question is drawn with the rest."""

    def give_back(self, text: str) -> None:
        """Put a text back to be edited, before what is being typed now."""
        if self._buffer is not None:
            typed = self._buffer.text
            self._buffer.text = f"{text}\n{typed}" if typed else text
            self._buffer.cursor_position = len(self._buffer.text)

    def drop_line(self) -> bool:
        """Empty the input line; tell whether anything was on it."""
        had = self._buffer is not None and bool(self._buffer.text)
        if self._buffer is not None:
            self._buffer.reset()

        self._redraw()
        return had

    def close(self) -> None:
        """End `run`; the region is taken away and what scrolled by stays."""
        if self._app is not None and self._app.is_running and not self._app.is_done:
            self._app.exit()

    def write_above(self, text: str) -> None:
        """Write text, with its line's end, above the region."""
        text = text.replace("\n", "\r\n")
        app, output = self._app, self._output
        if app is None or output is None or not app.is_running or app.is_done:
            with suppress(OSError):  # the terminal is gone
                self.stdout.write(text)
                self.stdout.flush()

            return

        app.renderer.erase()
        output.write_raw(text)
        output.flush()
        app.invalidate()

    # ------------------------------------------------------------------ inside

    def _application(
        self, listener: Listener, output: Vt100_Output, buffer: Buffer
    ) -> Application[None]:
        live = Window(
            FormattedTextControl(lambda: self._region(listener), focusable=False),
            dont_extend_height=True,
        )
        typed = Window(
            BufferControl(buffer, input_processors=[BeforeInput(_PROMPT)]),
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(min=1, max=self._input_rows()),
        )
        app: Application[None] = Application(
            layout=Layout(HSplit([live, typed], align=VerticalAlign.TOP), focused_element=typed),
            key_bindings=self._keys(listener, buffer),
            input=_Keyboard(self.stdin),
            output=output,
            erase_when_done=True,
            min_redraw_interval=0.03,
        )
        app.ttimeoutlen = _KEY_WAIT_S
        return app

    def _keys(self, listener: Listener, buffer: Buffer) -> KeyBindings:
        keys = KeyBindings()

        # A line that was typed before the keys came one by one ends with what is Ctrl-J now.
        @keys.add("enter")
        @keys.add("c-j")
        def _enter(_event: KeyPressEvent) -> None:
            text = buffer.text
            if text.strip():
                buffer.append_to_history()

            buffer.reset()
            self._redraw()
            listener.entered(text)

        @keys.add("escape", "enter")
        def _break_line(_event: KeyPressEvent) -> None:
            buffer.insert_text("\n")

        @keys.add("c-d", filter=Condition(lambda: not buffer.text))
        def _leave(_event: KeyPressEvent) -> None:
            listener.left()

        @keys.add("c-l")
        def _clear(event: KeyPressEvent) -> None:
            event.app.renderer.clear()

        @Condition
        def is_answer() -> bool:
            return not buffer.text and listener.takes_keys()

        for key in ANSWERS:
            keys.add(key, filter=is_answer, eager=True)(lambda event: listener.pressed(event.data))

        return keys

    def _region(self, listener: Listener) -> ANSI:
        columns, rows = self._columns(), self._rows()
        state, scene = listener.scene(max(1, rows - self._input_height(columns) - 1), columns)
        return ANSI(region(state, scene))

    async def _tick(self, listener: Listener) -> None:
        """Keep what counts seconds up to date."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._app is not None and listener.is_moving():
                self._app.invalidate()

    def _redraw(self) -> None:
        """Draw the region anew from nothing: it may have become smaller."""
        if self._app is not None and self._app.is_running and not self._app.is_done:
            self._app.renderer.erase()
            self._app.invalidate()

    def _input_height(self, columns: int) -> int:
        text = self._buffer.text if self._buffer is not None else ""
        lines = [max(0, cell_width(line)) // columns + 1 for line in text.split("\n")]
        lines[0] = (cell_width(text.partition("\n")[0]) + len(_PROMPT)) // columns + 1
        return min(self._input_rows(), sum(lines))

    def _input_rows(self) -> int:
        return max(1, min(_MOST_INPUT_ROWS, self._rows() // 2))

    def _columns(self) -> int:
        return max(_FEWEST_COLUMNS, _size_of(self.stdout)().columns)

    def _rows(self) -> int:
        return _size_of(self.stdout)().rows


def _size_of(stdout: TextIO) -> Callable[[], Size]:
    def size() -> Size:
        try:
            rows, columns = termios.tcgetwinsize(stdout.fileno())
        except (OSError, ValueError, termios.error):
            rows, columns = 0, 0

        if not rows or not columns:  # a terminal that does not know its size
            guessed = shutil.get_terminal_size()
            rows, columns = rows or guessed.lines, columns or guessed.columns

        return Size(rows=rows, columns=columns)

    return size


@define(eq=False, slots=False)
class _Above(io.TextIOBase):
    """A stream whose lines scroll by above the region. Any thread may write."""

    write_above: Callable[[str], None]
    loop: asyncio.AbstractEventLoop
    _open: str = field(default="", init=False)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here
        """What is written is shown by us, whatever it holds."""
        return "utf-8"

    def writable(self) -> bool:
        """Anything can be written."""
        return True

    def write(self, text: str) -> int:
        """Show whole lines; the rest waits for its end."""
        *lines, self._open = (self._open + text).split("\n")
        if lines:
            shown = "".join(f"{showable(line)}\n" for line in lines)
            with suppress(RuntimeError):  # the loop is closed: there is no region any more
                self.loop.call_soon_threadsafe(self.write_above, shown)

        return len(text)


class _Output(Vt100_Output):
    """Keeps bracketed paste on between two drawings, and bears that its terminal goes away."""

    def disable_bracketed_paste(self) -> None:
        """Leave it on until `leave`: a paste may come at any moment."""

    def flush(self) -> None:
        """Write what was drawn, if there is a terminal; of its end the input tells."""
        with suppress(OSError):
            super().flush()

    def leave(self) -> None:
        """Give the terminal back as it was."""
        super().disable_bracketed_paste()
        self.show_cursor()
        self.flush()


class _Keyboard(Vt100Input):
    """A keyboard whose Ctrl-C is a signal, which is heard also while the loop is blocked."""

    def raw_mode(self) -> AbstractContextManager[None]:
        """Return a context in which keys come one by one, and Ctrl-C as SIGINT."""
        return _signalling(super().raw_mode(), self.fileno())


@contextmanager
def _signalling(raw: AbstractContextManager[None], number: int) -> Iterator[None]:
    """Leave the interrupt key to the system, and no other, while a terminal is raw."""
    with raw:
        mode = termios.tcgetattr(number)
        mode[_LOCAL_FLAGS] |= termios.ISIG | termios.NOFLSH  # what was typed before it stays
        none = bytes([os.fpathconf(number, "PC_VDISABLE") % 256])
        for key in (termios.VQUIT, termios.VSUSP):
            mode[_CHARACTERS][key] = none

        termios.tcsetattr(number, termios.TCSANOW, mode)
        yield


class _History(History):
    """The lines of the past, as the library wants them."""

    def __init__(self, past: PastLines) -> None:
        super().__init__()
        self._past = past

    def load_history_strings(self) -> Iterable[str]:
        """Return them newest first."""
        return reversed(self._past.read())

    def store_string(self, string: str) -> None:
        """Remember one more."""
        self._past.add(string)
