"""Function calls out of a Gemini stream: whole ones, and those whose arguments come in pieces.

A call goes on while its parts say so; the first one that does not ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from worker.items import ToolCall, new_uid
from worker.llm.schemes.gemini.arguments import PartialArguments, as_json
from worker.llm.schemes.gemini.schema import own_name
from worker.llm.types import StreamEvent, ToolCallArgsDelta, ToolCallDone, ToolCallStart
from worker.text import clean_text


class _Call:
    """One call that is being received."""

    def __init__(self, call_id: str, name: str, own_id: str) -> None:
        self.call_id = call_id
        self.name = name
        self.own_id = own_id
        self.signature: str | None = None
        self.arguments = ""
        self.is_open = True
        self.is_kept = False
        self._partial = PartialArguments()

    def take(self, fields: Mapping[str, object]) -> bool:
        """Take one part of the call, and tell whether it goes on."""
        args, pieces = fields.get("args"), fields.get("partialArgs")
        goes_on = fields.get("willContinue") is True
        if args is not None:
            self.arguments = clean_text(args) if isinstance(args, str) else as_json(args)
        if isinstance(pieces, list) and pieces:
            goes_on = self._partial.add(pieces) or goes_on
            self.arguments = self._partial.text

        return goes_on

    def end(self) -> list[StreamEvent]:
        """Take the end of the call, and tell of it."""
        self.is_open = False
        self.is_kept = True
        more = [ToolCallArgsDelta(self.call_id, self.arguments)] if self.arguments else []
        return [*more, ToolCallDone(self.call_id, self.name, self.arguments)]

    def end_unfinished(self) -> list[StreamEvent]:
        """Take it that the rest never comes: what is kept must not pass for whole arguments."""
        self.arguments = (self.arguments or "{}")[:-1]
        return self.end()


class CallReader:
    """The calls of one answer, in the order they began."""

    def __init__(self, new_id: Callable[[], str] = new_uid) -> None:
        self._new_id = new_id
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def feed(
        self, fields: Mapping[str, object], signature: str | None
    ) -> tuple[int | None, list[StreamEvent]]:
        """Take one `functionCall`.

        Returns:
            The number of the call that it began, None where it went on with one; and what is to
            be told.
        """
        call = self._last_open()
        events: list[StreamEvent] = []
        began = None
        if call is None or not _goes_on_with(call, fields):
            events += call.end_unfinished() if call else []
            if not any(fields.get(key) for key in ("name", "args", "partialArgs")):
                return None, events  # The end of nothing.

            began = len(self._calls)
            call = self._begin(fields)
            events.append(ToolCallStart(call.call_id, call.name))

        call.signature = call.signature or signature
        if not call.take(fields):
            events += call.end()
        return began, events

    def add_unreadable(self, name: str, arguments: str) -> tuple[int, list[StreamEvent]]:
        """Take a call that the provider could not read itself; its arguments are no JSON."""
        number = len(self._calls)
        call = self._begin({"name": name})
        call.arguments = arguments
        return number, [ToolCallStart(call.call_id, call.name), *call.end()]

    def close(self, *, is_cut: bool) -> list[StreamEvent]:
        """Take the end of the answer. With `is_cut`, a call that is still open is dropped."""
        call = self._last_open()
        if call is None:
            return []

        if is_cut:
            call.is_open = False
            return []
        return call.end_unfinished()

    def signature_of(self, number: int) -> str | None:
        """Return the signature that came with a call."""
        return self._calls[number].signature

    def kept(self) -> Iterator[tuple[int, ToolCall]]:
        """Yield the calls that have ended, each with its number."""
        for number, call in enumerate(self._calls):
            if call.is_kept:
                yield number, ToolCall(call.call_id, call.name, call.arguments, self._new_id())

    def _last_open(self) -> _Call | None:
        last = self._calls[-1] if self._calls else None
        return last if last is not None and last.is_open else None

    def _begin(self, fields: Mapping[str, object]) -> _Call:
        own_id = _text(fields.get("id"))
        call_id = own_id or f"call_{self._new_id()[:12]}"
        call = _Call(call_id, own_name(_text(fields.get("name"))), own_id)
        self._calls.append(call)
        return call


def _goes_on_with(call: _Call, fields: Mapping[str, object]) -> bool:
    """Tell whether a part belongs to the call that is open; most of them name nothing."""
    name, own_id = own_name(_text(fields.get("name"))), _text(fields.get("id"))
    if own_id:
        return own_id == call.own_id
    return not name or (name == call.name and bool(fields.get("partialArgs")))


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""
