"""What a plugin's `register(ctx)` is handed: it takes down what is registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from attrs import define, field, frozen

from .engine import ContextEngine
from .plugin_manifest import PluginManifest
from .plugin_options import PluginOptions
from .words import one_line

REQUIRED_OF_ENGINES = ("name", "update_from_response", "should_compress", "compress")
"""What an engine must have, whether or not it inherits from `ContextEngine`."""

SERVED_HOOKS = frozenset(
    {"pre_llm_call", "post_llm_call", "pre_tool_call", "post_tool_call", "transform_tool_result"}
    | {"on_session_start", "on_session_end", "on_session_finalize", "on_session_reset"}
    | {"on_unload"}
)
"""The hooks that have their moment in a pod; any other is taken, and said to be unused."""

BUILT_IN_COMMANDS = frozenset(
    {"new", "compact", "compress", "fork", "rewind", "sessions", "model", "engine", "cost", "help"}
    | {"exit", "quit", "resume", "status", "approve", "deny", "verbose", "stop", "detach"}
)
"""The slash commands of a conversation itself, which no plugin's command may take the name of."""


@frozen
class Command:
    """A slash command that a plugin offers."""

    handler: Callable[..., object]
    description: str = ""
    args_hint: str = ""


@frozen
class RegisteredTool:
    """A tool that a plugin offers beside its engine's own."""

    name: str
    handler: Callable[..., object]
    schema: Mapping[str, Any]
    description: str = ""
    is_available: Callable[[], object] | None = None
    """Asked once, when the tools are offered."""
    requires_env: tuple[str, ...] = ()


@define(eq=False)
class Registration:
    """The `ctx` of one load.

    What is registered that has no use here is named in `unused`, and what is refused in `told`,
    so that the host can say so. A `register_…` that nobody has heard of does nothing else.
    """

    context_engine_tool_handlers_receive_messages: ClassVar[bool] = True
    """Handlers of registered tools are given the live `messages`, where they take them."""

    _plugin: str
    options: PluginOptions = field(factory=PluginOptions)
    """`[context.options]` of the manifest; what is read counts as taken."""
    manifest: PluginManifest | None = None
    """What the plugin's `plugin.yaml` says."""
    engine: object = None
    commands: dict[str, Command] = field(factory=dict)
    hooks: dict[str, list[Callable[..., object]]] = field(factory=dict)
    """By the name of their moment. Looked up each time: a plugin may add to it later."""
    tools: dict[str, RegisteredTool] = field(factory=dict)
    memory_providers: list[object] = field(factory=list)
    told: list[str] = field(factory=list)
    said: set[str] = field(factory=set)
    """What people were told of it while it is at work, in whichever session of a pod."""
    _without_use: list[str] = field(factory=list)

    @property
    def unused(self) -> list[str]:
        """What was registered that has no use here, in words."""
        hooks = [_unserved(name) for name in self.hooks if name not in SERVED_HOOKS]
        return [*self._without_use, *hooks]

    @property
    def plugin_id(self) -> str:
        """What the manifest names the plugin by."""
        return self._plugin

    def has_capability(self, capability: str) -> bool:
        """Tell that nothing beyond this contract is granted."""
        del capability
        return False

    def on_unload(self, callback: object) -> None:
        """Have something called when the pod ends; what was registered last is called first."""
        if callable(callback):
            self.hooks.setdefault("on_unload", []).insert(0, callback)

    def get_config(self, path: str, default: object = None) -> object:
        """Return the option at a dotted path, or `default`."""
        return self.options.at(path, default)

    def register_context_engine(self, engine: object) -> None:
        """Take the plugin's engine; a second one, or what is none, is refused with a warning."""
        if self.engine is not None:
            self._refuse(
                f"Plugin '{self._plugin}' tried to register a context engine, but one is already "
                "registered. Only one context engine plugin is allowed."
            )
            return

        if not _is_engine(engine):
            self._refuse(
                f"Plugin '{self._plugin}' tried to register a context engine that does not inherit "
                "from ContextEngine. Ignoring."
            )
            return

        self.engine = engine

    def register_command(
        self,
        name: str,
        handler: object,
        description: str = "",
        args_hint: str = "",
        **_later: object,
    ) -> None:
        """Take a slash command; one without a name, or whose name is taken, is left out."""
        key = "-".join(one_line(name).lstrip("/").lower().split())
        named = f"Plugin '{self._plugin}' tried to register"
        if not key:
            self._refuse(f"{named} a command with an empty name. Skipping.")
        elif key in BUILT_IN_COMMANDS:
            conflict = "which conflicts with a built-in command"
            self._refuse(f"{named} command '/{key}' {conflict}. Skipping.")
        elif key in self.commands:
            self._refuse(f"{named} command '/{key}', which is already registered. Skipping.")
        elif not callable(handler):
            self._refuse(f"{named} command '/{key}' without a handler. Skipping.")
        else:
            hint = args_hint or ""
            self.commands[key] = Command(handler, one_line(description), one_line(hint))

    def register_hook(self, name: str, callback: object) -> None:
        """Take a hook, by the name of its moment."""
        if callable(callback):
            self.hooks.setdefault(name, []).append(callback)
        else:
            self._refuse(f"Plugin '{self._plugin}' tried to register hook '{name}' without code.")

    def register_tool(self, name: str, *given: object, **named: object) -> None:
        """Take a tool; one whose name is taken, or that has no handler, is left out.

        After the name: `toolset, schema, handler, check_fn, requires_env, is_async, description`,
        and whatever a newer version adds. There are no sets to choose from here, and an async
        handler is known by what it returns.
        """
        parts = dict(zip(_OF_A_TOOL, given, strict=False)) | named
        handler, check = parts.get("handler"), parts.get("check_fn")
        tried_to = f"Plugin '{self._plugin}' tried to register tool '{name}'"
        if name in self.tools:
            self._refuse(f"{tried_to}, which is already registered. Skipping.")
        elif not callable(handler):
            self._refuse(f"{tried_to} without a handler. Skipping.")
        else:
            self.tools[name] = RegisteredTool(
                name=name,
                handler=handler,
                schema=_mapping(parts.get("schema")),
                description=str(parts.get("description") or ""),
                is_available=check if callable(check) else None,
                requires_env=_texts(parts.get("requires_env")),
            )

    def register_memory_provider(self, provider: object) -> None:
        """Take a memory provider; a manifest has to name it for it to be used."""
        self.memory_providers.append(provider)

    def register_cli_command(self, *args: object, **kwargs: object) -> None:
        """Note that a command line command was registered: `pod` takes none."""
        self._note("command line command", args, kwargs)

    def register_skill(self, *args: object, **kwargs: object) -> None:
        """Note that a skill was registered: a pod has none."""
        self._note("skill", args, kwargs)

    def register_auxiliary_task(self, *args: object, **kwargs: object) -> None:
        """Note that a task was registered; whatever an engine asks a model is served without."""
        self._note("auxiliary task", args, kwargs)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what takes note of a registration that nobody here knows of."""
        if not name.startswith("register_"):
            message = f"{type(self).__name__} of a context engine has no {name!r}"
            raise AttributeError(message)

        kind = name.removeprefix("register_").replace("_", " ")
        return lambda *args, **kwargs: self._note(kind, args, kwargs)

    def _note(self, kind: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        named = kwargs.get("name", next(iter(args), ""))
        label = named if isinstance(named, str) else getattr(named, "name", type(named).__name__)
        self._without_use.append(f"{kind} {label}".rstrip())

    def _refuse(self, message: str) -> None:
        self.told.append(message)


_OF_A_TOOL = ("toolset", "schema", "handler", "check_fn", "requires_env", "is_async", "description")


_NEAR = 0.85
"""How alike a hook's name must be to one of ours to be a slip: other hosts have hooks of their own,
whose names are much like these."""


def _unserved(name: str) -> str:
    near = get_close_matches(name, sorted(SERVED_HOOKS), 1, _NEAR)
    return f"hook {name} (did you mean {near[0]}?)" if near else f"hook {name}"


def _mapping(value: object) -> Mapping[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _texts(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, list | tuple) else ()
    return tuple(text for text in listed if isinstance(text, str))


def _is_engine(value: object) -> bool:
    # One that has all it must have will do: engines were written against several base classes.
    if isinstance(value, ContextEngine):
        return True

    return not isinstance(value, type) and all(hasattr(value, part) for part in REQUIRED_OF_ENGINES)
