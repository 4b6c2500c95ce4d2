"""Talking to models: what a request and an answer are, and the clients that carry them.

Nothing heavy is imported with this package; a client's module loads when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.llm.endpoint import Endpoint, RetryPolicy, StreamLimits
    from worker.llm.http import HttpClient
    from worker.llm.scheme import Decoder, Encoder, Scheme
    from worker.llm.schemes.chat.scheme import ChatQuirks, OpenAiChatScheme
    from worker.llm.scripted import ScriptedClient
    from worker.llm.types import (
        Answer,
        Answered,
        LlmClient,
        LlmRequest,
        ReasoningDelta,
        RequestOptions,
        Retrying,
        StreamEvent,
        TextDelta,
        ToolCallArgsDelta,
        ToolCallDone,
        ToolCallStart,
        ToolSpec,
        Usage,
    )

__all__ = [
    "Answer",
    "Answered",
    "ChatQuirks",
    "Decoder",
    "Encoder",
    "Endpoint",
    "HttpClient",
    "LlmClient",
    "LlmRequest",
    "OpenAiChatScheme",
    "ReasoningDelta",
    "RequestOptions",
    "RetryPolicy",
    "Retrying",
    "Scheme",
    "ScriptedClient",
    "StreamEvent",
    "StreamLimits",
    "TextDelta",
    "ToolCallArgsDelta",
    "ToolCallDone",
    "ToolCallStart",
    "ToolSpec",
    "Usage",
]

_HOMES = {
    "ChatQuirks": "worker.llm.schemes.chat.scheme",
    "Decoder": "worker.llm.scheme",
    "Encoder": "worker.llm.scheme",
    "Endpoint": "worker.llm.endpoint",
    "HttpClient": "worker.llm.http",
    "OpenAiChatScheme": "worker.llm.schemes.chat.scheme",
    "RetryPolicy": "worker.llm.endpoint",
    "Scheme": "worker.llm.scheme",
    "ScriptedClient": "worker.llm.scripted",
    "StreamLimits": "worker.llm.endpoint",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    value = getattr(import_module(_HOMES.get(name, "worker.llm.types")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
