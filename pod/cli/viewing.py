"""A view on this process's terminal: which stage suits it, and how it is run there."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

from pod.tui.app import Manner, View, nothing
from pod.tui.commands import Command
from pod.tui.past import PastLines
from pod.tui.stage import Stage
from pod.tui.text import is_utf8

from .attention import Attention
from .failures import explained

if TYPE_CHECKING:
    from pod.tui.draw import ColourSystem
    from pod.tui.port import PodPort

_HISTORY = "chat_history"


def who() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return f"uid {os.getuid()}"


@frozen(kw_only=True)
class Showing:
    """What a view is to be like."""

    home: Path
    env: Mapping[str, str]
    commands: Mapping[str, Command]
    is_verbose: bool = False
    by: str = field(factory=who)
    """Who decides about calls, as it is logged; empty: as the pod sees it."""
    retained_turns: int | None = None
    catch_up: Callable[[], Awaitable[None]] = nothing
    before_leaving: Callable[[], Awaitable[None]] = nothing


def make_view(pod: PodPort, showing: Showing) -> View:
    """Return a view of the pod on stdin and stdout, as far as those can show one."""
    holder: list[View] = []

    def is_verbose() -> bool:
        return holder[0].is_verbose

    past = PastLines(showing.home / _HISTORY)
    stage = _stage(past, showing.env, is_verbose)
    manner = Manner(
        explain=explained,
        commands=showing.commands,
        by=showing.by,
        colours=_colours(showing.env),
        is_piped=not _is_terminal(sys.stdin),
        is_ascii=not is_utf8(sys.stderr.encoding),
        columns=lambda: shutil.get_terminal_size().columns,
        retained_turns=showing.retained_turns,
        catch_up=showing.catch_up,
        before_leaving=showing.before_leaving,
    )
    view = View(pod, stage, manner, is_verbose=showing.is_verbose)
    holder.append(view)
    return view


async def show(view: View) -> int:
    """Show the view until the person leaves; return the exit code. Signals reach the view."""
    with Attention(view.interrupted, view.leave):
        return await view.run()


def can_draw(env: Mapping[str, str]) -> bool:
    """Tell whether stdin and stdout are a terminal that moves its cursor and knows UTF-8."""
    has_terminal = _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    return has_terminal and is_utf8(sys.stdout.encoding) and env.get("TERM", "dumb") != "dumb"


def _stage(past: PastLines, env: Mapping[str, str], is_verbose: Callable[[], bool]) -> Stage:
    if not can_draw(env):
        from pod.tui.plain import PlainLines

        return PlainLines(past, is_verbose)

    from pod.tui.screen import Screen

    return Screen(past, _colours(env), is_verbose)


def _colours(env: Mapping[str, str]) -> ColourSystem | None:
    if env.get("NO_COLOR") or not can_draw(env):
        return None

    if env.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        return "truecolor"

    return "256" if "256" in env.get("TERM", "") else "standard"


def _is_terminal(stream: object) -> bool:
    return bool(stream is not None and getattr(stream, "isatty", bool)())
