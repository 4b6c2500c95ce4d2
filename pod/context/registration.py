"""What a plugin's `register(ctx)` is handed: it takes down what is registered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from attrs import define, field, frozen

_log = logging.getLogger("pod.context")


@frozen
class Command:
    """A slash command that a plugin offers."""

    handler: Callable[..., object]
    description: str = ""
    args_hint: str = ""


@define(eq=False)
class Registration:
    """The `ctx` of one load. It offers what directory plugins get in Hermes, and nothing beside.

    What a context engine's plugin registers that has no use here is named in `unused`, so that
    the host can say so.
    """

    _plugin: str
    engine: object = None
    commands: dict[str, Command] = field(factory=dict)
    hooks: dict[str, list[Callable[..., object]]] = field(factory=dict)
    unused: list[str] = field(factory=list)

    def register_context_engine(self, engine: object) -> None:
        """Take the plugin's engine; a second one is refused with a warning."""
        if self.engine is not None:
            _log.warning(
                "Plugin '%s' tried to register a context engine, but one is already registered. "
                "Only one context engine plugin is allowed.",
                self._plugin,
            )
            return

        self.engine = engine

    def register_command(
        self, name: str, handler: Callable[..., object], description: str = "", args_hint: str = ""
    ) -> None:
        """Take a slash command; one without a name, or whose name is taken, is left out."""
        key = name.strip().lstrip("/").lower()
        if not key or key in self.commands:
            _log.warning("Plugin '%s': the command %r is left out", self._plugin, name)
            return

        self.commands[key] = Command(handler, description, args_hint)

    def register_hook(self, name: str, callback: Callable[..., object]) -> None:
        """Take a hook, by the name of its point."""
        self.hooks.setdefault(name, []).append(callback)

    def register_tool(self, *args: object, **kwargs: object) -> None:
        """Note that a tool was registered; an engine's tools come from the engine itself."""
        self.unused.append(f"tool {kwargs.get('name', next(iter(args), '?'))}")

    def register_cli_command(self, *args: object, **kwargs: object) -> None:
        """Note that a command line command was registered."""
        self.unused.append(f"command line command {kwargs.get('name', next(iter(args), '?'))}")

    def register_memory_provider(self, provider: object) -> None:
        """Note that a memory provider was registered."""
        self.unused.append(f"memory provider {type(provider).__name__}")
