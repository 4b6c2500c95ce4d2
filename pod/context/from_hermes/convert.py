"""From a Hermes configuration to a manifest: what is carried over, and what is said to be not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen

from pod.context.discovery import BUILT_IN
from pod.context.hermes.threshold_rules import SMALL_WINDOW, effective_share
from session_store.token_shapes import mask_token_shapes

from .document import Document, Table, plain
from .model import ModelReader, ModelSection, place_of
from .read import HermesConfig, Mistake

DEFAULT_SHARE = 0.50

Window = Callable[[Mapping[str, object]], "int | None"]
"""Tells the window of a model, by the keys of its section, where a table knows it."""

_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_SECTIONS = ("agent", "compression", "context", "memory", "plugins", "auxiliary")
"""The tables that are looked into; of each, what was not asked for is named."""
_ENTRIES = ("plugins", "entries")
_SECRET_NAME = re.compile(
    r"api_?key|(?:^|_)(?:key|token|secret)$|secret|passw|credential|authorization", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@frozen
class Converted:
    """A manifest, or what is wrong with the configuration; one of both is empty."""

    document: Document
    mistakes: tuple[Mistake, ...] = ()


@frozen
class Wanted:
    """What a manifest is to be, beside what the configuration says."""

    name: str
    """The pod's name."""
    source: str
    """What the manifest says that it was made from."""
    provider: Mapping[str, object] | None = None
    """The keys of another provider than the configuration's."""


def convert(
    config: HermesConfig, wanted: Wanted, *, env: Mapping[str, str], window: Window
) -> Converted:
    """Return the manifest that a Hermes configuration comes to.

    No value that may be a secret is copied, and none is in a message.
    """
    document = _Conversion(config, env, window).document(wanted)
    mistakes = sorted(config.mistakes, key=lambda mistake: mistake.line or 0)
    return Converted(document, tuple(mistakes))


class _Conversion:
    """One configuration on its way."""

    def __init__(self, config: HermesConfig, env: Mapping[str, str], window: Window) -> None:
        self.config = config
        self.models = ModelReader(config, env)
        self.window_of = window

    def document(self, wanted: Wanted) -> Document:
        made = Document([f"Made from {wanted.source}, a configuration of Hermes."])
        made.table("pod").add("name", wanted.name)
        for section in (*_SECTIONS, "prompt_caching"):
            self.config.table(section)

        main = self._main(wanted.provider)
        fallbacks = self.models.fallbacks()
        self._provider(made, main, fallbacks)
        self._worker(made.table("worker"))
        engine = self._engine_name()
        # Without a model there is no manifest; what else is wrong is told all the same.
        self._compaction(made, main or ModelSection({"kind": ("", ""), "model": ("", "")}), engine)
        self._context(made, engine)
        self._memory(made.table("memory"))
        self._mcp(made)
        self._left_out(made)
        self._without_secrets(made)
        return made

    def _without_secrets(self, made: Document) -> None:
        """Take out what looks like a key, wherever it stood; a manifest without it is a mistake."""
        for table in made.tables:
            for line in [line for line in table.lines if _has_key_in(line.value)]:
                table.lines.remove(line)
                what = "would be what looks like a key, which is not copied"
                self.config.mistakes.append(self._secret_at(table.name, line.key, what))

            table.notes[:] = map(mask_token_shapes, table.notes)

        made.foot[:] = map(mask_token_shapes, made.foot)

    def _secret_at(self, table: str, key: str, what: str) -> Mistake:
        """Return a mistake where it stands in the file, as far as that is known."""
        path = place_of(table, key)
        if path is None:
            return Mistake(f"{table}.{key}", what)

        # A row of its own may have said it: then the model that names the row is what is known.
        line = self.config.lines.get(path) or self.config.lines.get(path[:-1])
        where = path if path in self.config.lines else (table, key)
        return Mistake(".".join(where), what, line)

    # ------------------------------------------------------------------ the model

    def _main(self, other: Mapping[str, object] | None) -> ModelSection | None:
        if other is None:
            return self.models.main()

        self.config.raw("model")
        return ModelSection({key: (value, "") for key, value in other.items()})

    def _provider(
        self, made: Document, main: ModelSection | None, fallbacks: Iterable[ModelSection]
    ) -> None:
        table = made.table("provider")
        if main is None:
            return

        for key, (value, comment) in main.keys.items():
            table.add(key, value, comment)

        table.notes.extend(main.notes)
        standing_in = list(fallbacks)
        if standing_in:
            table.add("fallbacks", [section.values for section in standing_in])
            table.notes.extend(note for section in standing_in for note in section.notes)

    # ------------------------------------------------------------------ the worker

    def _worker(self, table: Table) -> None:
        config = self.config
        prompt = config.text("agent", "system_prompt")
        if prompt and _is_secret(prompt):
            table.notes.append("agent.system_prompt looks as if a key were in it: not copied")
        elif prompt:
            table.add("system_prompt", prompt)

        turns = config.count("agent", "max_turns") or config.count("max_turns")
        if turns:
            table.add("max_requests", turns, "Hermes: agent.max_turns")

        answer = config.count("model", "max_tokens") if self._has_model_table() else None
        if answer:
            table.add("max_tokens", answer, "Hermes: model.max_tokens")

        self._effort(table)
        temperature = config.number("agent", "temperature", low=0, high=2)
        table.add("temperature", temperature)
        table.notes.extend(
            f"agent.{key} has no counterpart"
            for key in ("personalities", "reasoning_overrides")
            if config.raw("agent", key)
        )

    def _effort(self, table: Table) -> None:
        given = self.config.raw("agent", "reasoning_effort")
        if isinstance(given, Mapping):
            given = given.get("effort")

        effort = str(given or "").strip().lower()
        if effort in _EFFORTS:
            table.add("reasoning_effort", effort)
        elif effort:
            self.config.wrong(
                ("agent", "reasoning_effort"),
                "is none of none, minimal, low, medium, high, xhigh, max",
            )

    def _has_model_table(self) -> bool:
        return isinstance(self.config.values.get("model"), Mapping)

    # ------------------------------------------------------------------ compaction

    def _compaction(self, made: Document, main: ModelSection, engine: str) -> None:
        table = made.table("compaction")
        config = self.config
        shares = self._model_thresholds()
        is_on = config.flag("compression", "enabled", default=True)
        if engine != BUILT_IN:
            table.notes.append(
                f"{engine} decides by itself when to compact; of compression, only "
                "model_thresholds reach it"
            )
            for key in config.table("compression"):
                config.raw("compression", key)
        elif is_on:
            shares = self._triggers(table, main, shares)
        else:
            table.notes.append("compression.enabled is false: nothing is compacted by itself")

        if shares and (is_on or engine != BUILT_IN):
            table.add("model_thresholds", shares)

        # Another engine asks the same model, by `call_llm` for the task `compression`.
        self._summaries(made, main, is_on=is_on or engine != BUILT_IN)

    def _triggers(
        self, table: Table, main: ModelSection, shares: dict[str, float]
    ) -> dict[str, float]:
        """Add when the built-in engine compacts; returns the shares by model, perhaps with more."""
        config = self.config
        share = config.number("compression", "threshold", low=0.01, high=1)
        share = DEFAULT_SHARE if share is None else share
        cap = config.count("compression", "threshold_tokens")
        tail = config.number("compression", "target_ratio", low=0.1, high=0.8)
        threshold = self._threshold(table, share, cap, self.window_of(main.values))
        if threshold is None:
            table.notes.append(
                f"Hermes compacts at {share:g} of the model's window, which is not known here: it "
                "is held to once provider.context_window says it, or the model's server does"
            )
            shares = {**shares, str(main.values.get("model", "")): share}

        turns = config.count("compression", "min_tail_user_messages")
        if turns and turns > 1:
            table.add("compact_retained_turns", turns, "Hermes: min_tail_user_messages")

        if threshold and tail is not None:
            kept = max(1, int(threshold * tail))
            table.add("compact_retained_tokens", kept, f"Hermes: target_ratio {tail:g}")

        if config.count("compression", "proactive_prune_tokens"):
            savings = config.count("compression", "proactive_prune_min_reclaim_tokens")
            table.add("prune_min_savings", savings, "Hermes: proactive_prune_min_reclaim_tokens")

        idle = config.count("compression", "idle_compact_after_seconds")
        if idle:
            table.add("compact_idle_seconds", idle, "Hermes: idle_compact_after_seconds")

        return shares

    def _threshold(
        self, table: Table, share: float, cap: int | None, window: int | None
    ) -> int | None:
        """Add the size at which to compact, and return it where it is known."""
        if window is not None:
            in_force = effective_share(share, window)
            threshold = max(1, min(int(window * in_force), cap or window))
            why = f"Hermes: {in_force:g} of {window:,}"
            if in_force != share:
                why += f", which it uses below {SMALL_WINDOW:,} for {share:g}"
            table.add("compact_threshold", threshold, why)
            return threshold

        if cap:
            table.add("compact_threshold", cap, "Hermes: threshold_tokens")

        return cap

    def _model_thresholds(self) -> dict[str, float]:
        path = ("compression", "model_thresholds")
        found = {}
        for key, value in self.config.table(*path).items():
            if not str(key):
                self.config.wrong(path, "has a share for no model")
            elif isinstance(value, bool) or not isinstance(value, int | float):
                self.config.wrong((*path, str(key)), "must be a share of the window, 0 to 1")
            elif not 0 < value <= 1:
                self.config.wrong((*path, str(key)), "must be above 0 and at most 1")
            else:
                found[str(key)] = float(value)

        return found

    def _summaries(self, made: Document, main: ModelSection, *, is_on: bool) -> None:
        section = self.models.summaries(main)
        if section is None or not is_on:
            return

        table = made.table("compaction.provider")
        for key, (value, comment) in section.keys.items():
            table.add(key, value, comment)

        table.notes.extend(section.notes)

    # ------------------------------------------------------------------ engine and memory

    def _engine_name(self) -> str:
        name = self.config.name("context", "engine") or BUILT_IN
        if not _NAME.fullmatch(name):
            self.config.wrong(
                ("context", "engine"), 'must be a plain name: letters, digits, "-", "_" and "."'
            )
            return BUILT_IN

        return name

    def _context(self, made: Document, engine: str) -> None:
        config = self.config
        timeout = config.number("compression", "context_timeout_seconds", low=0, high=10**9)
        table = made.table("context")
        plugin = engine
        if engine != BUILT_IN:
            enabled = [name for name in config.rows("plugins", "enabled") if isinstance(name, str)]
            plugin = self._plugin_of(engine, enabled)
            table.add("engine", engine)
            table.notes.extend(_named_by_folder(engine, plugin, enabled))

        if timeout:
            seconds = int(timeout) if timeout == int(timeout) else timeout
            table.add("timeout_seconds", seconds, "Hermes: context_timeout_seconds")

        if engine != BUILT_IN:
            self._options(made, engine, plugin)

    def _plugin_of(self, engine: str, enabled: list[str]) -> str:
        """Return the plugin that an engine is of: the one enabled whose name has it in, if any."""
        known = {*enabled, *map(str, self.config.table("plugins", "entries"))}
        near = [name for name in enabled if engine in name]
        return near[0] if engine not in known and len(near) == 1 else engine

    def _options(self, made: Document, engine: str, plugin: str) -> None:
        config = self.config
        entry = config.table("plugins", "entries", plugin)
        given: dict[str, Any] = {}
        for part in ("config", "settings"):
            inner = entry.get(part)
            given |= inner if isinstance(inner, Mapping) else {}

        given |= config.table(engine) if engine in config.values else {}
        table = made.table("context.options")
        for key, value in given.items():
            if _SECRET_NAME.search(str(key)) or _holds_secret(value):
                table.notes.append(f"{key} may be a secret: not copied")
            elif value is not None:
                table.add(str(key), plain(value))

    def _memory(self, table: Table) -> None:
        config = self.config
        provider = config.name("memory", "provider")
        is_kept = config.raw("memory", "memory_enabled")
        if provider and not _NAME.fullmatch(provider):
            config.wrong(("memory", "provider"), "must be a plain name")
        elif provider:
            table.add("provider", provider, "its plugin belongs under $POD_HOME/plugins")
        elif is_kept is not None and config.flag("memory", "memory_enabled", default=False):
            table.add("provider", "file", "in place of MEMORY.md and USER.md")

    def _mcp(self, made: Document) -> None:
        servers = ", ".join(map(str, self.config.table("mcp_servers")))
        if servers:
            made.foot.append(f"mcp_servers are not carried over ({servers}); see [[tools.mcp]]")

    # ------------------------------------------------------------------ the rest

    def _left_out(self, made: Document) -> None:
        config = self.config
        ttl = config.text("prompt_caching", "cache_ttl")
        if ttl and ttl != "5m":
            made.foot.append(f"prompt_caching.cache_ttl {ttl}: prompts are cached for 5 minutes")

        for section in ("model", *_SECTIONS):
            unused = [key for key in config.unused(section) if (section, key) != _ENTRIES]
            if unused:
                made.foot.append(f"not carried over from {section}: {', '.join(unused)}")

        entries = config.unused(*_ENTRIES)
        if entries:
            made.foot.append(f"not carried over from plugins.entries: {', '.join(entries)}")

        rest = [key for key in config.unused() if not key.startswith("_")]
        if rest:
            made.foot.append(f"not carried over: {', '.join(rest)}")


def _named_by_folder(engine: str, plugin: str, enabled: list[str]) -> Iterable[str]:
    """Yield what is to be said of the name of an engine whose plugin has perhaps another."""
    by_folder = "an engine is named by the folder of its plugin under $POD_HOME/plugins"
    if plugin != engine:
        yield (
            f"{by_folder}; Hermes has no plugin {engine} enabled and has {plugin}: if it is that "
            f'one, write engine = "{plugin}"; its options are taken from plugins.entries.{plugin}'
        )

    others = ", ".join(name for name in enabled if name not in {engine, plugin})
    if others:
        begin = "" if plugin != engine else f"{by_folder}; "
        yield f"{begin}Hermes had these plugins enabled too: {others}"


def _has_key_in(value: object) -> bool:
    match value:
        case str():
            return _is_secret(value)
        case Mapping():
            return any(_has_key_in(inner) for pair in value.items() for inner in pair)
        case list() | tuple():
            return any(map(_has_key_in, value))
        case _:
            return False


def _is_secret(text: str) -> bool:
    return mask_token_shapes(text) != text


def _holds_secret(value: object) -> bool:
    """Tell whether there may be a secret in a value, however deep."""
    match value:
        case str():
            return _is_secret(value)
        case Mapping():
            return any(
                _SECRET_NAME.search(str(key)) or _holds_secret(inner)
                for key, inner in value.items()
            )
        case list() | tuple():
            return any(map(_holds_secret, value))
        case _:
            return False
