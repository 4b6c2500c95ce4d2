"""The Worker's events as the protocol's, secrets masked also where they are split over deltas."""

from __future__ import annotations

from collections.abc import Callable

from attrs import asdict, define, field

from pod import protocol
from session_store.masking import Masker, StreamMasker
from worker import ports
from worker.llm import types as llm
from worker.ports import Ref, WorkerEvent

Publish = Callable[[protocol.EventData, tuple[str, int] | None], object]

_SAME_FIELDS: dict[type[object], type[protocol.EventData]] = {
    ports.TurnStart: protocol.TurnStart,
    ports.TurnEnd: protocol.TurnEnd,
    ports.RequestStart: protocol.RequestStart,
    ports.TextDone: protocol.TextDone,
    ports.ToolResulted: protocol.ToolResult,
    ports.PruneApplied: protocol.PruneApplied,
    llm.ToolCallStart: protocol.ToolCallStart,
    llm.ToolCallDone: protocol.ToolCallDone,
    llm.Retrying: protocol.Retry,
}
"""Events of the Worker that the protocol has under its own name, with the same fields."""


@define(eq=False)
class EventTranslator:
    """Publishes a Worker's events.

    Streamed text that could be the start of a known secret is held back until that is decided, so
    that a secret never passes in two halves.
    """

    publish: Publish
    masker: Masker
    _held: dict[str, StreamMasker] = field(factory=dict, init=False)

    def __call__(self, event: WorkerEvent, ref: Ref) -> None:
        """Publish what `event` amounts to."""
        match event:
            case llm.TextDelta():
                self._feed("text", event.text)
            case llm.ReasoningDelta():
                self._feed("reasoning", event.text)
            case llm.ToolCallArgsDelta():
                self._feed(f"call {event.call_id}", event.text)
            case ports.UsageMeasured():
                usage = asdict(event.usage)
                model = event.model or None
                self._whole(protocol.Usage(**usage, model=model, cost=event.cost), ref)
            case ports.TurnStart() | ports.RequestStart():
                # What an answer that broke off had still held back comes too late now.
                self._held.clear()
                self._whole(_SAME_FIELDS[type(event)](**asdict(event)), ref)
            case ports.Alert():
                # It may quote what foreign code raised.
                message = self.masker.mask(event.message)
                self._whole(protocol.Alert(level=event.level, message=message), ref)
            case _:
                self._whole(_SAME_FIELDS[type(event)](**asdict(event, recurse=False)), ref)

    def _feed(self, stream: str, text: str) -> None:
        masker = self._held.setdefault(stream, self.masker.stream())
        self._delta(stream, masker.feed(text))

    def _delta(self, stream: str, text: str) -> None:
        if not text:
            return

        if stream == "text":
            self.publish(protocol.TextDelta(text=text), None)
        elif stream == "reasoning":
            self.publish(protocol.ReasoningDelta(text=text), None)
        else:
            call_id = stream.removeprefix("call ")
            self.publish(protocol.ToolCallArgsDelta(call_id=call_id, text=text), None)

    def _whole(self, data: protocol.EventData, ref: Ref) -> None:
        for stream, masker in self._held.items():
            self._delta(stream, masker.flush())

        self._held.clear()
        self.publish(data, ref if isinstance(ref, tuple) else None)
