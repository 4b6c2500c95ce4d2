"""A served pod's events to many: beside a bare fan-out, with a stalled subscriber, with a thousand.

The readers are a process of their own, the same for what is compared. The bare fan-out is asyncio's
own: a Unix-socket server that writes lines, made beforehand, to every connection. It numbers
nothing, keeps nothing for who resumes, and waits for the slowest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from _measure import ROOT, Sample, cpu_ms, header, table, verdict, wall_ms

if TYPE_CHECKING:
    from pod.serve import PodServer

SUBSCRIBERS = 50
STALLED = 1_000
FLOOD = 20_000
EVENTS = 3_000
BURST = 60
"""How many events are in flight at most is twice as many: less than a subscriber may be behind."""
ONE_BY_ONE = "one at a time"
IN_BURSTS = f"in bursts of {BURST}"
JOINED = f"in bursts of {BURST}, whose lines the bare one has as one piece beforehand"
TEXT = "x" * 60
LIVE = 10
TIMED = 1_500
RATE_TARGET = 0.4
P99_TARGET = 1.2
MEMORY_TARGET_MIB = 64.0
_MANIFEST = '[pod]\nname = "bench"\n[provider]\nkind = "scripted"\nscript = "script.jsonl"\n'


class Readers:
    """The process that reads."""

    def __init__(self, mode: str, path: Path, count: int, *more: int) -> None:
        script = str(Path(__file__).with_name("_readers.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, mode, str(path), str(count), *map(str, more)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def line(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        return await asyncio.to_thread(self._process.stdout.readline)

    async def ages(self) -> list[float]:
        """End it and return how old events were when they came, in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: list[float] = json.loads(await self.line())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


# --- who sends --------------------------------------------------------------------------------


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[PodServer]:
    """Serve a pod that runs nothing: the events are published by the benchmark."""
    from pod import Home, Pod
    from pod.serve import Places, PodServer, ensure_run_folder
    from session_store import FileSessionStore

    (folder / "script.jsonl").touch()
    (folder / "bench.toml").write_text(_MANIFEST, encoding="utf-8")
    home = Home(folder / "home")
    ensure_run_folder(home)
    pod = Pod.launch(folder / "bench.toml", home=home.root, env={})
    server = PodServer(pod=pod, store=lambda: FileSessionStore(home.root), heartbeat_s=3600.0)
    await server.start()
    places = Places.of(home, "bench")
    server.listen(places)
    try:
        yield server
    finally:
        server.shutdown()
        await server.ended()


class Bare:
    """A fan-out with asyncio and nothing else."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._writers: list[asyncio.StreamWriter] = []
        self._at = 0

    async def on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readline()
        writer.write(b"hello\nanswer\n")
        self._writers.append(writer)

    async def publish(self, count: int, way: str) -> None:
        """Send the next lines, in the way that is asked for."""
        lines = [self._lines[(self._at + n) % len(self._lines)] for n in range(count)]
        self._at += count
        for data in [b"".join(lines)] if way == JOINED else lines:
            for writer in self._writers:
                writer.write(data)

            if way == ONE_BY_ONE:
                await asyncio.sleep(0)

        await asyncio.sleep(0)
        for writer in self._writers:
            await writer.drain()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


Publish = Callable[[int], Awaitable[None]]


async def paced(readers: Readers, publish: Publish, events: int) -> Sample:
    """Publish so many events, no more than two bursts ahead of the readers; return what it took."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await publish(BURST)
    for _ in range(events // BURST - 1):
        await publish(BURST)
        await readers.line()

    await readers.line()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


async def compare(folder: Path, rounds: int, way: str) -> None:
    """Print how fast a pod and a bare fan-out deliver the same events to many."""
    from pod.protocol import Alert

    found: dict[str, list[Sample]] = {"bare fan-out": [], "a served pod": []}
    one_by_one = way == ONE_BY_ONE
    alerts = [Alert(level="info", message=f"{n} {TEXT}") for n in range(EVENTS)]
    async with served(folder) as server:
        bus = server.pod.bus
        lines = [bus.publish(alert).to_json() + b"\n" for alert in alerts]
        bare = Bare(lines)
        path = folder / "bare.sock"
        listener = await asyncio.start_unix_server(bare.on_connection, path)
        socket_path = folder / "home" / "run" / "bench.sock"
        ours = Readers("count", socket_path, SUBSCRIBERS, BURST)
        theirs = Readers("count", path, SUBSCRIBERS, BURST)
        published = 0

        async def publish(count: int) -> None:
            nonlocal published
            for _ in range(count):
                bus.publish(alerts[published % EVENTS])
                published += 1
                if one_by_one:
                    await asyncio.sleep(0)

            await asyncio.sleep(0)

        async def publish_bare(count: int) -> None:
            await bare.publish(count, way)

        try:
            for readers in (ours, theirs):
                assert await readers.line() == "ready\n"

            for number in range(rounds + 1):
                taken = {
                    "bare fan-out": await paced(theirs, publish_bare, EVENTS),
                    "a served pod": await paced(ours, publish, EVENTS),
                }
                for name, sample in taken.items() if number else ():
                    found[name].append(sample)

            assert len(server.hub) == SUBSCRIBERS, "somebody was cut off"
        finally:
            ours.close()
            theirs.close()
            bare.close()
            listener.close()

    report_rates(found, len(lines[0]), way)


def report_rates(found: dict[str, list[Sample]], size: int, way: str) -> None:
    """Print rates, and the share of the bare one's."""
    deliveries = SUBSCRIBERS * EVENTS
    rows = [
        (
            name,
            f"{deliveries / wall_ms(samples):,.0f}",
            f"{deliveries / cpu_ms(samples):,.0f}",
            f"{cpu_ms(samples) / EVENTS * 1e3:.0f}",
        )
        for name, samples in found.items()
    ]
    title = f"{EVENTS:,} events of {size} bytes to {SUBSCRIBERS} subscribers, {way}"
    head = ("who", "deliveries/ms", "by its CPU", "us CPU an event")
    table(title, head, rows)
    shares = [
        bare.wall / mine.wall
        for bare, mine in zip(found["bare fan-out"], found["a served pod"], strict=True)
    ]
    value = statistics.median(shares)
    said = "ok" if value >= RATE_TARGET else "MISSED"
    target = f", target at least {RATE_TARGET:.2f}: {said}" if way != JOINED else ""
    print(f"  rate, of the bare fan-out's, {way}: {value:.2f}{target}")


# --- the slow ones ----------------------------------------------------------------------------


async def with_a_stalled_one(folder: Path, rounds: int) -> None:
    """Print how long events take to those that read, with one beside them that does not."""
    # Twice without: how much that differs is what a difference of the third is worth.
    found: dict[str, list[list[float]]] = {"nobody": [], "nobody, again": [], "one stalled": []}
    async with served(folder) as server:
        path = folder / "home" / "run" / "bench.sock"
        for number in range(rounds + 1):
            order = list(found) if number % 2 else list(reversed(found))
            for name in order:
                stalled = Readers("stall", path, 1) if name == "one stalled" else None
                if stalled is not None:
                    await stalled.line()

                ages = await timed(server, path)
                if number:
                    found[name].append(ages)

                if stalled is not None:
                    stalled.close()

    pooled = {name: sorted(chain.from_iterable(taken)) for name, taken in found.items()}
    rows = [
        (name, *(f"{quantile(ages, q) * 1e6:,.0f}" for q in (0.5, 0.9, 0.99)))
        for name, ages in pooled.items()
    ]
    title = f"{LIVE} that read, a delta a millisecond, {rounds} times {TIMED:,}"
    table(title, ("beside them", "p50 us", "p90 us", "p99 us"), rows)
    p99 = {name: quantile(ages, 0.99) for name, ages in pooled.items()}
    print(f"  p99 again, over the first: {p99['nobody, again'] / p99['nobody']:.2f} x")
    without = statistics.mean((p99["nobody"], p99["nobody, again"]))
    value = p99["one stalled"] / without
    verdict("p99 with one stalled, over without", value=value, limit=P99_TARGET)


async def timed(server: PodServer, path: Path) -> list[float]:
    from pod.protocol import TextDelta

    readers = Readers("wait", path, LIVE)
    try:
        await readers.line()
        gc.collect()
        for _ in range(TIMED):
            server.pod.bus.publish(TextDelta(text=f"{time.monotonic()} {'x' * 500}"))
            await asyncio.sleep(0.001)

        await asyncio.sleep(0.1)
        return await readers.ages()
    finally:
        readers.close()


def quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


async def memory(folder: Path) -> None:
    """Print what a thousand that never read make a pod hold, at the most.

    Deltas are joined for whoever does not read, and those that come while others stall already are
    joined otherwise: they share little, and what is held in the end is what may be held.
    """
    from pod.protocol import Alert, TextDelta

    async with served(folder) as server:
        before, held, most, published = resident_mib(), 0.0, 0.0, 0
        readers = Readers("stall", folder / "home" / "run" / "bench.sock", STALLED)
        try:
            ready = asyncio.create_task(readers.line())
            while not ready.done() or published < FLOOD:
                published += 1
                delta = TextDelta(text=f"{published} {'x' * 1_500}")
                alert = Alert(level="info", message="what parts the deltas")
                server.pod.bus.publish(delta if published % 200 else alert)
                await asyncio.sleep(0)
                held = max(held, server.hub.meter.held / (1 << 20))
                if published % 50 == 0:
                    most = max(most, resident_mib() - before)
        finally:
            readers.close()

    rows = [("lines that are held, as counted", f"{held:.1f}"), ("resident memory", f"{most:.1f}")]
    table(f"{STALLED:,} subscribers that stall one after the other", ("what", "MiB at most"), rows)
    verdict("resident memory", value=most, limit=MEMORY_TARGET_MIB, unit="MiB")


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)


# ----------------------------------------------------------------------------------------------


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    header("serve")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.chdir(ROOT)
    for number, work in enumerate(
        (
            memory,  # first: what the others leave free would be used again, and not be seen
            lambda folder: compare(folder, given.rounds, ONE_BY_ONE),
            lambda folder: compare(folder, given.rounds, IN_BURSTS),
            lambda folder: compare(folder, given.rounds, JOINED),
            lambda folder: with_a_stalled_one(folder, given.rounds),
        )
    ):
        with tempfile.TemporaryDirectory(prefix=f"bench-{number}-") as folder:
            asyncio.run(work(Path(folder)))


if __name__ == "__main__":
    main()
