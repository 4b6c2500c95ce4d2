"""A pod's engine, brought to life: its host, its tools, and what its plugin brings beside it."""

from __future__ import annotations

from contextlib import ExitStack

from attrs import frozen

from manifests import CompactionSection
from pod.compaction.summarizer import Summarizer
from pod.compaction.thresholds import UNKNOWN_WINDOW
from pod.context.compressor import Compressor, Desk
from pod.context.host import EngineHost
from pod.context.plugin_host import PluginHost
from pod.context.records import SessionRecords
from pod.context.threads import compaction_pool
from pod.context.words import LONGEST_LINE, one_line
from pod.core import learned_windows
from pod.launching.engine_setup import (
    NamedEngine,
    load_named_engine,
    plugin_host,
    tell_of_options,
    tools_beside,
)
from pod.launching.hermes_setup import HermesPlace, around, open_place
from pod.launching.model_facts import ModelDirectory
from pod.launching.setting import Setting
from pod.protocol import EngineNotice
from worker.tools import Tool


@frozen
class EngineParts:
    """An engine that works for a pod."""

    host: EngineHost
    named: NamedEngine
    place: HermesPlace | None
    models: ModelDirectory
    beside: PluginHost | None
    tools: list[Tool]
    """The engine's own, and those that its plugin brings beside it."""


async def engine_parts(setting: Setting, summarizer: Summarizer, *, undo: ExitStack) -> EngineParts:
    """Return the engine that the manifest names, or the built-in in its place, told of its model.

    The engine that a pod had in the session it left stays with it.
    """
    prepared, session = setting.prepared, setting.session
    host, named, place = await _engine(setting, _desk(setting, summarizer), undo=undo)
    models = ModelDirectory.of(prepared.loaded, prepared.provider)
    facts = models.facts(prepared.provider.client, learned_windows(session.state.config))
    if setting.kept is None:
        await host.introduce(facts, session.session_id)
    else:
        await host.model_is(facts)

    taken = [tool.name for tool in prepared.tools]
    tools = await host.tools(lambda: tuple(setting.core.worker.history), taken)
    beside = plugin_host(named.plugin, host, lambda: setting.core.scene())  # noqa: PLW0108  it is made later
    tools += await tools_beside(beside, prepared.tools, tools)
    return EngineParts(host, named, place, models, beside, tools)


def _desk(setting: Setting, summarizer: Summarizer) -> Desk:
    prepared = setting.prepared
    # The compressor's numbers are those of the Worker, which needs the engine's tools first.
    return Desk(
        settings=prepared.loaded.manifest.compaction or CompactionSection(),
        weigh=lambda item: setting.core.worker.meter.weigh(item),  # noqa: PLW0108  it is made later
        sizes=lambda: setting.core.sizes(),  # noqa: PLW0108  it is made later
        summarize=summarizer,
        window=lambda: prepared.summaries.client.context_window or UNKNOWN_WINDOW,
        short_prompt=prepared.summaries.takes_grammar,
    )


async def _engine(
    setting: Setting, desk: Desk, *, undo: ExitStack
) -> tuple[EngineHost, NamedEngine, HermesPlace | None]:
    """Return the host of the engine, what was loaded for it, and its place."""
    prepared, kept = setting.prepared, setting.kept
    section = prepared.loaded.manifest.context
    if kept is not None and kept.host is not None:
        kept.host.stand_in = Compressor(desk)
        return kept.host, kept.named, kept.place

    def notice(engine: str, message: str) -> None:
        line = one_line(prepared.masker.mask(message), LONGEST_LINE)
        setting.bus.publish(EngineNotice(engine=engine, message=line))

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
