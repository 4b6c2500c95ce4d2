"""What a plugin asks about where it runs: configuration, home, session.

Within a pod, and in threads that its plugin starts, the pod answers. In a process without one (a
test suite after `install()`) there are Hermes's defaults and its environment variables.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

from pod.context.engine import JsonDict

from .config import config_at, default_config
from .runtime import current_runtime

_HOME = "HERMES_HOME"


def load_config() -> JsonDict:
    """Return the configuration, a copy of the caller's own."""
    runtime = current_runtime()
    return copy.deepcopy(runtime.config) if runtime is not None else default_config()


def load_config_readonly() -> JsonDict:
    """Return the configuration; a copy as well, so that nobody's change reaches another."""
    return load_config()


def cfg_get(config: object, *keys: str, default: Any = None) -> Any:  # noqa: ANN401  whatever JSON can hold
    """Return what stands under nested keys; `default` where one is missing or is no table."""
    return config_at(config, *keys, default=default)


def get_hermes_home() -> Path:
    """Return the engine's own folder, made with the first call; without a pod, Hermes's home."""
    runtime = current_runtime()
    if runtime is not None:
        return runtime.home()

    named = os.environ.get(_HOME, "").strip()
    return Path(named) if named else Path.home() / ".hermes"


def get_config_path() -> Path:
    """Return where Hermes would have its configuration: in that home. `load_config` reads none."""
    return get_hermes_home() / "config.yaml"


def plugins_dir() -> Path:
    """Return where plugins are looked for by name."""
    runtime = current_runtime()
    return runtime.plugins_dir if runtime is not None else get_hermes_home() / "plugins"


def get_session_env(name: str, default: str = "") -> str:
    """Return what is known of the session under the name of an environment variable."""
    runtime = current_runtime()
    if runtime is None:
        return os.environ.get(name, default)

    known = {
        "HERMES_SESSION_ID": runtime.session_id(),
        "HERMES_SESSION_PLATFORM": "cli",
        "HERMES_SESSION_SOURCE": "cli",
    }
    return known.get(name) or default
