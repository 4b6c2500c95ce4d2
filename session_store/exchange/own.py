"""Our own export: everything a session's state holds, one JSON object a line.

    {"format": "podworker-session", "version": 1, "session": {…}}
    {"item": {…}, "at": 1796058210123}
    {"usage": {…}}    {"approval": {…}}    {"extension": {"domain": …, "payload": …}}
    {"end": {"items": 12}}

What is read back is the same: uids, absorbed uids, call uids, signatures, images, notes,
summaries, usage. The session's id is new, for a log is not written twice; the old one is noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from attrs import asdict, define

from session_store.state import Totals
from worker.items_json import dump_item, load_item
from worker.text import is_blank

from .blocks import amount, mapping, number, string
from .draft import Conversation, Extension, Measured, Segment, Step
from .jsontext import JsonObject, storable
from .lines import BadLine, read_records
from .tally import Tally

if TYPE_CHECKING:
    from session_store.state import SessionState
    from session_store.store import FileSessionStore

NAME = "podworker"
FORMAT = "podworker-session"
VERSION = 1
_COUNTS = ("watermark", "generation", "consecutive_failures")
_ABOUT = (
    *("session_id", "pod", "title", "created", "updated", "turns", "system_prompt", "config"),
    *("forked_from", "compacted_from", "recovered_from", "spawned_by", "watermark", "generation"),
    *("consecutive_failures", "compaction_disabled", "last_outcome", "interrupted"),
)


def recognises(record: JsonObject) -> bool:
    """Tell whether the record is the first of an export."""
    return record.get("format") == FORMAT


def write(store: FileSessionStore, state: SessionState) -> Iterator[bytes]:
    """Yield the lines of a session's export.

    Raises:
        SessionStoreError: The session, or one that it inherits from, cannot be read.
    """
    times = _times(store, state)
    about: JsonObject = {name: getattr(state, name) for name in _ABOUT}
    about |= {"head": state.head.hash, "totals": asdict(state.totals)}
    about["lineage"] = store.lineage(state.session_id)
    yield _line({"format": FORMAT, "version": VERSION, "session": about})
    usage = sorted(state.usage, key=lambda record: record.history_len)
    for index, item in enumerate(state.history):
        while usage and usage[0].history_len <= index:
            yield _line({"usage": asdict(usage.pop(0))})

        at = times.get(item.uid)
        yield _line({"item": dump_item(item)} | ({} if at is None else {"at": at}))

    yield from (_line({"usage": asdict(record)}) for record in usage)
    yield from (_line({"approval": asdict(approval)}) for approval in state.approvals)
    for domain, payloads in state.extensions.items():
        for payload in payloads:
            yield _line({"extension": {"domain": domain, "payload": payload}})

    yield _line({"end": {"items": len(state.history)}})


def read(path: Path, tally: Tally) -> Iterator[Conversation]:
    """Yield the session of the file."""
    reader = _Reader(tally, Conversation(NAME, tally, [Segment()]))
    for record in read_records(path):
        if isinstance(record, BadLine):
            tally.bad(record.line, record.why)
        else:
            tally.records += 1
            reader.take(record.line, record.value)

    yield reader.finished()


@define
class _Reader:
    tally: Tally
    conversation: Conversation
    _items: int = 0
    _expected: int | None = None

    def take(self, line: int, record: JsonObject) -> None:
        """Take one line."""
        steps = self.conversation.segments[0].steps
        match record:
            case {"format": str(), "session": dict(about)}:
                self._take_session(about)
            case {"item": dict(value)}:
                self._take_item(line, value, record.get("at"))
            case {"usage": dict(fields)}:
                steps.append(Measured(_usage(fields)))
            case {"approval": {"call_uid": str(), "decision": str()} as fields}:
                self.conversation.approvals.append(mapping(storable(fields)))
            case {"extension": {"domain": str(domain), "payload": payload}}:
                steps.append(Extension(storable(payload), domain))
            case {"end": dict(end)}:
                self._expected = number(end.get("items"))
            case _:
                self.tally.left_out["unknown line"] += 1

    def finished(self) -> Conversation:
        """Return the conversation; what is missing of it is noted."""
        if self._expected != self._items:
            told = (
                "says nothing of its end" if self._expected is None else f"had {self._expected:,}"
            )
            self.tally.note(
                f"the file is not whole: it {told}, and {self._items:,} items are there"
            )

        return self.conversation

    def _take_session(self, about: JsonObject) -> None:
        conversation = self.conversation
        conversation.title = string(about.get("title"))
        conversation.system_prompt = string(about.get("system_prompt"))
        conversation.config = mapping(storable(about.get("config")))
        conversation.pod = string(about.get("pod"))
        conversation.carried = _carried(about)
        conversation.ended = string(about.get("last_outcome")), about.get("interrupted") is True
        links = ("session_id", "head", "forked_from", "compacted_from", "lineage", "created")
        conversation.source |= {name: about[name] for name in links if about.get(name) is not None}

    def _take_item(self, line: int, value: JsonObject, at: object) -> None:
        try:
            item = load_item(value)
        except ValueError as error:
            self.tally.bad(line, str(error))
            return

        if is_blank(item.uid):
            self.tally.bad(line, "an item without a uid")
            return

        self._items += 1
        step = Step(item, at if isinstance(at, int) else None)
        self.conversation.segments[0].steps.append(step)


def carried_totals(totals: object, usage: list[JsonObject]) -> JsonObject:
    """Return what of the totals the usage records of the same export do not account for."""
    names = [name for name in asdict(Totals()) if name != "requests"]
    rest: JsonObject = {"requests": max(0, number(mapping(totals).get("requests")) - len(usage))}
    for name in names:
        spent = sum(amount(record.get(name)) for record in usage)
        left = max(0.0, amount(mapping(totals).get(name)) - spent)
        rest[name] = left if name == "cost" else round(left)

    return rest


def _usage(fields: JsonObject) -> JsonObject:
    """Return the fields of a usage entry, whatever an export that was changed says."""
    counts = ("history_len", "input_tokens", "cache_read", "cache_write", "output_tokens")
    cost = None if fields.get("cost") is None else amount(fields["cost"])
    known: JsonObject = {name: number(fields.get(name)) for name in counts}
    return {**known, "model": string(fields.get("model")), "cost": cost}


def _carried(about: JsonObject) -> JsonObject:
    return {
        **{name: number(about.get(name)) for name in _COUNTS},
        "compaction_disabled": about.get("compaction_disabled") is True,
        "title": string(about.get("title")),
        "totals": about.get("totals"),
    }


def _times(store: FileSessionStore, state: SessionState) -> dict[str, int]:
    """Return when each item was said, or else when it came into the log that it is in."""
    times: dict[str, int] = {}
    session_id: str | None = state.session_id
    upto: str | None = None
    while session_id is not None:
        parent: list[str] | None = None
        for entry in store.entries(session_id):
            if entry.seq == 0 and entry.data.get("history") is None:
                parent = entry.data.get("forked_from")

            items = entry.data.get("items")
            for item in items if isinstance(items, list) else ():
                times.setdefault(item["uid"], entry.data.get("said_at") or entry.ts)

            if entry.hash == upto:
                break

        session_id, upto = parent if parent is not None else (None, None)

    return times


def _line(value: JsonObject) -> bytes:
    return orjson.dumps(value) + b"\n"
