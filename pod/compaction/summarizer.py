"""The summarizer Worker: no tools, its own system prompt, its own client, temperature 0."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable

from attrs import define, field

from pod.compaction.prompts import grammar
from pod.compaction.summary import SummaryAnswer, SummaryCall
from worker.errors import BadAnswer
from worker.items import AssistantMessage
from worker.llm.types import LlmClient, RequestOptions, Usage
from worker.ports import Ports, Ref, WorkerEvent
from worker.worker import Worker, WorkerConfig


def _nothing() -> None:
    """Take a sign of life and do nothing."""


@define(eq=False)
class Summarizer:
    """Answers `SummaryCall`s. Called from any thread but the event loop's; blocks until answered.

    `on_progress` hears every sign of life of the model. `cancel` ends a call that is under way.
    """

    client: Callable[[], LlmClient]
    loop: asyncio.AbstractEventLoop
    use_grammar: bool = False
    on_progress: Callable[[], None] = _nothing
    _pending: concurrent.futures.Future[SummaryAnswer] | None = field(default=None, init=False)

    def __call__(self, call: SummaryCall) -> SummaryAnswer:
        """Ask the model and return its answer. Raises `WorkerError`s."""
        future = asyncio.run_coroutine_threadsafe(self.ask(call), self.loop)
        self._pending = future
        try:
            return future.result()
        finally:
            self._pending = None

    def cancel(self) -> None:
        """End the call that is under way, if any."""
        if self._pending is not None:
            self._pending.cancel()

    async def ask(self, call: SummaryCall) -> SummaryAnswer:
        """Ask the model, on the event loop, by a Worker made for this one call."""
        client = self.client()
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
        measured: list[Usage] = []
        worker.on_usage(lambda usage, _model: measured.append(usage))
        try:
            result = await worker.run(call.user)
        except BadAnswer as error:
            # Nothing visible is an answer too: one that the checks will refuse.
            return SummaryAnswer("", error.code or "end", _newest(measured), client.model)

        last = worker.history[-1]
        stop_reason = last.stop_reason if isinstance(last, AssistantMessage) else "end"
        model = last.model if isinstance(last, AssistantMessage) else client.model
        return SummaryAnswer(result.text, stop_reason, result.usage, model)

    def _heard(self, _event: WorkerEvent, _ref: Ref) -> None:
        self.on_progress()


def _newest(measured: list[Usage]) -> Usage:
    return measured[-1] if measured else Usage(0, 0, 0, 0)
