"""The ledger: what it knows of launches, whatever was lost of it, and that it never fails a pod."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pod.protocol import Envelope, EventData, SessionChanged, TextDelta, TurnEnd
from pod.serve.ledger import Launch, Ledger, Row, old_path, read_ledger
from pod.serve.replay import Stretch, stretches

ONE, TWO, THREE = ("1" * 32, "2" * 32, "3" * 32)


def told(
    launch: str, seq: int, *, entry: int | None = None, data: EventData | None = None
) -> Envelope:
    ref = ("s", seq * 10 if entry is None else entry)
    return Envelope(seq, launch, 1_000 + seq, data or TurnEnd(turn=seq), ref)


def row(launch: str, seq: int, entry: int | None = None) -> Row:
    place = ("s", seq * 10 if entry is None else entry)
    return Row(launch, seq, 1_000 + seq, "turn_end", place)


def write(path: Path, launch: str, *seqs: int, max_bytes: int = 1 << 20) -> None:
    ledger = Ledger(path, launch, max_bytes)
    ledger.open()
    for seq in seqs:
        ledger.note(told(launch, seq))

    ledger.close()


def test_each_launch_is_known_by_its_durable_events(tmp_path: Path) -> None:
    path = tmp_path / "probe.seqs"
    ledger = Ledger(path, ONE)
    ledger.open()
    ledger.note(told(ONE, 2))
    ledger.note(Envelope(3, ONE, 1, TextDelta(text="x")))
    moved = SessionChanged(old_session_id="s", new_session_id="t", reason="new")
    ledger.note(Envelope(4, ONE, 5, moved))
    ledger.close()
    write(path, TWO)
    assert read_ledger(path) == [
        Launch(
            ONE,
            1,
            (row(ONE, 2), Row(ONE, 4, 5, "session_changed", ("s", -1), "t", "new")),
        ),
        Launch(TWO, 1, ()),
    ]
    assert path.stat().st_mode & 0o077 == 0


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "probe.seqs") == []


def test_it_is_turned_over_and_says_from_where_on_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "probe.seqs"
    write(path, ONE, *range(1, 500), max_bytes=2_000)
    assert path.stat().st_size + old_path(path).stat().st_size < 5_000
    (known,) = read_ledger(path)
    assert known.launch == ONE
    assert known.since == known.rows[0].seq > 1
    assert [one.seq for one in known.rows] == list(range(known.since, 500))
    write(path, TWO, 1, 2)
    assert [launch.launch for launch in read_ledger(path)] == [ONE, TWO]


@pytest.mark.parametrize("lost", range(1, 60))
def test_a_row_that_was_torn_is_left_out_and_harms_no_other(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "probe.seqs"
    write(path, ONE, 1, 2)
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - lost)

    write(path, TWO, 1)
    launches = read_ledger(path)
    assert launches[-1] == Launch(TWO, 1, (row(TWO, 1),))
    assert all(set(launch.rows) <= {row(ONE, 1), row(ONE, 2)} for launch in launches[:-1])


def test_garbage_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "probe.seqs"
    path.write_bytes(b'\xff\n[1,2]\n{"launch":7}\n[1,1,"turn_end","s",2]\nnull\n')
    write(path, ONE, 1)
    assert read_ledger(path) == [Launch(ONE, 1, (row(ONE, 1),))]


def test_a_full_disk_fails_nobody_and_what_is_missing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "probe.seqs"
    ledger = Ledger(path, ONE)
    ledger.open()
    ledger.note(told(ONE, 1))
    kept = os.dup(ledger.fileno())
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, ledger.fileno())
    ledger.note(told(ONE, 2))
    ledger.note(told(ONE, 3))
    os.dup2(kept, ledger.fileno())
    ledger.note(told(ONE, 4))
    ledger.note(told(ONE, 5))
    ledger.close()
    os.close(full)
    os.close(kept)
    assert read_ledger(path) == [Launch(ONE, 4, (row(ONE, 4), row(ONE, 5)))]


def test_a_folder_that_is_gone_fails_nobody(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "probe.seqs"
    ledger = Ledger(path, ONE)
    ledger.open()
    ledger.note(told(ONE, 1))
    ledger.close()
    ledger.close()
    assert not path.parent.exists()
    assert read_ledger(path) == []


# --- what was missed ------------------------------------------------------------------------


def known(launch: str, *seqs: int, since: int = 1) -> Launch:
    return Launch(launch, since, tuple(row(launch, seq) for seq in seqs))


def test_what_was_missed_goes_through_every_launch_since() -> None:
    launches = [known(ONE, 2, 4, 6), known(TWO, 1, 3), known(THREE, 2, 5)]
    way = stretches(launches, ONE, 4, own=THREE, before_seq=5)
    assert way == [
        Stretch((row(ONE, 2), row(ONE, 4), row(ONE, 6)), 4, row(TWO, 1)),
        Stretch((row(TWO, 1), row(TWO, 3)), 1, row(THREE, 2)),
        Stretch((row(THREE, 2),), 1, None, is_past=False),
    ]


def test_events_of_one_entry_are_told_apart() -> None:
    rows = (row(ONE, 2, 7), row(ONE, 3, 7), row(ONE, 4, 7), row(ONE, 5, 8))
    way = stretches([Launch(ONE, 1, rows)], ONE, 4, own=ONE, before_seq=99)
    assert way == [Stretch(rows, 4, None, is_past=False)], "those before are needed to count"
    way = stretches([Launch(ONE, 1, rows)], ONE, 5, own=ONE, before_seq=99)
    assert way == [Stretch(rows, 5, None, is_past=False)]


def test_whoever_missed_nothing_of_a_launch_still_hears_what_came_after_it() -> None:
    launches = [known(ONE, 2, 4), known(TWO, 1)]
    way = stretches(launches, ONE, 9, own=TWO, before_seq=99)
    assert way is not None
    assert way[0] == Stretch((row(ONE, 4),), 9, row(TWO, 1))


@pytest.mark.parametrize(
    "launches",
    [
        [],
        [known(TWO, 1)],
        [known(ONE, 4, since=4), known(TWO, 1)],
        [known(ONE, 2), known(THREE, 5, since=5), known(TWO, 1)],
        [known(ONE, 2), known(THREE, since=-1), known(TWO, 1)],
        [known(ONE, 2)],
    ],
)
def test_what_the_ledger_does_not_have_whole_is_not_told(launches: list[Launch]) -> None:
    assert stretches(launches, ONE, 2, own=TWO, before_seq=99) is None
