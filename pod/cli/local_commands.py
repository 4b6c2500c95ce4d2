"""Slash commands for a pod of this process: what only its owner can do, or what reads the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from pod.tui.blocks import Told
from pod.tui.commands import Command, Front
from pod.tui.text import counted

from .listing import quoted

if TYPE_CHECKING:
    from .transcript import Place

_SESSIONS_SHOWN = 10
_PLACES_SHOWN = 10
_HASH_DIGITS = 12
_QUESTION_CELLS = 60


def store_commands(places: Callable[[str], list[Place]]) -> Mapping[str, Command]:
    """Return the commands that read the store; `places` says where a session can go back to."""

    async def rewind(view: Front, to: str) -> None:
        if to:
            await view.pod.rewind(to)
            view.tell(Told(f"{counted(view.pod.status().turns, 'turn')} so far"))
            return

        # The last one is where the conversation is now.
        found = places(view.pod.session_id)[:-1][-_PLACES_SHOWN:]
        lines = [
            f"  {place.hash[:_HASH_DIGITS]}  after {quoted(place.question, _QUESTION_CELLS)}"
            for place in found
        ]
        lines.append("/rewind HASH goes back there" if found else "there is nothing to go back to")
        view.tell(Told("\n".join(lines)))

    return {
        "rewind": Command("[hash]", "go back, or show where to", "in turn", rewind),
        "sessions": Command("", "this pod's newest sessions", "now", _sessions),
    }


async def _sessions(view: Front, _: str) -> None:
    from session_store.ids import now_ms

    from .session_tree import list_lines
    from .stored import open_index

    name = view.pod.name
    infos = [info for info in open_index().sessions() if info.pod == name]
    lines = list_lines(
        infos[:_SESSIONS_SHOWN], now_ms=now_ms(), columns=get_terminal_size().columns
    )
    if len(infos) > _SESSIONS_SHOWN:
        lines.append(f"and {len(infos) - _SESSIONS_SHOWN} more: pod sessions list --pod {name}")

    view.tell(Told("\n".join(lines)))
