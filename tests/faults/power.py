"""What a loss of power may leave of a store, worked out from a record of what it did.

`TracingDisk` writes down every operation and does it. `Medium` goes along such a record and knows
what had to be on the medium at any place in it; `images` are the states in which the store may be
found if the power goes away there:

* Of what was written to a file and not synced, each operation may be there or not, in any order
  (later ones without earlier ones), a write as far as any byte, as zeros, or with holes of 512
  bytes that hold zeros.
* Of names that were made, moved or taken away and whose folder was not synced, each may be as it
  was before or as it is now.

What was synced stays. That is less than any file system keeps, and so whatever a store keeps here
it keeps on all of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from attrs import Factory, define

from session_store import Disk

SECTOR = 512


class Create(NamedTuple):
    file: int
    path: str


class Write(NamedTuple):
    file: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    file: int
    size: int


class Sync(NamedTuple):
    file: int


class Rename(NamedTuple):
    file: int
    source: str
    target: str


class Unlink(NamedTuple):
    path: str


class MakeFolder(NamedTuple):
    path: str


class SyncFolder(NamedTuple):
    path: str


Operation: TypeAlias = Create | Write | Truncate | Sync | Rename | Unlink | MakeFolder | SyncFolder
Change: TypeAlias = Write | Truncate
Naming: TypeAlias = Create | Rename | Unlink | MakeFolder
Image: TypeAlias = dict[str, bytes | None]
"""Path, relative to the home, to content; None for a folder."""

FOLDER = -1


class TracingDisk(Disk):
    """Does everything at once, syncs nothing really, and writes down in what order it was asked."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.trace: list[Operation] = []
        self._files: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._open: dict[int, int] = {}
        for path in sorted(home.rglob("*")):
            if path.is_file():
                self._named(str(path.relative_to(home)), path.stat().st_size)

        self.at_start = dict(self._files)

    def note(self, operation: Operation) -> None:
        """Write one operation down. A mutant leaves some out, or puts them elsewhere."""
        self.trace.append(operation)

    def grown(self, path: Path, data: bytes) -> None:
        """Know of bytes that came to a file's end past this disk, and are on their way."""
        file = self._files[self._name(path)]
        self.note(Write(file, self._sizes[file], data))
        self._sizes[file] += len(data)

    def is_log(self, file: int) -> bool:
        """Tell whether it is a log that is in its place."""
        return any(name.endswith(".jsonl") for name, f in self._files.items() if f == file)

    def is_temporary(self, file: int) -> bool:
        """Tell whether it has the name under which it is written, and not yet its own."""
        return any(name.endswith(".tmp") for name, f in self._files.items() if f == file)

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        name = self._name(path)
        if name not in self._files:
            assert flags & os.O_CREAT
            self.note(Create(self._named(name, 0), name))

        self._open[fd] = self._files[name]
        return fd

    def make_folder(self, path: Path) -> None:
        for folder in reversed([path, *path.parents]):
            if folder.is_relative_to(self.home) and not folder.exists():
                self.note(MakeFolder(self._name(folder)))

        super().make_folder(path)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        written = super().write(fd, data)
        file = self._open[fd]
        self.note(Write(file, self._sizes[file], bytes(data[:written])))
        self._sizes[file] += written
        return written

    def sync(self, fd: int) -> None:
        self.note(Sync(self._open[fd]))

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._sizes[self._open[fd]] = size
        self.note(Truncate(self._open[fd], size))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        before, after = self._name(source), self._name(target)
        self._files[after] = self._files.pop(before)
        self.note(Rename(self._files[after], before, after))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        del self._files[self._name(path)]
        self.note(Unlink(self._name(path)))

    def sync_folder(self, path: Path) -> None:
        if path.is_relative_to(self.home):
            self.note(SyncFolder(self._name(path)))

    def _named(self, name: str, size: int) -> int:
        file = len(self._sizes)
        self._files[name] = file
        self._sizes[file] = size
        return file

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self.home)


@define
class Medium:
    """What is durable after a part of a trace, and what is only on its way."""

    files: dict[int, bytes]
    names: dict[str, int]
    changes: dict[int, list[Change]] = Factory(dict)
    namings: list[Naming] = Factory(list)

    @classmethod
    def before(cls, disk: TracingDisk, image: Image) -> Medium:
        """The medium as it was when the disk began to write down, with all that was there."""
        files = {file: image[name] or b"" for name, file in disk.at_start.items()}
        folders = {name: FOLDER for name, content in image.items() if content is None}
        return cls(files, {**disk.at_start, **folders, ".": FOLDER})

    def take(self, operation: Operation) -> None:
        """Let one operation happen."""
        match operation:
            case Write(file) | Truncate(file):
                self.changes.setdefault(file, []).append(operation)
            case Sync(file):
                self.files[file] = self._current(file)
                self.changes.pop(file, None)
            case SyncFolder(path):
                durable = [naming for naming in self.namings if _folder_of(naming) == path]
                self.namings = [naming for naming in self.namings if _folder_of(naming) != path]
                _apply(self.names, durable)
            case _:
                self.namings.append(operation)

    def image(self, chance: random.Random, way: Way) -> Image:
        """One of the states that may be found."""
        names = dict(self.names)
        _apply(names, [naming for naming in self.namings if _is_kept(way, chance)])
        image: Image = {}
        for name, file in names.items():
            if name != ".":
                image[name] = None if file == FOLDER else self._content(file, chance, way)

        # What lost its folder is lost with it.
        return {name: image[name] for name in image if _has_folder(name, image)}

    def _current(self, file: int) -> bytes:
        return _changed(self.files.get(file, b""), self.changes.get(file, []))

    def _content(self, file: int, chance: random.Random, way: Way) -> bytes:
        synced, changes = self.files.get(file, b""), self.changes.get(file, [])
        if not changes or way in ("none", "names"):
            return synced

        if way in ("all", "data"):
            return _changed(synced, changes)

        how = chance.choice(("none", "all", "first", "any", "zeros", "holes"))
        if how == "none":
            return synced

        if how in ("first", "any"):
            kept = [c for c in changes if how == "first" or chance.random() < 0.5]
            kept = kept[: chance.randint(0, len(kept))] if how == "first" else kept
            return _changed(synced, [_torn(change, chance) for change in kept])

        whole = _changed(synced, changes)
        return _with_zeros(synced, whole, chance if how == "holes" else None)


Way: TypeAlias = Literal["all", "none", "names", "data", "dice"]
WAYS: tuple[Way, ...] = ("all", "none", "names", "data")
"""All that was on its way is there, or nothing, or names without data, or data without names."""


def images(medium: Medium, chance: random.Random, count: int) -> Iterator[Image]:
    """Some of the states that may be found: first the four plain ones, then others by chance."""
    for number in range(count):
        yield medium.image(chance, WAYS[number] if number < len(WAYS) else "dice")


def put(image: Image, home: Path) -> None:
    """Make the state on disk, in a folder that is not there yet."""
    home.mkdir(mode=0o700)
    for name, content in sorted(image.items()):
        if content is None:
            (home / name).mkdir(mode=0o700)
        else:
            (home / name).write_bytes(content)


def taken(home: Path) -> Image:
    """The state that is on disk."""
    return {
        str(path.relative_to(home)): path.read_bytes() if path.is_file() else None
        for path in home.rglob("*")
    }


def _is_kept(way: Way, chance: random.Random) -> bool:
    if way == "dice":
        return chance.random() < 0.5

    return way in ("all", "names")


def _folder_of(naming: Naming) -> str:
    name = naming.target if isinstance(naming, Rename) else naming.path
    return str(Path(name).parent)


def _has_folder(name: str, image: Image) -> bool:
    folder = str(Path(name).parent)
    return folder == "." or (folder in image and _has_folder(folder, image))


def _apply(names: dict[str, int], namings: list[Naming]) -> None:
    for naming in namings:
        match naming:
            case Create(file, path):
                names[path] = file
            case MakeFolder(path):
                names[path] = FOLDER
            case Unlink(path):
                names.pop(path, None)
            case Rename(file, source, target):
                # Also where the name that it had never came to the medium.
                names.pop(source, None)
                names[target] = file


def _changed(content: bytes, changes: list[Change]) -> bytes:
    for change in changes:
        if isinstance(change, Truncate):
            content = content[: change.size].ljust(change.size, b"\0")
        else:
            before = content[: change.offset].ljust(change.offset, b"\0")
            content = before + change.data + content[change.offset + len(change.data) :]

    return content


def _torn(change: Change, chance: random.Random) -> Change:
    if isinstance(change, Truncate) or chance.random() < 0.5:
        return change

    return change._replace(data=change.data[: chance.randint(0, len(change.data))])


def _common(one: bytes, two: bytes) -> int:
    """How many bytes they begin with are the same."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == two[:middle] else (low, middle - 1)

    return low


def _with_zeros(synced: bytes, whole: bytes, chance: random.Random | None) -> bytes:
    """The whole content, of which sectors that changed are zeros: all of them, or some."""
    same = _common(synced, whole)
    found = bytearray(whole)
    for start in range(same - same % SECTOR, len(whole), SECTOR):
        if chance is None or chance.random() < 0.5:
            begin, end = max(start, same), min(start + SECTOR, len(whole))
            found[begin:end] = bytes(end - begin)

    return bytes(found)
