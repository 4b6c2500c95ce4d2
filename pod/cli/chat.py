"""A conversation on a terminal: a pod of this process, and the view of it that `attach` has too."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pod.pod import Pod

from .complaints import complaints_on_stderr
from .conversation import Conversation
from .failures import launching
from .interrupts import Interrupts, leave_now
from .listing import say
from .oneshot import Launch
from .options import RunOptions, chosen_session
from .viewing import Showing, make_view, show

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.home import Home


def talk(options: RunOptions, loaded: LoadedManifest, home: Home, env: Mapping[str, str]) -> int:
    """Launch the pod, talk until the person leaves, close the pod; return the exit code.

    Raises what launching raises.
    """
    session_id = chosen_session(options, loaded, home)
    pod = Pod(loaded, home=home, env=env, resume=session_id)
    with complaints_on_stderr(), asyncio.Runner() as runner:
        return runner.run(_talk(Conversation(options, home, env, loaded, pod)))


async def _talk(conversation: Conversation) -> int:
    code = await _launched(conversation)
    if code is not None:
        say("cancelled", err=True)
        return code

    showing = Showing(
        home=conversation.home.root,
        env=conversation.env,
        commands=conversation.commands,
        is_verbose=conversation.options.verbose,
        retained_turns=conversation.retained_turns,
    )
    conversation.attend()
    view = make_view(conversation.pod, showing)
    try:
        code = await show(view)
        if view.is_hurried:  # something does not stop: closing would wait for it
            leave_now(signal.SIGINT)

        return code
    finally:
        with Interrupts(conversation.pod.cancel):  # a second one ends the process
            await conversation.close()


async def _launched(conversation: Conversation) -> int | None:
    """Launch the pod; return the exit code of the signal that came first, if one did."""
    launch = Launch(conversation.pod)
    with Interrupts(launch.cancel) as interrupts:
        try:
            with launching(conversation.options.manifest):
                await launch.start()
        except asyncio.CancelledError:
            if interrupts.exit_code is None:
                raise

    return interrupts.exit_code
