"""The formats there are, and how a file's own content says which one it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

from attrs import frozen

from .documents import Element, End, Member, is_one_a_line, read_documents
from .draft import Conversation
from .errors import NotImportable, UnknownFormat
from .jsontext import JsonObject, Malformed, parse
from .lines import read_lines
from .tally import Tally

_LOOKED_AT = 200
_LISTS = ("messages", "conversations", "history", "trajectory")
_SQLITE = b"SQLite format 3\0"


@frozen
class Format:
    """A format that can be read."""

    name: str
    module: str

    def read(self, path: Path, tally: Tally) -> Iterator[Conversation]:
        """Yield the conversations of the file; what was found is counted in `tally`."""
        reader: Callable[[Path, Tally], Iterator[Conversation]] = self._named("read")
        return reader(path, tally)

    def recognises(self, record: JsonObject) -> bool:
        """Tell whether the record can only be one of this format."""
        recognises: Callable[[JsonObject], bool] = self._named("recognises")
        return recognises(record)

    def _named(self, name: str) -> Callable[..., Any]:
        module = import_module(f".{self.module}", __package__)
        return cast("Callable[..., Any]", getattr(module, name))


# In the order in which they are asked: the ones with the clearest marks come first.
FORMATS = {
    name: Format(name, module)
    for name, module in (
        ("podworker", "own"),
        ("codex", "codex"),
        ("claude-code", "claude_code"),
        ("pi", "pi"),
        ("swe-agent", "swe_agent"),
        ("hermes-trajectory", "trajectories"),
        ("openai-chat", "chat"),
        ("hermes-db", "hermes_db"),
    )
}


def format_of(path: Path, name: str | None = None) -> Format:
    """Return the format of that name; without one, the format that the file's content shows.

    Raises:
        UnknownFormat: There is none of that name.
        NotImportable: The content shows no format.
    """
    if name is not None:
        if name not in FORMATS:
            raise UnknownFormat(name, list(FORMATS))

        return FORMATS[name]

    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return FORMATS["hermes-db"]

    asked = [one for one in FORMATS.values() if one.name != "hermes-db"]
    for record in _sample(path):
        found = next((one for one in asked if one.recognises(record)), None)
        if found is not None:
            return found

    raise NotImportable(
        f"{path.name} is in no format that is known here",
        f"known are {', '.join(FORMATS)}; --format says which one to take it for",
    )


def _sample(path: Path) -> Iterator[JsonObject]:
    """Yield the first records; of a document what is known of it, again with each new member."""
    if is_one_a_line(path):
        for _, raw in islice(read_lines(path), _LOOKED_AT):
            try:
                yield from _objects(parse(raw))
            except Malformed:
                continue

        return

    outline: JsonObject = {}
    elements = 0
    for event in read_documents(path, _LISTS):
        match event:
            case Element("", value):
                elements += 1
                yield from _objects(value)
            case Element(key, value) if key not in outline:
                outline[key] = [value]
                yield outline
            case Member(key, value):
                outline[key] = value
                yield outline
            case _:
                pass

        if elements == _LOOKED_AT or isinstance(event, End):
            return


def _objects(value: object) -> Iterator[JsonObject]:
    for one in value[:1] if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield one
