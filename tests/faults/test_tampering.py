"""Every change to a log that somebody can make without its anchor is noticed; nothing else is."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from session_store import EntryRef, FileSessionStore, SessionDamaged
from session_store.anchor import Anchor
from session_store.chain import START, Position, advanced
from session_store.reader import Reader
from session_store.recovery import Damaged, NoNewline, Sound, Torn, Verdict
from tests.faults.figures import figure, report, within
from tests.faults.lives import QuietDisk
from tests.session_store.builders import a_store, a_turn, begun, told
from tests.session_store.memory_logs import MemoryLogs

ENTRIES = 200
FLIPS_PER_BYTE = figure("FLIPS_PER_BYTE", 1)
CLEAN_OPENS = figure("CLEAN_OPENS", 500)


class OneLog(MemoryLogs):
    """A log whose bytes are whatever a test makes of them; its anchor stays as it was."""

    def __init__(self, session_id: str, data: bytes, anchor: Anchor) -> None:
        super().__init__()
        self.session_id = session_id
        self.data = data
        self.shown = data
        self.anchor = anchor

    def read(self, session_id: str) -> BinaryIO:
        return BytesIO(self.shown)

    def head(self, session_id: str) -> Anchor:
        return self.anchor

    def judged(self, data: bytes, start: Position = START) -> Verdict:
        self.shown = data
        reader = Reader(self, self.session_id, start)
        reader.run()
        return reader.verdict


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> OneLog:
    """A log of 200 entries, of every kind that a run has, closed and so anchored at its head."""
    store = a_store(tmp_path_factory.mktemp("home"))
    with begun(store) as session:
        for number in range((ENTRIES - 1) // 8):
            a_turn(session, number)

        while session.head.seq < ENTRIES - 1:
            session.append("extension", domain="d", payload=session.head.seq)

    data = store.layout.log(session.session_id).read_bytes()
    one = OneLog(session.session_id, data, Anchor(*session.head, len(data)))
    assert data.count(b"\n") == ENTRIES
    assert one.judged(data) == Sound()
    return one


def starts(data: bytes) -> list[Position]:
    """The places before each entry, and after the last."""
    places = [START]
    for line in data.split(b"\n")[:-1]:
        places.append(advanced(places[-1], line + b"\n"))

    return places


@within(60)
@pytest.mark.parametrize("part", range(4))
def test_every_flip_of_every_byte(log: OneLog, part: int) -> None:
    good = log.data
    chance = random.Random(part)  # noqa: S311  a repeatable choice, no secret
    places = starts(good)
    flips = 0
    for seq in range(part, ENTRIES, 4):
        begin, end = places[seq].offset, places[seq + 1].offset
        for offset in range(begin, end):
            for change in chance.sample(range(1, 256), min(FLIPS_PER_BYTE, 255)):
                data = bytearray(good)
                data[offset] ^= change
                # What is before is as it was: to go on from there is what a whole pass comes to.
                verdict = log.judged(bytes(data), places[seq])
                assert isinstance(verdict, Damaged), (offset, change)
                assert verdict.seq == seq, (offset, change)
                flips += 1

    report("T09 flips of a byte", flips=flips, missed=0)
    assert flips > len(good) // 8


def test_every_cut(log: OneLog) -> None:
    good, places = log.data, starts(log.data)
    for seq in range(ENTRIES):
        for offset in range(places[seq].offset, places[seq + 1].offset):
            verdict = log.judged(good[:offset], places[seq] if seq else START)
            if offset == len(good) - 1:
                assert verdict == NoNewline(), "nothing of it is missing"
            else:
                assert isinstance(verdict, Damaged), offset

    report("T09 cuts", cuts=len(good), missed=0)


@within(60)
def test_lines_swapped_doubled_and_left_out(log: OneLog) -> None:
    good = log.data
    lines = good.split(b"\n")[:-1]
    chance = random.Random(1)  # noqa: S311  as above
    changes = 0

    def notice(changed: list[bytes], first_bad: int) -> None:
        nonlocal changes
        verdict = log.judged(b"".join(line + b"\n" for line in changed))
        assert isinstance(verdict, Damaged)
        assert verdict.seq == first_bad
        changes += 1

    for seq in range(ENTRIES):
        if seq < ENTRIES - 1:
            notice([*lines[: seq + 1], lines[seq], *lines[seq + 1 :]], seq + 1)

        other = chance.choice([n for n in range(ENTRIES) if n != seq])
        one, two = sorted((seq, other))
        swapped = lines.copy()
        swapped[one], swapped[two] = lines[two], lines[one]
        notice(swapped, one)
        # With nothing after it, the last one there is what should not be the last.
        notice([*lines[:seq], *lines[seq + 1 :]], min(seq, ENTRIES - 2))

    # What comes after all that was acknowledged takes nothing away, and is set aside.
    more = log.judged(good + lines[-1] + b"\n")
    assert more == Torn(len(good), len(lines[-1]) + 1)

    for upto in range(1, ENTRIES):
        notice(lines[:upto], upto - 1)

    report("T09 lines", changes=changes, missed=0)


def test_an_end_made_up_anew_with_hashes_that_fit(home: Path) -> None:
    """At each entry: cut off there, and something else appended by a store without the anchor."""
    store = a_store(home, disk=QuietDisk())
    session_id = told(store, 3)
    path, anchor = store.layout.log(session_id), store.layout.anchor(session_id)
    good, kept = path.read_bytes(), anchor.read_bytes()
    for place in starts(good)[1:-1]:
        path.write_bytes(good[: place.offset])
        anchor.unlink()
        with store.open(session_id) as session:
            while session.head.seq < good.count(b"\n"):
                session.append("extension", domain="d", payload="made up")

        assert store.verify(session_id).ok, "the chain alone does not tell"
        anchor.write_bytes(kept)
        found = store.verify(session_id)
        assert not found.ok
        with pytest.raises(SessionDamaged):
            store.open(session_id)


@pytest.mark.parametrize("part", range(2))
def test_a_sample_through_the_files(log: OneLog, home: Path, part: int) -> None:
    """The same as above, as users meet it: by verifying, restoring and opening."""
    store = a_store(home, disk=QuietDisk())
    path = placed(store, log)
    chance = random.Random(part)  # noqa: S311  as above
    for _ in range(60):
        data = bytearray(log.data)
        data[chance.randrange(len(data))] ^= chance.randint(1, 255)
        path.write_bytes(data)
        assert not store.verify(log.session_id).ok
        for use in (store.restore, store.open):
            with pytest.raises(SessionDamaged):
                use(log.session_id)

        assert path.read_bytes() == data, "nothing was changed"


@within(60)
def test_no_false_alarms(home: Path, log: OneLog) -> None:
    store = a_store(home, disk=QuietDisk())
    placed(store, log)
    head = EntryRef(log.anchor.seq, log.anchor.hash)
    for _ in range(CLEAN_OPENS):
        with store.open(log.session_id) as session:
            assert session.head == head

    report("T09 clean opens", opens=CLEAN_OPENS, false_alarms=0)


def placed(store: FileSessionStore, log: OneLog) -> Path:
    begun(store).close()  # for the folders
    path = store.layout.log(log.session_id)
    for name, data in (
        (path, log.data),
        (
            store.layout.anchor(log.session_id),
            b'{"seq":%d,"hash":"%b"}' % (log.anchor.seq, log.anchor.hash.encode()),
        ),
    ):
        name.write_bytes(data)
        name.chmod(0o600)

    return path
