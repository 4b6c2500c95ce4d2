"""Messages answers, streamed or whole, as stream events and an `Answer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from worker.items import new_uid
from worker.llm.failures import not_json, stream_broken
from worker.llm.reports import Report, ReportedError, read_json, report_of
from worker.llm.schemes.anthropic.parts import (
    CallPart,
    Fields,
    Part,
    TextPart,
    ThinkingPart,
    text_of,
)
from worker.llm.schemes.received_json import count_in
from worker.llm.types import RUNS_NOTHING, Answer, StopReason, StreamEvent, Usage

# Every other reason is an end; whether one with calls, the calls themselves say.
_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "sensitive": "content_filter",
}
# What begins with a delta of a block that has no beginning of its own.
_BEGINS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}


class AnthropicDecoder:
    """Reads one answer. `is_complete` once a stop reason, or the message's end, was seen."""

    def __init__(self, provider: str, model: str, *, new_id: Callable[[], str] = new_uid) -> None:
        self._provider = provider
        self._model = model
        self._new_id = new_id
        self._message = _Message()
        self._is_done = False

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to be whole."""
        message = self._message
        if message.stop_reason:
            return True
        # Some servers end with the mark alone. It proves little where a block is still open.
        return self._is_done and message.is_begun and not message.open

    @property
    def is_done(self) -> bool:
        """Whether the message's end was seen."""
        return self._is_done

    def feed(self, data: str) -> list[StreamEvent]:
        """Take the data of one event, or a whole message, and return what it means.

        Raises:
            ReportedError: It is a report of an error.
            BadAnswer: It is no event of this dialect.
        """
        if data.strip() == "[DONE]":  # of proxies that speak another dialect at heart
            return list(self._stop())

        event = read_json(data)
        if not isinstance(event, dict):
            if self._message.stop_reason:
                return []  # What follows may be anything; only a report takes the answer back.
            raise not_json(self._provider, data)

        kind = event.get("type")
        if kind is None and event.get("role") == "assistant":
            kind = "message"  # of proxies that do not stream
        if kind == "error" or not isinstance(kind, str):
            report = report_of(event)
            if report is None and kind != "error":
                raise not_json(self._provider, data)
            raise ReportedError(report or Report("the answer failed"))

        return list(self._event(kind, event))

    def more(self, text: str, data: str) -> None:
        """Take `text` as more of what the last event was a delta of."""
        part = self._message.last
        if isinstance(part, (TextPart, ThinkingPart)):
            part.more(text)

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: No stop reason and no end was seen; `partial` is what came.
        """
        if not self.is_complete:
            raise stream_broken(
                f"{self._provider} ended the stream in the middle of the answer",
                provider=self._provider,
                partial=self.partial(),
            )

        has_calls = any(isinstance(p, CallPart) and p.is_kept for p in self._message.parts)
        reason = _STOP_REASONS.get(self._message.stop_reason)
        return self._answer(reason or ("tool_calls" if has_calls else "end"))

    def partial(self) -> Answer | None:
        """Return the text and thought so far, or None. No call is known to be whole yet."""
        answer = self._answer("partial")
        return answer if answer.parts else None

    def _answer(self, stop_reason: StopReason) -> Answer:
        calls = stop_reason != "partial"
        received = (p for p in self._message.parts if calls or not isinstance(p, CallPart))
        parts = tuple(part for part in (p.part() for p in received) if part is not None)
        return Answer(parts, stop_reason, read_usage(self._message.usage), self._model)

    def _event(self, kind: str, event: Fields) -> Iterator[StreamEvent]:
        match kind:
            case "message_start":
                self._start(_fields(event.get("message")))
            case "content_block_start":
                yield from self._block_start(event)
            case "content_block_delta":
                yield from self._block_delta(event)
            case "content_block_stop":
                part = self._message.open.pop(_index(event), None)
                if part is not None:
                    yield from part.close()
            case "message_delta":
                yield from self._message_delta(_fields(event.get("delta")), event.get("usage"))
            case "message_stop":
                self._message.note_usage(event.get("usage"))
                yield from self._stop()
            case "message":
                yield from self._whole(event)
            case _:
                pass  # A ping, or something newer: it says nothing of the answer.

    def _start(self, message: Fields) -> None:
        message_id = text_of(message.get("id"))
        is_same = bool(message_id) and message_id == self._message.id
        if self._message.is_begun and not is_same:
            # A proxy asked again behind our back: what came before belongs to another answer.
            self._message = _Message()
        self._message.may_repeat = is_same
        self._message.id = message_id
        self._message.is_begun = True
        self._message.note_usage(message.get("usage"))

    def _block_start(self, event: Fields) -> Iterator[StreamEvent]:
        block, index = _fields(event.get("content_block")), _index(event)
        if self._message.may_repeat and index == 0:
            self._message.forget_content()
        self._message.may_repeat = False
        before = self._message.open.pop(index, None)
        if before is not None:
            yield from before.close()

        part = self._new_part(block)
        # What a server's own tools do, and blocks yet unknown, are nothing to us.
        self._message.open[index] = part
        self._message.known.add(index)
        if part is None:
            return

        self._message.is_begun = True
        self._message.parts.append(part)
        self._message.last = part
        yield from [part.start()] if isinstance(part, CallPart) else part.add(block)

    def _new_part(self, block: Fields) -> Part | None:
        match block.get("type"):
            case "text":
                return TextPart()
            case "thinking" | "redacted_thinking":
                return ThinkingPart(self._provider, self._model)
            case "tool_use":
                return CallPart(block, self._new_id)
            case _:
                return None

    def _block_delta(self, event: Fields) -> Iterator[StreamEvent]:
        index, delta = _index(event), _fields(event.get("delta"))
        kind = _BEGINS.get(text_of(delta.get("type")))
        if kind and index not in self._message.known:
            yield from self._block_start({"index": index, "content_block": {"type": kind}})
        part = self._message.open.get(index)
        if part is not None:
            self._message.last = part
            yield from part.add(delta)

    def _message_delta(self, delta: Fields, usage: object) -> Iterator[StreamEvent]:
        self._message.note_usage(usage)
        self._message.note_usage(delta.get("usage"))
        reason = text_of(delta.get("stop_reason"))
        if reason:
            self._message.stop_reason = reason
            yield from self._close()

    def _stop(self) -> Iterator[StreamEvent]:
        self._is_done = True
        if self.is_complete:
            yield from self._close()

    def _whole(self, message: Fields) -> Iterator[StreamEvent]:
        """Take a message that was not streamed."""
        self._start(message)
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for index, block in enumerate(blocks if isinstance(blocks, list) else []):
            yield from self._block_start({"index": index, "content_block": block})
        yield from self._message_delta(message, None)
        yield from self._stop()

    def _close(self) -> Iterator[StreamEvent]:
        """Take the end of the answer: what is still open ends, and whole calls are kept."""
        message = self._message
        for part in message.open.values():
            if part is not None:
                yield from part.close()

        message.open.clear()
        reason = _STOP_REASONS.get(message.stop_reason)
        calls = [part for part in message.parts if isinstance(part, CallPart)]
        for call in [] if reason in RUNS_NOTHING else calls:
            is_cut = reason == "max_tokens"
            is_last = call is message.parts[-1]
            if not call.is_kept and (not is_cut or call.is_whole(is_last=is_last)):
                yield call.keep()


class _Message:
    """One message that is being received."""

    def __init__(self) -> None:
        self.id = ""
        self.is_begun = False
        self.may_repeat = False
        """Whether its beginning came twice: its content may do so as well."""
        self.parts: list[Part] = []
        self.open: dict[int, Part | None] = {}
        self.known: set[int] = set()
        """The indexes of all blocks that have begun."""
        self.last: Part | None = None
        """The part that the last event was of."""
        self.stop_reason = ""
        self.usage: dict[str, int] = {}

    def forget_content(self) -> None:
        """Take it that the content comes anew."""
        self.parts.clear()
        self.open.clear()
        self.known.clear()

    def note_usage(self, usage: object) -> None:
        """Take counts. They grow, so the later ones hold; a zero after a number says nothing."""
        for name, count in _counts(_fields(usage)):
            if count or name not in self.usage:
                self.usage[name] = count


def _counts(usage: Fields) -> Iterator[tuple[str, int]]:
    for name in ("input_tokens", "output_tokens", "cache_read_input_tokens"):
        count = count_in(usage.get(name))
        if count is not None:
            yield name, count

    written = count_in(usage.get("cache_creation_input_tokens"))
    if written is None:
        by_age = [count_in(value) for value in _fields(usage.get("cache_creation")).values()]
        known = [count for count in by_age if count is not None]
        written = sum(known) if known else None
    if written is not None:
        yield "cache_creation_input_tokens", written


def read_usage(counts: Mapping[str, int]) -> Usage | None:
    """Return what the counts of one answer come to, or None where they say nothing but zeros.

    `input_tokens` of this dialect are those that were neither read from the cache nor written to
    it: the three together are the prompt.
    """
    read = counts.get("cache_read_input_tokens")
    written = counts.get("cache_creation_input_tokens")
    prompt = [count for count in (counts.get("input_tokens"), read, written) if count is not None]
    usage = Usage(sum(prompt) or None, counts.get("output_tokens"), read, written)
    return usage if usage.input_tokens or usage.output_tokens else None


def _fields(value: object) -> Fields:
    return value if isinstance(value, dict) else {}


def _index(event: Fields) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0
