"""The one place where a plugin's own code may raise anything without taking the pod with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def tried(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Return what `function` gives, or what it raises. A `KeyboardInterrupt` still passes."""
    try:
        return function(), None
    # The supervision point of plugin code that is called directly; the caller tells of the error.
    except (Exception, SystemExit) as error:  # noqa: BLE001  handed to the caller, which tells of it
        return None, error
