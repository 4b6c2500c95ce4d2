"""Events that are the one before them with another text in it: most of a stream.

Parsing the same JSON a thousand times over is most of what decoding costs. Where an event came to
one piece of text, and that text stands in it exactly once and nothing is escaped, an event with the
same characters around another text means the same with that other text.
"""

from __future__ import annotations

import re

import orjson

from worker.llm.types import ReasoningDelta, StreamEvent, TextDelta

# What differs from event to event and is no part of the text: OpenAI's padding and numbering,
# Ollama's clock, and counts of tokens, of which the last hold.
_VOLATILE = re.compile(
    r'(?<="obfuscation":")[^"\\]*(?=")'
    r'|(?<="created_at":")[^"\\]*(?=")'
    r'|(?<="sequence_number":)\d+(?=,)'
    r'|(?<=TokenCount":)\d+(?=[,}])'
    r'|(?<=_tokens":)\d+(?=[,}])'
)
_TEXT = r'([^"\\]*+(?:\\.[^"\\]*+)*+)'
_STRING = r'[^"\\]*+'
_NUMBER = r"\d++"
_MOST_MISSES = 8
_NO_EVENT = "\0"  # what no event begins with


class Repeats:
    """Knows the last event of one stream, if it was one piece of text."""

    def __init__(self) -> None:
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        # What stands before the first part that differs and after the last, and what those parts
        # and all between them have to be, where there are others than the text.
        self._start, self._end = _NO_EVENT, ""
        self._among: re.Pattern[str] | None = None
        self._misses = 0

    def delta_of(self, data: str) -> TextDelta | ReasoningDelta | None:
        """Return what `data` means if it repeats the last event, or None: it has to be decoded."""
        start, end = self._start, self._end
        if not (data.startswith(start) and data.endswith(end)):
            return None

        text = data[len(start) : -len(end)]
        if self._among is not None:
            match = self._among.fullmatch(text)
            if match is None:
                return None
            text = match[1]
        if '"' in text or "\\" in text or not text.isprintable():
            text = _unescaped(text)
        if not text:
            return None

        self._misses = 0
        return self._kind(text)

    def learn(self, data: str, events: list[StreamEvent]) -> None:
        """Take it that `data` was decoded and came to `events`."""
        self._start = _NO_EVENT
        event = events[0] if len(events) == 1 else None
        if not isinstance(event, (TextDelta, ReasoningDelta)) or self._misses > _MOST_MISSES:
            return

        # A stream whose events never repeat is not looked at for ever.
        self._misses += 1
        quoted = f'"{event.text}"'
        if "\\" not in data and data.count(quoted) == 1:
            self._remember(data, data.index(quoted) + 1, event)

    def _remember(self, data: str, start: int, event: TextDelta | ReasoningDelta) -> None:
        span = (start, start + len(event.text))
        spans = sorted({span, *(match.span() for match in _VOLATILE.finditer(data))})
        self._kind = type(event)
        self._start, self._end = data[: spans[0][0]], data[spans[-1][1] :]
        self._among = _pattern(data, spans, span) if len(spans) > 1 else None


def _pattern(data: str, spans: list[tuple[int, int]], text: tuple[int, int]) -> re.Pattern[str]:
    """Return what matches the parts of `data` that differ, and all that is between them."""
    pattern, at = "", spans[0][0]
    for span in spans:
        value = _STRING if data[span[0] - 1] == '"' else _NUMBER
        pattern += re.escape(data[at : span[0]]) + (_TEXT if span == text else value)
        at = span[1]

    return re.compile(pattern, re.DOTALL)


def _unescaped(text: str) -> str:
    """Return the text of a JSON string without its quotes; nothing where it is none."""
    try:
        value = orjson.loads(f'"{text}"')
    except ValueError:
        return ""

    return value if isinstance(value, str) else ""
