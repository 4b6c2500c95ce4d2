"""Every call into a memory provider: in threads of its own, within limits, what fails told once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from attrs import define, field

from pod.context.errors import as_raised
from pod.context.signature import accepted_keywords
from pod.context.threads import EngineThread
from pod.context.words import error_line
from pod.home import Home

from .errors import MemoryUnavailable
from .loader import LoadedProvider, is_bundled, load_provider
from .provider import MemoryProvider
from .settings import Limits, MemorySettings

_log = logging.getLogger("pod.memory")


def _nothing() -> None:
    """Leave nothing to anybody."""


def _unheard(message: str) -> None:
    _log.warning("%s", message)


@define(eq=False)
class ProviderCalls:
    """The provider, and the two threads that it is called in.

    What reads (`prefetch`, the tools) has one thread, and what takes note (`sync_turn`, the session
    callbacks) another: recalling does not wait for a provider that is busy with the run before.
    Nothing here raises what a provider raises; `notice` hears of it, on the event loop.
    """

    name: str
    limits: Limits
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Entered around every call, in the thread that makes it."""
    notice: Callable[[str], None] = _unheard
    _loaded: LoadedProvider | None = field(default=None, init=False)
    _reading: EngineThread = field(factory=lambda: EngineThread("memory"), init=False)
    _noting: EngineThread = field(factory=lambda: EngineThread("memory-notes"), init=False)
    _said: set[str] = field(factory=set, init=False)

    @property
    def provider(self) -> MemoryProvider | None:
        """The provider; None before it was loaded, where it could not be, and after its end."""
        return self._loaded.provider if self._loaded is not None else None

    async def load(
        self, settings: MemorySettings, session_id: str, kwargs: Mapping[str, object]
    ) -> None:
        """Load the provider and initialize it; one that cannot be had is told of."""

        def begin() -> LoadedProvider:
            with self.around():
                loaded = _begun(settings, session_id, {**kwargs, "notice": tell})
                if is_given_up.is_set():
                    loaded.shut_down()

            return loaded

        is_given_up, tell, limit_s = threading.Event(), self._teller(), self.limits.long_s
        try:
            self._loaded = await self._reading.call(begin, timeout_s=limit_s)
        except MemoryUnavailable as error:
            self.notice(error.notice)
        except TimeoutError:
            slow = f"it was not ready after {limit_s:g} s"
            self.notice(MemoryUnavailable(self.name, slow).notice)
        except Exception as error:  # noqa: BLE001  # supervision point of a provider's code
            self.notice(MemoryUnavailable(self.name, said(error)).notice)
        else:
            for line in self._loaded.notices:
                self.warn(line, line)
        finally:
            if self._loaded is None:
                is_given_up.set()  # One that gets ready too late ends as soon as it does.

    def _teller(self) -> Callable[[str], None]:
        """Return what a provider can tell people something by, from any thread."""
        loop = asyncio.get_running_loop()

        def tell(message: str) -> None:
            with suppress(RuntimeError):  # On a closed loop there is nobody to tell.
                loop.call_soon_threadsafe(self.warn, message, str(message))

        return tell

    # ------------------------------------------------------------------ what reads

    async def ask(self, method: str, *args: object, **kwargs: object) -> object:
        """Return what a method returns, called with as many of `kwargs` as it takes.

        None where it is missing, fails, or takes too long, and at once while an earlier call does.
        """
        return await self.read(
            method, self.limits.call_s, lambda: self.hook(method, *args, **kwargs)
        )

    async def read(self, method: str, limit_s: float, call: Callable[[], object]) -> object:
        """Return what `call` returns; else as `ask`. `method` is what is told of it."""
        # That an earlier call takes so long was told when it passed its own limit.
        if self.provider is None or self._reading.busy_s > limit_s:
            return None

        try:
            return await self._reading.call(call, timeout_s=limit_s)
        except TimeoutError:
            self.warn(method, f"{method} took over {limit_s:g} s; going on without it")
        except Exception as error:  # noqa: BLE001  # supervision point of a provider's code
            self._failed(method, error)

        return None

    async def answer(self, method: str, *args: object) -> object:
        """Return what a method returns, however long it takes; raises what it raises."""
        return await self._reading.call(self.hook, method, *args)

    # ------------------------------------------------------------------ what takes note

    def post(self, method: str, call: Callable[[], object]) -> bool:
        """Have `call` made in its turn, without waiting; returns whether it will be.

        It will not where the provider is stuck, as what waits must not grow without end.
        """
        stuck_s = self.limits.stuck_s
        if self._noting.busy_s > stuck_s:
            self.warn("stuck", f"has been busy for over {stuck_s:g} s; it is told no more")
            return False

        self._noting.post(call, on_error=lambda error: self._failed(method, error))
        return True

    async def post_and_wait(self, method: str, call: Callable[[], object]) -> None:
        """Post `call` and wait for it, but not for long: it comes in its turn anyway.

        What comes before it may well take its time, such as asking a model what to keep.
        """
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def whole() -> None:
            try:
                call()
            finally:
                with suppress(RuntimeError):  # On a closed loop nobody waits any more.
                    loop.call_soon_threadsafe(done.set)

        limit_s = self.limits.short_s
        is_busy = self._noting.busy_s > limit_s
        if self.post(method, whole) and not is_busy:
            with suppress(TimeoutError):  # It is on its way, which is all that is promised.
                async with asyncio.timeout(limit_s):
                    await done.wait()

    async def finish(self) -> bool:
        """Refuse new calls that take note; returns whether all that wait were made in time."""
        return await self._noting.aclose(self.limits.call_s)

    def let_go(self) -> None:
        """Let the threads end and leave the provider, once they have, to other pods; no waiting."""
        loaded, self._loaded = self._loaded, None
        free = loaded.release if loaded is not None else _nothing
        self._reading.close_then(lambda: self._noting.close_then(free))

    # ------------------------------------------------------------------ in those threads

    def hook(self, method: str, *args: object, **kwargs: object) -> object:
        """Call a method with as many of `kwargs` as it takes; one that is missing does nothing."""
        function = getattr(self.provider, method, None)
        if not callable(function):
            return None

        with self.around():
            given = accepted_keywords(function, kwargs, positional=len(args))
            return function(*args, **given)

    def takes(self, method: str, keyword: str) -> bool:
        """Tell whether a method is there and takes a keyword."""
        function = getattr(self.provider, method, None)
        return callable(function) and bool(accepted_keywords(function, {keyword: None}))

    # ------------------------------------------------------------------ what went wrong

    def warn(self, what: str, message: str) -> None:
        """Tell of a failure, the first time it happens at this place."""
        if what not in self._said:
            self._said.add(what)
            self.notice(f"memory provider {self.name}: {message}")

    def _failed(self, method: str, error: Exception) -> None:
        self.warn(method, f"{method} raised {said(error)}; going on without it")


def said(error: BaseException) -> str:
    """Return an error's type and what it says, in one line."""
    return error_line(as_raised(error))


def _begun(
    settings: MemorySettings, session_id: str, kwargs: Mapping[str, object]
) -> LoadedProvider:
    """Load a provider and initialize it. Raises `MemoryUnavailable`, and what its code raises."""
    loaded = load_provider(settings.provider, settings.plugins_dir, options=settings.options)
    try:
        _initialize(loaded.provider, settings, session_id, kwargs)
    except BaseException:  # whatever it was: the object stays with nobody
        loaded.release()
        raise

    return loaded


def _initialize(
    provider: MemoryProvider,
    settings: MemorySettings,
    session_id: str,
    kwargs: Mapping[str, object],
) -> None:
    is_available = getattr(provider, "is_available", None)
    if callable(is_available) and not is_available():
        ask = getattr(provider, "unavailable_reason", None)
        why = ask() if callable(ask) else ""
        detail = f": {why}" if isinstance(why, str) and why.strip() else ""
        raise MemoryUnavailable(settings.provider, f"it says that it is not available{detail}")

    if not is_bundled(settings.provider):
        Home(settings.home).ensure(settings.home)  # Private, whatever the provider makes in it.

    given = accepted_keywords(provider.initialize, kwargs, positional=1)
    provider.initialize(session_id, **given)
