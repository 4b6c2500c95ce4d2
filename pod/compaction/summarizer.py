"""The summarizer Worker: no tools, its own system prompt, its own client, temperature 0."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from attrs import define, field

from pod.compaction.plan import CompactionError
from pod.compaction.prompts import grammar
from pod.compaction.summary import SummaryAnswer, SummaryCall
from worker.errors import BadAnswer
from worker.items import Text
from worker.llm.types import (
    Answer,
    Answered,
    LlmClient,
    LlmRequest,
    RequestOptions,
    StreamEvent,
    Usage,
)
from worker.ports import Ports, Ref, WorkerEvent
from worker.worker import Worker, WorkerConfig

T = TypeVar("T")


def _nothing() -> None:
    """Take a sign of life and do nothing."""


@define(eq=False)
class _Attempt:
    """One compaction's leave to ask the model. It ends with the attempt, in whatever thread."""

    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _pending: set[Future[Any]] = field(factory=set, init=False)
    _is_over: bool = field(default=False, init=False)

    def begin(self, ask: Callable[[], Future[T]]) -> Future[T]:
        """Have a call made and return its future. Raises `CompactionError` once it is over."""
        with self._lock:
            if self._is_over:
                raise CompactionError("cancelled", "cancelled")

            future = ask()
            self._pending.add(future)

        future.add_done_callback(self._forget)
        return future

    def end(self) -> None:
        """End the calls that are under way, and let no other begin."""
        with self._lock:
            self._is_over = True
            pending = list(self._pending)

        for future in pending:
            future.cancel()

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._pending.discard(future)


_attempt: ContextVar[_Attempt | None] = ContextVar("pod.compaction.attempt", default=None)
"""The attempt that the present code works for; threads of the pools take it over."""


def within_attempt(ask: Callable[[], Future[T]]) -> Future[T]:
    """Have a model asked for the compaction that the present code works for, if it does for one.

    The call is given up with the compaction. Raises `CompactionError` where that is over.
    """
    return (_attempt.get() or _Attempt()).begin(ask)


@define(eq=False)
class Summarizer:
    """Answers `SummaryCall`s. Called from any thread but the event loop's; blocks until answered.

    `on_progress` hears every sign of life of the model.
    """

    client: Callable[[], LlmClient]
    loop: asyncio.AbstractEventLoop
    use_grammar: bool = False
    on_progress: Callable[[], None] = _nothing

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Let what is begun inside ask the model, and nothing of it after the end of the block."""
        mine = _Attempt()
        token = _attempt.set(mine)
        try:
            yield
        finally:
            _attempt.reset(token)
            mine.end()

    def __call__(self, call: SummaryCall) -> SummaryAnswer:
        """Ask the model and return its answer.

        Raises:
            WorkerError: The request failed.
            CompactionError: The attempt that this call belongs to is over (`cancelled`).
        """

        def ask() -> Future[SummaryAnswer]:
            return asyncio.run_coroutine_threadsafe(self.ask(call), self.loop)

        try:
            return within_attempt(ask).result()
        except FutureCancelled as error:
            raise CompactionError("cancelled", "cancelled") from error

    async def ask(self, call: SummaryCall) -> SummaryAnswer:
        """Ask the model, on the event loop, by a Worker made for this one call."""
        client = _Overheard(self.client())
        options = RequestOptions(
            max_tokens=call.max_tokens,
            temperature=0.0,
            grammar=grammar() if self.use_grammar else None,
        )
        worker = Worker(
            client,
            system_prompt=call.system,
            config=WorkerConfig(options=options, max_requests=1),
            ports=Ports(emit=self._heard),
        )
        try:
            await worker.run(call.user)
        except BadAnswer:
            # An answer that shows nothing is one that the checks will refuse; no answer is not.
            if client.answer is None:
                raise

        answer = client.answer
        assert answer is not None  # noqa: S101  without one, `run` has raised
        text = "".join(part.text for part in answer.parts if isinstance(part, Text))
        usage = answer.usage or Usage()
        return SummaryAnswer(text, answer.stop_reason, usage, answer.model or client.model)

    def _heard(self, _event: WorkerEvent, _ref: Ref) -> None:
        self.on_progress()


@define(eq=False)
class _Overheard:
    """A client that keeps the answer which passes through it."""

    _client: LlmClient
    answer: Answer | None = field(default=None, init=False)

    @property
    def provider(self) -> str:
        return self._client.provider

    @property
    def model(self) -> str:
        return self._client.model

    @property
    def context_window(self) -> int | None:
        return self._client.context_window

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(self._client.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, Answered):
                    self.answer = event.answer

                yield event

    async def aclose(self) -> None:
        """Nothing: the client belongs to whoever made it."""
