"""Whole pods to measure: launched as `pod run` launches them, but for the model, which is timed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _model import TimedClient

    from pod.launching.launch import Launched
    from worker import Tool

_MANIFEST = """
[pod]
name = "bench"
[provider]
kind = "scripted"
script = "script.jsonl"
context_window = {window}
[worker]
max_requests = 100_000
[compaction]
compact_threshold = {threshold}
"""


def write_manifest(folder: Path, window: int) -> Path:
    """Write the manifest of a pod that prunes, and would compact at 80 % of its window."""
    (folder / "script.jsonl").touch()
    manifest = folder / "bench.toml"
    text = _MANIFEST.format(window=window, threshold=window * 4 // 5)
    manifest.write_text(text, encoding="utf-8")
    return manifest


@asynccontextmanager
async def launched_pod(
    manifest: Path, home: Path, session_id: str, client: TimedClient
) -> AsyncIterator[Launched]:
    """Yield the parts of a pod on that session, which asks `client`, also for summaries."""
    from attrs import evolve

    from manifests import load_manifest
    from pod.bus import EventBus
    from pod.home import Home
    from pod.launching.launch import launch
    from pod.launching.preparing import prepare

    prepared = prepare(load_manifest(manifest, env={}), Home(home), {})
    provider = evolve(prepared.provider, client=client)
    prepared = evolve(prepared, provider=provider, summaries=provider, tools=[look_tool()])
    launched = await launch(prepared, EventBus(), resume=session_id)
    try:
        yield launched
    finally:
        await launched.aclose()


def look_tool() -> Tool:
    """Return a tool that answers at once."""
    from worker import tool

    @tool
    def look() -> str:
        """Look."""
        return "nothing there"

    return look
