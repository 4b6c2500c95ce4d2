"""`pod doctor MANIFEST`: whether everything that the manifest names is here and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from attrs import frozen

from manifests import LoadedManifest
from manifests.schema_provider import ProviderSection
from pod.compaction.thresholds import thresholds_for
from pod.home import Home
from pod.launching.preparing import open_store
from pod.providers import check_cost_budget, known_window
from pod.toolbox import load_hooks, load_tools, system_prompt
from pod.tui.text import counted
from pod.unbuilt import refuse_unbuilt
from session_store import SessionStoreError

from .findings import Finding, failed
from .provider_check import OURS, ModelCheck, models_of

if TYPE_CHECKING:
    from pod.context.discovery import EngineInfo

_T = TypeVar("_T")


@frozen
class Checkup:
    """One manifest on this machine."""

    loaded: LoadedManifest
    home: Home
    env: Mapping[str, str]
    is_trying: bool = False
    """Whether a tiny request may be made."""

    def findings(self) -> Iterator[Finding]:
        """Yield what was found, as it is found. Modules that the manifest names are imported."""
        manifest = self.loaded.manifest
        label = f"{self.loaded.path}: pod {manifest.pod.name}, {manifest.provider.label}"
        yield Finding("ok", "manifest", label)
        yield from _problem("manifest", lambda: refuse_unbuilt(self.loaded))
        yield from self._provider("provider", manifest.provider)
        if manifest.compaction is not None and manifest.compaction.provider is not None:
            yield from self._provider("summaries", manifest.compaction.provider)

        yield from _problem("budgets", lambda: check_cost_budget(self.loaded))
        yield from self._sizes()
        yield self._engine()
        yield from self._memory()
        yield from self._tools()
        yield from _problem("prompts", lambda: system_prompt(self.loaded))
        yield from self._session()

    def _provider(self, what: str, section: ProviderSection) -> Iterator[Finding]:
        for word, model in models_of(section, what):
            check = ModelCheck(word, model, self.loaded, self.home, self.env, self.is_trying)
            yield from check.findings()

    # ------------------------------------------------------------------ the rest

    def _sizes(self) -> Iterator[Finding]:
        """Yield what is wrong between the thresholds and the model's window, where it is known."""
        manifest, section = self.loaded.manifest, self.loaded.manifest.provider
        try:
            window = known_window(self.loaded, self.home)
        except OURS:  # the model's own line says what is wrong with it
            return

        sizes = thresholds_for(
            manifest.compaction,
            provider=section.kind,
            model=section.model or section.kind,
            window=window,
        )
        named = {"compact_threshold": sizes.compact, "compact_request_threshold": sizes.request}
        for key, size in named.items():
            if size is not None and window is not None and size >= window:
                told = f"{key} is {size:,}, and the window of {window:,} is full before that"
                advice = "three quarters of the window, or less, leave room for an answer"
                yield Finding("warn", "compaction", told, advice)

    def _engine(self) -> Finding:
        from pod.context.discovery import BUILT_IN, find_engine

        section = self.loaded.manifest.context
        info = find_engine(section.engine, self.home.plugins)
        if info is None:
            told = f"there is no engine {section.engine}; the built-in compressor would be used"
            return Finding("warn", "engine", told, "pod engines list")

        told = f"{section.engine} ({info.source})"
        if info.name == BUILT_IN:
            if section.options:
                said = f"{told} takes no options: its settings are those of [compaction]"
                return Finding("warn", "engine", said)

            return Finding("ok", "engine", told)

        wrong, is_used = self._what_is_wrong_with(info)
        if not wrong:
            return Finding("ok", "engine", told)

        instead = "" if is_used else "; the built-in compressor would be used"
        advice = f"pod engines show {section.engine}"
        return Finding("warn", "engine", f"{section.engine}: {wrong}{instead}", advice)

    def _what_is_wrong_with(self, info: EngineInfo) -> tuple[str, bool]:
        """Return what there is to say of a plugin, and whether its engine can be used all the same.

        Its code runs for that.
        """
        from pod.context.errors import EngineUnavailable
        from pod.context.plugin_alone import plugin_alone

        section = self.loaded.manifest.context
        try:
            with plugin_alone(section.engine, self.home, section.options) as plugin:
                return "; ".join([info.problem, *plugin.notices]).strip("; "), True
        except EngineUnavailable as error:
            return error.reason, False

    def _memory(self) -> Iterator[Finding]:
        from pod.memory.errors import MemoryUnavailable
        from pod.memory.loader import find_provider, load_provider

        section = self.loaded.manifest.memory
        name = section.provider if section is not None else None
        if name is None:
            return

        info = find_provider(name, self.home.plugins)
        try:
            load_provider(name, self.home.plugins).release()
        except MemoryUnavailable as error:
            told = f"{name}: {error.reason}; the pod would run without memory"
            advice = f"a provider is a folder in {self.home.plugins}, or a package that brings one"
            yield Finding("warn", "memory", told, advice)
        else:
            yield Finding("ok", "memory", f"{name} ({info.source if info else 'loaded'})")

    def _tools(self) -> Iterator[Finding]:
        try:
            tools = load_tools(self.loaded)
            hooks = load_hooks(self.loaded)
        except OURS as error:
            yield failed("tools", error)
            return

        if tools or hooks:
            told = f"{counted(len(tools), 'tool')}, {counted(len(hooks), 'hook')}"
            yield Finding("ok", "tools", told)

    def _session(self) -> Iterator[Finding]:
        store = open_store(self.loaded, self.home)
        try:
            session_id = store.pointer(self.loaded.manifest.pod.name)
            if session_id is None:
                return

            report = store.verify(session_id)
            holder = store.holder(session_id)
        except SessionStoreError as error:
            yield failed("session", error)
            return

        if not report.ok:
            told = f"{session_id} is damaged: entry {report.first_bad_seq} {report.reason}"
            yield Finding("fail", "session", told, f"pod sessions verify {session_id}")
        elif holder is not None:
            told = f"{session_id} is in use by pid {holder.pid}"
            yield Finding("warn", "session", told, "`pod run … --fork` works on a copy")
        else:
            told = f"{session_id}, {counted(report.entries, 'entry', 'entries')} verify"
            yield Finding("ok", "session", told)


def _problem(what: str, check: Callable[[], _T]) -> Iterator[Finding]:
    """Yield what is wrong, if something is."""
    try:
        check()
    except OURS as error:
        yield failed(what, error)
