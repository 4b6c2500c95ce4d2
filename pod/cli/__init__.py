"""The command line, `pod`. Commands are loaded when they are used."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
