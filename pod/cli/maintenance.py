"""`pod sessions salvage`, `rewind`, `uncompact`, `detach` and `redact`: mending and going back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pod.tui.text import counted

from .failures import reported
from .listing import say, say_json

if TYPE_CHECKING:
    from session_store import FileSessionStore
    from session_store.redaction import RedactionReport
    from session_store.salvage import Lost, SalvageReport

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@click.command()
@click.argument("session", metavar="ID")
@json_flag
def salvage(session: str, as_json: bool) -> None:
    """Go on from what verifies of a damaged session, in a new one.

    What was kept and what was lost is said, entry by entry. The damaged file is not changed.
    """
    with reported():
        store, session_id = _found(session)
        report = store.salvage(session_id)

    if as_json:
        say_json(_salvage_json(report))
        return

    new = report.new_session_id
    say(f"session {new}, salvaged from {session_id}: {_kept(report)}")
    if report.lost:
        say("not in it:")
        for lost in report.lost:
            say(f"  {_lost(lost)}")
    else:
        say("nothing is missing")

    say(f"{session_id} was not changed")
    _say_pods(report.pods, new)


@click.command()
@click.argument("session", metavar="ID")
@click.option("--to", metavar="HASH", required=True, help="The entry to go back to; see `show`.")
@json_flag
def rewind(session: str, to: str, as_json: bool) -> None:
    """Go back to an entry: the pod goes on from there, in a new session.

    HASH may be an entry of the session or of one that it began from, also before a compaction. The
    session stays whole. A pod that is on it, or on what it goes on as, is on the new one then.
    """
    with reported():
        store, session_id = _found(session)
        _refuse_in_use(store, session_id)
        point = store.rewind_point(session_id, to)
        pods = _pods_on(store)
        new = store.rewind(session_id, point.hash)

    moved = sorted(pod for pod, on in _pods_on(store).items() if on == new != pods.get(pod))
    if as_json:
        say_json(
            {
                "session_id": new,
                "forked_from": [point.session_id, point.hash],
                "at": point.hash,
                "seq": point.seq,
                "moved": point.moved,
                "reason": point.reason or None,
                "pods": moved,
            }
        )
        return

    say(f"session {new}, gone back to entry {point.seq} of {point.session_id}")
    if point.moved:
        say(f"earlier than asked for: {point.reason}", err=True)

    _say_pods(moved, new)
    if not moved:
        say(f"no pod is on it: pod run … --resume {new} goes on there", err=True)


@click.command()
@click.argument("session", metavar="ID")
@json_flag
def uncompact(session: str, as_json: bool) -> None:
    """Go back to the session that this one was compacted from.

    A pod that is on it, or on what it goes on as, is on the old one then. Both sessions stay.
    """
    with reported():
        store, session_id = _found(session)
        _refuse_in_use(store, session_id)
        pods = _pods_on(store)
        old = store.uncompact(session_id)

    moved = sorted(pod for pod, on in _pods_on(store).items() if on == old != pods.get(pod))
    if as_json:
        say_json({"session_id": old, "compacted": session_id, "pods": moved})
        return

    say(f"session {old}, before it was compacted to {session_id}")
    _say_pods(moved, old)
    if not moved:
        say(f"no pod is on it: pod run … --resume {old} goes on there", err=True)


@click.command()
@click.argument("session", metavar="ID")
@json_flag
def detach(session: str, as_json: bool) -> None:
    """Let a fork stand alone, so that the sessions it came from can be removed.

    It keeps its id and its hashes. What it needs of the others' logs is kept beside the logs.
    """
    with reported():
        store, session_id = _found(session)
        report = store.detach(session_id)

    if as_json:
        from attrs import asdict

        say_json(asdict(report))
    elif report.parents:
        size = counted(report.bytes, "byte")
        say(f"session {session_id} stands alone: {size} kept of {', '.join(report.parents)}")
    else:
        say(f"session {session_id} stands alone already: it inherits nothing")


@click.command()
@click.argument("session", metavar="ID")
@click.option("--secret-env", "variables", multiple=True, metavar="NAME", help="The variable NAME.")
@click.option(
    "--secret-file", "paths", multiple=True, metavar="FILE", help="What FILE holds; - is stdin."
)
@click.option("--pattern", "patterns", multiple=True, metavar="REGEX", help="All that matches.")
@json_flag
def redact(
    session: str,
    variables: tuple[str, ...],
    paths: tuple[str, ...],
    patterns: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a session anew without a secret, and list what still has it.

    A secret is named by a variable or a file and never typed on the command line, where others
    see it. In the new session its name stands in its place. The old one stays until you remove it.
    """
    if not (variables or paths or patterns):
        raise click.UsageError("say what is secret: --secret-env, --secret-file or --pattern")

    _check_patterns(patterns)
    secrets = {name: _of_variable(name) for name in variables}
    secrets |= {_file_name(path): _of_file(path) for path in paths}
    with reported():
        store, session_id = _found(session)
        report = store.redact(session_id, secrets, patterns=patterns)

    if as_json:
        from attrs import asdict

        say_json(asdict(report))
        return

    _say_redacted(report)


# --- words ----------------------------------------------------------------------------------------


def _kept(report: SalvageReport) -> str:
    return f"{counted(report.entries_kept, 'entry', 'entries')} kept"


def _lost(lost: Lost) -> str:
    if lost.inherited_from is not None:
        return f"{_inherited(lost)} of session {lost.inherited_from}: {lost.reason}"

    if lost.first_seq is None or lost.last_seq is None:
        return f"{counted(lost.bytes, 'byte')}: {lost.reason}"

    one = lost.first_seq == lost.last_seq
    seqs = f"entry {lost.first_seq}" if one else f"entries {lost.first_seq}–{lost.last_seq}"
    size = f" ({counted(lost.bytes, 'byte')})" if lost.bytes else ""
    return f"{seqs}{size}: {lost.reason}"


def _inherited(lost: Lost) -> str:
    if lost.last_seq is None:
        return (
            f"what it inherits from entry {lost.first_seq} on"
            if lost.first_seq
            else "all that it inherits"
        )

    one = lost.first_seq == lost.last_seq
    return (
        f"inherited entry {lost.first_seq}"
        if one
        else f"inherited entries {lost.first_seq}–{lost.last_seq}"
    )


def _salvage_json(report: SalvageReport) -> dict[str, object]:
    from attrs import asdict

    return {**asdict(report), "session_id": report.new_session_id, "damaged": report.session_id}


def _say_pods(pods: tuple[str, ...] | list[str], session_id: str) -> None:
    for pod in pods:
        say(f"pod {pod} is on {session_id} now: --continue goes on there")


def _say_redacted(report: RedactionReport) -> None:
    old, new = report.session_id, report.new_session_id
    if new is None:
        say(f"session {old} has nothing of it; no session was made")
    else:
        changed = counted(report.entries_changed, "entry", "entries")
        say(f"session {new}, redacted from {old}: {changed} changed")
        _say_pods(report.pods, new)

    for seq in report.left_in:
        say(f"entry {seq} of {new} still has it: a provider signed it, or it is an image", err=True)

    if report.still_in:
        say("what still has it:")
        for one in report.still_in:
            say(f"  {one.session_id or one.file}  {one.why}")

    say("exports, backups and what was sent to a provider are not known here")
    if new is not None:
        say(f"to remove the old session: pod sessions rm {old}")


# --- what was given -------------------------------------------------------------------------------


def _found(text: str) -> tuple[FileSessionStore, str]:
    from .stored import find_session, open_store

    store = open_store()
    return store, find_session(store, text)


def _refuse_in_use(store: FileSessionStore, session_id: str) -> None:
    """A pod that runs would move its pointer back at its next run. Raises `SessionInUse`."""
    from session_store import SessionInUse

    holder = store.holder(session_id)
    if holder is not None:
        raise SessionInUse(session_id, holder)


def _pods_on(store: FileSessionStore) -> dict[str, str]:
    from session_store.removal import pods_on

    return pods_on(store.disk, store.layout)


def _check_patterns(patterns: tuple[str, ...]) -> None:
    import re

    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.UsageError(
                f"--pattern {pattern!r} is no regular expression: {error}"
            ) from None


def _of_variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise click.UsageError(f"the variable {name} is not set")

    return value


def _of_file(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None

    value = data.decode("utf-8", "surrogateescape").strip()
    if not value:
        raise click.UsageError(f"{_file_name(path)} is empty")

    return value


def _file_name(path: str) -> str:
    return "stdin" if path == "-" else Path(path).name
