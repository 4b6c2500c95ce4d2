"""What the manifests of tests name: a tool that returns a lot, and a hook."""

from __future__ import annotations

from worker import ToolOutput
from worker.hooks import ContinueWith, Pause, PromptView, RequestView, ToolCallView

BIG = 30_000


def big(n: int) -> ToolOutput:
    """Return a lot."""
    return ToolOutput(summary=f"big result {n}", content=f"CONTENT-{n} " + "x" * BIG)


def note(view: RequestView) -> ContinueWith:
    """Add a note before every request."""
    return ContinueWith((f"request {view.request}",))


def pause_once(view: ToolCallView) -> Pause | None:
    """Pause before a tool, in any process but once a call."""
    if view.call_uid in _paused:
        return None

    _paused.add(view.call_uid)
    return Pause()


_paused: set[str] = set()


def remember(view: PromptView) -> ContinueWith:
    """Add a note to every prompt."""
    return ContinueWith((f"{len(view.text)} characters",))
