"""Cases G: logs that were torn, and logs that were damaged in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from session_store import (
    Durability,
    FileSessionStore,
)
from tests.cases.conversations import (
    ENTRIES_A_RUN,
    lines_of,
    listed,
    put_lines,
    state,
    talk,
    told,
)
from tests.pod.desk import Desk, events
from tests.session_store.builders import a_store, audit, begun
from worker.items import user_message

# --- G01, G02: a torn tail -----------------------------------------------------------------------


TAILS: dict[str, bytes] = {
    "G01 half an entry": b'{"type":"msg","te',
    "G01 one byte": b"{",
    "G01 white space": b"  \t",
    "G01 zeros": b"\0" * 500,
    "G01 a carriage return": b"\r",
    "G01 a line of another program": b'{"type":"message","text":"hello"}',
    "G01 more than a buffer": b'{"hash":"' + b"a" * 3_000_000,
    "G02 in a character of three bytes": b"\xe4\xbd",
    "G02 in a character of four bytes": b'{"hash":"\xf0\x9f\x8d',
    "G02 no UTF-8 at all": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=list(TAILS))
def test_g01_g02_a_torn_tail_is_set_aside_and_costs_no_later_entry(desk: Desk, tail: bytes) -> None:
    """G01, G02: the bytes are kept and told of with their offset; the next entry has its line."""
    run, log = talk(desk, 2)
    whole = log.read_bytes()
    log.write_bytes(whole + tail)
    checked = desk.pod("sessions", "verify", log.stem)
    assert checked.exit_code == 0
    assert f" {len(tail):,} byte" in checked.stderr

    done = desk.pod("run", run, "QUESTION-3", "--continue")
    assert done.exit_code == 0
    assert f" {len(tail):,} bytes at byte {len(whole):,} of the log" in done.stderr

    assert log.read_bytes().startswith(whole), "what was whole is as it was"
    (told_of,) = [entry for entry in audit(log) if entry["kind"] == "recovered"]
    assert (told_of["offset"], told_of["bytes"]) == (len(whole), len(tail))
    assert (log.parent / told_of["sidecar"]).read_bytes() == tail
    said = told(FileSessionStore(desk.home), log.stem)
    assert said[::2] == [f"QUESTION-{n}" for n in (1, 2, 3)]
    assert desk.pod("sessions", "verify", log.stem).exit_code == 0


@pytest.mark.parametrize("text", ["日本語のテスト", "🍸🍸🍸", "ünïcödé"])
def test_g02_torn_at_any_byte_of_a_character(home: Path, text: str) -> None:
    """G02: an entry of our own, cut at each byte of what is no ASCII."""
    store = a_store(home, durability=Durability.FLUSH)
    with begun(store) as session:
        session.append_items("user_input", [user_message("before")])
        session_id = session.session_id
        before = store.layout.log(session_id).read_bytes()
        anchor = store.layout.anchor(session_id).read_bytes()
        session.append_items("user_input", [user_message(text)])

    path = store.layout.log(session_id)
    line = path.read_bytes()[len(before) :]
    begin = line.index(text.encode())
    for cut in range(begin, begin + len(text.encode()) + 1):
        path.write_bytes(before + line[:cut])
        store.layout.anchor(session_id).write_bytes(anchor)
        with store.open(session_id) as session:
            session.append_items("user_input", [user_message("after")])

        (told_of,) = [entry for entry in audit(path) if entry["kind"] == "recovered"]
        assert (told_of["offset"], told_of["bytes"]) == (len(before), cut)
        assert told(store, session_id) == ["before", "after"]


def test_g01_a_last_entry_that_lacks_only_its_newline_is_kept(desk: Desk) -> None:
    """G01: complete, and so no tear: nothing is set aside, and the next one has its own line."""
    run, log = talk(desk, 2)
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    assert desk.pod("run", run, "QUESTION-3", "--continue").exit_code == 0
    assert log.read_bytes().startswith(whole)
    assert [entry["kind"] for entry in audit(log)].count("recovered") == 0
    assert not list(log.parent.glob("*.torn-*"))


# --- G04, G05, G21: damage in the middle ---------------------------------------------------------

Damage = Callable[[list[bytes]], list[bytes]]
MIDDLE = 4
"""The place of the damage: the fifth line."""


def put_in(line: bytes) -> Damage:
    return lambda lines: [*lines[:MIDDLE], line, *lines[MIDDLE:]]


def put_instead(change: Callable[[bytes], bytes]) -> Damage:
    return lambda lines: [*lines[:MIDDLE], change(lines[MIDDLE]), *lines[MIDDLE + 1 :]]


HARMLESS: dict[str, Damage] = {
    "G04 a line of zeros": put_in(b"\0" * 300),
    "G04 many zeros": put_in(b"\0" * 100_000),
    "G04 an empty line": put_in(b""),
    "G04 white space": put_in(b" \t "),
    "G04 no JSON": put_in(b"Traceback (most recent call last):"),
    "G04 JSON that is no entry": put_in(b'{"type":"message"}'),
    "G04 JSON that is no object": put_in(b"[]"),
    "G04 no UTF-8": put_in(b"\xff\xfe" * 40),
    "G04 an entry a second time": lambda lines: [*lines[: MIDDLE + 1], *lines[MIDDLE:]],
    "G21 two on one line": lambda lines: [
        *lines[:MIDDLE], lines[MIDDLE] + lines[MIDDLE + 1], *lines[MIDDLE + 2 :]],
    "G21 all the rest on one line": lambda lines: [*lines[:MIDDLE], b"".join(lines[MIDDLE:])],
    "G05 two that changed places": lambda lines: [
        *lines[:MIDDLE], lines[MIDDLE + 1], lines[MIDDLE], *lines[MIDDLE + 2 :]],
}  # fmt: skip
"""Damage that leaves every entry somewhere in the file, whole."""

HARMFUL: dict[str, Damage] = {
    "G04 zeros over an entry": put_instead(lambda line: b"\0" * len(line)),
    "G04 zeros in an entry": put_instead(lambda line: line[:90] + b"\0" * 20 + line[110:]),
    "G05 a line that was cut": put_instead(lambda line: line[: len(line) // 2]),
    "G05 a line that is gone": lambda lines: [*lines[:MIDDLE], *lines[MIDDLE + 1 :]],
    "G05 an empty line in its place": put_instead(lambda _: b""),
    "G05 a letter changed": put_instead(lambda line: line.replace(b'"seq"', b'"sEq"')),
    "G05 a byte too many": put_instead(lambda line: line + b" "),
    "G05 a carriage return": put_instead(lambda line: line + b"\r"),
    "G05 a line in the middle of another": put_instead(
        lambda line: line[:100] + b"\n" + line[100:]),
    "G21 two on one line, one of them changed": lambda lines: [
        *lines[:MIDDLE], lines[MIDDLE] + lines[MIDDLE + 1].replace(b'"seq"', b'"sEq"'),
        *lines[MIDDLE + 2 :]],
}  # fmt: skip
"""Damage after which the fifth entry is lost."""


@pytest.mark.parametrize("damage", [*HARMLESS, *HARMFUL])
def test_g04_g05_g21_damage_in_the_middle_never_shortens_a_session_silently(
    desk: Desk, damage: str
) -> None:
    """G04, G05, G21: named by its line everywhere, refused, and salvaged as far as it verifies."""
    run, log = talk(desk, 3)
    lines = lines_of(log)
    assert len(lines) == 1 + 3 * ENTRIES_A_RUN
    put_lines(log, (HARMLESS | HARMFUL)[damage](lines))
    before = state(desk.home)
    # Where an entry stands a second time, the line after it is the wrong one.
    first_bad = MIDDLE + (damage == "G04 an entry a second time")

    verified = desk.pod("sessions", "verify", log.stem, "--json")
    assert verified.exit_code == 3
    assert json.loads(verified.stdout)[0]["first_bad_seq"] == first_bad
    for refused in (
        desk.pod("run", run, "QUESTION-4", "--continue"),
        desk.pod("run", run, "QUESTION-4", "--resume", log.stem),
        desk.pod("sessions", "show", log.stem),
        desk.pod("sessions", "export", log.stem),
    ):
        assert refused.exit_code == 3, refused.output
        assert f"entry {first_bad} " in refused.stderr

    (info,) = listed(desk)
    assert f"entry {first_bad} " in info["damaged"]
    assert state(desk.home) == before, "nothing was written, nor mended by itself"

    salvaged = json.loads(desk.pod("sessions", "salvage", log.stem, "--json").stdout)
    store = FileSessionStore(desk.home)
    if damage in HARMLESS:
        assert salvaged["entries_kept"] == len(lines)
        assert len(told(store, salvaged["session_id"])) == 6
    else:
        assert salvaged["entries_kept"] == MIDDLE
        gone = {seq for one in salvaged["lost"] if one["first_seq"] is not None
                for seq in range(one["first_seq"], one["last_seq"] + 1)}  # fmt: skip
        assert gone == set(range(MIDDLE, len(lines))), "all that is skipped is told"

    assert log.read_bytes() == before[log.name][0]
    assert desk.pod("run", run, "QUESTION-4", "--continue").exit_code == 0, "the pod goes on"


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b"\0"])
def test_g05_a_first_line_that_is_spoilt_hides_no_other_session(desk: Desk, mark: bytes) -> None:
    """G05: a byte order mark and the like: it is listed as damaged, the others as ever."""
    _, good = talk(desk, 2)
    _, bad = talk(desk, 2)
    bad.write_bytes(mark + bad.read_bytes())
    by_id = {info["session_id"]: info for info in listed(desk)}
    assert set(by_id) == {good.stem, bad.stem}
    assert "entry 0 " in by_id[bad.stem]["damaged"]
    assert (by_id[good.stem]["turns"], "damaged" in by_id[good.stem]) == (2, False)
    assert desk.pod("sessions", "verify", bad.stem).exit_code == 3
    assert desk.pod("sessions", "verify", good.stem).exit_code == 0


def test_g01_the_events_of_a_run_tell_of_a_torn_tail_once(desk: Desk) -> None:
    """G01, G02: what was set aside is reported to whoever watches, by the run that did it."""
    run, log = talk(desk, 1)
    log.write_bytes(log.read_bytes() + b'{"half')
    found = [
        [event["data"]["message"] for event in events(done.stdout) if event["event"] == "alert"]
        for done in (
            desk.pod("run", run, f"QUESTION-{turn}", "--continue", "--json") for turn in (2, 3)
        )
    ]
    assert [len(messages) for messages in found] == [1, 0]
    assert f"{log.stem}.torn-" in found[0][0]
