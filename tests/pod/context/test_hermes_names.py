"""What further served names give: usage and costs, identities, sizes, the plugin manager."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pod.compaction.thresholds import UNKNOWN_WINDOW
from pod.context import hermes
from pod.context.hermes import message_identity as identity
from pod.context.hermes.completion import Completions
from pod.context.hermes.config import config_at, default_config
from pod.context.hermes.plugin_slots import PluginContext, PluginManager, PluginManifest
from pod.context.hermes.rough_tokens import IMAGE_TOKENS, message_tokens, text_tokens
from pod.context.hermes.runtime import HermesRuntime, use_runtime
from pod.context.hermes.surroundings import (
    get_config_path,
    get_hermes_home,
    get_session_env,
    load_config,
)
from pod.context.hermes.usage import CanonicalUsage, estimate_usage_cost, normalize_usage
from pod.context.hermes.windows import get_model_context_length
from worker.llm import ScriptedClient

UID = "message_uid"
ABSORBED = "_absorbed_message_uids"
CALLS = "_tool_call_uids"


def runtime(**config: Any) -> HermesRuntime:
    client, loop = ScriptedClient([]), asyncio.new_event_loop()
    loop.close()  # nobody asks a model here
    return HermesRuntime(
        engine="toy",
        config={**default_config(), **config},
        completions=Completions(loop, lambda *_: client),
        home=lambda: Path("/pod/engines/toy"),
        plugins_dir=Path("/pod/plugins"),
        session_id=lambda: "s-1",
        price=lambda usage, model: (usage.input_tokens or 0) * 0.001 if model == "m" else None,
    )


# ------------------------------------------------------------------ usage and costs


OPENAI = SimpleNamespace(
    prompt_tokens=100,
    completion_tokens=20,
    prompt_tokens_details=SimpleNamespace(cached_tokens=60, cache_write_tokens=10),
    completion_tokens_details=SimpleNamespace(reasoning_tokens=5),
)
ANTHROPIC = {
    "input_tokens": 30,
    "output_tokens": 20,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 10,
}


@pytest.mark.parametrize(
    ("told", "provider", "reasoning"),
    [
        (OPENAI, "openai", 5),
        (OPENAI, "anthropic", 5),
        (ANTHROPIC, "anthropic", 0),
        ({"prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 60,
          "cache_creation_input_tokens": 10}, "deepseek", 0),
    ],
)  # fmt: skip
def test_usage_comes_to_the_same_buckets_in_every_dialect(
    told: object, provider: str, reasoning: int
) -> None:
    usage = normalize_usage(told, provider=provider)
    assert usage == CanonicalUsage(30, 20, 60, 10, reasoning)
    assert (usage.prompt_tokens, usage.total_tokens) == (100, 120)
    assert (usage + usage).request_count == 2
    assert (usage + usage).total_tokens == 240


def test_no_usage_is_none_of_it() -> None:
    assert normalize_usage(None).total_tokens == 0


def test_a_cost_is_the_pod_s_own_and_unknown_without_one() -> None:
    usage = CanonicalUsage(30, 20, 60, 10)
    assert estimate_usage_cost("m", usage).amount_usd is None
    with use_runtime(runtime()):
        assert estimate_usage_cost("m", usage).amount_usd == Decimal("0.1")
        assert estimate_usage_cost("m", usage, provider="x").label == "~$0.10"
        assert estimate_usage_cost("other", usage).status == "unknown"


# ------------------------------------------------------------------ identities


def test_a_uid_is_minted_once_and_never_of_what_is_said() -> None:
    one, two = {"content": "same"}, {"content": "same"}
    assert identity.stamp_message_uid(one) == identity.stamp_message_uid(one)
    assert len(one[UID]) == 32
    assert identity.stamp_message_uid(two) != one[UID]
    assert identity.message_uid_or_none({UID: 3}) is None
    assert identity.message_uid_or_none({UID: "  "}) is None
    assert identity.message_identity({UID: "u", "content": "x", CALLS: {}}) == {UID: "u"}


def test_a_merge_goes_by_what_comes_first_and_names_the_rest_in_order() -> None:
    survivor: dict[str, Any] = {UID: "a", ABSORBED: ["b"]}
    identity.record_absorbed_message(survivor, {UID: "c", ABSORBED: ["d", "a", "b"]})
    assert survivor == {UID: "a", ABSORBED: ["b", "c", "d"]}

    survivor = {UID: "a", ABSORBED: ["b"]}
    identity.record_absorbed_message(survivor, {UID: "c", ABSORBED: ["d"]}, dropped_leads=True)
    assert survivor == {UID: "c", ABSORBED: ["d", "a", "b"]}

    untouched: dict[str, Any] = {UID: "a"}
    identity.record_absorbed_message(untouched, {"content": "scaffolding"})
    identity.record_absorbed_message(untouched, {"content": "more"}, dropped_leads=True)
    assert untouched == {UID: "a"}


def asking(*ids: str, **uids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": one} for one in ids], CALLS: uids}


def answering(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id}


def test_a_result_belongs_to_the_nearest_call_of_its_turn() -> None:
    rows = [asking("c", c="one"), answering("c"), asking("c", c="two"), answering("c")]
    assert identity.tool_call_uid_from_history(rows, 1) == "one"
    assert identity.tool_call_uid_from_history(rows, 3) == "two"
    assert identity.tool_call_uid_from_history([*rows, asking("c"), answering("c")], 5) is None
    assert identity.tool_call_uid_from_history([*rows, {"role": "user"}, answering("c")], 5) is None
    assert identity.tool_call_uid_from_history(rows, 9) is None


def test_a_call_is_known_by_every_spelling_of_its_id() -> None:
    index: dict[str, str] = {}
    call = {"id": "call_1|fc_1", "call_id": "call_1"}
    identity.index_tool_call_uids(index, {"tool_calls": [call], CALLS: {"call_1": "u"}})
    for spelling in ("call_1", "fc_1", "call_1|fc_1", "fc_1|x"):
        assert identity.resolve_tool_call_uid(index, spelling) == "u"

    identity.index_tool_call_uids(index, {"tool_calls": [{"id": "call_1"}]})
    assert identity.resolve_tool_call_uid(index, "call_1") is None


def test_identities_are_copied_and_not_shared() -> None:
    source: dict[str, Any] = {UID: "u", ABSORBED: ["a"], CALLS: {"c": "x"}, "_tool_call_uid": ""}
    target: dict[str, Any] = {}
    identity.copy_identity_fields(source, target)
    assert target == {UID: "u", ABSORBED: ["a"], CALLS: {"c": "x"}}
    assert target[ABSORBED] is not source[ABSORBED]
    assert set(source) <= identity.PERSISTENCE_ONLY_MESSAGE_FIELDS


# ------------------------------------------------------------------ sizes, windows, surroundings


def test_sizes_are_rough_and_leave_out_what_is_never_sent() -> None:
    assert (text_tokens(""), text_tokens("abc"), text_tokens("abcde")) == (0, 1, 2)
    plain = {"role": "user", "content": "x" * 400}
    assert 100 <= message_tokens(plain) <= 110
    assert message_tokens({**plain, UID: "u" * 32, "_x": "y" * 900}) == message_tokens(plain)
    image = {"type": "image_url", "image_url": {"url": "data:" + "z" * 90_000}}
    assert message_tokens({"content": [image, {"type": "text", "text": "x" * 400}]}) < (
        IMAGE_TOKENS + 120
    )


def test_a_window_is_what_is_configured_else_what_the_pod_knows() -> None:
    assert get_model_context_length("m", config_context_length=9) == 9
    assert get_model_context_length("m", base_url="http://x", provider="p") == UNKNOWN_WINDOW
    with use_runtime(runtime(model={"default": "m", "context_length": 7_000})):
        assert get_model_context_length("m") == get_model_context_length("") == 7_000
        assert get_model_context_length("other") == UNKNOWN_WINDOW


def test_without_a_pod_hermes_s_own_surroundings_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", "/somewhere")
    monkeypatch.setenv("HERMES_SESSION_ID", "from outside")
    assert get_hermes_home() == Path("/somewhere")
    assert get_session_env("HERMES_SESSION_ID") == "from outside"
    assert config_at(load_config(), "context", "engine") == "compressor"
    monkeypatch.delenv("HERMES_HOME")
    assert get_hermes_home() == Path.home() / ".hermes"
    with use_runtime(runtime()):
        assert get_config_path() == Path("/pod/engines/toy/config.yaml")
        assert get_session_env("HERMES_SESSION_ID") == "s-1"
        assert get_session_env("HERMES_SESSION_THREAD_ID", "none") == "none"


# ------------------------------------------------------------------ the plugin manager


def test_a_manager_holds_one_engine_and_each_command_once() -> None:
    from tests.pod.context.test_engine import Engine

    manager = PluginManager()
    first = PluginContext(PluginManifest(name="first"), manager)
    second = PluginContext(PluginManifest(name="second"), manager)
    engine = Engine()
    first.register_context_engine(engine)
    second.register_context_engine(Engine())
    second.register_context_engine("no engine")
    assert manager.context_engine is engine

    first.register_command("/Look Up", str, description="looks", args_hint="<what>")
    second.register_command("look-up", int)
    second.register_command("help", int)
    second.register_command("more", int)
    assert manager._plugin_commands["look-up"] == {  # noqa: SLF001  plugins and tests reach into it
        "handler": str,
        "description": "looks",
        "args_hint": "<what>",
        "plugin": "first",
    }
    assert set(manager._plugin_commands) == {"look-up", "more"}  # noqa: SLF001  likewise
    first.register_hook("post_llm_call", print)
    assert manager.hooks == {"post_llm_call": [print]}


def test_what_is_of_hermes_and_not_served_is_known_as_that() -> None:
    for name in (
        "agent.agent_init",
        "hermes_cli.main",
        "run_agent",
        "hermes_state",
        "gateway.config",
    ):
        assert hermes.is_unserved(name), name
    for name in ("agent.context_engine", "numpy", "pod", "agents"):
        assert not hermes.is_unserved(name), name
