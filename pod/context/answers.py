"""Whatever a plugin's function answers, plain or async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable


def finished(answer: object) -> object:
    """Return an answer, waited for where it is awaitable: on a loop of its own, in this thread.

    Raises what it raises. Not to be called where an event loop runs.
    """
    return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer
