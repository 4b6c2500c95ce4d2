"""Engines made in a test, where a manifest can name them: a plugin folder that takes one off here.

`Recorder` is an engine as small as the contract allows that keeps every call made to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import field, frozen

from pod.context.engine import ContextEngine, JsonDict, Message

NAME = "shelved"
USE = f'[context]\nengine = "{NAME}"\n'
_shelf: dict[str, Callable[[], object]] = {}

_PLUGIN = """
from tests.pod.context.engine_shelf import take


def register(ctx):
    ctx.register_context_engine(take({key!r}))
"""


def shelve(home: Path, make: Callable[[], object], *, name: str = NAME) -> None:
    """Install a plugin whose engine `make` gives, anew for each load."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True, mode=0o700)
    _shelf[str(folder)] = make
    (folder / "__init__.py").write_text(_PLUGIN.format(key=str(folder)))
    (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 0.1.0\ndescription: in a test\n")


def take(key: str) -> object:
    """Return the engine of a folder."""
    return _shelf[key]()


@frozen
class Call:
    """One call of an engine's hook."""

    hook: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(factory=dict)
    thread: str = ""


class Recorder(ContextEngine):
    """Compacts when `wants` says so, to its newest two rows behind a new one; keeps its calls."""

    name = NAME

    def __init__(self, *, wants: Callable[[int], bool] = lambda _: False) -> None:
        self.calls: list[Call] = []
        self.wants = wants

    def note(self, hook: str, *args: Any, **kwargs: Any) -> None:
        self.calls.append(Call(hook, args, kwargs, threading.current_thread().name))

    def of(self, hook: str) -> list[Call]:
        return [call for call in self.calls if call.hook == hook]

    @property
    def hooks(self) -> list[str]:
        return [call.hook for call in self.calls]

    def update_from_response(self, usage: JsonDict) -> None:
        self.note("update_from_response", dict(usage))
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self.note("should_compress", prompt_tokens)
        return self.wants(prompt_tokens or 0)

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        self.note("compress", messages, *args, **kwargs)
        self.compression_count += 1
        at = len(messages) - 2
        while messages[at]["role"] == "tool":
            at -= 1  # a result stays behind its call

        return [{"role": "user", "content": "COMPRESSED"}, *messages[at:]]

    def update_model(self, model: str, context_length: int, *args: Any, **kwargs: Any) -> None:
        self.note("update_model", model, context_length, *args, **kwargs)
        super().update_model(model, context_length, *args, **kwargs)

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.note("on_session_start", session_id, **kwargs)

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        self.note("on_session_end", session_id, messages)

    def on_session_reset(self) -> None:
        self.note("on_session_reset")
        super().on_session_reset()

    def on_turn_complete(
        self, messages: list[Message], usage: JsonDict | None = None, **kwargs: Any
    ) -> None:
        self.note("on_turn_complete", messages, usage, **kwargs)
