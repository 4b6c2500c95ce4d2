"""What a manifest may ask for and this version cannot do is refused, never passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifests import load_manifest
from pod.errors import NotBuilt
from pod.unbuilt import BUILT_KINDS, refuse_unbuilt, unbuilt_keys
from tests.pod.pods import manifest


@pytest.mark.parametrize(
    ("key", "extra"),
    [
        ("tools.builtin", '[tools]\nbuiltin = ["read"]'),
        ("tools.mcp", '[[tools.mcp]]\nname = "hub"\ncommand = "hub"'),
        ("budgets.session.requests", "[budgets.session]\nrequests = 2"),
        ("budgets.session.tokens", "[budgets.session]\ntokens = 2"),
        ("budgets.session.cost", "[budgets.session]\ncost = 2.0"),
        ("budgets.session.seconds", "[budgets.session]\nseconds = 2"),
        ("compaction.compact_idle_seconds", "[compaction]\ncompact_idle_seconds = 60"),
    ],
)
def test_what_is_not_built_is_refused_by_its_key(home: Path, key: str, extra: str) -> None:
    loaded = load_manifest(manifest(home, "http://127.0.0.1:1/v1", extra), env={})
    with pytest.raises(NotBuilt) as caught:
        refuse_unbuilt(loaded)

    assert f": {key} is not built in this version" in caught.value.message


def test_a_provider_is_named_beside_the_rest(home: Path) -> None:
    text = '[pod]\nname = "p"\n[provider]\nkind = "replay"\nscript = "r.jsonl"\n'
    path = home / "other.toml"
    path.write_text(text)
    with pytest.raises(NotBuilt, match=r': provider\.kind = "replay" is not built') as caught:
        refuse_unbuilt(load_manifest(path, env={}))

    assert caught.value.hint == f"use one of {', '.join(BUILT_KINDS)}"
    path.write_text(text + "[compaction]\ncompact_idle_seconds = 60\n")
    both = r': provider\.kind = "replay", compaction\.compact_idle_seconds are not built'
    with pytest.raises(NotBuilt, match=both):
        refuse_unbuilt(load_manifest(path, env={}))


def test_a_plain_manifest_is_not(home: Path) -> None:
    path = manifest(home, "http://127.0.0.1:1/v1", "[compaction]\ncompact_threshold = 5000\n")
    loaded = load_manifest(path, env={})
    refuse_unbuilt(loaded)
    assert unbuilt_keys(loaded.manifest) == []


def test_a_kind_is_named_wherever_it_stands(home: Path) -> None:
    replay = 'kind = "replay", script = "r.jsonl"'
    extra = f"fallbacks = [{{ {replay} }}]\n[compaction]\nprovider = {{ {replay} }}\n"
    path = home / "others.toml"
    path.write_text(f'[pod]\nname = "p"\n[provider]\nkind = "scripted"\nscript = "s"\n{extra}')
    assert unbuilt_keys(load_manifest(path, env={}).manifest) == [
        'provider.fallbacks[0].kind = "replay"',
        'compaction.provider.kind = "replay"',
    ]
