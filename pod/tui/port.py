"""What a view needs of a pod. `Pod` and `PodClient` have it under the same names.

It has more members than a protocol should, because a view shows all that a pod does; the model and
the drawing see nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from pod.client import PodClient
    from pod.context.plugin_commands import EngineCommand
    from pod.pod import Pod
    from pod.protocol import CompactionDone, Envelope
    from pod.protocol.methods import WaitingCall
    from pod.runs import RunResult
    from pod.status import PodStatus
    from worker.items import Item


class PodPort(Protocol):
    """A pod, in this process or behind a socket."""

    @property
    def name(self) -> str:
        """The pod's name."""

    @property
    def session_id(self) -> str:
        """The id of the session that is being written."""

    @property
    def history(self) -> tuple[Item, ...]:
        """The items so far, oldest first."""

    def status(self) -> PodStatus:
        """Return where the pod stands."""

    def listen(self, callback: Callable[[Envelope], None]) -> Callable[[], None]:
        """Call `callback(envelope)` on every event from now on. Returns how to stop it."""

    async def run(self, prompt: str) -> RunResult:
        """Run a prompt to its end. Raises `PodBusy` where a run is going on."""

    async def resume(self) -> RunResult:
        """Go on with a run that was paused, cancelled, interrupted or stopped at a limit."""

    def cancel(self) -> object:
        """Stop the run or the compaction that is going on."""

    async def compact(self, focus: str | None = None) -> CompactionDone | None:
        """Compact now; None where there is nothing to cut. Raises `CompactionError`."""

    async def new(self) -> None:
        """Begin a fresh session."""

    async def rewind(self, to: str) -> None:
        """Go back to the entry of that hash."""

    def approve(
        self,
        call_id: str,
        decision: Literal["allow", "deny"],
        *,
        scope: Literal["once", "session"] = "once",
        by: str = "",
    ) -> object:
        """Decide about a call that waits, named by its `call_uid`. Raises `UnknownApproval`."""

    def waiting_approvals(self) -> Sequence[WaitingCall]:
        """Return the calls that wait for a decision, oldest first."""

    async def idle(self) -> None:
        """Wait until no run and no compaction is going on."""

    def engine_commands(self) -> Mapping[str, EngineCommand]:
        """Return the slash commands that the engine's plugin registered, by name."""

    async def engine_command(self, name: str, args: str = "") -> str:
        """Carry out one of them and return what it says."""


if TYPE_CHECKING:

    def _fit(pod: Pod, client: PodClient) -> tuple[PodPort, PodPort]:
        """Have the type checker say so where one of them stops being a port."""
        return pod, client
