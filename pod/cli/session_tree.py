"""How `pod sessions list` and `tree` lay out what they show. Pure: facts in, lines out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from pod.tui.text import cell_width, counted
from session_store import SessionInfo
from session_store.index import SessionLink

from .listing import age, padded, quoted, right

_TITLE_CELLS = 40
_NARROW_TITLE_CELLS = 24
_GAP = "  "
_INDENT = "    "


@frozen
class Branch:
    """A session's place in the tree."""

    info: SessionInfo
    link: SessionLink | None
    """How it came from the session above it; None at a root."""
    stem: str
    """The lines that go down past it, from those above."""
    is_last: bool
    has_children: bool
    is_current: bool

    @property
    def head(self) -> str:
        """The line's beginning: its place, how it came about, its id."""
        came = f"{relation_label(self.link)} " if self.link else ""
        return f"{self.stem}{'└─' if self.is_last else '├─'} {came}{self.info.session_id}"

    @property
    def below(self) -> str:
        """What a second line of the same session begins with."""
        return f"{self.stem}{'   ' if self.is_last else '│  '}{'│' if self.has_children else ' '}  "


def relation_label(link: SessionLink) -> str:
    """Return how a session came from another: `compacted ▸`, `forked at 5 ▸`."""
    if link.relation == "compact":
        return "compacted ▸"

    if link.relation == "salvage":
        return "salvaged ▸"

    if link.relation == "redact":
        return "redacted ▸"

    return "forked ▸" if link.turns is None else f"forked at {link.turns} ▸"


def branches(
    infos: Sequence[SessionInfo], links: Sequence[SessionLink], current: Mapping[str, str | None]
) -> Iterator[tuple[str, list[Branch]]]:
    """Yield each pod's name and its sessions, every one below the one it came from.

    Pods with the newest activity come first, and so do roots; what came from a session is oldest
    first. A session whose parent is not there is a root.
    """
    by_id = {info.session_id: info for info in infos}
    above = {link.child: link for link in links if link.child in by_id and link.parent in by_id}
    below: defaultdict[str, list[str]] = defaultdict(list)
    for link in above.values():
        below[link.parent].append(link.child)

    for pod, roots in _roots(infos, above, below).items():
        found: list[Branch] = []
        todo = [("", root, place == 0) for place, root in enumerate(reversed(roots))]
        while todo:
            stem, session_id, is_last = todo.pop()
            info, children = by_id[session_id], sorted(below.pop(session_id, []), reverse=True)
            found.append(
                Branch(
                    info=info,
                    link=above.get(session_id),
                    stem=stem,
                    is_last=is_last,
                    has_children=bool(children),
                    is_current=current.get(info.pod) == session_id,
                )
            )
            stem += "   " if is_last else "│  "
            todo += [(stem, child, place == 0) for place, child in enumerate(children)]

        yield pod, found


def _roots(
    infos: Sequence[SessionInfo], above: dict[str, SessionLink], below: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return each pod's roots. Of sessions that name each other in a circle, one becomes a root."""
    roots: defaultdict[str, list[str]] = defaultdict(list)
    reached: set[str] = set()
    for info in [*(one for one in infos if one.session_id not in above), *infos]:
        if info.session_id in reached:
            continue

        above.pop(info.session_id, None)
        roots[info.pod].append(info.session_id)
        todo = [info.session_id]
        while todo:
            session_id = todo.pop()
            if session_id not in reached:
                reached.add(session_id)
                todo += below.get(session_id, ())

    return roots


def tree_lines(found: Sequence[Branch], *, now_ms: int, columns: int | None) -> list[str]:
    """Return the lines of one pod's sessions: one a session where that fits, else two."""
    facts = [fact for _, fact in _with_columns([branch.info for branch in found], now_ms)]
    head = max(cell_width(branch.head) for branch in found)
    lines = []
    for branch, fact in zip(found, facts, strict=True):
        title = "" if branch.link else quoted(branch.info.title, _TITLE_CELLS)
        lines.append((branch, title, fact, marks(branch.info, is_current=branch.is_current)))

    titles = max(cell_width(title) for _, title, _, _ in lines)
    wide = [
        _GAP.join(
            part for part in (padded(branch.head, head), padded(title, titles), *fact) if part
        )
        + (_GAP + said if said else "")
        for branch, title, fact, said in lines
    ]
    if columns is None or max(map(cell_width, wide)) <= columns:
        return [line.rstrip() for line in wide]

    return [line for parts in lines for line in _two_lines(*parts, columns)]


def list_lines(infos: Sequence[SessionInfo], *, now_ms: int, columns: int | None) -> list[str]:
    """Return the lines of a listing: one a session where that fits, else two."""
    facts = [_GAP.join((info.session_id, *fact)) for info, fact in _with_columns(infos, now_ms)]
    pod_cells = max((cell_width(info.pod) for info in infos), default=0)
    told = [
        [
            padded(info.pod or "-", pod_cells),
            quoted(info.title, _TITLE_CELLS),
            origin(info),
            marks(info),
        ]
        for info in infos
    ]
    wide = [
        _GAP.join(filter(None, [fact, *parts])) for fact, parts in zip(facts, told, strict=True)
    ]
    if columns is None or max(map(cell_width, wide), default=0) <= columns:
        return [line.rstrip() for line in wide]

    return [
        line
        for fact, parts in zip(facts, told, strict=True)
        for line in (fact.rstrip(), *_packed(parts, columns))
    ]


def origin(info: SessionInfo) -> str:
    """Return where a session came from, or nothing."""
    if info.compacted_from:
        return f"compacted from {info.compacted_from[0]}"

    return f"forked from {info.forked_from[0]}" if info.forked_from else ""


def marks(info: SessionInfo, *, is_current: bool = False) -> str:
    """Return what is special about a session, or nothing."""
    said = ["← current"] if is_current else []
    if info.damaged:
        said.append(f"damaged: {info.damaged}")

    if info.writer:
        said.append(f"in use by pid {info.writer.pid}")

    if info.interrupted:
        said.append("interrupted")

    return _GAP.join(said)


def _two_lines(
    branch: Branch, title: str, fact: Sequence[str], said: str, columns: int
) -> list[str]:
    numbers = " · ".join(part.strip() for part in fact if part.strip())
    room = max(0, columns - cell_width(branch.below) - cell_width(numbers) - len(_GAP))
    if title and room > _NARROW_TITLE_CELLS // 2:
        numbers += _GAP + quoted(branch.info.title, min(room, _NARROW_TITLE_CELLS))

    lines = [branch.head, branch.below + numbers]
    return [*lines, branch.below + said] if said else lines


def _with_columns(
    infos: Sequence[SessionInfo], now_ms: int
) -> list[tuple[SessionInfo, tuple[str, ...]]]:
    turns = right([_turns(info) for info in infos])
    tokens = right([counted(info.tokens, "token") for info in infos])
    ages = right([age(info.updated, now_ms) for info in infos])
    return list(zip(infos, zip(turns, tokens, ages, strict=True), strict=True))


def _turns(info: SessionInfo) -> str:
    said = counted(info.turns, "turn")
    return f"{said} + summary" if info.compacted_from else said


def _packed(parts: Sequence[str], columns: int) -> list[str]:
    """Return indented lines that hold the parts, as many on each as fit."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and cell_width(lines[-1] + _GAP + part) <= columns:
            lines[-1] += _GAP + part
        else:
            lines.append(_INDENT + part)

    return [line.rstrip() for line in lines]
