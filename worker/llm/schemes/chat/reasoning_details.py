"""OpenRouter's `reasoning_details`: read out of a stream, and sent back as they came.

A detail is an object of one of several types, some of them signed or encrypted. It is kept as one
`Reasoning`: what can be read is its text, its signature stays one, and everything else is its blob.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from worker.items import Reasoning
from worker.llm.schemes.clean_stream import CleanStream
from worker.llm.schemes.received_json import json_text

_TEXT_KEYS = {"reasoning.text": "text", "reasoning.summary": "summary"}


class Detail:
    """One detail that is being received: its text comes in pieces, the rest once or again."""

    def __init__(self) -> None:
        self.text = CleanStream()
        self.signature: str | None = None
        self._rest: dict[str, object] = {}

    def add(self, entry: Mapping[str, object]) -> str:
        """Take more of the detail and return what can be shown of it now."""
        text_key = _text_key(entry)
        piece = entry.get(text_key)
        for key, value in entry.items():
            if key == text_key and isinstance(value, str):
                continue
            if key == "signature" and isinstance(value, str) and value:
                self.signature = value
            elif value is not None or key not in self._rest:
                self._rest[key] = value

        return self.text.push(piece) if isinstance(piece, str) else ""

    def goes_on_with(self, entry: Mapping[str, object]) -> bool:
        """Tell whether `entry` is more of this detail: only texts come in pieces."""
        if not _text_key(entry) or any(
            entry.get(key) != self._rest.get(key) for key in ("type", "index", "id") if key in entry
        ):
            return False

        # A signature ends a text; some servers repeat it in each piece.
        return self.signature is None or entry.get("signature") == self.signature

    def reasoning(self, provider: str, model: str) -> Reasoning:
        """Return the detail as it is kept."""
        return Reasoning(self.text.text, self.signature, json_text(self._rest), provider, model)


def detail_of(reasoning: Reasoning) -> dict[str, object] | None:
    """Return the detail that `reasoning` was, or None where it was none."""
    if reasoning.blob is None:
        return None

    try:
        rest = orjson.loads(reasoning.blob)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(rest, dict):
        return None

    text_key = _text_key(rest)
    text = {text_key: reasoning.text} if text_key and reasoning.text else {}
    signature = {} if reasoning.signature is None else {"signature": reasoning.signature}
    return {**rest, **text, **signature}


def _text_key(entry: Mapping[str, object]) -> str:
    kind = entry.get("type")
    return _TEXT_KEYS.get(kind, "") if isinstance(kind, str) else ""
