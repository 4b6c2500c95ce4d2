"""A real local model behind llama.cpp's own server, asked as any other provider is.

The model is named in POD_TEST_MODEL, or is where `pod models pull` puts it; without one these tests
say so. What is asserted of its words holds for the model that `pod models pull` brings: it is far
too small to choose tools well, so it is shown how by the turns before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from pod.home import Home
from pod.models import CATALOGUE
from worker.items import AssistantMessage, Item, ToolCall, ToolResult, new_uid, user_message
from worker.llm import (
    Answer,
    Answered,
    Endpoint,
    HttpClient,
    LlmRequest,
    OpenAiChatScheme,
    RequestOptions,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
    ToolSpec,
)
from worker.llm.local import REQUEST_HEADERS, LocalServer, ModelLoadFailed
from worker.llm.schemes.chat.servers import LLAMA_SERVER

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SYSTEM = "You note down colours."
NOTE = ToolSpec(
    "note_colour",
    "Notes down a colour.",
    {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["zq-17", "zq-18"]}},
        "required": ["colour"],
    },
)
ADD = ToolSpec(
    "add",
    "Adds two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def real_model() -> Path:
    named = os.environ.get("POD_TEST_MODEL")
    path = Path(named) if named else Home.from_env({}).models / CATALOGUE[0].file_name
    if not path.is_file():
        pytest.skip("NO REAL MODEL: run `pod models pull`, or name a GGUF file in POD_TEST_MODEL")
    pytest.importorskip("xllamacpp", reason="NO LLAMA.CPP: install the extra `local`")
    return path


@pytest.fixture(scope="module")
def served() -> Iterator[LocalServer]:
    # One thread: two of them wait for each other, which takes for ever on a machine that is busy.
    with LocalServer(real_model(), context_window=2048, threads=1) as server:
        server.start()
        yield server


@pytest.fixture
def post(served: LocalServer) -> Iterator[Callable[..., httpx.Response]]:
    """Send JSON to a path of the server."""
    headers = {"Authorization": f"Bearer {served.api_key}"}
    root = served.base_url.removesuffix("/v1")
    with httpx.Client(base_url=root, headers=headers, timeout=200, trust_env=False) as client:

        def send(path: str, **body: Any) -> httpx.Response:
            return client.post(path, json=body)

        yield send


@pytest.fixture
def ask(post: Callable[..., httpx.Response]) -> Callable[..., httpx.Response]:
    """Send one user message."""

    def send(content: str, **more: Any) -> httpx.Response:
        said = [{"role": "user", "content": content}]
        return post("/v1/chat/completions", messages=said, temperature=0, **more)

    return send


Stream = Callable[..., Any]


@pytest.fixture
async def stream(served: LocalServer) -> Any:
    """Send a request as a pod does, and return its events and its answer."""
    endpoint = Endpoint(
        provider="local",
        model=served.model_name,
        base_url=served.base_url,
        api_key=served.api_key,
        headers=REQUEST_HEADERS,
        context_window=served.context_window,
        idle_timeout_s=200.0,
    )
    client = HttpClient(endpoint, OpenAiChatScheme(LLAMA_SERVER))

    async def send(
        items: Sequence[Item], *tools: ToolSpec, **options: Any
    ) -> tuple[list[StreamEvent], Answer]:
        options = {"temperature": 0.0, "max_tokens": 80, **options}
        request = LlmRequest(SYSTEM, items, tools, RequestOptions(**options))
        async with aclosing(client.stream(request)) as events:
            seen = [event async for event in events]

        last = seen.pop()
        assert isinstance(last, Answered)
        return seen, last.answer

    yield send
    await client.aclose()


# --- its own wire -----------------------------------------------------------------------------


def test_it_answers_and_reuses_the_prefix(ask: Callable[..., httpx.Response]) -> None:
    first = ask("List three rivers. " * 20, max_tokens=8).json()
    second = ask("List three rivers. " * 20 + "And a lake.", max_tokens=8).json()
    assert first["choices"][0]["message"]["content"]
    usage = second["usage"]
    assert usage["prompt_tokens"] > first["usage"]["prompt_tokens"]
    # A cached part is already inside prompt_tokens.
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] > cached > 60


def test_it_serves_the_window_that_was_asked_for(
    served: LocalServer, ask: Callable[..., httpx.Response]
) -> None:
    answer = ask("word " * 2100)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_ctx"] == served.context_window == 2048


def test_it_refuses_whoever_has_no_key(served: LocalServer) -> None:
    with httpx.Client(trust_env=False) as client:
        answer = client.post(f"{served.base_url}/chat/completions", json={"messages": []})
    assert answer.status_code == 401


def test_it_is_held_to_a_grammar(ask: Callable[..., httpx.Response]) -> None:
    answer = ask("Say something.", max_tokens=40, grammar='root ::= "## " ("yes" | "no") "\\n"')
    assert answer.json()["choices"][0]["message"]["content"] in {"## yes\n", "## no\n"}


def test_a_real_file_cut_short_is_an_error_and_harms_nobody(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with real_model().open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    with pytest.raises(ModelLoadFailed, match="could not be loaded: "):
        LocalServer(cut).start()


# --- as a provider ----------------------------------------------------------------------------


async def test_an_answer_is_streamed_and_its_usage_told(stream: Stream) -> None:
    said = [user_message("List three rivers.")]
    events, answer = await stream(said, max_tokens=12)
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(pieces) > 2
    assert "".join(pieces) == "".join(part.text for part in answer.parts)
    assert answer.stop_reason == "max_tokens"
    usage = answer.usage
    assert usage is not None
    assert usage.output_tokens == 12
    assert usage.input_tokens is not None
    assert 20 < usage.input_tokens < 60

    _, again = await stream(said, max_tokens=4)
    assert again.usage == attrs.evolve(usage, output_tokens=4, cache_read=usage.input_tokens - 1)


def shown(*answers: tuple[ToolCall, ...]) -> list[Item]:
    """Turns in which tools were called, and a user who asks for the same again."""
    items: list[Item] = []
    for calls in answers:
        items += [
            user_message("Note down a colour."),
            AssistantMessage(new_uid(), calls, "local", "m", "tool_calls"),
            *(result(call) for call in calls),
        ]
    return [*items, user_message("Note down a colour.")]


def call(call_id: str, name: str = NOTE.name, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments), new_uid())


def result(of: ToolCall) -> ToolResult:
    return ToolResult(new_uid(), of.call_id, of.call_uid, "noted", None, is_error=False)


ONE_CALL_EACH = [(call(colour, colour=colour),) for colour in ("red", "green", "pink")]


@pytest.mark.moves_prefix("requests without and with tools")
async def test_a_call_is_held_to_its_tools_schema_and_its_result_goes_back(stream: Stream) -> None:
    said = shown(*ONE_CALL_EACH)
    _, without = await stream(said, max_tokens=1)
    events, answer = await stream(said, NOTE)
    assert answer.usage.input_tokens > without.usage.input_tokens + 50  # it was told of the tool

    assert answer.stop_reason == "tool_calls"
    (made,) = answer.parts
    assert isinstance(made, ToolCall)
    assert made.name == "note_colour"
    assert json.loads(made.arguments)["colour"] in {"zq-17", "zq-18"}
    assert isinstance(events[0], ToolCallStart)
    assert isinstance(events[-1], ToolCallDone)
    pieces = [event.text for event in events if isinstance(event, ToolCallArgsDelta)]
    assert len(pieces) > 2
    assert "".join(pieces) == made.arguments

    message = AssistantMessage(new_uid(), answer.parts, "local", "m", answer.stop_reason)
    _, after = await stream([*said, message, result(made)], NOTE, max_tokens=8)
    # The whole first prompt is reused, and most of the call as the model wrote it.
    assert after.usage.cache_read >= answer.usage.input_tokens
    assert after.usage.input_tokens > answer.usage.input_tokens + 20


async def test_several_calls_come_in_one_answer(stream: Stream) -> None:
    def both(n: int) -> tuple[ToolCall, ...]:
        return call(f"a{n}", colour="red"), call(f"b{n}", "add", a=n, b=2)

    _, answer = await stream(shown(both(1), both(2), both(3)), ADD, NOTE)
    made = [part for part in answer.parts if isinstance(part, ToolCall)]
    assert [part.name for part in made] == ["note_colour", "add"]
    assert len({part.call_id for part in made}) == 2
    assert json.loads(made[0].arguments)["colour"] in {"zq-17", "zq-18"}
    numbers = json.loads(made[1].arguments)
    assert {type(number) for number in numbers.values()} == {int}
    assert set(numbers) == {"a", "b"}


async def test_a_call_that_the_cap_cuts_is_no_call(stream: Stream) -> None:
    said = shown(*ONE_CALL_EACH)
    _, answer = await stream(said, NOTE, max_tokens=12)
    assert answer.stop_reason == "max_tokens"
    assert not any(isinstance(part, ToolCall) for part in answer.parts)


@pytest.mark.moves_prefix("requests without and with tools")
async def test_an_answer_is_held_to_a_schema_unless_there_are_tools_to_call(stream: Stream) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["zq-19"]}},
        "required": ["colour"],
    }
    said = shown(*ONE_CALL_EACH)
    _, answer = await stream(said, response_schema=schema)
    assert json.loads("".join(part.text for part in answer.parts)) == {"colour": "zq-19"}
    _, answer = await stream(said, NOTE, response_schema=schema)
    assert answer.stop_reason == "tool_calls"


# --- the template that is added ---------------------------------------------------------------

OWN_WORDS = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def wire(*tools: ToolSpec) -> list[dict[str, object]]:
    return [{"type": "function", "function": attrs.asdict(tool)} for tool in tools]


@pytest.fixture
def prompt(post: Callable[..., httpx.Response]) -> Callable[..., str]:
    """The prompt that the server makes of messages and tools."""

    def of(*messages: dict[str, object], tools: Sequence[ToolSpec] = ()) -> str:
        body = {"messages": messages} | ({"tools": wire(*tools)} if tools else {})
        made = post("/apply-template", **body).json()["prompt"]
        assert isinstance(made, str)
        return made

    return of


HI = {"role": "user", "content": "Hi"}
ASKING = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_without_tools_the_prompt_is_the_models_own(prompt: Callable[..., str]) -> None:
    assert prompt(HI) == f"<|im_start|>system\n{OWN_WORDS}<|im_end|>\n{ASKING}"


def test_with_tools_it_is_told_of_each_and_how_to_call_it(prompt: Callable[..., str]) -> None:
    told = prompt({"role": "system", "content": "Be brief."}, HI, tools=[ADD, NOTE])
    assert told.startswith("<|im_start|>system\nBe brief.\n\nYou can call these tools.")
    assert told.count("<|im_start|>") == 3
    assert told.endswith(f"<|im_end|>\n{ASKING}")
    lines = told.partition("<tools>\n")[2].partition("</tools>")[0].splitlines()
    assert [json.loads(line) for line in lines] == [attrs.asdict(tool) for tool in (ADD, NOTE)]
    assert '<tool_call>{"name": ' in told
    assert "system\nYou can call these" in prompt(HI, tools=[ADD])


@pytest.mark.parametrize("tools", [(), (ADD, NOTE)], ids=["without", "with"])
def test_calls_and_results_are_told_in_their_order(
    prompt: Callable[..., str], tools: Sequence[ToolSpec]
) -> None:
    def sent(call_id: str, name: str, arguments: str) -> dict[str, object]:
        function = {"name": name, "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}

    calls = [sent("a", "note_colour", '{"colour": "red"}'), sent("b", "add", '{"a": 1, "b": 2}')]
    told = prompt(
        {"role": "system", "content": "Be brief."},
        HI,
        {"role": "assistant", "content": "Both.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "noted"},
        {"role": "tool", "tool_call_id": "b", "content": "3"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "again"},
        tools=tools,
    )
    first = '<tool_call>{"name": "note_colour", "arguments": {"colour": "red"}}</tool_call>'
    second = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    before, _, after = told.partition("<|im_start|>user\nHi<|im_end|>\n")
    assert before.startswith("<|im_start|>system\nBe brief.")
    assert after == (
        f"<|im_start|>assistant\nBoth.\n{first}\n{second}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>noted</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>3</tool_response><|im_end|>\n"
        f"<|im_start|>assistant\n{first}\n{second}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>again</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_call_that_is_begun_for_it_is_held_to_the_grammar(
    post: Callable[..., httpx.Response], seed: int
) -> None:
    """Whatever it would rather say, hot as it runs: `required` alone lets it talk first."""
    answer = post(
        "/v1/chat/completions",
        messages=[HI, {"role": "assistant", "content": "<tool_call>"}],
        tools=wire(ADD, NOTE),
        tool_choice="required",
        temperature=2.0,
        seed=seed,
        max_tokens=100,
    ).json()["choices"][0]["message"]
    made = answer["tool_calls"][0]["function"]
    assert not answer["content"]
    arguments = json.loads(made["arguments"])
    if made["name"] == "add":
        assert {type(number) for number in arguments.values()} == {int}
        assert set(arguments) == {"a", "b"}
    else:
        assert made["name"] == "note_colour"
        assert arguments["colour"] in {"zq-17", "zq-18"}
