"""A check of the contract, and what came of it: values, and the two ways in which a check ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import field, frozen

from pod.context.engine import Message

if TYPE_CHECKING:
    from .bench import Bench

Outcome: TypeAlias = Literal["holds", "broken", "not applicable"]


class Broken(Exception):
    """The engine does not keep to the statement; the text says what was found.

    `rows` is the input that shows it, where there is one.
    """

    def __init__(self, found: str, rows: Sequence[object] | None = None) -> None:
        super().__init__(found)
        self.found = found
        self.rows = rows


class NotApplicable(Exception):
    """The statement says nothing about this engine; the text says why."""


@frozen
class Check:
    """One statement of the contract, and how an engine is held to it."""

    id: str
    """Its name in words, such as `no-orphan-results`; stable."""
    area: str
    """What it is about, in one word, such as `pairs`."""
    statement: str
    """What an engine that keeps the contract does."""
    source: str
    """The section of the contract that says so."""
    run: Callable[..., None] = field(repr=False, eq=False)
    """Called with a `Bench`: ends well, or raises `Broken` or `NotApplicable`."""


@frozen
class Result:
    """What came of one check."""

    check: Check
    outcome: Outcome
    found: str = ""
    """What was found, where it is broken; why, where it does not apply."""
    rows: tuple[object, ...] | None = field(default=None, repr=False)
    """The messages that show it, where there are any."""
    saved: Path | None = None
    """Where those were saved."""


@frozen
class Report:
    """What came of all checks of one engine."""

    engine: str
    results: tuple[Result, ...]

    @property
    def holds(self) -> list[Result]:
        """The checks that hold."""
        return self._that("holds")

    @property
    def broken(self) -> list[Result]:
        """The checks that do not."""
        return self._that("broken")

    @property
    def not_applicable(self) -> list[Result]:
        """The checks that say nothing about this engine."""
        return self._that("not applicable")

    def _that(self, outcome: Outcome) -> list[Result]:
        return [result for result in self.results if result.outcome == outcome]


class Area:
    """The checks of one area, in the order in which they are written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def check(self, source: str) -> Callable[[Callable[[Bench], None]], Check]:
        """Return what makes a check of a function: its name is the id, its docstring the statement.

        `source` is the section of the contract.
        """

        def added(function: Callable[[Bench], None]) -> Check:
            name = function.__name__.strip("_").replace("_", "-")
            statement = " ".join((function.__doc__ or name).split()).rstrip(".")
            made = Check(name, self.name, statement, source, function)
            self.checks.append(made)
            return made

        return added


def save_input(result: Result, engine: str, folder: Path) -> Path:
    """Write the input that broke a check as JSON below `folder`, and return the file.

    Raises:
        OSError: What the system said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    safe = "".join(char if char.isalnum() or char in "-_." else "_" for char in engine)
    path = folder / f"{safe}-{result.check.id}.json"
    told = {
        "engine": engine,
        "check": result.check.id,
        "statement": result.check.statement,
        "found": result.found,
        "messages": result.rows or (),
    }
    # In ASCII: lone surrogates, which some inputs hold on purpose, survive it.
    path.write_text(json.dumps(told, indent=1, default=repr) + "\n", encoding="ascii")
    return path


def as_messages(value: object, what: str) -> list[Message]:
    """Return `value` if it is a list of dicts, as an engine must return it.

    Raises:
        Broken: It is not; `what` returned it.
    """
    if not isinstance(value, list):
        raise Broken(f"{what} returned {_kind(value)}, not a list of messages")

    odd = next((row for row in value if not isinstance(row, dict)), None)
    if odd is not None:
        raise Broken(f"{what} returned a list that holds {_kind(odd)}, not only messages")

    return value


def _kind(value: object) -> str:
    name = type(value).__name__
    return name if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
