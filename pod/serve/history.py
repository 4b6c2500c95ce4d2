"""The history in pages that fit a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from pod.protocol.methods import HistoryAnswer, HistoryParams
from worker.items import Item
from worker.items_json import dump_item

PAGE_BYTES = 1 << 20
"""How large a page becomes; a single item may be larger."""


def page_of(
    history: Sequence[Item], params: HistoryParams, *, session_id: str, seq: int
) -> HistoryAnswer:
    """Return the page of `history` that is asked for."""
    total = len(history)
    start = max(0, total + params.start) if params.start < 0 else min(params.start, total)
    items: list[dict[str, Any]] = []
    size = 0
    for item in history[start : start + params.limit]:
        dumped = dump_item(item)
        size += len(orjson.dumps(dumped))
        if items and size > PAGE_BYTES:
            break

        items.append(dumped)

    end = start + len(items)
    return HistoryAnswer(
        session_id=session_id,
        items=tuple(items),
        start=start,
        total=total,
        next=end if end < total else None,
        seq=seq,
    )
