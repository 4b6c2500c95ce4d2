"""One request and its answer: what is sent, what streams back, and what of it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, assert_never

from .answers import message_of, nothing_said, partial_message
from .errors import BadAnswer, StreamBroken
from .items import AssistantMessage, Text
from .llm.types import (
    Answer,
    Answered,
    LlmRequest,
    ReasoningDelta,
    Retrying,
    StreamEvent,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallDone,
    ToolCallStart,
)
from .ports import Alert, Ref, RequestStart, Selection, TextDone, UsageMeasured, UsageRecord
from .projection import repair
from .text import is_blank

if TYPE_CHECKING:
    from .progress import RunProgress
    from .worker import Worker


class Exchange:
    """Asks a worker's model, one request at a time, and journals what it answers."""

    def __init__(self, worker: Worker, progress: RunProgress) -> None:
        self.worker = worker
        self.progress = progress
        self._streamed: list[str] = []

    async def ask(self) -> AssistantMessage:
        """Send the history as it stands and return the answer, which has joined it.

        Raises `ProviderError`s as the client does; the visible text of a stream that broke off is
        in the history then.
        """
        request = await self._project()
        self.progress.requests += 1
        occupancy = self.worker.occupancy().tokens
        self.worker.ports.emit(RequestStart(self.progress.requests, occupancy), None)
        history_len = len(self.worker.history)
        try:
            answer = await self._stream(request)
        except StreamBroken as error:
            await self.keep_partial(error.partial)
            raise

        self._streamed.clear()
        return await self._take(answer, history_len)

    async def keep_partial(self, partial: Answer | None = None) -> None:
        """Journal the visible text of an answer that broke off; never its half-made calls."""
        received = "".join(p.text for p in partial.parts if isinstance(p, Text)) if partial else ""
        text = received or "".join(self._streamed)
        self._streamed.clear()
        if is_blank(text):
            return

        message = partial_message(text, self.worker.client)
        message, refs = await self.worker.admit("assistant_items", message)
        self._tell(message, refs[0])

    async def _project(self) -> LlmRequest:
        worker = self.worker
        sent = projected = Selection(worker.project())
        for stage in worker.ports.stages:
            # Each stage has a list of its own: what it does to it stays there.
            chosen = await stage.select(worker, list(sent.items))
            if chosen is None:
                continue

            items = repair(chosen.items)
            if items:
                sent = Selection(items, sent.system if chosen.system is None else chosen.system)
            else:
                text = "a selection left nothing to send; the whole history is sent instead"
                worker.ports.emit(Alert("warning", text), None)

        raw = None
        if sent is not projected:
            # What an engine selected is measured on its own: it says nothing of the whole.
            raw = worker.meter.fixed_raw + sum(map(worker.meter.weigh_raw, sent.items))

        worker.meter.request_sent(raw)
        return worker.request(sent, self.progress.output)

    async def _stream(self, request: LlmRequest) -> Answer:
        async with aclosing(self.worker.client.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, Answered):
                    return event.answer

                self._pass_on(event)

        message = "the stream ended without its last event"
        raise BadAnswer(message, provider=self.worker.client.provider)

    def _pass_on(self, event: StreamEvent) -> None:
        emit = self.worker.ports.emit
        match event:
            case TextDelta():
                self._streamed.append(event.text)
                emit(event, None)
            case ReasoningDelta() | ToolCallStart() | ToolCallArgsDelta() | Retrying():
                emit(event, None)
            case ToolCallDone() | Answered():
                pass  # Told with its entry, once the intent is in the journal.
            case _:
                assert_never(event)

    async def _take(self, answer: Answer, history_len: int) -> AssistantMessage:
        """Journal an answer and its usage together, then tell of both."""
        worker, usage = self.worker, answer.usage
        records: list[UsageRecord] = []
        cost: float | None = None
        if usage is not None:
            cost = worker.ports.price(usage, worker.client, answer.model)
            records.append(UsageRecord(history_len, usage, answer.model, cost))
            worker.meter.measured(usage.input_tokens or 0)
            self.progress.add(usage, cost)

        message = message_of(answer, worker.client)
        if message is None:
            refs = await worker.commit(*records)
            await self._tell_usage(records, refs)
            cap = worker.config.options.max_tokens
            raise nothing_said(answer, worker.client.provider, cap)

        message, refs = await worker.admit("assistant_items", message, *records)
        self._tell(message, refs[0])
        await self._tell_usage(records, refs[1:])
        if answer.stop_reason == "max_tokens":
            cap = worker.config.options.max_tokens
            text = f"the answer was cut at the output cap (max_tokens = {cap})"
            worker.ports.emit(Alert("warning", text), None)

        return message

    def _tell(self, message: AssistantMessage, ref: Ref) -> None:
        emit = self.worker.ports.emit
        if message.text:
            emit(TextDone(message.text), ref)

        for call in message.tool_calls:
            emit(ToolCallDone(call.call_id, call.name, call.arguments), ref)

    async def _tell_usage(self, records: Sequence[UsageRecord], refs: Sequence[Ref]) -> None:
        for record, ref in zip(records, refs, strict=True):
            event = UsageMeasured(record.usage, record.model, record.cost)
            self.worker.ports.emit(event, ref)
            await self.worker.report_usage(record.usage, record.model)
