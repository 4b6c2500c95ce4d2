"""A pod that somebody talks to: what goes on is carried out to its end, or until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from attrs import define, evolve, field

from manifests import LoadedManifest, load_manifest
from pod.compaction.plan import CompactionError
from pod.home import Home
from pod.pod import Pod
from pod.preparing import open_store
from worker.items import is_turn_start, user_message

from .answer_stream import answer_stream, show_cursor
from .chat_view import ChatView, Spent, header
from .failures import INTERRUPTED, is_expected, launching, report, report_defect
from .gauge import gauge
from .interrupts import Interrupts
from .listing import counted, is_utf8, say
from .oneshot import Launch, scene_of
from .options import RunOptions, model_override
from .outlet import Outlet
from .transcript import Place, places


@define(eq=False)
class Conversation:
    """The event loop runs while something goes on, and not while a person types."""

    options: RunOptions
    home: Home
    env: Mapping[str, str]
    runner: asyncio.Runner
    loaded: LoadedManifest
    pod: Pod
    """The pod that is talked to; another one after a fork or with another model."""
    spent: Spent = field(factory=Spent)
    signal_code: int | None = field(default=None, init=False)
    """The exit code of the signal that stopped what went on last; None where none came."""

    # ------------------------------------------------------------------ life

    def open(self) -> None:
        """Launch the pod and say so, unless a signal comes first. Raises what launching raises."""
        launch = Launch(self.pod)
        self._adopt(self.pod)

        async def start() -> None:
            with launching(self.options.manifest), suppress(asyncio.CancelledError):  # a signal
                await launch.start()

        self._carry_out(start(), launch.cancel)
        if self.signal_code is None:
            self.greet()

    def greet(self) -> None:
        """Say who is there, and in which session where that is not a new one."""
        say(header(self.pod.status()), err=True)
        turns = sum(map(is_turn_start, self.pod.history))
        if turns:
            say(f"session {self.pod.session_id}, {counted(turns, 'turn')} so far", err=True)

    def close(self) -> None:
        """Stop what is going on and close the pod."""
        pod = self.pod

        async def close() -> None:
            pod.cancel()
            await pod.aclose()

        self._carry_out(close(), pod.cancel)

    # ------------------------------------------------------------------ what is done

    def perform(self, work: Awaitable[None]) -> None:
        """Carry something out. What goes wrong is told, and the conversation goes on."""

        def cancel() -> None:
            self.pod.cancel()  # whichever it is by then

        try:
            self._carry_out(work, cancel)
        # The supervision point of a conversation: no failure of one step ends it.
        except Exception as error:  # noqa: BLE001  each is told, and is the person's to judge
            if is_expected(error):
                report(error)
            else:
                report_defect(error)

    async def run(self, text: str) -> None:
        """Run a prompt, and wait for a compaction that follows."""
        pod = self.pod
        result = await pod.run(user_message(text))
        if result.outcome == "cancelled":
            say("stopped; what was said so far is kept", err=True)
        elif result.exception is not None:
            report(result.exception)
        elif result.outcome != "finished":
            outcome = result.outcome.replace("_", " ")
            say(f"{outcome}: {result.message or 'no reason given'}", err=True)

        say(gauge(pod.status(), in_ascii=not is_utf8(sys.stderr.encoding)), err=True)
        await pod.idle()

    async def compact(self, focus: str | None) -> None:
        """Compact now."""
        with suppress(CompactionError):  # told by its event
            if await self.pod.compact(focus) is None:
                say("nothing to compact: there is too little history", err=True)

    async def new(self) -> None:
        """Begin a fresh session."""
        await self.pod.new()
        say(f"new session {self.pod.session_id}", err=True)

    async def fork(self) -> None:
        """Go on with a copy of the session."""
        parent = self.pod
        parent_id = parent.session_id
        child = await parent.fork()
        self._adopt(child)
        await parent.aclose()
        say(f"session {child.session_id}, forked from {parent_id}", err=True)

    async def rewind(self, to: str) -> None:
        """Go back to an entry, named by its hash."""
        await self.pod.rewind(to)
        turns = counted(sum(map(is_turn_start, self.pod.history)), "turn")
        say(f"session {self.pod.session_id}, {turns} so far", err=True)

    def places(self) -> list[Place]:
        """Return where one can go back to. Raises `SessionStoreError`."""
        store = open_store(self.loaded, self.home)
        return places(store, store.restore(self.pod.session_id))

    async def use_model(self, model: str) -> None:
        """Go on in the same session with another model; where that fails, with the old one."""
        old, old_loaded = self.pod, self.loaded
        options = evolve(self.options, sets=(*self.options.overrides, model_override(model)))
        options = evolve(options, model=None)
        loaded = load_manifest(options.manifest, overrides=options.overrides, env=self.env)
        session_id = old.session_id
        await old.aclose()
        try:
            await self._relaunch(loaded, session_id)
        # Whatever keeps the other model from being used, the conversation goes on with this one.
        except Exception as error:
            if not is_expected(error):
                raise

            report(error)
            await self._relaunch(old_loaded, session_id)
        else:
            self.options = options

        self.greet()

    # ------------------------------------------------------------------ inside

    async def _relaunch(self, loaded: LoadedManifest, session_id: str) -> None:
        self.loaded = loaded
        pod = Pod(loaded, home=self.home, env=self.env, resume=session_id)
        self._adopt(pod)
        await pod.start()

    def _adopt(self, pod: Pod) -> None:
        """Talk to that pod from now on, and show what it does."""
        self.pod = pod
        outlet = Outlet(sys.stdout.buffer, sys.stdout.encoding or "utf-8", sys.stdout.isatty())
        scene = scene_of(pod, self.loaded, is_verbose=self.options.verbose)
        pod.listen(ChatView(answer_stream(outlet, self.env), scene, self.spent))

    def _carry_out(self, work: Awaitable[None], cancel: Callable[[], None]) -> None:
        self.signal_code = None

        async def until_stopped() -> None:
            with Interrupts(cancel, show_cursor) as interrupts:
                try:
                    await work
                finally:
                    self.signal_code = interrupts.exit_code

        try:
            self.runner.run(until_stopped())
        except KeyboardInterrupt:
            # It came when all was done and nobody listened yet: as if at the prompt.
            if self.signal_code is not None:
                raise

            self.signal_code = INTERRUPTED
