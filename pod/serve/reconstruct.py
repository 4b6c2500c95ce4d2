"""Durable events out of a session's log: what an entry was told as, when it was new.

Numbers and times are not in a log; see `pod.serve.ledger`. Nor are a few things that only the
events said, such as a compaction's focus: those are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from attrs import define, field
from pydantic import ValidationError

from pod import protocol
from pod.protocol import ErrorInfo, EventData
from session_store import Entry

Data: TypeAlias = Mapping[str, Any]
_USAGE = ("input_tokens", "output_tokens", "cache_read", "cache_write")


@define
class _Run:
    """What a run came to so far."""

    text: str | None = None
    requests: int = 0
    spent: dict[str, int] = field(factory=dict)
    cost: float | None = None

    def usage(self) -> protocol.Usage:
        return protocol.Usage.model_validate({**self.spent, "cost": self.cost})

    def measured(self, data: Data) -> None:
        self.requests += 1
        for name in _USAGE:
            if data.get(name) is not None:
                self.spent[name] = self.spent.get(name, 0) + data[name]

        if data.get("cost") is not None:
            self.cost = (self.cost or 0.0) + data["cost"]


@define(eq=False)
class Teller:
    """Tells a session's entries again, one after the other, from its first one on."""

    session_id: str
    _compacted_from: tuple[str, str] | None = field(default=None, init=False)
    _calls: dict[str, tuple[str, str]] = field(factory=dict, init=False)
    """The id and the name of each call, by its id and by its uid."""
    _run: _Run = field(factory=_Run, init=False)
    _tellers: dict[str, Callable[[Data], Iterator[EventData]]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tellers = {
            "session_start": self._session_start,
            "assistant_items": self._assistant_items,
            "tool_results": self._tool_results,
            "usage": self._usage,
            "prune_advanced": self._prune_advanced,
            "compaction_started": self._compaction_started,
            "compaction_failed": self._compaction_failed,
            "compaction": self._compaction,
            "approval": self._approval,
            "turn_end": self._turn_end,
            "run_outcome": self._run_outcome,
        }

    def take(self, entry: Entry) -> list[EventData]:
        """Return the events that told of an entry; none for one that is not told of."""
        teller = self._tellers.get(entry.kind)
        if teller is None:
            return []

        try:
            return list(teller(entry.data))
        except (KeyError, TypeError, ValueError, ValidationError):
            # Of a newer version, which tells it in a way that this one does not know.
            return []

    def go_on_from(self, other: Teller) -> None:
        """Take over a run that a compaction had go on in this session."""
        self._run = other._run

    def _session_start(self, data: Data) -> Iterator[EventData]:
        origin = data.get("compacted_from")
        self._compacted_from = (origin[0], origin[1]) if origin else None
        for item in data.get("history") or ():
            self._learn(item)

        yield from ()

    def _learn(self, item: Data) -> list[Data]:
        """Remember the calls of an answer; returns them."""
        if item["type"] != "assistant_message":
            return []

        calls = [part for part in item["parts"] if part["type"] == "tool_call"]
        for call in calls:
            self._calls[call["call_id"]] = self._calls[call["call_uid"]] = (
                call["call_id"],
                call["name"],
            )

        return calls

    def _assistant_items(self, data: Data) -> Iterator[EventData]:
        for item in data["items"]:
            calls = self._learn(item)
            text = "".join(part["text"] for part in item["parts"] if part["type"] == "text")
            if text:
                self._run.text = text
                yield protocol.TextDone(text=text)

            for call in calls:
                yield protocol.ToolCallDone(
                    call_id=call["call_id"], name=call["name"], arguments=call["arguments"]
                )

    def _tool_results(self, data: Data) -> Iterator[EventData]:
        for item in data["items"]:
            _, name = self._calls.get(item["call_id"], ("", ""))
            yield protocol.ToolResult(
                call_id=item["call_id"],
                name=name,
                summary=item["summary"],
                content=item.get("content"),
                is_error=item["is_error"],
            )

    def _usage(self, data: Data) -> Iterator[EventData]:
        self._run.measured(data)
        yield protocol.Usage(
            **{name: data.get(name) for name in _USAGE},
            cost=data.get("cost"),
            model=data.get("model") or None,
        )

    def _prune_advanced(self, data: Data) -> Iterator[EventData]:
        names = ("upto_index", "items", "est_savings", "reason")
        yield protocol.PruneApplied(**{name: data[name] for name in names})

    def _compaction_started(self, data: Data) -> Iterator[EventData]:
        yield protocol.CompactionStart(
            session_id=self.session_id,
            trigger=data["trigger"],
            engine=data["engine"],
            input_tokens=data["input_tokens"],
            threshold=data.get("threshold"),
        )

    def _compaction_failed(self, data: Data) -> Iterator[EventData]:
        yield protocol.CompactionFailed(
            session_id=self.session_id,
            trigger=data["trigger"],
            reason=data["reason"],
            message=data.get("message") or "",
            consecutive_failures=data["consecutive_failures"],
            disabled=data["disabled"],
        )

    def _compaction(self, data: Data) -> Iterator[EventData]:
        if self._compacted_from is None:
            return

        names = ("trigger", "engine", "items_before", "items_after", "tokens_before")
        more = ("tokens_after", "duration_ms", "generation", "method")
        usage = data.get("usage")
        yield protocol.CompactionDone(
            old_session_id=self._compacted_from[0],
            new_session_id=self.session_id,
            compacted_from=self._compacted_from,
            usage=self._spent_on_summary(usage, data) if usage else None,
            **{name: data[name] for name in (*names, *more)},
        )

    @staticmethod
    def _spent_on_summary(usage: Data, data: Data) -> protocol.Usage:
        spent = {name: usage.get(name) for name in _USAGE}
        return protocol.Usage(**spent, model=data.get("model") or None, cost=data.get("cost"))

    def _approval(self, data: Data) -> Iterator[EventData]:
        call_id, name = self._calls[data["call_uid"]]
        yield protocol.ApprovalResolved(
            call_id=call_id,
            call_uid=data["call_uid"],
            name=name,
            decision=data["decision"],
            scope=data.get("scope") or None,
            by=data.get("by") or "",
        )

    def _turn_end(self, data: Data) -> Iterator[EventData]:
        yield protocol.TurnEnd(turn=data["turn"])

    def _run_outcome(self, data: Data) -> Iterator[EventData]:
        outcome, message = data["outcome"], data.get("message")
        if outcome == "yielded" and not data.get("interrupted"):
            return  # a compaction in the middle of it: the run goes on in the next session

        run, self._run = self._run, _Run()
        failed = outcome == "error"
        yield protocol.RunEnd(
            outcome=outcome,
            session_id=self.session_id,
            text=run.text,
            error=ErrorInfo(code="error", message=message or "") if failed else None,
            message=message,
            requests=run.requests,
            usage=run.usage(),
            cost=run.cost,
        )
