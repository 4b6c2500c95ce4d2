"""What a plugin asks a model: from which threads, for which task, and how such calls end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from manifests.schema_provider import FallbackProvider
from pod.compaction.plan import CompactionError
from pod.compaction.summarizer import Summarizer
from pod.context.hermes import install
from pod.context.hermes.calls import async_call_llm, call_llm
from pod.context.hermes.clients import TaskClients
from pod.context.hermes.completion import CallRefused, Completions
from pod.context.hermes.config import default_config
from pod.context.hermes.runtime import (
    PLUGINS_PACKAGE,
    HermesRuntime,
    activate,
    current_runtime,
    deactivate,
    use_runtime,
)
from tests.pod.desk import until
from worker.errors import ProviderError
from worker.items import ToolResult, UserMessage
from worker.llm import ScriptedClient
from worker.llm.types import LlmRequest, StreamEvent

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]


class Silent(ScriptedClient):
    """Answers nothing, for ever."""

    def __init__(self) -> None:
        super().__init__([])
        self.began = threading.Event()
        self.asked = 0

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        self.asked += 1
        self.began.set()
        await asyncio.Event().wait()
        yield  # type: ignore[misc]  # never: it makes this a generator


def runtime_of(
    client: ScriptedClient, name: str = "toy", config: dict[str, Any] | None = None
) -> HermesRuntime:
    completions = Completions(asyncio.get_running_loop(), lambda *_: client)
    return HermesRuntime(
        engine=name,
        config={**default_config(), **(config or {})},
        completions=completions,
        home=lambda: Path("/nowhere"),
        plugins_dir=Path("/nowhere"),
    )


async def test_a_call_from_a_thread_is_answered_in_the_shape_that_plugins_read() -> None:
    client = ScriptedClient(
        [{"text": "hi", "reasoning": "hm", "usage": {"input_tokens": 9, "output_tokens": 2}}],
        model="m",
    )
    route: dict[str, Any] = {}
    with use_runtime(runtime_of(client)):
        answer = await asyncio.to_thread(
            call_llm, "compression", messages=HELLO, max_tokens=7, temperature=0.3, route_info=route
        )

    message = answer.choices[0].message
    assert (message.content, message.reasoning, message.tool_calls) == ("hi", "hm", None)
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens, answer.model) == (9, 11, "m")
    assert route["model"] == "m"
    options = client.requests[0].options
    assert (options.max_tokens, options.temperature) == (7, 0.3)


async def test_messages_of_every_role_are_sent_as_they_are_meant() -> None:
    client = ScriptedClient([{"text": "ok"}])
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "first"},
        {"role": "developer", "content": [{"type": "text", "text": "second"}]},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    ]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with use_runtime(runtime_of(client)):
        await asyncio.to_thread(call_llm, messages=messages, tools=[tool])

    request = client.requests[0]
    assert request.system == "first\n\nsecond"
    assert isinstance(request.items[0], UserMessage)
    assert isinstance(request.items[2], ToolResult)
    assert [spec.name for spec in request.tools] == ["look"]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "at least one message"),
        ([{"role": "nobody", "content": "x"}], "cannot be sent"),
        ([3], "cannot be sent"),
    ],
)
async def test_messages_that_are_none_are_refused(messages: list[Any], said: str) -> None:
    with use_runtime(runtime_of(ScriptedClient([]))), pytest.raises(ValueError, match=said):
        await asyncio.to_thread(call_llm, messages=messages)


async def test_a_prompt_of_nothing_but_system_text_is_sent_as_a_message() -> None:
    client = ScriptedClient([{"text": "ok"}])
    with use_runtime(runtime_of(client)):
        await asyncio.to_thread(call_llm, messages=[{"role": "system", "content": "sum up"}])

    assert client.requests[0].system == ""
    assert [item.text for item in client.requests[0].items] == ["sum up"]  # type: ignore[union-attr]


async def test_on_the_event_loop_it_is_refused_and_the_other_one_is_there() -> None:
    client = ScriptedClient([{"text": "hi"}])
    with use_runtime(runtime_of(client)):
        with pytest.raises(CallRefused, match="async_call_llm"):
            call_llm(messages=HELLO)

        assert (await async_call_llm(messages=HELLO)).choices[0].message.content == "hi"


async def test_a_plugin_s_own_event_loop_is_no_obstacle() -> None:
    runtime = runtime_of(ScriptedClient([{"text": "one"}, {"text": "two"}]))

    async def both() -> list[str]:
        awaited = await async_call_llm(messages=HELLO)
        blocked = call_llm(messages=HELLO)
        return [awaited.choices[0].message.content, blocked.choices[0].message.content]

    with use_runtime(runtime):
        assert await asyncio.to_thread(asyncio.run, both()) == ["one", "two"]


async def test_many_threads_ask_at_once() -> None:
    runtime = runtime_of(ScriptedClient([{"text": "hi", "delay": 0.05}] * 8))

    def ask() -> str:
        return call_llm(messages=HELLO).choices[0].message.content

    with use_runtime(runtime):
        answers = await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(8)))

    assert answers == ["hi"] * 8
    assert runtime.completions.requests == 8
    assert (runtime.completions.usage.output_tokens or 0) > 0


async def test_every_sign_of_life_is_heard() -> None:
    heard: list[int] = []
    runtime = runtime_of(ScriptedClient([{"text": "abc", "deltas": ["a", "b", "c"]}]))
    runtime.completions.on_progress = lambda: heard.append(1)
    with use_runtime(runtime):
        await asyncio.to_thread(call_llm, messages=HELLO)

    assert len(heard) >= 4


# ------------------------------------------------------------------ how calls end


async def test_the_time_is_the_call_s_own_else_the_task_s() -> None:
    slow = {"auxiliary": {"extraction": {"timeout": 0.05}}}
    with use_runtime(runtime_of(Silent(), config=slow)):
        for asked in ({"timeout": 0.05}, {"task": "extraction"}):
            with pytest.raises(TimeoutError, match=r"did not answer within 0[.]05 s"):
                await asyncio.to_thread(call_llm, messages=HELLO, **asked)


async def test_a_provider_s_failure_reaches_the_plugin() -> None:
    client = ScriptedClient([{"error": {"status": 401, "message": "no such key"}}])
    with use_runtime(runtime_of(client)), pytest.raises(ProviderError, match="no such key"):
        await asyncio.to_thread(call_llm, messages=HELLO)


async def test_what_is_under_way_when_the_pod_ends_is_given_up_and_later_calls_refused() -> None:
    client = Silent()
    runtime = runtime_of(client)
    with use_runtime(runtime):
        waiting = asyncio.ensure_future(asyncio.to_thread(call_llm, messages=HELLO))
        await asyncio.to_thread(client.began.wait, 5)
        deactivate(runtime)
        with pytest.raises(CallRefused, match="gave up"):
            await waiting

        with pytest.raises(CallRefused, match="has ended"):
            await asyncio.to_thread(call_llm, messages=HELLO)


async def test_a_compaction_that_is_given_up_takes_its_calls_with_it() -> None:
    client = Silent()
    summarizer = Summarizer(lambda: client, asyncio.get_running_loop())
    with use_runtime(runtime_of(client)):
        with summarizer.attempt():
            waiting = asyncio.ensure_future(asyncio.to_thread(call_llm, messages=HELLO))
            late = asyncio.Event()

            async def later() -> None:
                await late.wait()
                await asyncio.to_thread(call_llm, messages=HELLO)

            afterwards = asyncio.ensure_future(later())
            await asyncio.to_thread(client.began.wait, 5)

        with pytest.raises(CallRefused, match="gave up"):
            await waiting

        late.set()
        with pytest.raises(CompactionError):
            await afterwards


async def test_all_the_calls_that_are_under_way_at_once_are_given_up_with_it() -> None:
    client = Silent()
    summarizer = Summarizer(lambda: client, asyncio.get_running_loop())
    with use_runtime(runtime_of(client)):
        with summarizer.attempt():
            waiting = [
                asyncio.ensure_future(asyncio.to_thread(call_llm, messages=HELLO, timeout=10))
                for _ in range(3)
            ]
            await asyncio.to_thread(until, lambda: client.asked == len(waiting))

        async with asyncio.timeout(5):
            ended = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(error) for error in ended] == [CallRefused] * 3


async def test_streams_are_not_served() -> None:
    runtime = runtime_of(ScriptedClient([]))
    with use_runtime(runtime), pytest.raises(ValueError, match="one piece"):
        await asyncio.to_thread(call_llm, messages=HELLO, stream=True)


# ------------------------------------------------------------------ whose pod it is


async def test_without_a_pod_there_is_no_model_to_ask() -> None:
    def ask() -> None:
        call_llm(messages=HELLO)

    assert current_runtime() is None
    with pytest.raises(CallRefused, match="needs a running pod"):
        await asyncio.to_thread(ask)


async def test_a_thread_of_the_plugin_s_own_works_for_the_pod_that_came_last() -> None:
    first, second = (
        runtime_of(ScriptedClient([]), "first"),
        runtime_of(ScriptedClient([]), "second"),
    )
    activate(first)
    activate(second)
    try:
        assert await in_a_thread_of_its_own(seen) == "second"
        with use_runtime(first):
            assert await asyncio.to_thread(seen) == "first"
            assert await in_a_thread_of_its_own(seen) == "second"

        deactivate(second)
        deactivate(second)
        assert await in_a_thread_of_its_own(seen) == "first"
    finally:
        deactivate(first)
        deactivate(second)

    assert await in_a_thread_of_its_own(seen) is None


def seen() -> str | None:
    runtime = current_runtime()
    return runtime.engine if runtime else None


async def in_a_thread_of_its_own(function: Callable[[], str | None]) -> str | None:
    """What `function` gives in a thread that has nobody's context."""
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    await asyncio.to_thread(thread.join)
    return found[0]


# ------------------------------------------------------------------ which client


def section(kind: str = "openai_compatible", model: str = "big") -> FallbackProvider:
    return FallbackProvider.model_validate(
        {"kind": kind, "model": model, "base_url": "http://127.0.0.1:1/v1", "context_window": 9_000}
    )


class Clients:
    """Task clients over two scripted ones, and the sections that more were asked for by."""

    def __init__(self, kind: str = "openai_compatible", **auxiliary: Any) -> None:
        self.own = ScriptedClient([], model="big")
        self.summaries = ScriptedClient([], model="small")
        self.built: list[FallbackProvider] = []
        self.clients = TaskClients(
            own=lambda: self.own,
            summaries=lambda: self.summaries,
            sections=(section(), section(model="small"))
            if kind != "scripted"
            else (scripted(),) * 2,
            build=self.build,
            config={"auxiliary": auxiliary},
        )

    def build(self, wanted: FallbackProvider) -> ScriptedClient:
        self.built.append(wanted)
        return ScriptedClient([], model=wanted.model or "")


def scripted() -> FallbackProvider:
    return FallbackProvider.model_validate({"kind": "scripted", "script": "s.jsonl"})


async def test_a_call_goes_to_the_pod_s_client_and_a_summary_to_its_own() -> None:
    some = Clients()
    assert some.clients("", "") is some.own
    assert some.clients("extraction", "") is some.own
    assert some.clients("compression", "") is some.summaries
    assert some.clients("compression", "big") is some.own
    assert some.clients("", "small") is some.summaries
    assert not some.built


async def test_another_model_is_asked_on_the_same_server_by_one_client() -> None:
    some = Clients(extraction={"model": "tiny"})
    tiny = some.clients("extraction", "")
    assert (tiny.model, some.clients("extraction", "") is tiny) == ("tiny", True)
    assert some.clients("extraction", "other").model == "other"
    assert [(made.model, made.base_url) for made in some.built] == [
        ("tiny", "http://127.0.0.1:1/v1"),
        ("other", "http://127.0.0.1:1/v1"),
    ]
    assert some.built[0].context_window is None, "that is the other model's"
    await some.clients.aclose()
    assert some.clients("extraction", "") is not tiny


async def test_one_script_or_file_has_no_other_model() -> None:
    some = Clients("scripted")
    assert some.clients("", "anything") is some.own
    assert not some.built


# What a plugin's folder is imported as: its thread asks from a module of that name.
ASKING = """
import threading
from agent.auxiliary_client import call_llm

def ask(said):
    def work():
        try:
            answer = call_llm(messages=[{"role": "user", "content": "hello"}])
            said.append(answer.choices[0].message.content)
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
"""


def asking(name: str) -> Callable[[list[object]], None]:
    install()
    module: dict[str, Any] = {"__name__": f"{PLUGINS_PACKAGE}.{name}_0123abcd"}
    exec(ASKING, module)  # noqa: S102  a module of a name that the test chooses
    ask: Callable[[list[object]], None] = module["ask"]
    return ask


async def test_a_thread_of_a_plugins_own_asks_the_pod_that_has_the_plugin() -> None:
    runtimes = [
        runtime_of(ScriptedClient([{"text": f"I am {name}"}]), name) for name in ("one", "t.wo")
    ]
    said: list[object] = []
    with ExitStack() as undo:
        for runtime in runtimes:
            activate(runtime)
            undo.callback(deactivate, runtime)

        for name in ("one", "t_wo"):
            await asyncio.to_thread(asking(name), said)

    assert said == ["I am one", "I am t.wo"]


async def test_of_two_pods_with_the_plugin_none_is_asked_for_the_other() -> None:
    runtimes = [runtime_of(ScriptedClient([{"text": "mine"}]), "both") for _ in range(2)]
    said: list[object] = []
    with ExitStack() as undo:
        for runtime in runtimes:
            activate(runtime)
            undo.callback(deactivate, runtime)

        await asyncio.to_thread(asking("both"), said)

    (error,) = said
    assert isinstance(error, CallRefused)
    assert "copy_context" in str(error)
    assert [runtime.completions.requests for runtime in runtimes] == [0, 0]
