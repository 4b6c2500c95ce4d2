"""`pod stop`: the end of a served pod."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from .failures import debug_option, reported
from .listing import say

if TYPE_CHECKING:
    from pod.serve.claim import Serving
    from pod.serve.places import Places

_LOOK_AGAIN_S = 0.05
_PATIENCE_S = 60.0
_NOW_S = 2.0


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--wait", is_flag=True, help="Let what is going on come to its end first.")
@click.option("--now", is_flag=True, help="Kill it where it has not ended after 2 seconds.")
@debug_option
def stop(name: str, *, wait: bool, now: bool) -> None:
    """End a served pod, and return when it is gone.

    A run that is going on is cancelled, unless told to wait. Its session is as it was acknowledged,
    whatever happens: pod serve MANIFEST --continue goes on with it.
    """
    from pod.home import Home
    from pod.serve.claim import find
    from pod.serve.places import Places

    if wait and now:
        raise click.UsageError("give one of --wait and --now")

    with reported():
        places = Places.of(Home.from_env(os.environ), name)
        serving = find(places)
        _ask(places, serving, wait=wait, now=now)
        _await_end(places, serving, wait=wait, now=now)

    say(f"{name} has ended", err=True)


def _ask(places: Places, serving: Serving, *, wait: bool, now: bool) -> None:
    from pod.serve.caller import ANSWER_S, Caller, NotListening, Unanswered

    timeout_s = _NOW_S if now else ANSWER_S
    try:
        with Caller.connect(places, timeout_s) as caller:
            caller.call("shutdown", {"wait": wait}, timeout_s=timeout_s)
    except NotListening:
        # It is about to begin, and hears nothing else, or to end already.
        if serving.pid and not wait:
            with suppress(ProcessLookupError):
                os.kill(serving.pid, signal.SIGTERM)
    except Unanswered:
        if not now:
            raise


def _await_end(places: Places, serving: Serving, *, wait: bool, now: bool) -> None:
    from pod.serve.caller import Unanswered

    if _is_gone(places, serving, _NOW_S if now else None if wait else _PATIENCE_S):
        return

    if not now:
        message = f"the pod {places.name} (pid {serving.pid}) has not ended after {_PATIENCE_S:g} s"
        raise Unanswered(message, hint=f"pod stop {places.name} --now kills it")

    if not serving.pid:
        message = f"the pod {places.name} has not ended after {_NOW_S:g} s, nor said its pid"
        raise Unanswered(message, hint=f"fuser {places.lock} shows which process it is")

    # It holds the pod's name, or it would count as gone: the pid is its own.
    with suppress(ProcessLookupError):  # it has ended by itself, after all
        os.kill(serving.pid, signal.SIGKILL)

    say(f"killed pid {serving.pid}, which had not ended after {_NOW_S:g} s", err=True)
    if not _is_gone(places, serving, _NOW_S):
        message = f"the name of the pod {places.name} is still held {_NOW_S:g} s after that"
        raise Unanswered(message, hint=f"fuser {places.lock} shows by which process")


def _is_gone(places: Places, serving: Serving, timeout_s: float | None) -> bool:
    """Tell whether nobody serves the pod any more, after at most so long."""
    from pod.serve.claim import serving as serving_now

    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while (found := serving_now(places)) is not None and _may_be(found, serving):
        if deadline is not None and time.monotonic() > deadline:
            return False

        time.sleep(_LOOK_AGAIN_S)

    return True


def _may_be(found: Serving, serving: Serving) -> bool:
    """Tell whether that may be the same process: it is not another one as far as both say."""
    return not (found.pid and serving.pid) or found.pid == serving.pid
