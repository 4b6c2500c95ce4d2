"""What a session is made of that another one was compacted to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from worker.items import Item, ToolResult

from .gist import Gist
from .state import SessionState

Entries: TypeAlias = list[tuple[str, Mapping[str, object]]]


def full_start(
    state: SessionState | Gist, history: Sequence[Item], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a `session_start` that takes over `state`, with this history.

    `changes` are fields that take the place of the old session's.
    """
    return {
        "pod": state.pod,
        "title": state.title,
        **changes,
        "config": changes.get("config", state.config),
        "system_prompt": changes.get("system_prompt", state.system_prompt),
        "history": list(history),
    }


def compacted_start(
    old: Gist, history: Sequence[Item], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of the `session_start` of what `old` was compacted to, as `full_start`.

    It goes on being what somebody started `old` for.
    """
    spawned = {} if old.spawned_by is None else {"spawned_by": old.spawned_by}
    origin = {"compacted_from": [old.session_id, old.head.hash]}
    return full_start(old, history, {**spawned, **changes, **origin})


def compacted_entries(
    old: Gist,
    history: Sequence[Item],
    *,
    watermark: int,
    compaction: Mapping[str, Any],
    carry_extensions: bool,
) -> Entries:
    """Return the entries after the first one: the compaction, and what it takes along."""
    told: dict[str, Any] = {
        "old": old.session_id,
        "items_before": old.items,
        "items_after": len(history),
        "generation": old.generation + 1,
        **compaction,
    }
    entries: Entries = [("compaction", told)]
    if watermark > 0:
        entries.append(("prune_advanced", _pruned(history, watermark)))

    if carry_extensions:
        entries += [
            ("extension", {"domain": domain, "payload": payload})
            for domain, payload in old.extensions.items()
        ]

    return entries


def carried_watermark(old: Sequence[Item], watermark: int, new: Sequence[Item]) -> int:
    """Return the watermark of `new`, made from `old`, so that what was sent pruned stays so.

    It never covers content that was not pruned before.
    """
    pruned = {item.uid for item in old[:watermark]}
    carried = 0
    for index, item in enumerate(new):
        if item.uid in pruned:
            carried = index + 1
        elif isinstance(item, ToolResult) and item.content is not None:
            break

    return carried


def _pruned(history: Sequence[Item], watermark: int) -> dict[str, Any]:
    covered = [item for item in history[:watermark] if isinstance(item, ToolResult)]
    return {
        "upto_index": watermark,
        "upto_uid": history[watermark - 1].uid,
        "items": sum(item.content is not None for item in covered),
        "est_savings": 0,
        "reason": "carried over a compaction",
    }
