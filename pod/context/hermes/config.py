"""The Hermes configuration that a manifest comes to: what `load_config()` gives a plugin. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from pod.context.engine import JsonDict

from .completion import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from manifests import PodManifest
    from manifests.schema_provider import FallbackProvider

OVERLAY = "hermes"
"""The option whose table is laid over the whole configuration, for keys that have no place here."""

_COMPRESSION: JsonDict = {
    "enabled": True,
    "threshold": 0.50,
    "threshold_tokens": None,
    "model_thresholds": {},
    "target_ratio": 0.20,
    "protect_first_n": 3,
    "protect_last_n": 20,
    "max_attempts": 3,
    "abort_on_summary_failure": False,
    "in_place": False,
    "context_timeout_seconds": 120,
    "context_total_ceiling_seconds": 600,
    "idle_compact_after_seconds": 0,
}


@frozen
class ModelInForce:
    """The pod's model, as its client has it."""

    provider: str
    name: str
    window: int | None
    base_url: str = ""


def default_config() -> JsonDict:
    """Return the configuration where there is no pod: Hermes's defaults, and no model."""
    return {
        "model": {"default": "", "provider": "auto", "base_url": ""},
        "context": {"engine": "compressor"},
        "compression": copy.deepcopy(_COMPRESSION),
        "auxiliary": {"compression": _task()},
        "prompt_caching": {"cache_ttl": "5m"},
        "plugins": {"enabled": [], "disabled": [], "entries": {}},
    }


def hermes_config(manifest: PodManifest, model: ModelInForce) -> JsonDict:
    """Return the configuration that stands for `manifest`. No key is ever in it.

    The engine's own section, and its entry under `plugins`, are `[context.options]`; the table
    `hermes` among them is laid over the whole.
    """
    name, options = manifest.context.engine, dict(manifest.context.options)
    overlay = options.pop(OVERLAY, None)
    config = default_config() | {
        "model": _model(manifest, model),
        "context": {"engine": name},
        "compression": _compression(manifest, model),
        "auxiliary": {"compression": _task(_summaries(manifest))},
        "plugins": {
            "enabled": [name],
            "disabled": [],
            "entries": {name: copy.deepcopy(options)},
        },
    }
    if options and name not in config:
        config[name] = copy.deepcopy(options)

    return _laid_over(config, overlay) if isinstance(overlay, dict) else config


def with_memory(config: JsonDict, manifest: PodManifest) -> JsonDict:
    """Return a configuration that names the memory provider too, with its options.

    They are found where Hermes's providers look: in a section of the provider's name, at the top,
    under `memory` and under `plugins`; the table `hermes` among them is laid over the whole.
    """
    section = manifest.memory
    if section is None or section.provider is None:
        return config

    name, options = section.provider, dict(section.options)
    overlay = options.pop(OVERLAY, None)
    memory: JsonDict = {"provider": name, "memory_enabled": False, "user_profile_enabled": False}
    added: JsonDict = {"memory": memory}
    if options:
        added = {
            "memory": memory | {name: options},
            "plugins": {name: options, "entries": {name: options}},
            **({} if name in config else {name: options}),
        }

    whole = _laid_over(config, added)
    return _laid_over(whole, overlay) if isinstance(overlay, dict) else whole


def config_at(config: object, *path: str, default: object = None) -> Any:  # noqa: ANN401  whatever JSON can hold
    """Return what stands at `path`; `default` where a step is missing or leads through no table."""
    value = config
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return default

        value = value[step]

    return value


def _model(manifest: PodManifest, model: ModelInForce) -> JsonDict:
    facts: JsonDict = {
        "default": model.name,
        "provider": model.provider,
        "base_url": model.base_url,
    }
    if model.window is not None:
        facts["context_length"] = model.window
    if manifest.worker.max_tokens is not None:
        facts["max_tokens"] = manifest.worker.max_tokens
    return facts


def _compression(manifest: PodManifest, model: ModelInForce) -> JsonDict:
    section = manifest.compaction
    numbers = copy.deepcopy(_COMPRESSION)
    numbers["context_timeout_seconds"] = manifest.context.timeout_seconds
    if section is None:
        return numbers

    numbers["model_thresholds"] = dict(section.model_thresholds)
    numbers["idle_compact_after_seconds"] = section.compact_idle_seconds
    if section.compact_threshold is not None:
        numbers["threshold_tokens"] = section.compact_threshold
        if model.window:
            numbers["threshold"] = min(1.0, round(section.compact_threshold / model.window, 4))

    return numbers


def _summaries(manifest: PodManifest) -> FallbackProvider | None:
    return manifest.compaction.provider if manifest.compaction else None


def _task(section: FallbackProvider | None = None) -> JsonDict:
    return {
        "provider": section.kind if section else "auto",
        "model": (section.model or "") if section else "",
        "base_url": (section.base_url or "") if section else "",
        "api_key": "",
        "timeout": DEFAULT_TIMEOUT_S,
        "extra_body": {},
        "reasoning_effort": "",
    }


def _laid_over(config: JsonDict, overlay: Mapping[str, Any]) -> JsonDict:
    merged = dict(config)
    for key, value in overlay.items():
        present = merged.get(key)
        if isinstance(present, dict) and isinstance(value, Mapping):
            merged[key] = _laid_over(present, value)
        else:
            merged[key] = copy.deepcopy(value)

    return merged
