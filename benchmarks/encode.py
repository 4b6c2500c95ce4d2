"""What it takes to prepare one more request, at 100, 1,000 and 10,000 items, in every dialect.

One turn is added to a history whose last request was just made, as in a run. Everything but the new
items is bytes that are there already, so what should be left is copying them. That is measured on
its own, as often as the bytes are copied, and taken off: what remains is to be all but the same
however long the history is.
"""

from __future__ import annotations

import gc
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from _history import TURN
from _measure import header, table, verdict
from _sessions import items
from _streams import Dialect, dialects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker import ToolSpec
    from worker.llm import LlmRequest

SIZES = (100, 1_000, 10_000)
REQUESTS = 40
ROUNDS = 5
GROWTH = 3.0


class Found(NamedTuple):
    """The median request at one size, in microseconds of CPU time."""

    own: float
    whole: float
    copying: float
    size: int


def main() -> None:
    """Print the table."""
    header("encode")
    rows: list[tuple[str, ...]] = []
    growths: dict[str, float] = {}
    for dialect in dialects():
        if dialect.provider == "openai":  # the same body as any other of its dialect
            continue
        found = {size: _measured(dialect, size) for size in SIZES}
        growths[dialect.provider] = found[SIZES[-1]].own / found[SIZES[0]].own
        rows += [
            (
                f"{dialect.provider}, {size:,} items",
                f"{each.size / 1024:,.0f}",
                f"{each.whole:,.0f}",
                f"{each.copying:,.0f}",
                f"{each.own:,.0f}",
            )
            for size, each in found.items()
        ]
    head = ("one more request", "body KiB", "whole µs", "copying µs", "own µs")
    table("CPU time", head, rows)
    for provider, growth in growths.items():
        what = f"{provider}: own time, {SIZES[-1]:,} items over {SIZES[0]}"
        verdict(what, value=growth, limit=GROWTH)


def _measured(dialect: Dialect, size: int) -> Found:
    """Return the best of some rounds: what else runs only makes one slower."""
    from worker.llm import LlmRequest

    history = items(size + TURN * REQUESTS)
    tools = tuple(_tools())
    ends = range(size, size + TURN * REQUESTS, TURN)
    requests = [LlmRequest("You help.", history[:end], tools) for end in ends]
    return min(_round(dialect, requests) for _ in range(ROUNDS))


def _round(dialect: Dialect, requests: Sequence[LlmRequest]) -> Found:
    encoder = dialect.scheme().encoder(dialect.provider, "a-model")
    kept = bytearray(encoder.encode(requests[0]))
    pairs: list[tuple[float, float]] = []
    gc.collect()
    gc.disable()
    try:
        # By turns, so that both find memory and caches as the other left them.
        for request in requests[1:]:
            whole = _timed(partial(encoder.encode, request))
            pairs.append((whole, _timed(partial(b"".join, (b"{", kept, b"}")))))
    finally:
        gc.enable()
    own, whole, copying = (
        statistics.median(times) * 1e6
        for times in ((w - c for w, c in pairs), (w for w, _ in pairs), (c for _, c in pairs))
    )
    return Found(own, whole, copying, len(kept))


def _timed(make: Callable[[], bytes]) -> float:
    began = time.thread_time()
    made = make()
    spent = time.thread_time() - began
    del made
    return spent


def _tools() -> Sequence[ToolSpec]:
    from worker.llm import ToolSpec

    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return [ToolSpec(f"tool_{number}", "Does something.", schema) for number in range(20)]


if __name__ == "__main__":
    main()
