"""When a prune pays, by the prices of the prompt cache. Pure.

A provider that has cached the prompt charges a fraction for reading it again. A prune changes the
prompt in the middle: what follows has to be written into the cache anew, once, and what was pruned
is paid for no more, in each request from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from worker.items import AssistantMessage, Item

CACHE_TTL_S = 300.0
"""How long, in seconds, providers keep an unused prompt: Anthropic and OpenAI at least so long."""


@frozen
class CachePrices:
    """What a token costs that is read from the cache, and one that is written; in any one unit."""

    read: float
    write: float


USUAL = CachePrices(read=0.1, write=1.25)
"""Parts of the plain price, where nobody tells: Anthropic's, the dearest to break."""


def pays(saved: float, rewritten: float, requests: float, prices: CachePrices) -> bool:
    """Tell whether pruning now is cheaper than leaving the prompt as it is.

    Args:
        saved: Tokens that each request from now on will lack.
        rewritten: Tokens behind the first change, which are in the cache as they are.
        requests: How many requests are to come, the next one included.
        prices: Of the cache.
    """
    return saved * requests * prices.read > rewritten * max(0.0, prices.write - prices.read)


def requests_to_come(history: Sequence[Item], occupancy: int, limit: int | None) -> float:
    """Return how many more requests this prompt can be expected to serve; at least one.

    As many as there were so far: what has gone on for long goes on for long. Not more than fit
    before `limit`, where the history is compacted and the prompt begins anew, if it grows on as it
    grew.
    """
    so_far = max(1, sum(isinstance(item, AssistantMessage) for item in history))
    if limit is None or occupancy <= 0:
        return so_far

    growth = occupancy / so_far
    return max(1.0, min(so_far, (limit - occupancy) / growth))
