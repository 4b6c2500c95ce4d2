"""A session without its history, kept up to date while it is written.

It is what a session that takes the other's place goes on with, at hand without reading a log again.
What the kinds of entries mean is told in `fold`; this holds the few that matter here to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson
from attrs import define, evolve

from worker.items_json import load_items

from .chain import EntryRef
from .fold import title_of
from .state import SessionState

_SAID = frozenset({"user_input", "assistant_items", "tool_results"})
_WITH_ITEMS = _SAID | {"system_item"}
_READ = _WITH_ITEMS | {"config_changed", "extension", "compaction"}
_WHERE_READABLE = suppress(KeyError, TypeError, ValueError, AttributeError)


@define(kw_only=True)
class Gist:
    """What a session is, but for the items of its history."""

    session_id: str
    head: EntryRef
    pod: str
    title: str
    system_prompt: str
    config: dict[str, Any]
    spawned_by: Any
    generation: int
    items: int
    """How many items the history has."""
    extensions: dict[str, Any]
    """The newest payload of each domain."""

    @classmethod
    def of(cls, state: SessionState) -> Gist:
        """Return the gist of a state."""
        return cls(
            session_id=state.session_id,
            head=state.head,
            pod=state.pod,
            title=state.title,
            system_prompt=state.system_prompt,
            config=state.config,
            spawned_by=state.spawned_by,
            generation=state.generation,
            items=len(state.history),
            extensions={domain: seen[-1] for domain, seen in state.extensions.items()},
        )

    def copy(self) -> Gist:
        """Return one that stays as this one is now."""
        return evolve(self, extensions=dict(self.extensions))

    def take(self, ref: EntryRef, kind: str, fields: Mapping[str, Any], line: bytes) -> None:
        """Let an entry count that was appended: its fields as they were given, and its line.

        Nothing is raised: what cannot be read is refused when the session is restored.
        """
        self.head = ref
        if kind not in _READ:
            return

        with _WHERE_READABLE:
            if kind in _WITH_ITEMS:
                items = fields["items"]
                self.items += len(items)
                if not self.title and kind in _SAID:
                    self.title = title_of(load_items(orjson.loads(line)["items"]))
            else:
                # From the line, for the values that were given may change, or be cleaned.
                self._take(kind, orjson.loads(line))

    def _take(self, kind: str, data: dict[str, Any]) -> None:
        match kind:
            case "config_changed":
                self.config = dict(data["config"])
                if data.get("system_prompt") is not None:
                    self.system_prompt = data["system_prompt"]
            case "extension":
                self.extensions[data["domain"]] = data.get("payload")
            case _:
                self.generation = int(data.get("generation", self.generation + 1))
