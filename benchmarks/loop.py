"""The turn loop's own time for each request, at 100, 1,000 and 10,000 items of history.

A run of many requests, each with one tool call, on a scripted model. From one request to the next
counts, but for the model's time, the making of the request's body (which is as long as the
history, and shown apart) and the disk's. What is left is ours: taking the answer, journaling it,
running the tool, hooks, the projection, the steps of the pod.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from _measure import (
    HotSpots,
    SyncWatch,
    add_folder_option,
    folder_on,
    header,
    table,
    verdict,
)
from _model import TimedClient
from _pods import launched_pod, look_tool, write_manifest
from _sessions import a_session, items, one_long_turn

if TYPE_CHECKING:
    from worker import Item, Worker
    from worker.testing import ScriptedClient

SIZES = (100, 1_000, 10_000)
ROUNDS = 4
REQUESTS = 24
WINDOW = 50_000_000
GROWTH = 10.0
"""What 100 times the items may cost: well below linear."""


class Found(NamedTuple):
    """What requests at one size took, in seconds.

    The first of each run is apart: it takes in the whole history, as after a launch.
    """

    first_own: list[float]
    own: list[float]
    cpu: list[float]
    body: list[float]
    projection: list[float]

    def take(self, client: TimedClient, worker: Worker, until_first: float) -> None:
        """Take in one run; it took `until_first` seconds to come to its first request."""
        own = [
            later - earlier - client.taken_s[n] - (client.synced_s[n + 1] - client.synced_s[n])
            for n, (earlier, later) in enumerate(pairwise(client.began_s))
        ]
        self.cpu.extend(
            later - earlier - client.cpu_taken_s[n]
            for n, (earlier, later) in enumerate(pairwise(client.cpu_began_s))
        )
        self.first_own.append(until_first)
        self.own.extend(own)
        self.body.extend(client.encode_s[1:])
        for _ in range(5):
            began = time.perf_counter()
            worker.project()
            self.projection.append(time.perf_counter() - began)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hot", action="store_true", help="also print where the time goes")
    add_folder_option(parser)
    given = parser.parse_args()
    header("loop")
    shapes = {"turns of four items": items, "one long turn": one_long_turn}
    for shape, make in shapes.items():
        histories = {size: make(size) for size in SIZES}
        _report(f"Worker, {shape}", asyncio.run(_workers(histories, hot=given.hot)))
        with folder_on(given.dir) as folder:
            _report(f"Pod, {shape}", asyncio.run(_pods(histories, folder, hot=given.hot)))


def _report(title: str, found: dict[int, Found]) -> None:
    base, base_cpu = _median_us(found[SIZES[0]].own), _median_us(found[SIZES[0]].cpu)
    rows = [
        (
            f"{size:,} items",
            f"{_median_us(taken.own):,.0f}",
            f"{_median_us(taken.own) / base:.2f}",
            f"{_median_us(taken.cpu):,.0f}",
            f"{_median_us(taken.cpu) / base_cpu:.2f}",
            f"{_median_us(taken.projection):,.0f}",
            f"{_median_us(taken.first_own):,.0f}",
            f"{_median_us(taken.body):,.0f}",
        )
        for size, taken in found.items()
    ]
    head = (
        "history",
        "own us",
        "growth",
        "cpu us",
        "growth",
        "projection us",
        "first own us",
        "body us",
    )
    table(f"{title}: one request", head, rows)
    growth = _median_us(found[SIZES[-1]].own) / base
    verdict(
        f"{title}: growth over {SIZES[-1] // SIZES[0]} times the items", value=growth, limit=GROWTH
    )


def _median_us(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e6


# --- a Worker alone -----------------------------------------------------------------------------


async def _workers(histories: dict[int, list[Item]], *, hot: bool) -> dict[int, Found]:
    from worker import MemoryJournal, Ports, Worker, WorkerConfig

    found = {size: Found([], [], [], [], []) for size in histories}
    for number in range(ROUNDS + 1):
        for size, history in histories.items():
            client = TimedClient(_script())
            config = WorkerConfig(max_requests=None)
            ports = Ports(journal=MemoryJournal())
            worker = Worker(client, tools=[look_tool()], config=config, ports=ports)
            worker.set_history(history)
            wanted = hot and number == ROUNDS and size == SIZES[-1]
            began = time.perf_counter()
            with _looking(f"Worker, {size:,} items", wanted=wanted):
                result = await worker.run("go on")

            assert result.outcome == "finished"
            if number:  # the first round warms up
                found[size].take(client, worker, client.began_s[0] - began)

    return found


def _script() -> ScriptedClient:
    from worker.testing import ScriptedClient, call, say

    answers = [*(call("look") for _ in range(REQUESTS)), say("Done.")]
    return ScriptedClient(answers, context_window=WINDOW)


# --- a whole pod --------------------------------------------------------------------------------


async def _pods(histories: dict[int, list[Item]], folder: Path, *, hot: bool) -> dict[int, Found]:
    manifest = write_manifest(folder, WINDOW)
    found = {size: Found([], [], [], [], []) for size in histories}
    for number in range(ROUNDS + 1):
        for size, history in histories.items():
            session_id = a_session(folder / "home", history)
            wanted = hot and number == ROUNDS and size == SIZES[-1]
            taken = await _pod(manifest, folder / "home", session_id, hot=wanted)
            if number:
                found[size].take(*taken)

    return found


async def _pod(
    manifest: Path, home: Path, session_id: str, *, hot: bool
) -> tuple[TimedClient, Worker, float]:
    from worker import user_message

    with SyncWatch() as watch:
        client = TimedClient(_script(), lambda: watch.seconds)
        async with launched_pod(manifest, home, session_id, client) as launched:
            began, synced = time.perf_counter(), watch.seconds
            with _looking("Pod", wanted=hot):
                result = await launched.driver.run(user_message("go on"), None)

            assert result.outcome == "finished", result.message
            until_first = client.began_s[0] - began - (client.synced_s[0] - synced)
            return client, launched.core.worker, until_first


@contextmanager
def _looking(what: str, *, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return

    with HotSpots() as spots:
        yield

    spots.report(f"{what}, a run of {REQUESTS} requests")


if __name__ == "__main__":
    main()
