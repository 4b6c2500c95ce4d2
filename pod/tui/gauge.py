"""How full the context is, as one line. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from .text import cell_width

if TYPE_CHECKING:
    from pod.status import PodStatus

_CELLS = 23
_FEWEST_CELLS = 8


@frozen
class Ink:
    """The characters that a bar is drawn with."""

    left: str
    used: str
    pruned: str
    free: str
    mark: str


DRAWN = Ink("▏", "▇", "▒", "░", "│")
IN_ASCII = Ink("[", "#", "~", ".", "|")


def gauge(
    status: PodStatus,
    *,
    in_ascii: bool = False,
    pruned: int = 0,
    cells: int = _CELLS,
) -> str:
    """Return a bar over the whole window, marked where compaction comes, and the numbers.

    What was pruned is drawn behind what is used: there it would be. Without a known window or
    threshold there is nothing to draw, and the numbers stand alone.
    """
    limit = _limit(status)
    full = status.window or limit
    told = _numbers(status, limit)
    if full is None:
        return told

    ink = IN_ASCII if in_ascii else DRAWN
    return f"{_bar(status.occupancy, pruned, (limit, full), cells, ink)} {told}"


def gauge_line(
    status: PodStatus,
    columns: int,
    *,
    in_ascii: bool = False,
    pruned: int = 0,
    cost: float | None = None,
) -> str:
    """Return the gauge with what else there is to say, as far as a line of `columns` holds it.

    That is how the number is known, how much was pruned, and the cost. Where there is little room
    those go first, then the bar gets shorter and the window is left out.
    """
    extras = ["" if status.occupancy_source == "guessed" else status.occupancy_source]
    extras.append(f"{pruned:,} pruned" if pruned else "")
    extras.append("" if cost is None else f"${cost:.4f}")
    extras = [extra for extra in extras if extra]
    while True:
        line = _joined([gauge(status, in_ascii=in_ascii, pruned=pruned), *extras], in_ascii)
        if cell_width(line) < columns or not extras:
            break

        extras.pop(0)  # the cost stays longest: it is said nowhere else

    if cell_width(line) < columns:
        return line

    short = f"{status.occupancy:,}"
    limit = _limit(status) or status.window
    if limit is not None:
        short += f"/{limit:,}"

    full = status.window or _limit(status)
    cells = min(_CELLS, columns - cell_width(short) - 4)  # an edge, the mark, a space, one free
    if full is None or cells < _FEWEST_CELLS:
        return short if cell_width(short) < columns else f"{status.occupancy:,}"

    ink = IN_ASCII if in_ascii else DRAWN
    return f"{_bar(status.occupancy, pruned, (_limit(status), full), cells, ink)} {short}"


def _joined(parts: list[str], in_ascii: bool) -> str:  # noqa: FBT001  one call, one meaning
    return (" - " if in_ascii else " · ").join(parts)


def _limit(status: PodStatus) -> int | None:
    return None if status.compaction_disabled else status.compact_threshold


def _numbers(status: PodStatus, limit: int | None) -> str:
    size, window = f"{status.occupancy:,}", status.window
    if status.occupancy_source == "guessed":
        size = f"about {size}"

    if limit is None:
        return f"{size} of {window:,}" if window else f"{size} tokens"

    return f"{size} of {limit:,}" + (f" (window {window:,})" if window else "")


def _bar(occupancy: int, pruned: int, scale: tuple[int | None, int], cells: int, ink: Ink) -> str:
    limit, full = scale
    filled = min(cells, _cell(occupancy, full, cells))
    gone = min(cells, _cell(occupancy + pruned, full, cells)) - filled
    drawn = [ink.used] * filled + [ink.pruned] * gone + [ink.free] * (cells - filled - gone)
    if limit is not None and limit < full:
        drawn.insert(min(cells, _cell(limit, full, cells)), ink.mark)

    return ink.left + "".join(drawn)


def _cell(tokens: int, full: int, cells: int) -> int:
    """Return how many cells stand for the tokens; a little is seen too."""
    return -(-tokens * cells // full)
