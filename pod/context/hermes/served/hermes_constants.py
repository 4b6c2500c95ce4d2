"""`hermes_constants`: the engine's home."""

from __future__ import annotations

from pod.context.hermes.surroundings import get_config_path, get_hermes_home

__all__ = ["get_config_path", "get_hermes_home"]
