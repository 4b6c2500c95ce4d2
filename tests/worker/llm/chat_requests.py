"""Items, and the bodies that Chat Completions schemes make of them."""

from __future__ import annotations

import json
from typing import Any

from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    new_uid,
)
from worker.llm import ChatQuirks, LlmRequest, OpenAiChatScheme, RequestOptions, ToolSpec

PROVIDER = "openai_compatible"
MODEL = "the-model"
TOOL = ToolSpec("read", "Reads.", {"type": "object"})
PIXEL = Image("image/png", b"\x89PNG")


def answer(*parts: Text | Reasoning | ToolCall) -> AssistantMessage:
    return AssistantMessage(new_uid(), parts, PROVIDER, MODEL, "end")


def tool_call(call_id: str, arguments: str = '{"a":1}', name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, arguments, new_uid())


def result(
    call_id: str, summary: str = "done", content: str | None = None, **more: Any
) -> ToolResult:
    return ToolResult(new_uid(), call_id, new_uid(), summary, content, is_error=False, **more)


def thought(text: str, **more: Any) -> Reasoning:
    return Reasoning(text, **({"provider": PROVIDER, "model": MODEL} | more))


def body(
    *items: Item,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    options: RequestOptions | None = None,
    quirks: ChatQuirks | None = None,
    model: str = MODEL,
) -> dict[str, Any]:
    request = LlmRequest(system, items, tools, options or RequestOptions())
    encoder = OpenAiChatScheme(quirks or ChatQuirks()).encoder(PROVIDER, model)
    sent = json.loads(encoder.encode(request))
    assert isinstance(sent, dict)
    return sent


def messages(*items: Item, **more: Any) -> list[dict[str, Any]]:
    sent = body(*items, **more)["messages"]
    assert isinstance(sent, list)
    return sent
