"""Taking up a session where its log left it: measurements, the breaker, what broke off."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from pod.compaction.state import remembered
from pod.compaction.thresholds import UNKNOWN_WINDOW
from pod.context.host import ModelFacts
from pod.journal import in_thread
from pod.protocol import CompactionFailed
from pod.protocol.events import Trigger

if TYPE_CHECKING:
    from pod.core import PodCore
    from session_store import FileSessionStore, SessionState

INTERRUPTED_MESSAGE = "the process ended in the middle of it; the history is unchanged"


async def take_up(core: PodCore, state: SessionState) -> None:
    """Bring a pod's parts to where `state` says the session was; new sessions need nothing.

    What changed since is noted in the log: other settings, an interrupted compaction.
    """
    worker = core.worker
    if state.usage:
        last = state.usage[-1]
        worker.meter.restore(
            core.sent(state.history[: last.history_len], state.watermark),
            core.sent(state.history, state.watermark),
            last.input_tokens,
        )

    if state.last_outcome == "paused" and not state.run_open:
        worker.restore_paused()

    began = await in_thread(lambda: _compaction_entry(core.store, state))
    core.memory = remembered(
        state,
        trigger=began["trigger"] if began else None,
        items_after=began["items_after"] if began else 0,
        threshold=core.thresholds.of,
        weigh=worker.meter.weigh,
    )
    lineage = await in_thread(lambda: core.store.lineage(state.session_id))
    core.moves_pointer = all(relation != "fork" for _, relation in lineage)
    await _note_changes(core, state)
    await _close_interrupted(core, state)
    await core.host.start(
        state.session_id,
        model=ModelFacts(
            model=worker.client.model,
            context_length=core.thresholds.window or UNKNOWN_WINDOW,
            provider=worker.client.provider,
        ),
        hermes_home=str(core.home.engines / core.host.name),
        platform="pod",
        context_length=core.thresholds.window or UNKNOWN_WINDOW,
        conversation_id=core.name,
    )


def _compaction_entry(store: FileSessionStore, state: SessionState) -> dict[str, Any] | None:
    """Return the entry of the compaction that this session began with, if it did."""
    if state.compacted_from is None:
        return None

    for entry in islice(store.entries(state.session_id), 2):
        if entry.kind == "compaction":
            return entry.data

    return None


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

    children = await in_thread(lambda: _compacted_children(core.store, state.session_id))
    if children:
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


def _compacted_children(store: FileSessionStore, session_id: str) -> list[str]:
    return [
        child
        for child in store.children(session_id)
        if store.lineage(child)[-1] == (child, "compact")
    ]


def _as_trigger(text: str) -> Trigger:
    """Return the trigger that a log names; one that a newer version invented counts as manual."""
    known: tuple[Trigger, ...] = get_args(Trigger)
    return next((trigger for trigger in known if trigger == text), "manual")
