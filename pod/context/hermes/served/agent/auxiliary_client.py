"""`agent.auxiliary_client`: a model's answer for whatever a plugin has to ask."""

from __future__ import annotations

from pod.context.hermes.calls import async_call_llm, call_llm

__all__ = ["async_call_llm", "call_llm"]
