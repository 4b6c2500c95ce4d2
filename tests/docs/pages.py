"""The examples of a page: its files, and its commands with the output that they must have.

In a page of `docs/` a fence says what it is by its first line:

    ```toml file=pod.toml        a file, written before anything is run
    ```console                   commands after "$ " ("> " goes on), each with its output below it
    ```console norun             commands that are only shown: slow, or in need of a network

All commands of a page are run in order, by one shell, in an empty folder with an empty POD_HOME.
Each must succeed. In expected output `…` stands for anything within a line, and a line that is
only `…` for any lines. stdout and stderr are shown together, as on a terminal.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

_FENCE = re.compile(r"^```(\S*)[ ]*(.*)$")
_FILE = re.compile(r"\bfile=(\S+)")
_RECORD_END = "\x1e"


@frozen
class Block:
    """A fenced block of a page."""

    language: str
    words: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is, if it is one."""
        found = _FILE.search(self.words)
        return found[1] if found else None


@frozen
class Command:
    """A command of a page and its expected output."""

    text: str
    line: int
    output: tuple[str, ...] = field(default=())


@frozen
class Shown:
    """What a command really did."""

    output: str
    status: int


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[str, str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(page.split("\n"), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, inside = (fence[1], fence[2], number), []
        elif opened is not None and line == "```":
            found.append(Block(opened[0], opened[1], "".join(f"{x}\n" for x in inside), opened[2]))
            opened = None
        elif opened is not None:
            inside.append(line)

    assert opened is None, f"line {opened[2]}: a fence that is not closed" if opened else ""
    return found


def commands(found: Sequence[Block]) -> list[Command]:
    """Return the commands of the console blocks that are to be run."""
    return [
        command
        for block in found
        if block.language == "console" and "norun" not in block.words.split()
        for command in _commands_of(block)
    ]


def _commands_of(block: Block) -> Iterator[Command]:
    text: list[str] = []
    output: list[str] = []
    line = block.line
    for number, shown in enumerate(block.text.splitlines(), block.line + 1):
        if shown.startswith("$ "):
            if text:
                yield Command("\n".join(text), line, tuple(output))

            text, output, line = [shown[2:]], [], number
        elif shown.startswith("> ") and text and not output:
            text.append(shown[2:])
        else:
            assert text, f"line {number}: output before any command"
            output.append(shown)

    if text:
        yield Command("\n".join(text), line, tuple(output))


def write_files(found: Sequence[Block], folder: Path) -> list[str]:
    """Write the files of a page into `folder`; no name comes twice. Returns the names."""
    names: list[str] = []
    for block in found:
        if block.file is not None:
            assert block.file not in names, f"line {block.line}: {block.file} is there already"
            names.append(block.file)
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")

    return names


def carry_out(todo: Sequence[Command], folder: Path, env: Mapping[str, str]) -> list[Shown]:
    """Run the commands in one shell and return what each of them did."""
    script = "".join(
        f'{{ {command.text}\n}} 2>&1; printf "\\036%d\\036" "$?"\n' for command in todo
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    records = done.stdout.split(_RECORD_END)
    assert len(records) == 2 * len(todo) + 1, f"the shell stopped early: {done.stderr}"
    return [Shown(records[n], int(records[n + 1])) for n in range(0, 2 * len(todo), 2)]


def matches(expected: Sequence[str], output: str) -> bool:
    """Tell whether output is what a page shows of it."""
    patterns = [
        r"(?:[^\n]*\n)*?" if line.strip() == "…" else _line_pattern(line.rstrip())
        for line in expected
    ]
    shown = "".join(f"{line.rstrip()}\n" for line in output.rstrip().split("\n"))
    return re.fullmatch("".join(patterns), shown if shown.strip() else "") is not None


def _line_pattern(line: str) -> str:
    return "[^\n]*".join(map(re.escape, line.split("…"))) + "\n"
