"""The host of one engine: what a pod asks of it, from its launch to its end.

An engine may be anybody's code: it may block, raise, change what it is given. Nothing of that
reaches the event loop, the history or the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

from attrs import define, evolve, field

from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from pod.context.attempt import tried
from pod.context.bridge import to_messages
from pod.context.calls import CALL_TIMEOUT_S, Around, EngineCalls
from pod.context.compacting import PUT_OFF, Attempt, Compactions, Limits
from pod.context.compressor import Compressor
from pod.context.decisions import Decision, Situation, decide
from pod.context.engine import (
    ContextEngine,
    JsonDict,
    automatic_compaction_status_message,
)
from pod.context.engine_tools import EngineTools
from pod.context.facts import Beginning, ModelFacts
from pod.context.lifecycle import (
    Boundary,
    Settled,
    begin,
    cross,
    introduce,
    settle,
    take_response,
    update_model,
)
from pod.context.notices import Notices
from pod.context.ownership import release_engine
from pod.context.records import SessionRecords
from pod.context.reports import CompressReport
from pod.context.selection import Selector
from pod.context.signature import end_context_engine_session, overrides
from pod.context.status import masked, status_of
from pod.context.threads import CompactionPool
from pod.context.usage import usage_record
from pod.context.words import one_line
from worker.hooks import Action, Continue
from worker.items import Item
from worker.llm.types import Usage
from worker.ports import RequestStage, Selection
from worker.tools import Tool
from worker.worker import Worker

__all__ = ["CALL_TIMEOUT_S", "EngineHost", "ModelFacts"]

T = TypeVar("T")
LONGEST_NAME = 64
"""Of an engine's name, in characters."""
CEILING_S = 600.0
"""How long an engine's compress may take altogether, unless the manifest says otherwise."""


@define(eq=False)
class EngineHost(RequestStage):
    """Drives an engine. Failures of the engine are told by `notice` and otherwise harmless."""

    engine: ContextEngine
    notice: Callable[[str, str], None]
    timeout_s: float
    pool: CompactionPool
    ceiling_s: float = CEILING_S
    around: Around = nullcontext
    """Entered around every call into the engine, in the thread that makes it."""
    records: SessionRecords | None = None
    """What an engine is given to read sessions with."""
    stand_in: Compressor | None = None
    """Makes a digest where the engine cannot compact and the window is full."""
    mask: Callable[[str], str] = str
    """Takes secrets out of what the engine says of itself."""
    call_timeout_s: float = CALL_TIMEOUT_S
    notices: Notices = field(init=False)
    calls: EngineCalls = field(init=False)
    compactions: Compactions = field(init=False)
    _selector: Selector = field(init=False)
    _session: Beginning | None = field(default=None, init=False)
    _model: ModelFacts | None = field(default=None, init=False)
    _status: dict[str, object] = field(factory=dict, init=False)
    _is_let_go: bool = field(default=False, init=False)
    _awaits_usage: bool = field(default=False, init=False)
    """Whether a request went out whose answer was not measured yet."""
    _requests: int = field(default=0, init=False)
    """How many the run has made."""
    _sent_len: int = field(default=0, init=False)
    """How long the history was when the last request went out."""
    _last_usage: JsonDict | None = field(default=None, init=False)
    """The usage of the run's last response, where it had any."""

    def __attrs_post_init__(self) -> None:
        """Set up the parts."""
        builtin = self.builtin
        self.notices = Notices(_name_of(self.engine), self.notice)
        self.calls = EngineCalls(
            self.notices, self.around, builtin is not None, self.call_timeout_s
        )
        limits = Limits(self.timeout_s, self.ceiling_s)
        self.compactions = Compactions(self.engine, builtin, self.calls, self.pool, limits)
        self._selector = Selector(self.engine, self.calls)

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.notices.engine

    @property
    def builtin(self) -> Compressor | None:
        """The engine, if it is the built-in one, which plans natively."""
        # A plugin's engine may well be made of the built-in one, and compacts its own way.
        return self.engine if type(self.engine) is Compressor else None

    @property
    def status(self) -> dict[str, object]:
        """What the engine last said of itself, as plain data."""
        return dict(self._status)

    async def call(self, function: Callable[[], T], *, timeout_s: float) -> T:
        """Return what `function`, a plugin's, returns, called in its turn on the engine's thread.

        Raises what it raises, and otherwise as `EngineThread.call` does.
        """
        return await self.calls.call(function, timeout_s=timeout_s)

    # ------------------------------------------------------------------ life

    async def introduce(self, model: ModelFacts, session_id: str) -> None:
        """Tell a new engine of its model, before its tools are asked for."""
        self._model = model
        work = partial(introduce, self.engine, model, session_id, self.records)
        self.notices.all_failed(await self.calls.guarded("update_model", work) or [])

    async def tools(
        self, history: Callable[[], tuple[Item, ...]], taken: Collection[str] = ()
    ) -> list[Tool]:
        """Return the engine's tools, wrapped; they are given the live messages.

        Those whose name is `taken` are left out, which is told.
        """
        tools = await EngineTools(self.engine, self.calls).offered(history, taken)
        self._status["tools"] = [tool.name for tool in tools]
        return tools

    async def start(self, session: Beginning) -> None:
        """Tell the engine of a session that begins, once `introduce` has been called."""
        assert self._model is not None  # noqa: S101  a launch introduces first
        self._session = session
        work = partial(begin, self.engine, self._model, session, self.records)
        self.notices.all_failed(await self.calls.guarded("on_session_start", work) or [])
        await self.calls.guarded("get_status", self._read_status)

    def moved(self, old_id: str, new_id: str) -> None:
        """Tell the engine, without waiting, that the same history goes on under another id."""
        session, model = self._session, self._model
        if session is None or model is None:
            return

        self._session = branch = evolve(
            session,
            session_id=new_id,
            conversation_id=new_id,
            left=old_id,
            carries_over=True,
            is_first=False,
        )

        def tell() -> None:
            for _, error in begin(self.engine, model, branch, self.records):
                raise error

        self.calls.post("on_session_start", tell)

    async def model_is(self, model: ModelFacts) -> None:
        """Tell the engine of its model where that, or its window, is another than before."""
        if model != self._model:
            self._model = model
            await self.calls.guarded("update_model", update_model, self.engine, model)
            await self.calls.guarded("get_status", self._read_status)

    async def end(self, session_id: str, history: tuple[Item, ...]) -> None:
        """Tell the engine that a session ends; what it was to hear before, it has heard then."""

        def tell() -> None:
            if overrides(self.engine, "on_session_end"):
                end_context_engine_session(self.engine, session_id, to_messages(history))

        await self.calls.guarded("on_session_end", tell)

    def let_go(self) -> None:
        """Leave the engine to other pods, and let its thread end; idempotent."""
        if self._is_let_go:
            return  # By now somebody else may have it.

        self._is_let_go = True
        release = partial(release_engine, self.engine)
        # One that is still at work here is not free for anybody else.
        self.calls.close(lambda: self.compactions.when_free(release))

    # ------------------------------------------------------------------ around requests

    def new_run(self) -> None:
        """Note that a run begins."""
        self._last_usage = None
        self._awaits_usage, self._requests = False, 0
        self.notices.forget(PUT_OFF)

    def after_response(self, usage: Usage) -> None:
        """Hand a response's usage on, without waiting; it is there before the engine is asked."""
        self._awaits_usage = False
        if usage.input_tokens is None:
            self._without_usage()
            return

        self._last_usage = record = usage_record(usage)
        self.calls.post("update_from_response", lambda: take_response(self.engine, dict(record)))
        self.calls.post("get_status", self._read_status)

    def _without_usage(self) -> None:
        self._last_usage = None
        self.calls.post("update_from_response", lambda: take_response(self.engine, None))

    def _settle_usage(self, history: Collection[Item]) -> None:
        """Tell of an answer that came without its usage, if one did."""
        if self._awaits_usage and len(history) > self._sent_len:
            self._without_usage()

        self._awaits_usage = False

    async def wants_compaction(self, situation: Situation) -> Decision:
        """Ask a plugin engine whether it wants to compress now; failing, it does not."""
        self._settle_usage(situation.items)
        decision = await self.calls.guarded("should_compress", decide, self.engine, situation)
        if not isinstance(decision, Decision):
            return Decision()

        self.notices.all_failed(decision.failed)
        if decision.block_reason:
            # With other numbers in it, it is still the same reason.
            reason = re.sub(r"\d+", "#", decision.block_reason)
            self.notices.once(f"blocked: {reason}", decision.block_reason)

        return decision

    async def before_request(self, worker: Worker) -> Action:
        """Nothing: when to compact is asked by the trigger stage."""
        return Continue()

    async def select(self, worker: Worker, items: list[Item]) -> Selection | None:
        """Let an engine that overrides `select_context` choose what this request holds.

        Raises:
            RequestCancelled: The engine cancelled the request.
        """
        chosen = await self._selector.select(worker.history, worker.system_prompt, items)
        self._awaits_usage, self._sent_len = True, len(worker.history)
        self._requests += 1
        return chosen

    async def turn_complete(
        self, history: tuple[Item, ...], *, interrupted: bool, **kwargs: object
    ) -> None:
        """Tell the engine that a run ended, with the last response's usage, or None.

        Whoever interrupted the run does not wait for what the engine makes of it.
        """
        self._settle_usage(history)
        if not overrides(self.engine, "on_turn_complete"):
            return

        usage, requests = self._last_usage, self._requests

        def told() -> None:
            self.engine.on_turn_complete(
                to_messages(history),
                usage=usage,
                api_call_count=requests,
                interrupted=interrupted,
                **kwargs,
            )

        if interrupted:
            self.calls.post("on_turn_complete", told)
        else:
            await self.calls.guarded("on_turn_complete", told)

        self.calls.post("get_status", self._read_status)

    # ------------------------------------------------------------------ compaction

    def has_content(self, request: CompactionRequest) -> bool:
        """Tell whether there is anything to compact; cheap, and no call into a plugin."""
        if self.builtin is not None:
            return self.builtin.cut(request) is not None

        return len(request.items) > 1

    async def finds_content(self, request: CompactionRequest) -> bool:
        """Tell, for a compaction by hand, whether the engine finds anything to compact."""
        if not overrides(self.engine, "has_content_to_compress"):
            return True

        answer = await self.calls.guarded(
            "has_content_to_compress",
            lambda: bool(self.engine.has_content_to_compress(to_messages(request.items))),
        )
        return answer is not False

    async def wants_memory(self, request: CompactionRequest) -> bool:
        """Tell whether memory text is of use: not where the engine will only clean up."""
        is_automatic = request.trigger not in {"manual", "overflow"}
        if not is_automatic or not overrides(self.engine, "pending_compression_operation"):
            return True

        answer = await self.calls.guarded(
            "pending_compression_operation",
            lambda: self.engine.pending_compression_operation(to_messages(request.items)),
        )
        return not (isinstance(answer, str) and answer == "sanitize")

    async def routine_message(self, phase: str, default: str, **context: object) -> str | None:
        """Return what the engine wants said of a compaction: None for nothing special, "" for none.

        `phase` is `preflight` or `compress`.
        """
        ask = partial(
            automatic_compaction_status_message,
            self.engine,
            phase=phase,
            default_message=default,
            **context,
        )
        said = await self.calls.guarded("get_automatic_compaction_status_message", lambda: (ask(),))
        if not said:
            return None  # It failed, which was told.

        return None if said[0] == default else (said[0] or "")

    async def make_plan(self, attempt: Attempt, request: CompactionRequest) -> CompactionPlan:
        """Return the engine's plan, made in the pool from a copy.

        Raises:
            CompactionError: The engine raised, gave nothing, gave up, or took too long.
        """
        return await self.compactions.plan(attempt, request)

    def digest_plan(
        self, request: CompactionRequest, error: CompactionError
    ) -> CompactionPlan | None:
        """Return a plan by digest, in place of what failed; None where there is nothing to cut.

        Blocks for as long as a long history takes to go through.
        """
        return None if self.stand_in is None else self.stand_in.digest_plan(request, error)

    async def boundary(
        self, attempt: Attempt | None, before: tuple[Item, ...], new_id: str, tokens_after: int
    ) -> None:
        """Tell the engine that a compaction was committed, and what it is to know afterwards."""
        session = self._session
        assert session is not None  # noqa: S101  a pod compacts sessions that have started
        self._session = evolve(session, session_id=new_id, left="", is_first=False)
        boundary = Boundary(session.session_id, self._session, before)
        work = partial(cross, self.engine, boundary, self.records)
        failed = await self.compactions.run_after(attempt, "a callback at the boundary", work)
        self.notices.all_failed(failed or [])
        if self.builtin is not None:
            self.builtin.compression_count += 1  # It plans; whether that is committed, we know.

        report = attempt.report if attempt else CompressReport()
        settled = await self.calls.guarded("boundary", settle, self.engine, tokens_after, report)
        if settled is not None:
            self._tell_settled(settled)

        await self.calls.guarded("get_status", self._read_status)

    def _tell_settled(self, settled: Settled) -> None:
        self.notices.all_failed(settled.failed)
        if self.builtin is None and settled.compactions > 1 and not settled.is_quiet:
            self.notices.say(f"this conversation was compressed {settled.compactions} times")

    def touch(self) -> None:
        """Note a sign of life of the compaction that is going on."""
        self.compactions.touch()

    # ------------------------------------------------------------------ what it shows

    def _read_status(self) -> None:
        """Read the engine's numbers, on its thread."""
        tools = {"tools": self._status["tools"]} if "tools" in self._status else {}
        said = status_of(self.engine).items()
        self._status = {key: masked(value, self.mask) for key, value in said} | tools


def _name_of(engine: ContextEngine) -> str:
    """Return what an engine calls itself, as events and the log can have it."""
    name, failure = tried(lambda: one_line(engine.name, LONGEST_NAME))
    return name or type(engine).__name__ if failure is None else type(engine).__name__
