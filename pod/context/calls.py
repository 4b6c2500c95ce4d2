"""Calls into an engine, supervised: in one thread, in order, under a limit; what fails is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

from attrs import define, field

from .errors import EngineTimeout
from .notices import Notices
from .threads import EngineThread

T = TypeVar("T")
Around: TypeAlias = Callable[[], AbstractContextManager[object]]

CALL_TIMEOUT_S = 30.0
"""How long any call but compress may take before the host goes on without it."""


@define(eq=False)
class EngineCalls:
    """Makes one pod's calls into its engine.

    An engine that blocks is waited for once: until it answers, later calls are given up at once.
    The built-in engine is ours and never blocks; it is called where we stand.
    """

    notices: Notices
    around: Around = nullcontext
    """Entered around every call, in the thread that makes it."""
    is_builtin: bool = False
    limit_s: float = CALL_TIMEOUT_S
    _thread: EngineThread = field(factory=EngineThread)

    @property
    def is_stuck(self) -> bool:
        """Whether the call that is going on has taken longer than a call may."""
        return self._thread.busy_s >= self.limit_s

    async def call(self, function: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Return what `function` returns, called in its turn.

        Raises what it raises, and otherwise as `EngineThread.call` does.
        """
        if self.is_builtin:
            return function()

        if self.is_stuck:
            raise EngineTimeout("the engine is still at an earlier call", self._thread.busy_s)

        return await self._thread.call(self.within, function, timeout_s=timeout_s)

    async def guarded(
        self,
        what: str,
        function: Callable[..., Any],
        *args: object,
        **kwargs: object,
    ) -> Any:  # noqa: ANN401  whatever a plugin returns
        """Return what a hook returns; None where it fails, which is told once."""
        try:
            return await self.call(partial(function, *args, **kwargs), timeout_s=self.limit_s)
        except EngineTimeout:
            self.tell_stuck(what)
        except Exception as error:  # noqa: BLE001  # supervision point of engine code: fails open
            self.notices.failed(what, error)

        return None

    def post(self, what: str, function: Callable[[], object]) -> None:
        """Have a hook called in its turn, without waiting; a failure is told once."""

        def failed(error: Exception) -> None:
            self.notices.failed(what, error)

        if self.is_builtin:
            try:
                function()
            except Exception as error:  # noqa: BLE001  # supervision point of engine code
                failed(error)
        elif self.is_stuck:
            self.tell_stuck(what)  # What waits for an engine that never answers would pile up.
        else:
            self._thread.post(self.within, function, on_error=failed)

    def within(self, function: Callable[[], T]) -> T:
        """Call what calls the engine, inside of `around`."""
        with self.around():
            return function()

    def tell_stuck(self, what: str) -> None:
        """Tell, once, that the engine blocks."""
        self.notices.once(
            "stuck",
            f"{what} took over {self.limit_s:g} s; going on without it, and without the engine's "
            "other hooks as long as it gives no answer",
        )

    def close(self, on_end: Callable[[], None]) -> None:
        """Take no more calls. `on_end` is called when the engine is free for somebody else.

        That is now, unless it is at a call: then it is when that ends.
        """
        self._thread.close_then(on_end)
