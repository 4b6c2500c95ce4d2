"""The hook that prunes: what it remembers between requests changes nothing about its decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.compaction.prune_hook import PruneHook
from tests.worker.histories import histories
from worker.items import Item
from worker.ports import ItemsRecord
from worker.prune import PruneConfig, plan_prune
from worker.testing import ScriptedClient, say
from worker.worker import Worker

pytestmark = pytest.mark.anyio


@given(histories, st.integers(0, 3))
async def test_a_growing_history_is_pruned_as_if_it_were_looked_at_anew(
    items: list[Item], protected_turns: int
) -> None:
    config = PruneConfig(protected_turns=protected_turns, min_savings=0)
    worker = Worker(ScriptedClient([say("never asked")]))
    hook = PruneHook(config)
    for item in items:
        await worker.commit(ItemsRecord("system_item", (item,)))
        before = worker.watermark
        plan = plan_prune(worker.history, config, before)
        await hook.before_request(worker)
        assert worker.watermark == (plan.watermark if plan else before)
