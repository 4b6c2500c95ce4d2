"""From entries to a state: what each kind of entry means. Pure, and the one place that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import asdict, evolve, fields

from worker.items import Item, is_turn_start
from worker.items_json import load_item, load_items
from worker.text import first_line

from .chain import Entry, EntryRef
from .errors import SessionDamaged
from .state import Approval, SessionState, Totals, UsageRecord

_CARRIED_AS_THEY_ARE = (
    *("watermark", "turns", "run_open", "interrupted", "last_outcome", "generation", "title"),
    *("fresh_compaction", "consecutive_failures", "compaction_disabled", "extensions"),
)


def fold(entries: Iterable[Entry], inherited: SessionState | None = None) -> SessionState:
    """Return what the entries of one session amount to, from its first.

    `inherited` is the parent's state at the fork point, for a session whose history is null.

    Raises:
        SessionDamaged: An entry verifies but does not hold what its kind promises.
    """
    folding = Fold(inherited)
    for entry in entries:
        folding.take(entry)

    return folding.state()


def title_of(items: Iterable[Item]) -> str:
    """Return the first line of the first thing that a person said; empty where nobody did."""
    said = (item.text for item in items if is_turn_start(item) and hasattr(item, "text"))
    return next((line for line in map(first_line, said) if line), "")


def carried(state: SessionState) -> dict[str, Any]:
    """Return what a state holds besides history, prompt and config, as JSON.

    A fork that is independent of its parent's log has this as `carried` in its first entry.
    """
    return {
        **{name: getattr(state, name) for name in _CARRIED_AS_THEY_ARE},
        "usage": [asdict(record) for record in state.usage],
        "approvals": [asdict(approval) for approval in state.approvals],
        "totals": asdict(state.totals),
    }


class Fold:
    """A state in the making: give it the entries of one session in order."""

    def __init__(self, inherited: SessionState | None = None) -> None:
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "session_start": self._session_start,
            "user_input": self._run_items,
            "assistant_items": self._run_items,
            "tool_results": self._run_items,
            "system_item": self._system_item,
            "item_amended": self._item_amended,
            "usage": self._usage,
            "prune_advanced": self._prune_advanced,
            "compaction_started": self._compaction_started,
            "compaction_failed": self._compaction_failed,
            "compaction": self._compaction,
            "approval": self._approval,
            "turn_end": self._turn_end,
            "run_outcome": self._run_outcome,
            "config_changed": self._config_changed,
            "extension": self._extension,
        }
        self._inherited = inherited
        self._last: Entry | None = None
        self._draft = _Draft(inherited or SessionState(session_id="", head=EntryRef(-1, "")))

    def take(self, entry: Entry) -> None:
        """Let the entry count.

        Raises:
            SessionDamaged: It verifies but does not hold what its kind promises.
        """
        data, draft = entry.data, self._draft
        handler = self._handlers.get(data["kind"])
        if handler is not None:
            try:
                handler(data)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                reason = f"is no {data['kind']} that can be read ({error})"
                raise SessionDamaged(draft.session_id, entry.seq, reason, entry.seq) from error

        self._last = entry

    def state(self) -> SessionState:
        """Return the state so far. What is taken later does not change it."""
        if self._last is not None:
            self._draft.head = self._last.ref
            self._draft.updated = self._last.ts

        return self._draft.frozen()

    def _session_start(self, data: dict[str, Any]) -> None:
        draft = self._draft
        draft.session_id = data["session_id"]
        draft.created = data["ts"]
        draft.compaction_open = None
        draft.forked_from = _link(data.get("forked_from"))
        draft.compacted_from = _link(data.get("compacted_from"))
        draft.recovered_from = _link(data.get("recovered_from"))
        draft.spawned_by = data.get("spawned_by")
        # Null means inherited. What inherits nothing starts from the defaults.
        draft.pod = draft.pod if data.get("pod") is None else data["pod"]
        draft.config = draft.config if data.get("config") is None else data["config"]
        if data.get("system_prompt") is not None:
            draft.system_prompt = data["system_prompt"]

        self._start_history(data)
        if data.get("title"):
            draft.title = data["title"]

    def _start_history(self, data: dict[str, Any]) -> None:
        if data.get("history") is not None:
            self._draft.history = load_items(data["history"])
            self._draft.title = title_of(self._draft.history)
        elif self._inherited is None:
            raise ValueError("its history is inherited and there is no parent")

        state = data.get("carried")
        if state is not None:
            self._take_carried(state)

    def _take_carried(self, state: dict[str, Any]) -> None:
        draft = self._draft
        for name in _CARRIED_AS_THEY_ARE:
            if name in state:
                setattr(draft, name, state[name])

        draft.usage = [_usage_record(record) for record in state.get("usage", [])]
        draft.approvals = [_approval(approval) for approval in state.get("approvals", [])]
        draft.totals = _totals(state.get("totals", {}))

    def _run_items(self, data: dict[str, Any]) -> None:
        items = load_items(data["items"])
        draft = self._draft
        draft.history += items
        draft.run_open = draft.interrupted = True
        draft.title = draft.title or title_of(items)

    def _system_item(self, data: dict[str, Any]) -> None:
        self._draft.history += load_items(data["items"])

    def _item_amended(self, data: dict[str, Any]) -> None:
        item, history = load_item(data["item"]), self._draft.history
        # The newest of that uid: what is amended is nearly always at the end.
        for index in range(len(history) - 1, -1, -1):
            if history[index].uid == item.uid:
                history[index] = item
                return

        raise ValueError(f"no item has the uid {item.uid}")

    def _usage(self, data: dict[str, Any]) -> None:
        draft, before = self._draft, self._draft.totals
        if data["input_tokens"] is None:  # the provider did not say
            draft.totals = evolve(before, requests=before.requests + 1)
            return

        record = _usage_record(data)
        draft.usage.append(record)
        draft.fresh_compaction = False
        draft.totals = Totals(
            requests=before.requests + 1,
            input_tokens=before.input_tokens + record.input_tokens,
            cache_read=before.cache_read + record.cache_read,
            cache_write=before.cache_write + record.cache_write,
            output_tokens=before.output_tokens + record.output_tokens,
            cost=before.cost + (record.cost or 0.0),
        )

    def _prune_advanced(self, data: dict[str, Any]) -> None:
        self._draft.watermark = max(self._draft.watermark, int(data["upto_index"]))

    def _compaction_started(self, data: dict[str, Any]) -> None:
        self._draft.compaction_open = str(data["trigger"])

    def _compaction_failed(self, data: dict[str, Any]) -> None:
        self._draft.compaction_open = None
        self._note_breaker(data)

    def _compaction(self, data: dict[str, Any]) -> None:
        draft = self._draft
        draft.generation = int(data.get("generation", draft.generation + 1))
        draft.fresh_compaction = True
        draft.run_open = draft.interrupted = bool(data.get("in_run", False))
        # A digest stands in for a summary that failed, so the failure goes on counting.
        self._note_breaker(data)
        if "totals" in data:
            draft.totals = _totals(data["totals"])

    def _approval(self, data: dict[str, Any]) -> None:
        self._draft.approvals.append(_approval(data))

    def _turn_end(self, _: dict[str, Any]) -> None:
        self._draft.turns += 1

    def _run_outcome(self, data: dict[str, Any]) -> None:
        draft = self._draft
        draft.run_open = False
        draft.interrupted = bool(data.get("interrupted", False))
        draft.last_outcome = str(data["outcome"])

    def _config_changed(self, data: dict[str, Any]) -> None:
        self._draft.config = dict(data["config"])
        if data.get("system_prompt") is not None:
            self._draft.system_prompt = data["system_prompt"]

    def _extension(self, data: dict[str, Any]) -> None:
        self._draft.extensions.setdefault(data["domain"], []).append(data.get("payload"))

    def _note_breaker(self, data: dict[str, Any]) -> None:
        draft = self._draft
        draft.consecutive_failures = int(data.get("consecutive_failures", 0))
        draft.compaction_disabled = bool(data.get("disabled", False))


class _Draft:
    """A state that can still be changed. It shares no list with the state that it begins as."""

    def __init__(self, state: SessionState) -> None:
        self.session_id = state.session_id
        self.head = state.head
        self.pod = state.pod
        self.system_prompt = state.system_prompt
        self.config = dict(state.config)
        self.title = state.title
        self.created = state.created
        self.updated = state.updated
        self.history = list(state.history)
        self.watermark = state.watermark
        self.turns = state.turns
        self.run_open = state.run_open
        self.interrupted = state.interrupted
        self.last_outcome = state.last_outcome
        self.usage = list(state.usage)
        self.totals = state.totals
        self.approvals = list(state.approvals)
        self.extensions = {domain: list(seen) for domain, seen in state.extensions.items()}
        self.generation = state.generation
        self.fresh_compaction = state.fresh_compaction
        self.compaction_open = state.compaction_open
        self.consecutive_failures = state.consecutive_failures
        self.compaction_disabled = state.compaction_disabled
        self.forked_from = state.forked_from
        self.compacted_from = state.compacted_from
        self.recovered_from = state.recovered_from
        self.spawned_by = state.spawned_by

    def frozen(self) -> SessionState:
        values = {field.name: getattr(self, field.name) for field in fields(SessionState)}
        for name in ("history", "usage", "approvals"):
            values[name] = list(values[name])

        values["extensions"] = {domain: list(seen) for domain, seen in self.extensions.items()}
        return SessionState(**values)


def _link(value: list[str] | None) -> tuple[str, str] | None:
    if value is None:
        return None

    session_id, digest = value
    return session_id, digest


def _usage_record(data: dict[str, Any]) -> UsageRecord:
    cost = data.get("cost")
    return UsageRecord(
        history_len=int(data["history_len"]),
        input_tokens=int(data["input_tokens"]),
        cache_read=int(data.get("cache_read") or 0),
        cache_write=int(data.get("cache_write") or 0),
        output_tokens=int(data.get("output_tokens") or 0),
        model=str(data.get("model") or ""),
        cost=None if cost is None else float(cost),
    )


def _approval(data: dict[str, Any]) -> Approval:
    return Approval(
        call_uid=str(data["call_uid"]),
        decision=str(data["decision"]),
        scope=str(data.get("scope") or ""),
        by=str(data.get("by") or ""),
    )


def _totals(data: dict[str, Any]) -> Totals:
    known = {field.name for field in fields(Totals)}
    return Totals(**{name: value for name, value in data.items() if name in known})
