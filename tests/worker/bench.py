"""A worker on a bench: a scripted model, a journal that remembers, and rules that runs keep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import define, field

from worker import (
    Hook,
    Item,
    LlmRequest,
    Ports,
    RequestStage,
    Tool,
    ToolResult,
    Worker,
    WorkerConfig,
)
from worker.ports import ItemsRecord, Record, Ref, WorkerEvent
from worker.testing import ScriptedAnswer, ScriptedClient


@define
class Journal:
    """Keeps every record; the commit numbered `fails_at` (from 1) and all later ones fail."""

    records: list[Record] = field(factory=list)
    fails_at: int | None = None
    commits: int = 0
    before_commit: Callable[[Sequence[Record]], Any] = lambda _records: None

    async def commit(self, *records: Record) -> Sequence[Ref]:
        pending = self.before_commit(records)
        if pending is not None:
            await pending
        self.commits += 1
        if self.fails_at is not None and self.commits >= self.fails_at:
            message = "disk full"
            raise OSError(message)
        self.records.extend(records)
        return [len(self.records) - len(records) + n for n in range(len(records))]

    @property
    def items(self) -> list[Item]:
        return [i for r in self.records if isinstance(r, ItemsRecord) for i in r.items]


@define
class Bench:
    """A worker and everything around it, to look at."""

    worker: Worker
    client: ScriptedClient
    journal: Journal
    events: list[WorkerEvent]
    keeps_prefix: bool
    seeded: set[str]
    on_event: Callable[[WorkerEvent], None] = lambda _event: None

    def seed(self, items: Iterable[Item], **options: Any) -> None:
        """Give the worker a history that a journal held before."""
        fresh = list(items)
        self.seeded.update(item.uid for item in fresh)
        self.worker.set_history(fresh, **options)

    def results(self, request: int = -1) -> list[ToolResult]:
        """The tool results in one request, in the order they were sent."""
        return [i for i in self.client.requests[request].items if isinstance(i, ToolResult)]

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def check(self) -> None:
        """The history is what was journaled, and requests share their prefix."""
        assert list(self.worker.history)[-len(self.journal.items) :] == self.journal.items or (
            not self.journal.items
        )
        if self.keeps_prefix:
            requests = self.client.requests
            for earlier, later in itertools.pairwise(requests):
                assert_prefix(earlier, later)


def assert_prefix(earlier: LlmRequest, later: LlmRequest) -> None:
    assert (later.system, later.tools) == (earlier.system, earlier.tools)
    assert list(later.items)[: len(earlier.items)] == list(earlier.items)


def make_bench(
    answers: Iterable[ScriptedAnswer],
    *,
    tools: Iterable[Tool] = (),
    hooks: Iterable[Hook] = (),
    config: WorkerConfig | None = None,
    stages: tuple[RequestStage, ...] = (),
    keeps_prefix: bool = True,
    **options: Any,
) -> Bench:
    journal = options.pop("journal", None) or Journal()
    events: list[WorkerEvent] = []
    seeded: set[str] = set()

    def is_committed(request: LlmRequest) -> None:
        known = {item.uid for item in journal.items} | seeded | {""}
        assert {item.uid for item in request.items} <= known, "sent before it was journaled"

    window = options.pop("context_window", None)
    client = options.pop("client", None) or ScriptedClient(
        answers, on_request=is_committed, context_window=window
    )

    def hear(event: WorkerEvent, _ref: Ref) -> None:
        events.append(event)
        made.on_event(event)

    ports = Ports(journal=journal, emit=hear, stages=stages, **options)
    worker = Worker(
        client, system_prompt="You help.", tools=tools, hooks=hooks, config=config, ports=ports
    )
    made = Bench(worker, client, journal, events, keeps_prefix, seeded)
    return made
