"""The live region at the bottom of a terminal: what goes on now. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from pod.status import PodStatus

from . import wording
from .arguments import brief
from .draw import Paper, markdown
from .gauge import gauge_line
from .state import Approval, Call, ViewState
from .text import cut, one_line, showable

_MOST_CALLS = 5
_MOST_QUEUED = 3
_MOST_THOUGHT = 4
_FEWEST_OPEN = 2


@frozen(kw_only=True)
class Scene:
    """What there is to draw besides the state."""

    now_ms: int
    rows: int
    """How many lines there are at most."""
    paper: Paper
    status: PodStatus | None = None
    """None where it is not known, as before the pod is there."""
    queued: Sequence[str] = ()
    """What was typed and waits for its turn."""
    question: str = ""
    """Something the person is asked, other than approvals."""
    is_verbose: bool = False
    is_stopping: bool = False


def region(state: ViewState, scene: Scene) -> str:
    """Return the lines of the live region, the input line not among them, with their colours."""
    below = [
        *_going_on(state, scene),
        *_waiting(scene),
        *_asked(state, scene),
        *_gauge(state, scene),
    ]
    below = below[-max(1, scene.rows) :]
    room = scene.rows - len(below)
    above = _coming(state, scene, room) if room >= _FEWEST_OPEN else []
    return "\n".join([*above, *below])


# ------------------------------------------------------------------ the answer that is coming


def _coming(state: ViewState, scene: Scene, room: int) -> list[str]:
    """Return the end of what is not finished yet, as far as there is room."""
    now = state.answering
    lines: list[str] = []
    if now.thought.strip() and not now.open.strip():
        lines = _thinking(now.thought, scene)
    elif now.open.strip():
        painted = scene.paper.paint(markdown(_tail(now.open, scene))).rstrip("\n").split("\n")
        lines = ["…", *painted] if now.is_joined else painted

    return lines[-room:]


def _tail(text: str, scene: Scene) -> str:
    """Return no more of a long text than can be seen; rendering it all would cost too much."""
    most = 4 * scene.rows * scene.paper.columns
    if len(text) <= most:
        return text

    fence = text.lstrip().partition("\n")[0]
    _, _, end = text[-most:].partition("\n")
    return f"{fence}\n{end}" if fence.startswith(("```", "~~~")) else end


def _thinking(thought: str, scene: Scene) -> list[str]:
    if not scene.is_verbose:
        return []

    from rich.text import Text

    shown = Text(showable(thought.strip()[-2_000:]), style="dim italic")
    return scene.paper.paint(shown).rstrip("\n").split("\n")[-_MOST_THOUGHT:]


# ------------------------------------------------------------------ lines


def _going_on(state: ViewState, scene: Scene) -> list[str]:
    asked = {approval.call_id for approval in state.approvals}
    lines = [_call(call, scene, _waits(call, asked)) for call in state.calls[:_MOST_CALLS]]
    if len(state.calls) > _MOST_CALLS:
        lines.append(_line(f"  and {len(state.calls) - _MOST_CALLS} more calls", scene, "dim"))

    if state.compaction is not None:
        lines.append(_timed(state.compaction.text, state.compaction.since_ms, scene))

    if state.lost_ms is not None:
        lines.append(_timed(wording.CONNECTION_LOST, state.lost_ms, scene, "yellow"))
    elif scene.is_stopping:
        lines.append(_line("stopping …", scene, "yellow"))
    elif state.retry is not None:
        lines.append(_timed(f"  {state.retry.text}", state.retry.since_ms, scene, "yellow"))
    elif state.answering.thought and not state.answering.text:
        lines.append(_line("  thinking …", scene, "dim"))
    elif state.asked_ms is not None and state.compaction is None:
        lines.append(_timed("  waiting for the model …", state.asked_ms, scene, "dim"))
    elif state.run_ms is not None and not lines and not state.answering.open:
        lines.append(_timed("  at work …", state.run_ms, scene, "dim"))

    return lines


def _waits(call: Call, asked: set[str]) -> str:
    """Return what a call waits for: none of them runs before all are decided."""
    if not asked:
        return "runs" if call.since_ms is None else ""

    return "waits" if call.call_id in asked else "waits for the others"


def _call(call: Call, scene: Scene, waits: str) -> str:
    since = waits or wording.seconds(scene.now_ms - (call.since_ms or 0))
    name = one_line(call.name)
    room = scene.paper.columns - len(since) - 6
    told = f"{name} {brief(call.arguments, room)}" if call.is_whole else f"{name} …"
    return _line(f"  · {cut(told.rstrip(), room)} {since}", scene, "cyan")


def _waiting(scene: Scene) -> list[str]:
    lines = [_line(f"queued: {one_line(text)}", scene, "dim") for text in scene.queued]
    if len(lines) > _MOST_QUEUED:
        more = _line(f"and {len(lines) - _MOST_QUEUED + 1} more queued", scene, "dim")
        return [*lines[: _MOST_QUEUED - 1], more]

    return lines


def _asked(state: ViewState, scene: Scene) -> list[str]:
    if scene.question:
        return [_line(line, scene, "bold") for line in scene.question.split("\n")]

    if not state.approvals:
        return []

    return [_line(line, scene, "bold yellow") for line in question(state.approvals, scene)]


def question(approvals: Sequence[Approval], scene: Scene) -> list[str]:
    """Return what the person is asked about the first of the calls that wait."""
    first = approvals[0]
    columns = scene.paper.columns
    left = ""
    if first.until_ms is not None:
        left = f" · {wording.seconds(first.until_ms - scene.now_ms)} left"

    many = f" (1 of {len(approvals)})" if len(approvals) > 1 else ""
    name = one_line(first.name)
    told = brief(first.arguments, max(0, columns - len(name) - len(many) - 9))
    keys = "  y once · s for this session · n deny"
    what = f"allow {name} {told}".rstrip() + f"?{many}"
    if len(keys) + len(left) < columns:
        return [what, keys + left]

    return [what, "  y once, s session, n deny" + left.replace(" ·", ",").replace(" left", "")]


def _gauge(state: ViewState, scene: Scene) -> list[str]:
    if scene.status is None:
        return []

    told = gauge_line(
        scene.status, scene.paper.columns, pruned=state.pruned_tokens, cost=state.cost
    )
    return [_line(told, scene, "dim")]


def _timed(text: str, since_ms: int, scene: Scene, style: str = "") -> str:
    passed = wording.seconds(scene.now_ms - since_ms)
    # The numbers stay and the words go, where a line is too short for both.
    room = scene.paper.columns - len(passed) - 2
    return _line(f"{cut(showable(text), room)} {passed}", scene, style)


def _line(text: str, scene: Scene, style: str = "") -> str:
    from rich.text import Text

    # One column stays free: a terminal may wrap a line that fills it.
    fitted = Text(cut(showable(text), scene.paper.columns - 1), style=style)
    return scene.paper.paint(fitted).rstrip("\n")
