"""The Worker: one history, one model, some tools, and runs over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

import anyio
from attrs import evolve, field, frozen

from .cleaning import clean_item
from .errors import HistoryError, ToolDefinitionError, WorkerError
from .foreign import Failure, attempt, uninterrupted
from .hooks import Hook, Hooks
from .items import (
    AssistantMessage,
    Item,
    ToolCall,
    ToolResult,
    UserMessage,
    user_message,
)
from .llm.types import LlmClient, LlmRequest, RequestOptions, Usage
from .output import OutputType
from .ports import (
    Alert,
    ItemsKind,
    ItemsRecord,
    ItemT,
    Ports,
    PruneApplied,
    PruneRecord,
    Record,
    Ref,
    Selection,
    ToolResulted,
)
from .progress import Outcome, RunEnd, RunProgress
from .projection import Projector, has_substance
from .prune import PrunePlan, apply_prune
from .run import Runner
from .tokens import DATA_BYTES_PER_TOKEN, Occupancy, TokenMeter, fixed_tokens
from .tools import Tool

UsageCallback: TypeAlias = Callable[[Usage, str], None]


@frozen
class WorkerConfig:
    """The limits and knobs of a worker; every limit is of one run."""

    options: RequestOptions = field(factory=RequestOptions)
    max_requests: int | None = 200
    max_tokens_used: int | None = None
    max_cost: float | None = None
    """In US dollars, as `Ports.price` tells; what it cannot tell counts as nothing."""
    max_seconds: float | None = None
    tool_timeout_s: float = 120.0
    tool_output_max_bytes: int = 65_536
    native_schema: bool = False
    """Whether the model takes a response schema; otherwise typed output is asked for in words."""
    yield_on_overflow: bool = False
    """Whether a prompt that is too long ends the run as `yielded`, for somebody who compacts."""


@frozen
class WorkerResult:
    """How a run ended. `yielded_for` and `overflow` say why, when the outcome is `yielded`."""

    outcome: Outcome
    text: str
    usage: Usage
    requests: int
    output: Any = None
    message: str = ""
    yielded_for: str = ""
    overflow: Exception | None = None
    cost: float | None = None
    """In US dollars, where it is known."""


class Worker:
    """A turn loop around a streaming model client.

    The history only grows, except by `set_history`. Everything is journaled before it joins the
    history, and joins the history before it is sent. One run at a time.
    """

    def __init__(
        self,
        client: LlmClient,
        *,
        system_prompt: str = "",
        tools: Iterable[Tool] = (),
        hooks: Iterable[Hook] = (),
        config: WorkerConfig | None = None,
        ports: Ports | None = None,
    ) -> None:
        """Make a worker with an empty history.

        Raises:
            ToolDefinitionError: Two tools share a name.
        """
        self.client = client
        self.system_prompt = system_prompt
        self.config = config or WorkerConfig()
        self.ports = ports or Ports()
        self.hooks = Hooks(tuple(hooks), on_ignored=self._warn)
        self.tools = _by_name(tools)
        self.tool_specs = tuple(tool.spec for _, tool in sorted(self.tools.items()))
        self.turns = 0
        self.turn_is_open = False
        self._history: list[Item] = []
        self._watermark = 0
        self._uids: set[str] = set()
        self._committing = anyio.Lock()
        self._cap_bytes = self._content_cap()
        self._projector = Projector(self._cap_bytes)
        self.meter = TokenMeter(content_max_bytes=self._cap_bytes)
        self.meter.fixed_raw = fixed_tokens(system_prompt, self.tool_specs)
        self._usage_callbacks: list[UsageCallback] = []
        self._progress: RunProgress | None = None
        self._runner: Runner | None = None
        self._paused = self._yielded = False

    # ------------------------------------------------------------------ history

    @property
    def history(self) -> Sequence[Item]:
        """The items so far, oldest first. A live view: do not change it; use `set_history`."""
        return self._history

    @property
    def watermark(self) -> int:
        """The index before which tool results are sent without their content."""
        return self._watermark

    def set_history(
        self, items: Iterable[Item], *, watermark: int = 0, turns: int | None = None
    ) -> None:
        """Replace the whole history. Measurements are forgotten; the fitted token ratio stays.

        Raises:
            HistoryError: Two items share a uid, or the watermark lies outside the history.
            WorkerError: A run is going on.
        """
        if self._runner is not None:
            message = "the history cannot be replaced while a run is going on"
            raise WorkerError(message)

        fresh = list(items)
        uids = {item.uid for item in fresh}
        if len(uids) != len(fresh):
            message = "two items of the history share a uid"
            raise HistoryError(message)

        if not 0 <= watermark <= len(fresh):
            message = f"the watermark {watermark} lies outside a history of {len(fresh)} items"
            raise HistoryError(message)

        self._history, self._uids, self._watermark = fresh, uids, watermark
        if turns is not None:
            self.turns = turns

        self._projector.reset()
        self.meter.reset(apply_prune(fresh, watermark))

    async def commit(self, *records: Record) -> Sequence[Ref]:
        """Journal the records, then let their items join the history. The only way in.

        Every item is cleaned and passes `Ports.intake` first. Cancelling does not tear the two
        steps apart. Raises `HistoryError` on a uid that is known already, and what the journal
        raises; nothing joins the history then.
        """
        _, refs = await uninterrupted(self._commit(records))
        return refs

    async def admit(
        self, kind: ItemsKind, item: ItemT, *also: Record
    ) -> tuple[ItemT, Sequence[Ref]]:
        """Commit one item, and other records with it; returns the item as it was kept, and refs."""
        kept, refs = await uninterrupted(self._commit((ItemsRecord(kind, (item,)), *also)))
        return cast("tuple[ItemT]", kept)[0], refs

    async def admit_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Commit what a call came to and tell of it; returns the result as it was kept."""
        result, refs = await self.admit("tool_results", result)
        event = ToolResulted(
            call.call_id, call.name, result.summary, result.content, result.is_error
        )
        self.ports.emit(event, refs[0])
        return result

    async def _commit(self, records: Sequence[Record]) -> tuple[list[Item], Sequence[Ref]]:
        # One at a time: the history has the journal's order, also for calls that end together.
        async with self._committing:
            kept = [self._as_kept(record) for record in records]
            items = [item for r in kept if isinstance(r, ItemsRecord) for item in r.items]
            self._check_new(items)
            refs = await self.ports.journal.commit(*kept)
            for item in items:
                self._history.append(item)
                self._uids.add(item.uid)
                self.meter.add(item)

        return items, refs

    def _as_kept(self, record: Record) -> Record:
        if not isinstance(record, ItemsRecord):
            return record

        return evolve(record, items=tuple(map(self.as_kept, record.items)))

    def as_kept(self, item: Item) -> Item:
        """Return an item as the history would keep it: cleaned, and past `Ports.intake`."""
        return self.ports.intake(clean_item(item))

    async def advance_watermark(self, plan: PrunePlan, reason: str) -> None:
        """Journal a prune and send everything before its watermark without content from now on.

        Raises:
            ValueError: The plan's watermark is not ahead of the present one, or not in the history.
        """
        if not self._watermark < plan.watermark <= len(self._history):
            message = (
                f"a watermark only moves forward: {plan.watermark} is not within"
                f" {self._watermark + 1} and {len(self._history)}"
            )
            raise ValueError(message)

        before = apply_prune(self._history[: plan.watermark], self._watermark)
        upto_uid = self._history[plan.watermark].uid if plan.watermark < len(self._history) else ""
        record = PruneRecord(plan.watermark, upto_uid, plan.items, plan.est_savings, reason)
        (ref,) = await self.commit(record)
        after = apply_prune(before, plan.watermark)
        self.meter.remove_raw(
            sum(
                self.meter.weigh_raw(old) - self.meter.weigh_raw(new)
                for old, new in zip(before, after, strict=True)
                if old is not new
            )
        )
        self._watermark = plan.watermark
        event = PruneApplied(plan.watermark, plan.items, plan.est_savings, reason)
        self.ports.emit(event, ref)

    def open_calls(self) -> list[ToolCall]:
        """Return the calls of the newest answer that have no result yet."""
        answered: set[str] = set()
        for item in reversed(self._history):
            if isinstance(item, ToolResult):
                answered.add(item.call_id)
            elif isinstance(item, AssistantMessage):
                return [call for call in item.tool_calls if call.call_id not in answered]
            elif isinstance(item, UserMessage):
                return []

        return []

    # ------------------------------------------------------------------ requests

    def project(self) -> list[Item]:
        """Return the items that a request over the history as it stands would hold."""
        return self._projector.project(self._history, self._watermark)

    def request(self, sent: Selection, output: OutputType | None = None) -> LlmRequest:
        """Return the request for `sent`, with this worker's prompt, tools and options."""
        options = self.config.options
        if output is not None and self.config.native_schema:
            options = evolve(options, response_schema=output.schema)

        system = self.system_prompt if sent.system is None else sent.system
        return LlmRequest(system, sent.items, self.tool_specs, options)

    def occupancy(self) -> Occupancy:
        """Return the tokens that the next request's prompt would take, and how that is known."""
        return self.meter.occupancy()

    def on_usage(self, callback: UsageCallback) -> Callable[[], None]:
        """Call `callback(usage, model)` after every measured request. Returns how to stop it."""
        self._usage_callbacks.append(callback)

        def stop() -> None:
            if callback in self._usage_callbacks:
                self._usage_callbacks.remove(callback)

        return stop

    async def report_usage(self, usage: Usage, model: str) -> None:
        """Tell every `on_usage` callback of a measured request; one that raises is an alert."""
        for callback in tuple(self._usage_callbacks):

            async def told(callback: UsageCallback = callback) -> None:
                callback(usage, model)

            failed = await attempt(told)
            if isinstance(failed, Failure):
                self._warn(f"an on_usage callback raised {failed}")

    # ------------------------------------------------------------------ runs

    async def run(
        self, prompt: str | UserMessage, *, output: type[Any] | None = None
    ) -> WorkerResult:
        """Submit `prompt` and make requests until the model is done.

        Calls of an earlier run that never got a result are first given an error result; they are
        never run again. With `output`, the answer is validated as that type and repaired once.

        Raises:
            ValueError: The prompt shows nothing.
            WorkerError: A run is going on, a hook failed, the output did not validate, or the
                provider failed; what had happened until then stays in the history.
        """
        message = user_message(prompt) if isinstance(prompt, str) else prompt
        if not any(map(has_substance, message.parts)):
            text = "the prompt is empty"
            raise ValueError(text)

        expected = OutputType(output) if output is not None else None
        progress = RunProgress(self.ports.clock(), prompt=message, output=expected)
        return await self._drive(progress)

    async def resume(self) -> WorkerResult:
        """Go on where the last run stopped: paused, yielded, cancelled, at a limit or interrupted.

        A paused run's calls, which were never started, run now; calls of any other kind of stop
        get an `interrupted` error result instead. Limits and sums count on after `yielded`, and
        begin anew otherwise; the `output` that was asked for stays. Raises as `run` does.
        """
        progress = self._progress or RunProgress(self.ports.clock())
        return await self._drive(
            progress if self._yielded else progress.successor(self.ports.clock())
        )

    def restore_paused(self) -> None:
        """Say that the history was left by a paused run: its open calls were never started."""
        self._paused = self.turn_is_open = True

    def cancel(self) -> None:
        """Stop the run now: streams are closed, tools cancelled, every call gets a result."""
        if self._runner is not None:
            self._runner.cancel()

    def pause(self) -> None:
        """Stop the run before its next request; `resume` goes on."""
        if self._runner is not None:
            self._runner.pause_requested = True

    async def _drive(self, progress: RunProgress) -> WorkerResult:
        if self._runner is not None:
            message = "a run is going on already"
            raise WorkerError(message, hint="wait for its end, or cancel it")

        progress.calls_never_ran, self._paused = self._paused, False
        self._runner = Runner(self, progress)
        self._progress, self._yielded = progress, False
        try:
            end = await self._runner.run()
        finally:
            self._runner = None

        self._paused = end.outcome == "paused"
        self._yielded = end.outcome == "yielded"
        return _result(end, progress)

    # ------------------------------------------------------------------ inside

    def start_turn(self) -> None:
        """Count a turn that begins."""
        self.turns += 1
        self.turn_is_open = True

    def _check_new(self, items: Sequence[Item]) -> None:
        fresh: set[str] = set()
        for item in items:
            if item.uid in self._uids or item.uid in fresh:
                message = f"an item with uid {item.uid} is in the history already"
                raise HistoryError(message)

            fresh.add(item.uid)

    def _content_cap(self) -> int:
        """Return how much one result may bring in: at most a quarter of the window."""
        cap = self.config.tool_output_max_bytes
        window = self.client.context_window
        return cap if window is None else min(cap, int(window / 4 * DATA_BYTES_PER_TOKEN))

    def _warn(self, message: str) -> None:
        self.ports.emit(Alert("warning", message), None)


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named:
            message = f"two tools are named {tool.name}"
            raise ToolDefinitionError(message, hint="give one of them another name")

        named[tool.name] = tool

    return named


def _result(end: RunEnd, progress: RunProgress) -> WorkerResult:
    return WorkerResult(
        end.outcome,
        end.text,
        progress.usage,
        progress.requests,
        end.output,
        end.message,
        end.yielded_for,
        end.overflow,
        progress.cost,
    )
