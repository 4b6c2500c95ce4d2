"""What scrolls by, as rich renderables; and rich renderables as the text that a terminal takes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from attrs import frozen
from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from . import wording
from .arguments import brief, exact, visible
from .blocks import Asked, Block, Called, Said, Thought, Told, Tone, Wanted
from .markdown_blocks import begins_list
from .text import cell_width, cut, folded, one_line, showable

ColourSystem = Literal["auto", "standard", "256", "truecolor", "windows"]

_STYLES = {
    Tone.DETAIL: "dim",
    Tone.INFO: "",
    Tone.GOOD: "green",
    Tone.WARNING: "yellow",
    Tone.ERROR: "red",
}
_SUMMARY_LINES = 6
_ASKED_LINES = 40
_ASKED_CELLS = 2_000
_ARGUMENT_LINES = 1_000


@frozen
class Paper:
    """What is drawn on: how wide it is, and which colours it takes (None: none)."""

    columns: int
    colours: ColourSystem | None = None

    def paint(self, drawn: RenderableType) -> str:
        """Return what is drawn as text with the escapes of colours and nothing else."""
        out = io.StringIO()
        console = Console(
            file=out,
            width=self.columns,
            force_terminal=True,
            color_system=self.colours,
            no_color=self.colours is None,
            highlight=False,
            emoji=False,
            markup=False,
            legacy_windows=False,
            _environ={},
        )
        console.print(drawn)
        return out.getvalue()


def scrolled(blocks: Sequence[Block], before: Block | None, columns: int) -> Group:
    """Return the blocks one below the other; `before` is the one that is above them already."""
    drawn: list[RenderableType] = []
    for block in blocks:
        if _is_apart(before, block):
            drawn.append("")

        drawn.append(one(block, columns))
        before = block

    return Group(*drawn)


def _is_apart(before: Block | None, block: Block) -> bool:
    """Tell whether an empty line comes between the two."""
    match before, block:
        case None, _:
            return False
        case _, Asked():
            return True
        case Asked(), _:
            return False
        case _, Said():
            return not begins_list(block.text)  # a list brings its own
        case _:
            return isinstance(before, Said | Thought)


def one(block: Block, columns: int) -> RenderableType:
    """Return one block."""
    match block:
        case Asked():
            return asked(block.text)
        case Said():
            return markdown(block.text)
        case Thought():
            return Padding(Text(showable(block.text.strip()), style="dim italic"), (0, 2))
        case Called():
            return called(block, columns)
        case Wanted():
            return wanted(block, columns)
        case Told():
            return Text(showable(block.text), style=_STYLES[block.tone])


def markdown(text: str) -> Markdown:
    """Return rendered Markdown; links show their address, for not every terminal can follow one."""
    return Markdown(showable(text), hyperlinks=False)


def asked(text: str) -> Text:
    """Return a prompt as it was typed; of a long one that was pasted, the beginning."""
    lines = showable(text).split("\n")
    hidden = len(lines) - _ASKED_LINES
    if hidden > 0:
        lines = [*lines[:_ASKED_LINES], f"… {hidden} more lines"]

    return Text("> " + "\n  ".join(cut(line, _ASKED_CELLS) for line in lines), style="bold")


def called(block: Called, columns: int) -> RenderableType:
    """Return a call that is over: on one line where that holds it, else its summary below it."""
    mark, style = ("✗", "red") if block.is_error else ("✓", "green")
    said = wording.tool_said(block.name, block.summary, is_error=block.is_error)
    _, _, summary = said.partition(": ")
    failed = " failed" if block.is_error else ""
    took = "" if block.took_ms is None else f"  {wording.seconds(block.took_ms)}"
    name = one_line(block.name)
    drawn = Text(f"  {mark} ", style=style).append(name + failed, style="bold")
    room = columns - cell_width(f"  {mark} {name}{failed}:{took}") - 2
    first, *more = showable(summary).split("\n") or [""]
    told = brief(block.arguments, room) if block.arguments.strip("{} ") else ""
    if not more and cell_width(told) + cell_width(first) < room:
        drawn.append(f" {told}" if told else "", style="dim")
        return drawn.append(f": {first}", style="").append(took, style="dim")

    drawn.append(f" {told}" if told else "", style="dim").append(took, style="dim")
    lines = [first, *more]
    hidden = len(lines) - _SUMMARY_LINES
    if hidden > 0:
        lines = [*lines[:_SUMMARY_LINES], f"… {hidden} more lines"]

    below = Text("\n".join(cut(line, 3 * columns) for line in lines))
    return Group(drawn, Padding(below, (0, 0, 0, 4)))


def wanted(block: Wanted, columns: int) -> Text:
    """Return a call that somebody is asked about, with all that is in its arguments.

    Lines are folded here, with a mark, so that none of what it says can pass for a line of ours.
    """
    drawn = Text("  ? ", style="bold yellow").append(visible(block.name), style="bold")
    if block.reason:
        drawn.append(f": {showable(block.reason)}", style="")

    lines = exact(block.arguments)
    hidden = len(lines) - _ARGUMENT_LINES
    if hidden > 0:
        lines = [*lines[:_ARGUMENT_LINES], f"… {hidden} more lines that are not shown"]

    for line in lines:
        pieces = folded(line, columns - 7)
        drawn.append("\n    " + "\n    … ".join(pieces), style="")

    return drawn
