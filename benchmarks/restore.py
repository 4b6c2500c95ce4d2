"""What it takes to open a session and to restore it, over what its bytes alone take.

The floor is hashing every line, and parsing every line: both have to be done to verify a log and
to read it. What is above that floor is ours.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _history import prose
from _measure import (
    HotSpots,
    Sample,
    add_folder_option,
    cpu_ms,
    folder_on,
    header,
    in_turns,
    table,
    timed,
    verdict,
    wall_ms,
)
from _sessions import a_session, a_store, items

SIZES = (10_000, 100_000)
ROUNDS = {10_000: 5, 100_000: 3}
ENTRY_BYTES = 900
"""Of text; with what stands around it a line has some 1.2 kB."""
HASHING_LIMIT = 2.5
PARSING_LIMIT = 4.0
UNHASHED_BYTES = 75
"""Where the hashed part of a line begins."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hot", action="store_true", help="also print where the time goes")
    add_folder_option(parser)
    given = parser.parse_args()
    header("restore")
    with folder_on(given.dir) as folder:
        for size in SIZES:
            _report(folder, size, hot=given.hot and size == SIZES[-1])

        _report_verifying(folder, SIZES[-1])


def _report(folder: Path, size: int, *, hot: bool) -> None:
    home = folder / f"home-{size}"
    session_id = a_session(home, items(size))
    store = a_store(home)
    log = store.layout.log(session_id)

    def restore() -> None:
        assert len(store.restore(session_id).history) == size

    def verify() -> None:
        assert store.verify(session_id).ok

    def open_it() -> None:
        with store.open(session_id) as session:
            assert len(session.state.history) == size

    calls: dict[str, Callable[[], None]] = {
        "hash every line": partial(_hash_lines, log),
        "parse every line": partial(_parse_lines, log),
        "parse every line, kept": partial(_parse_lines_kept, log),
        "verify": verify,
        "restore": restore,
        "open for writing": open_it,
    }
    found = in_turns({n: partial(timed, call) for n, call in calls.items()}, ROUNDS[size])
    _print(size, log.stat().st_size, found)
    if hot:
        with HotSpots() as spots:
            restore()

        spots.report(f"restoring {size:,} items", top=25)


def _print(size: int, log_bytes: int, found: dict[str, list[Sample]]) -> None:
    floor = wall_ms(found["hash every line"]) + wall_ms(found["parse every line"])
    rows = [
        (
            name,
            f"{wall_ms(taken):.0f}",
            f"{cpu_ms(taken):.0f}",
            f"{size / wall_ms(taken) * 1e3:,.0f}",
            f"{wall_ms(taken) / floor:.2f}",
        )
        for name, taken in found.items()
    ]
    title = f"{size:,} entries, {log_bytes / 1e6:.1f} MB"
    table(title, ("what", "ms", "cpu ms", "entries/s", "of hash + parse"), rows)
    if size == SIZES[-1]:
        ratio = cpu_ms(found["restore"]) / cpu_ms(found["parse every line, kept"])
        verdict("restore / parsing the lines and keeping it", value=ratio, limit=PARSING_LIMIT)


def _report_verifying(folder: Path, size: int) -> None:
    """Say what verifying takes over hashing alone, on lines of 1 KiB."""
    from worker import user_message

    home = folder / "home-verify"
    session_id = a_session(home, (user_message(prose(n, ENTRY_BYTES)) for n in range(size)))
    store = a_store(home)
    log = store.layout.log(session_id)

    def verify() -> None:
        assert store.verify(session_id).ok

    calls = {"hash every line": partial(_hash_lines, log), "verify": verify}
    found = in_turns({n: partial(timed, call) for n, call in calls.items()}, ROUNDS[size])
    hashing = cpu_ms(found["hash every line"])
    rows = [
        (name, f"{wall_ms(taken):.0f}", f"{cpu_ms(taken):.0f}", f"{hashing / cpu_ms(taken):.2f}")
        for name, taken in found.items()
    ]
    title = f"verifying {size:,} entries, {log.stat().st_size / size:,.0f} bytes each"
    table(title, ("what", "ms", "cpu ms", "rate of hashing"), rows)
    value = cpu_ms(found["verify"]) / hashing
    verdict("verify / hashing the lines, CPU", value=value, limit=HASHING_LIMIT)


def _hash_lines(log: Path) -> None:
    with log.open("rb") as file:
        for line in file:
            hashlib.sha256(line[UNHASHED_BYTES:-1]).hexdigest()


def _parse_lines(log: Path) -> None:
    import orjson

    with log.open("rb") as file:
        for line in file:
            orjson.loads(line)


def _parse_lines_kept(log: Path) -> None:
    import orjson

    with log.open("rb") as file:
        kept = [orjson.loads(line) for line in file]

    assert kept


if __name__ == "__main__":
    main()
