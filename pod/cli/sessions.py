"""`pod sessions`: list, read, search, fork and verify what is stored."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pod.tui.text import counted

from .compact import compact
from .exchange import export_command, import_command
from .failures import DAMAGED, report, reported
from .listing import say, say_json, width
from .maintenance import detach, redact, rewind, salvage, uncompact
from .removing import du, rm
from .stored import find_session, open_index, open_store, sound_fork_point

if TYPE_CHECKING:
    from session_store import (
        FileSessionStore,
        SessionInfo,
        SessionState,
        VerifyReport,
    )

    from .transcript import Covered, Step

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@click.group()
def sessions() -> None:
    """Where conversations are kept: list, read, search, fork and verify them.

    An ID is a session's whole id, or its first 8 or more digits where no other begins so.
    """


@sessions.command("list")
@click.option("--pod", "pod", metavar="NAME", help="Only the sessions of this pod.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many, the newest ones.")
@json_flag
def list_sessions(pod: str | None, limit: int | None, as_json: bool) -> None:
    """List the sessions, the newest activity first, damaged ones and running ones too."""
    with reported():
        infos = open_index().sessions()

    shown = [info for info in infos if pod is None or info.pod == pod][:limit]
    if as_json:
        say_json([info_json(info) for info in shown])
        return

    from session_store.ids import now_ms

    from .session_tree import list_lines

    _say_lines(list_lines(shown, now_ms=now_ms(), columns=width()))
    if not shown:
        say("no sessions yet" if pod is None else f"no sessions of a pod {pod}", err=True)


@sessions.command()
@json_flag
def tree(as_json: bool) -> None:
    """Show which session came from which, pod by pod.

    A fork says after how many turns it was made. The session that the pod is on is marked.
    """
    from session_store.ids import now_ms

    from .session_tree import branches, tree_lines

    store = open_store()
    with reported():
        index = open_index()
        infos, links = index.sessions(), index.links()

    current = {name: _pointer(store, name) for name in {info.pod for info in infos}}
    found = list(branches(infos, links, current))
    if as_json:
        rows = [
            {
                **info_json(branch.info),
                "parent": branch.link.parent if branch.link else None,
                "relation": branch.link.relation if branch.link else None,
                "current": branch.is_current,
            }
            for _, of_pod in found
            for branch in of_pod
        ]
        say_json(rows)
        return

    for name, of_pod in found:
        say(name or "(no pod)")
        _say_lines(tree_lines(of_pod, now_ms=now_ms(), columns=width()))

    if not found:
        say("no sessions yet", err=True)


@sessions.command()
@click.argument("session", metavar="ID")
@click.option("--covered", is_flag=True, help="Show what the session's summary stands for.")
@json_flag
def show(session: str, covered: bool, as_json: bool) -> None:
    """Show a session's items in order, and the entries at which a run ended.

    The hash of such an entry can be given to `fork --at`. With --covered: the items of the old
    session that were compacted away, each as it was.
    """
    from .transcript import covered_by, steps

    with reported():
        store = open_store()
        state = store.restore(find_session(store, session))
        if covered:
            _show_covered(state.session_id, covered_by(store, state), as_json=as_json)
        elif as_json:
            say_json(_state_json(state))
        else:
            head = (
                f"session {state.session_id} · {state.pod} · {counted(len(state.history), 'item')}"
            )
            say(head + (" · interrupted" if state.interrupted else ""))
            _say_steps(steps(store, state))


@sessions.command()
@click.argument("session", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Verify every session.")
@json_flag
@click.pass_context
def verify(context: click.Context, session: str | None, every: bool, as_json: bool) -> None:
    """Check every hash of a session, or with --all of every session; exit 3 where one is wrong.

    The first entry that does not hold is named. Nothing is changed.
    """
    if (session is None) != every:
        raise click.UsageError("give one session's ID, or --all")

    with reported():
        store = open_store()
        found: Iterable[VerifyReport]
        found = (
            store.verify_all() if session is None else [store.verify(find_session(store, session))]
        )
        reports = [_told(one, quiet=as_json) for one in found]

    bad = sum(not one.ok for one in reports)
    if as_json:
        say_json([_report_json(one) for one in reports])
    else:
        entries = counted(sum(one.entries for one in reports), "entry", "entries")
        counts = f"{counted(len(reports), 'session')}, {entries}"
        if not bad:
            say(f"{counts}: all hashes match.")
        elif session is None:
            say(f"{counts}: {counted(bad, 'session')} damaged.")

    if bad:
        context.exit(DAMAGED)


@sessions.command()
@click.argument("session", metavar="ID")
@click.option("--at", metavar="HASH", help="Begin at this entry instead of the last; see `show`.")
@json_flag
def fork(session: str, at: str | None, as_json: bool) -> None:
    """Begin a new session where this one is, or was at HASH. The old one is not touched.

    Where an entry comes between a tool call and its result, the fork is made before the call, and
    that is said.
    """
    with reported():
        store = open_store()
        parent = find_session(store, session)
        point = sound_fork_point(store, parent, at)
        child = store.fork(parent, point.hash)

    if as_json:
        say_json(
            {
                "session_id": child,
                "forked_from": [parent, point.hash],
                "at": point.hash,
                "seq": point.seq,
                "moved": point.moved,
                "reason": point.reason or None,
            }
        )
        return

    say(f"session {child}, forked from {parent} at entry {point.seq}")
    if point.moved:
        say(f"earlier than asked for: {point.reason}", err=True)


@sessions.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=20, help="At most so many [20].")
@json_flag
def search(text: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find the messages that hold every word of TEXT, the newest sessions first.

    Parts of words count, in any script and any case; punctuation means itself.
    """
    with reported():
        # In a locale that is not UTF-8 the arguments come as bytes in disguise.
        typed = os.fsencode(" ".join(text)).decode("utf-8", "replace")
        hits = open_index().search(typed, limit)

    if as_json:
        from attrs import asdict

        say_json([asdict(hit) for hit in hits])
        return

    _say_lines(f"{hit.session_id}  {hit.role:<9}  {hit.snippet}" for hit in hits)
    if not hits:
        say("nothing found", err=True)


# --- shared by the commands ---------------------------------------------------------------------


def info_json(info: SessionInfo) -> dict[str, object]:
    """Return the session as `list --json` prints it; `damaged` is there only where it is so."""
    from attrs import asdict

    value = asdict(info)
    if info.damaged is None:
        del value["damaged"]

    return value


def _pointer(store: FileSessionStore, pod: str) -> str | None:
    from session_store import SessionStoreError

    try:
        return store.pointer(pod)
    except SessionStoreError:  # a listing does not end at a pointer that points nowhere
        return None


def _say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def _say_steps(found: Iterable[Step]) -> None:
    from .transcript import transcript

    for lines in transcript(found):
        say("")
        _say_lines(lines)


def _show_covered(session_id: str, covered: Covered | None, *, as_json: bool) -> None:
    if as_json:
        from worker.items_json import dump_items

        items = [] if covered is None else dump_items(covered.items)
        owner = None if covered is None else covered.session_id
        say_json({"session_id": session_id, "covered_in": owner, "items": items})
    elif covered is None:
        say(f"session {session_id} has no summary: nothing of it was compacted away", err=True)
    else:
        count = counted(len(covered.items), "item")
        say(f"session {session_id} · its summary stands for {count} of {covered.session_id}")
        _say_steps(covered.items)


def _state_json(state: SessionState) -> dict[str, object]:
    from worker.items_json import dump_items

    return {
        "session_id": state.session_id,
        "pod": state.pod,
        "title": state.title,
        "created": state.created,
        "updated": state.updated,
        "forked_from": state.forked_from,
        "compacted_from": state.compacted_from,
        "interrupted": state.interrupted,
        "head": state.head.hash,
        "system_prompt": state.system_prompt,
        "items": dump_items(state.history),
    }


def _told(found: VerifyReport, *, quiet: bool) -> VerifyReport:
    """Return the report, after saying what is wrong, and what looks wrong and is not."""
    from session_store import SessionDamaged

    if quiet:
        return found

    if not found.ok:
        seq, reason = found.first_bad_seq or 0, found.reason or "does not verify"
        good = min(found.entries, seq)
        report(SessionDamaged(found.session_id, seq, reason, good))
    elif found.torn_bytes:
        size = counted(found.torn_bytes, "byte")
        say(
            f"session {found.session_id} ends in {size} of a line that was never finished", err=True
        )
        say("  no damage: the next run sets them aside and goes on", err=True)

    return found


def _report_json(found: VerifyReport) -> dict[str, object]:
    return {
        "session_id": found.session_id,
        "ok": found.ok,
        "entries": found.entries,
        "first_bad_seq": found.first_bad_seq,
        "reason": found.reason,
        "head": found.head and found.head.hash,
    }


for _command in (compact, salvage, rewind, uncompact, detach, redact, rm, du):
    sessions.add_command(_command)

for _command in (export_command, import_command):
    sessions.add_command(_command)
