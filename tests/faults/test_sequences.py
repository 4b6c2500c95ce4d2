"""Every two operations after each other, and a loss of power after every step of them."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from session_store import Session
from tests.faults.figures import figure, report, within
from tests.faults.lives import Life, Promises, QuietDisk, what_is_broken
from tests.faults.power import Medium, Sync, SyncFolder, TracingDisk, images, put, taken
from tests.session_store.builders import a_store

LENGTH = figure("SEQUENCE_LENGTH", 2)
STATES_PER_STEP = figure("STATES_PER_STEP", 6)


def torn(life: Life) -> None:
    """The writer dies in the middle of a line, and another one opens the session."""
    session = _first(life)
    log = life.store.layout.log(session.session_id)
    life.open.pop(session.session_id).close()
    with log.open("ab") as file:
        file.write(b'{"hash":"torn')

    disk = life.store.disk
    assert isinstance(disk, TracingDisk)
    disk.grown(log, b'{"hash":"torn')
    life.reopen(session.session_id)


def closed(life: Life) -> None:
    session = _first(life)
    life.open.pop(session.session_id).close()
    life.reopen(session.session_id)


def removed(life: Life) -> None:
    life.store.remove(life.store.fork(_first(life).session_id))


def detached(life: Life) -> None:
    child = life.store.fork(_first(life).session_id)
    life.store.detach(child)
    life.promises.session(child)


def _first(life: Life) -> Session:
    return next(iter(life.open.values()))


OPERATIONS: dict[str, Callable[[Life], None]] = {
    "create": Life.create,
    "append": Life.say,
    "append several": Life.note_several,
    "append a large one": Life.picture,
    "anchor": Life.anchor,
    "close and open": closed,
    "recover": torn,
    "fork": Life.fork,
    "compact": Life.compact,
    "replace": Life.replace,
    "rewind": Life.rewind,
    "point": Life.point,
    "detach": detached,
    "remove": removed,
}


@within(60)
@pytest.mark.parametrize("first", OPERATIONS)
def test_a_loss_of_power_at_any_step_of_any_two_operations(ram: Path, first: str) -> None:
    found: Counter[str] = Counter()
    steps = 0
    for number, rest in enumerate(product(OPERATIONS, repeat=LENGTH - 1)):
        chance = random.Random(f"{first} {number}")  # noqa: S311  a repeatable choice, no secret
        steps += a_sequence(ram, (first, *rest), chance, found)

    report("T04 sequences", sequences=number + 1, steps=steps, states=found.total(), broken=0)
    assert found.keys() == {""}, found


def a_sequence(
    ram: Path, names: tuple[str, ...], chance: random.Random, found: Counter[str]
) -> int:
    home, promises = ram / "home", Promises(lambda: 0)
    home.mkdir()
    before = Life(a_store(home, disk=QuietDisk()), promises, chance)
    before.create()
    before.say()
    before.end()
    image = taken(home)

    disk = TracingDisk(home)
    promises.position = lambda: len(disk.trace)
    promises = promises.up_to(0)
    life = Life(a_store(home, disk=disk), promises, chance)
    life.reopen(promises.sessions[0][1])
    for name in names:
        OPERATIONS[name](life)

    trace = disk.trace[:]
    life.end()
    shutil.rmtree(home)
    medium, steps = Medium.before(disk, image), 0
    for at, operation in enumerate(trace):
        # What a crash leaves changes with what is made durable: look right before and at the end.
        if isinstance(operation, Sync | SyncFolder) or at == len(trace) - 1:
            steps += 1
            for state in images(medium, chance, STATES_PER_STEP):
                put(state, home)
                broken = what_is_broken(home, promises.up_to(at), go_on=False)
                found[f"{broken} in {names}" if broken else ""] += 1
                shutil.rmtree(home)

        medium.take(operation)

    return steps
