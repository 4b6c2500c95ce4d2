"""`pod ps`: the pods that are served now."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from .failures import debug_option, reported
from .listing import age, padded, right, say, say_json

if TYPE_CHECKING:
    from pod.home import Home
    from pod.serve.claim import Serving

_ASK_S = 2.0
SILENT = "silent"
"""What is shown in the place of its state where a pod does not answer."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@debug_option
def ps(as_json: bool) -> None:
    """List the pods that are served now.

    What dead ones left behind is removed.
    """
    from pod.home import Home

    with reported():
        rows = served_pods(Home.from_env(os.environ))

    if as_json:
        say_json(rows)
    elif rows:
        for line in _lines(rows, int(time.time() * 1000)):
            say(line)
    else:
        say("no pods are served", err=True)


def served_pods(home: Home) -> list[dict[str, Any]]:
    """Return what there is to say of each served pod, by name."""
    from pod.serve.claim import served

    return [_row(home, serving) for serving in served(home)]


def _row(home: Home, serving: Serving) -> dict[str, Any]:
    status = _status(home, serving.name)
    return {
        "name": serving.name,
        "pid": serving.pid or None,
        "session_id": status.get("session_id"),
        "state": status.get("state", SILENT),
        "manifest": serving.manifest or None,
        "since": serving.since_ms or None,
        "socket": serving.socket,
    }


def _status(home: Home, name: str) -> dict[str, Any]:
    from pod.errors import PodError
    from pod.serve.caller import Caller
    from pod.serve.places import Places

    try:
        with Caller.connect(Places.of(home, name), _ASK_S) as caller:
            return caller.call("status", timeout_s=_ASK_S)
    except PodError:
        # It begins, it ends, or it hangs: it is listed all the same.
        return {}


def _lines(rows: list[dict[str, Any]], now_ms: int) -> list[str]:
    columns = [
        ["NAME", *(row["name"] for row in rows)],
        right(["PID", *(str(row["pid"] or "?") for row in rows)]),
        ["STATE", *(row["state"] for row in rows)],
        ["SINCE", *(age(row["since"], now_ms) if row["since"] else "?" for row in rows)],
        ["SESSION", *(row["session_id"] or "?" for row in rows)],
        ["MANIFEST", *(row["manifest"] or "?" for row in rows)],
    ]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return ["  ".join(map(padded, line, widths)).rstrip() for line in lines]
