"""Chat Completions answers, streamed or whole, as stream events and an `Answer`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import orjson

from worker.items import Reasoning, Text, ToolCall, new_uid
from worker.llm.failures import Report, ReportedError, not_json, report_of, stream_broken
from worker.llm.schemes.chat_calls import CallAssembler
from worker.llm.schemes.clean_stream import CleanStream
from worker.llm.types import (
    Answer,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    Usage,
)

_STOP_REASONS: dict[str, StopReason] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
}


class ChatDecoder:
    """Reads one answer. `is_complete` once a finish reason or the end marker was seen."""

    def __init__(self, provider: str, model: str, *, new_id: Callable[[], str] = new_uid) -> None:
        self._provider = provider
        self._model = model
        self._calls = CallAssembler(new_id)
        # The parts in the order they began: text, reasoning, or the number of a call.
        self._parts: list[tuple[type[Text | Reasoning], CleanStream] | int] = []
        self._finish_reason: str | None = None
        self._is_refused = False
        self._is_closed = False
        self._has_choice = False
        self._is_done = False
        self._usage: Usage | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to be whole."""
        if self._finish_reason is not None:
            return True
        # Some servers end with the marker alone. It proves little where a call may be cut.
        return self._is_done and self._has_choice and self._calls.all_whole()

    @property
    def is_done(self) -> bool:
        """Whether the end marker was seen."""
        return self._is_done

    def feed(self, data: str) -> list[StreamEvent]:
        """Take the data of one event, or a whole completion, and return what it means.

        Raises:
            ReportedError: It is a report of an error.
            BadAnswer: It is no JSON object.
        """
        if data.strip() == "[DONE]":
            self._is_done = True
            return self._close()

        chunk = _parse(data)
        if not isinstance(chunk, dict):
            raise not_json(self._provider, data)

        self._note_usage(chunk)
        report = report_of(chunk)
        if report is not None:
            raise ReportedError(report)

        return [event for choice in _choices(chunk) for event in self._choice(choice)]

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: No finish reason and no end marker was seen; `partial` is what came.
        """
        if not self.is_complete:
            raise stream_broken(
                f"{self._provider} ended the stream in the middle of the answer",
                provider=self._provider,
                partial=self.partial(),
            )

        calls = dict(self._calls.kept())
        return self._answer(self._stop_reason(has_calls=bool(calls)), calls)

    def partial(self) -> Answer | None:
        """Return the text and reasoning so far, or None. No call is known to be whole yet."""
        answer = self._answer("partial", {})
        return answer if answer.parts else None

    def _choice(self, choice: Mapping[str, object]) -> Iterator[StreamEvent]:
        self._has_choice = True
        # A whole completion has the same fields under another name.
        whole = choice.get("message")
        delta = choice.get("delta") or whole
        if isinstance(delta, dict):
            yield from self._delta(delta)

        reason = choice.get("finish_reason")
        if reason == "error":
            raise ReportedError(report_of(choice) or Report("the answer failed"))
        if isinstance(reason, str) and reason:
            self._finish_reason = reason
        self._is_done = self._is_done or isinstance(whole, dict)
        yield from self._close()

    def _delta(self, delta: Mapping[str, object]) -> Iterator[StreamEvent]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        yield from self._append(Reasoning, thought)

        content = delta.get("content")
        for block in content if isinstance(content, list) else [content]:
            yield from self._content(block)

        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._is_refused = True
            yield from self._append(Text, refusal)

        fragments = delta.get("tool_calls")
        for position, fragment in enumerate(fragments if isinstance(fragments, list) else []):
            if isinstance(fragment, dict):
                yield from self._fragment(fragment, position)

    def _content(self, block: object) -> Iterator[StreamEvent]:
        """Text, or a block of it: Mistral streams thoughts as blocks inside the content."""
        if not isinstance(block, dict):
            yield from self._append(Text, block)
            return

        thoughts = block.get("thinking")
        for thought in thoughts if isinstance(thoughts, list) else []:
            yield from self._append(
                Reasoning, thought.get("text") if isinstance(thought, dict) else ""
            )
        yield from self._append(Text, block.get("text"))

    def _append(self, kind: type[Text | Reasoning], value: object) -> Iterator[StreamEvent]:
        if not isinstance(value, str) or not value:
            return

        last = self._parts[-1] if self._parts else None
        if isinstance(last, tuple) and last[0] is kind:
            stream = last[1]
        else:
            yield from self._flush_text()
            stream = CleanStream()
            self._parts.append((kind, stream))

        piece = stream.push(value)
        if piece:
            yield _delta_event(kind, piece)

    def _fragment(self, fragment: Mapping[str, object], position: int) -> Iterator[StreamEvent]:
        began, events = self._calls.feed(fragment, position)
        if began is not None:
            yield from self._flush_text()
            self._parts.append(began)
        yield from events

    def _flush_text(self) -> Iterator[StreamEvent]:
        """A half pair that waits at the end of a part has nothing to wait for any more."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, tuple):
            piece = last[1].close()
            if piece:
                yield _delta_event(last[0], piece)

    def _close(self) -> list[StreamEvent]:
        if self._is_closed or not self.is_complete:
            return []

        self._is_closed = True
        is_cut = _STOP_REASONS.get(self._finish_reason or "") == "max_tokens"
        return [*self._flush_text(), *self._calls.close(is_cut=is_cut)]

    def _stop_reason(self, *, has_calls: bool) -> StopReason:
        if self._is_refused:
            return "refusal"

        reason = _STOP_REASONS.get(self._finish_reason or "")
        # Many servers say "stop" and call tools, or the reverse; the calls themselves decide.
        return reason or ("tool_calls" if has_calls else "end")

    def _answer(self, stop_reason: StopReason, calls: Mapping[int, ToolCall]) -> Answer:
        parts: list[Text | Reasoning | ToolCall] = []
        for part in self._parts:
            if isinstance(part, int):
                parts.extend([calls[part]] if part in calls else [])
            elif part[1].text and part[0] is Reasoning:
                parts.append(Reasoning(part[1].text, provider=self._provider, model=self._model))
            elif part[1].text:
                parts.append(Text(part[1].text))

        return Answer(tuple(parts), stop_reason, self._usage, self._model)

    def _note_usage(self, chunk: Mapping[str, object]) -> None:
        # Nulls and zeros of early chunks say nothing; the last real numbers hold.
        self._usage = read_usage(chunk) or self._usage


def _delta_event(kind: type[Text | Reasoning], piece: str) -> StreamEvent:
    return ReasoningDelta(piece) if kind is Reasoning else TextDelta(piece)


def _parse(data: str) -> object:
    try:
        return orjson.loads(data)
    except ValueError:
        # orjson refuses a lone half of an escaped surrogate pair, which deltas do carry.
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None


def _choices(chunk: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and not choice.get("index"):
            yield choice


def read_usage(chunk: Mapping[str, object]) -> Usage | None:
    """Return the usage that a chunk reports, or None where it reports nothing but nulls and zeros.

    `prompt_tokens` has the cached part inside already. Where a server gives no usage object, the
    timings of llama.cpp are read.
    """
    usage = _object(chunk.get("usage")) or _object(_object(chunk.get("x_groq")).get("usage"))
    timings = _object(chunk.get("timings"))
    details = _object(usage.get("prompt_tokens_details"))
    cached = _count(timings.get("cache_n"))
    if not usage and timings:
        new = _count(timings.get("prompt_n"))
        usage = {
            "prompt_tokens": None if new is None else new + (cached or 0),
            "completion_tokens": timings.get("predicted_n"),
        }

    read = Usage(
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cache_read=_first_count(
            details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), cached
        ),
        cache_write=_count(details.get("cache_write_tokens")),
    )
    return read if read.input_tokens or read.output_tokens else None


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count and isinstance(value, int) else None


def _first_count(*values: object) -> int | None:
    return next((count for count in map(_count, values) if count is not None), None)
