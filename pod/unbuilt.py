"""What a manifest may ask for and this version cannot do: refused, never passed over in silence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pod.errors import NotBuilt

if TYPE_CHECKING:
    from manifests import LoadedManifest, PodManifest

BUILT_KINDS = (
    *("anthropic", "openai", "openai_responses", "gemini", "ollama"),
    *("openai_compatible", "local", "scripted"),
)
"""The values of `provider.kind` that this version can speak to."""


def unbuilt_keys(manifest: PodManifest) -> list[str]:
    """Return the keys of `manifest` that this version can do nothing with, as they are written."""
    tools, compaction = manifest.tools, manifest.compaction
    session = manifest.budgets.session
    asked = {f'{key} = "{kind}"': kind not in BUILT_KINDS for key, kind in _kinds(manifest)} | {
        "tools.builtin": bool(tools and tools.builtin),
        "tools.mcp": bool(tools and tools.mcp),
        "budgets.session.requests": session.requests is not None,
        "budgets.session.tokens": session.tokens is not None,
        "budgets.session.cost": session.cost is not None,
        "budgets.session.seconds": session.seconds is not None,
        "compaction.compact_idle_seconds": bool(compaction and compaction.compact_idle_seconds),
    }
    return [key for key, used in asked.items() if used]


def _kinds(manifest: PodManifest) -> Iterator[tuple[str, str]]:
    """Yield the key and value of every kind of provider."""
    sections = {"provider": manifest.provider}
    if manifest.compaction is not None and manifest.compaction.provider is not None:
        sections["compaction.provider"] = manifest.compaction.provider

    for path, section in sections.items():
        yield f"{path}.kind", section.kind
        for number, fallback in enumerate(section.fallbacks):
            yield f"{path}.fallbacks[{number}].kind", fallback.kind


def refuse_unbuilt(loaded: LoadedManifest) -> None:
    """Raise `NotBuilt` for whatever the manifest asks for and this version cannot do.

    A section whose machinery is missing is never just ignored.
    """
    named = unbuilt_keys(loaded.manifest)
    if named:
        words = "is" if len(named) == 1 else "are"
        message = f"{loaded.path}: {', '.join(named)} {words} not built in this version"
        raise NotBuilt(message, hint=_instead(named))


def _instead(named: Sequence[str]) -> str:
    use_another = f"use one of {', '.join(BUILT_KINDS)}"
    others = [key for key in named if "kind = " not in key]
    if len(others) == len(named):
        return f"take {'it' if len(named) == 1 else 'them'} out of the manifest"

    return f"{use_another}, and take the rest out of the manifest" if others else use_another
