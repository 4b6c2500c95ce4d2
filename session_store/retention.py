"""Which sessions are old or large enough to go. Pure: facts in, a plan out."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from attrs import frozen


@frozen(kw_only=True)
class Candidate:
    """A session as retention sees it."""

    session_id: str
    updated: int
    """When it was last added to, in milliseconds of Unix time."""
    bytes: int
    """What removing it frees."""
    parents: tuple[str, ...] = ()
    """The sessions that it came from: they stay as long as it does."""
    kept_because: str = ""
    """Why it is never removed by itself: it is in use, say. Empty where nothing keeps it."""


@frozen(kw_only=True)
class RetentionPlan:
    """What is to go, in an order in which nothing is removed that another one refers to."""

    remove: tuple[Candidate, ...]
    kept: tuple[tuple[str, str], ...]
    """Sessions that a limit asks for and that stay all the same, each with the reason."""
    bytes_before: int
    bytes_after: int


def plan_retention(
    candidates: Sequence[Candidate],
    *,
    now_ms: int,
    older_than_ms: int | None = None,
    keep_bytes: int | None = None,
    other_bytes: int = 0,
) -> RetentionPlan:
    """Return which sessions go so that each limit holds, the oldest ones first.

    With `older_than_ms`, those go that nothing was added to for so long. With `keep_bytes`, the
    oldest go until all takes no more than that, `other_bytes` that belong to no session included.
    What is current or in use stays, and so does all that anything that stays came from.
    """
    by_id = {one.session_id: one for one in candidates}
    referrers = Counter(parent for one in candidates for parent in set(one.parents))
    total = before = other_bytes + sum(one.bytes for one in candidates)
    heap = [(one.updated, one.session_id) for one in candidates if not referrers[one.session_id]]
    heapq.heapify(heap)
    removed: dict[str, Candidate] = {}

    def is_due(one: Candidate) -> bool:
        is_old = older_than_ms is not None and now_ms - one.updated > older_than_ms
        return is_old or (keep_bytes is not None and total > keep_bytes)

    while heap:
        one = by_id[heapq.heappop(heap)[1]]
        if one.kept_because or not is_due(one):
            continue

        removed[one.session_id] = one
        total -= one.bytes
        for parent in set(one.parents):
            referrers[parent] -= 1
            if not referrers[parent] and parent in by_id:
                heapq.heappush(heap, (by_id[parent].updated, parent))

    stay = [one for one in candidates if one.session_id not in removed and is_due(one)]
    why = [(one.session_id, one.kept_because or "others came from it") for one in stay]
    return RetentionPlan(
        remove=tuple(removed.values()), kept=tuple(why), bytes_before=before, bytes_after=total
    )
