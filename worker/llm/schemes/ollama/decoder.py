"""Answers of Ollama's native chat, one JSON object a line, as stream events and an `Answer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from worker.items import Reasoning, Text, new_uid
from worker.llm.failures import stream_broken
from worker.llm.reports import Report, ReportedError, report_of
from worker.llm.schemes.answer_parts import AnswerParts
from worker.llm.schemes.received_json import arguments_text, count_in, object_in, read_object
from worker.llm.types import Answer, StopReason, StreamEvent, Usage

_NOTHING_ASKED = frozenset({"load", "unload"})
_MAX_TOKENS = "length"


class OllamaDecoder:
    """Reads one answer. `is_complete` and `is_done` once a line said `done`."""

    def __init__(self, provider: str, model: str, *, new_id: Callable[[], str] = new_uid) -> None:
        self._provider = provider
        self._parts = AnswerParts(provider, model, new_id=new_id)
        self._has_content = False
        self._is_done = False
        self._done_reason = ""
        self._usage: Usage | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to be whole."""
        return self._is_done

    @property
    def is_done(self) -> bool:
        """Whether the last line was seen."""
        return self._is_done

    def feed(self, data: str) -> list[StreamEvent]:
        """Take one line, or a whole answer, and return what it means.

        Raises:
            ReportedError: It is a report of an error, or of a model that was loaded and not asked.
            BadAnswer: It is no JSON object.
        """
        if self._is_done:
            return []  # Nothing that follows the end is part of the answer.

        # Arguments come as an object and are kept as text.
        chunk = read_object(data, self._provider, is_exact='"tool_calls"' in data)
        report = report_of(chunk)
        if report is not None:
            raise ReportedError(report)

        return list(self._chunk(chunk))

    def more(self, text: str, data: str) -> None:
        """Take `text` as more of what the last event was a delta of."""
        self._parts.more(text)

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            StreamBroken: No line said `done`; `partial` is what came.
        """
        if not self._is_done:
            raise stream_broken(
                f"{self._provider} ended the stream in the middle of the answer",
                provider=self._provider,
                partial=self.partial(),
            )

        return self._parts.answer(self._stop_reason(), self._usage)

    def partial(self) -> Answer | None:
        """Return the text and reasoning so far, or None. No call is known to be whole yet."""
        return self._parts.partial(self._usage)

    def _chunk(self, chunk: Mapping[str, object]) -> Iterator[StreamEvent]:
        message = object_in(chunk.get("message"))
        yield from self._parts.say(Reasoning, message.get("thinking"))
        yield from self._parts.say(Text, message.get("content"))
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            yield from self._call(object_in(call))

        self._has_content = self._has_content or any(
            message.get(key) for key in ("thinking", "content", "tool_calls")
        )
        if chunk.get("done") is True:
            yield from self._end(chunk)

    def _call(self, call: Mapping[str, object]) -> Iterator[StreamEvent]:
        """Every call comes whole; older servers give it no id."""
        function = object_in(call.get("function"))
        call_id, name = call.get("id"), function.get("name")
        yield from self._parts.whole_call(
            call_id if isinstance(call_id, str) else "",
            name if isinstance(name, str) else "",
            arguments_text(function.get("arguments")),
        )

    def _end(self, chunk: Mapping[str, object]) -> Iterator[StreamEvent]:
        reason = chunk.get("done_reason")
        self._done_reason = reason if isinstance(reason, str) else ""
        if self._done_reason in _NOTHING_ASKED and not self._has_content:
            # A server that was still loading the model answers so, with nothing.
            raise ReportedError(Report(f"the model was only {self._done_reason}ed, not asked"))

        self._is_done = True
        self._usage = _usage(chunk)
        yield from self._parts.close(is_cut=self._done_reason == _MAX_TOKENS)

    def _stop_reason(self) -> StopReason:
        if self._done_reason == _MAX_TOKENS:
            return "max_tokens"
        return "tool_calls" if any(True for _ in self._parts.calls.kept()) else "end"


def _usage(chunk: Mapping[str, object]) -> Usage | None:
    """Return the counts; older servers leave the prompt's out where all of it was cached."""
    prompt = count_in(chunk.get("prompt_eval_count")) or None
    output = count_in(chunk.get("eval_count"))
    return Usage(prompt, output) if prompt or output else None
