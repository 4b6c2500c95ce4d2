"""`hermes_cli.config`: the configuration that a manifest comes to, and the engine's home."""

from __future__ import annotations

from pod.context.hermes.config import default_config
from pod.context.hermes.surroundings import (
    cfg_get,
    get_config_path,
    get_hermes_home,
    load_config,
    load_config_readonly,
)

__all__ = [
    "DEFAULT_CONFIG",
    "cfg_get",
    "get_config_path",
    "get_hermes_home",
    "load_config",
    "load_config_readonly",
]

DEFAULT_CONFIG = default_config()
"""What holds without a manifest."""
