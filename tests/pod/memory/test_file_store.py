"""The folder of notes: several writers, people with editors, files that are not what they were."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pod.memory.providers.file.store import (
    ALL_MAX_BYTES,
    NOTE_MAX_CHARS,
    PAGE_MAX_BYTES,
    MemoryRefused,
    NoteStore,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "file" / "probe"


@pytest.fixture
def store(folder: Path) -> NoteStore:
    return NoteStore(folder, today=lambda: "2026-12-01")


def texts(store: NoteStore) -> list[str]:
    return [note.text for note in store.read().notes]


def test_a_note_is_a_line_that_a_person_can_read(store: NoteStore, folder: Path) -> None:
    note, is_new = store.remember("The user prefers tabs.")
    assert is_new
    expected = f"# notes\n\n- [{note.id} 2026-12-01] The user prefers tabs.\n"
    assert (folder / "notes.md").read_text() == expected
    store.remember("Anna leads it.", "people")
    assert (folder / "people.md").read_text().startswith("# people\n")


def test_what_is_made_is_private(store: NoteStore, folder: Path) -> None:
    store.remember("x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"notes.md": 0o600, ".lock": 0o600}
    for parent in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def test_notes_are_replaced_and_forgotten_by_id(folder: Path) -> None:
    store = NoteStore(folder, today=iter(["2026-12-01", "2026-12-02", "2026-12-03"]).__next__)
    first, _ = store.remember("one")
    second, _ = store.remember("two")
    assert store.replace(first.id, "uno")[0].text == "one"
    assert [(n.id, n.date, n.text) for n in store.read().notes] == [
        (first.id, "2026-12-03", "uno"),
        (second.id, "2026-12-02", "two"),
    ]
    assert store.forget(f"[{second.id}]").text == "two"
    assert texts(store) == ["uno"]
    with pytest.raises(MemoryRefused, match="no note has the id"):
        store.forget(second.id)


def test_what_is_known_is_not_kept_twice(store: NoteStore) -> None:
    first, _ = store.remember("The user  prefers tabs.")
    again, is_new = store.remember("the user prefers\ntabs.", "other")
    assert (again.id, is_new) == (first.id, False)
    assert len(store.read().notes) == 1


def test_a_persons_own_note_can_be_corrected_by_the_id_that_it_is_shown_by(
    store: NoteStore, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "team.md").write_text("# Team\n\n- Anna leads it\n- Bo tests\n\nThe end.\n")
    anna, _ = store.read().notes
    store.replace(anna.id, "Cleo leads it")
    assert (folder / "team.md").read_text() == (
        f"# Team\n\n- [{anna.id} 2026-12-01] Cleo leads it\n- Bo tests\n\nThe end.\n"
    )


def test_credentials_are_masked_before_they_reach_the_disk(store: NoteStore, folder: Path) -> None:
    store.remember("the key is ghp_0123456789abcdefghijklmnopqrstuvwxyz")
    written = (folder / "notes.md").read_text()
    assert "ghp_" not in written
    assert "[masked: " in written


@pytest.mark.parametrize(
    ("text", "topic", "said"),
    [
        ("", "", "the note is empty"),
        ("\u200b \n", "", "the note is empty"),
        ("x" * (NOTE_MAX_CHARS + 1), "", "at most 2,000 are kept"),
        ("x", "../up", "is no topic"),
        ("x", ".hidden", "is no topic"),
        ("x", "a/b", "is no topic"),
        ("x", "y" * 41, "is no topic"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_words(
    store: NoteStore, folder: Path, text: str, topic: str, said: str
) -> None:
    with pytest.raises(MemoryRefused, match=said):
        store.remember(text, topic)

    assert texts(store) == []
    assert not (folder.parent / "up.md").exists()


def test_a_full_memory_says_so_and_can_still_be_tidied(store: NoteStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    size = PAGE_MAX_BYTES - 100
    for n in range(ALL_MAX_BYTES // size + 1):
        line = f"- page {n} " + "x" * 1_000 + "\n"
        (folder / f"p{n}.md").write_text((line * (size // len(line) + 1))[:size])

    with pytest.raises(MemoryRefused, match="the memory is full"):
        store.remember("one more", "p9")
    with pytest.raises(MemoryRefused, match=r"p0\.md is full"):
        store.remember("y" * 500, "p0")

    before = len(store.read().notes)
    store.forget(store.read().notes[0].id)
    assert len(store.read().notes) == before - 1


@pytest.mark.parametrize("name", ["big", "link", "folder", "fifo"])
def test_what_cannot_be_read_is_told_of_and_left_alone(
    store: NoteStore, folder: Path, tmp_path: Path, name: str
) -> None:
    folder.mkdir(parents=True)
    path = folder / f"{name}.md"
    outside = tmp_path / "outside.md"
    outside.write_text("- secret of somebody else\n")
    match name:
        case "big":
            path.write_bytes(b"- x\n" * PAGE_MAX_BYTES)
        case "link":
            path.symlink_to(outside)
        case "folder":
            path.mkdir()
        case _:
            os.mkfifo(path)

    store.remember("readable")
    shelf = store.read()
    assert [note.text for note in shelf.notes] == ["readable"]
    (problem,) = shelf.problems
    assert f"{name}.md" in problem
    with pytest.raises(MemoryRefused, match="left alone"):
        store.remember("more", name)

    assert outside.read_text() == "- secret of somebody else\n"


def test_a_folder_that_is_a_link_is_refused(store: NoteStore, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes.md").write_text("- theirs\n")
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    assert store.read().notes == []
    assert "symbolic link" in store.read().problems[0]
    with pytest.raises(MemoryRefused, match="symbolic link"):
        store.remember("x")


def test_bytes_that_are_no_text_come_back_as_they_were(store: NoteStore, folder: Path) -> None:
    folder.mkdir(parents=True)
    path = folder / "notes.md"
    path.write_bytes(b"\xef\xbb\xbf- latin1: caf\xe9\r\n\x00\x00\x00\n- two\r\n")
    note, _ = store.remember("three")
    added = f"- [{note.id} 2026-12-01] three\n".encode()
    assert path.read_bytes() == b"\xef\xbb\xbf- latin1: caf\xe9\r\n\x00\x00\x00\n- two\r\n" + added
    assert len(store.read().notes) == 3


def test_a_writer_that_never_ends_is_waited_for_only_so_long(folder: Path) -> None:
    store = NoteStore(folder, lock_timeout_s=0.1)
    store.remember("one")
    with (folder / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MemoryRefused, match="somebody else has been writing"):
            store.remember("two")

        assert texts(store) == ["one"]

    store.remember("two")
    assert texts(store) == ["one", "two"]


def test_a_disk_that_takes_nothing_loses_nothing(store: NoteStore, folder: Path) -> None:
    store.remember("one")
    folder.chmod(0o500)
    try:
        if os.geteuid() != 0:  # root writes anywhere
            with pytest.raises(MemoryRefused, match="cannot be written"):
                store.remember("two")
    finally:
        folder.chmod(0o700)

    assert "one" in texts(store)


def test_threads_lose_nothing(folder: Path) -> None:
    def write(who: int) -> None:
        store = NoteStore(folder)
        for n in range(10):
            store.remember(f"thread {who} note {n}", f"topic{n % 3}")

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(texts(NoteStore(folder))) == 40


WRITER = """
import sys
from pathlib import Path
from pod.memory.providers.file.store import NoteStore

store = NoteStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(25):
    note, _ = store.remember(f"{sys.argv[2]} note {n}")
    if n % 5 == 4:
        store.replace(note.id, f"{sys.argv[2]} changed {n}")
        print(note.id, flush=True)
"""


@pytest.fixture
def writers(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for who in ("one", "two", "three")
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_processes_at_once_lose_none_of_each_others_notes(
    folder: Path, writers: list[subprocess.Popen[str]]
) -> None:
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in writers:
        process.communicate()
        assert process.returncode == 0

    found = texts(NoteStore(folder))
    assert len(found) == 75
    assert sum("changed" in text for text in found) == 15
    assert not list(folder.glob(".*.tmp"))


def test_a_writer_that_is_killed_leaves_whole_files_and_no_lock(
    folder: Path, writers: list[subprocess.Popen[str]]
) -> None:
    kept = []
    for process in writers:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        kept.append(process.stdout.readline().strip())
        process.kill()
        process.wait()

    store = NoteStore(folder, lock_timeout_s=1)
    notes = {note.id: note.text for note in store.read().notes}
    # What a writer was told is kept is there, and whatever is there is whole.
    assert len(set(kept)) == len(writers)
    assert set(kept) <= notes.keys()
    assert all(text.split()[1] in {"note", "changed"} for text in notes.values())
    store.remember("and on")


words = st.text(st.sampled_from("ab 文\n-[]#*"), min_size=1, max_size=12).filter(
    lambda t: t.strip()
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), words, st.sampled_from(["", "team", "文"])),
        st.tuples(st.just("replace"), words, st.integers(0, 9)),
        st.tuples(st.just("forget"), words, st.integers(0, 9)),
        st.tuples(st.just("prose"), words, st.sampled_from(["notes", "team"])),
        st.tuples(st.just("by hand"), words, st.sampled_from(["notes", "team"])),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(operations)
def test_whatever_is_done_is_done_to_the_one_note_and_to_nothing_else(
    done: list[tuple[str, str, str | int]],
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "probe"
        store, prose = NoteStore(folder), []
        for what, text, more in done:
            before = {note.id: note.text for note in store.read().notes}
            expected = dict(before)
            chosen = sorted(before)[int(more) % len(before)] if before and type(more) is int else ""
            match what:
                case "remember":
                    note, is_new = store.remember(text, str(more))
                    assert is_new == (note.id not in before)
                    expected[note.id] = note.text
                case "replace" if chosen:
                    expected[chosen] = store.replace(chosen, text)[1].text
                case "forget" if chosen:
                    assert store.forget(chosen).text == expected.pop(chosen)
                case "prose":
                    line = "Prose: " + " ".join(text.split())
                    prose.append(line)
                    written_by_hand(folder / f"{more}.md", f"\n{line}\n")
                case "by hand":
                    written_by_hand(folder / f"{more}.md", "\n\n- " + " ".join(text.split()) + "\n")
                    continue  # its id is drawn from its text
                case _:
                    pass

            found = {note.id: note.text for note in store.read().notes}
            assert sorted(found.values()) == sorted(expected.values())

        kept = "".join(path.read_text() for path in folder.glob("*.md")) if folder.exists() else ""
        assert all(kept.count(line) >= prose.count(line) for line in prose)


def written_by_hand(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
