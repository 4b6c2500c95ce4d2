"""At which share of its window a model's context is compacted: one map for every engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def resolve_model_threshold(
    model: str | None,
    thresholds: Mapping[str, float] | None,
    default: float,
    provider: str = "",
) -> float:
    """Return the share of the window that `thresholds` gives for `model`, else `default`.

    A key is a case-sensitive part of the model's name, or `"provider:part"`, which applies to that
    provider alone (in any case, white space around it ignored). The longest part wins; of two that
    are equally long, the one with a provider.
    """
    if not thresholds or not model:
        return default

    ranked = [
        (rank, share)
        for key, share in thresholds.items()
        if (rank := _rank(key, model, provider)) is not None
    ]
    return max(ranked, key=lambda entry: entry[0])[1] if ranked else default


def _rank(key: str, model: str, provider: str) -> tuple[int, int] | None:
    """Return how well `key` fits, or None. A colon may also be part of a model's own name."""
    bare = (len(key), 0) if key and key in model else None
    scope, colon, part = key.partition(":")
    is_scoped = colon and part and scope.strip().lower() == provider.strip().lower() != ""
    if is_scoped and part in model:
        return max((len(part), 1), bare or (0, 0))

    return bare
