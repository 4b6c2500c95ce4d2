"""Sessions beside openai-agents' `SQLiteSession`, on the same disk: append, load, fork.

Both wait for the medium with each append: ours syncs its log, SQLite its write-ahead log, which it
does as it comes (`synchronous` is FULL; what it really is, is asked and printed). Loading ours
verifies the whole chain as well; the peer has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from _measure import (
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
from _peer import Peer
from _sessions import a_session, a_store, items

APPENDS = 10
"""So few in a turn, and many turns: a disk that others use has moods that last for seconds."""
APPEND_ROUNDS = 80
LOADED = 100_000
FORKED = 10_000
ROUNDS = 5
FORK_LIMIT = 0.1
"""What a fork may take of the peer's time. The rest is shown and has no target."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer-python", type=Path, metavar="PYTHON", help="an interpreter that has openai-agents"
    )
    add_folder_option(parser)
    given = parser.parse_args()
    header("store")
    with folder_on(given.dir) as folder, ExitStack() as stack:
        peer = None
        if given.peer_python is None:
            print("peer skipped: no --peer-python")
        else:
            (folder / "peer").mkdir()
            arguments = (given.peer_python, "_peer_sqlite_session.py", str(folder / "peer"))
            peer = stack.enter_context(Peer(*arguments))
            print(f"peer: {peer.about}")

        _report_appends(folder, peer)
        _report_loading(folder, peer)
        _report_forks(folder, peer)


def _report_appends(folder: Path, peer: Peer | None) -> None:
    from session_store import FileSessionStore

    made = items(APPENDS)
    store = FileSessionStore(folder / "durable")
    with store.create(pod="bench", system_prompt="Be brief.", config={"model": "m"}) as session:

        def append() -> None:
            for item in made:
                session.append_items("assistant_items", [item])

        ours = {"Session.append": partial(timed, append)}
        found = in_turns(ours | _asked(peer, APPENDS, {"add_items": "append"}), APPEND_ROUNDS)

    _print(f"{APPENDS:,} durable appends, one by one", found, count=APPENDS)
    _compare(found, "Session.append", "add_items")


def _report_loading(folder: Path, peer: Peer | None) -> None:
    session_id = a_session(folder / "home", items(LOADED))
    store = a_store(folder / "home")

    def restore() -> None:
        assert len(store.restore(session_id).history) == LOADED

    ours = {"restore, the chain verified": partial(timed, restore)}
    found = in_turns(ours | _asked(peer, LOADED, {"get_items": "load"}), ROUNDS)
    _print(f"loading a session of {LOADED:,} items", found, count=LOADED)
    _compare(found, "restore, the chain verified", "get_items")


def _report_forks(folder: Path, peer: Peer | None) -> None:
    parent = a_session(folder / "home", items(FORKED))
    store = a_store(folder / "home")

    def fork_and_open() -> None:
        store.open(store.fork(parent)).close()

    ours: dict[str, Callable[[], Sample]] = {
        "fork": partial(timed, lambda: store.fork(parent)),
        "fork, and open it": partial(timed, fork_and_open),
    }
    asked = {"all items into a new session": "copy", "AdvancedSQLiteSession, a branch": "branch"}
    found = in_turns(ours | _asked(peer, FORKED, asked), ROUNDS)
    _print(f"a fork of a session of {FORKED:,} items", found)
    for name in asked:
        _compare(found, "fork", name, limit=FORK_LIMIT)


def _asked(peer: Peer | None, count: int, names: dict[str, str]) -> dict[str, Callable[[], Sample]]:
    if peer is None:
        return {}

    return {f"peer: {shown}": partial(_ask, peer, count, name) for shown, name in names.items()}


def _ask(peer: Peer, count: int, name: str) -> Sample:
    answer = peer.measure(count, name)
    assert answer["result"], "the peer did nothing"
    return Sample(answer["wall"], answer["cpu"])


def _print(title: str, found: dict[str, list[Sample]], count: int = 0) -> None:
    rows = [
        (
            name,
            f"{wall_ms(taken):,.1f}",
            f"{cpu_ms(taken):,.1f}",
            f"{count / wall_ms(taken) * 1e3:,.0f}" if count else "-",
        )
        for name, taken in found.items()
    ]
    table(title, ("what", "ms", "cpu ms", "items/s"), rows)


def _compare(
    found: dict[str, list[Sample]], ours: str, theirs: str, limit: float | None = None
) -> None:
    peers = found.get(f"peer: {theirs}")
    if not peers:
        return

    ratio = wall_ms(found[ours]) / wall_ms(peers)
    if limit is None:
        print(f"  {ours} / {theirs}: {ratio:.2f} x, no target")
    else:
        verdict(f"{ours} / {theirs}", value=ratio, limit=limit)


if __name__ == "__main__":
    main()
