"""One compaction's own time on 10,000 items, beside langchain's `SummarizationMiddleware`.

A whole pod compacts: cut, record for the summarizer, checks, the new session written and opened,
the pointer moved. The summarizer answers at once; what its client takes to encode the request is
told apart, and so is the waiting for the disk, for the peer does neither.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from _measure import (
    HotSpots,
    Sample,
    SyncWatch,
    add_folder_option,
    cpu_ms,
    folder_on,
    header,
    in_turns,
    table,
    verdict,
    wall_ms,
)
from _model import TimedClient
from _peer import Peer
from _pods import launched_pod, write_manifest
from _sessions import a_session, items

if TYPE_CHECKING:
    from worker.testing import ScriptedClient

SIZES = (1_000, 10_000)
ROUNDS = 7
LIMIT = 0.5
WINDOWS = {"one request": 50_000_000, "window of 200,000": 200_000}
"""The summarizer's window: everything in one request, as the peer does, or a real model's."""
SUMMARY = """## Original Task
Find out why the report stays empty, and set it right.

## Completed Work
Read the settings and every part of the source that they name.

## Key Discoveries
One option names a folder that is gone, so the loader stops early.

## Current State
The option is known; nothing was changed yet.
"""


class Parts(NamedTuple):
    """What one compaction took, in seconds."""

    whole: float
    syncing: float
    model: float
    requests: int
    cpu: float
    """Of the whole process, without what the model's client took."""

    @property
    def own(self) -> float:
        """What is left when the disk and the model's client are taken off."""
        return self.whole - self.syncing - self.model


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer-python", type=Path, metavar="PYTHON", help="an interpreter that has langchain"
    )
    parser.add_argument("--hot", action="store_true", help="also print where the time goes")
    add_folder_option(parser)
    given = parser.parse_args()
    header("compact")
    with folder_on(given.dir) as folder:
        if given.peer_python is None:
            print("peer skipped: no --peer-python")
            _report(folder, None)
        else:
            with Peer(given.peer_python, "_peer_langchain.py") as peer:
                print(f"peer: {peer.about}")
                _report(folder, peer)

        if given.hot:
            _print_hot_spots(folder)


def _report(folder: Path, peer: Peer | None) -> None:
    for size in SIZES:
        template = folder / f"template-{size}"
        session_id = a_session(template / "home", items(size))
        parts: dict[str, list[Parts]] = {name: [] for name in WINDOWS}
        actions: dict[str, Callable[[], Sample]] = {
            name: partial(_compact, template, session_id, window, parts[name])
            for name, window in WINDOWS.items()
        }
        if peer is not None:
            actions |= {
                "peer, everything shown": partial(_ask, peer, size, "whole"),
                "peer, 4,000 tokens shown": partial(_ask, peer, size, "trimmed"),
            }

        _print(size, in_turns(actions, ROUNDS), parts)
        shutil.rmtree(template)


def _print(size: int, found: dict[str, list[Sample]], parts: dict[str, list[Parts]]) -> None:
    own = {name: _median_ms(p.own for p in taken[1:]) for name, taken in parts.items()}
    peers = {name: wall_ms(samples) for name, samples in found.items() if name not in own}
    best = min(peers.values(), default=0.0)
    rows = [
        (
            f"ours, {name}",
            f"{own[name]:.1f}",
            f"{own[name] / best:.2f}" if best else "-",
            f"{_median_ms(p.cpu for p in taken[1:]):.1f}",
            f"{_median_ms(p.whole for p in taken[1:]):.1f}",
            f"{_median_ms(p.syncing for p in taken[1:]):.1f}",
            f"{_median_ms(p.model for p in taken[1:]):.1f}",
            str(taken[-1].requests),
        )
        for name, taken in parts.items()
    ]
    rows += [
        (
            name,
            f"{ms:.1f}",
            f"{ms / best:.2f}",
            f"{cpu_ms(found[name]):.1f}",
            f"{ms:.1f}",
            "-",
            "-",
            "1",
        )
        for name, ms in peers.items()
    ]
    head = ("what", "own ms", "ratio", "cpu ms", "all ms", "syncing ms", "model ms", "requests")
    table(f"one compaction of {size:,} items", head, rows)
    if best and size == SIZES[-1]:
        what = "ours in one request / the faster peer"
        verdict(what, value=own["one request"] / best, limit=LIMIT)


def _median_ms(seconds: Iterable[float]) -> float:
    return statistics.median(seconds) * 1e3


_numbers = itertools.count()


def _compact(template: Path, session_id: str, window: int, parts: list[Parts]) -> Sample:
    """Compact a copy of the session, in a home of its own."""
    home = template.with_name(f"home-{next(_numbers)}")
    shutil.copytree(template / "home", home)
    taken = asyncio.run(_compact_in(home, session_id, window))
    shutil.rmtree(home)
    parts.append(taken)
    return Sample(taken.whole, 0.0, taken.syncing)


async def _compact_in(
    home: Path, session_id: str, window: int, spots: HotSpots | None = None
) -> Parts:
    client = TimedClient(_summarizer(window))
    async with launched_pod(write_manifest(home, window), home, session_id, client) as launched:
        gc.collect()
        with SyncWatch() as watch, spots or nullcontext():
            began, cpu = time.perf_counter(), time.process_time()
            done = await launched.compactor.compact("manual")
            whole, cpu = (
                time.perf_counter() - began,
                time.process_time() - cpu - sum(client.cpu_taken_s),
            )

        assert done is not None
        assert done.method == "summary"
        return Parts(whole, watch.seconds, sum(client.taken_s), len(client.taken_s), cpu)


def _summarizer(window: int) -> ScriptedClient:
    from worker.testing import ScriptedClient, say

    return ScriptedClient([say(SUMMARY) for _ in range(40)], context_window=window)


def _ask(peer: Peer, size: int, name: str) -> Sample:
    answer = peer.measure(size, name)
    assert answer["result"] < 30, "the peer did not compact"
    return Sample(answer["wall"], answer["cpu"])


def _print_hot_spots(folder: Path) -> None:
    template = folder / "template"
    session_id = a_session(template / "home", items(SIZES[-1]))
    spots = HotSpots()
    asyncio.run(_compact_in(template / "home", session_id, WINDOWS["one request"], spots))
    spots.report(f"one compaction of {SIZES[-1]:,} items", top=40)


if __name__ == "__main__":
    main()
