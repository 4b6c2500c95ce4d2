"""A Hermes configuration made into a manifest. The one home of what Hermes's files look like."""

from __future__ import annotations

from .convert import Converted, Wanted, convert
from .read import HermesConfig, HermesFileUnusable, Mistake, parse_config, read_config

__all__ = [
    "Converted",
    "HermesConfig",
    "HermesFileUnusable",
    "Mistake",
    "Wanted",
    "convert",
    "parse_config",
    "read_config",
]
