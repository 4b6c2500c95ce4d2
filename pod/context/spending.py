"""What plugins' calls to models took, added up for whoever has them made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attrs import define, field

from worker.llm.types import Usage


@define
class Spending:
    """The calls that were made inside of one `counted`, in its own context."""

    requests: int = 0
    usage: Usage = field(factory=Usage)
    model: str = ""
    """The model that answered last."""

    def add(self, usage: Usage, model: str) -> None:
        """Note one answer."""
        self.requests += 1
        self.usage += usage
        self.model = model


_spending: ContextVar[Spending | None] = ContextVar("pod.context.spending", default=None)


@contextmanager
def counted() -> Iterator[Spending]:
    """Count the calls that are made inside; those of threads that a plugin starts are not seen."""
    mine = Spending()
    token = _spending.set(mine)
    try:
        yield mine
    finally:
        _spending.reset(token)


def spent(usage: Usage, model: str) -> None:
    """Note an answer for whoever counts, if anybody does."""
    counting = _spending.get()
    if counting is not None:
        counting.add(usage, model)
