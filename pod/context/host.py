"""The host of one engine: every call into it, on the right thread, with what its signature takes.

An engine may be anybody's code: it may block, raise, change what it is given. Nothing of that
reaches the event loop, the history or the log.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from attrs import define, field, frozen

from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from pod.context.bridge import (
    BridgeError,
    from_messages,
    from_selection,
    to_messages,
    to_request_messages,
)
from pod.context.compressor import Compressor
from pod.context.engine import ContextEngine, sanitize_memory_context
from pod.context.errors import EngineTimeout
from pod.context.fence import Fence
from pod.context.ownership import release_engine
from pod.context.signature import (
    compress_arguments,
    end_context_engine_session,
    start_context_engine_session,
    update_context_engine_model,
)
from pod.context.threads import CompactionPool, EngineThread
from worker.hooks import Action, Continue
from worker.items import Item
from worker.llm.types import ToolSpec, Usage
from worker.ports import RequestStage, Selection
from worker.tools import Tool, ToolOutput, render_output
from worker.worker import Worker

CALL_TIMEOUT_S = 30.0
"""How long any call but compress may take before the host goes on without it."""

T = TypeVar("T")
_log = logging.getLogger("pod.context")


@frozen
class ModelFacts:
    """What an engine is told of the model."""

    model: str
    context_length: int
    provider: str = ""
    thresholds: Mapping[str, float] = field(factory=dict)
    """By part of a model's name: at which share of its window to compact."""


@define(eq=False)
class EngineHost(RequestStage):
    """Drives an engine. Failures of the engine are told by `notice` and otherwise harmless."""

    engine: ContextEngine
    notice: Callable[[str, str], None]
    timeout_s: float
    pool: CompactionPool
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Entered around every call into the engine, in the thread that makes it."""
    fence: Fence = field(factory=Fence)
    _thread: EngineThread = field(factory=EngineThread)
    _said: set[str] = field(factory=set)

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine.name

    @property
    def builtin(self) -> Compressor | None:
        """The engine, if it is the built-in one, which plans natively."""
        return self.engine if isinstance(self.engine, Compressor) else None

    def _overrides(self, hook: str) -> bool:
        """Tell whether the engine brings a hook of its own, so that the default costs nothing."""
        bound = getattr(self.engine, hook, None)
        if not callable(bound):
            return False

        return getattr(bound, "__func__", None) is not getattr(ContextEngine, hook)

    # ------------------------------------------------------------------ life

    async def start(
        self, session_id: str, *, model: ModelFacts, after: str | None = None, **kwargs: object
    ) -> None:
        """Tell the engine of its model and session; `kwargs` are those the contract names.

        `after` is the session that the pod left for this one: what belonged to it is forgotten.
        """
        if self.builtin is not None:
            return

        engine = self.engine

        def update() -> None:
            if model.thresholds:
                engine.model_thresholds = dict(model.thresholds)

            update_context_engine_model(
                engine,
                model=model.model,
                context_length=model.context_length,
                provider=model.provider,
            )

        await self._guarded("update_model", update)
        if after is not None:
            kwargs["old_session_id"] = after
            reset = getattr(engine, "on_session_reset", None)
            if callable(reset):
                await self._guarded("on_session_reset", reset)

        await self._guarded(
            "on_session_start", start_context_engine_session, engine, session_id, **kwargs
        )

    async def boundary(
        self, old_id: str, new_id: str, before: tuple[Item, ...], **kwargs: object
    ) -> None:
        """Tell the engine that a compaction was committed (in the pool: it may take its time)."""
        engine = self.engine
        if self.builtin is not None:
            return

        def both() -> None:
            end_context_engine_session(engine, old_id, to_messages(before))
            start_context_engine_session(
                engine, new_id, boundary_reason="compression", old_session_id=old_id, **kwargs
            )

        fence = Fence(idle_timeout_s=self.timeout_s)
        try:
            await fence.wait(await self.pool.submit_when_free(lambda: self._within(both)))
        except Exception as error:  # noqa: BLE001  # supervision point of engine code
            self._warn("boundary", f"a callback at the compaction boundary raised {_said(error)}")

        try:
            engine.last_prompt_tokens = -1
            engine.last_completion_tokens = 0
        except Exception as error:  # noqa: BLE001  # supervision point of engine code
            self._warn("boundary", f"its token counts cannot be reset: {_said(error)}")

    async def end(self, session_id: str, history: tuple[Item, ...]) -> None:
        """Tell the engine that the session ends, and let go of it."""
        if self.builtin is None:
            await self._guarded(
                "on_session_end",
                end_context_engine_session,
                self.engine,
                session_id,
                to_messages(history),
            )

        self.let_go()

    def let_go(self) -> None:
        """Leave the engine to other pods, and let its thread end; idempotent."""
        release_engine(self.engine)
        self._thread.close()

    # ------------------------------------------------------------------ around requests

    def after_response(self, usage: Usage) -> None:
        """Hand a response's usage on, without waiting."""
        prompt, completion = usage.input_tokens or 0, usage.output_tokens or 0
        record = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "input_tokens": prompt,
            "output_tokens": completion,
            "cache_read_tokens": usage.cache_read or 0,
            "cache_write_tokens": usage.cache_write or 0,
            "reasoning_tokens": 0,
        }
        if self.builtin is not None:
            self.builtin.update_from_response(record)
            return

        def failed(error: Exception) -> None:
            self._warn("update_from_response", f"update_from_response raised {_said(error)}")

        update = partial(self.engine.update_from_response, record)
        self._thread.post(self._within, update, on_error=failed)

    async def wants_compaction(self, tokens: int) -> bool:
        """Ask a plugin engine whether it wants to compress at this size."""
        answer = await self._guarded("should_compress", self.engine.should_compress, tokens)
        return bool(answer)

    async def before_request(self, worker: Worker) -> Action:
        """Nothing: when to compact is asked by the trigger stage."""
        return Continue()

    async def select(self, worker: Worker, items: list[Item]) -> Selection | None:
        """Let an engine that overrides `select_context` choose what this request holds."""
        if not self._overrides("select_context"):
            return None

        given = to_request_messages(worker.system_prompt, items)
        conversation = to_messages(worker.history)
        incoming = next((m for m in reversed(conversation) if m["role"] == "user"), None)
        chosen = await self._guarded(
            "select_context",
            self.engine.select_context,
            copy.deepcopy(given),
            conversation_messages=conversation,
            incoming_message=copy.deepcopy(incoming),
            budget_tokens=getattr(self.engine, "context_length", 0) or 0,
        )
        if chosen is None:
            return None

        if not _is_messages(chosen):
            self._warn(
                "select_context",
                f"Context engine select_context returned an invalid value (not a non-empty list "
                f"of dicts); ignoring (engine={self.name})",
            )
            return None

        try:
            return from_selection(chosen, worker.system_prompt, items)
        except BridgeError as error:
            self._warn("select_context", f"select_context returned messages that hold no: {error}")
            return None

    async def turn_complete(
        self, history: tuple[Item, ...], usage: Usage, **kwargs: object
    ) -> None:
        """Tell the engine that a run ended."""
        if not self._overrides("on_turn_complete"):
            return

        record = {
            "prompt_tokens": usage.input_tokens or 0,
            "completion_tokens": usage.output_tokens or 0,
            "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
        }
        messages = to_messages(history)
        hook = self.engine.on_turn_complete
        await self._guarded("on_turn_complete", hook, messages, usage=record, **kwargs)

    async def tools(self, history: Callable[[], tuple[Item, ...]]) -> list[Tool]:
        """Return the engine's tools, wrapped; they are given the live messages."""
        if not self._overrides("get_tool_schemas"):
            return []

        schemas = await self._guarded("get_tool_schemas", self.engine.get_tool_schemas) or []
        tools = [self._tool(schema, history) for schema in schemas]
        return [tool for tool in tools if tool is not None]

    def _tool(self, schema: dict[str, Any], history: Callable[[], tuple[Item, ...]]) -> Tool | None:
        function = schema.get("function", schema) if isinstance(schema, dict) else {}
        name = function.get("name")
        if not name or not isinstance(name, str):
            self._warn("get_tool_schemas", "one of its tools has no name; it is left out")
            return None

        async def call(arguments: dict[str, Any]) -> ToolOutput:
            messages = to_messages(history())
            try:
                handle = partial(self.engine.handle_tool_call, name, arguments, messages=messages)
                answer = await self._thread.call(self._within, handle)
            except Exception as error:  # noqa: BLE001  # supervision point of engine code
                text = json.dumps({"error": f"Context engine tool '{name}' failed: {error}"})
                return ToolOutput(text, is_error=True)

            return render_output(answer)

        empty = {"type": "object", "properties": {}}
        spec = ToolSpec(name, function.get("description", ""), function.get("parameters") or empty)
        return Tool(spec.name, spec.description, spec.parameters, call)

    # ------------------------------------------------------------------ compaction

    def has_content(self, request: CompactionRequest) -> bool:
        """Tell whether there is anything to compact; cheap, and no call into a plugin."""
        if self.builtin is not None:
            return self.builtin.cut(request) is not None

        return len(request.items) > 1

    async def make_plan(self, request: CompactionRequest) -> CompactionPlan:
        """Return the engine's plan, made in the pool from a copy.

        Raises:
            CompactionError: The engine raised, gave nothing, was silent for longer than its
                inactivity limit, or the pool is full (`busy`).
        """
        self.fence = Fence(idle_timeout_s=self.timeout_s)
        work = self._work(request)
        if request.trigger == "overflow":
            future = await self.pool.submit_when_free(work)
        else:
            submitted = self.pool.try_submit(work)
            if submitted is None:
                raise CompactionError("busy", "too many compactions are going on at once")

            future = submitted

        return await self._result(future)

    def _work(self, request: CompactionRequest) -> Callable[[], CompactionPlan]:
        builtin = self.builtin
        if builtin is None:
            # Messages are made fresh: a private copy.
            loop = asyncio.get_running_loop()
            return lambda: self._within(lambda: self._compress(request, loop))

        def plan() -> CompactionPlan:
            made = builtin.plan(request)
            if made is None:
                raise CompactionError("no_progress", "there is nothing to summarize")

            return made

        return plan

    async def _result(self, future: concurrent.futures.Future[CompactionPlan]) -> CompactionPlan:
        """Wait for a plan as long as there are signs of life; late results are dropped."""
        try:
            return await self.fence.wait(future)
        except CompactionError:
            raise
        except EngineTimeout as error:
            message = f"the engine gave no sign of life for {self.timeout_s:g} s"
            raise CompactionError("timeout", message) from error
        except Exception as error:  # supervision point of engine code
            _log.debug("engine %s failed", self.name, exc_info=True)
            message = f"the engine {self.name} raised {_said(error)}"
            raise CompactionError("engine_error", message) from error

    def _compress(
        self, request: CompactionRequest, loop: asyncio.AbstractEventLoop
    ) -> CompactionPlan:
        """Have a message-list engine compress, and turn its result into a plan."""
        engine = self.engine
        arguments = compress_arguments(
            engine,
            current_tokens=request.occupancy,
            focus_topic=request.focus,
            force=request.trigger == "manual",
            memory_context=sanitize_memory_context(request.memory_context),
        )
        if arguments.drops_memory:
            warning = arguments.warning(self.name)
            loop.call_soon_threadsafe(self._warn, "memory_context", warning)

        messages = to_messages(request.items)
        compress: Callable[..., object] = engine.compress
        result = compress(messages, **arguments.kwargs)
        if not isinstance(result, list):
            message = f"compress returned {type(result).__name__}, not a list of messages"
            raise CompactionError("invalid_result", message)

        try:
            history = tuple(from_messages(result, request.items))
        except BridgeError as error:
            raise CompactionError("invalid_result", f"compress returned {error}") from error

        return CompactionPlan(
            history=history,
            base_len=len(request.items),
            watermark=_carried_watermark(history, request),
            method="engine",
            generation=request.generation + 1,
        )

    def touch(self) -> None:
        """Note a sign of life of the compaction that is going on."""
        self.fence.touch()

    # ------------------------------------------------------------------ supervision

    async def call(self, function: Callable[[], T], *, timeout_s: float) -> T:
        """Return what `function`, a plugin's, returns, called in its turn on the engine's thread.

        Raises what it raises, and otherwise as `EngineThread.call` does.
        """
        return await self._thread.call(self._within, function, timeout_s=timeout_s)

    def _within(self, function: Callable[[], T]) -> T:
        """Call what calls the engine, inside of `around`."""
        with self.around():
            return function()

    async def _guarded(
        self,
        what: str,
        function: Callable[..., Any],
        *args: object,
        **kwargs: object,
    ) -> Any:  # noqa: ANN401  whatever a plugin returns
        """Call an engine's hook on its thread with what it takes; a failure is told, once."""
        try:
            call = partial(function, *args, **kwargs)
            return await self._thread.call(self._within, call, timeout_s=CALL_TIMEOUT_S)
        except TimeoutError:
            self._warn(what, f"{what} took over {CALL_TIMEOUT_S:g} s; going on without it")
        except Exception as error:  # noqa: BLE001  # supervision point of engine code: fails open
            self._warn(what, f"{what} raised {_said(error)}; going on without it")

        return None

    def _warn(self, what: str, message: str) -> None:
        """Tell of a failure, the first time it happens at this place."""
        if what not in self._said:
            self._said.add(what)
            self.notice(self.name, message)


def _carried_watermark(history: tuple[Item, ...], request: CompactionRequest) -> int:
    """Return the watermark that keeps every item that was sent pruned as it was sent."""
    pruned = {item.uid for item in request.items[: request.watermark]}
    return max((n + 1 for n, item in enumerate(history) if item.uid in pruned), default=0)


def _is_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) for m in value)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
