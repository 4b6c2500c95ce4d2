"""How full the context is, as one line. Pure."""

from __future__ import annotations

from pod.pod import PodStatus

_CELLS = 23
_DRAWN = ("▏", "▇", "░", "│")
_IN_ASCII = ("[", "#", ".", "|")


def gauge(status: PodStatus, *, in_ascii: bool = False) -> str:
    """Return a bar over the whole window, marked where compaction comes, and the numbers.

    Without a known window or threshold there is nothing to draw, and the numbers stand alone.
    """
    size = f"{status.occupancy:,}"
    if status.occupancy_source == "guessed":
        size = f"about {size}"

    limit, window = status.compact_threshold, status.window
    if limit is None or status.compaction_disabled:
        told = f"{size} of {window:,}" if window else f"{size} tokens"
        limit = None
    else:
        told = f"{size} of {limit:,}" + (f" (window {window:,})" if window else "")

    full = window or limit
    if full is None:
        return told

    return f"{_bar(status.occupancy, limit, full, in_ascii=in_ascii)} {told}"


def _bar(occupancy: int, limit: int | None, full: int, *, in_ascii: bool) -> str:
    left, used, free, mark = _IN_ASCII if in_ascii else _DRAWN
    filled = min(_CELLS, _cell(occupancy, full))
    cells = [used] * filled + [free] * (_CELLS - filled)
    if limit is not None and limit < full:
        cells.insert(min(_CELLS, _cell(limit, full)), mark)

    return left + "".join(cells)


def _cell(tokens: int, full: int) -> int:
    """Return how many cells stand for the tokens; a little is seen too."""
    return -(-tokens * _CELLS // full)
