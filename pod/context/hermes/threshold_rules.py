"""When Hermes's own compressor compacts: a share of the window, within bounds of its own. Pure."""

from __future__ import annotations

SMALL_WINDOW = 512_000
"""Below this many tokens a window is small."""
SMALL_WINDOW_SHARE = 0.75
"""A small window is used at least this far: its summaries cost too much otherwise."""
LEAST_TRIGGER = 64_000
"""The lowest trigger in tokens, where the window has room for it."""
MOST_OF_WINDOW = 0.85
"""How far into a window that least trigger may reach."""


def effective_share(share: float, window: int) -> float:
    """Return the share of the window that is really used."""
    return max(share, SMALL_WINDOW_SHARE) if 0 < window < SMALL_WINDOW else share


def trigger_tokens(
    window: int, share: float, *, answer_tokens: int | None = None, cap: int | None = None
) -> int:
    """Return the trigger in tokens; 0 while the window is not known.

    `answer_tokens` of the window are kept for the answer; `cap` is the most that it may come to.
    """
    if window <= 0:
        return 0

    room = window - (answer_tokens or 0)
    if room <= 0:
        room = window
    least = min(LEAST_TRIGGER, int(window * MOST_OF_WINDOW))
    tokens = min(max(int(room * share), least), window - 1)
    return min(tokens, cap) if cap else tokens
