"""The memory that a manifest names, made ready for a session: prompt, tools, recall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from pod.launching.hermes_setup import open_memory_place
from pod.memory.loader import is_bundled
from pod.memory.stage import MemoryStage
from pod.memory.texts import MemoryPrompt, resumed, with_block
from worker.items import SystemNote
from worker.tools import Tool

if TYPE_CHECKING:
    from pod.launching.preparing import Prepared
    from pod.memory.host import MemoryHost, SwitchReason
    from session_store import SessionState

Lineage = Sequence[tuple[str, str]]
"""From the root to the session itself: its id, and how it came from the one before."""


@frozen
class SessionMemory:
    """What the memory comes to in one session; without a provider the bare system prompt."""

    system_prompt: str
    tools: tuple[Tool, ...] = ()
    stages: tuple[MemoryStage, ...] = ()


async def open_memory(prepared: Prepared, state: SessionState, lineage: Lineage) -> SessionMemory:
    """Get the provider ready for a session and return what it brings."""
    host, base_prompt = prepared.memory, prepared.system_prompt
    if host.settings is None:
        return SessionMemory(base_prompt)

    if not host.started and not is_bundled(host.name):
        place = open_memory_place(prepared, host.settings.home)
        host.settle(place.around, place.aclose)

    parent_id, reason = _origin(host.left_id, state, lineage)
    await host.start(state.session_id, parent_id=parent_id, reason=reason)
    if not host.active:
        return SessionMemory(base_prompt)

    prompt = _prompt(host, base_prompt, state)
    tools = tuple(await host.tools())
    return SessionMemory(prompt.system_prompt, tools, (MemoryStage(host, prompt.note),))


def not_taken(host: MemoryHost, tools: Iterable[Tool], taken: set[str]) -> list[Tool]:
    """Return the tools whose names nobody else has; the rest is told of."""
    free = []
    for tool in tools:
        if tool.name in taken:
            host.skipped_tool(tool.name)
        else:
            free.append(tool)

    return free


def _origin(left_id: str, state: SessionState, lineage: Lineage) -> tuple[str, SwitchReason | None]:
    """Return the session before this one and why it was left, as far as the provider cares.

    `left_id` is that of the session which the pod left for this one, if it did.
    """
    has_just_begun = state.head.seq == 0
    is_root = len(lineage) == 1
    if left_id and left_id != state.session_id:
        return left_id, "new_session" if is_root and has_just_begun else "rewind"

    if has_just_begun:
        return ("", None) if is_root else (lineage[-2][0], "branch")

    return "", "resume"


def _prompt(host: MemoryHost, base: str, state: SessionState) -> MemoryPrompt:
    if not state.history:
        return MemoryPrompt(with_block(base, host.block, provider=host.name))

    told = (item.text for item in state.history if isinstance(item, SystemNote))
    recorded = state.system_prompt
    return resumed(base, host.block, provider=host.name, recorded=recorded, told=told)
