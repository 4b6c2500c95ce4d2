"""What every benchmark is made with: samples, medians, tables, and a folder on a real disk."""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import os
import pstats
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
WAITS = (
    "<method 'acquire' of '_thread.lock' objects>",
    "<method 'poll' of 'select.epoll' objects>",
)
PACKAGES = ("manifests", "worker", "session_store", "pod")
sys.path.insert(1, str(ROOT))  # the packages beside us, whether or not they are installed


class Sample(NamedTuple):
    """One measurement, in seconds."""

    wall: float
    cpu: float
    """Of this process, all threads."""
    syncing: float = 0.0
    """Spent waiting for the disk, where that was watched."""


def timed(action: Callable[[], object]) -> Sample:
    """Return what one call takes, after garbage that is not its own was collected."""
    gc.collect()
    with SyncWatch() as watch:
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        cpu_taken, wall_taken = time.process_time() - cpu, time.perf_counter() - wall

    return Sample(wall_taken, cpu_taken, watch.seconds)


def in_turns(actions: Mapping[str, Callable[[], Sample]], rounds: int) -> dict[str, list[Sample]]:
    """Return the samples of each action, taken in turns, so that a busy moment hits them all.

    Every second round goes backwards: none has the same neighbour every time. The first round
    warms up and does not count.
    """
    found: dict[str, list[Sample]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name in list(actions) if number % 2 else reversed(list(actions)):
            sample = actions[name]()
            if number:
                found[name].append(sample)

    return found


def wall_ms(samples: Iterable[Sample]) -> float:
    """Return the median of the wall time, in milliseconds."""
    return statistics.median(sample.wall for sample in samples) * 1e3


def cpu_ms(samples: Iterable[Sample]) -> float:
    """Return the median of the CPU time, in milliseconds."""
    return statistics.median(sample.cpu for sample in samples) * 1e3


def awake_ms(samples: Iterable[Sample]) -> float:
    """Return the median of the wall time without what was spent syncing, in milliseconds."""
    return statistics.median(sample.wall - sample.syncing for sample in samples) * 1e3


# --- the disk -----------------------------------------------------------------------------------


class SyncWatch:
    """Counts the time that the session store waits for the disk, while it is entered."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> Self:
        from session_store import Disk

        for name in ("sync", "sync_folder"):
            watched = self._watched(getattr(Disk, name))
            self._patches.enter_context(mock.patch.object(Disk, name, watched))

        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patches.close()

    def _watched(self, call: Callable[..., None]) -> Callable[..., None]:
        def watched(*args: object) -> None:
            began = time.perf_counter()
            try:
                call(*args)
            finally:
                self.seconds += time.perf_counter() - began

        return watched


def add_folder_option(parser: argparse.ArgumentParser) -> None:
    """Let the caller say which disk is measured."""
    parser.add_argument(
        "--dir",
        type=Path,
        default=ROOT / "build",
        metavar="FOLDER",
        help="a folder on the disk to measure (default: build/ in the project)",
    )


@contextmanager
def folder_on(where: Path) -> Iterator[Path]:
    """Yield a new folder under `where`, and say what file system it is on; it is removed after."""
    where.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=where))
    kind = file_system_of(folder)
    print(f"file system: {kind}")
    if kind in {"tmpfs", "ramfs"}:
        print("  this is memory: what is said of syncing means nothing; name a disk with --dir")

    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def file_system_of(path: Path) -> str:
    """Return the kind of the file system that `path` is on, as the system names it."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"

    kinds = {fields[1]: fields[2] for fields in map(str.split, lines)}
    around = [str(folder) for folder in (path.resolve(), *path.resolve().parents)]
    return next((kinds[folder] for folder in around if folder in kinds), "unknown")


# --- tables -------------------------------------------------------------------------------------


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a head; the first column to the left, numbers to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print(f"\n{title}")
    for line in lines:
        cells = [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(["  " + line[0].ljust(widths[0]), *cells]).rstrip())


def verdict(what: str, *, value: float, limit: float, unit: str = "x") -> None:
    """Print a figure beside what it may be. A figure that is missed is told, and is no failure."""
    said = "ok" if value <= limit else "MISSED"
    print(f"  {what}: {value:,.2f} {unit}, target at most {limit:,.2f} {unit}: {said}")


def header(name: str) -> None:
    """Print what runs, on what, and how busy that is."""
    load = os.getloadavg()[0]
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"{name}: Python {version}, {os.cpu_count()} CPUs, load {load:.1f}")


# --- where the time goes ------------------------------------------------------------------------


class HotSpots:
    """Profiles every thread that starts after this was made, and the one that enters it.

    A profile makes calls dearer than they are: it tells where to look, not how long it takes.
    """

    def __init__(self) -> None:
        self._profiles: list[cProfile.Profile] = []
        threading.setprofile(self._join)

    def __enter__(self) -> Self:
        for profile in self._profiles:
            profile.clear()

        self._own = cProfile.Profile()
        self._own.enable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._own.disable()
        threading.setprofile(None)

    def report(self, title: str, top: int = 15) -> None:
        """Print where the time went: own time of any function, whole time of ours."""
        stats = pstats.Stats(self._own)
        for profile in self._profiles:
            with contextlib.suppress(TypeError):  # a thread that did nothing has no statistics
                stats.add(profile)

        spent = [
            (_place(key), calls, own * 1e3, whole * 1e3)
            for key, (_, calls, own, whole, _) in stats.stats.items()  # type: ignore[attr-defined]  # typeshed lacks it
            if key[2] not in WAITS
        ]
        head = ("where", "calls", "own ms", "with callees ms")
        mine = [row for row in spent if row[0].startswith(PACKAGES)]
        for order, kind, found in ((2, "own time", spent), (3, "time with callees, ours", mine)):
            best = sorted(found, key=lambda row: row[order], reverse=True)[:top]
            rows = [
                (place, f"{n:,}", f"{own:.1f}", f"{whole:.1f}") for place, n, own, whole in best
            ]
            table(f"{title}, by {kind}", head, rows)

    def _join(self, *_event: object) -> None:
        profile = cProfile.Profile()
        self._profiles.append(profile)
        profile.enable()


def _place(key: tuple[str, int, str]) -> str:
    filename, line, name = key
    path = Path(filename)
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(*path.parts[-2:])
    return f"{shown}:{line} {name}" if line else name
