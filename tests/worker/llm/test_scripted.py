from __future__ import annotations

import json
from contextlib import aclosing

import pytest

from tests.worker.llm.client import Clock
from worker.errors import (
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    StreamBroken,
)
from worker.items import Reasoning, Text, ToolCall, user_message
from worker.llm import (
    Answer,
    Answered,
    LlmClient,
    LlmRequest,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
    Usage,
)
from worker.testing import ScriptedAnswer, ScriptedClient, call, calls, fail, say

pytestmark = pytest.mark.anyio


async def ask(client: ScriptedClient, text: str = "Hi") -> list[StreamEvent]:
    request = LlmRequest("S", [user_message(text)])
    async with aclosing(client.stream(request)) as stream:
        return [event async for event in stream]


async def answer(client: ScriptedClient, text: str = "Hi") -> Answer:
    last = (await ask(client, text))[-1]
    assert isinstance(last, Answered)
    return last.answer


async def test_answers_come_in_order_and_requests_are_kept() -> None:
    seen: list[LlmRequest] = []
    client = ScriptedClient([say("one"), say("two")], on_request=seen.append, context_window=4096)
    assert (await answer(client)).parts == (Text("one"),)
    assert (await answer(client, "Again")).parts == (Text("two"),)
    assert client.requests == seen
    assert client.requests[1].items[0].text == "Again"  # type: ignore[union-attr]  # a UserMessage
    assert (client.provider, client.model, client.context_window) == ("scripted", "scripted", 4096)
    await client.aclose()


async def test_it_is_a_client() -> None:
    client: LlmClient = ScriptedClient([])
    assert client.model == "scripted"


async def test_a_call_is_told_of_like_a_real_one() -> None:
    events = await ask(ScriptedClient([call("read", path="a")]))
    start, args, done, last = events
    assert isinstance(start, ToolCallStart)
    assert args == ToolCallArgsDelta(start.call_id, '{"path":"a"}')
    assert done == ToolCallDone(start.call_id, "read", '{"path":"a"}')
    assert isinstance(last, Answered)
    assert last.answer.stop_reason == "tool_calls"


async def test_several_calls_and_malformed_arguments() -> None:
    given = await answer(ScriptedClient([calls(("read", {"path": "a"}), ("grep", "{not json"))]))
    first, second = given.parts
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (second.name, second.arguments) == ("grep", "{not json")
    assert first.call_id != second.call_id
    assert first.call_uid != second.call_uid


async def test_a_script_in_json_lines() -> None:
    script = "\n".join(
        [
            "# a comment, and a blank line",
            "",
            json.dumps({"reasoning": "Hm.", "deltas": ["Hel", "lo"], "usage": {"input_tokens": 9}}),
            json.dumps({"tool_calls": [{"name": "f", "arguments": {"a": 1}, "id": "c1"}]}),
            json.dumps({"text": "cut", "stop_reason": "max_tokens"}),
        ]
    )
    client = ScriptedClient.parse(script, model="m")
    events = await ask(client)
    assert events[:3] == [ReasoningDelta("Hm."), TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(events[3], Answered)
    assert events[3].answer.parts == (Reasoning("Hm."), Text("Hello"))
    assert events[3].answer.usage == Usage(input_tokens=9)
    assert events[3].answer.model == "m"

    (made,) = (await answer(client)).parts
    assert isinstance(made, ToolCall)
    assert (made.call_id, made.arguments) == ("c1", '{"a":1}')
    assert (await answer(client)).stop_reason == "max_tokens"
    assert client.remaining == 0


async def test_a_match_picks_its_answer_and_the_others_keep_their_order() -> None:
    client = ScriptedClient([say("first"), say("about cats", match="cat"), say("second")])
    assert (await answer(client, "a cat?")).parts == (Text("about cats"),)
    assert (await answer(client, "a cat?")).parts == (Text("first"),)
    assert (await answer(client, "dogs")).parts == (Text("second"),)


async def test_a_script_that_runs_out_says_how_long_it_was() -> None:
    client = ScriptedClient([say("one"), say("never", match="cat")])
    await ask(client)
    with pytest.raises(ProviderError, match="request 2: it had 2, of which 1 wait"):
        await ask(client)


async def test_usage_is_estimated_from_bytes() -> None:
    client = ScriptedClient([say("x" * 400), say("ok")])
    first = (await answer(client, "y" * 4000)).usage
    assert first is not None
    assert first.output_tokens == 100
    assert first.input_tokens is not None
    assert 1000 <= first.input_tokens <= 1100


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (fail(status=503, retry_after_s=7), ProviderUnavailable),
        (fail(), ProviderUnavailable),
        (fail(status=401, message="bad key"), ProviderRefused),
        (fail(code="invalid_request_error"), ProviderRefused),
        (fail(status=400, code="context_length_exceeded"), ContextOverflow),
        (fail(status=400, message="maximum context length is 4096 tokens"), ContextOverflow),
    ],
)
async def test_failures_mean_what_they_mean_for_a_real_provider(
    failure: ScriptedAnswer, error: type[ProviderError]
) -> None:
    with pytest.raises(error) as raised:
        await ask(ScriptedClient([failure]))
    if isinstance(raised.value, ProviderUnavailable) and failure.error:
        assert raised.value.retry_after_s == failure.error.retry_after_s


async def test_a_failure_after_text_breaks_the_stream() -> None:
    client = ScriptedClient([fail(status=502, message="gone", after="Half")])
    seen: list[StreamEvent] = []

    async def listen() -> None:
        async for event in client.stream(LlmRequest("S", [])):
            seen.append(event)  # noqa: PERF401 - what came before the error is the point

    with pytest.raises(StreamBroken, match="gone") as broken:
        await listen()
    assert seen == [TextDelta("Half")]
    assert broken.value.partial == Answer((Text("Half"),), "partial", None, "scripted")


async def test_a_delay_is_waited() -> None:
    clock = Clock()
    await ask(ScriptedClient([say("late", delay_s=2.5)], sleep=clock.sleep))
    assert clock.slept == [2.5]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "an answer must be an object"),
        ('{"txt": "hi"}', "an answer has no 'txt'; it has: text"),
        ('{"text": 5}', '"text" must be a string'),
        ('{"tool_calls": {}}', '"tool_calls" must be a list'),
        ('{"tool_calls": [{"arguments": {}}]}', '"name" must be a string'),
        ('{"tool_calls": [{"name": "f", "args": {}}]}', "a tool call has no 'args'"),
        ('{"stop_reason": "done"}', "allowed: end"),
        ('{"usage": {"input_tokens": -1}}', "whole number"),
        ('{"usage": {"inputs": 1}}', "usage has no 'inputs'"),
        ('{"delay": -1}', '"delay" must be seconds'),
        ('{"error": {"status": "x"}}', '"status" must be a whole number'),
        ('{"error": "no"}', "error must be an object"),
        ('{"text": "ab", "deltas": ["a"]}', '"deltas" joined are not "text"'),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, said: str) -> None:
    with pytest.raises(ValueError, match="line 3: ") as error:
        ScriptedClient.parse(f'{{"text": "fine"}}\n\n{line}\n')
    assert said in str(error.value)


def test_a_mistake_in_a_list_is_told_with_its_number() -> None:
    with pytest.raises(ValueError, match="answer 2: an answer has no 'txt'"):
        ScriptedClient([{"text": "fine"}, {"txt": "hi"}])
