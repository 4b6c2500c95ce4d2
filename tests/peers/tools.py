"""Tools of the pods that talk to peers."""

from __future__ import annotations


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"
