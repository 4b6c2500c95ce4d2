"""Between a history's items and the message dicts that engines are written for. Pure.

Nothing is lost of what an engine leaves alone: a row that comes back with its uid and unchanged
content is the very item it was made of, with reasoning, signatures, images and the split of a tool
result. What is matched, and how, never depends on a row's position.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from attrs import evolve, frozen

from worker.items import AssistantMessage, Item, SystemNote, ToolResult, new_uid
from worker.ports import Selection
from worker.text import clean_text, is_blank

from .engine import Message
from .errors import BridgeError
from .rows import Row, message_of, read_row, without_identity
from .versions import Makings, absorbed_by
from .words import one_line

__all__ = [
    "BridgeError",
    "from_messages",
    "from_selection",
    "to_messages",
    "to_request_messages",
]


def to_messages(items: Iterable[Item]) -> list[Message]:
    """Return the history as messages without a system row, one an item, identity fields included.

    Every call makes new dicts and lists: whoever gets them may change them.
    """
    return [message_of(item) for item in items]


def to_request_messages(system_prompt: str, items: Iterable[Item]) -> list[Message]:
    """Return the messages of one request: the system row first, no identity fields."""
    rows = [without_identity(message_of(item)) for item in items]
    if is_blank(system_prompt):
        return rows

    return [{"role": "system", "content": clean_text(system_prompt)}, *rows]


def from_messages(
    messages: Sequence[object],
    originals: Sequence[Item],
    *,
    system_prompt: str = "",
    origin: Literal["user", "injected"] = "injected",
    mint: Callable[[], str] = new_uid,
) -> list[Item]:
    """Return the history that an engine's messages stand for.

    A row is known by its uid; one without, by equal content (the newest such item that no other row
    claims). Known and unchanged gives the same object, known and changed a new version under its
    uid. New rows keep the uid they bring. A system row that is not `system_prompt` becomes a
    `SystemNote`: engines are given no system row, so it says something new.

    Args:
        messages: What the engine returned.
        originals: The items that it was given.
        system_prompt: The pod's own; a leading row that repeats it is left out.
        origin: Who is taken to have sent new user rows.
        mint: Gives a new uid.

    Raises:
        BridgeError: A row is no message, a uid or an item comes twice, or a tool result has no call
            before it that it did have (or never had) in `originals`.
    """
    rows = _read(messages)
    while rows and rows[0].role == "system" and rows[0].text in ("", clean_text(system_prompt)):
        del rows[0]

    _refuse_repeated(rows)
    known = _Known.of(originals)
    makings = Makings(lambda _: mint(), origin, known.by_uid, known.call_uids)
    items = _items(rows, known, makings)
    _refuse_orphans(items, originals)
    return items


def from_selection(
    messages: Sequence[object], system_prompt: str, items: Sequence[Item]
) -> Selection:
    """Return what an engine's selection stands for, in place of the projection `items`.

    Rows equal to what was given are the items given. The rest are transient items, whose uids
    depend on their content alone, so that an equal selection is equal bytes. A leading system row
    that changed becomes the selection's `system`; without one, the system prompt stays. Pairs of
    calls and results are left to the repair that follows.

    Raises:
        BridgeError: A row is no message, or there is none but the system row.
    """
    rows = _read(messages)
    system = None
    if rows and rows[0].role == "system":
        system = None if rows[0].text == clean_text(system_prompt) else rows[0].text
        del rows[0]

    if not rows:
        raise BridgeError("the selection holds no message but the system prompt")

    known = _Known.of(items)
    makings = Makings(_transient_uids(), "injected", known.by_uid, known.call_uids)
    return Selection(_items(_once_each(rows), known, makings), system)


def _read(messages: Sequence[object]) -> list[Row]:
    if not isinstance(messages, list | tuple):
        raise BridgeError(f"a {type(messages).__name__} was returned, not a list of messages")

    return [read_row(message, f"row {number}") for number, message in enumerate(messages)]


# ------------------------------------------------------------------ what is known


@frozen
class _Known:
    """The items that an engine was given, each with the row it was given as."""

    rows: Sequence[tuple[Item, Row]]
    by_uid: Mapping[str, Item]
    call_uids: Mapping[str, str]

    @classmethod
    def of(cls, items: Sequence[Item]) -> _Known:
        """Read the items back from the messages that were made of them."""
        return cls(
            [(item, read_row(message_of(item), item.uid)) for item in items],
            {item.uid: item for item in items if item.uid},
            {
                call.call_id: call.call_uid
                for item in items
                if isinstance(item, AssistantMessage)
                for call in item.tool_calls
                if call.call_uid
            },
        )

    def claimed_by(self, rows: Sequence[Row]) -> list[Item | None]:
        """Return for each row the item that it is a version of, None for what is new."""
        claims = [self.by_uid.get(row.uid) if row.uid else None for row in rows]
        taken = {id(item) for item in claims if item is not None}
        free: dict[object, list[Item]] = {}
        for item, row in self.rows:
            if id(item) not in taken:
                free.setdefault(row.key, []).append(item)

        # Backwards: what an engine keeps is the tail, so of equal items the newest are meant.
        for place in range(len(rows) - 1, -1, -1):
            row = rows[place]
            if row.uid is None and free.get(row.key):
                claims[place] = free[row.key].pop()

        return claims


def _items(rows: Sequence[Row], known: _Known, makings: Makings) -> list[Item]:
    unchanged = {id(item): row.key for item, row in known.rows}
    open_calls: dict[str, str] = {}
    items: list[Item] = []
    for row, claimed in zip(rows, known.claimed_by(rows), strict=True):
        if claimed is not None and unchanged[id(claimed)] == row.key:
            item = _with_absorbed(claimed, row, known.by_uid)
        else:
            item = makings.item(row, claimed, open_calls)

        if isinstance(item, AssistantMessage):
            open_calls |= {call.call_id: call.call_uid for call in item.tool_calls}
        elif not isinstance(item, ToolResult):
            open_calls = {}
        items.append(item)

    return items


def _with_absorbed(item: Item, row: Row, by_uid: Mapping[str, Item]) -> Item:
    if isinstance(item, ToolResult | SystemNote):
        return item

    absorbed = absorbed_by(row, item, by_uid)
    is_known = set(absorbed) == set(item.absorbed_uids)
    return item if is_known else evolve(item, absorbed_uids=absorbed)


# ------------------------------------------------------------------ what is refused


def _refuse_repeated(rows: Sequence[Row]) -> None:
    for uid, count in Counter(row.uid for row in rows if row.uid).items():
        if count > 1:
            raise BridgeError(f"{count} rows have the same message_uid {one_line(uid)}")


def _refuse_orphans(items: Sequence[Item], originals: Sequence[Item]) -> None:
    # A history may hold results whose calls are long gone; that is not the engine's doing.
    before = {result.uid for result in _orphans(originals)}
    new = [result for result in _orphans(items) if result.uid not in before]
    if new:
        raise BridgeError(
            f"a tool result has no call before it (tool_call_id {one_line(new[0].call_id)!r}, "
            f"message_uid {one_line(new[0].uid)})"
        )


def _orphans(items: Iterable[Item]) -> list[ToolResult]:
    """Return the results whose calls do not stand before them, or are parted from them."""
    open_ids: set[str] = set()
    orphans = []
    for item in items:
        if isinstance(item, AssistantMessage):
            open_ids |= {call.call_id for call in item.tool_calls}
        elif not isinstance(item, ToolResult):
            open_ids = set()
        elif item.call_id not in open_ids:
            orphans.append(item)

    return orphans


# ------------------------------------------------------------------ selections


def _once_each(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, each uid only at its first place: a selection may repeat what it likes."""
    seen: set[str] = set()
    once = []
    for row in rows:
        once.append(evolve(row, uid=None) if row.uid in seen else row)
        if row.uid:
            seen.add(row.uid)

    return once


def _transient_uids() -> Callable[[Row], str]:
    numbers: Counter[str] = Counter()

    def mint(row: Row) -> str:
        digest = hashlib.sha256(repr(row.key).encode("utf-8", "replace")).hexdigest()[:24]
        numbers[digest] += 1
        return f"transient-{digest}-{numbers[digest]}"

    return mint
