"""The sessions that the command line is about: their store, their index, one by its id."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from pod.home import Home

from .listing import say

if TYPE_CHECKING:
    from session_store import FileSessionStore, ForkPoint, SessionIndex

_SHORTEST_PREFIX = 8
_AMBIGUOUS_SHOWN = 5


def open_store() -> FileSessionStore:
    """Return the store of the home that the environment names."""
    from session_store import FileSessionStore

    return FileSessionStore(Home.from_env(os.environ).root)


def open_index() -> SessionIndex:
    """Return the index of the same home; what is wrong with it is told on stderr."""
    from session_store import SessionIndex

    home = Home.from_env(os.environ).root
    return SessionIndex(home, on_notice=lambda notice: say(notice, err=True))


def find_session(store: FileSessionStore, text: str) -> str:
    """Return the session id that `text` is, or is the beginning of.

    Raises:
        InvalidSessionId: It cannot be either.
        SessionNotFound: No id begins so, or several do.
    """
    from session_store import InvalidSessionId, SessionNotFound
    from session_store.ids import is_session_id

    if is_session_id(text):
        return text

    if len(text) < _SHORTEST_PREFIX or not re.fullmatch("[0-9a-f][0-9a-f-]{7,35}", text, re.ASCII):
        raise InvalidSessionId(text)

    found = [session_id for session_id in store.ids() if session_id.startswith(text)]
    if len(found) == 1:
        return found[0]

    some = ", ".join(found[:_AMBIGUOUS_SHOWN])
    raise SessionNotFound(text, f"{len(found)} begin so: {some}" if found else "none begins so")


def sound_fork_point(store: FileSessionStore, session_id: str, at: str | None = None) -> ForkPoint:
    """Return where a fork would be made, all that it would inherit having been verified.

    The store proves a log's end alone, so that a fork costs the same for any length; a person who
    asks for one is better told of damage now than by a fork that does not open.

    Raises:
        SessionDamaged: Something before the fork point does not verify. Nothing was made.
        UnknownEntry: No entry of the session has that hash.
    """
    point = store.fork_point(session_id, at)
    store.restore(session_id, point.hash)
    return point
