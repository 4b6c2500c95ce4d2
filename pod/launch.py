"""From a manifest to the parts of a running pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import cast

from attrs import define, field, frozen

from manifests import CompactionSection, LoadedManifest
from pod.bus import EventBus
from pod.compaction.compactor import Compactor
from pod.compaction.prune_hook import BreakEven, PruneHook, prune_config
from pod.compaction.state import CompactionMemory
from pod.compaction.summarizer import Summarizer
from pod.compaction.thresholds import UNKNOWN_WINDOW, Thresholds, thresholds_for
from pod.compaction.triggers import TriggerStage
from pod.context.compressor import Compressor, Desk
from pod.context.engine import ContextEngine
from pod.context.errors import EngineUnavailable
from pod.context.host import EngineHost
from pod.context.loader import load_engine
from pod.context.threads import compaction_pool
from pod.core import PodCore
from pod.events import EventTranslator
from pod.home import Home
from pod.journal import SessionJournal, in_thread
from pod.model_table import PriceList
from pod.protocol import Alert, EngineNotice
from pod.providers import Provider, build_provider, check_cost_budget
from pod.restore import take_up
from pod.runs import RunDriver
from pod.toolbox import load_hooks, load_tools, permission_hook, system_prompt
from pod.unbuilt import refuse_unbuilt
from session_store import Durability, FileSessionStore, Session
from session_store.masking import Masker
from worker.hooks import Hook
from worker.llm.types import RequestOptions
from worker.ports import Intake, Ports, RequestStage
from worker.tools import Tool
from worker.worker import Worker, WorkerConfig


@frozen
class Prepared:
    """What a manifest comes to before any session is touched."""

    loaded: LoadedManifest
    home: Home
    provider: Provider
    summaries: Provider
    tools: list[Tool]
    hooks: list[Hook]
    system_prompt: str
    masker: Masker
    prices: PriceList

    async def close_clients(self) -> None:
        """End the connections, and the local server of either client; idempotent."""
        await self.provider.client.aclose()
        if self.summaries is not self.provider:
            await self.summaries.client.aclose()


@define(eq=False)
class Launched:
    """A pod's parts, working."""

    core: PodCore
    driver: RunDriver
    compactor: Compactor
    prepared: Prepared

    async def end_session(self) -> None:
        """Take leave of the engine and close the session; the clients stay open."""
        core = self.core
        await core.host.end(core.session.session_id, tuple(core.worker.history))
        await in_thread(core.session.close)

    async def aclose(self) -> None:
        """Close the engine, the session and the clients; idempotent.

        Raises `SessionStoreError` where the session could not be closed in order; all is closed
        then too.
        """
        try:
            await self.end_session()
        finally:
            await self.prepared.close_clients()


def prepare(loaded: LoadedManifest, home: Home, env: Mapping[str, str]) -> Prepared:
    """Load everything that a manifest names: keys, model files, tools, hooks, prompts.

    Raises:
        PodError: Something cannot be loaded, or is not built.
        WorkerError: A file of the manifest cannot be used.
    """
    refuse_unbuilt(loaded)
    manifest = loaded.manifest
    provider = build_provider(manifest.provider, loaded, home, env)
    own = manifest.compaction.provider if manifest.compaction else None
    summaries = build_provider(own, loaded, home, env) if own else provider
    prices = PriceList((*provider.models, *summaries.models))
    check_cost_budget(loaded)
    hooks = load_hooks(loaded)
    gate = permission_hook(manifest.permissions)
    masker = Masker(_secrets(loaded, provider, summaries))
    return Prepared(
        loaded=loaded,
        home=home,
        provider=provider,
        summaries=summaries,
        tools=load_tools(loaded),
        hooks=[gate, *hooks] if gate else hooks,
        # As it is kept, so is it sent; and a later launch finds nothing changed.
        system_prompt=masker.mask(system_prompt(loaded)),
        masker=masker,
        prices=prices,
    )


def _secrets(loaded: LoadedManifest, provider: Provider, summaries: Provider) -> dict[str, str]:
    """Return every secret value that the manifest leads to, by a name that may be shown."""
    secrets: dict[str, str] = {}
    for key in (*provider.keys, *summaries.keys):
        if key.value is None:
            continue

        name, value = key.source.rsplit(" ", 1)[-1], key.value.get_secret_value()
        if secrets.setdefault(name, value) != value:
            secrets[f"{name} ({len(secrets) + 1})"] = value  # another file of the same name, say

    return secrets | {f"env {n}": value for n, value in enumerate(sorted(loaded.secret_values))}


def open_store(loaded: LoadedManifest, home: Home) -> FileSessionStore:
    """Return the store that a manifest's `[session]` means."""
    section = loaded.manifest.session
    sessions = loaded.resolve(section.store) if section.store else None
    durability = Durability(section.durability)
    return FileSessionStore(home.root, sessions=sessions, durability=durability)


async def launch(
    prepared: Prepared, bus: EventBus, *, resume: str | None, after: str | None = None
) -> Launched:
    """Bring a pod to life: its session (new, or `resume`), its engine and its Worker.

    `after` is the session that the pod left for this one, if it did.

    Raises:
        SessionStoreError: The session cannot be opened: unknown, damaged, or in use.
    """
    store = open_store(prepared.loaded, prepared.home)
    session = await in_thread(lambda: _session(store, prepared, resume))
    # Whatever fails, a cancellation too: neither session nor engine stays taken.
    with ExitStack() as undo:
        undo.callback(session.close)
        launched = await _assemble(prepared, bus, store, session, undo=undo)
        _tell_of_torn_tail(launched.core, session)
        await take_up(launched.core, session.state, after=after)
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


def config_of(prepared: Prepared) -> dict[str, object]:
    """Return what a session records of how it was run; nothing secret."""
    manifest, client = prepared.loaded.manifest, prepared.provider.client
    compaction = manifest.compaction
    return {
        "provider": client.provider,
        "model": client.model,
        "context_window": client.context_window,
        "max_tokens": manifest.worker.max_tokens,
        "temperature": manifest.worker.temperature,
        "reasoning_effort": manifest.worker.reasoning_effort,
        "engine": manifest.context.engine,
        "compaction": compaction.model_dump(mode="json", exclude_none=True, exclude={"provider"})
        if compaction
        else None,
    }


async def _assemble(
    prepared: Prepared,
    bus: EventBus,
    store: FileSessionStore,
    session: Session,
    *,
    undo: ExitStack,
) -> Launched:
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
    host = await _host(prepared, bus, desk)
    undo.callback(host.let_go)
    journal = SessionJournal(session, prepared.masker, lambda old, new: core.forked_away(old, new))  # noqa: PLW0108  `core` comes later
    break_even = BreakEven(
        lambda: prepared.prices.of_cache(prepared.provider.client),
        lambda: core.thresholds.end,
    )
    stages = _Stages(host, _prune(manifest.compaction, host, break_even))
    tools = await host.tools(lambda: tuple(core.worker.history))
    options = _options(prepared, await in_thread(lambda: _conversation(store, session)))
    worker = _worker(prepared, bus, journal, stages, tools, options=options)
    state = session.state
    worker.set_history(state.history, watermark=state.watermark, turns=state.turns)
    core = PodCore(
        loaded=prepared.loaded,
        home=prepared.home,
        store=store,
        bus=bus,
        journal=journal,
        worker=worker,
        host=host,
        thresholds=_thresholds(prepared),
        memory=CompactionMemory(),
        summarizer=summarizer,
        prune=stages.prune,
        config=config_of(prepared),
        prices=prepared.prices,
        moves_pointer=True,
    )
    compactor = Compactor(core)
    stages.trigger.compactor = compactor
    driver = RunDriver(core, compactor, _key_hint(prepared))
    worker.on_usage(driver.measured)
    return Launched(core, driver, compactor, prepared)


@define
class _Stages:
    """Our steps before each request, in order: prune, then see whether to compact, then select."""

    host: EngineHost
    prune: PruneHook | None
    trigger: TriggerStage = field(factory=TriggerStage)

    def in_order(self) -> tuple[RequestStage, ...]:
        first = (self.prune,) if self.prune is not None else ()
        return (*first, self.trigger, self.host)


def _prune(
    section: CompactionSection | None, host: EngineHost, break_even: BreakEven
) -> PruneHook | None:
    """`[compaction]` governs the built-in engine alone."""
    if section is None or host.builtin is None:
        return None

    weighs_prices = section.prune_policy == "break_even"
    return PruneHook(prune_config(section), break_even if weighs_prices else None)


async def _host(prepared: Prepared, bus: EventBus, desk: Desk) -> EngineHost:
    """Return the host of the engine that the manifest names, or of the built-in in its place."""
    section = prepared.loaded.manifest.context

    def notice(engine: str, message: str) -> None:
        bus.publish(EngineNotice(engine=engine, message=prepared.masker.mask(message)))

    engine: ContextEngine = Compressor(desk)
    if section.engine != Compressor.name:
        try:
            # Importing a plugin runs its code, which may take its time: never on the event loop.
            engine = await in_thread(lambda: load_engine(section.engine, prepared.home.plugins))
        except EngineUnavailable as error:
            notice(section.engine, error.notice)

    return EngineHost(engine, notice, section.timeout_seconds, compaction_pool())


def _worker(
    prepared: Prepared,
    bus: EventBus,
    journal: SessionJournal,
    stages: _Stages,
    engine_tools: list[Tool],
    *,
    options: RequestOptions,
) -> Worker:
    manifest = prepared.loaded.manifest
    settings, budget = manifest.worker, manifest.budgets.run
    own = {tool.name for tool in prepared.tools}
    extra = [tool for tool in engine_tools if tool.name not in own]
    limits = [n for n in (settings.max_requests, budget.requests) if n is not None]
    return Worker(
        prepared.provider.client,
        system_prompt=prepared.system_prompt,
        tools=[*prepared.tools, *extra],
        hooks=prepared.hooks,
        config=WorkerConfig(
            options=options,
            max_requests=min(limits) if limits else None,
            max_tokens_used=budget.tokens,
            max_cost=budget.cost,
            max_seconds=budget.seconds,
            tool_timeout_s=settings.tool_timeout_seconds,
            tool_output_max_bytes=settings.tool_output_max_bytes,
            native_schema=prepared.provider.takes_schema,
            yield_on_overflow=True,
        ),
        ports=Ports(
            journal=journal,
            emit=EventTranslator(bus.publish, prepared.masker),
            intake=cast("Intake", prepared.masker.mask_item),  # it keeps an item's type
            price=prepared.prices,
            stages=stages.in_order(),
        ),
    )


def _conversation(store: FileSessionStore, session: Session) -> str:
    """Return the same name for a session and whatever it was compacted or forked from.

    Their requests begin alike, and a provider that is told so finds what it has cached.
    """
    (root, _), *_ = store.lineage(session.session_id)
    return root


def _options(prepared: Prepared, conversation: str) -> RequestOptions:
    settings = prepared.loaded.manifest.worker
    return RequestOptions(
        max_tokens=_output_cap(prepared),
        temperature=settings.temperature,
        reasoning_effort=settings.reasoning_effort,
        cache_key=conversation,
    )


def _output_cap(prepared: Prepared) -> int | None:
    """Return the most tokens of one answer: what is asked for, as far as every model can."""
    asked = prepared.loaded.manifest.worker.max_tokens
    caps = [card.max_output_tokens for card in prepared.provider.models]
    known = [cap for cap in caps if cap is not None]
    return asked if asked is None or not known else min(asked, *known)


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
