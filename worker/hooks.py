"""Hooks: places in the turn loop where outside code looks on and may decide.

A public hook gets a read-only view and returns an action; None means `Continue`. Hooks of a point
are asked in registration order, and the first answer other than `Continue` wins. Text that a hook
adds becomes a logged `SystemNote` before any request contains it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Literal, TypeAlias

from attrs import field, frozen
from attrs.validators import in_

from .errors import HookFailed
from .foreign import Failure, attempt, bounded
from .threads import call_in_daemon_thread
from .tools import ToolOutput


class HookPoint(StrEnum):
    """The points of a run at which hooks are asked."""

    ON_PROMPT_SUBMIT = "OnPromptSubmit"
    PRE_LLM_REQUEST = "PreLlmRequest"
    PRE_TOOL_CALL = "PreToolCall"
    POST_TOOL_CALL = "PostToolCall"
    ON_TURN_END = "OnTurnEnd"
    ON_ABORT = "OnAbort"


@frozen
class PromptView:
    """What was submitted."""

    text: str


@frozen
class RequestView:
    """The request about to be made: how long the history is, how much the prompt takes."""

    history_len: int
    occupancy_tokens: int
    request: int


@frozen
class ToolCallView:
    """A call about to run; `arguments` is the text as received."""

    call_id: str
    call_uid: str
    name: str
    arguments: str


@frozen
class ToolResultView:
    """A call's result, already in the log."""

    call_id: str
    call_uid: str
    name: str
    summary: str
    is_error: bool


@frozen
class TurnEndView:
    """The answer that would end the turn."""

    text: str


@frozen
class AbortView:
    """Why the run is being given up."""

    reason: str


HookView: TypeAlias = (
    PromptView | RequestView | ToolCallView | ToolResultView | TurnEndView | AbortView
)


@frozen
class Continue:
    """Go on."""


@frozen
class ContinueWith:
    """Go on, with these texts added to the context as notes.

    At OnPromptSubmit and PreLlmRequest before the request; at OnTurnEnd the model answers again.
    """

    notes: tuple[str, ...]
    kind: str = "hook"


@frozen
class Cancel:
    """Stop the run before anything is sent (OnPromptSubmit, PreLlmRequest)."""

    reason: str


@frozen
class Yield:
    """Hand the run back to whoever drives the worker, who resumes it later (PreLlmRequest)."""

    reason: str
    notes: tuple[str, ...] = ()


@frozen
class Skip:
    """Do not run this call; its result says that it was skipped (PreToolCall)."""

    reason: str = "skipped by a hook"


@frozen
class SyntheticResult:
    """Do not run this call; take this output for its result (PreToolCall)."""

    output: ToolOutput


@frozen
class Ask:
    """Let a person decide whether this call runs (PreToolCall); with nobody to ask it does not.

    Hooks after this one are asked once it may run.
    """

    reason: str = ""


@frozen
class Abort:
    """Give the run up (PreToolCall, PostToolCall)."""

    reason: str


@frozen
class Pause:
    """Pause the run here; `resume` goes on (PreToolCall, OnTurnEnd)."""


Action: TypeAlias = (
    Continue | ContinueWith | Cancel | Yield | Skip | SyntheticResult | Ask | Abort | Pause
)
HookFunction: TypeAlias = Callable[..., "Action | Awaitable[Action | None] | None"]

ALLOWED: dict[HookPoint, tuple[type[object], ...]] = {
    HookPoint.ON_PROMPT_SUBMIT: (Continue, ContinueWith, Cancel),
    HookPoint.PRE_LLM_REQUEST: (Continue, ContinueWith, Cancel, Yield),
    HookPoint.PRE_TOOL_CALL: (Continue, Skip, SyntheticResult, Ask, Abort, Pause),
    HookPoint.POST_TOOL_CALL: (Continue, Abort),
    HookPoint.ON_TURN_END: (Continue, ContinueWith, Pause),
    HookPoint.ON_ABORT: (Continue,),
}


@frozen
class Hook:
    """A function at a hook point: plain, which then runs in a thread, or async.

    With `on_error="fail"`, the default, its failure stops the run: a guard fails closed. With
    "ignore" a failure is reported to `Hooks.on_ignored` and counts as `Continue`.
    """

    point: HookPoint = field(converter=HookPoint)
    function: HookFunction
    on_error: Literal["fail", "ignore"] = field(default="fail", validator=in_(("fail", "ignore")))
    name: str = ""

    @property
    def label(self) -> str:
        """How the hook is named in messages."""
        return self.name or getattr(self.function, "__qualname__", type(self.function).__name__)


@frozen
class Hooks:
    """The hooks of one worker, asked point by point."""

    hooks: tuple[Hook, ...] = ()
    on_ignored: Callable[[str], None] = field(default=lambda _message: None)

    async def ask(self, point: HookPoint, view: HookView) -> Action:
        """Return the first action other than `Continue` that a hook of `point` gives.

        Raises:
            HookFailed: A hook with on_error "fail" raised, or returned no action of this point.
        """
        action, _ = await self.ask_from(0, point, view)
        return action

    async def ask_from(self, start: int, point: HookPoint, view: HookView) -> tuple[Action, int]:
        """Ask as `ask` does, leaving out the first `start` hooks of the point.

        Returns the action, and the number of hooks that were asked, or left out, until then.
        """
        hooks = self.at(point)
        for number, hook in enumerate(hooks[start:], start + 1):
            action = await self._ask_one(hook, view)
            if not isinstance(action, Continue):
                return action, number

        return Continue(), len(hooks)

    def at(self, point: HookPoint) -> Sequence[Hook]:
        """Return the hooks of one point, in registration order."""
        return [hook for hook in self.hooks if hook.point is point]

    async def _ask_one(self, hook: Hook, view: HookView) -> Action:
        # In a task of its own: a hook that will not be cancelled keeps nobody from ending the run.
        answer = await bounded(lambda: attempt(lambda: _call(hook, view)), None)
        cause: BaseException | None = None
        if isinstance(answer, Failure):
            problem, cause = f"hook {hook.label} at {hook.point} raised {answer}", answer.error
            problem += f" ({answer.place})" if answer.place else ""
            hint = 'fix the hook, or set on_error = "ignore"'
        elif answer is None:
            return Continue()
        elif isinstance(answer, ALLOWED[hook.point]):
            return answer
        else:
            names = ", ".join(cls.__name__ for cls in ALLOWED[hook.point])
            problem = f"hook {hook.label} returned {type(answer).__name__}"
            hint = f"allowed at {hook.point}: {names}"

        if hook.on_error == "fail":
            raise HookFailed(problem, hint=hint) from cause

        self.on_ignored(problem)
        return Continue()


async def _call(hook: Hook, view: HookView) -> Action | None:
    if inspect.iscoroutinefunction(hook.function):
        return await hook.function(view)  # type: ignore[no-any-return]  # checked by the caller

    # A plain function may block (a prompt, a network look-up): never on the event loop.
    answer = await call_in_daemon_thread(lambda: hook.function(view), name="hook")
    return await answer if inspect.isawaitable(answer) else answer
