"""Redaction: a new session without a secret, and a list of what still has the secret.

A log cannot be cleaned: a changed byte would break the chain. So all that the session holds, what
it inherits included, is written anew with the secret masked, as a session that stands alone. The
old one stays until somebody removes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from .ancestry import Ancestry
from .blob_use import BASE_SUFFIX
from .compacted import full_start
from .copying import Copied, copied, copied_with, publish_copy
from .disk import Disk
from .errors import SessionStoreError, Unsuitable
from .fold import carried
from .layout import LOG_SUFFIX, Layout
from .masking import MIN_SECRET_CHARS, Masker
from .reader import read_entries

_WITH_ITEMS = frozenset(
    {
        *("session_start", "user_input", "assistant_items", "tool_results"),
        *("system_item", "item_amended"),
    }
)
_NOT_SEARCHED = frozenset({"models"})
_MOST_MATCHES = 1_000


@frozen(kw_only=True)
class Holding:
    """Something of the store that still has the secret."""

    session_id: str | None
    """The session whose log has it, or inherits it; None for any other file."""
    file: str
    """The file, as a path under the home where it is there."""
    why: str
    """What it is, in a few words."""


@frozen(kw_only=True)
class RedactionReport:
    """What came of redacting a session."""

    session_id: str
    """The one that has the secret."""
    new_session_id: str | None
    """The one without; None where the session did not have it."""
    entries_changed: int
    left_in: tuple[int, ...]
    """Entries of the new session that still have it: in what a provider signed, or an image."""
    still_in: tuple[Holding, ...]
    """What still has it besides. Exports and backups are not known here."""
    pods: tuple[str, ...] = ()
    """The pods that were on the old session, and are on the new one now."""


def masker_for(
    disk: Disk, layout: Layout, session_id: str, secrets: Mapping[str, str], patterns: Sequence[str]
) -> Masker:
    """Return a masker of the secrets, and of all in the session that a pattern matches.

    Raises:
        Unsuitable: A secret is too short to be masked, or a pattern matches too much.
        re.error: A pattern is none.
    """
    values = dict(secrets)
    for number, pattern in enumerate(patterns, 1):
        name = "pattern" if len(patterns) == 1 else f"pattern-{number}"
        found = sorted(_matches(disk, layout, session_id, re.compile(pattern)))
        one = len(found) == 1
        values |= {name if one else f"{name}-{n}": text for n, text in enumerate(found, 1)}

    short = sorted(name for name, value in values.items() if len(value.strip()) < MIN_SECRET_CHARS)
    if short:
        why = (
            f"is not redacted: what {short[0]} names is shorter than {MIN_SECRET_CHARS} characters"
        )
        raise Unsuitable(session_id, why, "that would mask ordinary words; name more of it")

    return Masker(values)


def redact(
    disk: Disk, layout: Layout, session_id: str, new_session_id: str, masker: Masker
) -> RedactionReport:
    """Write the new session, if there is anything to mask, and return what was found.

    Raises:
        SessionNotFound: There is no such session.
        SessionDamaged: It does not verify: salvage it first.
        StorageFailed: The new session could not be written.
    """
    ancestry = Ancestry(disk, layout)
    head = ancestry.state(session_id).head
    masking = _Masking(masker)
    start, rest = _standing_alone(ancestry, disk, layout, session_id)
    changed = sum(1 for one in (start, *rest) if masking.changes(one))
    if changed:
        start, rest = _standing_alone(ancestry, disk, layout, session_id)
        mark = {"recovered_from": [session_id, head.hash], "redacted": True}
        first = copied_with(masking.masked(start), mark)
        publish_copy(disk, layout, new_session_id, first, map(masking.masked, rest))

    still = _holdings(ancestry, layout, masker)
    return RedactionReport(
        session_id=session_id,
        new_session_id=new_session_id if changed else None,
        entries_changed=changed,
        left_in=tuple(_entries_with(masker, layout, new_session_id)),
        still_in=tuple(one for one in still if one.session_id != new_session_id),
    )


class _Masking:
    def __init__(self, masker: Masker) -> None:
        self._masker = masker

    def masked(self, entry: Copied) -> Copied:
        if entry.kind in _WITH_ITEMS:
            return entry._replace(fields=self._masker.mask_fields(entry.fields))

        # What another kind calls `items` need not be any.
        masked = self._masker.mask_fields({"fields": dict(entry.fields)})["fields"]
        return entry._replace(fields=_mapping(masked))

    def changes(self, entry: Copied) -> bool:
        return self.masked(entry).fields != entry.fields


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, dict), "masking keeps the shape"  # noqa: S101  a defect of the masker
    return value


def _standing_alone(
    ancestry: Ancestry, disk: Disk, layout: Layout, session_id: str
) -> tuple[Copied, Iterator[Copied]]:
    """Return the session's entries as those of one that inherits nothing."""
    entries = read_entries(disk, layout, session_id)
    first = next(entries)
    inherited = ancestry.inherited(session_id)
    changes: dict[str, object] = {}
    if inherited is not None:
        from worker.items_json import dump_items

        given = {key: first.data[key] for key in ("pod", "config", "system_prompt")}
        given = {key: value for key, value in given.items() if value is not None}
        changes = full_start(inherited, [], given)
        changes |= {"carried": carried(inherited), "history": dump_items(inherited.history)}

    start = copied(first, changes)
    came = ("forked_from", "compacted_from", "recovered_from", "rewound")
    fields = {key: value for key, value in start.fields.items() if key not in came}
    return start._replace(fields=fields), map(copied, entries)


def _matches(disk: Disk, layout: Layout, session_id: str, pattern: re.Pattern[str]) -> set[str]:
    found: set[str] = set()
    start, rest = _standing_alone(Ancestry(disk, layout), disk, layout, session_id)
    for entry in (start, *rest):
        for text in _texts(entry.fields):
            found |= {match.group() for match in pattern.finditer(text) if match.group()}
            if len(found) > _MOST_MATCHES:
                why = f"has more than {_MOST_MATCHES:,} texts that the pattern matches"
                raise Unsuitable(session_id, why, "nothing was written; narrow the pattern")

    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in {"signature", "blob", "uid", "call_uid"}:
                yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _entries_with(masker: Masker, layout: Layout, session_id: str) -> Iterator[int]:
    """Yield the entries that have the secret; none where there is no such session."""
    for seq, line in enumerate(_lines(layout.log(session_id))):
        if _has(masker, line):
            yield seq


# --- what still has it ----------------------------------------------------------------------------


def _holdings(ancestry: Ancestry, layout: Layout, masker: Masker) -> Iterator[Holding]:
    having: set[str] = set()
    for path in _files(layout):
        if any(_has(masker, line) for line in _lines(path)):
            holding = _holding(layout, path)
            having |= {holding.session_id} if holding.session_id else set()
            yield holding

    for session_id in ancestry.ids():
        parent = _inherits_from(ancestry, session_id, having)
        if session_id not in having and parent:
            yield Holding(
                session_id=session_id,
                file=_shown(layout, layout.log(session_id)),
                why=f"begins in {parent}",
            )


def _inherits_from(ancestry: Ancestry, session_id: str, having: Iterable[str]) -> str | None:
    try:
        links = ancestry.links(session_id)[1:]
    except SessionStoreError:  # a damaged one cannot be read at all
        return None

    return next((link.session_id for link in links if link.session_id in having), None)


def _files(layout: Layout) -> Iterator[Path]:
    """Yield every file of the home, but for model files, and of the folder of the logs."""
    roots = [layout.home]
    if not layout.sessions.is_relative_to(layout.home):
        roots.append(layout.sessions)

    for root in roots:
        for folder, folders, names in os.walk(root):
            if Path(folder) == layout.home:
                folders[:] = [name for name in folders if name not in _NOT_SEARCHED]

            for name in sorted(names):
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    yield path


def _holding(layout: Layout, path: Path) -> Holding:
    is_log = path.parent == layout.sessions and path.name.endswith(LOG_SUFFIX)
    return Holding(
        session_id=path.name.removesuffix(LOG_SUFFIX) if is_log else None,
        file=_shown(layout, path),
        why=_kind(layout, path),
    )


def _kind(layout: Layout, path: Path) -> str:
    name, folder = path.name, path.parent
    if folder == layout.sessions:
        if name.endswith(LOG_SUFFIX):
            return "its log"

        return "kept for forks" if name.endswith(BASE_SUFFIX) else "set aside from a log"

    if folder == layout.blobs:
        return "a payload that a log names"

    is_index = folder == layout.home and name.startswith("index")
    return "the index: it forgets a session that is removed" if is_index else "another file"


def _shown(layout: Layout, path: Path) -> str:
    return str(path.relative_to(layout.home) if path.is_relative_to(layout.home) else path)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            for line in file:
                yield line.decode("utf-8", "replace")
    except FileNotFoundError:  # removed since the folder was read
        return


def _has(masker: Masker, text: str) -> bool:
    return masker.mask(text) is not text
