"""Context engines: what decides what a model is sent, and when a history is compacted.

Everything is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pod.lazy import loaded_on_use as _loaded_on_use

if TYPE_CHECKING:
    from .engine import ContextEngine

_HOME_OF = {"ContextEngine": ".engine"}

__all__ = ["ContextEngine"]

__getattr__, __dir__ = _loaded_on_use(__name__, _HOME_OF)
