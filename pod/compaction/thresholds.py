"""Which sizes trigger a compaction, for the model in use."""

from __future__ import annotations

from attrs import frozen

from manifests import CompactionSection
from pod.context.thresholds import resolve_model_threshold
from pod.protocol.events import Trigger

MANUAL_FRACTION = 0.75
UNKNOWN_WINDOW = 128_000
"""Taken for a window that nobody named, where a size is needed all the same."""


@frozen
class Thresholds:
    """The sizes in force, in tokens. None: that trigger is off."""

    compact: int | None = None
    request: int | None = None
    window: int | None = None

    @property
    def automatic(self) -> bool:
        """Whether anything but a person may compact."""
        return self.compact is not None

    @property
    def end(self) -> int | None:
        """The size at which a prompt begins anew, compacted or refused, where that is known."""
        return self.window if self.compact is None else self.compact

    def of(self, trigger: Trigger) -> int:
        """Return the threshold of a trigger: the size that a compaction must come below."""
        window = self.window or UNKNOWN_WINDOW
        match trigger:
            case "request_threshold":
                return self.request or window
            case "overflow" | "model_switch":
                return window
            case _:
                return self.compact or int(window * MANUAL_FRACTION)


def thresholds_for(
    section: CompactionSection | None, *, provider: str, model: str, window: int | None
) -> Thresholds:
    """Return the thresholds that a manifest's `[compaction]` means for one model.

    A fraction in `model_thresholds` that matches replaces `compact_threshold`, where the window
    is known.
    """
    if section is None:
        return Thresholds(window=window)

    compact = section.compact_threshold
    if section.model_thresholds and window:
        fraction = resolve_model_threshold(model, section.model_thresholds, 0.0, provider=provider)
        compact = int(window * fraction) if fraction else compact

    request = section.compact_request_threshold if compact is not None else None
    return Thresholds(compact, request, window)
