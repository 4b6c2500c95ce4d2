"""What a fork costs: of a session of 10 items, and of one of 100,000."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from _measure import (
    HotSpots,
    Sample,
    add_folder_option,
    awake_ms,
    folder_on,
    header,
    in_turns,
    table,
    timed,
    verdict,
    wall_ms,
)
from _sessions import a_session, a_store, items

SIZES = (10, 100_000)
ROUNDS = 7
LIMIT = 2.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hot", action="store_true", help="also print where the time goes")
    add_folder_option(parser)
    given = parser.parse_args()
    header("fork")
    with folder_on(given.dir) as folder:
        _report(folder, hot=given.hot)


def _report(folder: Path, *, hot: bool) -> None:
    store = a_store(folder / "home")
    parents = {size: a_session(folder / "home", items(size)) for size in SIZES}

    def fork(size: int) -> Sample:
        return timed(lambda: store.fork(parents[size]))

    actions = {f"{size:,} items": functools.partial(fork, size) for size in SIZES}
    found = in_turns(actions, ROUNDS)
    small, large = found.values()
    rows = [
        (
            name,
            f"{wall_ms(taken):.2f}",
            f"{awake_ms(taken):.2f}",
            f"{wall_ms(taken) / wall_ms(small):.2f}",
        )
        for name, taken in found.items()
    ]
    table("one fork at the head", ("of", "ms", "ms but syncing", "ratio"), rows)
    ratio = wall_ms(large) / wall_ms(small)
    verdict(f"{SIZES[1]:,} items / {SIZES[0]} items", value=ratio, limit=LIMIT)
    _print_opening(folder, parents)
    if hot:
        with HotSpots() as spots:
            store.fork(parents[SIZES[1]])

        spots.report(f"a fork of {SIZES[1]:,} items")


def _print_opening(folder: Path, parents: dict[int, str]) -> None:
    """Say what opening the fork takes: all that it inherits is verified and read then."""
    store = a_store(folder / "home")
    children = {size: store.fork(parent) for size, parent in parents.items()}

    def open_it(child: str) -> None:
        store.open(child).close()

    actions = {
        f"{size:,} items": functools.partial(timed, functools.partial(open_it, child))
        for size, child in children.items()
    }
    found = in_turns(actions, 3)
    rows = [(name, f"{wall_ms(taken):.1f}") for name, taken in found.items()]
    table("opening the fork afterwards, for comparison", ("of", "ms"), rows)


if __name__ == "__main__":
    main()
