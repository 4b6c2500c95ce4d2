"""Manifests: the TOML files that pods are launched from, read, checked and explained.

Loading the names below is put off until they are used: this import alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import ManifestError, ManifestUnreadable, Mistake
    from .loader import LoadedManifest, load_manifest
    from .notes import Note, launch_notes
    from .schema import (
        Budget,
        BudgetsSection,
        PodManifest,
        PodSection,
        SessionSection,
        WorkerSection,
        manifest_json_schema,
    )
    from .schema_compaction import CompactionSection, ContextSection
    from .schema_memory import MemorySection
    from .schema_provider import PROVIDER_KINDS, FallbackProvider, ProviderKind, ProviderSection
    from .schema_tools import HookSection, McpServer, PermissionsSection, ToolsSection
    from .starter import starter_manifest, suggested_pod_name

__all__ = [
    "PROVIDER_KINDS",
    "Budget",
    "BudgetsSection",
    "CompactionSection",
    "ContextSection",
    "FallbackProvider",
    "HookSection",
    "LoadedManifest",
    "ManifestError",
    "ManifestUnreadable",
    "McpServer",
    "MemorySection",
    "Mistake",
    "Note",
    "PermissionsSection",
    "PodManifest",
    "PodSection",
    "ProviderKind",
    "ProviderSection",
    "SessionSection",
    "ToolsSection",
    "WorkerSection",
    "launch_notes",
    "load_manifest",
    "manifest_json_schema",
    "starter_manifest",
    "suggested_pod_name",
]

_HOMES = {
    "errors": ("ManifestError", "ManifestUnreadable", "Mistake"),
    "loader": ("LoadedManifest", "load_manifest"),
    "notes": ("Note", "launch_notes"),
    "schema": (
        "Budget",
        "BudgetsSection",
        "PodManifest",
        "PodSection",
        "SessionSection",
        "WorkerSection",
        "manifest_json_schema",
    ),
    "schema_compaction": ("CompactionSection", "ContextSection"),
    "schema_memory": ("MemorySection",),
    "schema_provider": ("PROVIDER_KINDS", "FallbackProvider", "ProviderKind", "ProviderSection"),
    "schema_tools": ("HookSection", "McpServer", "PermissionsSection", "ToolsSection"),
    "starter": ("starter_manifest", "suggested_pod_name"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Return a public name, loading its module the first time."""
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    value: object = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
