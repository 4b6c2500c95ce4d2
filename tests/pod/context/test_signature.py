from __future__ import annotations

from typing import Any

import pytest

from pod.context import ContextEngine
from pod.context.signature import (
    CompressArguments,
    compress_arguments,
    end_context_engine_session,
    start_context_engine_session,
    update_context_engine_model,
)


class Engine(ContextEngine):
    name = "plain"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def update_from_response(self, usage: dict[str, Any]) -> None:
        raise NotImplementedError

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: Any, *args: Any, **kwargs: Any) -> list[Any]:
        raise NotImplementedError


EVERYTHING = {
    "current_tokens": 9,
    "focus_topic": "db",
    "force": True,
    "memory_context": "likes tea",
}


def arguments(compress: Any, **changes: Any) -> CompressArguments:
    engine = Engine()
    engine.compress = compress  # type: ignore[method-assign]  # an instance's hook is a hook
    return compress_arguments(engine, **(EVERYTHING | changes))


def takes_all(messages: Any, **kwargs: Any) -> None: ...


def takes_tokens(messages: Any, current_tokens: Any) -> None: ...


def takes_keywords(messages: Any, *, force: Any, focus_topic: Any) -> None: ...


def takes_none(messages: Any) -> None: ...


def oddly_named(current_tokens: Any, force: Any = False) -> None: ...


def test_compress_gets_what_it_names() -> None:
    assert arguments(takes_all).kwargs == EVERYTHING
    assert arguments(takes_tokens) == CompressArguments({"current_tokens": 9}, drops_memory=True)
    assert arguments(takes_keywords).kwargs == {
        "focus_topic": "db",
        "force": True,
    }
    assert arguments(takes_none).kwargs == {}


def test_blank_memory_is_never_passed_and_never_missed() -> None:
    given = arguments(takes_all, memory_context=" \n")
    assert given == CompressArguments(
        {"current_tokens": 9, "focus_topic": "db", "force": True}, drops_memory=False
    )


def test_a_parameter_filled_by_position_is_not_filled_again() -> None:
    given = arguments(oddly_named)
    assert given.kwargs == {"force": True}


def test_what_cannot_be_inspected_gets_the_least() -> None:
    # `max` tells nothing about its parameters.
    assert arguments(max) == CompressArguments({"current_tokens": 9}, drops_memory=True)


def test_the_warning_is_the_contract_s() -> None:
    assert CompressArguments.warning("lcm") == (
        "context engine lcm does not accept memory_context; "
        "continuing without provider-supplied summary context"
    )


MODEL = {
    "model": "opus",
    "context_length": 200_000,
    "base_url": "http://x",
    "api_key": "k",
    "provider": "anthropic",
    "api_mode": "chat",
}


def legacy(self: Engine, model: str, context_length: int, base_url: str = "") -> None:
    self.calls.append((model, context_length, base_url))


def tolerant(self: Engine, model: str, context_length: int, **kwargs: Any) -> None:
    self.calls.append((model, context_length, kwargs))


def positional_only(self: Engine, model: str, context_length: int, base_url: str, /) -> None:
    self.calls.append((model, context_length, base_url))


def other_names(self: Engine, m: str, window: int, *, provider: str) -> None:
    self.calls.append((m, window, provider))


def keywords_only(self: Engine, **kwargs: Any) -> None:
    self.calls.append(kwargs)


REST = {name: MODEL[name] for name in ("base_url", "api_key", "provider", "api_mode")}


@pytest.mark.parametrize(
    ("hook", "got"),
    [
        (legacy, ("opus", 200_000, "http://x")),
        (tolerant, ("opus", 200_000, REST)),
        (positional_only, ("opus", 200_000, "http://x")),
        (other_names, ("opus", 200_000, "anthropic")),
        (keywords_only, MODEL),
    ],
)
def test_update_model_is_called_once_with_what_it_takes(hook: Any, got: Any) -> None:
    engine = type("Other", (Engine,), {"update_model": hook})()
    update_context_engine_model(engine, **MODEL)
    assert engine.calls == [got]


def test_a_type_error_of_the_body_passes_through_after_one_call() -> None:
    def body(self: Engine, model: str, context_length: int) -> None:
        self.calls.append(model)
        raise TypeError("from inside")

    engine = type("Other", (Engine,), {"update_model": body})()
    with pytest.raises(TypeError, match="from inside"):
        update_context_engine_model(engine, **MODEL)
    assert engine.calls == ["opus"]


def named_id(self: Engine, session_id: str, model: str = "") -> None:
    self.calls.append((session_id, model))


def other_id(self: Engine, conversation_id: str, **kwargs: Any) -> None:
    self.calls.append((conversation_id, kwargs))


def id_only(self: Engine, sid: str) -> None:
    self.calls.append(sid)


def start_keywords(self: Engine, **kwargs: Any) -> None:
    self.calls.append(kwargs)


@pytest.mark.parametrize(
    ("hook", "got"),
    [
        (named_id, ("s-1", "opus")),
        (other_id, ("s-1", {"model": "opus"})),
        (id_only, "s-1"),
        (start_keywords, {"session_id": "s-1", "model": "opus", "conversation_id": "c"}),
    ],
)
def test_a_session_starts_with_its_id_first(hook: Any, got: Any) -> None:
    engine = type("Other", (Engine,), {"on_session_start": hook})()
    start_context_engine_session(engine, "s-1", model="opus", conversation_id="c")
    assert engine.calls == [got]


def usual(self: Engine, session_id: str, messages: Any) -> None:
    self.calls.append((session_id, messages))


def reversed_names(self: Engine, messages: Any, session_id: str) -> None:
    self.calls.append((session_id, messages))


def messages_only(self: Engine, messages: Any) -> None:
    self.calls.append((None, messages))


def the_id_only(self: Engine, session_id: str) -> None:
    self.calls.append((session_id, None))


def anything(self: Engine, *args: Any) -> None:
    self.calls.append(args)


def by_name(self: Engine, *, messages: Any) -> None:
    self.calls.append((None, messages))


@pytest.mark.parametrize(
    ("hook", "got"),
    [
        (usual, ("s-1", [1])),
        (reversed_names, ("s-1", [1])),
        (messages_only, (None, [1])),
        (the_id_only, ("s-1", None)),
        (anything, ("s-1", [1])),
        (by_name, (None, [1])),
    ],
)
def test_a_session_ends_with_what_the_hook_takes(hook: Any, got: Any) -> None:
    engine = type("Other", (Engine,), {"on_session_end": hook})()
    end_context_engine_session(engine, "s-1", [1])  # type: ignore[list-item]  # only passed on
    assert engine.calls == [got]


def test_an_engine_without_session_hooks_is_left_alone() -> None:
    engine = Engine()
    engine.on_session_start = None  # type: ignore[assignment, method-assign]  # a plugin's way out
    engine.on_session_end = None  # type: ignore[assignment, method-assign]  # the same
    start_context_engine_session(engine, "s")
    end_context_engine_session(engine, "s", [])
    assert engine.calls == []
