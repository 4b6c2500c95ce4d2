"""Calling the hooks of a plugin: each in a thread of its own, within a time, its failures told.

A hook that does not come back is left behind; it is not asked again for a while, and no more than
a few times as long as none of its threads ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from attrs import define, field, frozen

from worker.threads import call_in_daemon_thread

from .answers import finished
from .signature import accepted_keywords
from .words import error_line

HOOK_TIMEOUT_S = 30.0
"""How long one hook may take before the pod goes on without it."""
REST_S = 60.0
"""How long a hook that took too long is not asked again."""
MOST_LEFT_BEHIND = 3
"""How many calls of one hook may be left behind at once; with so many it is not asked any more."""

Callback = Callable[..., object]
Payload = Callable[[], Mapping[str, object]]
"""Makes the keywords of one call, anew for each; called in the thread of the call."""


@frozen
class Answer:
    """What one hook came to: a value, or why there is none."""

    value: object = None
    failure: str = ""


@define
class _Record:
    """What is remembered of one hook that took too long."""

    rests_until: float = 0.0
    left_behind: int = 0


@define(eq=False)
class HookCaller:
    """Calls the hooks of one pod's plugin, by the name of their moment."""

    hooks: Mapping[str, Sequence[Callback]]
    """Looked up at each moment: a plugin may add to them whenever it likes."""
    tell: Callable[[str], None]
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    timeout_s: float = HOOK_TIMEOUT_S
    clock: Callable[[], float] = time.monotonic
    said: set[str] = field(factory=set)
    """What was told already; nothing is told twice."""
    _records: dict[tuple[str, int], _Record] = field(factory=dict)

    def has(self, name: str) -> bool:
        """Tell whether there is a hook for this moment."""
        return bool(self.hooks.get(name))

    async def call(self, name: str, payload: Payload) -> list[Answer]:
        """Call every hook of a moment, in the order of registration, and return their answers.

        A hook is given as much of the payload as it takes. Whatever it raises is told once.
        """
        callbacks = tuple(self.hooks.get(name) or ())
        return [await self._call(name, callback, payload) for callback in callbacks]

    async def _call(self, name: str, callback: Callback, payload: Payload) -> Answer:
        record = self._records.setdefault((name, id(callback)), _Record())
        if record.left_behind >= MOST_LEFT_BEHIND or record.rests_until > self.clock():
            why = "did not come back from an earlier call"
            return Answer(failure=f"{_label(name, callback)} {why}")

        work = _Work(callback, payload, self.around)
        deadline = asyncio.timeout(self.timeout_s)
        try:
            async with deadline:
                value = await call_in_daemon_thread(work.run, name="plugin-hook")
        except TimeoutError as error:
            if not deadline.expired():
                return self._failed(name, callback, f"raised {error_line(error)}")

            self._leave_behind(record, work)
            return self._failed(name, callback, f"took over {self.timeout_s:g} s")
        except Exception as error:  # noqa: BLE001  # supervision point of plugin code
            return self._failed(name, callback, f"raised {error_line(error)}")

        return Answer(value)

    def _leave_behind(self, record: _Record, work: _Work) -> None:
        record.rests_until = self.clock() + REST_S
        record.left_behind += 1
        loop = asyncio.get_running_loop()

        def ended() -> None:
            record.left_behind -= 1

        def tell() -> None:
            # On a closed loop nobody counts any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended)

        work.when_done(tell)

    def _failed(self, name: str, callback: Callback, why: str) -> Answer:
        message = f"{_label(name, callback)} {why}"
        # In other words, it is still the same failure; and several hooks may have the same name.
        self.tell_once(message, about=f"{name} {id(callback)} {why.partition(' ')[0]}")
        return Answer(failure=message)

    def tell_once(self, message: str, *, about: str = "") -> None:
        """Tell people something, unless they were told of it, or of what it is `about`."""
        key = about or message
        if key not in self.said:
            self.said.add(key)
            self.tell(message)


class _Work:
    """One call of a hook, which may end long after nobody waits for it."""

    def __init__(
        self,
        callback: Callback,
        payload: Payload,
        around: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._callback = callback
        self._payload = payload
        self._around = around
        self._lock = threading.Lock()
        self._is_done = False
        self._then: Callable[[], None] | None = None

    def run(self) -> object:
        try:
            with self._around():
                given = accepted_keywords(self._callback, self._payload())
                return finished(self._callback(**given))
        finally:
            with self._lock:
                self._is_done, then = True, self._then

            if then is not None:
                then()

    def when_done(self, then: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_done:
                self._then = then
                return

        then()


def _label(name: str, callback: Callback) -> str:
    called = getattr(callback, "__qualname__", None) or type(callback).__name__
    return f"hook {name} ({called.rpartition('<locals>.')[2]})"
