"""The peer of compact.py: langchain's `SummarizationMiddleware`, its model answering at once."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from typing import Any

from _peer import Pass, serve
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

TRIM_TOKENS = {"trimmed": 4_000, "whole": None}
"""What the summarizer is shown: the last 4,000 tokens, which is the default, or everything."""


class Instant(BaseChatModel):
    """Says the same at once."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(self, *_args: object, **_options: object) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("A summary."))])


def prepare(history: list[dict[str, Any]]) -> dict[str, Pass]:
    """Return a pass for each way to trim; each comes to the number of messages that are left."""
    given = [_message(message, str(n)) for n, message in enumerate(history)]
    return {name: partial(_compact, given, tokens) for name, tokens in TRIM_TOKENS.items()}


def _compact(given: list[BaseMessage], trim_tokens: int | None) -> int:
    middleware = SummarizationMiddleware(
        Instant(),
        trigger=("messages", 50),
        keep=("messages", 20),
        trim_tokens_to_summarize=trim_tokens,
    )
    changed = middleware.before_model({"messages": given}, None)
    return len(changed["messages"]) - 1  # the first one says that all others go


def _message(message: dict[str, Any], uid: str) -> BaseMessage:
    if message["role"] == "user":
        return HumanMessage(message["content"], id=uid)

    if message["role"] == "tool":
        return ToolMessage(message["content"], tool_call_id=message["tool_call_id"], id=uid)

    calls = [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            "args": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return AIMessage(message["content"], id=uid, tool_calls=calls)


if __name__ == "__main__":
    serve(prepare, f"langchain {version('langchain')} SummarizationMiddleware")
