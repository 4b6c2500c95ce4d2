"""Gemini answers, streamed or whole, as stream events and an `Answer`.

A signature belongs to the part that it came with: signed and unsigned parts are never merged, and
what is kept of each (`_Said.parts`) is enough to send the same part back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import orjson

from worker.items import Reasoning, Text, ToolCall, new_uid
from worker.llm.failures import ReportedError, not_json, report_of, stream_broken
from worker.llm.schemes.clean_stream import CleanStream
from worker.llm.schemes.gemini.calls import CallReader
from worker.llm.schemes.gemini.ends import (
    blocked_prompt,
    broken_end,
    is_cut,
    is_unreadable_call,
    named_call,
    stop_reason,
)
from worker.llm.schemes.gemini.schema import UNNAMED
from worker.llm.schemes.gemini.usage import UsageReader
from worker.llm.schemes.received_json import count_in
from worker.llm.types import Answer, ReasoningDelta, StopReason, StreamEvent, TextDelta
from worker.text import clean_text, is_blank


class _Said:
    """One part that says something: text or a thought, with its signature where it has one."""

    def __init__(self, *, is_thought: bool, signature: str | None) -> None:
        self.is_thought = is_thought
        self.signature = signature
        self.stream = CleanStream()

    def event(self, piece: str) -> StreamEvent:
        return ReasoningDelta(piece) if self.is_thought else TextDelta(piece)

    def parts(self, provider: str, model: str) -> Iterator[Text | Reasoning]:
        text, signature = self.stream.text, self.signature
        if self.is_thought:
            yield Reasoning(text, signature=signature, provider=provider, model=model)
            return

        shows = not is_blank(text)
        if signature is not None and shows:
            yield Reasoning("", blob=signature, provider=provider, model=model)
        if text:
            yield Text(text)
        if signature is not None and not shows:
            # Blank text is not sent back, and its signature must not pass to what follows.
            yield Reasoning("", signature=signature, provider=provider, model=model)


class GeminiDecoder:
    """Reads one answer. `is_complete` once a finish reason was seen; nothing marks the end."""

    def __init__(self, provider: str, model: str, *, new_id: Callable[[], str] = new_uid) -> None:
        self._provider = provider
        self._model = model
        self._calls = CallReader(new_id)
        # The parts in the order they began: something said, or the number of a call.
        self._parts: list[_Said | int] = []
        self._index: int | None = None
        self._reason = ""
        self._is_done = False
        self._usage = UsageReader()
        # The last event that only repeated another: its usage is read when it matters.
        self._repeated = ""

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to have ended."""
        return bool(self._reason)

    @property
    def is_done(self) -> bool:
        """Whether an end marker was seen. Google sends none: more may follow a finish reason."""
        return self._is_done

    def feed(self, data: str) -> list[StreamEvent]:
        """Take the data of one event, or a whole answer, and return what it means.

        Raises:
            ReportedError: It is a report of an error, or of a prompt or an answer that is blocked.
            BadAnswer: It is no JSON object, nor a list of them.
        """
        if data.strip() == "[DONE]":
            self._is_done = True
            return []

        value = _parse(data)
        values = value if isinstance(value, list) else [value]
        chunks = [value for value in values if isinstance(value, dict)]
        # What follows a finish reason may be anything; only a report takes the answer back.
        if len(chunks) < len(values) and not self._reason:
            raise not_json(self._provider, data)

        return [event for chunk in chunks for event in self._chunk(chunk)]

    def more(self, text: str, data: str) -> None:
        """Take `text` as more of what the last event was a delta of; `data` counts tokens."""
        self._repeated = data
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Said):
            return

        if last.signature is not None:  # It was repeated as well: this is a part of its own.
            last = _Said(is_thought=last.is_thought, signature=last.signature)
            self._parts.append(last)
        last.stream.more(text)

    def finish(self) -> Answer:
        """Return the whole answer. What was filtered runs nothing: its calls are left out.

        Raises:
            StreamBroken: No finish reason was seen; `partial` is what came.
        """
        if not self.is_complete:
            raise stream_broken(
                f"{self._provider} ended the stream in the middle of the answer",
                provider=self._provider,
                partial=self.partial(),
            )

        calls = dict(self._calls.kept())
        reason = stop_reason(self._reason, has_calls=bool(calls))
        return self._answer(reason, {} if reason == "content_filter" else calls)

    def partial(self) -> Answer | None:
        """Return the text and reasoning so far, or None. No call is known to be whole yet."""
        answer = self._answer("partial", {})
        return answer if answer.parts else None

    def _chunk(self, chunk: Mapping[str, object]) -> Iterator[StreamEvent]:
        self._read_repeated()
        self._usage.note(chunk)
        candidate = self._candidate(chunk)
        report = report_of(chunk) or (blocked_prompt(chunk) if candidate is None else None)
        if report is not None:
            raise ReportedError(report)
        if candidate is None:
            return

        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict):
                yield from self._part(part)
        yield from self._end(candidate)

    def _candidate(self, chunk: Mapping[str, object]) -> Mapping[str, object] | None:
        """Return what belongs to the one answer that is read: the first, however numbered."""
        found = chunk.get("candidates")
        candidates = (
            [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        )
        indexes = [count_in(candidate.get("index")) or 0 for candidate in candidates]
        if indexes and self._index is None:
            self._index = min(indexes)

        numbered = zip(candidates, indexes, strict=True)
        return next((candidate for candidate, at in numbered if at == self._index), None)

    def _part(self, part: Mapping[str, object]) -> Iterator[StreamEvent]:
        signature = part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) and signature else None
        call, text = part.get("functionCall"), part.get("text")
        if isinstance(call, dict):
            yield from self._call(call, signature)
        elif isinstance(text, str) and (text or signature):
            yield from self._say(text, signature, is_thought=part.get("thought") is True)

    def _call(self, fields: Mapping[str, object], signature: str | None) -> Iterator[StreamEvent]:
        began, events = self._calls.feed(fields, signature)
        if began is not None:
            yield from self._begin(began)
        yield from events

    def _say(self, text: str, signature: str | None, *, is_thought: bool) -> Iterator[StreamEvent]:
        last = self._parts[-1] if self._parts else None
        is_open = isinstance(last, _Said) and last.is_thought == is_thought and not last.signature
        if isinstance(last, _Said) and is_open and is_thought and not text:
            last.signature = signature  # A thought's last part may carry nothing else.
            return

        if isinstance(last, _Said) and is_open and signature is None:
            said = last
        else:
            said = _Said(is_thought=is_thought, signature=signature)
            yield from self._begin(said)
        if piece := said.stream.push(text):
            yield said.event(piece)

    def _begin(self, part: _Said | int) -> Iterator[StreamEvent]:
        yield from self._flush()
        self._parts.append(part)

    def _flush(self) -> Iterator[StreamEvent]:
        """A half pair that waits at the end of a part has nothing to wait for any more."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Said) and (piece := last.stream.close()):
            yield last.event(piece)

    def _end(self, candidate: Mapping[str, object]) -> Iterator[StreamEvent]:
        reason = candidate.get("finishReason")
        if not isinstance(reason, str) or reason in {"", "FINISH_REASON_UNSPECIFIED"}:
            return

        self._reason = reason
        yield from self._flush()
        yield from self._calls.close(is_cut=is_cut(reason))
        message = candidate.get("finishMessage")
        words = clean_text(message) if isinstance(message, str) else ""
        if is_unreadable_call(reason) and not self._calls:
            yield from self._unreadable_call(reason, words)
        report = broken_end(reason, words, is_empty=not self._parts)
        if report is not None:
            raise ReportedError(report)

    def _unreadable_call(self, reason: str, words: str) -> Iterator[StreamEvent]:
        """Make a call of it that no tool runs: its error result lets the model try again.

        Where nothing at all is known, nothing is made: the same request may simply be repeated.
        """
        name = named_call(words)
        if name or self._parts:
            number, events = self._calls.add_unreadable(name or UNNAMED, f"{reason}: {words}")
            yield from self._begin(number)
            yield from events

    def _answer(self, reason: StopReason, calls: Mapping[int, ToolCall]) -> Answer:
        parts: list[Text | Reasoning | ToolCall] = []
        for part in self._parts:
            if isinstance(part, _Said):
                parts.extend(part.parts(self._provider, self._model))
            elif part in calls:
                if signature := self._calls.signature_of(part):
                    blob = Reasoning("", blob=signature, provider=self._provider, model=self._model)
                    parts.append(blob)
                parts.append(calls[part])

        self._read_repeated()
        return Answer(tuple(parts), reason, self._usage.usage(), self._model)

    def _read_repeated(self) -> None:
        chunk = _parse(self._repeated) if self._repeated else None
        self._repeated = ""
        if isinstance(chunk, dict):
            self._usage.note(chunk)


def _parse(data: str) -> object:
    try:
        return orjson.loads(data)
    except ValueError:
        # orjson refuses a lone half of an escaped surrogate pair, which deltas do carry.
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None
