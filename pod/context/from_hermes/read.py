"""Hermes's `config.yaml`, read with the line of each key, and asked for values of their kind.

What is asked for counts as used, so that the rest can be named. Every mistake is kept, none stops
the reading; secrets are never in a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field, frozen

if TYPE_CHECKING:
    import yaml

Path_: TypeAlias = tuple[str, ...]

_MAX_BYTES = 2_000_000
_MOST_VALUES = 200_000
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@frozen
class Mistake:
    """Something in the file that cannot be used."""

    key: str
    message: str
    line: int | None = None


class HermesFileUnusable(Exception):
    """The file as a whole cannot be read; `message` says why, `hint` what can be done."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@define(eq=False)
class HermesConfig:
    """A configuration: its values, where they stand, and what is wrong with them."""

    values: Mapping[str, Any]
    lines: Mapping[Path_, int] = field(factory=dict)
    mistakes: list[Mistake] = field(factory=list)
    _used: set[Path_] = field(factory=set)

    def wrong(self, path: Path_, message: str) -> None:
        """Note a mistake at a key."""
        self.mistakes.append(Mistake(".".join(path), message, self.lines.get(path)))

    def raw(self, *path: str) -> Any:  # noqa: ANN401  whatever YAML holds
        """Return what stands at a path, None where nothing does; it is used from now on."""
        value: Any = self.values
        for step in path:
            if not isinstance(value, Mapping) or step not in value:
                return None

            value = value[step]

        self._used.add(path)
        return value

    def table(self, *path: str) -> Mapping[str, Any]:
        """Return a table, empty where there is none."""
        value = self.raw(*path)
        if value is None or isinstance(value, Mapping):
            return value or {}

        self.wrong(path, f"must be a table of keys, and is {kind_of(value)}")
        return {}

    def rows(self, *path: str) -> list[Any]:
        """Return a list, empty where there is none; a single table is a list of it."""
        value = self.raw(*path)
        if isinstance(value, list):
            return value

        if isinstance(value, Mapping):
            return [value] if value else []

        if value is not None:
            self.wrong(path, f"must be a list, and is {kind_of(value)}")

        return []

    def text(self, *path: str) -> str:
        """Return a text, trimmed; empty where there is none."""
        value = self.raw(*path)
        if value is None:
            return ""

        if isinstance(value, str):
            return value.strip()

        if isinstance(value, bool | list | Mapping):
            self.wrong(path, f"must be text, and is {kind_of(value)}")
            return ""

        return str(value)

    def name(self, *path: str) -> str:
        """Return a text as `text` does; what is no text, as YAML has it, is a mistake."""
        value = self.raw(*path)
        if value is None or isinstance(value, str):
            return self.text(*path)

        self.wrong(path, f"must be text, and is {kind_of(value)}")
        return ""

    def number(self, *path: str, low: float, high: float) -> float | None:
        """Return a number within bounds, also where it is written as text; None for none."""
        value = self.raw(*path)
        if value is None or value == "":
            return None

        try:
            number = float(value) if not isinstance(value, bool | list | dict) else None
        except ValueError:
            number = None

        if number is None:
            self.wrong(path, f"must be a number, and is {kind_of(value)}")
            return None

        if not low <= number <= high:
            self.wrong(path, f"must be between {low:,g} and {high:,g}")
            return None

        return number

    def count(self, *path: str, most: int = 10**12) -> int | None:
        """Return a whole number of 0 or more, None where there is none."""
        number = self.number(*path, low=0, high=most)
        if number is None:
            return None

        if number != int(number):
            self.wrong(path, "must be a whole number")
            return None

        return int(number)

    def flag(self, *path: str, default: bool) -> bool:
        """Return true or false, also where that is written as text."""
        value = self.raw(*path)
        if value is None:
            return default

        if isinstance(value, bool):
            return value

        word = str(value).strip().lower()
        if word in _TRUE | _FALSE:
            return word in _TRUE

        self.wrong(path, f"must be true or false, and is {kind_of(value)}")
        return default

    def unused(self, *path: str) -> list[str]:
        """Return the keys of a table that nobody has asked for, nor for anything below them."""
        table: Any = self.values
        for step in path:
            table = table.get(step) if isinstance(table, Mapping) else None

        if not isinstance(table, Mapping):
            return []

        return [str(key) for key in table if not self._is_used((*path, str(key)))]

    def _is_used(self, path: Path_) -> bool:
        return any(used[: len(path)] == path for used in self._used)


def read_config(path: Path) -> HermesConfig:
    """Return the configuration in a file.

    Raises:
        HermesFileUnusable: It cannot be read, or is no YAML table.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise HermesFileUnusable(f"{path} cannot be read: {reason}") from error

    return parse_config(data, str(path))


def parse_config(data: bytes, name: str) -> HermesConfig:
    """Return the configuration in bytes; `name` is what messages call it. Raises as above."""
    import yaml

    if len(data) > _MAX_BYTES:
        raise HermesFileUnusable(f"{name} is over {_MAX_BYTES:,} bytes: not a configuration")

    try:
        node = yaml.compose(data, yaml.SafeLoader)
        if _size(node, {}) > _MOST_VALUES:
            raise HermesFileUnusable(f"{name} stands for over {_MOST_VALUES:,} values")

        values = _well_formed(yaml.safe_load(data))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise HermesFileUnusable(f"{name}{where}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError, UnicodeError) as error:
        raise HermesFileUnusable(f"{name} is not YAML: {_first_line(error)}") from error

    if not isinstance(values, Mapping):
        hint = "a Hermes configuration is ~/.hermes/config.yaml"
        raise HermesFileUnusable(f"{name} holds no table of keys", hint)

    config = HermesConfig(values)
    lines: dict[Path_, int] = {}
    for place, line, is_again in _places(node, ()):
        if is_again:
            config.mistakes.append(Mistake(".".join(place), "is there twice", line))
        lines[place] = line

    config.lines = lines
    return config


def _size(node: yaml.Node | None, known: dict[int, float]) -> float:
    """Return how many values a node stands for, each alias as often as it is used."""
    if node is None:
        return 0

    if id(node) not in known:
        known[id(node)] = float("inf")  # What holds itself is endless.
        parts = node.value if isinstance(node.value, list) else []
        inner = (part for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,)))
        known[id(node)] = 1 + sum(_size(part, known) for part in inner)

    return known[id(node)]


def _well_formed(value: Any) -> Any:  # noqa: ANN401  whatever YAML holds
    """Return a value whose texts can be written: YAML may name half a character."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_well_formed(inner) for inner in value]
        case dict():
            return {_well_formed(key): _well_formed(inner) for key, inner in value.items()}
        case _:
            return value


def _places(node: yaml.Node | None, path: Path_) -> Iterator[tuple[Path_, int, bool]]:
    """Yield each key of the tables, and of the tables in them, with its line.

    Only what is asked for is so deep, and an alias leads nowhere that is.
    """
    if getattr(node, "id", "") != "mapping" or len(path) > _DEEPEST:
        return

    seen: set[str] = set()
    for key, value in node.value:  # type: ignore[union-attr]  # the node of a table
        name = str(_well_formed(key.value)) if isinstance(key.value, str) else ""
        here = (*path, name)
        yield here, key.start_mark.line + 1, name in seen
        seen.add(name)
        yield from _places(value, here)


_DEEPEST = 3


def kind_of(value: object) -> str:
    """Return in words what kind of value it is, and nothing of the value."""
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
        type(None): "empty",
    }
    return names.get(type(value), f"a {type(value).__name__}")


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__
