"""What a launch begins with: what the manifest came to, the session, and what was left for it."""

from __future__ import annotations

from attrs import define, evolve, field, frozen

from pod.approvals import ApprovalDesk
from pod.bus import EventBus
from pod.context.facts import Beginning
from pod.context.host import EngineHost
from pod.core import PodCore
from pod.launching.engine_setup import NamedEngine
from pod.launching.hermes_setup import HermesPlace
from pod.launching.preparing import Prepared
from session_store import FileSessionStore, Session


@frozen
class Left:
    """A session that a pod left for another one, and the plugin's engine that goes along."""

    session_id: str
    carries_over: bool
    """Whether what was said in it is part of the next one."""
    host: EngineHost | None = None
    named: NamedEngine = field(factory=NamedEngine)
    place: HermesPlace | None = None

    def back(self) -> Left:
        """Return what goes along on the way back, where the next session could not be opened."""
        return evolve(self, session_id="")


@define(eq=False)
class Setting:
    """What a launch begins with."""

    prepared: Prepared
    bus: EventBus
    approvals: ApprovalDesk
    store: FileSessionStore
    session: Session
    lineage: list[tuple[str, str]]
    left: Left | None
    _core: PodCore | None = field(default=None, init=False)

    @property
    def core(self) -> PodCore:
        """The pod's parts. They refer to one another, and are there once the last one is made."""
        assert self._core is not None  # noqa: S101  no part is at work before all are made
        return self._core

    def made(self, core: PodCore) -> None:
        """Note that the parts are there."""
        self._core = core

    @property
    def kept(self) -> Left | None:
        """What was left, where a plugin's engine goes along."""
        return self.left if self.left is not None and self.left.host is not None else None

    def beginning(self) -> Beginning:
        """Return what the engine is told of the session."""
        left, state = self.left, self.session.state
        # As the manifest calls it: the same folder that the engine finds by asking.
        engine = self.prepared.loaded.manifest.context.engine
        is_new_branch = left is None and state.forked_from is not None and state.head.seq == 0
        branched_off = state.forked_from[0] if is_new_branch and state.forked_from else ""
        # Compactions go on with a conversation; a branch is one of its own.
        branch = next((id_ for id_, how in reversed(self.lineage) if how != "compact"), "")
        return Beginning(
            session_id=state.session_id,
            hermes_home=str(self.prepared.home.engines / engine),
            conversation_id=branch,
            left=left.session_id if left is not None else branched_off,
            carries_over=left.carries_over if left is not None else True,
            is_first=self.kept is None,
        )
