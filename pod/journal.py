"""The Worker's journal over a session: everything is durable before it is true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, assert_never

import anyio.to_thread
from attrs import define

from session_store import EntryRef, HeadMismatch, Session
from session_store.masking import Masker
from worker.foreign import uninterrupted
from worker.ports import (
    ItemsRecord,
    PruneRecord,
    Record,
    TurnEndRecord,
    UsageRecord,
)

EntryDraft = tuple[str, dict[str, Any]]


@define(eq=False)
class SessionJournal:
    """Writes a Worker's records into whatever session the pod is in."""

    session: Session
    masker: Masker
    on_moved: Callable[[str, str], None] = lambda _old, _new: None
    """Hears of it, with the old id and the new one, when the writing goes on in a fork."""

    async def commit(self, *records: Record) -> Sequence[tuple[str, int]]:
        """Append the records' entries with one sync and return a (session id, seq) each.

        Raises what the store raises; the session then takes nothing more.
        """
        return await self.append(*map(entry_of, records))

    async def append(self, *drafts: EntryDraft) -> Sequence[tuple[str, int]]:
        """Append entries given as (kind, fields), as `commit` does.

        Where the log was changed underneath, by whoever got past its lock, the writing goes on in a
        fork from what this writer left: neither side's entries are lost or mixed.

        Items were masked at their intake; whatever else says something in words is masked here.
        """
        masked = [
            (kind, fields if "items" in fields else self.masker.mask_fields(fields))
            for kind, fields in drafts
        ]
        try:
            return await self._append(masked)
        except HeadMismatch as error:
            old_id = self.session.session_id
            self.session = await in_thread(error.fork)
            self.on_moved(old_id, self.session.session_id)
            return await self._append(masked)

    async def _append(self, drafts: list[EntryDraft]) -> Sequence[tuple[str, int]]:
        session = self.session
        refs: list[EntryRef] = await in_thread(lambda: session.append_many(drafts))
        return [(session.session_id, ref.seq) for ref in refs]


T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run blocking store work off the event loop; a cancellation of any kind waits for its end."""
    return await uninterrupted(anyio.to_thread.run_sync(function))


def entry_of(record: Record) -> EntryDraft:
    """Return the log entry, as (kind, fields), that a record becomes."""
    match record:
        case ItemsRecord():
            return record.kind, {"items": list(record.items)}
        case UsageRecord():
            usage = record.usage
            return "usage", {
                "history_len": record.history_len,
                "input_tokens": usage.input_tokens,
                "cache_read": usage.cache_read,
                "cache_write": usage.cache_write,
                "output_tokens": usage.output_tokens,
                "model": record.model,
                **({} if record.cost is None else {"cost": record.cost}),
            }
        case PruneRecord():
            return "prune_advanced", {
                "upto_index": record.upto_index,
                "upto_uid": record.upto_uid,
                "items": record.items,
                "est_savings": record.est_savings,
                "reason": record.reason,
            }
        case TurnEndRecord():
            return "turn_end", {"turn": record.turn}
        case _:
            assert_never(record)
