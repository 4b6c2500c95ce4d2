"""Taking up a session where its log left it: measurements, the breaker, what broke off."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from pod.compaction.state import FirstMeasurement, remembered
from pod.core import LEARNED_WINDOWS, learned_windows
from pod.journal import in_thread
from pod.protocol import CompactionFailed
from pod.protocol.events import Trigger
from session_store import SessionStoreError
from worker.prune import apply_prune

if TYPE_CHECKING:
    from pod.context.facts import Beginning
    from pod.core import PodCore
    from session_store import FileSessionStore, SessionState

INTERRUPTED_MESSAGE = "the process ended in the middle of it; the history is unchanged"


async def take_up(core: PodCore, state: SessionState, beginning: Beginning) -> None:
    """Bring a pod's parts to where `state` says the session was; new sessions need nothing.

    What changed since is noted in the log: other settings, an interrupted compaction. The engine
    hears of the session as `beginning` says.
    """
    worker = core.worker
    if state.usage:
        last = state.usage[-1]
        worker.meter.restore(
            apply_prune(state.history[: last.history_len], state.watermark),
            apply_prune(state.history, state.watermark),
            last.input_tokens,
        )

    if state.last_outcome == "paused" and not state.run_open:
        worker.restore_paused()
        core.set_state("paused")

    began = await in_thread(lambda: _compaction_entry(core.store, state))
    core.memory = remembered(state, began=_to_be_judged(core, began), weigh=worker.meter.weigh)
    core.moves_pointer = await in_thread(lambda: core.store.may_be_pointed_at(state.session_id))
    _take_learned_window(core, state)
    await _note_changes(core, state)
    await _close_interrupted(core, state)
    await core.host.start(beginning)


def _compaction_entry(store: FileSessionStore, state: SessionState) -> dict[str, Any] | None:
    """Return the entry of the compaction that the history began with, if it did.

    A fork's history began where that of its nearest ancestor with a history of its own did.
    """
    session_id = state.session_id
    # An ancestor may have been removed since: then it is as if there had been no compaction.
    with suppress(SessionStoreError):
        while True:
            entries = [entry.data for entry in islice(store.entries(session_id), 2)]
            if entries[0].get("compacted_from") is not None:
                return next((data for data in entries if data["kind"] == "compaction"), None)

            parent = entries[0].get("forked_from")
            if parent is None:
                break

            session_id = parent[0]

    return None


def _to_be_judged(core: PodCore, began: dict[str, Any] | None) -> FirstMeasurement | None:
    """Return what the first measurement after a compaction must come to.

    Only the built-in engine is held to it: others have thresholds of their own.
    """
    if began is None or core.host.builtin is None or began.get("engine") != core.host.name:
        return None

    return FirstMeasurement(began["items_after"], core.thresholds.of(_as_trigger(began["trigger"])))


def _take_learned_window(core: PodCore, state: SessionState) -> None:
    """Hold to the window that the provider once named for this very model."""
    known = learned_windows(state.config)
    if known:
        core.config = {**core.config, LEARNED_WINDOWS: known}

    client, window = core.worker.client, core.thresholds.window
    learned = known.get(f"{client.provider}/{client.model}")
    if learned is not None and (window is None or learned < window):
        core.take_window(learned)


async def _note_changes(core: PodCore, state: SessionState) -> None:
    """Record settings that differ from those the session was last run with."""
    if dict(state.config) != core.config or state.system_prompt != core.worker.system_prompt:
        fields: dict[str, Any] = {"config": core.config}
        if state.system_prompt != core.worker.system_prompt:
            fields["system_prompt"] = core.worker.system_prompt

        await core.journal.append(("config_changed", fields))


async def _close_interrupted(core: PodCore, state: SessionState) -> None:
    """Give a compaction that a crash broke off its end, unless its new session was committed."""
    if state.compaction_open is None:
        return

    if await in_thread(lambda: _was_committed(core.store, state.session_id)):
        return

    fields = {
        "trigger": state.compaction_open,
        "reason": "interrupted",
        "message": INTERRUPTED_MESSAGE,
        "consecutive_failures": core.memory.failures,
        "disabled": core.memory.disabled,
    }
    (ref,) = await core.journal.append(("compaction_failed", fields))
    core.publish(
        CompactionFailed(
            session_id=state.session_id,
            trigger=_as_trigger(state.compaction_open),
            reason="interrupted",
            message=INTERRUPTED_MESSAGE,
            consecutive_failures=core.memory.failures,
            disabled=core.memory.disabled,
        ),
        ref,
    )


def _was_committed(store: FileSessionStore, session_id: str) -> bool:
    """Tell whether the last compaction that began in a log made a session all the same.

    A session that an earlier one made says nothing: the old session may have gone on since.
    """
    since: set[str] = set()
    for entry in store.entries(session_id):
        if entry.kind == "compaction_started":
            since.clear()

        since.add(entry.hash)

    origins = (_compacted_from(store, child) for child in store.children(session_id))
    return any(origin is not None and origin[1] in since for origin in origins)


def _compacted_from(store: FileSessionStore, session_id: str) -> tuple[str, str] | None:
    # A child that is damaged, or was removed just now, proves nothing; its own launch tells of it.
    with suppress(SessionStoreError):
        for entry in store.entries(session_id):
            return entry.data.get("compacted_from")

    return None


def _as_trigger(text: str) -> Trigger:
    """Return the trigger that a log names; one that a newer version invented counts as manual."""
    known: tuple[Trigger, ...] = get_args(Trigger)
    return next((trigger for trigger in known if trigger == text), "manual")
