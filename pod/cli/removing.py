"""`pod sessions rm` and `du`: what takes room, and taking it away."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import click
from attrs import frozen

from pod.tui.text import counted

from .failures import FAILED, exit_code, is_expected, report, reported
from .listing import age, right, say, say_json

if TYPE_CHECKING:
    from session_store import FileSessionStore
    from session_store.removal import RemovalReport
    from session_store.retention import RetentionPlan
    from session_store.usage_on_disk import DiskUsage

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_SPANS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def _bytes_of(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Return the number of bytes that `500M`, `1.5G` or `2GiB` is."""
    if text is None:
        return None

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.lower(), re.ASCII)
    if found is None or found[2] not in _UNITS:
        raise click.BadParameter(f"{text!r} is no size such as 500M, 1G or 2GiB")

    return int(float(found[1]) * _UNITS[found[2]])


def _milliseconds_of(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Return the number of milliseconds that `30d`, `12h` or `2w` is."""
    if text is None:
        return None

    found = re.fullmatch(r"(\d+)\s*([mhdw])", text.lower(), re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is no time such as 30d, 12h or 2w")

    return int(found[1]) * _SPANS_MS[found[2]]


@frozen(kw_only=True)
class RemoveOptions:
    """The command line of `pod sessions rm`."""

    sessions: tuple[str, ...]
    older_than_ms: int | None
    keep_bytes: int | None
    detach: bool
    yes: bool
    is_dry_run: bool
    as_json: bool

    @property
    def is_retention(self) -> bool:
        """Whether limits say what goes, and not ids."""
        return self.older_than_ms is not None or self.keep_bytes is not None

    def check(self) -> None:
        """Refuse what does not go together. Raises `click.UsageError`."""
        if bool(self.sessions) == self.is_retention:
            raise click.UsageError("give ids, or --older-than and --keep-bytes")

        if self.is_retention and self.detach:
            raise click.UsageError("--detach goes with ids: a limit leaves alone what others need")


@click.command()
@click.argument("sessions", metavar="[ID]…", nargs=-1)
@click.option("--detach", is_flag=True, help="Let sessions that came from it stand alone first.")
@click.option(
    "--older-than",
    "older_than_ms",
    callback=_milliseconds_of,
    metavar="TIME",
    help="All that nothing was added to for so long.",
)
@click.option(
    "--keep-bytes",
    callback=_bytes_of,
    metavar="SIZE",
    help="The oldest, until all take no more than that.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def rm(context: click.Context, /, **given: object) -> None:
    """Remove sessions: by their ids, or all that limits say.

    A session that others came from is refused, unless --detach lets those stand alone. With limits
    (30d, 12h; 500M, 2GiB) the oldest go first, and never one that a pod is on, that is in use or
    damaged, or that one which stays came from.
    """
    options = RemoveOptions(**cast("dict[str, Any]", given))
    options.check()
    with reported():
        code = _by_limits(options) if options.is_retention else _by_id(options)

    context.exit(code)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def du(as_json: bool) -> None:
    """Show how much room each session takes, the largest first, and all together.

    A session's bytes are what removing it would free: its log, what lies beside it, and payloads
    that only it names.
    """
    from .stored import open_store

    with reported():
        used = open_store().usage_on_disk()

    if as_json:
        say_json(_usage_json(used))
        return

    _say_usage(used)


# --- rm -------------------------------------------------------------------------------------------


def _by_id(options: RemoveOptions) -> int:
    from .stored import find_session, open_store

    store = open_store()
    # Ids sort by birth, and what came from another is younger.
    ordered = sorted({find_session(store, text) for text in options.sessions}, reverse=True)
    if options.is_dry_run:
        return _say_dry_run(store, ordered, options)

    if not _agreed(options, counted(len(ordered), "session")):
        return FAILED

    return _remove_all(store, ordered, options)


def _by_limits(options: RemoveOptions) -> int:
    from .stored import open_store

    store = open_store()
    plan = store.retention_plan(older_than_ms=options.older_than_ms, keep_bytes=options.keep_bytes)
    if options.is_dry_run:
        _say_plan(plan, as_json=options.as_json)
        return 0

    ids = [one.session_id for one in plan.remove]
    size = _size(plan.bytes_before - plan.bytes_after)
    if ids and not _agreed(options, f"{counted(len(ids), 'session')} of {size}"):
        return FAILED

    code = _remove_all(store, ids, options)
    store.sweep_blobs()
    if not options.as_json:
        _say_kept(plan)
        if not ids:
            say("nothing to remove", err=True)

    return code


def _agreed(options: RemoveOptions, what: str) -> bool:
    """Ask, where there is somebody to ask."""
    if options.yes or options.as_json or not sys.stdin.isatty():
        return True

    return click.confirm(f"remove {what} for good?", err=True)


def _remove_all(store: FileSessionStore, ids: Iterable[str], options: RemoveOptions) -> int:
    """Remove each; one that cannot be is told, and does not keep the others. Return the code."""
    code = 0
    done: list[RemovalReport] = []
    for session_id in ids:
        try:
            removed = store.remove(session_id, detach=options.detach)
        # The supervision point of each session: the others are removed all the same.
        except Exception as error:
            if not is_expected(error):
                raise

            report(error)
            code = code or exit_code(error)
            continue

        done.append(removed)
        if not options.as_json:
            _say_removed(removed)

    if options.as_json:
        from attrs import asdict

        say_json([asdict(one) for one in done])

    return code


def _say_removed(removed: RemovalReport) -> None:
    say(f"removed {removed.session_id}: {_size(removed.bytes)} freed")
    for child in removed.detached:
        say(f"  {child} stands alone now")

    for pod in removed.pods:
        say(f"  pod {pod} was on it: --continue begins a new session")


def _say_dry_run(store: FileSessionStore, ids: Sequence[str], options: RemoveOptions) -> int:
    """Say what would be removed, and what keeps others; return the code that it would have."""
    sizes = {one.session_id: one.bytes for one in store.usage_on_disk().sessions}
    gone: set[str] = set()
    rows: list[dict[str, object]] = []
    code = 0
    for session_id in ids:
        needing = [one for one in store.needed_by(session_id) if one.session_id not in gone]
        refused = bool(needing) and not options.detach
        if refused:
            code = FAILED
        else:
            gone.add(session_id)

        names = [one.session_id for one in needing]
        size = sizes.get(session_id, 0)
        rows.append({"session_id": session_id, "bytes": size, "needed_by": names})
        if not options.as_json:
            needed = f", needed by {', '.join(names)}" if names else ""
            say(f"would {'not ' * refused}remove {session_id}: {_size(size)}{needed}")

    if options.as_json:
        say_json(rows)

    return code


def _say_plan(plan: RetentionPlan, *, as_json: bool) -> None:
    from session_store.ids import now_ms

    if as_json:
        rows = [{"session_id": one.session_id, "bytes": one.bytes} for one in plan.remove]
        kept = [{"session_id": session_id, "why": why} for session_id, why in plan.kept]
        sizes = {"bytes_before": plan.bytes_before, "bytes_after": plan.bytes_after}
        say_json({"remove": rows, "kept": kept, **sizes})
        return

    now = now_ms()
    for one in plan.remove:
        say(f"would remove {one.session_id}: {_size(one.bytes)}, {age(one.updated, now)}")

    _say_kept(plan)
    count = counted(len(plan.remove), "session")
    say(f"{count} of {_size(plan.bytes_before)}: {_size(plan.bytes_after)} after")


def _say_kept(plan: RetentionPlan) -> None:
    for session_id, why in plan.kept:
        say(f"kept {session_id}: {why}")


# --- du -------------------------------------------------------------------------------------------


def _say_usage(used: DiskUsage) -> None:
    rows = [
        (one.bytes, _of_session(one.session_id, one.blobs, one.shared_blobs))
        for one in used.sessions
    ]
    rows += [
        (size, what)
        for size, what in (
            (used.shared_blobs, "payloads that several sessions name"),
            (used.unused_blobs, "payloads that none names"),
            (used.kept, "kept of removed sessions for their forks"),
            (used.index, "index"),
        )
        if size
    ]
    rows.append((used.bytes, f"in all, {counted(len(used.sessions), 'session')}"))
    sizes = right([_size(size) for size, _ in rows])
    for size, (_, what) in zip(sizes, rows, strict=True):
        say(f"{size}  {what}")


def _of_session(session_id: str, blobs: int, shared: int) -> str:
    parts = [session_id]
    parts += [f"{_size(blobs)} of it payloads"] if blobs else []
    parts += [f"and shares {_size(shared)}"] if shared else []
    return "  ".join(parts)


def _usage_json(used: DiskUsage) -> dict[str, object]:
    from attrs import asdict

    sessions = [{**asdict(one), "bytes": one.bytes} for one in used.sessions]
    return {**asdict(used), "sessions": sessions, "bytes": used.bytes}


def _size(size: int) -> str:
    """Return the size for reading: `812 B`, `3.4 kB`, `1.2 GB`."""
    if size < 1000:
        return f"{size} B"

    value, units = float(size), iter(("kB", "MB", "GB", "TB", "PB", "EB"))
    unit = "B"
    while value >= 999.5:
        value, unit = value / 1000, next(units)

    return f"{value:.1f} {unit}" if value < 99.5 else f"{value:.0f} {unit}"
