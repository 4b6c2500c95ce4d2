"""All checks of the contract, in the order in which they are made and told."""

from __future__ import annotations

from .checks.compressing import newest, pairs, shape, sizes
from .checks.hooks import select, turn, when
from .checks.hostile import hostile
from .checks.identities import uids
from .checks.members import members, status
from .checks.model_failures import failures
from .checks.models import models, usage
from .checks.replay import replay
from .checks.sessions import sessions
from .checks.sharing import clones, threads
from .checks.tools import tools
from .results import Check

_AREAS = (
    *(members, shape, pairs, sizes, newest, uids, hostile),
    *(when, usage, models, status, sessions, select, turn, tools),
    *(clones, threads, failures, replay),
)

CHECKS: tuple[Check, ...] = tuple(check for area in _AREAS for check in area.checks)
"""Every check; ids are unique and stable."""


def check_called(check_id: str) -> Check:
    """Return the check of that id.

    Raises:
        KeyError: There is none.
    """
    return {check.id: check for check in CHECKS}[check_id]
