"""`agent.redact`: credentials in text, told by their shapes, and masked."""

from __future__ import annotations

from session_store.token_shapes import mask_token_shapes

__all__ = ["redact_sensitive_text"]


def redact_sensitive_text(text: str, **how: object) -> str:
    """Return `text` with what has the shape of a credential masked; always all of it."""
    return mask_token_shapes(text) if isinstance(text, str) else text
