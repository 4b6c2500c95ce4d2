"""Following one pod: its events, and where it is when they begin or some were missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from attrs import define, evolve, field, frozen

from pod.errors import PodClosed, PodError
from pod.protocol import CompactionDone, Envelope, EventData, RunEnd, SessionChanged, Snapshot

from .blocks import Block, Told, Tone
from .model import Step, advance, connection_back, connection_lost
from .port import PodPort
from .recall import arrived, missed, pruned_tokens
from .state import ViewState

_CUT_OFF = Told("the run was cut off; /resume goes on with it", Tone.WARNING)


@frozen(kw_only=True)
class Follows:
    """What following a pod needs, and what it is for."""

    show: Callable[[Step], None]
    """Called with every new state, and what is said with it."""
    heard: Callable[[EventData], None]
    """Called with every event, before it is shown."""
    at_once: Callable[[Awaitable[object]], None]
    """Has something done that takes a moment."""
    catch_up: Callable[[], Awaitable[None]]
    """Returns once the pod's history, as it is seen here, has all that happened."""
    now_ms: Callable[[], int]
    retained_turns: int | None = None
    """How many turns a compaction keeps, where that is known."""


@define(eq=False)
class Follower:
    """Knows a pod as it is now."""

    pod: PodPort
    follows: Follows
    state: ViewState = field(factory=ViewState, init=False)
    _stop: Callable[[], None] = field(default=lambda: None, init=False)
    _seen_uid: str | None = field(default=None, init=False)
    """The last item there was when the connection was lost."""

    def adopt(self, pod: PodPort, *, is_new: bool = True) -> None:
        """Follow that pod from now on; say what its last turn was where that is new."""
        self.stop()
        self.pod = pod
        self._stop = pod.listen(self._on_event)
        step = self._arrived()
        self._show(step if is_new else Step(step.state))

    def stop(self) -> None:
        """Follow no more."""
        self._stop()
        self._stop = lambda: None

    def say(self, *blocks: Block) -> None:
        """Say something that is not an event."""
        self._show(Step(self.state, blocks))

    # ------------------------------------------------------------------ the connection

    def is_lost(self) -> None:
        """Take in that the pod cannot be reached now."""
        if self.state.lost_ms is None:
            history = self.pod.history
            self._seen_uid = history[-1].uid if history else None

        self._show(connection_lost(self.state, self.follows.now_ms()))

    def is_back(self) -> None:
        """Take in that the pod can be reached; the first time there is nothing to tell."""
        was_lost = self.state.lost_ms is not None
        self._show(connection_back(self.state, self.follows.now_ms()))
        if was_lost:
            self.follows.at_once(self._look_again())

    async def _look_again(self) -> None:
        """See where a pod is that was away: it may be in its next life, on another session."""
        await self._caught_up()
        step = self._arrived()
        session_id = step.state.session_id
        if session_id != self.state.session_id:
            told = Told(f"the pod has begun a new session, {session_id}", Tone.WARNING)
            self._show(step if step.said else Step(step.state, (told,)))
        elif step.state.state != self.state.state:
            was_cut_off = self.state.run_ms is not None and not step.state.is_busy
            self._show(Step(step.state, (_CUT_OFF,) if was_cut_off else ()))
        else:
            self.say()

    # ------------------------------------------------------------------ events

    def _on_event(self, envelope: Envelope) -> None:
        data = envelope.data
        self.follows.heard(data)
        self._show(advance(self.state, data, envelope.ts))
        if isinstance(data, Snapshot):
            self.follows.at_once(self._tell_what_was_missed())
        elif isinstance(data, CompactionDone | SessionChanged | RunEnd):
            self.follows.at_once(self._look_at_history())

    async def _caught_up(self) -> None:
        # A pod that is being closed says no more of itself: what is known of it stays as it is.
        with suppress(PodError):
            await self.follows.catch_up()

    async def _tell_what_was_missed(self) -> None:
        await self._caught_up()
        self._show(Step(self._on_this_history(), missed(self.pod.history, self._seen_uid)))

    async def _look_at_history(self) -> None:
        await self._caught_up()
        self._show(Step(self._on_this_history()))

    def _on_this_history(self) -> ViewState:
        """Take from the pod what events do not tell, once its history has changed."""
        try:
            status, history = self.pod.status(), self.pod.history
        except PodClosed:
            return self.state

        gone = pruned_tokens(history, status.watermark)
        return evolve(self.state, turns=status.turns, pruned_tokens=gone)

    def _arrived(self) -> Step:
        """Return where the pod is, as seen by who comes to it now."""
        pod, follows = self.pod, self.follows
        step = arrived(
            pod.status(),
            pod.history,
            follows.now_ms(),
            waiting=pod.waiting_approvals(),
            retained_turns=follows.retained_turns,
        )
        return Step(evolve(step.state, spent=self.state.spent), step.said)

    def _show(self, step: Step) -> None:
        self.state = step.state
        self.follows.show(step)
