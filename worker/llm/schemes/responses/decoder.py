"""Responses answers, streamed or whole, as stream events and an `Answer`.

What belongs together is told by `output_index`: some servers give an item another id in each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from worker.items import Reasoning, Text, ToolCall, new_uid
from worker.llm.failures import stream_broken
from worker.llm.reports import Report, ReportedError, report_of
from worker.llm.schemes.received_json import count_in, object_in, read_object
from worker.llm.schemes.responses.output import (
    CALL,
    MESSAGE,
    OUTPUT_TEXT,
    REASONING,
    REASONING_TEXT,
    REFUSAL,
    SUMMARY_TEXT,
    CallItem,
    JsonFields,
    OutputItem,
    TextItem,
    Told,
    objects,
    text_of,
)
from worker.llm.types import RUNS_NOTHING, Answer, StopReason, StreamEvent, Usage

_FAILED = frozenset({"failed", "cancelled"})
_ENDED = frozenset({"completed", "incomplete"})
_LAST = _FAILED | _ENDED
_KINDS = (MESSAGE, REASONING, CALL)
# What an event about a text begins with, and the kinds of the text and of its item.
_TEXTS = {
    "output_text": (OUTPUT_TEXT, MESSAGE),
    "refusal": (REFUSAL, MESSAGE),
    "reasoning_summary_text": (SUMMARY_TEXT, REASONING),
    "reasoning_text": (REASONING_TEXT, REASONING),
}
# The end of a part says the same as the end of its text.
_PARTS = {kind: name for name, (kind, _) in _TEXTS.items()}


class ResponsesDecoder:
    """Reads one answer. `is_complete` once the response was said to be completed, or incomplete."""

    def __init__(self, provider: str, model: str, *, new_id: Callable[[], str] = new_uid) -> None:
        self._provider = provider
        self._model = model
        self._new_id = new_id
        self._items = _Items(new_id)
        self._last = Told()
        self._status = ""
        self._incomplete_reason = ""
        self._usage: Usage | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to be whole."""
        return self._status in _ENDED

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come: the usage is part of the last event."""
        return self.is_complete

    def feed(self, data: str) -> list[StreamEvent]:
        """Take the data of one event, or a whole response, and return what it means.

        Raises:
            ReportedError: It is a report of an error, or of an answer that failed.
            BadAnswer: It is no JSON object.
        """
        if self.is_complete or data.strip() == "[DONE]":
            return []

        event = read_object(data, self._provider)
        kind = text_of(event.get("type"))
        if kind.startswith("response.") and kind != "response.error":
            return list(self._event(kind.removeprefix("response."), event))

        report = report_of(event)
        if report is not None:
            raise ReportedError(report)
        is_whole = not kind and isinstance(event.get("output"), list)
        # What was not streamed has ended, unless it says otherwise.
        return list(self._response({"status": "completed", **event})) if is_whole else []

    def more(self, text: str, data: str) -> None:
        """Take `text` as more of what the last event was a delta of."""
        self._last.push(text)

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: The response was not said to be complete; `partial` is what came.
        """
        if not self.is_complete:
            raise stream_broken(
                f"{self._provider} ended the stream in the middle of the answer",
                provider=self._provider,
                partial=self.partial(),
            )

        parts: list[Text | Reasoning | ToolCall] = []
        for item in self._items:
            if isinstance(item, TextItem):
                parts.extend(item.parts(self._provider, self._model))
            elif item.is_kept:
                parts.append(ToolCall(item.call_id, item.name, item.arguments, self._new_id()))
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        stop_reason = self._stop_reason(has_calls=has_calls)
        if stop_reason in RUNS_NOTHING:
            parts = [part for part in parts if not isinstance(part, ToolCall)]
        return Answer(tuple(parts), stop_reason, self._usage, self._model)

    def partial(self) -> Answer | None:
        """Return the text and reasoning so far, or None. No call is known to be whole yet."""
        items = [item for item in self._items if isinstance(item, TextItem)]
        parts = [part for item in items for part in item.parts(self._provider, self._model)]
        return Answer(tuple(parts), "partial", self._usage, self._model) if parts else None

    def _event(self, kind: str, event: JsonFields) -> Iterator[StreamEvent]:
        name, _, what = kind.rpartition(".")
        match name, what:
            case "", _:
                fields = object_in(event.get("response"))
                # The response says itself how it ended; where it does not, the event's name does.
                said = text_of(fields.get("status"))
                is_said = what not in _LAST or said in _LAST
                yield from self._response(fields if is_said else {**fields, "status": what})
            case "output_item", "added" | "done":
                yield from self._item(event, is_ended=what == "done")
            case "content_part" | "reasoning_summary_part", "done":
                fields = {**event, **object_in(event.get("part"))}
                yield from self._text(_PARTS.get(text_of(fields.get("type")), ""), what, fields)
            case "function_call_arguments", "delta" | "done":
                yield from self._arguments(what, event)
            case _, "delta" | "done":
                yield from self._text(name, what, event)
            case _:
                pass  # Of what the server's own tools do, or of a kind that is newer than this.

    def _item(self, event: JsonFields, *, is_ended: bool) -> Iterator[StreamEvent]:
        fields = event.get("item")
        if not isinstance(fields, dict):
            return

        item = self._items.open(event, text_of(fields.get("type")), is_new=not is_ended)
        if item is not None and is_ended:
            yield from item.end(fields)
        elif isinstance(item, CallItem):
            yield from item.begin(fields)

    def _text(self, name: str, what: str, event: JsonFields) -> Iterator[StreamEvent]:
        kind, item_kind = _TEXTS.get(name, ("", ""))
        item = self._items.open(event, item_kind) if kind else None
        if not isinstance(item, TextItem):
            return

        index = "summary_index" if kind == SUMMARY_TEXT else "content_index"
        number = count_in(event.get(index)) or 0
        self._last = item.told(kind, number)
        if what == "delta":
            yield from item.push(kind, number, text_of(event.get("delta")))
        else:
            whole = text_of(event.get("refusal" if kind == REFUSAL else "text"))
            yield from item.end_part(kind, number, whole)

    def _arguments(self, what: str, event: JsonFields) -> Iterator[StreamEvent]:
        call = self._items.open(event, CALL)
        if not isinstance(call, CallItem):
            return
        if what == "delta":
            yield from call.push(text_of(event.get("delta")))
        else:
            yield from call.end_arguments(event)

    def _response(self, response: JsonFields) -> Iterator[StreamEvent]:
        """Take the response object of an event, or all of a response that is not streamed."""
        self._usage = read_usage(response.get("usage")) or self._usage
        status = text_of(response.get("status"))
        if status in _FAILED:
            raise ReportedError(_report(response))
        if status not in _ENDED:
            return

        for event in self._items.not_streamed(list(objects(response.get("output")))):
            yield from self._item(event, is_ended=False)
            yield from self._item(event, is_ended=True)
        for item in self._items:
            if isinstance(item, TextItem):
                yield from item.close()
            else:
                yield from item.close(is_cut=status == "incomplete")
        self._status, self._incomplete_reason = status, _incomplete_reason(response)

    def _stop_reason(self, *, has_calls: bool) -> StopReason:
        if any(isinstance(item, TextItem) and item.is_refusal for item in self._items):
            return "refusal"
        if self._status == "incomplete":
            is_filtered = self._incomplete_reason == "content_filter"
            return "content_filter" if is_filtered else "max_tokens"
        return "tool_calls" if has_calls else "end"


class _Items:
    """The output items of one answer, by index; iterating yields those that are for us."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        # None stands for an item that is not for us, such as a search that the server made.
        self._items: dict[int, OutputItem | None] = {}

    def __iter__(self) -> Iterator[OutputItem]:
        for _, item in sorted(self._items.items()):
            if item is not None:
                yield item

    def open(self, event: JsonFields, kind: str, *, is_new: bool = False) -> OutputItem | None:
        """Return the item that an event is about, a new one if need be.

        None where the item is of another kind or has ended: the event is late, or not for us.
        """
        index = event.get("output_index")
        if not isinstance(index, int):
            index = self._next() if is_new else self._last_open(kind)
        if index not in self._items:
            self._items[index] = self._made(kind)

        item = self._items[index]
        return item if item and item.kind == kind and not item.is_ended else None

    def not_streamed(self, output: list[JsonFields]) -> Iterator[JsonFields]:
        """Yield each item of a response's output as an event, under the index it is known by.

        They are matched with the known ones of their kind: what one of both leaves out would shift
        the indexes.
        """
        known = {
            kind: iter(
                [at for at, item in sorted(self._items.items()) if item and item.kind == kind]
            )
            for kind in _KINDS
        }
        for at, fields in enumerate(output):
            kind = text_of(fields.get("type"))
            if kind in known:
                free = self._next() if at in self._items else at
                yield {"output_index": next(known[kind], free), "item": fields}

    def _made(self, kind: str) -> OutputItem | None:
        if kind == CALL:
            return CallItem(f"call_{self._new_id()[:12]}")
        return TextItem(kind) if kind in _KINDS else None

    def _last_open(self, kind: str) -> int:
        open_ones = [
            at
            for at, item in self._items.items()
            if item and item.kind == kind and not item.is_ended
        ]
        return max(open_ones, default=self._next())

    def _next(self) -> int:
        return max(self._items, default=-1) + 1


def _incomplete_reason(response: JsonFields) -> str:
    return text_of(object_in(response.get("incomplete_details")).get("reason"))


def _report(response: JsonFields) -> Report:
    report = report_of({"error": response.get("error")})
    return report or Report(_incomplete_reason(response) or "the answer failed")


def read_usage(usage: object) -> Usage | None:
    """Return what a usage object says, or None where it says nothing but nulls and zeros.

    `input_tokens` has the cached part inside already.
    """
    counted = object_in(usage)
    cached = object_in(counted.get("input_tokens_details"))
    read = Usage(
        input_tokens=count_in(counted.get("input_tokens")) or None,
        output_tokens=count_in(counted.get("output_tokens")),
        cache_read=count_in(cached.get("cached_tokens")),
        cache_write=count_in(cached.get("cache_write_tokens")),
    )
    return read if read.input_tokens or read.output_tokens else None
