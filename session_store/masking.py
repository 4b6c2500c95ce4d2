"""Secrets out of all that is kept: masked before it is appended, since a log cannot be cleaned.

`Masker` replaces known secret values (and their base64, URL and JSON spellings) wherever they
turn up, and in tool output also what has the shape of a credential (`session_store.token_shapes`).
What a provider signed is never touched: a signature or blob with one changed byte is refused on
replay. `StreamMasker` does the same for text that arrives in pieces.

Masking is linear in the text and, for secrets without square brackets, idempotent.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote, quote_plus

from attrs import evolve, frozen

from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from worker.items_json import dump_item, load_item

from .token_shapes import RULE_NAMES, marker, mask_token_shapes

MIN_SECRET_CHARS = 6
"""Shorter values are words and numbers of everyday text; masking them would wreck it."""

_MIN_BASE64_CHARS = 6
_ITEM_FIELDS = frozenset({"items", "history", "item"})
_SIGNED = frozenset({"signature", "blob"})
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|-?\d[-+.\deE]*+', re.DOTALL)
_PERCENT_CODE = re.compile(r"%[0-9A-F]{2}")

_TextPart = TypeVar("_TextPart", Text, Reasoning)


@frozen
class _Span:
    """A stretch of text that is to be replaced."""

    start: int
    end: int
    marker: str


class Masker:
    """Replaces known secret values in text and items by `[masked: NAME]`.

    `secrets` maps the name a secret goes by (a variable, a file) to its value. Values shorter
    than `MIN_SECRET_CHARS` are ignored. Immutable, and safe to share between threads.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._markers = {
            spelling: marker(name)
            for name, value in secrets.items()
            if len(value.strip()) >= MIN_SECRET_CHARS
            for spelling in _spellings(value.strip())
        }
        # Only a secret that is itself part of a marker ("masked") makes it needful to guard them.
        markers = {*self._markers.values(), *map(marker, RULE_NAMES)}
        self._guarded = tuple(m for m in markers if any(s in m for s in self._markers))
        self._sorted = sorted({*self._markers, *self._guarded})
        self._longest = max(map(len, self._sorted), default=0)

    def __repr__(self) -> str:
        """Name the secrets, never their values."""
        return f"Masker({', '.join(sorted(set(self._markers.values())))})"

    def mask(self, text: str) -> str:
        """Return `text` with each known secret value replaced; the same object if it has none."""
        spans = self._spans(text)
        return _replace(text, spans) if spans else text

    def mask_tool_output(self, text: str) -> str:
        """Return `text` without known values and without what is shaped like a credential."""
        return mask_token_shapes(self.mask(text))

    def mask_json(self, text: str) -> str:
        """Return `text` without known secret values, still valid JSON if it was.

        Strings are compared as what they mean, so an escaped spelling hides no secret. Text that
        is not JSON is masked as text.
        """
        if not self._markers or not _is_json(text):
            return self.mask(text)

        masked = _JSON_TOKEN.sub(lambda match: self._mask_token(match.group()), text)
        return (
            self._mask_across_tokens(masked) if masked != text else self._mask_across_tokens(text)
        )

    def mask_item(self, item: Item) -> Item:
        """Return `item` without secrets, or the very same object when it holds none.

        Tool results are searched for token shapes too. Images, signatures, blobs and identities
        are never changed.
        """
        match item:
            case UserMessage():
                user_parts = tuple(self._mask_user_part(part) for part in item.parts)
                return item if _same(user_parts, item.parts) else evolve(item, parts=user_parts)
            case AssistantMessage():
                parts = tuple(self._mask_part(part) for part in item.parts)
                return item if _same(parts, item.parts) else evolve(item, parts=parts)
            case ToolResult():
                summary = self.mask_tool_output(item.summary)
                content = item.content and self.mask_tool_output(item.content)
                same = summary is item.summary and content is item.content
                return item if same else evolve(item, summary=summary, content=content)
            case SummaryMessage() | SystemNote():
                text = self.mask(item.text)
                return item if text is item.text else evolve(item, text=text)

    def mask_fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return an entry's JSON-ready fields without secrets.

        Items are masked as `mask_item` does, every other text by known values.
        """
        return {
            key: self._mask_items(value) if key in _ITEM_FIELDS else self._mask_values(value)
            for key, value in fields.items()
        }

    def stream(self) -> StreamMasker:
        """Return a masker for one text that arrives in pieces."""
        return StreamMasker(self)

    def split_open_end(self, text: str) -> tuple[str, str]:
        """Return what of `text` may be shown, masked, and the end that may yet become a secret.

        The end is as received. It begins where some secret may have begun, and is shorter than
        the longest known spelling plus a secret that overlaps it.
        """
        spans = self._spans(text)
        cut = self._open_start(text)
        for span in spans:
            if span.start < cut < span.end:
                cut = span.start

        return _replace(text[:cut], [span for span in spans if span.end <= cut]), text[cut:]

    def _mask_items(self, value: object) -> object:
        if isinstance(value, list):
            return [self._mask_items(one) for one in value]

        if not isinstance(value, dict):
            return value

        item = load_item(value)
        masked = self.mask_item(item)
        return value if masked is item else {**value, **dump_item(masked)}

    def _mask_values(self, value: object) -> object:
        if isinstance(value, str):
            return self.mask(value)

        if isinstance(value, list):
            return [self._mask_values(one) for one in value]

        if isinstance(value, dict):
            return {
                self.mask(key): one if key in _SIGNED else self._mask_values(one)
                for key, one in value.items()
            }

        return value

    def _spans(self, text: str) -> list[_Span]:
        found = [
            _Span(start, start + len(spelling), name)
            for spelling, name in self._markers.items()
            for start in _occurrences(text, spelling)
        ]
        if not found:
            return found

        guarded = [
            (start, start + len(kept))
            for kept in self._guarded
            for start in _occurrences(text, kept)
        ]
        free = [s for s in found if not any(a <= s.start and s.end <= b for a, b in guarded)]
        return _merged(free)

    def _open_start(self, text: str) -> int:
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            rest = text[start:]
            following = bisect_right(self._sorted, rest)
            if following < len(self._sorted) and self._sorted[following].startswith(rest):
                return start

        return len(text)

    def _mask_user_part(self, part: Text | Image) -> Text | Image:
        return self._mask_text(part) if isinstance(part, Text) else part

    def _mask_part(self, part: Text | Reasoning | ToolCall) -> Text | Reasoning | ToolCall:
        if isinstance(part, Text):
            return self._mask_text(part)

        if isinstance(part, Reasoning):
            return self._mask_text(part)

        arguments = self.mask_json(part.arguments)
        return part if arguments == part.arguments else evolve(part, arguments=arguments)

    def _mask_text(self, part: _TextPart) -> _TextPart:
        text = self.mask(part.text)
        return part if text is part.text else evolve(part, text=text)

    def _mask_token(self, token: str) -> str:
        plain = json.loads(token) if token.startswith('"') else token
        masked = self.mask(plain)
        return token if masked is plain else json.dumps(masked, ensure_ascii="\\u" in token)

    def _mask_across_tokens(self, text: str) -> str:
        """Mask a secret that is made of JSON itself, such as a service account's credentials."""
        spans = self._spans(text)
        if not spans:
            return text

        # Inside a string only an escape can have made it look like a secret: `\n` before `abc`.
        strings = [m.span() for m in _JSON_TOKEN.finditer(text) if m.group().startswith('"')]
        spans = [s for s in spans if not any(a < s.start and s.end < b for a, b in strings)]
        quoted = [evolve(span, marker=json.dumps(span.marker)) for span in spans]
        for masked in (_replace(text, spans), _replace(text, quoted)):
            if _is_json(masked):
                return masked

        return quoted[0].marker


class StreamMasker:
    """Masks one text that arrives in pieces, showing no part of a secret split over several.

    All that `feed` and the final `flush` return, joined, is what `Masker.mask` returns for the
    whole text. Only as much is held back as could be the start of a secret. Not for sharing.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Take the next piece and return what may be shown now, perhaps nothing."""
        shown, self._held = self._masker.split_open_end(self._held + chunk)
        return shown

    def flush(self) -> str:
        """Return what was held back, masked: the text has ended. The masker may be used again."""
        rest, self._held = self._held, ""
        return self._masker.mask(rest)


def _spellings(value: str) -> set[str]:
    data = value.encode("utf-8", "surrogatepass")
    escaped = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    escaped += [text.replace("/", "\\/") for text in escaped]
    percent = [quote(data, safe=""), quote(data), quote_plus(data)]
    percent += [_PERCENT_CODE.sub(lambda code: code.group().lower(), text) for text in percent]
    return {value, *escaped, *percent, *_base64_spellings(data)}


def _base64_spellings(data: bytes) -> Iterator[str]:
    """Yield how `data` shows inside base64, at each of the three places a byte can have there.

    The characters it shares with its neighbours are left off, so "user:secret" is found as well.
    """
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data)
        first = -(-offset * 8 // 6)
        end = (offset + len(data)) * 8 // 6
        core = encoded[first:end].decode("ascii")
        if len(core) >= _MIN_BASE64_CHARS:
            yield core
            yield core.replace("+", "-").replace("/", "_")


def _occurrences(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _merged(spans: list[_Span]) -> list[_Span]:
    """Join spans that overlap, under the name of the one that begins first and is longest."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = evolve(merged[-1], end=max(merged[-1].end, span.end))
        else:
            merged.append(span)

    return merged


def _replace(text: str, spans: list[_Span]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += (text[at : span.start], span.marker)
        at = span.end

    return "".join((*pieces, text[at:]))


def _same(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False

    return True
