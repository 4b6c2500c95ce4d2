"""From a manifest to the parts of a running pod."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from functools import partial
from typing import cast

from attrs import define, evolve, field, frozen

from manifests import CompactionSection
from pod.approvals import ApprovalDesk
from pod.bus import EventBus
from pod.compaction.compactor import Compactor
from pod.compaction.prune_hook import BreakEven, PruneHook, prune_config
from pod.compaction.state import CompactionMemory
from pod.compaction.summarizer import Summarizer
from pod.compaction.thresholds import UNKNOWN_WINDOW, Thresholds, thresholds_for
from pod.compaction.triggers import TriggerStage
from pod.context.compressor import Compressor, Desk
from pod.context.facts import Beginning
from pod.context.host import EngineHost
from pod.context.records import SessionRecords
from pod.context.threads import compaction_pool
from pod.core import PodCore, learned_windows
from pod.engine_setup import (
    NamedEngine,
    attach,
    load_named_engine,
    plugin_host,
    require_named_tools,
    tell_of_options,
    tools_beside,
)
from pod.events import EventTranslator
from pod.hermes_setup import HermesPlace, around, open_place
from pod.journal import SessionJournal, in_thread
from pod.memory_setup import open_memory
from pod.model_facts import ModelDirectory
from pod.preparing import Prepared, config_of, open_store
from pod.protocol import Alert, EngineNotice
from pod.restore import take_up
from pod.runs import RunDriver
from pod.worker_setup import make_worker
from session_store import FileSessionStore, Session, SessionStoreError
from worker.ports import Intake, Ports, RequestStage


@frozen
class Left:
    """A session that a pod left for another one, and the plugin's engine that goes along."""

    session_id: str
    carries_over: bool
    """Whether what was said in it is part of the next one."""
    host: EngineHost | None = None
    named: NamedEngine = field(factory=NamedEngine)
    place: HermesPlace | None = None

    def back(self) -> Left:
        """Return what goes along on the way back, where the next session could not be opened."""
        return evolve(self, session_id="")


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
            await self._end_engine()
            await self.prepared.aclose()

    async def _end_session(self) -> None:
        """Take leave of the session and close it; engine, clients and memory stay open."""
        core = self.core
        self.prepared.memory.leave(core.session.session_id, core.worker.history)
        if core.plugin_host is not None:
            await core.plugin_host.session_left()

        await core.host.end(core.session.session_id, tuple(core.worker.history))
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
        setting = _Setting(
            prepared, bus, approvals or ApprovalDesk(bus.publish), store, session, lineage, left
        )
        launched = await _assemble(setting, undo=undo)
        _tell_of_torn_tail(launched.core, session)
        await take_up(launched.core, session.state, setting.beginning())
        if launched.core.plugin_host is not None and left is not None and left.session_id:
            await launched.core.plugin_host.session_reset(left.session_id)

        undo.pop_all()

    return launched


@frozen
class _Setting:
    """What a launch begins with."""

    prepared: Prepared
    bus: EventBus
    approvals: ApprovalDesk
    store: FileSessionStore
    session: Session
    lineage: list[tuple[str, str]]
    left: Left | None

    @property
    def kept(self) -> Left | None:
        """What was left, where a plugin's engine goes along."""
        return self.left if self.left is not None and self.left.host is not None else None

    def beginning(self) -> Beginning:
        """Return what the engine is told of the session."""
        left, state = self.left, self.session.state
        # As the manifest calls it: the same folder that the engine finds by asking.
        engine = self.prepared.loaded.manifest.context.engine
        is_new_branch = left is None and state.forked_from is not None and state.head.seq == 0
        branched_off = state.forked_from[0] if is_new_branch and state.forked_from else ""
        # Compactions go on with a conversation; a branch is one of its own.
        branch = next((id_ for id_, how in reversed(self.lineage) if how != "compact"), "")
        return Beginning(
            session_id=state.session_id,
            hermes_home=str(self.prepared.home.engines / engine),
            conversation_id=branch,
            left=left.session_id if left is not None else branched_off,
            carries_over=left.carries_over if left is not None else True,
            is_first=self.kept is None,
        )


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


async def _assemble(setting: _Setting, *, undo: ExitStack) -> Launched:
    prepared, bus, session = setting.prepared, setting.bus, setting.session
    manifest = prepared.loaded.manifest
    summarizer = Summarizer(
        lambda: prepared.summaries.client,
        asyncio.get_running_loop(),
        use_grammar=prepared.summaries.takes_grammar,
    )
    # The compressor's numbers are those of the Worker, which needs the engine's tools first.
    desk = Desk(
        settings=manifest.compaction or CompactionSection(),
        weigh=lambda item: core.worker.meter.weigh(item),  # noqa: PLW0108  `core` comes later
        sizes=lambda: core.sizes(),  # noqa: PLW0108  likewise
        summarize=summarizer,
        window=lambda: prepared.summaries.client.context_window or UNKNOWN_WINDOW,
        short_prompt=prepared.summaries.takes_grammar,
    )
    host, named, place = await _engine(setting, desk, undo=undo)
    journal = SessionJournal(session, prepared.masker, lambda old, new: core.forked_away(old, new))  # noqa: PLW0108  `core` comes later
    setting.approvals.open_session(
        partial(_record_approval, journal),
        shown=prepared.masker.mask,
        timeout_s=manifest.permissions.ask_timeout_seconds,
    )
    break_even = BreakEven(
        lambda: prepared.prices.of_cache(prepared.provider.client),
        lambda: core.thresholds.end,
    )
    lineage = setting.lineage
    prepared.memory.on_notice(partial(_warn, prepared, bus))
    memory = await open_memory(prepared, session.state, lineage)
    stages = _Stages(host, _prune(manifest.compaction, host, break_even), memory.stages)
    directory = ModelDirectory.of(prepared.loaded, prepared.provider)
    facts = directory.facts(prepared.provider.client, learned_windows(session.state.config))
    if setting.kept is None:
        await host.introduce(facts, session.session_id)
    else:
        await host.model_is(facts)

    taken = [tool.name for tool in prepared.tools]
    tools = await host.tools(lambda: tuple(core.worker.history), taken)
    beside = plugin_host(named.plugin, host, lambda: core.scene())  # noqa: PLW0108  likewise
    tools += await tools_beside(beside, prepared.tools, tools)
    ports = Ports(
        journal=journal,
        emit=EventTranslator(bus.publish, prepared.masker),
        intake=cast("Intake", prepared.masker.mask_item),  # it keeps an item's type
        price=prepared.prices,
        approve=setting.approvals.ask,
        stages=stages.in_order(),
    )
    # Whatever was compacted or forked from one root begins alike, and a provider that is told so
    # finds what it has cached.
    worker = make_worker(prepared, ports, tools, memory, conversation=lineage[0][0])
    attach(beside, worker)
    require_named_tools(prepared.loaded, named, worker.tools)
    state = session.state
    worker.set_history(state.history, watermark=state.watermark, turns=state.turns)
    core = PodCore(
        loaded=prepared.loaded,
        home=prepared.home,
        store=setting.store,
        bus=bus,
        journal=journal,
        worker=worker,
        host=host,
        memory_host=prepared.memory,
        thresholds=_thresholds(prepared),
        memory=CompactionMemory(),
        summarizer=summarizer,
        prune=stages.prune,
        config=config_of(prepared),
        prices=prepared.prices,
        models=directory,
        plugin=named.plugin,
        plugin_host=beside,
        moves_pointer=True,
    )
    compactor = Compactor(core)
    stages.trigger.compactor = compactor
    driver = RunDriver(core, compactor, _key_hint(prepared))
    worker.on_usage(driver.measured)
    if place is not None:
        place.serve(lambda: core.session.session_id, on_progress=host.touch)

    return Launched(core, driver, compactor, prepared, named, place)


def _warn(prepared: Prepared, bus: EventBus, message: str) -> None:
    bus.publish(Alert(level="warning", message=prepared.masker.mask(message)))


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


def _prune(
    section: CompactionSection | None, host: EngineHost, break_even: BreakEven
) -> PruneHook | None:
    """`[compaction]` governs the built-in engine alone."""
    if section is None or host.builtin is None:
        return None

    weighs_prices = section.prune_policy == "break_even"
    return PruneHook(prune_config(section), break_even if weighs_prices else None)


async def _engine(
    setting: _Setting, desk: Desk, *, undo: ExitStack
) -> tuple[EngineHost, NamedEngine, HermesPlace | None]:
    """Return the host of the engine that the manifest names, or of the built-in in its place.

    The engine that a pod had in the session it left stays with it.
    """
    prepared, kept = setting.prepared, setting.kept
    section = prepared.loaded.manifest.context
    if kept is not None and kept.host is not None:
        kept.host.stand_in = Compressor(desk)
        return kept.host, kept.named, kept.place

    def notice(engine: str, message: str) -> None:
        setting.bus.publish(EngineNotice(engine=engine, message=prepared.masker.mask(message)))

    place = open_place(prepared)
    if place is not None:
        undo.callback(place.leave)

    named = NamedEngine()
    if section.engine == Compressor.name:
        tell_of_options(prepared.loaded, notice)
    else:
        named = await load_named_engine(prepared.loaded, prepared.home, notice, place=place)

    builtin = Compressor(desk)
    host = EngineHost(
        named.plugin.engine if named.plugin else builtin,
        notice,
        section.timeout_seconds,
        compaction_pool(),
        ceiling_s=section.total_ceiling_seconds,
        around=around(place),
        records=SessionRecords(setting.store),
        stand_in=builtin,
        mask=prepared.masker.mask,
    )
    undo.callback(host.let_go)
    return host, named, place


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
