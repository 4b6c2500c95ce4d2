"""`prune_policy = "break_even"`: a prune where it is cheaper than the broken prompt cache."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod.compaction.break_even import CACHE_TTL_S, USUAL, CachePrices, pays, requests_to_come
from pod.compaction.prune_hook import BreakEven, PruneHook
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import living, log_of, manifest
from worker import PruneConfig, Worker
from worker.items import AssistantMessage as Answer
from worker.items import Item, Text, ToolCall, ToolResult, user_message
from worker.llm import ScriptedClient
from worker.ports import Ports
from worker.worker import WorkerConfig

pytestmark = pytest.mark.anyio


def test_it_pays_where_what_is_saved_outweighs_what_is_written_anew() -> None:
    # 1,000 tokens saved at 0.1 each, against 5,000 written at 1.25 instead of read at 0.1.
    assert not pays(1_000, 5_000, 57, USUAL)
    assert pays(1_000, 5_000, 58, USUAL)


def test_nothing_is_lost_where_writing_costs_no_more_than_reading() -> None:
    assert pays(1, 100_000, 1, CachePrices(read=1.0, write=1.0))


@given(
    saved=st.integers(1, 10**6),
    rewritten=st.floats(0, 10**6),
    requests=st.floats(1, 1000),
    read=st.floats(0.001, 10),
    write=st.floats(0.001, 10),
)
def test_what_pays_is_cheaper_in_all(
    saved: int, rewritten: float, requests: float, read: float, write: float
) -> None:
    prices = CachePrices(read, write)
    write = max(write, read)
    kept = requests * (rewritten + saved) * read
    pruned = rewritten * write + (requests - 1) * rewritten * read
    if pays(saved, rewritten, requests, prices):
        assert pruned <= kept * (1 + 1e-9)
    else:
        assert pruned >= kept * (1 - 1e-9)


def turn(number: int, size: int) -> list[Item]:
    call = ToolCall(f"c{number}", "read", "{}", f"cu{number}")
    return [
        user_message(f"question {number}"),
        Answer(f"a{number}", (call,), "p", "m", "tool_calls"),
        ToolResult(f"r{number}", f"c{number}", f"cu{number}", "a file", "x" * size, is_error=False),
        Answer(f"b{number}", (Text("done"),), "p", "m", "end"),
    ]


def turns(count: int, size: int = 8_000) -> list[Item]:
    return [item for number in range(count) for item in turn(number, size)]


def test_a_prompt_is_expected_to_serve_as_often_again_but_not_past_its_end() -> None:
    history = turns(10)  # 20 answers

    assert requests_to_come(history, 10_000, None) == 20
    assert requests_to_come(history, 10_000, 1_000_000) == 20
    assert requests_to_come(history, 10_000, 12_000) == pytest.approx(4)
    assert requests_to_come(history, 10_000, 9_000) == 1
    assert requests_to_come([], 0, 9_000) == 1


@attrs.define
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@attrs.define
class Bench:
    """A worker, and a hook that prunes it by the cache's prices."""

    history: list[Item]
    clock: Clock = attrs.field(factory=Clock)
    prices: CachePrices = USUAL
    limit: int | None = None
    worker: Worker = attrs.field(init=False)
    hook: PruneHook = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.worker = Worker(
            ScriptedClient([]), config=WorkerConfig(), ports=Ports(clock=self.clock)
        )
        self.worker.set_history(self.history)
        policy = BreakEven(lambda: self.prices, lambda: self.limit)
        self.hook = PruneHook(PruneConfig(protected_turns=2), policy)

    async def ask(self, after_s: float = 1.0) -> int:
        """Prepare a request so many seconds after the one before; returns the watermark then."""
        self.clock.now_s += after_s
        await self.hook.before_request(self.worker)
        return self.worker.watermark

    async def grow(self, *items: Item) -> None:
        self.history.extend(items)
        self.worker.set_history(self.history, watermark=self.worker.watermark)


async def test_the_first_request_finds_no_cache_and_prunes_for_nothing() -> None:
    bench = Bench(turns(4))

    assert await bench.ask() == 8


async def test_a_warm_cache_is_not_broken_for_little() -> None:
    bench = Bench(turns(4, size=100) + turns(0))
    await bench.ask()
    await bench.grow(*turn(9, 200_000), *turn(10, 200_000))

    # Two small results more could go; all the large ones behind them would be written anew.
    assert await bench.ask() == 8


async def test_a_warm_cache_is_broken_for_much() -> None:
    bench = Bench(turns(4, size=100))
    await bench.ask()
    await bench.grow(*turn(9, 400_000), *turn(10, 100), *turn(11, 100))

    assert await bench.ask() == 20


async def test_near_the_next_compaction_it_pays_no_more() -> None:
    bench = Bench(turns(4, size=100))
    await bench.ask()
    await bench.grow(*turn(9, 12_000), *turn(10, 8_000), *turn(11, 8_000))
    bench.limit = bench.worker.occupancy().tokens + 1

    assert await bench.ask() == 8


async def test_an_idle_cache_is_forgotten_and_pruning_is_free_again() -> None:
    bench = Bench(turns(4, size=100))
    await bench.ask()
    await bench.grow(*turn(9, 200_000), *turn(10, 200_000))
    assert await bench.ask(CACHE_TTL_S - 1) == 8

    assert await bench.ask(CACHE_TTL_S + 1) == 16


async def test_a_replaced_history_has_no_cache() -> None:
    bench = Bench(turns(4, size=100))
    await bench.ask()
    await bench.grow(*turn(9, 200_000), *turn(10, 200_000))
    bench.hook.reset()

    assert await bench.ask() == 16


async def test_a_manifest_asks_for_it_and_the_log_says_why(home: Path) -> None:
    def script(asked: Asked, number: int) -> Say:
        wants = number % 2 == 1
        return Say(calls=(("big", '{"n": 1}'),)) if wants else Say("done")

    extra = (
        '[tools]\npython = ["tests.pod.big_tools:big"]\n'
        '[compaction]\nprune_policy = "break_even"\nprune_protected_turns = 1\n'
    )
    with serving(script) as served:
        path = manifest(home, served.base_url, extra)
        async with living(path, home) as story:
            await story.turns("one", "two")
            session_id = story.pod.session_id

        # The next launch begins with a cold cache.
        async with living(path, home, resume=session_id) as story:
            await story.turns("three")

    moves = [entry for entry in log_of(home, session_id) if entry["kind"] == "prune_advanced"]
    assert [move["reason"] for move in moves][-1] == "cold_cache"
