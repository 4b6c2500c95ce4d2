"""What it takes to decide what to prune, beside openai-agents' `ToolOutputTrimmer`, in turns.

The trimmer decides and makes the new list in one go, so ours is shown both ways: `plan_prune`,
which is what a request costs, and `plan_prune` with `apply_prune`, which the Worker does once for
each prune and not for each request.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from _history import TURN
from _measure import Sample, cpu_ms, header, in_turns, table, timed, verdict, wall_ms
from _peer import Peer
from _sessions import items, one_long_turn

if TYPE_CHECKING:
    from worker import Item, PrunePlan

SIZES = (1_000, 10_000, 100_000)
LIMIT = 0.2
ROUNDS = 9


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer-python", type=Path, metavar="PYTHON", help="an interpreter that has openai-agents"
    )
    given = parser.parse_args()
    header("prune")
    if given.peer_python is None:
        print("peer skipped: no --peer-python")
        _report(None)
    else:
        with Peer(given.peer_python, "_peer_openai_agents.py") as peer:
            _report(peer)


def _report(peer: Peer | None) -> None:
    rows: list[tuple[str, ...]] = []
    ratios: dict[int, float] = {}
    for size in SIZES:
        found = in_turns(_actions(size, peer), ROUNDS)
        base = wall_ms(found["peer"]) if peer else None
        for name, samples in found.items():
            ratio = f"{wall_ms(samples) / base:.3f}" if base else "-"
            rows.append((f"{size:,} items: {name}", *_times(samples), ratio))

        if base:
            ratios[size] = wall_ms(found["plan_prune"]) / base

    print(f"peer: {peer.about}" if peer else "peer: none")
    table("one pass", ("what", "ms", "cpu ms", "of the peer's"), rows)
    for size, measured in ratios.items():
        verdict(f"plan_prune / peer, {size:,} items", value=measured, limit=LIMIT)


def _actions(size: int, peer: Peer | None) -> dict[str, Callable[[], Sample]]:
    given, long_turn = items(size), one_long_turn(size)
    actions: dict[str, Callable[[], Sample]] = {
        "plan_prune": partial(timed, partial(_plan, given)),
        "plan_prune + apply_prune": partial(timed, partial(_plan_and_apply, given)),
        "plan_prune, nothing new": partial(timed, partial(_nothing_new, given)),
        "plan_prune, one long turn": partial(timed, partial(_too_few_turns, long_turn)),
        "plan_prune, one long turn, by tokens": partial(timed, partial(_by_tokens, long_turn)),
    }
    if peer is not None:
        actions["peer"] = partial(_ask, peer, size)

    return actions


def _plan(given: Sequence[Item]) -> PrunePlan:
    from worker import PruneConfig, plan_prune

    plan = plan_prune(given, PruneConfig())
    assert plan is not None
    assert plan.items == len(given) // TURN - PruneConfig().protected_turns
    return plan


def _plan_and_apply(given: Sequence[Item]) -> None:
    from worker import apply_prune

    assert len(apply_prune(given, _plan(given).watermark)) == len(given)


def _nothing_new(given: Sequence[Item]) -> None:
    """Ask again right after a prune: what nearly every request does."""
    from worker import PruneConfig, plan_prune

    config = PruneConfig()
    watermark = len(given) - config.protected_turns * TURN
    assert plan_prune(given, config, watermark) is None


def _too_few_turns(given: Sequence[Item]) -> None:
    """Ask with turns protected where there is one: what an agent long at work does."""
    from worker import PruneConfig, plan_prune

    assert plan_prune(given, PruneConfig()) is None


def _by_tokens(given: Sequence[Item]) -> None:
    from worker import PruneConfig, plan_prune
    from worker.tokens import item_tokens

    config = PruneConfig(protected_tokens=40_000)
    assert plan_prune(given, config, weigh=item_tokens) is not None


def _ask(peer: Peer, size: int) -> Sample:
    answer = peer.measure(size, "trim")
    assert answer["result"] > size // 5, "the peer trimmed nearly nothing"
    return Sample(answer["wall"], answer["cpu"])


def _times(samples: list[Sample]) -> tuple[str, str]:
    return f"{wall_ms(samples):.2f}", f"{cpu_ms(samples):.2f}"


if __name__ == "__main__":
    main()
