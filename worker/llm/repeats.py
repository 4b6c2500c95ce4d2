"""Events that are the one before them with another text in it: most of a stream.

Parsing the same JSON a thousand times over is most of what decoding costs. Where an event came to
one piece of text, and that text stands in it exactly once and nothing is escaped, an event with the
same characters around another text means the same with that other text.
"""

from __future__ import annotations

import itertools
import re

import orjson

from worker.llm.types import ReasoningDelta, StreamEvent, TextDelta

# Fields that differ from event to event and mean nothing here: OpenAI's padding and numbering, and
# Ollama's clock.
_VOLATILE = re.compile(
    r'(?<="obfuscation":")[^"\\]*(?=")'
    r'|(?<="created_at":")[^"\\]*(?=")'
    r'|(?<="sequence_number":)\d+(?=,)'
)
_MOST_MISSES = 8
_NO_EVENT = "\0"  # what no event begins with


class Repeats:
    """Knows the last event of one stream, if it was one piece of text."""

    def __init__(self) -> None:
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        # What stands before the first part that differs, between the parts, and after the last.
        self._start, self._end = _NO_EVENT, ""
        self._between: tuple[str, ...] = ()
        self._text_place = 0
        self._misses = 0

    def delta_of(self, data: str) -> TextDelta | ReasoningDelta | None:
        """Return what `data` means if it repeats the last event, or None: it has to be decoded."""
        start, end = self._start, self._end
        if not (data.startswith(start) and data.endswith(end)):
            return None

        text = data[len(start) : -len(end)]
        if self._between:
            text = self._text_among(text)
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
        self._between = tuple(
            data[end:following] for (_, end), (following, _) in itertools.pairwise(spans)
        )
        self._text_place = spans.index(span)

    def _text_among(self, middle: str) -> str:
        """Return the text out of the parts that differ; nothing where they are not those parts."""
        parts = []
        for literal in self._between:
            part, found, middle = middle.partition(literal)
            if not found or '"' in part:
                return ""
            parts.append(part)

        parts.append(middle)
        return "" if '"' in middle else parts[self._text_place]


def _unescaped(text: str) -> str:
    """Return the text of a JSON string without its quotes; nothing where it is none."""
    try:
        value = orjson.loads(f'"{text}"')
    except ValueError:
        return ""

    return value if isinstance(value, str) else ""
