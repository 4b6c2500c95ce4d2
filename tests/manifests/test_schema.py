"""Defaults, strictness and the JSON Schema, taken from the schema itself wherever it can be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from manifests import (
    PROVIDER_KINDS,
    Budget,
    CompactionSection,
    FallbackProvider,
    PodManifest,
    ProviderSection,
    manifest_json_schema,
)

SCHEMA: dict[str, Any] = manifest_json_schema()
SMALLEST = {"pod": {"name": "p"}, "provider": {"kind": "anthropic", "model": "m"}}
WHOLE: dict[str, Any] = {
    **SMALLEST,
    "worker": {},
    "tools": {"mcp": [{"name": "a", "command": "c"}]},
    "hooks": [{"point": "PreToolCall", "python": "a:b"}],
    "permissions": {},
    "budgets": {"run": {}, "session": {}},
    "compaction": {"compact_threshold": 9, "provider": {"kind": "ollama", "model": "m"}},
    "context": {},
    "memory": {},
    "session": {},
}
# What is not in it, as its keys need each other.
FURTHER: dict[str, Any] = {
    "fallbacks": [{"kind": "gemini", "model": "m"}],
    "prices": {"input": 1.0, "output": 2.0},
}


def properties(node: dict[str, Any], path: tuple[str | int, ...] = ()) -> Iterator[Any]:
    """Every property of the schema: its path in a document, and its own schema."""
    node = resolved(node)
    if node.get("type") == "array" and "items" in node:
        yield from properties(node["items"], (*path, 0))
    for name, inner in node.get("properties", {}).items():
        yield (*path, name), inner
        yield from properties(inner, (*path, name))


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """Follow `$ref`, and the first alternative of what may also be left out."""
    while "$ref" in node or "anyOf" in node:
        node = node["anyOf"][0] if "anyOf" in node else SCHEMA["$defs"][node["$ref"][8:]]
    return node


KEYS = list(properties(SCHEMA))


def with_value(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """A document that is right but for `value` at `path`."""
    document: dict[str, Any] = json.loads(json.dumps(WHOLE))
    node: Any = document
    for part in path[:-1]:
        if isinstance(node, dict) and part not in node:
            node[part] = json.loads(json.dumps(FURTHER[str(part)]))
        node = node[part]
    node[path[-1]] = value
    return document


def test_every_key_of_the_design_is_there() -> None:
    paths = {".".join(str(p) for p in path if p != 0) for path, _ in KEYS}

    assert len(paths) > 75
    assert {
        "pod.instructions", "provider.api_key_command", "provider.fallbacks.model",
        "worker.tool_output_max_bytes", "tools.mcp.env", "hooks.on_error", "permissions.bash",
        "budgets.run.cost", "budgets.session.seconds", "compaction.prune_protected_tokens",
        "compaction.provider.fallbacks", "context.options", "memory.provider",
        "session.durability",
    } <= paths  # fmt: skip


@pytest.mark.parametrize(("path", "node"), KEYS, ids=lambda v: str(v) if type(v) is tuple else "")
def test_every_key_is_described(path: tuple[str | int, ...], node: dict[str, Any]) -> None:
    # Where a section's own words are the same, pydantic leaves them to the section.
    description = node.get("description") or resolved(node)["description"]
    assert len(description) > 10


# A value of the wrong type for each type of JSON Schema.
WRONG = {"string": 7, "integer": "7", "number": "7", "boolean": "yes", "array": 7, "object": 7}


@pytest.mark.parametrize("path", [path for path, _ in KEYS], ids=str)
def test_every_key_refuses_another_type(path: tuple[str | int, ...]) -> None:
    node = resolved(next(n for p, n in KEYS if p == path))
    with pytest.raises(ValidationError) as caught:
        PodManifest.model_validate(with_value(path, WRONG[node["type"]]))

    assert path in [error["loc"] for error in caught.value.errors()]


@pytest.mark.parametrize(
    "path", [(), *(p for p, n in KEYS if "properties" in resolved(n))], ids=str
)
def test_every_table_refuses_an_unknown_key(path: tuple[str | int, ...]) -> None:
    unknown = (*path, "no_such_key")
    with pytest.raises(ValidationError) as caught:
        PodManifest.model_validate(with_value(unknown, 1))

    assert [e["loc"] for e in caught.value.errors()] == [unknown]


def test_the_whole_document_is_right_as_it_stands() -> None:
    assert PodManifest.model_validate(WHOLE).tools is not None


def test_an_absent_section_is_none_where_absence_has_a_meaning() -> None:
    manifest = PodManifest.model_validate(SMALLEST)

    assert manifest.compaction is None
    assert manifest.tools is None
    assert manifest.memory is None
    assert manifest.hooks == ()
    assert manifest.permissions.bash == "deny"
    assert manifest.permissions.write == ()
    assert manifest.context.engine == "compressor"
    assert manifest.session.durability == "fsync"
    assert (manifest.worker.max_requests, manifest.worker.max_tokens) == (200, None)
    assert manifest.budgets.run == Budget()


def test_compaction_by_hand_has_defaults_without_a_section() -> None:
    defaults = CompactionSection()

    assert (defaults.prune_protected_turns, defaults.prune_min_savings) == (3, 4096)
    assert (defaults.compact_retained_turns, defaults.compact_retained_tokens) == (2, 8000)
    assert defaults.compact_threshold is None
    assert defaults.compact_request_threshold is None
    assert defaults.prune_policy == "threshold"
    assert defaults.compact_idle_seconds == 0


def test_a_request_threshold_may_lie_below_the_threshold_after_runs() -> None:
    section = CompactionSection(compact_threshold=50000, compact_request_threshold=20000)

    assert section.compact_request_threshold == 20000


def test_a_manifest_is_frozen_and_its_lists_are_tuples() -> None:
    manifest = PodManifest.model_validate({**SMALLEST, "tools": {"python": ["a.b:c"]}})

    assert manifest.tools is not None
    assert manifest.tools.python == ("a.b:c",)
    with pytest.raises(ValidationError, match="frozen"):
        manifest.pod.name = "other"  # type: ignore[misc]  # the refusal is what is tested


def test_a_manifest_made_in_python_is_held_to_the_same_rules() -> None:
    with pytest.raises(ValidationError, match="only one of api_key_env and api_key_file"):
        ProviderSection(kind="gemini", model="m", api_key_env="A", api_key_file="b")


@pytest.mark.parametrize("key", ["base_url", "api_key_env", "api_key_file", "api_key_command"])
def test_a_kind_without_a_server_takes_no_address_and_no_key(key: str) -> None:
    value = "https://x/v1" if key == "base_url" else "NAME"
    with pytest.raises(ValidationError, match='no meaning for kind "local"'):
        ProviderSection.model_validate({"kind": "local", "model": "m", key: value})


@pytest.mark.parametrize("kind", PROVIDER_KINDS)
def test_every_kind_can_be_had_and_be_a_fallback(kind: Any) -> None:
    script = "answers.jsonl" if kind in ("scripted", "replay") else None
    address = None if kind in ("local", "scripted", "replay") else "https://x/v1"
    fallback = FallbackProvider(kind=kind, model="m", base_url=address, script=script)
    provider = ProviderSection(
        kind=kind, model="m", base_url=address, script=script, fallbacks=(fallback,)
    )

    assert provider.fallbacks == (fallback,)
    assert provider.label == f"{kind}/m"


def test_a_label_is_short_for_a_file_and_for_a_script() -> None:
    assert FallbackProvider(kind="local", model="/models/tiny.gguf").label == "local/tiny.gguf"
    assert FallbackProvider(kind="scripted", script="a.jsonl").label == "scripted"


def test_the_schema_says_what_editors_need() -> None:
    assert SCHEMA["$schema"].startswith("https://json-schema.org/")
    assert SCHEMA["required"] == ["pod", "provider"]
    assert SCHEMA["additionalProperties"] is False
    kinds = resolved(SCHEMA["properties"]["provider"])["properties"]["kind"]["enum"]
    assert kinds == list(PROVIDER_KINDS)
