"""Which records of a Claude Code session are on the way to its newest message."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field, frozen

from .blocks import blocks_of, mapping, string
from .draft import own_uid
from .jsontext import JsonObject


@frozen
class _Node:
    line: int
    uuid: str
    parent: str
    logical_parent: str
    message_id: str
    calls: frozenset[str]
    answers: frozenset[str]
    is_message: bool
    is_summary: bool
    is_boundary: bool
    preserved: tuple[str, ...]


@define
class ClaudeTree:
    """Takes all records of a file, then says which of them count."""

    side: bool
    """Whether it is the records of sub-agents that count."""
    _nodes: list[_Node] = field(factory=list)
    _index: dict[str, int] = field(factory=dict)

    def take(self, line: int, record: JsonObject) -> None:
        """Note a record. Those of sub-agents are conversations of their own."""
        message = mapping(record.get("message"))
        uuid, parent = string(record.get("uuid")), string(record.get("parentUuid"))
        if bool(record.get("isSidechain")) != self.side or not (uuid or message):
            return

        if not uuid:
            # What has no place in the tree follows what stands before it.
            uuid, parent = f"line {line}", self._nodes[-1].uuid if self._nodes else ""

        blocks = blocks_of(message.get("content"))
        metadata = mapping(record.get("compactMetadata"))
        preserved = mapping(metadata.get("preservedMessages")).get("uuids")
        node = _Node(
            line=line,
            uuid=uuid,
            parent=parent,
            logical_parent=string(record.get("logicalParentUuid")),
            message_id=string(message.get("id")),
            calls=_ids(blocks, "tool_use", "id"),
            answers=_ids(blocks, "tool_result", "tool_use_id"),
            is_message=record.get("type") in {"user", "assistant"} and bool(message),
            is_summary=bool(record.get("isCompactSummary")),
            is_boundary=record.get("subtype") == "compact_boundary",
            preserved=tuple(map(string, preserved)) if isinstance(preserved, list) else (),
        )
        # A record may be there again, copied from an earlier session; the first one stands.
        if uuid not in self._index:
            self._index[uuid] = len(self._nodes)
            self._nodes.append(node)

    def ways(self) -> dict[int, frozenset[str]]:
        """Return the lines that count; for a summary, the uids of what it left standing."""
        found: dict[int, frozenset[str]] = {}
        stop = len(self._nodes)
        leaf = self._newest(stop)
        while leaf is not None:
            start, boundary = self._cut_before(leaf)
            found |= {
                self._nodes[index].line: frozenset() for index in self._way(leaf, start, stop)
            }
            if start < 0:
                break

            cut = self._nodes[start]
            kept = () if boundary is None else self._nodes[boundary].preserved
            found[cut.line] = frozenset(filter(None, map(own_uid, kept)))
            stop = start if boundary is None else boundary
            known = "" if boundary is None else self._nodes[boundary].logical_parent
            leaf = self._index.get(known, -1)
            leaf = leaf if 0 <= leaf < stop else self._newest(stop)

        return found

    def _newest(self, stop: int) -> int | None:
        messages = (index for index in range(stop - 1, -1, -1) if self._nodes[index].is_message)
        return next(messages, None)

    def _cut_before(self, leaf: int) -> tuple[int, int | None]:
        """Return the newest summary up to `leaf`, or -1, and the boundary that it belongs to."""
        summaries = (index for index in range(leaf, -1, -1) if self._nodes[index].is_summary)
        start = next(summaries, -1)
        for index in range(start - 1, -1, -1):
            if self._nodes[index].is_boundary:
                return start, index

            if self._nodes[index].is_summary:
                break

        return start, None

    def _way(self, leaf: int, start: int, stop: int) -> set[int]:
        """Return what is between `start` and `stop` and on the way to `leaf`."""
        way: set[int] = set()
        index = leaf
        while index > start and index not in way:
            way.add(index)
            parent = self._nodes[index].parent
            # Where the parent was lost, what stands before is the nearest to it.
            index = self._index.get(parent, index - 1) if parent else -1

        return way | set(self._beside(way, start, stop))

    def _beside(self, way: set[int], start: int, stop: int) -> Iterator[int]:
        """Yield parts of the same answers, and results: parallel calls are siblings in the tree."""
        messages = {self._nodes[index].message_id for index in way} - {""}
        calls: set[str] = set()
        answered: set[str] = set()
        for index in sorted(way):
            calls |= self._nodes[index].calls
            answered |= self._nodes[index].answers

        for index in range(start + 1, stop):
            node = self._nodes[index]
            if index in way or not node.is_message:
                continue

            if node.message_id in messages:
                calls |= node.calls
                yield index
            elif node.answers and node.answers <= calls - answered:
                answered |= node.answers
                yield index


def _ids(blocks: list[JsonObject], kind: str, key: str) -> frozenset[str]:
    return frozenset(string(block.get(key)) for block in blocks if block.get("type") == kind)
