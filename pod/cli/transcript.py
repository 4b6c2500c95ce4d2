"""A session as a person reads it: its items in order, and the entries at which one can fork."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from pod.tui.text import counted
from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from worker.text import first_line, utf8_len

if TYPE_CHECKING:
    from session_store import Entry, FileSessionStore, SessionState

_ARGUMENTS_CHARS = 100
_HASH_DIGITS = 12


@frozen
class Mark:
    """An entry that ends something: a place to fork from."""

    seq: int
    hash: str
    said: str
    owner: str
    """The session whose entry it is, where that is a parent; else empty."""


Step: TypeAlias = Item | Mark


@frozen
class Covered:
    """What a summary stands for."""

    session_id: str
    items: tuple[Item, ...]


def steps(store: FileSessionStore, state: SessionState) -> Iterator[Step]:
    """Yield the session's items as they are now, and a mark wherever a run ended.

    Raises:
        SessionStoreError: The session, or one that it inherits from, cannot be read.
    """
    now = {item.uid: item for item in state.history}
    for owner, entry in _line(store, state.session_id):
        yield from (now[uid] for uid in _uids(entry) if uid in now)
        said = _ended(entry)
        if said:
            yield Mark(entry.seq, entry.hash, said, "" if owner == state.session_id else owner)


@frozen
class Place:
    """An entry at which a run ended, and what the run was asked."""

    hash: str
    question: str


def places(store: FileSessionStore, state: SessionState) -> list[Place]:
    """Return where one can go back to, oldest first. Raises as `steps` does."""
    found: list[Place] = []
    question = ""
    for step in steps(store, state):
        if isinstance(step, UserMessage) and step.origin == "user":
            question = step.text
        elif isinstance(step, Mark):
            found.append(Place(step.hash, question))

    return found


def covered_by(store: FileSessionStore, state: SessionState) -> Covered | None:
    """Return what the summary that the session begins with stands for, read from the old session.

    None where the session has no summary and was not compacted.

    Raises:
        SessionStoreError: The old session is gone or cannot be read.
    """
    covers = next(
        (item.covers for item in state.history if isinstance(item, SummaryMessage) and item.covers),
        None,
    )
    if covers is not None:
        old = _as_it_was(store, state, covers.session_id, covers.head_hash)
        uids = [item.uid for item in old]
        if covers.first_uid in uids and covers.last_uid in uids:
            span = slice(uids.index(covers.first_uid), uids.index(covers.last_uid) + 1)
            return Covered(covers.session_id, tuple(old[span]))

    # An engine of somebody else's says nothing of what it left out: then it is what is missing.
    if state.compacted_from is None:
        return None

    session_id, digest = state.compacted_from
    kept = {item.uid for item in state.history}
    old = _as_it_was(store, state, session_id, digest)
    return Covered(session_id, tuple(item for item in old if item.uid not in kept))


def _as_it_was(
    store: FileSessionStore, state: SessionState, session_id: str, digest: str
) -> Sequence[Item]:
    from session_store import SessionNotFound, UnknownEntry

    try:
        return store.restore(session_id, at=digest).history
    except (SessionNotFound, UnknownEntry) as error:
        # Of a removed one there may be left what its forks need, and no more.
        why = f"it was removed, and what session {state.session_id} stands for with it"
        raise SessionNotFound(session_id, why) from error


def transcript(found: Iterable[Step]) -> Iterator[list[str]]:
    """Yield the lines that show each item or mark. A result is shown with the name of its tool."""
    names: dict[str, str] = {}
    for step in found:
        if isinstance(step, AssistantMessage):
            names |= {call.call_uid: call.name for call in step.tool_calls}

        yield _lines(step, names)


def _lines(step: Step, names: Mapping[str, str]) -> list[str]:
    match step:
        case Mark():
            owner = f" of {step.owner}" if step.owner else ""
            return [f"— {step.said} · entry {step.seq} {step.hash[:_HASH_DIGITS]}{owner} —"]
        case UserMessage():
            origin = "" if step.origin == "user" else f" · {step.origin}"
            return [f"user{origin}", *_parts(step.parts)]
        case AssistantMessage():
            model = f" · {step.provider}/{step.model}" if step.model else ""
            return [f"assistant{model}", *_parts(step.parts)]
        case ToolResult():
            name = names.get(step.call_uid, "")
            return [f"tool {name}".rstrip() + " · error" * step.is_error, *_result(step)]
        case SummaryMessage():
            return [f"summary · generation {step.generation}", *_text(step.text)]
        case SystemNote():
            return [f"note · {step.kind}", *_text(step.text)]


def _parts(parts: Sequence[Text | Image | Reasoning | ToolCall]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text():
                yield from _text(part.text)
            case Image():
                yield f"  [{part.media_type}, {counted(len(part.data), 'byte')}]"
            case Reasoning():
                yield f"  (thought: {first_line(part.text, _ARGUMENTS_CHARS) or 'not shown'})"
            case ToolCall():
                arguments = " ".join(part.arguments.split())
                yield f"  → {part.name} {first_line(arguments, _ARGUMENTS_CHARS)}"


def _result(result: ToolResult) -> Iterator[str]:
    yield from _text(result.summary)
    if result.content is not None:
        size = counted(utf8_len(result.content), "byte")
        yield f"  [content: {size}]"

    for image in result.attachments:
        yield f"  [{image.media_type}, {counted(len(image.data), 'byte')}]"


def _text(text: str) -> list[str]:
    return [f"  {line}" for line in text.rstrip("\n").split("\n")]


def _line(store: FileSessionStore, session_id: str) -> Iterator[tuple[str, Entry]]:
    """Yield the entries that a session's history is made of, its parents' first, and whose each is.

    The session was restored before, so the line of its parents is whole and ends.
    """
    line: list[tuple[str, str | None]] = [(session_id, None)]
    start = next(iter(store.entries(session_id)))
    while start.data.get("history") is None:
        parent, digest = start.data["forked_from"]
        line.append((parent, digest))
        start = next(iter(store.entries(parent)))

    for owner, upto in reversed(line):
        for entry in store.entries(owner):
            yield owner, entry
            if entry.hash == upto:
                break


def _uids(entry: Entry) -> Iterator[str]:
    for key in ("history", "items"):
        held = entry.data.get(key)
        # What `prune_advanced` calls items is a number.
        for item in held if isinstance(held, list) else ():
            yield item["uid"]


def _ended(entry: Entry) -> str:
    if entry.kind == "run_outcome":
        return str(entry.data.get("outcome", "ended"))

    return "compacted into this session" if entry.kind == "compaction" else ""
