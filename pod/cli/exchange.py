"""`pod sessions import` and `export`: sessions of other agents, and ours for others."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pod.tui.text import counted

from .failures import exit_code, report, reported
from .listing import quoted, say, say_json

if TYPE_CHECKING:
    from session_store.exchange import Imported, Tally
    from worker.items import Item

_KINDS_SHOWN = 8
_BAD_LINES_SHOWN = 3
_TITLE_CELLS = 50
_COPY_BYTES = 1 << 20


@click.command("import")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--format", "name", metavar="NAME", help="What the files are in; else it is found.")
@click.option("--pod", metavar="NAME", help="The pod that the sessions belong to [imported].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def import_command(
    context: click.Context,
    files: tuple[Path, ...],
    name: str | None,
    pod: str | None,
    as_json: bool,
) -> None:
    """Take over sessions of other agents, to be shown, forked, compacted and gone on with.

    Understood are sessions of Claude Code, Codex, pi, Hermes (trajectories and state.db) and
    SWE-agent, chat messages as OpenAI has them, and our own exports. The content says which it is.
    The files are not changed; whatever does not fit is kept in extension entries, and told.
    """
    from session_store import SessionStoreError
    from session_store.exchange import import_file

    from .stored import open_store

    store = open_store()
    rows: list[dict[str, object]] = []
    code = 0
    for path in files:
        try:
            with _regular(path) as readable:
                found = import_file(store, readable, pod=pod, format=name, name=path.name)
        except SessionStoreError as error:
            # One file that cannot be read keeps no other from being imported.
            report(error)
            code = code or exit_code(error)
            continue

        if as_json:
            rows += [_as_json(one, path) for one in found]
        else:
            for line in _told(found):
                say(line)

    if as_json:
        say_json(rows)

    context.exit(code)


@click.command("export")
@click.argument("session", metavar="ID")
@click.option(
    "--format",
    "name",
    metavar="NAME",
    default="podworker",
    show_default=True,
    help="podworker (everything, can be imported again), openai-chat or markdown.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
)
def export_command(session: str, name: str, output: Path | None) -> None:
    """Write a session as one file, what it was forked from included; to stdout without -o."""
    from session_store.exchange import export_session
    from worker.projection import repair

    from .stored import find_session, open_store

    with reported():
        store = open_store()
        pieces = export_session(store, find_session(store, session), name, paired=repair)
        if output is None:
            sys.stdout.flush()
            sys.stdout.buffer.writelines(pieces)
            sys.stdout.buffer.flush()
        else:
            _write(output, pieces)


@contextmanager
def _regular(path: Path) -> Iterator[Path]:
    """Give a file that can be read again and again: the file itself, or a copy of a pipe."""
    if stat.S_ISREG(path.stat().st_mode):
        yield path
        return

    with tempfile.NamedTemporaryFile() as copy, path.open("rb") as pipe:
        while data := pipe.read(_COPY_BYTES):
            copy.write(data)

        copy.flush()
        yield Path(copy.name)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Put the pieces in the file, which is there whole or not at all."""
    from session_store import StorageFailed

    descriptor = -1
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # A conversation is nobody else's business, whatever the umask says.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())

        temporary.replace(path)
    except OSError as error:
        raise StorageFailed(f"write {path}", error.strerror or error) from error
    finally:
        if descriptor >= 0:
            with suppress(FileNotFoundError):  # it has its own name by now
                temporary.unlink()


def _told(found: Sequence[Imported]) -> Iterator[str]:
    """Yield what to say of one file."""
    tally = found[0].tally
    records = counted(tally.records, "record")
    if len(found) == 1:
        yield f"imported {records} as session {found[0].session_id}: {_measured(found[0])}"
    else:
        yield f"imported {records} as {len(found):,} sessions"
        for one in found:
            title = quoted(_title(one), _TITLE_CELLS)
            yield f"  {one.session_id}  {title}  {_measured(one)}"

    for one in found:
        if one.earlier:
            times = counted(len(one.earlier), "compaction")
            yield f"{times} before: {', '.join(one.earlier)} (pod sessions tree)"

        if one.unanswered:
            calls = counted(one.unanswered, "call")
            yield f"without a result: {calls}; an error result that says so stands in for each"

    yield from _not_carried_over(tally)


def _not_carried_over(tally: Tally) -> Iterator[str]:
    for kinds, where in ((tally.kept, "kept as extension entries"), (tally.left_out, "left out")):
        if kinds:
            yield f"not carried over: {_listed(kinds)} ({where})"

    if tally.bad_line_count:
        shown = [f"line {line}: {why}" for line, why in tally.bad_lines[:_BAD_LINES_SHOWN]]
        more = "; …" if tally.bad_line_count > len(shown) else ""
        yield f"not readable: {counted(tally.bad_line_count, 'line')} ({'; '.join(shown)}{more})"

    yield from (f"note: {note}" for note in tally.notes)


def _listed(kinds: Counter[str]) -> str:
    shown = kinds.most_common(_KINDS_SHOWN)
    texts = [counted(number, kind) for kind, number in shown]
    others = kinds.total() - sum(number for _, number in shown)
    return ", ".join([*texts, f"{others:,} others"] if others else texts)


def _measured(one: Imported) -> str:
    answered = one.calls - one.unanswered
    calls = counted(one.calls, "tool call")
    with_results = "with results" if answered == one.calls else f"({answered:,} with results)"
    told = [f"{calls} {with_results}"] if one.calls else []
    return ", ".join(
        [*told, counted(one.turns, "turn"), f"about {_rounded(_tokens(one.items))} tokens"]
    )


def _tokens(items: Sequence[Item]) -> int:
    from worker.projection import repair
    from worker.tokens import item_tokens

    return round(sum(map(item_tokens, repair(items))))


def _rounded(number: int) -> str:
    step = 1_000 if number >= 10_000 else 100 if number >= 1_000 else 1
    return f"{round(number / step) * step:,}"


def _title(one: Imported) -> str:
    from worker.items import UserMessage, is_turn_start
    from worker.text import first_line

    said = (
        item.text for item in one.items if isinstance(item, UserMessage) and is_turn_start(item)
    )
    return one.title or next(filter(None, map(first_line, said)), "")


def _as_json(one: Imported, path: Path) -> dict[str, object]:
    tally = one.tally
    return {
        "session_id": one.session_id,
        "earlier": list(one.earlier),
        "file": str(path),
        "format": one.format,
        "title": _title(one),
        "records": tally.records,
        "turns": one.turns,
        "items": len(one.items),
        "tool_calls": one.calls,
        "unanswered": one.unanswered,
        "tokens": _tokens(one.items),
        "kept": dict(tally.kept),
        "left_out": dict(tally.left_out),
        "bad_lines": [{"line": line, "why": why} for line, why in tally.bad_lines],
        "notes": list(tally.notes),
    }
