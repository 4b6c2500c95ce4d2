"""`agent.model_metadata`: rough sizes, and the windows of models."""

from __future__ import annotations

from pod.context.hermes.rough_tokens import messages_tokens as estimate_messages_tokens_rough
from pod.context.hermes.rough_tokens import text_tokens as estimate_tokens_rough
from pod.context.hermes.windows import get_model_context_length

__all__ = [
    "estimate_messages_tokens_rough",
    "estimate_tokens_rough",
    "get_model_context_length",
]
