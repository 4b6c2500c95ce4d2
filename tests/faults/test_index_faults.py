"""Whatever happens to the index, it answers as one that is made anew from the logs."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import FileSessionStore
from session_store.index import SessionIndex
from tests.faults.figures import figure, report, within
from tests.faults.lives import QuietDisk
from tests.session_store.builders import a_store, a_turn, begun, told

SESSIONS = figure("INDEXED_SESSIONS", 120)
QUESTIONS = ("question", "answer 1", "detail", "日本", "no such word")


def answers(home: Path) -> list[object]:
    index = SessionIndex(home, on_notice=lambda _: None)
    return [index.sessions(), *(index.search(words) for words in QUESTIONS)]


def fresh(home: Path) -> list[object]:
    """What an index says that never was there before."""
    for path in home.glob("index.db*"):
        path.rename(path.with_name(f"kept-{path.name}"))

    found = answers(home)
    for path in home.glob("index.db*"):
        path.unlink()

    for path in home.glob("kept-*"):
        path.rename(path.with_name(path.name.removeprefix("kept-")))

    return found


@pytest.fixture
def store(ram: Path) -> FileSessionStore:
    store = a_store(ram / "home", disk=QuietDisk())
    for number in range(SESSIONS):
        told(store, 1 + number % 3)

    assert answers(ram / "home") == fresh(ram / "home")
    return store


def deleted(store: FileSessionStore, kept: Path) -> None:
    for path in store.layout.home.glob("index.db*"):
        path.unlink()


def corrupt(store: FileSessionStore, kept: Path) -> None:
    path = store.layout.home / "index.db"
    data = bytearray(path.read_bytes())
    chance = random.Random(len(data))  # noqa: S311  a repeatable choice, no secret
    for _ in range(40):
        at = chance.randrange(100, len(data))
        data[at : at + 64] = chance.randbytes(64)

    path.write_bytes(data)
    for path in store.layout.home.glob("index.db-*"):
        path.unlink()


def cut_short(store: FileSessionStore, kept: Path) -> None:
    path = store.layout.home / "index.db"
    os.truncate(path, path.stat().st_size // 2)


def older(store: FileSessionStore, kept: Path) -> None:
    """An index from before much of what is in the logs now."""
    for path in store.layout.home.glob("index.db*"):
        path.unlink()

    for path in kept.glob("index.db*"):
        shutil.copy(path, store.layout.home)


def newer(store: FileSessionStore, kept: Path) -> None:
    """Logs from a copy that was made before much of what is in the index now."""
    shutil.rmtree(store.layout.sessions)
    shutil.copytree(kept / "sessions", store.layout.sessions)


@within(60)
@pytest.mark.parametrize("happens", [deleted, corrupt, cut_short, older, newer])
def test_it_is_made_anew_and_says_the_same(
    store: FileSessionStore, ram: Path, happens: Callable[[FileSessionStore, Path], None]
) -> None:
    home, kept = store.layout.home, ram / "kept"
    shutil.copytree(home, kept)
    for session_id in store.ids()[::3]:
        with store.open(session_id) as session:
            a_turn(session, 9)

    store.remove(store.ids()[1])
    with begun(store) as session:
        a_turn(session, 1)

    answers(home)
    happens(store, kept)
    found = answers(home)
    assert found == fresh(home)
    assert answers(home) == found
    report("T17 index faults", sessions=SESSIONS, different=0)


@within(60)
def test_it_answers_while_another_one_holds_it_and_the_log_goes_on(store: FileSessionStore) -> None:
    home = store.layout.home
    held = sqlite3.connect(home / "index.db", isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    try:
        with store.open(store.ids()[0]) as session:
            a_turn(session, 9)

        found = answers(home)
    finally:
        held.execute("ROLLBACK")
        held.close()

    assert found == answers(home) == fresh(home)


@within(60)
@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_in_its_file_end_in_an_answer(store: FileSessionStore, seed: int) -> None:
    """SQLite keeps no checksums, so what is in a row may be another thing; deleting it helps."""
    home, path = store.layout.home, store.layout.home / "index.db"
    good, wanted = path.read_bytes(), answers(store.layout.home)
    chance = random.Random(seed)  # noqa: S311  as above
    for _ in range(6):
        data = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            data[at : at + 16] = chance.randbytes(16)

        for other in home.glob("index.db*"):
            other.unlink()

        path.write_bytes(data)
        path.chmod(0o600)
        assert len(answers(home)) == len(wanted)

    for other in home.glob("index.db*"):
        other.unlink()

    assert answers(home) == wanted
