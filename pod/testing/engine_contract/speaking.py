"""The scripted model put where engines look for one: `call_llm`, and the built-in's summarizer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from attrs import frozen

from pod.context.hermes import install
from pod.context.hermes.completion import Completions
from pod.context.hermes.config import default_config
from pod.context.hermes.runtime import HermesRuntime, activate, deactivate, use_runtime
from worker.items import Text
from worker.llm.types import Answer, Answered, LlmRequest, StreamEvent, TextDelta, Usage

from .scripted import ScriptedModel

NAME = "scripted-model"
WINDOW = 128_000

_current: ContextVar[ScriptedModel] = ContextVar("pod_testing_model")


def current_model() -> ScriptedModel:
    """Return the model of the check that is going on.

    Raises:
        LookupError: None is.
    """
    return _current.get()


@contextmanager
def speaking(model: ScriptedModel, home: Callable[[], Path]) -> Iterator[None]:
    """Let engines that are called inside ask `model`, and have `home()` as their own folder."""
    install()
    token = _current.set(model)
    try:
        with _loop() as loop:
            runtime = HermesRuntime(
                engine="",
                config=default_config(),
                completions=Completions(loop, lambda _task, _name: _Client(model)),
                home=home,
                plugins_dir=home() / "plugins",
                session_id=lambda: "session-1",
            )
            activate(runtime)
            try:
                with use_runtime(runtime):
                    yield
            finally:
                deactivate(runtime)
    finally:
        _current.reset(token)


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own, as the pod of an engine does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="model", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()

    await asyncio.gather(*others, return_exceptions=True)


@frozen
class _Client:
    """The scripted model as an `LlmClient`."""

    _said: ScriptedModel
    provider: str = "scripted"
    model: str = NAME
    context_window: int | None = WINDOW

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Yield the model's answer; raise what it raises."""
        text = await asyncio.to_thread(self._said.complete)
        yield TextDelta(text)
        yield Answered(Answer((Text(text),), "end", Usage(10, 10, 0, 0), NAME))

    async def aclose(self) -> None:
        """Hold nothing, so release nothing."""
