"""Options that a model refuses: which answers name one, and what a client makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from attrs import evolve

from tests.worker.llm.client import ONCE, REQUEST, Clock, ask, client, retries
from tests.worker.llm.wire import hello
from worker.errors import ProviderRefused
from worker.llm import Answered, LlmRequest, RequestOptions
from worker.llm.refusals import refused_option
from worker.llm.reports import read_report

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {}}

# Who says it, what it says, and which option that is.
REFUSED = [
    ("Anthropic", "`temperature` is deprecated for this model.", "temperature"),
    (
        "Anthropic, with thinking",
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        "temperature",
    ),
    (
        "Anthropic",
        (
            "messages.1.content.0: When thinking is disabled, an `assistant` message in the final"
            " position cannot contain `thinking`. To use thinking blocks, enable `thinking` in"
            " your request."
        ),
        None,
    ),
    ("Anthropic", "output_config.effort: Extra inputs are not permitted", "reasoning_effort"),
    ("Anthropic", "adaptive thinking is not supported on this model", "reasoning_effort"),
    (
        "OpenAI",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "temperature",
    ),
    (
        "OpenAI, a value",
        (
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the"
            " default (1) value is supported."
        ),
        "temperature",
    ),
    (
        "OpenAI",
        "Unrecognized request argument supplied: reasoning_effort",
        "reasoning_effort",
    ),
    (
        "OpenAI, with tools",
        "Function tools with reasoning_effort are not supported for m in /v1/chat/completions.",
        "reasoning_effort",
    ),
    ("Groq", "property 'prompt_cache_key' is unsupported", "cache_key"),
    (
        "Cerebras",
        "body.prompt_cache_key: property 'body.prompt_cache_key' is unsupported",
        "cache_key",
    ),
    ("NVIDIA", "Validation: Unsupported parameter(s): `prompt_cache_key`", "cache_key"),
    ("xAI", "Model m does not support parameter reasoningEffort.", "reasoning_effort"),
    ("Ollama", '"qwen3-coder:30b" does not support thinking', "reasoning_effort"),
    ("Gemini", "Thinking level is not supported for this model.", "reasoning_effort"),
    ("Gemma", "Thinking budget is not supported for this model.", "reasoning_effort"),
    (
        "Vertex",
        "Unable to submit request because thinking_level MEDIUM is not supported by this model.",
        "reasoning_effort",
    ),
    (
        "Vertex, an effort of none",
        "Unable to submit request because Thinking can't be disabled for this model.",
        "reasoning_effort",
    ),
    (
        "Gemini, an older version",
        (
            'Invalid JSON payload received. Unknown name "thinkingLevel" at'
            " 'generation_config.thinking_config': Cannot find field."
        ),
        "reasoning_effort",
    ),
    ("DeepSeek", "This response_format type is unavailable now", "response_schema"),
    ("a model without schemas", "json_schema is not supported by this model", "response_schema"),
    ("Moonshot", "invalid temperature: only 1 is allowed for this model", "temperature"),
    (
        "a server that checks with pydantic",
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'prompt_cache_key'), 'msg': 'Extra inputs"
            " are not permitted', 'input': 'main'}]"
        ),
        "cache_key",
    ),
]

NOT_REFUSED = [
    "Invalid value for 'temperature': 3 is greater than the maximum of 2",
    "Input should be 'low', 'medium' or 'high' for reasoning_effort",
    'level "max" not supported, valid levels: low, medium, high, xhigh',
    "`temperature` and `top_p` cannot both be specified for this model.",
    "messages.3.content.0.thinking: Extra inputs are not permitted",
    "When `thinking` is enabled, a final assistant message must start with a thinking block",
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    "max_tokens must be at least 1, got -186.",
    "registry.ollama.ai/library/m does not support tools",
    "Unsupported image format",
    "This model does not support image input",
    "The temperature in the room is 20 degrees. Your image is not supported.",
    "",
]


def report_of(message: str, status: int = 400, **fields: Any) -> Any:
    return read_report(json.dumps({"error": {"message": message, **fields}}), status=status)


@pytest.mark.parametrize(
    ("message", "option"),
    [pytest.param(message, option, id=f"{who}: {option}") for who, message, option in REFUSED],
)
@pytest.mark.parametrize("status", [400, 422])
def test_an_option_that_is_refused_by_name(message: str, option: str, status: int) -> None:
    found = refused_option(report_of(message, status))
    assert found is not None
    assert found.option == option


@pytest.mark.parametrize("message", NOT_REFUSED)
def test_another_complaint_refuses_no_option(message: str) -> None:
    assert refused_option(report_of(message)) is None


@pytest.mark.parametrize("status", [401, 403, 404, 413, 429, 500, 503])
def test_only_a_refused_request_refuses_an_option(status: int) -> None:
    assert refused_option(report_of("`temperature` is deprecated for this model.", status)) is None


@pytest.mark.parametrize(
    ("param", "code", "option"),
    [
        ("temperature", "unsupported_value", "temperature"),
        ("reasoning.effort", "unsupported_parameter", "reasoning_effort"),
        ("reasoning_effort", "unsupported_value", "reasoning_effort"),
        ("text.format", "unsupported_parameter", "response_schema"),
        ("prompt_cache_key", "unknown_parameter", "cache_key"),
    ],
)
def test_a_param_is_a_name(param: str, code: str, option: str) -> None:
    found = refused_option(report_of("no", param=param, code=code))
    assert found is not None
    assert (found.name, found.option) == (param, option)


def test_a_param_alone_is_no_refusal() -> None:
    assert refused_option(report_of("must be below 2", param="temperature")) is None
    assert refused_option(report_of("no", param="messages", code="unsupported_value")) is None


def test_names_of_a_list_of_findings_are_read() -> None:
    body = '{"detail":[{"type":"extra_forbidden","loc":["body","temperature"],"msg":"Extra"}]}'
    found = refused_option(read_report(body, status=422))
    assert found is not None
    assert found.option == "temperature"


# --- the client ---------------------------------------------------------------------------------


class Picky:
    """Refuses the fields that are named, one an answer, in `words`; else it answers."""

    def __init__(self, *names: str, words: str = "Unsupported parameter: '{}'") -> None:
        self._names = names
        self._words = words
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        for name in self._names:
            if name in body:
                message = self._words.format(name)
                return httpx.Response(400, json={"error": {"message": message}})

        return httpx.Response(200, content=hello())


def asking(**options: Any) -> LlmRequest:
    return evolve(REQUEST, options=RequestOptions(**options))


def fields_of(bodies: Sequence[dict[str, Any]], *names: str) -> list[list[str]]:
    return [[name for name in names if name in body] for body in bodies]


@pytest.mark.parametrize(
    ("option", "value", "wire"),
    [
        ("temperature", 0.2, "temperature"),
        ("reasoning_effort", "high", "reasoning_effort"),
        ("response_schema", SCHEMA, "response_format"),
    ],
)
async def test_it_is_left_out_and_asked_once_more(option: str, value: object, wire: str) -> None:
    provider, clock = Picky(wire), Clock()
    asked = client(handler=provider, clock=clock, retry=ONCE)
    events = await ask(asked, asking(max_tokens=5, **{option: value}))
    assert isinstance(events[-1], Answered)
    assert fields_of(provider.bodies, wire) == [[wire], []]
    # Nothing else is missing the second time.
    first, second = provider.bodies
    assert {key: field for key, field in first.items() if key != wire} == second
    (told,) = retries(events)
    assert told.delay_s == 0
    assert told.attempt == 1
    assert "400" in told.reason
    assert f"{wire} is left out from now on" in told.reason


async def test_it_is_remembered_for_later_requests() -> None:
    provider = Picky("temperature")
    asked = client(handler=provider)
    for _ in range(3):
        await ask(asked, asking(temperature=0.2, max_tokens=5))
    assert fields_of(provider.bodies, "temperature") == [["temperature"], [], [], []]


async def test_another_client_knows_nothing_of_it() -> None:
    provider = Picky("temperature")
    for _ in range(2):
        await ask(client(handler=provider), asking(temperature=0.2))
    assert fields_of(provider.bodies, "temperature") == [["temperature"], []] * 2


async def test_one_after_the_other_may_be_refused() -> None:
    provider = Picky("temperature", "reasoning_effort")
    events = await ask(
        client(handler=provider, retry=ONCE),
        asking(temperature=0.2, reasoning_effort="high", max_tokens=5),
    )
    assert isinstance(events[-1], Answered)
    assert fields_of(provider.bodies, "temperature", "reasoning_effort") == [
        ["temperature", "reasoning_effort"],
        ["reasoning_effort"],
        [],
    ]
    assert [retry.attempt for retry in retries(events)] == [1, 2]


@pytest.mark.parametrize(
    "refuse",
    [
        lambda _: httpx.Response(400, json={"error": {"message": "'temperature' is unsupported"}}),
        lambda _: httpx.Response(422, json={"error": {"message": "'temperature' is unsupported"}}),
    ],
)
async def test_a_refusal_that_does_not_end_is_told_after_one_more(
    refuse: Callable[[httpx.Request], httpx.Response],
) -> None:
    asked: list[httpx.Request] = []

    def provide(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return refuse(request)

    with pytest.raises(ProviderRefused, match="'temperature' is unsupported"):
        await ask(client(handler=provide), asking(temperature=0.2))
    assert len(asked) == 2


async def test_what_was_not_sent_is_not_left_out() -> None:
    provider = Picky("messages", words="'temperature' is unsupported")
    with pytest.raises(ProviderRefused):
        await ask(client(handler=provider), asking(reasoning_effort="high"))
    assert fields_of(provider.bodies, "reasoning_effort") == [["reasoning_effort"]]


async def test_a_failure_in_between_costs_no_attempt_of_the_others() -> None:
    answers = iter(
        [
            httpx.Response(503, json={"error": {"message": "busy"}}),
            httpx.Response(400, json={"error": {"message": "'temperature' is unsupported"}}),
            httpx.Response(503, json={"error": {"message": "busy"}}),
            httpx.Response(200, content=hello()),
        ]
    )
    clock = Clock()
    events = await ask(
        client(handler=lambda _: next(answers), clock=clock), asking(temperature=0.2)
    )
    assert isinstance(events[-1], Answered)
    assert [bool(retry.delay_s) for retry in retries(events)] == [True, False, True]
    assert [retry.delay_s for retry in retries(events)] == clock.slept


async def test_the_cap_goes_by_its_other_name() -> None:
    provider = Picky(
        "max_tokens",
        words="Unsupported parameter: '{}' is not supported with this model."
        " Use 'max_completion_tokens' instead.",
    )
    asked = client(handler=provider)
    for _ in range(2):
        await ask(asked, asking(max_tokens=5))
    assert fields_of(provider.bodies, "max_tokens", "max_completion_tokens") == [
        ["max_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    assert provider.bodies[-1]["max_completion_tokens"] == 5
