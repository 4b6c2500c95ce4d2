"""Streams that were recorded of real servers, through the whole client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.worker.llm.client import ask, client
from tests.worker.llm.recordings import recorded
from worker.errors import StreamBroken
from worker.items import Reasoning, Text, ToolCall
from worker.llm import Answered, TextDelta, ToolCallDone, Usage

pytestmark = pytest.mark.anyio


def replaying(exchange: dict[str, Any]) -> Any:
    """A server that answers as the recorded one did."""
    response = exchange["response"]
    types = response["headers"]["content-type"]

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            response["status"]["code"],
            headers={"content-type": types[0]},
            content=response["body"]["string"].encode(),
        )

    return handler


async def test_i13_a_call_and_the_answer_after_it() -> None:
    calling, answering = recorded("sse_openai_chat_tool_stream.yaml")

    events = await ask(client(handler=replaying(calling)))
    last = events[-1]
    assert isinstance(last, Answered)
    (call,) = last.answer.parts
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("get_capital", '{"country":"UK"}')
    assert events[-2] == ToolCallDone(call.call_id, "get_capital", '{"country":"UK"}')
    assert last.answer.stop_reason == "tool_calls"
    assert last.answer.usage == Usage(53, 15, cache_read=0)

    events = await ask(client(handler=replaying(answering)))
    last = events[-1]
    assert isinstance(last, Answered)
    (text,) = last.answer.parts
    assert isinstance(text, Text)
    assert text.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "London" in text.text
    assert last.answer.stop_reason == "end"
    assert last.answer.usage is not None
    assert last.answer.usage.input_tokens


async def test_an_error_after_a_finish_reason_breaks_the_stream() -> None:
    (exchange,) = recorded("sse_openrouter_midstream_error.yaml")
    with pytest.raises(StreamBroken) as broken:
        await ask(client("https://openrouter.ai/api/v1", handler=replaying(exchange)))

    assert "Token limit reached" in broken.value.message
    assert broken.value.partial is not None
    (thought,) = broken.value.partial.parts
    assert isinstance(thought, Reasoning)
    assert thought.text == "We need to respond to a greeting. The user"
    assert broken.value.partial.usage == Usage(43, 10, cache_read=0)
