"""Chat Completions answers, streamed or whole, as stream events and an `Answer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from worker.items import Reasoning, Text, new_uid
from worker.llm.failures import stream_broken
from worker.llm.reports import Report, ReportedError, read_json, report_of
from worker.llm.schemes.answer_parts import AnswerParts
from worker.llm.schemes.chat.usage import read_usage
from worker.llm.schemes.received_json import object_in, read_object
from worker.llm.types import Answer, StopReason, StreamEvent, Usage

_STOP_REASONS: dict[str, StopReason] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
}
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_FAILURES = {
    "abort": "the server gave up the answer",
    "error": "the answer failed",
    "insufficient_system_resource": "the server ran out of resources",
    "network_error": "the server lost the model",
}


class ChatDecoder:
    """Reads one answer. `is_complete` once a finish reason or the end marker was seen.

    With `keeps_details`, reasoning details are kept to be sent back; else only their text is read,
    where it is nowhere else.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        keeps_details: bool = False,
        new_id: Callable[[], str] = new_uid,
    ) -> None:
        self._provider = provider
        self._keeps_details = keeps_details
        self._parts = AnswerParts(provider, model, new_id=new_id)
        self._finish_reason: str | None = None
        self._is_refused = False
        self._index: int | None = None
        self._is_done = False
        self._usage: Usage | None = None
        # The last event that only repeated another: its usage is read when it matters.
        self._repeated = ""

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to be whole."""
        if self._finish_reason is not None:
            return True
        # Some servers end with the marker alone. It proves little where a call may be cut.
        return self._is_done and self._index is not None and self._parts.calls.all_whole()

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

        self._read_repeated()
        # What follows a finish reason may be anything; only a report takes the answer back.
        has_ended = self._finish_reason is not None
        chunk = object_in(read_json(data)) if has_ended else read_object(data, self._provider)
        # Nulls and zeros of early chunks say nothing; the last real numbers hold.
        self._usage = read_usage(chunk) or self._usage
        report = report_of(chunk)
        if report is not None:
            raise ReportedError(report)

        return [event for choice in self._choices(chunk) for event in self._choice(choice)]

    def more(self, text: str, data: str) -> None:
        """Take `text` as more of what the last event was a delta of; `data` may count tokens."""
        self._repeated = data
        self._parts.more(text)

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

        self._read_repeated()
        return self._parts.answer(self._stop_reason(), self._usage)

    def partial(self) -> Answer | None:
        """Return the text and reasoning so far, or None. No call is known to be whole yet."""
        self._read_repeated()
        return self._parts.partial(self._usage)

    def _read_repeated(self) -> None:
        if self._repeated:
            self._usage = read_usage(read_object(self._repeated, self._provider)) or self._usage
            self._repeated = ""

    def _choices(self, chunk: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
        """Yield what belongs to the one answer that is read: the first, however it is numbered."""
        choices = [(choice, choice.get("index")) for choice in _list(chunk.get("choices"))]
        if choices and self._index is None:
            self._index = min(index if isinstance(index, int) else 0 for _, index in choices)
        for choice, index in choices:
            if not isinstance(index, int) or index == self._index:
                yield choice

    def _choice(self, choice: Mapping[str, object]) -> Iterator[StreamEvent]:
        # A whole completion has the same fields under another name.
        whole = choice.get("message")
        delta = choice.get("delta") or whole
        if isinstance(delta, dict):
            yield from self._delta(delta)

        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason in _FAILURES:
            raise ReportedError(report_of(choice) or Report(_FAILURES[reason]))
        if isinstance(reason, str) and reason:
            self._finish_reason = reason.lower()
        self._is_done = self._is_done or isinstance(whole, dict)
        yield from self._close()

    def _delta(self, delta: Mapping[str, object]) -> Iterator[StreamEvent]:
        yield from self._reasoning(delta)
        content = delta.get("content")
        for block in content if isinstance(content, list) else [content]:
            yield from self._content(block)

        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._is_refused = True
            yield from self._parts.say(Text, refusal)

        for position, fragment in enumerate(_fragments(delta)):
            yield from self._parts.fragment(fragment, position)

    def _reasoning(self, delta: Mapping[str, object]) -> Iterator[StreamEvent]:
        details = list(_list(delta.get("reasoning_details")))
        if details and self._keeps_details:
            told = [event for entry in details for event in self._parts.detail(entry)]
            yield from told
            if told:
                return

        # Some servers say the same in two of these fields.
        fields = (delta.get(key) for key in _REASONING)
        thought = next((value for value in fields if isinstance(value, str) and value), None)
        yield from self._parts.say(Reasoning, thought)
        if thought is None and not self._keeps_details:
            for entry in details:
                yield from self._parts.say(Reasoning, entry.get("text") or entry.get("summary"))

    def _content(self, block: object) -> Iterator[StreamEvent]:
        """Text, or a block of it: Mistral streams thoughts as blocks inside the content."""
        if not isinstance(block, dict):
            yield from self._parts.say(Text, block)
            return

        for thought in _list(block.get("thinking")):
            yield from self._parts.say(Reasoning, thought.get("text"))
        yield from self._parts.say(Text, block.get("text"))

    def _close(self) -> list[StreamEvent]:
        if not self.is_complete:
            return []

        is_cut = _STOP_REASONS.get(self._finish_reason or "") == "max_tokens"
        return self._parts.close(is_cut=is_cut)

    def _stop_reason(self) -> StopReason:
        if self._is_refused:
            return "refusal"

        reason = _STOP_REASONS.get(self._finish_reason or "")
        # Many servers say "stop" and call tools, or the reverse; the calls themselves decide.
        has_calls = any(True for _ in self._parts.calls.kept())
        return reason or ("tool_calls" if has_calls else "end")


def _fragments(delta: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yield the fragments of calls: a list, a single one, or one of the time before lists."""
    fragments = delta.get("tool_calls")
    yield from _list([fragments] if isinstance(fragments, dict) else fragments)
    old = delta.get("function_call")
    if isinstance(old, dict) and not fragments:
        yield {"function": old}


def _list(value: object) -> Iterator[dict[str, object]]:
    """The objects of a list."""
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict):
            yield each
