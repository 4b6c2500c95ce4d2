"""One prompt to its end: the answer or the events on stdout, the rest on stderr, an exit code."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from attrs import define, field

from manifests import CompactionSection
from pod.pod import Pod
from pod.protocol import ApprovalResolved, Envelope, RunEnd, RunStart, TextDelta, TextDone
from worker.items import is_turn_start

from .complaints import complaints_on_stderr
from .failures import INTERRUPTED, launching, report, report_output, run_exit_code
from .interrupts import Interrupts
from .listing import say
from .narrator import Narrator
from .notes import Scene, closing
from .outlet import Outlet, claimed_stdout

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.runs import RunResult
    from worker.items import UserMessage

    from .options import RunOptions


def run_to_end(pod: Pod, prompt: UserMessage, loaded: LoadedManifest, options: RunOptions) -> int:
    """Launch the pod, run the prompt, wait for a compaction that follows; return the exit code.

    Raises what launching raises.
    """
    with complaints_on_stderr(), claimed_stdout() as outlet:
        scene = scene_of(pod, loaded, is_verbose=options.verbose)
        pod.listen(JsonLines(outlet) if options.as_json else Answers(outlet, pod, scene))
        return asyncio.run(_run(pod, prompt, outlet, options.manifest))


async def _run(pod: Pod, prompt: UserMessage, outlet: Outlet, manifest: str) -> int:
    launch = Launch(pod)
    outlet.on_closed = launch.cancel
    with Interrupts(launch.cancel) as interrupts:
        try:
            with launching(manifest):
                await launch.start()

            async with pod:
                result = await pod.run(prompt)
                await pod.idle()
        except asyncio.CancelledError:
            if interrupts.exit_code is None:
                raise

            say("cancelled", err=True)
            return interrupts.exit_code

        outlet.end_line()
        return _ended(result, interrupts, outlet)


@define
class Launch:
    """A pod that can be cancelled also while it is being launched."""

    pod: Pod
    _starting: asyncio.Task[Any] | None = field(default=None, init=False)

    async def start(self) -> None:
        """Launch the pod. Raises what that raises, and `CancelledError` after `cancel`."""
        self._starting = asyncio.current_task()
        await self.pod.start()
        self._starting = None

    def cancel(self) -> None:
        """Give up the launch, or stop what the pod is doing."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
        else:
            self.pod.cancel()


def _ended(result: RunResult, interrupts: Interrupts, outlet: Outlet) -> int:
    """Say how the run ended, where it did not end well, and return the exit code."""
    if outlet.error is not None:
        return report_output(outlet.error)

    if result.outcome == "cancelled" or interrupts.exit_code is not None:
        say(_cancelled(result), err=True)
        return interrupts.exit_code or INTERRUPTED

    if result.exception is not None:
        report(result.exception)
    elif result.outcome != "finished":
        say(f"{result.outcome.replace('_', ' ')}: {result.message or 'no reason given'}", err=True)

    return run_exit_code(result)


def _cancelled(result: RunResult) -> str:
    return result.message if result.outcome == "cancelled" and result.message else "cancelled"


@define
class JsonLines:
    """Prints every event, one a line, as it is published."""

    outlet: Outlet

    def __call__(self, envelope: Envelope) -> None:
        """Print an event."""
        self.outlet.write_bytes(envelope.to_json() + b"\n")


@define
class Answers:
    """Prints the answers' text as it comes, and on stderr whatever else is to be told."""

    outlet: Outlet
    pod: Pod
    scene: Scene
    _streamed: bool = field(default=False, init=False)
    """Whether the present answer's text has come in pieces already."""
    _started_s: float = field(factory=time.monotonic, init=False)
    _unasked: dict[str, None] = field(factory=dict, init=False)
    """The tools that somebody would have had to allow, in the order of their calls."""
    _narrator: Narrator = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Let an answer's line end, on a terminal, before anything else is told."""
        self._narrator = Narrator(self.scene, self._end_line)

    def __call__(self, envelope: Envelope) -> None:
        """Show an event."""
        match envelope.data:
            case TextDelta() as delta:
                self._streamed = True
                self.outlet.write(delta.text)
            case TextDone() as done:
                if not self._streamed:
                    self.outlet.write(done.text)

                self._streamed = False
                self.outlet.end_line()
            case RunStart():
                self._started_s = time.monotonic()
            case ApprovalResolved(by="nobody", name=name):
                self._unasked[name] = None
            case RunEnd() as end:
                self.outlet.end_line()
                self._say_unasked()
                self._close(end)
            case data:
                self._narrator.tell(data)

    def _end_line(self) -> None:
        if self.outlet.is_terminal:
            self.outlet.end_line()

    def _say_unasked(self) -> None:
        """Say what helps where a call was denied as nobody was there to ask."""
        if self._unasked:
            say(
                f"  {', '.join(self._unasked)}: to be asked, run it without a prompt; or allow it "
                "in [permissions] tools",
                err=True,
            )

    def _close(self, end: RunEnd) -> None:
        if end.outcome == "finished" and (self.scene.is_verbose or sys.stderr.isatty()):
            seconds = time.monotonic() - self._started_s
            say(closing(end, label_of(self.pod), seconds), err=True)


def scene_of(pod: Pod, loaded: LoadedManifest, *, is_verbose: bool = False) -> Scene:
    """Return what notes about this pod's events need to know of it."""
    settings = loaded.manifest.compaction or CompactionSection()
    return Scene(
        turns=lambda: sum(map(is_turn_start, pod.history)),
        retained_turns=settings.compact_retained_turns,
        is_verbose=is_verbose,
    )


def label_of(pod: Pod) -> str:
    """Return the pod's provider and model, as `local/SmolLM2-135M`."""
    status = pod.status()
    return f"{status.provider}/{status.model}"
