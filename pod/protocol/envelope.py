"""The envelope of an event, and the table of all events by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

import orjson
from attrs import frozen

from pod.protocol import events
from pod.protocol.events import EventData

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


@cache
def event_name(cls: type[EventData]) -> str:
    """Return an event's name on the wire: its class name in snake_case."""
    return _WORD_START.sub("_", cls.__name__).lower()


EVENTS: dict[str, type[EventData]] = {
    event_name(cls): cls
    for cls in vars(events).values()
    if isinstance(cls, type)
    and issubclass(cls, EventData)
    and cls not in {EventData, events.ErrorInfo}
}
"""Every event's model, by its name on the wire."""


@frozen
class Envelope:
    """One published event; `seq` rises by one within a launch."""

    seq: int
    launch: str
    ts: int
    """Milliseconds since 1970, UTC."""
    data: EventData
    ref: tuple[str, int] | None = None
    """The session and the seq of the entry that makes a durable event durable."""
    first_seq: int | None = None
    """The first of several deltas that were joined for a slow subscriber; `seq` is the last."""

    @property
    def event(self) -> str:
        """The event's name."""
        return event_name(type(self.data))

    def to_json(self) -> bytes:
        """Return the event as one line of JSON, without its newline."""
        line: dict[str, object] = {
            "seq": self.seq,
            "launch": self.launch,
            "ts": self.ts,
            "event": self.event,
            "data": self.data.model_dump(exclude_none=True),
        }
        if self.ref is not None:
            line["ref"] = self.ref

        if self.first_seq is not None:
            line["first_seq"] = self.first_seq

        return orjson.dumps(line)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Return the event that a parsed line is.

        Raises:
            KeyError: It is of a kind that is not known here, or lacks a part.
            pydantic.ValidationError: Its data is not that of its kind.
        """
        ref = line.get("ref")
        return cls(
            seq=line["seq"],
            launch=line["launch"],
            ts=line["ts"],
            data=EVENTS[line["event"]].model_validate(line["data"]),
            ref=(ref[0], ref[1]) if ref else None,
            first_seq=line.get("first_seq"),
        )
