"""What plugins ask a model for: through the pod's own clients, from any thread but the loop's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from contextlib import aclosing

from attrs import define, field, frozen

from pod.compaction.summarizer import within_attempt
from pod.context.spending import spent
from worker.errors import WorkerError
from worker.llm.types import Answer, Answered, LlmClient, LlmRequest, Usage

from .chat_shapes import Completion, completion, usage_of

DEFAULT_TIMEOUT_S = 120.0
"""How long a call may take where neither it nor its task says."""


class CallRefused(RuntimeError):
    """A plugin's call to a model was not made, or was given up; the message says why."""


@frozen(kw_only=True)
class PluginCall:
    """One call: what is sent, what for, and how long the answer may take."""

    request: LlmRequest
    task: str = ""
    model: str = ""
    """The model that the plugin names; empty for that of the task."""
    timeout_s: float = DEFAULT_TIMEOUT_S


def _nothing() -> None:
    """Take a sign of life and do nothing."""


@define(eq=False)
class Completions:
    """Makes plugins' calls on the pod's event loop, each on the client that its task comes to.

    `on_progress` hears every sign of life of the model. `usage` and `requests` add up what the
    calls took: they are no requests of the pod's own, and no `usage` event tells of them.
    """

    loop: asyncio.AbstractEventLoop
    client_for: Callable[[str, str], LlmClient]
    """The client for a task and a model's name, either of which may be empty. Asked on the loop."""
    on_progress: Callable[[], None] = _nothing
    usage: Usage = field(factory=Usage, init=False)
    requests: int = field(default=0, init=False)
    _pending: set[Future[Completion]] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _is_closed: bool = field(default=False, init=False)

    def complete(self, call: PluginCall) -> Completion:
        """Return the model's answer; blocks until it is there.

        Raises:
            CallRefused: Made on the event loop, which it would stop, or after the pod has ended; or
                the pod ended, or gave up the compaction that asks.
            TimeoutError: No answer within the call's time.
            WorkerError: The provider failed.
        """
        if _running_loop() is self.loop:
            raise CallRefused(
                "call_llm blocks, and was called on the pod's event loop, which it would stop; "
                "call it from the engine's methods, from a thread, or use async_call_llm"
            )

        try:
            return _counted(within_attempt(lambda: self._begin(call)).result())
        except FutureCancelled as error:
            raise CallRefused("the pod gave up the call: what it was for is over") from error

    async def acomplete(self, call: PluginCall) -> Completion:
        """Return the model's answer, on whatever event loop this runs. Raises as `complete`."""
        if _running_loop() is self.loop:
            return _counted(await self._ask(call))

        try:
            return _counted(await asyncio.wrap_future(within_attempt(lambda: self._begin(call))))
        except FutureCancelled as error:
            raise CallRefused("the pod gave up the call: what it was for is over") from error

    def close(self) -> None:
        """Give up what is under way, and refuse what comes later; idempotent."""
        with self._lock:
            self._is_closed = True
            pending = list(self._pending)

        for future in pending:
            future.cancel()

    def _begin(self, call: PluginCall) -> Future[Completion]:
        with self._lock:
            if self._is_closed or self.loop.is_closed():
                raise CallRefused("the pod that this engine worked for has ended")

            future = asyncio.run_coroutine_threadsafe(self._ask(call), self.loop)
            self._pending.add(future)

        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Future[Completion]) -> None:
        with self._lock:
            self._pending.discard(future)

    async def _ask(self, call: PluginCall) -> Completion:
        client = self.client_for(call.task, call.model)
        deadline = asyncio.timeout(call.timeout_s)
        try:
            async with deadline:
                answer = await self._answer(client, call.request)
        except TimeoutError as error:
            if not deadline.expired():
                raise

            message = f"{client.model} did not answer within {call.timeout_s:g} s"
            raise TimeoutError(message) from error

        self.requests += 1
        self.usage += answer.usage or Usage()
        return completion(answer, client.model)

    async def _answer(self, client: LlmClient, request: LlmRequest) -> Answer:
        async with aclosing(client.stream(request)) as stream:
            async for event in stream:
                self.on_progress()
                if isinstance(event, Answered):
                    return event.answer

        raise WorkerError(f"{client.model} ended its stream without an answer")


def _counted(answer: Completion) -> Completion:
    """Return an answer after noting what it took, in the context of whoever asked."""
    spent(usage_of(answer), answer.model)
    return answer


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
