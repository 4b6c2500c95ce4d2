"""Guards that fail, each in its own way; manifests of tests name them."""

from __future__ import annotations

import asyncio
import sys


def raising(_view: object) -> None:
    """Raise."""
    raise ValueError("broken")


def exiting(_view: object) -> None:
    """Try to end the process."""
    sys.exit(3)


def talking(_view: object) -> str:
    """Return what is no action."""
    return "no"


async def raising_later(_view: object) -> None:
    """Raise once awaited."""
    await asyncio.sleep(0)
    raise ValueError("broken")
