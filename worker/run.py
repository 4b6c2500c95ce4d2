"""One run: prompt, requests, tool calls, and how it ends. Driven by `Worker.run` and `resume`."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, assert_never

import anyio
from attrs import define, evolve, field, frozen

from worker.calls import CallBatch
from worker.errors import BadAnswer, ContextOverflow, OutputInvalid, StreamBroken, WorkerError
from worker.hooks import (
    Abort,
    AbortView,
    Cancel,
    ContinueWith,
    HookPoint,
    Pause,
    PromptView,
    RequestView,
    TurnEndView,
    Yield,
)
from worker.items import (
    AssistantMessage,
    Item,
    Reasoning,
    SystemNote,
    Text,
    ToolCall,
    UserMessage,
    new_uid,
    user_message,
)
from worker.llm.types import (
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
    Usage,
)
from worker.output import NotTheOutput, OutputType
from worker.ports import (
    Alert,
    ItemsRecord,
    RequestStart,
    Selection,
    TextDone,
    ToolResulted,
    TurnEnd,
    TurnEndRecord,
    TurnStart,
    UsageMeasured,
    UsageRecord,
)
from worker.projection import interrupted_result
from worker.text import clean_text, is_blank

if TYPE_CHECKING:
    from worker.worker import Worker

CANCELLED_SUMMARY = "cancelled: the run was stopped before this call had a result"


@define
class RunProgress:
    """What a run has used so far; it lives on when the run yields and is resumed."""

    started_s: float
    prompt: UserMessage | None = None
    output: OutputType | None = None
    requests: int = 0
    usage: Usage = field(factory=lambda: Usage(0, 0, 0, 0))
    repaired: bool = False
    run_open_calls: bool = False

    def add(self, usage: Usage) -> None:
        """Add one request's tokens to the run's sum."""
        self.usage = Usage(
            (self.usage.input_tokens or 0) + (usage.input_tokens or 0),
            (self.usage.output_tokens or 0) + (usage.output_tokens or 0),
            (self.usage.cache_read or 0) + (usage.cache_read or 0),
            (self.usage.cache_write or 0) + (usage.cache_write or 0),
        )


@frozen
class RunEnd:
    """How a run ended."""

    outcome: Literal["finished", "paused", "limit_reached", "yielded", "cancelled"]
    text: str = ""
    output: Any = None
    message: str = ""
    yielded_for: str = ""
    overflow: Exception | None = None


class Runner:
    """Drives one run of a worker to its end."""

    def __init__(self, worker: Worker, progress: RunProgress) -> None:
        self.worker = worker
        self.progress = progress
        self.pause_requested = False
        self._scope = anyio.CancelScope()
        self._streamed: list[str] = []

    def cancel(self) -> None:
        """Stop the run now."""
        self._scope.cancel()

    async def run(self) -> RunEnd:
        """Run to the end and return how it ended; raises `WorkerError`s and what a journal raises."""
        try:
            with self._scope:
                return await self._from_the_start()
        except anyio.get_cancelled_exc_class():
            # The task itself is being cancelled: leave the history whole, then go.
            with anyio.CancelScope(shield=True):
                await self._clean_up(CANCELLED_SUMMARY)
            raise
        except Exception as error:
            with anyio.CancelScope(shield=True):
                await self._give_up(error)
            raise

        with anyio.CancelScope(shield=True):
            await self._clean_up(CANCELLED_SUMMARY)
            await self.worker.hooks.ask(HookPoint.ON_ABORT, AbortView("cancelled"))
        return RunEnd("cancelled", message="cancelled")

    # ------------------------------------------------------------------ the start

    async def _from_the_start(self) -> RunEnd:
        stopped = await self._settle_open_calls()
        if stopped is None and self.progress.prompt is not None:
            prompt, self.progress.prompt = self.progress.prompt, None
            stopped = await self._submit(prompt)
        elif stopped is None and (done := self._nothing_to_do()):
            return done

        return stopped or await self._loop()

    async def _settle_open_calls(self) -> RunEnd | None:
        calls = self.worker.open_calls()
        if not calls:
            return None

        if self.progress.run_open_calls and self.progress.prompt is None:
            return await self._run_calls(calls)

        for call in calls:
            result = interrupted_result(call, new_uid())
            await self._commit_result(call, result)

        return None

    async def _submit(self, prompt: UserMessage) -> RunEnd | None:
        prompt = self.worker.ports.intake(_cleaned(prompt))
        action = await self.worker.hooks.ask(HookPoint.ON_PROMPT_SUBMIT, PromptView(prompt.text))
        if isinstance(action, Cancel):
            return RunEnd("cancelled", message=action.reason)

        await self.worker.commit(ItemsRecord("user_input", (prompt,)))
        self.worker.turns += 1
        self.worker.ports.emit(TurnStart(self.worker.turns), None)
        if isinstance(action, ContinueWith):
            await self._add_notes(action.notes, action.kind)

        if self.progress.output is not None:
            await self._add_notes((self.progress.output.instruction,), "output")

        return None

    def _nothing_to_do(self) -> RunEnd | None:
        """A resumed run whose last answer was whole has nothing left to ask."""
        last = self.worker.history[-1] if self.worker.history else None
        if last is None:
            message = "there is nothing to resume: the history is empty"
            raise WorkerError(message, hint="run with a prompt instead")

        if not isinstance(last, AssistantMessage) or last.stop_reason == "partial":
            return None

        return None if last.tool_calls else RunEnd("finished", text=last.text)

    # ------------------------------------------------------------------ the loop

    async def _loop(self) -> RunEnd:
        while True:
            if self.pause_requested:
                return RunEnd("paused")

            if limit := self._limit():
                return RunEnd("limit_reached", message=limit)

            prepared = await self._prepare()
            if isinstance(prepared, RunEnd):
                return prepared

            try:
                message = await self._request(prepared)
            except ContextOverflow as error:
                if not self.worker.config.yield_on_overflow:
                    raise

                return RunEnd("yielded", yielded_for="overflow", overflow=error)

            if message.tool_calls:
                end = await self._run_calls(message.tool_calls)
            else:
                end = await self._turn_end(message)

            if end is not None:
                return end

    def _limit(self) -> str:
        """Return the limit that is reached, in words, or nothing."""
        config, progress = self.worker.config, self.progress
        if config.max_requests is not None and progress.requests >= config.max_requests:
            return f"{progress.requests} requests, the limit of one run"

        used = (progress.usage.input_tokens or 0) + (progress.usage.output_tokens or 0)
        if config.max_tokens_used is not None and used >= config.max_tokens_used:
            return f"{used:,} tokens, over the limit of {config.max_tokens_used:,} for one run"

        seconds = time.monotonic() - progress.started_s
        if config.max_seconds is not None and seconds >= config.max_seconds:
            return f"{seconds:.0f} s, over the limit of {config.max_seconds:g} s for one run"

        return ""

    async def _prepare(self) -> LlmRequest | RunEnd:
        worker = self.worker
        view = RequestView(
            len(worker.history), worker.occupancy().tokens, self.progress.requests + 1
        )
        action = await worker.hooks.ask(HookPoint.PRE_LLM_REQUEST, view)
        if isinstance(action, Cancel):
            return RunEnd("cancelled", message=action.reason)

        if isinstance(action, ContinueWith | Yield):
            await self._add_notes(action.notes, "hook")

        if isinstance(action, Yield):
            return RunEnd("yielded", yielded_for=action.reason)

        for stage in worker.ports.stages:
            decided = await stage.before_request(worker)
            if isinstance(decided, Yield):
                return RunEnd("yielded", yielded_for=decided.reason)

        return await self._project()

    async def _project(self) -> LlmRequest:
        worker = self.worker
        sent = projected = Selection(worker.project())
        for stage in worker.ports.stages:
            sent = await stage.select(worker, sent.items) or sent

        raw = None
        if sent is not projected:
            # What an engine selected is measured on its own: it says nothing of the whole.
            raw = worker.meter.fixed_raw + sum(map(worker.meter.weigh_raw, sent.items))

        worker.meter.request_sent(raw)
        return worker.request(sent, self.progress.output)

    async def _request(self, request: LlmRequest) -> AssistantMessage:
        worker = self.worker
        self.progress.requests += 1
        occupancy = worker.occupancy().tokens
        worker.ports.emit(RequestStart(self.progress.requests, occupancy), None)
        history_len = len(worker.history)
        self._streamed.clear()
        try:
            answer = await self._stream(request)
        except StreamBroken as error:
            await self._keep_partial(error.partial)
            raise

        self._streamed.clear()
        return await self._take(answer, history_len)

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
        """Journal an answer and its usage together, then tell of it."""
        worker = self.worker
        usage = answer.usage
        if usage is not None and usage.input_tokens is not None:
            worker.meter.measured(usage.input_tokens)

        records: list[ItemsRecord | UsageRecord] = []
        if usage is not None:
            records.append(UsageRecord(history_len, usage, answer.model))
            self.progress.add(usage)

        message = self._message(answer)
        if message is None:
            if records:
                await worker.commit(*records)
            raise self._empty(answer)

        message = worker.ports.intake(message)
        refs = await worker.commit(ItemsRecord("assistant_items", (message,)), *records)
        self._tell(message, refs[0])
        if usage is not None:
            worker.ports.emit(UsageMeasured(usage, answer.model), refs[1])
            worker.report_usage(usage, answer.model)

        if answer.stop_reason == "max_tokens":
            cap = self.worker.config.options.max_tokens
            text = f"the answer was cut at the output cap (worker.max_tokens = {cap})"
            worker.ports.emit(Alert("warning", text), None)

        return message

    def _message(self, answer: Answer) -> AssistantMessage | None:
        parts = _without_repeats(answer.parts)
        if all(
            isinstance(p, Reasoning) or (isinstance(p, Text) and is_blank(p.text)) for p in parts
        ):
            return None

        client = self.worker.client
        return AssistantMessage(
            new_uid(), parts, client.provider, answer.model or client.model, answer.stop_reason
        )

    def _empty(self, answer: Answer) -> BadAnswer:
        provider = self.worker.client.provider
        if answer.stop_reason == "max_tokens":
            cap = self.worker.config.options.max_tokens
            message = (
                f"the model used up its output cap (worker.max_tokens = {cap}) and said nothing"
            )
            return BadAnswer(message, provider=provider, hint="raise worker.max_tokens")

        if answer.stop_reason in {"refusal", "content_filter"}:
            message = f"the model refused to answer ({answer.stop_reason})"
            return BadAnswer(message, provider=provider, code=answer.stop_reason)

        return BadAnswer("the model answered nothing", provider=provider, hint="try again")

    def _tell(self, message: AssistantMessage, ref: object) -> None:
        emit = self.worker.ports.emit
        if message.text:
            emit(TextDone(message.text), ref)

        for call in message.tool_calls:
            emit(ToolCallDone(call.call_id, call.name, call.arguments), ref)

    # ------------------------------------------------------------------ calls and ends

    async def _run_calls(self, calls: tuple[ToolCall, ...] | list[ToolCall]) -> RunEnd | None:
        action = await CallBatch(self.worker, calls).run()
        match action:
            case Pause():
                return RunEnd("paused")
            case Abort():
                await self.worker.hooks.ask(HookPoint.ON_ABORT, AbortView(action.reason))
                return RunEnd("cancelled", message=action.reason)
            case None:
                return None

    async def _turn_end(self, message: AssistantMessage) -> RunEnd | None:
        output = None
        if self.progress.output is not None:
            try:
                output = self.progress.output.parse(message.text)
            except NotTheOutput as problem:
                await self._repair_output(problem)
                return None

        action = await self.worker.hooks.ask(HookPoint.ON_TURN_END, TurnEndView(message.text))
        match action:
            case Pause():
                return RunEnd("paused", text=message.text)
            case ContinueWith():
                await self._add_notes(action.notes, action.kind)
                return None
            case _:
                (ref,) = await self.worker.commit(TurnEndRecord(self.worker.turns))
                self.worker.ports.emit(TurnEnd(self.worker.turns), ref)
                return RunEnd("finished", text=message.text, output=output)

    async def _repair_output(self, problem: NotTheOutput) -> None:
        assert self.progress.output is not None
        if self.progress.repaired:
            message = f"the answer does not fit the output type, also after one repair: {problem}"
            raise OutputInvalid(message)

        self.progress.repaired = True
        text = self.progress.output.repair_request(problem)
        await self.worker.commit(
            ItemsRecord("user_input", (user_message(text, origin="injected"),))
        )

    async def _add_notes(self, notes: tuple[str, ...], kind: str) -> None:
        items = tuple(
            self.worker.ports.intake(SystemNote(new_uid(), clean_text(note), kind))
            for note in notes
            if not is_blank(note)
        )
        if items:
            await self.worker.commit(ItemsRecord("system_item", items))

    async def _commit_result(self, call: ToolCall, result: Item) -> None:
        (ref,) = await self.worker.commit(ItemsRecord("tool_results", (result,)))
        event = ToolResulted(call.call_id, call.name, getattr(result, "summary", ""), None, True)
        self.worker.ports.emit(event, ref)

    async def _keep_partial(self, partial: Answer | None) -> None:
        """Journal the visible text of an answer that broke off; never its half-made calls."""
        text = "".join(p.text for p in partial.parts if isinstance(p, Text)) if partial else ""
        text = text or "".join(self._streamed)
        self._streamed.clear()
        if is_blank(text):
            return

        client = self.worker.client
        message = AssistantMessage(
            new_uid(), (Text(clean_text(text)),), client.provider, client.model, "partial"
        )
        message = self.worker.ports.intake(message)
        (ref,) = await self.worker.commit(ItemsRecord("assistant_items", (message,)))
        self._tell(message, ref)

    async def _clean_up(self, summary: str) -> None:
        """Leave the history whole after a stop: keep partial text, give every open call a result."""
        await self._keep_partial(None)
        for call in self.worker.open_calls():
            await self._commit_result(call, interrupted_result(call, new_uid(), summary))

    async def _give_up(self, error: Exception) -> None:
        # Only our own errors leave a journal that still takes entries.
        if isinstance(error, WorkerError):
            await self._clean_up(CANCELLED_SUMMARY)
            await self.worker.hooks.ask(HookPoint.ON_ABORT, AbortView(str(error)))


def _cleaned(message: UserMessage) -> UserMessage:
    parts = tuple(
        Text(clean_text(part.text)) if isinstance(part, Text) else part for part in message.parts
    )
    return evolve(message, parts=parts)


def _without_repeats(
    parts: tuple[Text | Reasoning | ToolCall, ...],
) -> tuple[Text | Reasoning | ToolCall, ...]:
    """Drop calls that repeat another's id, name and arguments; give reused ids one of their own."""
    kept: list[Text | Reasoning | ToolCall] = []
    by_id: dict[str, ToolCall] = {}
    for part in parts:
        if not isinstance(part, ToolCall):
            kept.append(part)
            continue

        earlier = by_id.get(part.call_id)
        if earlier is not None:
            if (earlier.name, earlier.arguments) == (part.name, part.arguments):
                continue

            part = evolve(part, call_id=f"{part.call_id}_{len(kept)}", call_uid=new_uid())

        by_id[part.call_id] = part
        kept.append(part)

    return tuple(kept)
