"""A conversation in the making: readers tell it what they find, in the order of their source.

What comes out is a valid history whatever was told: every uid is there once, results stand right
behind the answers that asked for them, and every call has exactly one result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from attrs import define, evolve, field, frozen

from session_store.token_shapes import mask_token_shapes
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
    is_turn_start,
    new_uid,
)
from worker.text import is_blank

from .jsontext import JsonObject, compact_json, storable
from .outputs import Output
from .tally import Tally

DOMAIN = "import"
"""The domain of the extension entries of an import."""
NO_RESULT = "interrupted: no result was recorded for this call; it may or may not have run"

_LARGEST_RECORD = 1 << 16
_MOST_KEPT = 1 << 24
_UID = re.compile("[0-9a-f]{32}")

Part: TypeAlias = Text | Reasoning | ToolCall


@frozen
class Mark:
    """What the source says of a message besides its content."""

    uid: str | None = None
    """Its identity there, if it can be a uid."""
    at: int | None = None
    """When it was said, in milliseconds of Unix time."""
    absorbed: tuple[str, ...] = ()


UNMARKED = Mark()


@define(eq=False)
class Step:
    """One item of a history, with the results of its calls where it is an answer."""

    item: Item
    at: int | None = None
    """When it was said, in milliseconds of Unix time, where the source tells."""
    results: dict[str, Step] = field(factory=dict)
    """By the call's uid."""
    given_ids: dict[str, str] = field(factory=dict)
    """The id that the source has for each call, by the call's uid."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of an answer; of anything else, none."""
        return self.item.tool_calls if isinstance(self.item, AssistantMessage) else ()

    def flat(self) -> list[Step]:
        """Return the step and, in the order of the calls, those of its results."""
        found = (self.results.get(call.call_uid) for call in self.calls)
        return [self, *(step for step in found if step is not None)]


@define(eq=False)
class Measured:
    """A request's usage, as the fields of a `usage` entry, and the answer that it brought.

    Without the answer, the request is taken to be of all that came before.
    """

    fields: dict[str, object]
    answer: Step | None = None


@frozen
class Extension:
    """An entry of kind `extension`."""

    payload: object
    domain: str = DOMAIN


@define
class Segment:
    """One session: what its history begins with, and what came then."""

    base: list[Step] = field(factory=list)
    """Empty, or what a compaction of the source left: a summary and what it kept."""
    steps: list[Step | Measured | Extension] = field(factory=list)
    tokens_before: int | None = None
    """What the compaction was made of, where the source tells."""

    def items(self) -> list[Item]:
        """Return the whole history."""
        told = (step for step in self.steps if isinstance(step, Step))
        return [flat.item for step in [*self.base, *told] for flat in step.flat()]


@define
class Conversation:
    """All that was read of one conversation; each segment is what the last was compacted to."""

    format: str
    tally: Tally
    segments: list[Segment]
    title: str = ""
    system_prompt: str = ""
    source: dict[str, object] = field(factory=dict)
    """What the source says of itself: ids, folder, model."""
    unanswered: int = 0
    """Calls that no result came for."""
    pod: str = ""
    config: JsonObject = field(factory=dict)
    carried: JsonObject = field(factory=dict)
    """What an export of ours says of its session's state besides the history."""
    approvals: list[JsonObject] = field(factory=list)
    ended: tuple[str, bool] | None = None
    """How the last run ended, and whether it was interrupted, where the source says it."""


@define(eq=False)
class _OpenCall:
    step: Step
    call: ToolCall
    turn: int


class Draft:
    """Takes what a reader finds and makes a `Conversation` of it."""

    def __init__(self, format_name: str, tally: Tally) -> None:
        self.tally = tally
        self.conversation = Conversation(format_name, tally, [Segment()])
        self._uids: set[str] = set()
        self._call_uids: set[str] = set()
        self._open: dict[str, _OpenCall] = {}
        self._by_id: dict[str, list[_OpenCall]] = {}
        self._uses: Counter[str] = Counter()
        self._turn = 0
        self.newest: Step | None = None
        """The step that was added last."""
        self._kept_bytes = 0

    @property
    def segment(self) -> Segment:
        """What is being added to."""
        return self.conversation.segments[-1]

    @property
    def is_empty(self) -> bool:
        """Whether there is no item yet."""
        segments = self.conversation.segments
        return len(segments) == 1 and not any(isinstance(one, Step) for one in segments[0].steps)

    def history_steps(self) -> list[Step]:
        """Return the steps of the history as it stands, results apart."""
        segment = self.segment
        return [*segment.base, *(step for step in segment.steps if isinstance(step, Step))]

    def user(
        self,
        parts: Sequence[Text | Image],
        *,
        injected: bool = False,
        mark: Mark = UNMARKED,
    ) -> Step | None:
        """Add what was said to the model; None where that shows nothing."""
        said = tuple(part for part in parts if isinstance(part, Image) or not is_blank(part.text))
        if not said:
            return None

        self._turn += not injected
        origin: Literal["user", "injected"] = "injected" if injected else "user"
        message = UserMessage(self._claim(mark.uid), said, origin, mark.absorbed)
        return self._added(Step(message, mark.at))

    def answer(
        self,
        parts: Iterable[Part],
        *,
        provider: str = "",
        model: str = "",
        stop_reason: str | None = None,
        mark: Mark = UNMARKED,
    ) -> Step | None:
        """Add what the model said; None, counted, where that is nothing at all.

        Calls need no uid, nor an id: both are made where they lack.
        """
        item = AssistantMessage(self._claim(mark.uid), (), provider, model, "", mark.absorbed)
        step = Step(item, mark.at)
        taken = self._take_parts(step, parts)
        if not taken:
            self.tally.left_out["empty answer"] += 1
            return None

        calls = any(isinstance(part, ToolCall) for part in taken)
        reason = stop_reason or ("tool_calls" if calls else "end")
        step.item = evolve(item, parts=tuple(taken), stop_reason=reason)
        return self._added(step)

    def extend(self, step: Step, parts: Iterable[Part], uid: str | None = None) -> None:
        """Add more of the same answer to one that was added before."""
        item = step.item
        if isinstance(item, AssistantMessage):
            taken = self._take_parts(step, parts)
            absorbed = item.absorbed_uids
            if taken and uid is not None and uid not in self._uids:
                self._uids.add(uid)
                absorbed = (*absorbed, uid)

            step.item = evolve(item, parts=(*item.parts, *taken), absorbed_uids=absorbed)

    def result(
        self,
        call_id: str | None,
        output: Output,
        *,
        is_error: bool = False,
        name: str = "",
        mark: Mark = UNMARKED,
    ) -> bool:
        """Add the result of the nearest call before that has this id and no result yet.

        Without an id: of the first such call of the nearest answer that has one, by `name` if that
        is known. False where there is none: then the caller keeps what it has some other way.
        """
        found = self._find(call_id, name)
        if found is None:
            return False

        call = found.call
        del self._open[call.call_uid]
        result = ToolResult(
            self._claim(mark.uid),
            call.call_id,
            call.call_uid,
            output.summary,
            output.content,
            is_error,
            output.images,
        )
        found.step.results[call.call_uid] = Step(result, mark.at)
        return True

    def note(self, text: str, kind: str, mark: Mark = UNMARKED) -> None:
        """Add a note that the source had in the context."""
        if not is_blank(text):
            self._added(Step(SystemNote(self._claim(mark.uid), text, kind), mark.at))

    def summary(self, text: str, mark: Mark = UNMARKED) -> Step:
        """Return a summary, for `compact`."""
        uid, generation = self._claim(mark.uid), len(self.conversation.segments)
        return Step(SummaryMessage(uid, text, None, generation, mark.absorbed), mark.at)

    def compact(self, base: Sequence[Step], tokens_before: object = None) -> None:
        """Begin a new session of these steps: a summary, and steps of the history or new ones."""
        self._uids.update(step.item.uid for step in base)
        tokens = tokens_before if isinstance(tokens_before, int) else None
        self.conversation.segments.append(Segment(list(base), tokens_before=tokens))

    def said(self, parts: Sequence[Text | Image]) -> Step:
        """Return a message of a person, for `compact`."""
        return Step(UserMessage(new_uid(), tuple(parts)))

    def drop_turns(self, count: int) -> None:
        """Take the newest turns back, as the source did."""
        steps = self.segment.steps
        for _ in range(count):
            starts = [
                index
                for index, step in enumerate(steps)
                if isinstance(step, Step) and is_turn_start(step.item)
            ]
            if not starts:
                break

            self.tally.left_out["taken-back item"] += sum(
                len(step.flat()) for step in steps[starts[-1] :] if isinstance(step, Step)
            )
            del steps[starts[-1] :]

    def measured(self, fields: Mapping[str, object], answer: Step | None = None) -> Measured:
        """Add a request's usage, and `answer`, where it is known what the request brought."""
        usage = Measured(dict(fields), answer)
        self.segment.steps.append(usage)
        return usage

    def keep(self, what: str, line: int, record: object) -> None:
        """Keep what no item can hold as an extension entry, unless it is too large for that."""
        size = len(compact_json(record))
        if size > _LARGEST_RECORD or self._kept_bytes + size > _MOST_KEPT:
            self.tally.left_out[what] += 1
            return

        self._kept_bytes += size
        self.tally.kept[what] += 1
        payload = {"what": what, "line": line, "record": storable(record, mask_token_shapes)}
        self.segment.steps.append(Extension(payload))

    def finished(self) -> Conversation:
        """Return what was made. A call that no result came for has an error result that says so."""
        for waiting in self._open.values():
            call = waiting.call
            result = ToolResult(
                new_uid(), call.call_id, call.call_uid, NO_RESULT, None, is_error=True
            )
            waiting.step.results[call.call_uid] = Step(result)

        self.conversation.unanswered = len(self._open)
        self._open.clear()
        model = self.conversation.source.get("model")
        if isinstance(model, str):
            self._name_model(model)

        return self.conversation

    def _name_model(self, model: str) -> None:
        """Note the model in the answers of a source that names it once, before or after them."""
        for segment in self.conversation.segments:
            for step in [*segment.base, *segment.steps]:
                if isinstance(step, Step) and isinstance(step.item, AssistantMessage):
                    step.item = evolve(step.item, model=step.item.model or model)

    def _added(self, step: Step) -> Step:
        self.segment.steps.append(step)
        self.newest = step
        return step

    def _claim(self, uid: str | None) -> str:
        is_taken = uid is None or is_blank(uid) or uid in self._uids
        claimed = new_uid() if uid is None or is_taken else uid
        self._uids.add(claimed)
        return claimed

    def _take_parts(self, step: Step, parts: Iterable[Part]) -> list[Part]:
        """Return the parts that hold anything; their calls wait for their results from now on."""
        taken: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                call = self._take_call(step, taken, part)
                taken += [] if call is None else [call]
            elif not _is_nothing(part):
                taken.append(part)

        return taken

    def _take_call(self, step: Step, taken: list[Part], part: ToolCall) -> ToolCall | None:
        given = part.call_id
        calls = [*step.calls, *(other for other in taken if isinstance(other, ToolCall))]
        same = [other for other in calls if step.given_ids.get(other.call_uid) == given]
        if given and any((c.name, c.arguments) == (part.name, part.arguments) for c in same):
            self.tally.left_out["repeated call"] += 1
            return None

        call_uid = part.call_uid
        if not call_uid or call_uid in self._call_uids:
            call_uid = new_uid()

        self._call_uids.add(call_uid)
        call_id = f"{given or 'call'}_{call_uid[:8]}" if same or not given else given
        call = evolve(part, call_id=call_id, call_uid=call_uid)
        step.given_ids[call_uid] = given
        self._uses[given] += 1
        self._open[call_uid] = waiting = _OpenCall(step, call, self._turn)
        self._by_id.setdefault(given, []).append(waiting)
        return call

    def _find(self, call_id: str | None, name: str) -> _OpenCall | None:
        if call_id is None:
            return self._find_without_id(name)

        known = self._by_id.get(call_id, [])
        waiting: list[_OpenCall] = []
        while known and not waiting:
            group = _newest_of_one_step(known)
            waiting = [one for one in reversed(group) if one.call.call_uid in self._open]
            if not waiting:
                del known[-len(group) :]

        # An id that is used again and again says nothing of a call of an earlier turn.
        if waiting and (self._uses[call_id] == 1 or waiting[0].turn == self._turn):
            return waiting[0]

        return None

    def _find_without_id(self, name: str) -> _OpenCall | None:
        newest = next(reversed(self._open.values()), None)
        if newest is None or newest.turn != self._turn:
            return None

        waiting = [self._open[uid] for uid in newest.step.given_ids if uid in self._open]
        return next((one for one in waiting if one.call.name == name), waiting[0])


def own_uid(text: object) -> str | None:
    """Return a source's own id as a uid, where it is one: 32 hex digits, or a UUID with dashes."""
    if not isinstance(text, str):
        return None

    digits = text.replace("-", "").lower()
    return digits if _UID.fullmatch(digits) else None


def _newest_of_one_step(known: list[_OpenCall]) -> list[_OpenCall]:
    step = known[-1].step
    return list(takewhile(lambda one: one.step is step, reversed(known)))


def _is_nothing(part: Text | Reasoning) -> bool:
    if isinstance(part, Text):
        return is_blank(part.text)

    return not (part.text or part.signature or part.blob)
