"""How large a model's window is, asked by name and without asking anybody."""

from __future__ import annotations

from pod.compaction.thresholds import UNKNOWN_WINDOW

from .config import config_at
from .runtime import current_runtime


def get_model_context_length(
    model: str, *_address: object, config_context_length: int | None = None, **_elsewhere: object
) -> int:
    """Return the window in tokens: what is configured, else what the pod knows of its model.

    Where the model is, and how to ask there, is of no use: nobody is asked.
    """
    if config_context_length is not None and config_context_length > 0:
        return config_context_length

    runtime = current_runtime()
    own = config_at(runtime.config, "model") if runtime is not None else None
    is_own = not model or config_at(own, "default") == model
    known = config_at(own, "context_length") if is_own else None
    return known if isinstance(known, int) and known > 0 else UNKNOWN_WINDOW
