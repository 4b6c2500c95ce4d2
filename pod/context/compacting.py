"""An engine's compactions: in the pool, under limits, and none that was given up is committed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from pod.compaction.plan import CompactionError, CompactionPlan, CompactionRequest
from worker.items import Item

from .bridge import from_messages, to_messages
from .calls import EngineCalls
from .compressor import Compressor
from .engine import ContextEngine, sanitize_memory_context
from .errors import BridgeError, EngineTimeout, FenceClosed
from .fence import Fence
from .notices import said
from .pairs import mended
from .reports import CompressReport
from .signature import compress_arguments
from .spending import counted
from .threads import CompactionPool, Slot
from .words import one_line

T = TypeVar("T")
PUT_OFF = "put off"
"""What is told of a compaction without a place, once a run."""


@frozen
class Limits:
    """How long a compaction may take, in seconds."""

    idle_s: float
    """Without a sign of life."""
    ceiling_s: float
    """Altogether."""

    def fence(self) -> Fence:
        """Return a fence for one attempt, which begins now."""
        return Fence(idle_timeout_s=self.idle_s, ceiling_s=self.ceiling_s)


@define(eq=False)
class Attempt:
    """One compaction, from its place in the pool to its last callback."""

    slot: Slot
    fence: Fence
    report: CompressReport = field(factory=CompressReport)

    def begin_commit(self) -> None:
        """Begin the commit: from here on the attempt cannot be given up any more.

        Raises:
            CompactionError: Its time was over (`timeout`).
        """
        try:
            self.fence.begin_commit()
        except FenceClosed as error:
            raise CompactionError("timeout", str(error)) from error


@define(eq=False)
class Compactions:
    """Has one engine compact, one attempt at a time.

    A plugin that goes on after it was given up is not asked again before it has ended: it would be
    at work twice in the same object, and take up the whole pool in the end.
    """

    engine: ContextEngine
    builtin: Compressor | None
    calls: EngineCalls
    pool: CompactionPool
    limits: Limits
    current: Attempt | None = field(default=None, init=False)
    _left_behind: concurrent.futures.Future[Any] | None = field(default=None, init=False)

    # ------------------------------------------------------------------ admission

    @property
    def is_left_behind(self) -> bool:
        """Whether a compaction that was given up is still at work in the engine."""
        return self._left_behind is not None and not self._left_behind.done()

    def try_admit(self) -> Attempt | None:
        """Return an attempt; None, which is told, where one would have to wait.

        That is no failure: nothing was begun.
        """
        if self.is_left_behind:
            self.calls.notices.once(
                "left behind",
                "the engine's last compaction was given up and is still at work; it is asked for "
                "another when that has ended",
            )
            return None

        slot = self.pool.reserve()
        if slot is None:
            self.calls.notices.once(
                PUT_OFF,
                "too many compactions are going on at once in this process; this one is put off",
            )
            return None

        return self._begun(slot)

    async def admit(self) -> Attempt:
        """Wait for a place, no longer than an engine may be silent, and return an attempt.

        Raises:
            CompactionError: None came free, or the engine is at an earlier compaction (`busy`).
        """
        limit_s = self.limits.idle_s if self.limits.idle_s > 0 else None
        left = self._left_behind
        if left is not None and not await _ended(left, limit_s):
            message = "the engine is still at an earlier compaction, which was given up"
            raise CompactionError("busy", message)

        try:
            async with asyncio.timeout(limit_s):
                slot = await self.pool.reserve_when_free()
        except TimeoutError as error:
            message = "too many compactions are going on at once in this process"
            raise CompactionError("busy", message) from error

        return self._begun(slot)

    def close(self, attempt: Attempt) -> None:
        """Give the attempt's place back; idempotent."""
        attempt.slot.let_go()
        if self.current is attempt:
            self.current = None

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback`, on whatever thread, once no compaction is at work in the engine."""
        if self._left_behind is None:
            callback()
        else:
            self._left_behind.add_done_callback(lambda _: callback())

    def touch(self) -> None:
        """Note a sign of life of the compaction that is going on."""
        if self.current is not None:
            self.current.fence.touch()

    def _begun(self, slot: Slot) -> Attempt:
        self.current = Attempt(slot, self.limits.fence())
        return self.current

    # ------------------------------------------------------------------ the plan

    async def plan(self, attempt: Attempt, request: CompactionRequest) -> CompactionPlan:
        """Return the engine's plan, made in the pool from a copy.

        Raises:
            CompactionError: The engine raised, gave nothing that can be used, gave up, or was over
                one of its limits. Its result is refused from then on, however late it comes.
        """
        attempt.fence = self.limits.fence()  # The wait for its turn was not the engine's.
        builtin = self.builtin
        if builtin is not None:
            plan = await self._waited(attempt, lambda: _native(builtin, request))
            attempt.fence.touch()
            return plan

        compressed = await self._waited(
            attempt, lambda: self.calls.within(lambda: _compress(self.engine, request))
        )
        attempt.report = compressed.report
        self._tell(compressed)
        if isinstance(compressed.made, CompactionError):
            raise compressed.made

        attempt.fence.touch()
        return compressed.made

    async def _waited(self, attempt: Attempt, work: Callable[[], T]) -> T:
        try:
            return await self._run(attempt.slot, attempt.fence, work)
        except CompactionError:
            raise
        except EngineTimeout as error:
            raise CompactionError("timeout", self._over(error)) from error
        except Exception as error:  # supervision point of engine code
            message = f"the engine {self.calls.notices.engine} raised {said(error)}"
            raise CompactionError("engine_error", message) from error

    async def _run(self, slot: Slot, fence: Fence, work: Callable[[], T]) -> T:
        """Return what `work` returns, within the fence; one that goes on after it is left behind.

        Raises as `Fence.wait` does, and `RuntimeError` where the system gives no thread.
        """
        future = slot.run(work)
        try:
            return await fence.wait(future)
        finally:
            if self.builtin is None and not future.done():
                self._left_behind = future

    def _over(self, error: EngineTimeout) -> str:
        if error.limit_s == self.limits.idle_s:
            return f"the engine gave no sign of life for {error.limit_s:g} s"

        return f"the engine's compaction was not done after {error.limit_s:g} s"

    def _tell(self, compressed: _Compressed) -> None:
        notices = self.calls.notices
        if compressed.warning:
            notices.once("memory_context", compressed.warning)

        if compressed.parted:
            notices.once("pairs", compressed.parted)

        for line in compressed.report.lines():
            notices.say(line)

    # ------------------------------------------------------------------ afterwards

    async def run_after(
        self, attempt: Attempt | None, what: str, work: Callable[[], T]
    ) -> T | None:
        """Return what `work`, a callback's, returns, run in the attempt's place in the pool.

        None where it took too long or failed, which is told once. Without an attempt, and where the
        engine is still at what was given up, it runs where all other calls do.
        """
        if attempt is None or self.builtin is not None or self.is_left_behind:
            result: T | None = await self.calls.guarded(what, work)
            return result

        try:
            return await self._run(
                attempt.slot, self.limits.fence(), lambda: self.calls.within(work)
            )
        except EngineTimeout as error:
            self.calls.notices.once(what, f"{what} took over {error.limit_s:g} s; going on")
        except Exception as error:  # noqa: BLE001  # supervision point of engine code
            self.calls.notices.failed(what, error)

        return None


@frozen
class _Compressed:
    """What a message-list engine's `compress` came to, and what it says of that."""

    made: CompactionPlan | CompactionError
    report: CompressReport
    warning: str = ""
    parted: str = ""
    """What was left out of it, in words."""


def _native(builtin: Compressor, request: CompactionRequest) -> CompactionPlan:
    made = builtin.plan(request)
    if made is None:
        raise CompactionError("no_progress", "there is nothing to summarize")

    return made


def _compress(engine: ContextEngine, request: CompactionRequest) -> _Compressed:
    """Have an engine compress, and turn its result into a plan. Raises what it raises."""
    arguments = compress_arguments(
        engine,
        current_tokens=request.occupancy,
        focus_topic=request.focus,
        force=request.trigger == "manual",
        memory_context=sanitize_memory_context(request.memory_context),
    )
    # Messages are made fresh, and are the engine's own: what it does to them ends with them.
    messages = to_messages(request.items)
    compress: Callable[..., object] = engine.compress
    with counted() as spent:
        result = compress(messages, **arguments.kwargs)

    report = CompressReport.of(engine)
    warning = arguments.warning(engine.name) if arguments.drops_memory else ""
    parted = ""
    if isinstance(result, list):
        whole = mended(result, request.items)
        result, parted = whole.messages, whole.told

    made = _made(result, request, report)
    if spent.requests and isinstance(made, CompactionPlan):
        made = evolve(made, usage=spent.usage, model=spent.model)

    return _Compressed(made, report, warning, parted)


def _made(
    result: object, request: CompactionRequest, report: CompressReport
) -> CompactionPlan | CompactionError:
    if report.aborted:
        why = report.error or "it does not say why"
        return CompactionError("engine_error", f"the engine gave up: {why}")

    if inspect.iscoroutine(result):
        result.close()
        return CompactionError("invalid_result", "compress is async; it must be a plain function")

    if not isinstance(result, list):
        message = f"compress returned {type(result).__name__}, not a list of messages"
        return CompactionError("invalid_result", message)

    try:
        history = tuple(from_messages(result, request.items))
    except BridgeError as error:
        return CompactionError("invalid_result", f"compress returned {one_line(str(error))}")

    return CompactionPlan(
        history=history,
        base_len=len(request.items),
        watermark=_carried_watermark(history, request),
        method="engine",
        generation=request.generation + 1,
    )


def _carried_watermark(history: tuple[Item, ...], request: CompactionRequest) -> int:
    """Return the watermark that keeps every item that was sent pruned as it was sent."""
    pruned = {item.uid for item in request.items[: request.watermark]}
    return max((n + 1 for n, item in enumerate(history) if item.uid in pruned), default=0)


async def _ended(future: concurrent.futures.Future[Any], timeout_s: float | None) -> bool:
    """Wait for a future's end, and return whether it came in time; the result is nobody's."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell(_: object) -> None:
        # On a closed loop there is nobody to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(tell)
    with contextlib.suppress(TimeoutError):  # told by what is returned
        async with asyncio.timeout(timeout_s):
            await ended.wait()

    return future.done()
