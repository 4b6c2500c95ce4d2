"""`gateway.session_context`: what a plugin may know of the session it works for."""

from __future__ import annotations

from pod.context.hermes.surroundings import get_session_env

__all__ = ["get_session_env"]
