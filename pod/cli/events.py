"""`pod events`: what a served pod tells, one event a line, until it ends."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from .failures import debug_option, reported
from .listing import say

if TYPE_CHECKING:
    from pod.serve.places import Places

_VALUE_CHARS = 60


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--from", "from_seq", type=click.IntRange(min=1), metavar="SEQ", help="Begin there.")
@click.option("--launch", metavar="L", help="The launch that SEQ is of; default: the present one.")
@click.option(
    "--only", "only", multiple=True, metavar="NAME", help="Only these; compaction_* means several."
)
@click.option("--json", "as_json", is_flag=True, help="Print events as they are, as JSON.")
@debug_option
def events(
    name: str, *, from_seq: int | None, launch: str | None, only: tuple[str, ...], as_json: bool
) -> None:
    """Print a served pod's events as they come.

    That is from now on, or from one that was published before. What the pod no longer holds, also
    of an earlier launch, comes from its session's log. Whoever only looks on does not count as
    somebody to ask for approval.
    """
    from pod.home import Home
    from pod.serve.places import Places

    wanted: dict[str, Any] = {"observe": True}
    if from_seq is not None:
        wanted["from_seq"] = from_seq

    if launch is not None:
        wanted["launch"] = launch

    if only:
        wanted["events"] = only

    with reported():
        places = Places.of(Home.from_env(os.environ), name)
        while wanted:
            wanted = follow(places, wanted, as_json=as_json)


def follow(places: Places, wanted: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Print events until the pod ends; return how to go on where this reader was too slow."""
    from pod.serve.caller import Caller

    with Caller.connect(places) as caller:
        caller.call("subscribe", wanted)
        for line, event in caller.lines():
            if event.get("event") == "lagged":
                next_seq = event["data"]["next_seq"]
                return {**wanted, "from_seq": next_seq, "launch": event["launch"]}

            if "event" in event:
                _print(line, event, as_json=as_json)

    return {}


def _print(line: bytes, event: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(line)
    else:
        say(in_words(event))


def in_words(event: dict[str, Any]) -> str:
    """Return an event as a line for people."""
    clock = time.strftime("%H:%M:%S", time.localtime(event["ts"] / 1000))
    data = "  ".join(f"{key}={_short(value)}" for key, value in event["data"].items())
    return f"{clock} {event['seq']:>6}  {event['event']:<18} {data}".rstrip()


def _short(value: object) -> str:
    match value:
        case bool() | float() | None:
            return str(value).lower()
        case int():
            return f"{value:,}"
        case str():
            text = " ".join(value.split())
        case dict():
            text = ",".join(f"{key}:{_short(held)}" for key, held in value.items())
        case list():
            text = ",".join(map(_short, value))
        case _:
            text = str(value)

    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"
