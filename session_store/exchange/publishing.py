"""From a conversation to the sessions that hold it: each is there whole, or none is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from session_store.ids import check_pod_name, now_ms, uuid7
from session_store.masking import Masker
from session_store.publish import Publisher
from worker.items import (
    AssistantMessage,
    Covers,
    Item,
    SummaryMessage,
    SystemNote,
    ToolResult,
    UserMessage,
    is_turn_start,
)

from .draft import DOMAIN, Conversation, Extension, Measured, Segment, Step
from .jsontext import JsonObject
from .own import carried_totals
from .tally import Tally

if TYPE_CHECKING:
    from session_store.chain import EntryRef
    from session_store.store import FileSessionStore

Entry = tuple[str, Mapping[str, object]]


@frozen(kw_only=True)
class Imported:
    """One conversation, and what became of it."""

    session_id: str
    earlier: tuple[str, ...]
    """What the session was compacted from, oldest first: one for each compaction of the source."""
    format: str
    title: str
    turns: int
    items: tuple[Item, ...]
    """The session's history."""
    calls: int
    """Tool calls, the earlier sessions' included."""
    unanswered: int
    """Calls that have an error result because the source has none for them."""
    tally: Tally
    """Of the whole file, where it holds several conversations."""


def publish(
    store: FileSessionStore,
    conversation: Conversation,
    pod: str,
    *,
    file_name: str = "",
    clock: Callable[[], int] = now_ms,
) -> Imported:
    """Write the conversation's sessions, durably, and return what they are.

    Raises:
        InvalidPodName: The name cannot be a pod's.
        StorageFailed: They could not be written; none of them is there.
    """
    publisher = Publisher(store.disk, store.layout, clock)
    pod = check_pod_name(conversation.pod or pod)
    _mask(conversation)
    written: list[tuple[str, EntryRef]] = []
    with ExitStack() as undo:
        for index, segment in enumerate(conversation.segments):
            if index:
                _name_what_is_covered(segment, conversation.segments[index - 1], written[-1])

            start = _start(conversation, segment, pod, written)
            session_id = uuid7(clock())
            told = _Entries().all(conversation, segment, index, written, file_name)
            written.append((session_id, publisher.publish(session_id, start, told)))
            undo.callback(store.remove, session_id)

        undo.pop_all()

    items = tuple(conversation.segments[-1].items())
    return Imported(
        session_id=written[-1][0],
        earlier=tuple(session_id for session_id, _ in written[:-1]),
        format=conversation.format,
        title=conversation.title,
        turns=sum(map(is_turn_start, items)),
        items=items,
        calls=_calls(conversation),
        unanswered=conversation.unanswered,
        tally=conversation.tally,
    )


def _mask(conversation: Conversation) -> None:
    """Take out of every item what is shaped like a credential: a log cannot be cleaned later."""
    mask = Masker({}).mask_item
    for segment in conversation.segments:
        for step in [*segment.base, *segment.steps]:
            for one in step.flat() if isinstance(step, Step) else ():
                one.item = mask(one.item)


def _start(
    conversation: Conversation,
    segment: Segment,
    pod: str,
    written: list[tuple[str, EntryRef]],
) -> JsonObject:
    start: JsonObject = {"pod": pod}
    if conversation.title:
        start["title"] = conversation.title

    if written:
        session_id, head = written[-1]
        start["compacted_from"] = [session_id, head.hash]

    if conversation.carried:
        usage = [step.fields for step in segment.steps if isinstance(step, Measured)]
        totals = carried_totals(conversation.carried.get("totals"), usage)
        start["carried"] = {**conversation.carried, "totals": totals}

    history = [flat.item for step in segment.base for flat in step.flat()]
    fixed = {"config": conversation.config, "system_prompt": conversation.system_prompt}
    return {**start, **fixed, "history": history}


def _name_what_is_covered(segment: Segment, before: Segment, written: tuple[str, EntryRef]) -> None:
    """Let the segment's summary say which items of the session before it stands for."""
    kept = {step.item.uid for step in segment.base}
    covered = [item.uid for item in before.items() if item.uid not in kept]
    if not covered:
        return

    session_id, head = written
    covers = Covers(session_id, covered[0], covered[-1], head.hash)
    for step in segment.base:
        if isinstance(step.item, SummaryMessage) and step.item.covers is None:
            step.item = evolve(step.item, covers=covers)


@define
class _Entries:
    """The entries of one session after the first, in order: runs are begun and ended."""

    _length: int = 0
    _turn: int = 0
    _is_turn_open: bool = False
    _is_run_open: bool = False
    _newest: Item | None = None
    _places: dict[int, int] = field(factory=dict)

    def all(
        self,
        conversation: Conversation,
        segment: Segment,
        index: int,
        written: list[tuple[str, EntryRef]],
        file_name: str,
    ) -> Iterator[Entry]:
        """Yield all of them."""
        self._length = sum(len(step.flat()) for step in segment.base)
        if index:
            before = conversation.segments[index - 1]
            yield "compaction", self._compaction(conversation, segment, before, written[-1][0])

        source = {"format": conversation.format, "file": file_name, **conversation.source}
        yield "extension", {"domain": DOMAIN, "payload": {"source": source}}
        for step in segment.steps:
            match step:
                case Step():
                    yield from self._step(step)
                case Measured():
                    place = self._places.get(id(step.answer), self._length)
                    yield "usage", {"history_len": place, **step.fields}
                case Extension():
                    yield "extension", {"domain": step.domain, "payload": step.payload}

        yield from (("approval", approval) for approval in conversation.approvals)
        yield from self._end(conversation.ended or self._how_it_ended())

    def _compaction(
        self, conversation: Conversation, segment: Segment, before: Segment, old: str
    ) -> dict[str, object]:
        told: dict[str, object] = {
            "old": old,
            "trigger": "manual",
            "engine": conversation.format,
            "items_before": len(before.items()),
            "items_after": self._length,
            "generation": conversation.segments.index(segment),
            "method": "summary",
        }
        return told | ({"tokens_before": segment.tokens_before} if segment.tokens_before else {})

    def _step(self, step: Step) -> Iterator[Entry]:
        self._places[id(step)] = self._length
        if is_turn_start(step.item):
            yield from self._end_turn()
            self._turn += 1
            self._is_turn_open = True

        for one in step.flat():
            kind = self._kind(one.item)
            self._is_run_open = self._is_run_open or kind != "system_item"
            self._newest = one.item
            self._length += 1
            said = {} if one.at is None else {"said_at": one.at}
            yield kind, {"items": [one.item], **said}

    def _kind(self, item: Item) -> str:
        match item:
            case AssistantMessage():
                return "assistant_items"
            case ToolResult():
                return "tool_results"
            case UserMessage() if self._is_turn_open:
                return "user_input"
            case UserMessage() | SummaryMessage() | SystemNote():
                return "system_item"

    def _end_turn(self) -> Iterator[Entry]:
        if self._is_run_open:
            yield from self._end(self._how_it_ended())

    def _how_it_ended(self) -> tuple[str, bool]:
        newest = self._newest
        if not isinstance(newest, AssistantMessage) or newest.tool_calls:
            return "cancelled", True

        return ("cancelled" if newest.stop_reason == "partial" else "finished"), False

    def _end(self, how: tuple[str, bool]) -> Iterator[Entry]:
        outcome, interrupted = how
        if self._is_turn_open:
            yield "turn_end", {"turn": self._turn}

        if self._is_run_open and outcome:
            yield "run_outcome", {"outcome": outcome, "interrupted": interrupted}

        self._is_turn_open = self._is_run_open = False


def _calls(conversation: Conversation) -> int:
    uids = {
        call.call_uid
        for segment in conversation.segments
        for item in segment.items()
        if isinstance(item, AssistantMessage)
        for call in item.tool_calls
    }
    return len(uids)
