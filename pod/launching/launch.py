"""From a manifest to the parts of a running pod."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from functools import partial
from operator import is_
from typing import cast

from attrs import define, field

from pod.approvals import ApprovalDesk
from pod.bus import EventBus
from pod.compaction.compactor import Compactor
from pod.compaction.prune_hook import BreakEven, PruneHook, prune_config
from pod.compaction.state import CompactionMemory
from pod.compaction.summarizer import Summarizer
from pod.compaction.thresholds import Thresholds, thresholds_for
from pod.compaction.triggers import TriggerStage
from pod.context.host import EngineHost
from pod.context.words import LONGEST_LINE, one_line
from pod.core import PodCore
from pod.events import EventTranslator
from pod.journal import SessionJournal, in_thread
from pod.launching.engine_launch import engine_parts
from pod.launching.engine_setup import NamedEngine, attach, require_named_tools
from pod.launching.hermes_setup import HermesPlace
from pod.launching.memory_setup import open_memory
from pod.launching.preparing import Prepared, config_of, open_store
from pod.launching.restore import take_up
from pod.launching.setting import Left, Setting
from pod.launching.worker_setup import make_worker
from pod.protocol import Alert
from pod.runs import RunDriver
from session_store import FileSessionStore, Session, SessionStoreError
from worker.items import Item
from worker.ports import Intake, Ports, RequestStage


@define(eq=False)
class Launched:
    """A pod's parts, working."""

    core: PodCore
    driver: RunDriver
    compactor: Compactor
    prepared: Prepared
    named: NamedEngine
    place: HermesPlace | None = None
    """Where the engine's Hermes imports work, if it is a plugin."""
    found: tuple[Item, ...] = ()
    """The history as the launch found it."""

    async def leave(self, *, carries_over: bool) -> Left:
        """End the session, for another one of the same pod, and return what goes along.

        `carries_over` tells whether what was said in it is part of the next one.
        """
        core, old_id = self.core, self.core.session.session_id
        await self._end_session()
        if core.host.builtin is None:
            return Left(old_id, carries_over, core.host, self.named, self.place)

        await self._end_engine()
        return Left(old_id, carries_over)

    async def aclose(self) -> None:
        """Close the engine, the session and the clients; idempotent.

        Raises `SessionStoreError` where the session could not be closed in order; all is closed
        then too.
        """
        try:
            await self._end_session()
        finally:
            if self.core.plugin_host is not None:
                await self.core.plugin_host.unloaded()

            await self._end_engine()
            await self.prepared.aclose()

    async def _end_session(self) -> None:
        """Take leave of the session and close it; engine, clients and memory stay open."""
        core = self.core
        self.prepared.memory.leave(core.session.session_id, core.worker.history)
        if core.plugin_host is not None:
            await core.plugin_host.session_left()

        history = tuple(core.worker.history)
        # What an engine was told of at the end of an earlier launch is no news to it: some keep
        # whatever they are told of, as often as they are.
        news = () if _is_same(history, self.found) else history
        await core.host.end(core.session.session_id, news)
        await in_thread(core.session.close)

    async def _end_engine(self) -> None:
        self.core.host.let_go()
        if self.place is not None:
            await self.place.aclose()


async def launch(
    prepared: Prepared,
    bus: EventBus,
    approvals: ApprovalDesk | None = None,
    *,
    resume: str | None,
    left: Left | None = None,
) -> Launched:
    """Bring a pod to life: its session (new, or `resume`), its engine and its Worker.

    `approvals` is where calls are asked about; without one they are denied. `left` is what the pod
    left for this session, if it did.

    Raises:
        SessionStoreError: The session cannot be opened: unknown, damaged, or in use.
    """
    store = open_store(prepared.loaded, prepared.home)
    session = await in_thread(lambda: _session(store, prepared, resume))
    # Whatever fails, a cancellation too: neither session nor engine stays taken.
    with ExitStack() as undo:
        if resume is None:
            undo.callback(_take_back, store, session.session_id)

        undo.callback(session.close)
        lineage = await in_thread(lambda: store.lineage(session.session_id))
        setting = Setting(
            prepared, bus, approvals or ApprovalDesk(bus.publish), store, session, lineage, left
        )
        launched = await _assemble(setting, undo=undo)
        _tell_of_torn_tail(launched.core, session)
        await take_up(launched.core, session.state, setting.beginning())
        if launched.core.plugin_host is not None and left is not None and left.session_id:
            await launched.core.plugin_host.session_reset(left.session_id)

        undo.pop_all()

    return launched


def _tell_of_torn_tail(core: PodCore, session: Session) -> None:
    torn = session.set_aside
    if torn is not None:
        message = (
            f"session {session.session_id} ended in a line that was never finished: its "
            f"{torn['bytes']:,} bytes at byte {torn['offset']:,} of the log are in "
            f"{torn['sidecar']} now; nothing that was acknowledged is missing"
        )
        core.publish(Alert(level="warning", message=message))


def _session(store: FileSessionStore, prepared: Prepared, resume: str | None) -> Session:
    if resume is not None:
        return store.open(resume)

    return store.create(
        pod=prepared.loaded.manifest.pod.name,
        system_prompt=prepared.system_prompt,
        config=config_of(prepared),
    )


def _take_back(store: FileSessionStore, session_id: str) -> None:
    """Remove a session that was begun for a launch which then failed: nothing is in it."""
    # What keeps it from being removed is no reason to hide why the launch failed.
    with suppress(SessionStoreError):
        store.remove(session_id)


async def _assemble(setting: Setting, *, undo: ExitStack) -> Launched:
    prepared, bus, session = setting.prepared, setting.bus, setting.session
    summarizer = Summarizer(
        lambda: prepared.summaries.client,
        asyncio.get_running_loop(),
        use_grammar=prepared.summaries.takes_grammar,
    )
    engine = await engine_parts(setting, summarizer, undo=undo)
    journal = SessionJournal(
        session,
        prepared.masker,
        lambda *ids: setting.core.forked_away(*ids),  # noqa: PLW0108  it is made later
    )
    prepared.memory.on_notice(partial(_warn, prepared, bus))
    memory = await open_memory(prepared, session.state, setting.lineage)
    stages = _Stages(engine.host, _prune(setting, engine.host), memory.stages)
    # Whatever was compacted or forked from one root begins alike, and a provider that is told so
    # finds what it has cached.
    worker = make_worker(
        prepared,
        _ports(setting, journal, stages),
        engine.tools,
        memory,
        conversation=setting.lineage[0][0],
    )
    attach(engine.beside, worker)
    require_named_tools(prepared.loaded, engine.named, worker.tools)
    state = session.state
    worker.set_history(state.history, watermark=state.watermark, turns=state.turns)
    core = PodCore(
        loaded=prepared.loaded,
        home=prepared.home,
        store=setting.store,
        bus=bus,
        journal=journal,
        worker=worker,
        host=engine.host,
        memory_host=prepared.memory,
        thresholds=_thresholds(prepared),
        memory=CompactionMemory(),
        summarizer=summarizer,
        prune=stages.prune,
        config=config_of(prepared),
        prices=prepared.prices,
        models=engine.models,
        plugin=engine.named.plugin,
        plugin_host=engine.beside,
        moves_pointer=True,
    )
    setting.made(core)
    stages.trigger.compactor = compactor = Compactor(core)
    driver = RunDriver(core, compactor, _key_hint(prepared))
    worker.on_usage(driver.measured)
    if engine.place is not None:
        engine.place.serve(lambda: core.session.session_id, on_progress=engine.host.touch)

    return Launched(
        core, driver, compactor, prepared, engine.named, engine.place, tuple(state.history)
    )


def _is_same(history: tuple[Item, ...], found: tuple[Item, ...]) -> bool:
    return len(history) == len(found) and all(map(is_, history, found))


def _ports(setting: Setting, journal: SessionJournal, stages: _Stages) -> Ports:
    prepared = setting.prepared
    setting.approvals.open_session(
        partial(_record_approval, journal),
        shown=prepared.masker.mask,
        timeout_s=prepared.loaded.manifest.permissions.ask_timeout_seconds,
    )
    return Ports(
        journal=journal,
        emit=EventTranslator(setting.bus.publish, prepared.masker),
        intake=cast("Intake", prepared.masker.mask_item),  # it keeps an item's type
        price=prepared.prices,
        approve=setting.approvals.ask,
        stages=stages.in_order(),
    )


def _warn(prepared: Prepared, bus: EventBus, message: str) -> None:
    line = one_line(prepared.masker.mask(message), LONGEST_LINE)
    bus.publish(Alert(level="warning", message=line))


async def _record_approval(journal: SessionJournal, fields: dict[str, object]) -> tuple[str, int]:
    (ref,) = await journal.append(("approval", fields))
    return ref


@define
class _Stages:
    """Our steps before each request: recall, prune, see whether to compact, then select."""

    host: EngineHost
    prune: PruneHook | None
    memory: tuple[RequestStage, ...]
    trigger: TriggerStage = field(factory=TriggerStage)

    def in_order(self) -> tuple[RequestStage, ...]:
        first = (self.prune,) if self.prune is not None else ()
        return (*self.memory, *first, self.trigger, self.host)


def _prune(setting: Setting, host: EngineHost) -> PruneHook | None:
    """`[compaction]` governs the built-in engine alone."""
    prepared = setting.prepared
    section = prepared.loaded.manifest.compaction
    if section is None or host.builtin is None:
        return None

    break_even = BreakEven(
        lambda: prepared.prices.of_cache(prepared.provider.client),
        lambda: setting.core.thresholds.end,
    )
    weighs_prices = section.prune_policy == "break_even"
    return PruneHook(prune_config(section), break_even if weighs_prices else None)


def _thresholds(prepared: Prepared) -> Thresholds:
    client = prepared.provider.client
    return thresholds_for(
        prepared.loaded.manifest.compaction,
        provider=client.provider,
        model=client.model,
        window=client.context_window,
    )


def _key_hint(prepared: Prepared) -> str:
    loaded, key = prepared.loaded, prepared.provider.keys[0]
    where = f"check {key.source}" if key.value is not None else "the manifest names no key"
    return f"{where}; `pod doctor {loaded.path}` tries it"
