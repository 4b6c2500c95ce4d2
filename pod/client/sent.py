"""What was asked of a pod at once: its answer may be awaited, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any

from attrs import define, field


@define(eq=False)
class Sent(Awaitable[None]):
    """Waits for the answer to what was sent. Cancelling whoever awaits it gives up the waiting."""

    task: asyncio.Task[None]
    is_awaited: bool = field(default=False, init=False)
    """Whether anybody hears how it comes out."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the answer; raises what came of it."""
        self.is_awaited = True
        return (yield from self.task.__await__())
