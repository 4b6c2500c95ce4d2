"""`SyncPodClient`: a `PodClient` for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pod.bus import Subscription
from pod.errors import PodClosed
from pod.protocol import CompactionDone, Envelope, EventData
from pod.protocol.methods import WaitingCall
from worker.items import Image, Item, UserMessage

from .callbacks import Callbacks
from .client import PodClient
from .cursor import Position
from .fork import Fork
from .link import LinkState

if TYPE_CHECKING:
    from pod.context.plugin_commands import EngineCommand
    from pod.runs import RunResult
    from pod.status import PodStatus

T = TypeVar("T")
E = TypeVar("E", bound=EventData)


class Events(Iterator[EventData]):
    """Events as a blocking iterator; see `SyncPodClient.events`."""

    def __init__(self, subscription: Subscription, loop: _Loop) -> None:
        self._subscription = subscription
        self._envelopes = subscription.envelopes()
        self._loop = loop

    def __next__(self) -> EventData:
        return next(self.envelopes()).data

    def envelopes(self) -> Iterator[Envelope]:
        """Yield the events as published: numbered, and with their place in the log."""
        while (envelope := self._next()) is not None:
            yield envelope

    def _next(self) -> Envelope | None:
        async def following() -> Envelope | None:
            return await anext(self._envelopes, None)

        if self._loop.is_running:
            return self._loop.wait_for(following)

        # The client was closed: what is left is there already, and then the end.
        return asyncio.run(following())

    def close(self) -> None:
        """Let the iteration end once what is queued was read; idempotent."""
        if self._loop.is_running:
            self._loop.call(self._subscription.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a client that is never closed must not keep its program from ending.
        self._thread = threading.Thread(target=self._run, name="pod-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    @property
    def is_running(self) -> bool:
        """Whether anything can be asked of it."""
        return self._thread.is_alive()

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work()` comes to; a wait that is interrupted cancels it."""
        if not self._thread.is_alive():
            message = "the client is closed"
            raise PodClosed(message, hint="connect again")

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C, above all
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop and return what it returns."""

        async def called() -> T:
            return function()

        return self.wait_for(called)

    def stop(self) -> None:
        """End the thread; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


class SyncPodClient:
    """A served pod, used without an event loop.

    `with SyncPodClient.connect("reviewer") as client:` uses it. It is a `PodClient` on a thread of
    its own: the same names, each of which returns when it is done. It may be used from several
    threads at once. Callbacks are called one after the other on a thread of theirs, and may use it
    too; those that are due meanwhile wait for one that takes its time, and so do `run`, `compact`
    and the like before they return.
    """

    def __init__(self, client: PodClient) -> None:
        """Make one of a client that was not started; see `connect`."""
        self._client = client
        self._callbacks = Callbacks()
        self._loop: _Loop | None = None

    # ------------------------------------------------------------------ life

    @classmethod
    def connect(cls, pod: str | Path, **options: Any) -> Self:  # noqa: ANN401  as `PodClient.connect`
        """Return a client that is connected by `with`, or by `client.start()`.

        The arguments are those of `PodClient.connect`.
        """
        return cls(PodClient.connect(pod, **options))

    def start(self) -> Self:
        """Connect; idempotent. Raises as `PodClient.start` does."""
        if self._loop is None:
            self._loop = _Loop()

        try:
            self._wait(self._client.start)
        except BaseException:  # Ctrl-C too: no thread stays behind
            self.close()
            raise

        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and the threads; idempotent. The pod goes on.

        Callbacks of what came before are called first; what they ask of the client is refused.
        """
        loop = self._loop
        if loop is not None and loop.is_running:
            loop.wait_for(self._client.aclose)
            loop.stop()

        self._callbacks.close()

    # ------------------------------------------------------------------ what it does

    def run(
        self,
        prompt: str | UserMessage,
        *,
        output: type[Any] | None = None,
        images: tuple[Image, ...] = (),
    ) -> RunResult:
        """Run a prompt to its end and return how it ended. Ctrl-C here cancels the run.

        Raises as `PodClient.run` does.
        """
        return self._done(lambda: self._client.run(prompt, output=output, images=images))

    def resume(self) -> RunResult:
        """Go on with a run that was paused, cancelled, interrupted or stopped at a limit."""
        return self._done(self._client.resume)

    def compact(self, focus: str | None = None) -> CompactionDone | None:
        """Compact the history now; None where there is nothing to cut. Raises `CompactionError`."""
        return self._done(lambda: self._client.compact(focus))

    def new(self) -> None:
        """Begin a fresh session; the old one stays as it is."""
        self._done(self._client.new)

    def rewind(self, to: str) -> None:
        """Go back to the entry of that hash, in a new session."""
        self._done(lambda: self._client.rewind(to))

    def fork(self, at: str | None = None) -> Fork:
        """Return a fork of the session; go on with it by its `session_id`."""
        return self._wait(lambda: self._client.fork(at))

    def cancel(self) -> None:
        """Stop the run or the compaction that is going on."""
        self._wait(self._client.cancel)

    def pause(self) -> None:
        """Stop the run before its next request; `resume` goes on."""
        self._wait(self._client.pause)

    def refresh(self) -> None:
        """Return once `status()` and `history` know all that the pod had when this was called."""
        self._done(self._client.refresh)

    def idle(self) -> None:
        """Wait until no run and no compaction is going on."""
        self._done(self._client.idle)

    def shutdown(self, *, wait: bool = False) -> None:
        """End the pod, for everybody; with `wait`, after what is going on. Closes the client."""
        self._wait(lambda: self._client.shutdown(wait=wait))
        self.close()

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the pod's answer to a method of the protocol, as it is."""
        return self._wait(lambda: self._client.call(method, params))

    def approve(
        self,
        call_id: str,
        decision: Literal["allow", "deny"],
        *,
        scope: Literal["once", "session"] = "once",
        by: str = "",
    ) -> None:
        """Decide about a call that waits. Raises `UnknownApproval` where no such call does."""
        self._wait(lambda: self._client.approve(call_id, decision, scope=scope, by=by))

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Say that somebody is there to decide about calls, for as long as the block lasts."""
        attended = self._client.attended()
        self._running().call(attended.__enter__)
        try:
            yield
        finally:
            self._running().call(lambda: attended.__exit__(None, None, None))

    def engine_command(self, name: str, args: str = "") -> str:
        """Run a slash command of the engine's plugin; returns what it has to say."""
        return self._wait(lambda: self._client.engine_command(name, args))

    # ------------------------------------------------------------------ what it shows

    @property
    def name(self) -> str:
        """The pod's name."""
        return self._client.name

    @property
    def session_id(self) -> str:
        """The id of the session that is being written."""
        return self._client.session_id

    @property
    def history(self) -> tuple[Item, ...]:
        """The items so far, oldest first."""
        return self._client.history

    def status(self) -> PodStatus:
        """Return where the pod stands."""
        return self._client.status()

    @property
    def position(self) -> Position | None:
        """Where the next event will be, for `connect(since=…)`."""
        return self._client.position

    @property
    def link(self) -> LinkState:
        """How it is connected just now."""
        return self._client.link

    def waiting_approvals(self) -> tuple[WaitingCall, ...]:
        """Return the calls that wait for a decision, oldest first."""
        return self._client.waiting_approvals()

    def engine_commands(self) -> dict[str, EngineCommand]:
        """Return the slash commands that the engine's plugin registered, by name."""
        return self._client.engine_commands()

    def on(self, event: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call `callback(data)` on every event of this type, on the callbacks' thread.

        Returns how to stop it. One that raises is logged.
        """
        due = self._callbacks.later(callback)
        return self._stopping(lambda: self._client.on(event, due))

    def listen(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        """Call `callback(envelope)` on every event, on the callbacks' thread. As `on`, else."""
        due = self._callbacks.later(callback)
        return self._stopping(lambda: self._client.listen(due))

    def events(self, *types: type[EventData]) -> Events:
        """Return the events of these types, or all, from now on, as a blocking iterator."""
        loop = self._running()
        return Events(loop.call(lambda: self._client.events(*types)), loop)

    # ------------------------------------------------------------------ inside

    def _running(self) -> _Loop:
        if self._loop is None:
            message = "the client is not connected"
            raise PodClosed(message, hint="use it inside `with SyncPodClient.connect(…)`")

        return self._loop

    def _wait(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await ask()

        return self._running().wait_for(asked)

    def _done(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Wait for it, and for the callbacks of what came meanwhile."""
        result = self._wait(ask)
        self._callbacks.settle()
        return result

    def _stopping(self, begin: Callable[[], Callable[[], None]]) -> Callable[[], None]:
        loop = self._running()
        stop = loop.call(begin)
        return lambda: loop.call(stop)
