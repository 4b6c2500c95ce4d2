"""Hermes configurations made into manifests: what comes over, what is told, and no secret ever."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import ManifestError, load_manifest
from pod.context.from_hermes import (
    Converted,
    HermesFileUnusable,
    Wanted,
    convert,
    parse_config,
    read_config,
)
from pod.context.from_hermes.providers import PROVIDERS
from pod.unbuilt import unbuilt_keys

MODEL = "model:\n  default: m\n  provider: deepseek\n  context_length: 100000\n"


def converted(text: str, env: Mapping[str, str] = {}, *, window: int | None = None) -> Converted:
    config = parse_config(text.encode(), "config.yaml")
    wanted = Wanted("probe", "config.yaml")

    def window_of(section: Mapping[str, object]) -> int | None:
        found = section.get("context_window", window)
        return found if isinstance(found, int) else None

    return convert(config, wanted, env=env, window=window_of)


def made(text: str, env: Mapping[str, str] = {}, *, window: int | None = None) -> dict[str, Any]:
    """The manifest that a configuration comes to, checked."""
    done = converted(text, env, window=window)
    assert not done.mistakes
    toml = done.document.text()
    return tomllib.loads(toml)


def mistakes(text: str) -> list[tuple[int | None, str, str]]:
    return [(m.line, m.key, m.message) for m in converted(text).mistakes]


# ------------------------------------------------------------------ the model


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_provider_that_is_known_comes_to_a_right_manifest(name: str, tmp_path: Path) -> None:
    address = "http://127.0.0.1:8000/v1" if name in {"custom", "vllm", "llamacpp"} else ""
    base_url = f"  base_url: {address}\n" if address else ""
    done = converted(f"model:\n  default: some-model\n  provider: {name}\n{base_url}")
    assert not done.mistakes
    path = tmp_path / "pod.toml"
    path.write_text(done.document.text())
    loaded = load_manifest(path, env={})
    assert loaded.manifest.provider.kind == PROVIDERS[name].kind
    assert unbuilt_keys(loaded.manifest) == []


@pytest.mark.parametrize(
    ("model", "env", "provider"),
    [
        (
            "model: anthropic/claude-opus-4.6",
            {"ANTHROPIC_API_KEY": "k"},
            {
                "kind": "anthropic",
                "model": "claude-opus-4-6",
                "api_key_env": "ANTHROPIC_API_KEY",
            },
        ),
        (
            "model: anthropic/claude-opus-4.6",
            {},
            {
                "kind": "openai_compatible",
                "model": "anthropic/claude-opus-4.6",
                "base_url": "https://openrouter.ai/api/v1",
                "api_key_env": "OPENROUTER_API_KEY",
            },
        ),
        (
            "model: {default: google/gemini-3-flash, provider: google}",
            {"GOOGLE_API_KEY": "k"},
            {"kind": "gemini", "model": "gemini-3-flash", "api_key_env": "GOOGLE_API_KEY"},
        ),
        (
            "model: {default: gpt-5, provider: openai-api, api_mode: codex_responses}",
            {},
            {"kind": "openai_responses", "model": "gpt-5", "api_key_env": "OPENAI_API_KEY"},
        ),
        (
            "model: {default: q, provider: custom, base_url: 'https://api.x.ai/v1'}",
            {},
            {
                "kind": "openai_compatible",
                "model": "q",
                "base_url": "https://api.x.ai/v1",
                "api_key_env": "XAI_API_KEY",
            },
        ),
        (
            "model: {default: q, base_url: 'https://api.anthropic.com'}",
            {},
            {"kind": "anthropic", "model": "q", "api_key_env": "ANTHROPIC_API_KEY"},
        ),
        (
            "model: {default: q, provider: vllm, base_url: 'http://gpu:8000/v1/'}",
            {},
            {
                "kind": "openai_compatible",
                "model": "q",
                "base_url": "http://gpu:8000/v1",
                "server": "vllm",
            },
        ),
        (
            (
                "model: {default: q, provider: mine}\nproviders:\n  mine:\n    base_url: http://a/v1\n"
                "    key_env: MINE\n"
            ),
            {},
            {
                "kind": "openai_compatible",
                "model": "q",
                "base_url": "http://a/v1",
                "api_key_env": "MINE",
            },
        ),
        (
            (
                "model: {default: q, provider: 'custom:mine'}\ncustom_providers:\n  - name: Mine\n"
                "    base_url: http://a/anthropic\n    api_mode: anthropic_messages\n"
                "    api_key: '${env:MINE}'\n"
            ),
            {},
            {
                "kind": "anthropic",
                "model": "q",
                "base_url": "http://a/anthropic/v1",
                "api_key_env": "MINE",
            },
        ),
        (
            (
                "model: {default: q, provider: mine}\nproviders:\n  mine: {base_url: http://a/v1, "
                "key_cmd: 'my-cli token'}"
            ),
            {},
            {
                "kind": "openai_compatible",
                "model": "q",
                "base_url": "http://a/v1",
                "api_key_command": "my-cli token",
            },
        ),
    ],
)
def test_a_model_is_found_as_hermes_finds_it(
    model: str, env: dict[str, str], provider: dict[str, Any]
) -> None:
    assert made(model, env)["provider"] == provider


def test_models_that_stand_in_come_along_in_order() -> None:
    text = (
        f"{MODEL}fallback_providers:\n  - {{provider: anthropic, model: claude-haiku-4.5}}\n"
        "fallback_model: {provider: openrouter, model: a/b}\n"
    )
    assert [row["model"] for row in made(text)["provider"]["fallbacks"]] == [
        "claude-haiku-4-5",
        "a/b",
    ]


@pytest.mark.parametrize("provider", ["nous", "openai-codex", "copilot", "bedrock"])
def test_a_provider_that_signs_in_otherwise_is_a_mistake_with_a_way_out(provider: str) -> None:
    ((line, key, message),) = mistakes(f"model:\n  default: m\n  provider: {provider}\n")
    assert (line, key) == (3, "model.provider")
    assert "--provider" in message
    wanted = Wanted("probe", "x", {"kind": "ollama", "model": "qwen3:8b"})
    config = parse_config(f"model: {{default: m, provider: {provider}}}".encode(), "x")
    done = convert(config, wanted, env={}, window=lambda _: None)
    assert not done.mistakes
    assert tomllib.loads(done.document.text())["provider"] == wanted.provider


# ------------------------------------------------------------------ compaction


@pytest.mark.parametrize(
    ("lines", "window", "compaction"),
    [
        ("", 1_000_000, {"compact_threshold": 500_000}),
        ("", 200_000, {"compact_threshold": 150_000}),
        ("threshold: 0.9", 200_000, {"compact_threshold": 180_000}),
        ("threshold: '0.25'", 1_000_000, {"compact_threshold": 250_000}),
        ("threshold_tokens: 120000", 200_000, {"compact_threshold": 120_000}),
        ("threshold_tokens: 120000", None, {"compact_threshold": 120_000}),
        ("", None, {"model_thresholds": {"m": 0.5}}),
        ("threshold: 0.3", None, {"model_thresholds": {"m": 0.3}}),
        ("enabled: false", 200_000, None),
        ("enabled: 'no'", 200_000, None),
        (
            "target_ratio: 0.1\n  min_tail_user_messages: 4",
            1_000_000,
            {
                "compact_threshold": 500_000,
                "compact_retained_turns": 4,
                "compact_retained_tokens": 50_000,
            },
        ),
        (
            "model_thresholds: {opus: 0.6, gpt: 1}",
            200_000,
            {"compact_threshold": 150_000, "model_thresholds": {"opus": 0.6, "gpt": 1.0}},
        ),
        (
            "proactive_prune_tokens: 48000\n  proactive_prune_min_reclaim_tokens: 2000",
            200_000,
            {"compact_threshold": 150_000, "prune_min_savings": 2_000},
        ),
    ],
)
def test_when_to_compact_is_what_hermes_would_do(
    lines: str, window: int | None, compaction: dict[str, Any] | None
) -> None:
    text = f"model: {{default: m, provider: deepseek}}\ncompression:\n  {lines}\n"
    assert made(text, window=window).get("compaction") == compaction


def test_the_summaries_model_is_of_the_same_provider_unless_another_is_named() -> None:
    task = "auxiliary:\n  compression: {provider: %s, model: small}\n"
    same = made(MODEL + task % "auto")["compaction"]["provider"]
    assert (same["kind"], same["model"], same["api_key_env"]) == (
        "openai_compatible",
        "small",
        "DEEPSEEK_API_KEY",
    )
    other = made(MODEL + task % "gemini")["compaction"]["provider"]
    assert (other["kind"], other["model"]) == ("gemini", "small")
    assert "provider" not in made(MODEL + "auxiliary: {compression: {model: ''}}")["compaction"]


# ------------------------------------------------------------------ the rest


def test_an_engine_comes_with_its_options_and_decides_by_itself() -> None:
    text = MODEL + (
        "context: {engine: lossless}\nlossless: {depth: 3, api_key: abc, since: 2024-01-02}\n"
        "plugins:\n  enabled: [lossless, other]\n  entries:\n    lossless:\n"
        "      settings: {depth: 2, leaf: {size: 5, none: null}}\n"
        "compression: {threshold: 0.3, model_thresholds: {m: 0.4}, context_timeout_seconds: 90}\n"
        "auxiliary: {compression: {model: small}}\n"
    )
    done = converted(text)
    manifest = tomllib.loads(done.document.text())
    assert manifest["context"] == {
        "engine": "lossless",
        "timeout_seconds": 90,
        "options": {"depth": 3, "leaf": {"size": 5}, "since": "2024-01-02"},
    }
    asked_for_summaries = manifest["compaction"].pop("provider")  # By call_llm, of any engine.
    assert (asked_for_summaries["model"], asked_for_summaries["kind"]) == (
        "small",
        "openai_compatible",
    )
    assert manifest["compaction"] == {"model_thresholds": {"m": 0.4}}
    written = done.document.text()
    assert "lossless decides by itself when to compact" in written
    assert "enabled too: other" in " ".join(written.split())
    assert "abc" not in written


LCM = MODEL + (
    "context: {engine: lcm}\nplugins:\n  enabled: [%s]\n"
    "  entries:\n    hermes-lcm: {settings: {depth: 3}}\n    other: {settings: {x: 1}}\n"
)


def test_an_engines_options_are_found_under_the_name_of_its_plugin() -> None:
    done = converted(LCM % "hermes-lcm, other")
    text = done.document.text()
    assert tomllib.loads(text)["context"] == {"engine": "lcm", "options": {"depth": 3}}
    written = " ".join(text.replace("\n#", " ").split())
    assert 'if it is that one, write engine = "hermes-lcm"; its options are taken from' in written
    assert "had these plugins enabled too: other" in written
    assert "not carried over from plugins.entries: other" in written


@pytest.mark.parametrize("enabled", ["", "other", "hermes-lcm, my-lcm", "lcm, hermes-lcm"])
def test_whose_options_they_are_is_never_guessed(enabled: str) -> None:
    text = converted(LCM % enabled).document.text()
    assert tomllib.loads(text)["context"] == {"engine": "lcm"}
    assert "not carried over from plugins.entries: hermes-lcm, other" in text
    assert "write engine" not in text


@pytest.mark.parametrize(
    ("lines", "memory"),
    [
        ("memory: {memory_enabled: true}", {"provider": "file"}),
        ("memory: {memory_enabled: false}", None),
        ("memory: {provider: honcho}", {"provider": "honcho"}),
        ("memory: {provider: ''}", None),
        ("", None),
    ],
)
def test_memory_comes_over_where_it_was_on(lines: str, memory: dict[str, str] | None) -> None:
    assert made(MODEL + lines).get("memory") == memory


def test_how_the_agent_works_comes_over() -> None:
    text = MODEL.replace("model:\n", "model:\n  max_tokens: 4096\n") + (
        "agent:\n  max_turns: 90\n  reasoning_effort: HIGH\n  temperature: 0.2\n"
        '  system_prompt: |\n    Be "brief".\n    Use \\ and """.\n'
    )
    assert made(text)["worker"] == {
        "system_prompt": 'Be "brief".\nUse \\ and """.',
        "max_requests": 90,
        "max_tokens": 4096,
        "reasoning_effort": "high",
        "temperature": 0.2,
    }


def test_what_has_no_counterpart_is_named() -> None:
    text = MODEL + (
        "_config_version: 50\nterminal: {backend: docker}\nagent: {verbose: true}\n"
        "compression: {protect_first_n: 3}\nauxiliary: {vision: {model: v}}\n"
        "prompt_caching: {cache_ttl: 1h}\nmcp_servers: {github: {env: {TOKEN: abc}}}\n"
    )
    written = converted(text).document.text()
    for said in (
        "# mcp_servers are not carried over (github); see [[tools.mcp]]",
        "# prompt_caching.cache_ttl 1h: prompts are cached for 5 minutes",
        "# not carried over from agent: verbose",
        "# not carried over from compression: protect_first_n",
        "# not carried over from auxiliary: vision",
        "# not carried over: terminal",
    ):
        assert f"{said}\n" in written
    assert "abc" not in written


def test_what_is_not_built_is_commented_out() -> None:
    text = MODEL + "compression: {idle_compact_after_seconds: 1800}\n"
    document = converted(text).document
    assert tomllib.loads(document.text())["compaction"]["compact_idle_seconds"] == 1800
    written = document.without(["compaction.compact_idle_seconds"], "not yet").text()
    assert "# compact_idle_seconds = 1800           # not yet\n" in written
    assert "compact_idle_seconds" not in tomllib.loads(written)["compaction"]


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        ("agent: {}\n", None, "model.default", "missing: which model is meant"),
        ("model: [a]\n", 1, "model", "must be a table of keys, and is a list"),
        ("model:\n  default: [x]\n", 2, "model.default", "must be text, and is a list"),
        (MODEL + "compression:\n  threshold: lots\n", 6, "compression.threshold", "a number"),
        (MODEL + "compression:\n  threshold: 7\n", 6, "compression.threshold", "between 0.01"),
        (MODEL + "compression:\n  enabled: perhaps\n", 6, "compression.enabled", "true or false"),
        (MODEL + "compression: 7\n", 5, "compression", "must be a table of keys"),
        (
            MODEL + "compression:\n  model_thresholds: {a: high}\n",
            *(6, "compression.model_thresholds.a", "a share of the window"),
        ),
        (MODEL + "context:\n  engine: ../x\n", 6, "context.engine", "a plain name"),
        (MODEL + "memory:\n  provider: a/b\n", 6, "memory.provider", "a plain name"),
        (MODEL + "memory:\n  provider: 7\n", 6, "memory.provider", "must be text, and is a number"),
        (MODEL + "context:\n  engine: 7\n", 6, "context.engine", "must be text, and is a number"),
        ("model:\n  default: m\n  provider: opnrouter\n", 3, "model.provider", "mean openrouter?"),
        (MODEL + "agent:\n  reasoning_effort: huge\n", 6, "agent.reasoning_effort", "none of"),
        (MODEL + "agent:\n  max_turns: 1.5\n", 6, "agent.max_turns", "a whole number"),
        (MODEL + "agent: {}\nagent: {}\n", 6, "agent", "is there twice"),
        ("model:\n  default: m\n  provider: no-such\n", 3, "model.provider", "is no provider that"),
        ("model:\n  default: m\n  base_url: nowhere\n", 3, "model.base_url", "is no address"),
        (MODEL + "fallback_providers: [{provider: xai}]\n", 5, "fallback_providers", "no model"),
        (MODEL + "fallback_providers: 3\n", 5, "fallback_providers", "must be a list"),
        (
            "model:\n  default: m\n  provider: xai\n  context_length: big\n",
            *(4, "model.context_length", "whole number of tokens"),
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(
    text: str, line: int | None, key: str, message: str
) -> None:
    told = mistakes(text)
    assert (line, key) in [(at, where) for at, where, _ in told]
    assert message in " ".join(said for _, where, said in told if where == key)


@pytest.mark.parametrize("model", ["default: [a, b]", "model: {a: b}"])
def test_a_model_that_is_no_name_is_told_once_with_what_is_beside_it(model: str) -> None:
    text = f"model:\n  {model}\n  provider: opnrouter\n"
    first, second = mistakes(text)
    assert first[0] == 2
    assert "must be text" in first[2]
    assert second[:2] == (3, "model.provider")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("base_url: https://me:pw@h/%s/v1\n", 3, "model.base_url"),
        ("base_url: http://h/%s\n", 3, "model.base_url"),
        ("provider: p\nproviders: {p: {base_url: http://h/%s}}\n", 1, "provider.base_url"),
    ],
)
def test_what_looks_like_a_key_is_told_with_its_line(text: str, line: int, key: str) -> None:
    ((at, where, said),) = mistakes("model:\n  default: m\n  " + text % SECRET)
    assert (at, where) == (line, key)
    assert "looks like a key" in said


def test_all_mistakes_are_told_at_once() -> None:
    text = (
        "model:\n  default: m\n  provider: nous\ncompression:\n  threshold: x\n  enabled: yes\n"
        "agent:\n  max_turns: many\nmemory: 3\n"
    )
    assert [(line, key) for line, key, _ in mistakes(text)] == [
        (3, "model.provider"),
        (5, "compression.threshold"),
        (8, "agent.max_turns"),
        (9, "memory"),
    ]


BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
"""A few lines that stand for 100,000,000 values."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: [1\n", "config.yaml, line 2: not YAML"),
        (b"- a\n", "config.yaml holds no table of keys"),
        (b"", "config.yaml holds no table of keys"),
        (b"\xff\xfe\x00\xd8", "config.yaml is not YAML"),
        (b"a: !!python/object/apply:os.system [x]\n", "config.yaml, line 1: not YAML"),
        (b"x" * 2_000_001, "config.yaml is over 2,000,000 bytes"),
        (b"[" * 5_000, "config.yaml"),
        (b"a: &a [x, *a]\n", "config.yaml stands for over 200,000 values"),
        (BOMB.encode(), "config.yaml stands for over 200,000 values"),
    ],
)
def test_a_file_that_is_no_configuration_says_so(data: bytes, message: str) -> None:
    with pytest.raises(HermesFileUnusable) as caught:
        parse_config(data, "config.yaml")

    assert caught.value.message.startswith(message)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(HermesFileUnusable, match="cannot be read: no such file"):
        read_config(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://h:99999999/v1", "must have a port"),
        ("http://h/v1?key=x", "must end with its path"),
        ("ftp://h/v1", "must be a URL that begins with"),
    ],
)
def test_an_address_that_no_manifest_may_have_is_a_mistake(address: str, message: str) -> None:
    ((line, key, said),) = mistakes(f"model:\n  default: m\n  base_url: {address}\n")
    assert (line, key) == (3, "model.base_url")
    assert message in said


def test_half_a_character_is_replaced_and_two_halves_are_one() -> None:
    text = MODEL + 'agent: {system_prompt: "a\\ud83d\\ude00b\\ud83d"}\n'
    assert made(text)["worker"]["system_prompt"] == "a😀b\ufffd"


# ------------------------------------------------------------------ secrets

SECRET = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"model: {{default: m, provider: xai, api_key: {SECRET}}}",
        f"model: {{default: m, provider: xai, key_env: {SECRET}}}",
        f"model: {{default: m, base_url: 'https://me:{SECRET}@host/v1'}}",
        (
            f"model: {{default: m, provider: p}}\nproviders: {{p: {{base_url: http://h/v1, "
            f"api_key: {SECRET}, extra_headers: {{X: {SECRET}}}}}}}"
        ),
        MODEL + f"agent: {{system_prompt: 'the key is {SECRET}'}}",
        MODEL + f"context: {{engine: e}}\ne: {{deep: [{{x: {SECRET}}}]}}",
        MODEL + f"context: {{engine: e}}\ne: {{password: hunter2-{SECRET}}}",
        MODEL + f"mcp_servers: {{a: {{env: {{T: {SECRET}}}}}}}",
        MODEL + f"auxiliary: {{compression: {{provider: xai, model: m, api_key: {SECRET}}}}}",
        MODEL + f"fallback_providers: [{{provider: xai, model: m, api_key: {SECRET}}}]",
        MODEL + f"agent: {{reasoning_effort: {SECRET}}}",
        MODEL + f"compression: {{threshold: {SECRET}}}",
        f"model: {{default: m, provider: {SECRET}}}",
        f"model: {SECRET}",
        f"model: {{default: m, base_url: http://h/{SECRET}}}",
        MODEL + f"compression: {{model_thresholds: {{{SECRET}: 0.5}}}}",
        MODEL + f"{SECRET}: 1",
        MODEL + f"mcp_servers: {{{SECRET}: {{}}}}",
        f"model: {{default: m, base_url: {SECRET}}}",
    ],
)
def test_no_secret_comes_along_or_is_shown(text: str) -> None:
    done = converted(text)
    shown = done.document.text() + json.dumps([m.message for m in done.mistakes])
    assert SECRET.lower() not in shown.lower()
    assert SECRET[12:].lower() not in shown.lower()


def test_a_key_that_was_written_out_is_told_where_to_go() -> None:
    done = converted(f"model: {{default: m, provider: xai, api_key: {SECRET}}}")
    written = " ".join(done.document.text().replace("#", " ").split())
    assert "the key in model.api_key was not copied: put it into the variable XAI_API" in written
    assert 'api_key_env = "XAI_API_KEY"' in written


WORDS = st.sampled_from(
    [
        *["auto", "custom", "xai", "m", "compressor", "lcm", "true", "0.5", "../x"],
        "",
        SECRET,
        "é\x7f\n",
    ]
)
SCALARS = WORDS | st.integers(-5, 10**6) | st.floats(0, 2) | st.booleans() | st.none()
KEYS = st.sampled_from(
    [
        "default",
        "model",
        "provider",
        "base_url",
        "api_key",
        "key_env",
        "threshold",
        "enabled",
        "target_ratio",
        "engine",
        "compression",
        "system_prompt",
        "max_turns",
        "name",
        "settings",
    ]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
SECTIONS = st.sampled_from(
    [
        "model",
        "compression",
        "context",
        "agent",
        "auxiliary",
        "memory",
        "plugins",
        "lcm",
        "providers",
        "custom_providers",
        "fallback_providers",
        "mcp_servers",
        "terminal",
    ]
)


RIGHT = st.fixed_dictionaries(
    {"model": st.just({"default": "anthropic/claude-x.1", "provider": "anthropic"})},
    optional={
        "compression": st.fixed_dictionaries(
            {},
            optional={
                "threshold": st.floats(0.01, 1),
                "threshold_tokens": st.integers(0, 10**6),
                "target_ratio": st.floats(0.1, 0.8),
                "enabled": st.booleans(),
                "model_thresholds": st.dictionaries(st.text(min_size=1), st.floats(0.1, 1)),
                "context_timeout_seconds": st.integers(0, 900),
                "idle_compact_after_seconds": st.integers(0, 9_000),
                "min_tail_user_messages": st.integers(0, 9),
            },
        ),
        "context": st.fixed_dictionaries({"engine": st.sampled_from(["lcm", "compressor", "x.y"])}),
        "lcm": VALUES,
        "agent": st.fixed_dictionaries({"system_prompt": st.text(), "max_turns": st.integers(0)}),
        "auxiliary": st.just({"compression": {"model": "small", "provider": "gemini"}}),
        "fallback_providers": st.just([{"provider": "xai", "model": "m"}]),
    },
)


@given(st.dictionaries(SECTIONS, VALUES, max_size=6) | RIGHT)
def test_any_configuration_comes_to_a_manifest_or_to_mistakes(
    tmp_path_factory: pytest.TempPathFactory, given_values: dict[str, Any]
) -> None:
    done = converted(json.dumps(given_values))
    text = done.document.text()
    assert SECRET not in text + json.dumps([m.message for m in done.mistakes])
    tomllib.loads(text)
    if done.mistakes:
        return

    path = tmp_path_factory.mktemp("made") / "pod.toml"
    path.write_text(text, encoding="utf-8")
    try:
        load_manifest(path, env={})
    except ManifestError as error:
        pytest.fail(f"{error}\n{text}")
