"""Plugins for tests: folders under a home's `plugins/`, with an engine that leaves all as it is."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

ENGINE = '''
from agent.context_engine import ContextEngine


class Calm(ContextEngine):
    """Never compacts."""

    name = "calm"

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None):
        return messages


'''

NOTING = """
import json
import os


def note(what, **facts):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps({"what": what, **facts}) + "\\n")


"""
"""For a plugin that writes down what it is told."""


def install(home: Path, source: str, *, name: str = "calm", **siblings: str) -> Path:
    """Write a plugin of the engine above and of `source`, and return its folder."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__init__.py").write_text(ENGINE + NOTING + dedent(source), encoding="utf-8")
    (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 0.1.0\ndescription: calm\n")
    for sibling, text in siblings.items():
        (folder / f"{sibling}.py").write_text(dedent(text), encoding="utf-8")

    return folder


def use(name: str = "calm", more: str = "") -> str:
    """Return the manifest's lines that name it."""
    return f'[context]\nengine = "{name}"\n{more}'


def notes(path: Path) -> list[dict[str, Any]]:
    """Return what a plugin wrote down."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]
