"""Gemini's token counts in the one meaning that they have here."""

from __future__ import annotations

from collections.abc import Mapping

from worker.llm.schemes.received_json import count_in
from worker.llm.types import Usage

_KEYS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
)


class UsageReader:
    """Counts from wherever they come: each chunk repeats them, and the last ones hold."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, chunk: Mapping[str, object]) -> None:
        """Take what a chunk says of tokens, if it says anything."""
        usage = chunk.get("usageMetadata")
        if not isinstance(usage, dict):
            return

        for key in _KEYS:
            count = count_in(usage.get(key))
            if count is not None:
                # A zero behind a number is a field that was left out on the way.
                self._counts[key] = count or self._counts.get(key, 0)

    def usage(self) -> Usage | None:
        """Return the usage; the cached part is inside the prompt, and thoughts are output."""
        prompt, used_by_tools, cached, said, thought = map(self._counts.get, _KEYS)
        output = None if said is None and thought is None else (said or 0) + (thought or 0)
        read = Usage(
            # No prompt is of no tokens: a zero is a field that nobody filled in.
            input_tokens=prompt + (used_by_tools or 0) if prompt else None,
            output_tokens=output,
            cache_read=cached,
        )
        return read if read.input_tokens or read.output_tokens else None
