"""The tools, hooks and prompt files that a manifest names; listing them is the permission."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from pod.context import hermes
from pod.errors import PluginFailed
from worker.errors import ToolDefinitionError, WorkerError
from worker.hooks import Ask, Hook, Skip, ToolCallView
from worker.text import clean_text
from worker.tools import Tool, tool

if TYPE_CHECKING:
    from manifests import LoadedManifest, PermissionsSection


def load_tools(loaded: LoadedManifest) -> list[Tool]:
    """Return the tools of `[tools] python`, in the order listed.

    Raises:
        PluginFailed: One cannot be imported, or is no tool; the message names it and its line.
    """
    section = loaded.manifest.tools
    entries = section.python if section else ()
    tools = []
    for number, entry in enumerate(entries):
        found = _load(entry, "tool", loaded, ("tools", "python", number))
        try:
            tools.append(_as_tool(found, entry))
        except ToolDefinitionError as error:
            raise PluginFailed(f"{entry}: {error.message}", hint=error.hint) from error

    return tools


def _as_tool(found: object, entry: str) -> Tool:
    if isinstance(found, Tool):
        return found

    if not callable(found):
        raise PluginFailed(f"{entry} is not a function or a Tool, but {type(found).__name__}")

    return tool(found)


def load_hooks(loaded: LoadedManifest) -> list[Hook]:
    """Return the hooks of `[[hooks]]`, in the order listed. Raises `PluginFailed`."""
    hooks = []
    for number, section in enumerate(loaded.manifest.hooks):
        function = _load(section.python, "hook", loaded, ("hooks", number, "python"))
        if not callable(function):
            raise PluginFailed(f"hook {section.python} is not callable")

        hooks.append(Hook(section.point, function, section.on_error, section.python))

    return hooks


def permission_hook(permissions: PermissionsSection) -> Hook | None:
    """Return the hook that keeps `[permissions] tools`, where anything is not allowed."""
    held = {name: word for name, word in permissions.tools.items() if word != "allow"}
    if not held:
        return None

    def check(call: ToolCallView) -> Skip | Ask | None:
        match held.get(call.name):
            case "ask":
                return Ask()
            case "deny":
                return Skip(f"permission denied for {call.name}: the manifest denies it")
            case _:
                return None

    return Hook("PreToolCall", check, "fail", "permissions")


def _load(entry: str, what: str, loaded: LoadedManifest, key: tuple[str | int, ...]) -> object:
    module_name, _, attribute = entry.partition(":")
    where = str(loaded.base_dir)
    if where not in sys.path:
        sys.path.append(where)  # Modules beside the manifest work, and shadow nothing.

    hermes.make_way()  # A plugin of an earlier pod may have been served a module of that name.
    line = loaded.line_of(*key)
    place = f"{loaded.path}, line {line}" if line else str(loaded.path)
    try:
        found: object = importlib.import_module(module_name)
        for step in attribute.split("."):
            found = getattr(found, step)
    except ModuleNotFoundError as error:
        message = f"{place}: the {what} {entry} cannot be loaded: no module named {error.name}"
        hint = "install it, or put its folder on PYTHONPATH or beside the manifest"
        raise PluginFailed(message, hint=hint) from error
    except Exception as error:  # supervision point: importing runs foreign code
        message = f"{place}: the {what} {entry} cannot be loaded: {type(error).__name__}: {error}"
        raise PluginFailed(message) from error

    return found


def system_prompt(loaded: LoadedManifest) -> str:
    """Return the system prompt: the manifest's own, and its instruction files under it.

    Raises:
        WorkerError: A named file cannot be read.
    """
    manifest = loaded.manifest
    parts = [manifest.worker.system_prompt or ""]
    if manifest.worker.system_prompt_file:
        parts = [_read(loaded, manifest.worker.system_prompt_file, "worker.system_prompt_file")]

    parts += [_read(loaded, path, "pod.instructions") for path in manifest.pod.instructions]
    return clean_text("\n\n".join(part.strip() for part in parts if part.strip()))


def _read(loaded: LoadedManifest, path: str, key: str) -> str:
    try:
        return loaded.resolve(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        message = f"{loaded.path}: {key} names {path}, which cannot be read: {reason}"
        raise WorkerError(message, hint="check the path; it is relative to the manifest") from error
