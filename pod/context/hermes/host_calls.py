"""A host's calls around one request, in the form in which Hermes's own tests make them.

A pod asks its engine by `pod.context.selection`; these ask the same questions of an `agent` object,
at once and in the caller's thread.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from pod.context.attempt import tried
from pod.context.engine import JsonDict, Message
from pod.context.selection import is_selection
from pod.context.signature import accepted_keywords, overrides

_log = logging.getLogger("pod.context")


class Agent(Protocol):
    """What is needed of an agent."""

    session_id: str
    context_compressor: Any


def apply_selection(
    agent: Agent,
    request_messages: list[Message],
    conversation_messages: Sequence[Message],
    incoming_message: Message | None,
    logger: logging.Logger = _log,
) -> list[Message]:
    """Return what the agent's engine selects for a request, or the same list."""
    engine = agent.context_compressor
    if engine is None or not overrides(engine, "select_context"):
        return request_messages

    hook = engine.select_context
    keywords: dict[str, object] = {
        "conversation_messages": copy.deepcopy(list(conversation_messages)),
        "incoming_message": copy.deepcopy(incoming_message),
        "budget_tokens": getattr(engine, "context_length", 0) or 0,
    }
    taken = accepted_keywords(hook, keywords, positional=1)
    chosen, failure = tried(lambda: hook(request_messages, **taken))
    if failure is not None:
        logger.warning(
            "Context engine select_context raised; leaving the request as it is (session=%s)",
            agent.session_id,
            exc_info=failure,
        )
    elif chosen is not None and not is_selection(chosen):
        logger.warning(
            "Context engine select_context returned an invalid value (not a non-empty list of "
            "dicts); ignoring (session=%s)",
            agent.session_id,
        )
    elif chosen is not None:
        selected: list[Message] = chosen
        return selected

    return request_messages


def notify_turn_complete(
    agent: Agent,
    messages: Sequence[Message],
    usage: JsonDict | None = None,
    logger: logging.Logger = _log,
    **facts: object,
) -> None:
    """Tell the agent's engine that a turn is over, with copies of what was said."""
    engine = agent.context_compressor
    if engine is None or not overrides(engine, "on_turn_complete"):
        return

    given = copy.deepcopy(list(messages))
    _, failure = tried(lambda: engine.on_turn_complete(given, usage=usage, **facts))
    if failure is not None:
        logger.warning(
            "Context engine on_turn_complete raised; going on (session=%s)",
            agent.session_id,
            exc_info=failure,
        )
