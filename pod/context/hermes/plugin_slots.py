"""The plugin manager that Hermes modules give out: what plugins have registered, by its names."""

from __future__ import annotations

import logging
from collections.abc import Callable

from attrs import define, field

from pod.context.plugin_manifest import PluginManifest
from pod.context.registration import Command, Registration

__all__ = ["PluginContext", "PluginManager", "PluginManifest"]

_log = logging.getLogger("pod.context")


@define(eq=False)
class PluginManager:
    """Holds one engine, the hooks and the slash commands. Plugins reach into it by these names."""

    _context_engine: object = None
    _hooks: dict[str, list[Callable[..., object]]] = field(factory=dict)
    _plugin_commands: dict[str, dict[str, object]] = field(factory=dict)

    @property
    def hooks(self) -> dict[str, list[Callable[..., object]]]:
        """The hooks by the name of their moment; whoever adds to them is heard."""
        return self._hooks

    @property
    def context_engine(self) -> object:
        """The one engine that was registered, or None."""
        return self._context_engine

    def hold_engine(self, engine: object) -> None:
        """Keep `engine` as the one that was registered."""
        self._context_engine = engine

    def add_command(self, name: str, command: Command, plugin: str) -> None:
        """Take a slash command of a plugin's."""
        self._plugin_commands[name] = {
            "handler": command.handler,
            "description": command.description,
            "args_hint": command.args_hint,
            "plugin": plugin,
        }

    def commands_of_others(self, known: dict[str, Command]) -> dict[str, Command]:
        """Return the commands that are taken and not among `known`."""
        return {
            name: Command(entry["handler"])  # type: ignore[arg-type]  # as it was put in
            for name, entry in self._plugin_commands.items()
            if name not in known
        }


class PluginContext(Registration):
    """The `ctx` of a plugin that is registered with a manager, and not with one pod's load."""

    def __init__(self, manifest: PluginManifest, manager: PluginManager) -> None:
        """Make a context whose registrations `manager` holds."""
        super().__init__(manifest.name, manifest=manifest, hooks=manager.hooks)
        self._manager = manager

    def register_context_engine(self, engine: object) -> None:
        """Take the one engine of the manager; a second one is refused with a warning."""
        self.engine = self._manager.context_engine
        super().register_context_engine(engine)
        self._manager.hold_engine(self.engine)

    def register_command(
        self,
        name: str,
        handler: object,
        description: str = "",
        args_hint: str = "",
        **later: object,
    ) -> None:
        """Take a slash command into the manager; one whose name is taken is left out."""
        self.commands |= self._manager.commands_of_others(self.commands)
        taken = set(self.commands)
        super().register_command(name, handler, description, args_hint, **later)
        for new in self.commands.keys() - taken:
            self._manager.add_command(new, self.commands[new], self.plugin)

    def _refuse(self, message: str) -> None:
        super()._refuse(message)
        _log.warning("%s", message)  # There is no pod that could tell of it.

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        return self.manifest.name if self.manifest else ""
