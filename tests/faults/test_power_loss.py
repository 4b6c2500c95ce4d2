"""A loss of power at any moment: what was acknowledged is there, and nothing whole is refused.

Only this tells whether a store syncs what it must: a process that is killed loses nothing that it
has written, synced or not.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_store import Durability
from tests.faults.figures import SEED, figure, report, shares, within
from tests.faults.lives import Life, Promises, QuietDisk, what_is_broken
from tests.faults.mutants import MUTANTS
from tests.faults.power import SECTOR, Image, Medium, Operation, TracingDisk, images, put, taken
from tests.session_store.builders import a_store

STATES = figure("POWER_STATES", 20_000)
PARTS = 10
LIVES = 3
STATES_PER_LIFE = 40
STEPS = 9


def a_run(
    ram: Path,
    seed: int,
    make_disk: type[TracingDisk] = TracingDisk,
    durability: Durability = Durability.FSYNC,
) -> Counter[str]:
    """Some lives of one home, each ended by a loss of power; how many states were how."""
    chance = random.Random(seed)  # noqa: S311  a repeatable choice, no secret
    found: Counter[str] = Counter()
    image: Image = {}
    promises = Promises(lambda: 0, appends_last=durability is Durability.FSYNC)
    with tempfile.TemporaryDirectory(dir=ram) as folder:
        home = Path(folder, "home")
        for _ in range(LIVES):
            put(image, home)
            disk = make_disk(home)
            promises.position = lambda disk=disk: len(disk.trace)
            life = Life(a_store(home, disk=disk, durability=durability), promises, chance)
            life.live(STEPS)
            trace = disk.trace[:]
            life.end()
            shutil.rmtree(home)

            whole = []
            for state, kept in states_after(trace, Medium.before(disk, image), promises, chance):
                broken = _look(home, state, kept, go_on=found.total() % 5 == 0)
                found[broken] += 1
                whole += [] if broken else [(state, kept)]

            if not whole:
                break

            image, promises = chance.choice(whole)

    return found


def states_after(
    trace: list[Operation], medium: Medium, promises: Promises, chance: random.Random
) -> Iterator[tuple[Image, Promises]]:
    """What may be found, and what was promised, at some places in the trace."""
    at = 0
    for cut in sorted(chance.choices(range(len(trace) + 1), k=STATES_PER_LIFE // 8)):
        for operation in trace[at:cut]:
            medium.take(operation)

        at, kept = cut, promises.up_to(cut)
        for state in images(medium, chance, 8):
            yield state, kept


def _look(home: Path, state: Image, kept: Promises, *, go_on: bool) -> str:
    put(state, home)
    try:
        return what_is_broken(home, kept, go_on=go_on)
    finally:
        shutil.rmtree(home)


@within(60)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_acknowledged_is_lost_and_nothing_whole_is_refused(ram: Path, part: int) -> None:
    found: Counter[str] = Counter()
    runs, seed = 0, SEED + part
    while found.total() < shares(STATES, PARTS)[part]:
        found += a_run(ram, seed)
        runs, seed = runs + 1, seed + PARTS

    report("T03 power loss", runs=runs, states=found.total(), broken=found.total() - found[""])
    assert found.keys() == {""}, found


@within(60)
@pytest.mark.parametrize("block", range(4))
def test_a_tail_that_is_mended_is_mended_whole_or_torn_as_it_was(ram: Path, block: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(block, 40, 4):
        found += a_mending(ram, seed)

    report("T03 power loss while mending", states=found.total(), broken=found.total() - found[""])
    assert found.keys() == {""}, found


def a_mending(ram: Path, seed: int, make_disk: type[TracingDisk] = TracingDisk) -> Counter[str]:
    """A session whose last entries are torn is opened; the power goes at each step of that."""
    chance = random.Random(seed)  # noqa: S311  a repeatable choice, no secret
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=ram) as folder:
        home = Path(folder, "home")
        promises = Promises(lambda: 0)
        image = torn_batch(home, promises, chance)
        put(image, home)
        disk = make_disk(home)
        promises.position = lambda: len(disk.trace)
        life = Life(a_store(home, disk=disk), promises, chance)
        life.reopen(promises.sessions[0][1])
        trace = disk.trace[:]
        life.end()
        shutil.rmtree(home)
        medium = Medium.before(disk, image)
        for cut in range(len(trace) + 1):
            for state in images(medium, chance, 12):
                found[_look(home, state, promises.up_to(cut), go_on=True)] += 1

            for operation in trace[cut : cut + 1]:
                medium.take(operation)

    return found


def torn_batch(home: Path, promises: Promises, chance: random.Random) -> Image:
    """A home with one session, whose last write was of several entries and lost its beginning."""
    home.mkdir()
    store = a_store(home, disk=QuietDisk())
    life = Life(store, promises, chance)
    life.create()
    (session,) = life.open.values()
    log = store.layout.log(session.session_id)
    good = log.stat().st_size
    sizes = chance.choices((1, 300, 900), k=chance.randint(2, 9))
    session.append_many([("extension", {"domain": "d", "payload": "z" * size}) for size in sizes])
    image = taken(home)
    life.end()
    shutil.rmtree(home)
    name = str(log.relative_to(home.resolve()))
    content = image[name]
    assert content is not None
    lost = min(len(content), good + SECTOR - good % SECTOR)
    image[name] = content[:good] + bytes(lost - good) + content[lost:]
    return image


# --- a store that breaks a rule is found out ----------------------------------------------------


@within(60)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_store_that_breaks_a_rule_is_found_out(ram: Path, name: str) -> None:
    """Without this, the tests above might pass for a store that never syncs."""
    found: Counter[str] = Counter()
    for seed in range(60):
        if name == "cut off without a sync":
            found += a_mending(ram, seed, MUTANTS[name])
        elif name == "anchor before log":
            found += of_the_anchor(a_run(ram, seed, MUTANTS[name], Durability.FLUSH))
        else:
            found += a_run(ram, seed, MUTANTS[name])

        if found.keys() - {""}:
            break

    report("T03m mutants", killed=1, states=found.total())
    assert found.keys() - {""}, "the mutant lives"


@within(60)
def test_an_anchor_is_never_ahead_even_where_appends_wait_for_the_system_only(ram: Path) -> None:
    found: Counter[str] = Counter()
    for seed in range(12):
        found += of_the_anchor(a_run(ram, seed, TracingDisk, Durability.FLUSH))

    assert found.keys() == {""}, found


def of_the_anchor(found: Counter[str]) -> Counter[str]:
    """Of what was found, only what an anchor that is ahead of its log would lead to.

    Appends that were not synced may be lost in any order, which no store can hide.
    """
    return Counter({text: found[text] for text in found if not text or "cut short" in text})
