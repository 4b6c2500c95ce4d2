"""The parts of one answer while it arrives, in the order in which they began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from attrs import frozen

from worker.items import Reasoning, Text, ToolCall, new_uid
from worker.llm.schemes.chat.calls import CallAssembler
from worker.llm.schemes.chat.reasoning_details import Detail
from worker.llm.schemes.clean_stream import CleanStream
from worker.llm.types import (
    RUNS_NOTHING,
    Answer,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    Usage,
)

_Said: TypeAlias = type[Text | Reasoning]


@frozen
class _Passage:
    """Text or reasoning in one piece."""

    kind: _Said
    text: CleanStream

    def delta(self, piece: str) -> StreamEvent:
        return ReasoningDelta(piece) if self.kind is Reasoning else TextDelta(piece)


class AnswerParts:
    """Collects what a decoder finds; `provider` and `model` are what reasoning is tagged with."""

    def __init__(self, provider: str, model: str, *, new_id: Callable[[], str] = new_uid) -> None:
        self._provider = provider
        self._model = model
        self.calls = CallAssembler(new_id)
        # A call is there as its number.
        self._parts: list[_Passage | Detail | int] = []
        self._latest: _Passage | Detail | None = None

    def say(self, kind: _Said, value: object) -> Iterator[StreamEvent]:
        """Take more text or reasoning; what is no text, or empty, says nothing."""
        if not isinstance(value, str) or not value:
            return

        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Passage) or last.kind is not kind:
            yield from self._end_part()
            last = _Passage(kind, CleanStream())
            self._parts.append(last)

        self._latest = last
        yield from _told(last, last.text.push(value))

    def more(self, text: str) -> None:
        """Take more of what the last text or reasoning belonged to, already told of."""
        if self._latest is not None:
            self._latest.text.more(text)

    def detail(self, entry: Mapping[str, object]) -> Iterator[StreamEvent]:
        """Take a reasoning detail, or more of one."""
        known = (part for part in reversed(self._parts) if isinstance(part, Detail))
        detail = next((part for part in known if part.goes_on_with(entry)), None)
        if detail is None:
            yield from self._end_part()
            detail = Detail()
            self._parts.append(detail)

        self._latest = detail
        yield from _told(detail, detail.add(entry))

    def fragment(self, fragment: Mapping[str, object], position: int) -> Iterator[StreamEvent]:
        """Take a fragment of a tool call; see `CallAssembler.feed`."""
        began, events = self.calls.feed(fragment, position)
        yield from self._with_call(began, events)

    def whole_call(self, call_id: str, name: str, arguments: str) -> Iterator[StreamEvent]:
        """Take a tool call that comes in one piece."""
        began, events = self.calls.whole(call_id, name, arguments)
        yield from self._with_call(began, events)

    def close(self, *, is_cut: bool) -> list[StreamEvent]:
        """Take the end of the answer; see `CallAssembler.close` for `is_cut`."""
        return [*self._end_part(), *self.calls.close(is_cut=is_cut)]

    def answer(self, stop_reason: StopReason, usage: Usage | None) -> Answer:
        """Return the whole answer, with the calls that were closed; what was refused runs none."""
        calls = {} if stop_reason in RUNS_NOTHING else dict(self.calls.kept())
        return self._answer(stop_reason, usage, calls)

    def partial(self, usage: Usage | None) -> Answer | None:
        """Return the text and reasoning so far, or None. No call is known to be whole yet."""
        answer = self._answer("partial", usage, {})
        return answer if answer.parts else None

    def _answer(
        self, stop_reason: StopReason, usage: Usage | None, calls: Mapping[int, ToolCall]
    ) -> Answer:
        parts = (part for each in self._parts for part in self._made_of(each, calls))
        return Answer(tuple(parts), stop_reason, usage, self._model)

    def _made_of(
        self, part: _Passage | Detail | int, calls: Mapping[int, ToolCall]
    ) -> Iterator[Text | Reasoning | ToolCall]:
        if isinstance(part, int):
            yield from [calls[part]] if part in calls else []
        elif isinstance(part, Detail):
            yield part.reasoning(self._provider, self._model)
        elif part.text.text:
            text = part.text.text
            tags = {"provider": self._provider, "model": self._model}
            yield Reasoning(text, **tags) if part.kind is Reasoning else Text(text)

    def _with_call(self, began: int | None, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        if began is not None:
            yield from self._end_part()
            self._parts.append(began)
        yield from events

    def _end_part(self) -> Iterator[StreamEvent]:
        """A half pair that waits at the end of a part has nothing to wait for any more."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, (_Passage, Detail)):
            yield from _told(last, last.text.close())


def _told(part: _Passage | Detail, piece: str) -> Iterator[StreamEvent]:
    if piece:
        yield ReasoningDelta(piece) if isinstance(part, Detail) else part.delta(piece)
