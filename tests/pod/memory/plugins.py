"""Memory providers as other people write them: for Hermes, in a folder, knowing nothing of us."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

# What a provider for Hermes looks like. It writes down every call that it gets.
DIARY = '''
"""A memory provider for Hermes that keeps a diary."""

import json
import os
import threading

from agent.memory_provider import MemoryProvider


class DiaryProvider(MemoryProvider):
    def __init__(self):
        self._lock = threading.Lock()
        self._path = None
        self._session = ""

    @property
    def name(self):
        return "diary"

    def _note(self, what, **said):
        line = dict(said, what=what, thread=threading.current_thread().name)
        with self._lock, open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\\n")

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        home = kwargs["hermes_home"]
        os.makedirs(home, exist_ok=True)
        self._path = os.path.join(home, "diary.jsonl")
        self._session = session_id
        known = {k: kwargs[k] for k in sorted(kwargs) if k != "notice"}
        self._note("initialize", session=session_id, kwargs=known)

    def system_prompt_block(self):
        return "# Diary\\nDIARY-BLOCK"

    def prefetch(self, query, *, session_id=""):
        self._note("prefetch", query=query, session=session_id)
        return "DIARY-RECALL for " + query

    def queue_prefetch(self, query, *, session_id=""):
        self._note("queue_prefetch", query=query, session=session_id)

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self._note(
            "sync_turn", user=user_content, assistant=assistant_content, session=session_id,
            rows=[(m["role"], m["content"]) for m in messages],
        )

    def get_tool_schemas(self):
        return [
            {"name": "diary_read", "description": "Read it.", "parameters": {
                "type": "object", "properties": {"day": {"type": "string"}}}},
            {"type": "function", "function": {"name": "big", "description": "Taken."}},
        ]

    def handle_tool_call(self, tool_name, args, **kwargs):
        self._note("tool", name=tool_name, args=args)
        return json.dumps({"pages": ["DIARY-PAGE"], "args": args})

    def on_turn_start(self, turn_number, message, **kwargs):
        self._note("on_turn_start", turn=turn_number, message=message)

    def on_pre_compress(self, messages):
        self._note("on_pre_compress", rows=len(messages))
        return "DIARY-MUST-SURVIVE ghp_0123456789abcdefghijklmnopqrstuvwxyz"

    def on_session_switch(self, new_session_id, *, parent_session_id="", reset=False, **kwargs):
        self._note("on_session_switch", session=new_session_id, parent=parent_session_id,
                   reset=reset, rewound=kwargs.get("rewound", False), reason=kwargs.get("reason"))
        self._session = new_session_id

    def on_session_end(self, messages):
        self._note("on_session_end", session=self._session, rows=len(messages))

    def shutdown(self):
        self._note("shutdown")


def register(ctx):
    ctx.register_memory_provider(DiaryProvider())
'''

# One of an older contract: no base class, and no keywords that came later.
LEGACY = """
class Old:
    name = "toy"
    def is_available(self): return True
    def initialize(self, session_id): self.lines = []
    def system_prompt_block(self): return "OLD"
    def prefetch(self, query): return "OLD-RECALL " + query
    def sync_turn(self, user_content, assistant_content): self.lines.append(user_content)
    def get_tool_schemas(self): return [{"name": "old_lines", "description": "x"}]
    def handle_tool_call(self, tool_name, args): return str(self.lines)
    def on_turn_start(self, turn_number, message): pass

def register(ctx):
    ctx.register_memory_provider(Old())
"""

USE = '[memory]\nprovider = "{name}"\n'


def install(home: Path, name: str, code: str) -> str:
    """Put a provider into the plugins folder and return what a manifest says to use it."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__init__.py").write_text(code)
    (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 1.0.0\ndescription: test\n")
    return USE.format(name=name)


def toy(body: str) -> str:
    """A provider called `toy` with these methods."""
    indented = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return f"""
import json, os, threading, time
from pod.memory import MemoryProvider

class Toy(MemoryProvider):
    name = "toy"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self.home = kwargs["hermes_home"]
        os.makedirs(self.home, exist_ok=True)

    def get_tool_schemas(self):
        return []

    def note(self, text):
        with open(os.path.join(self.home, "notes"), "a") as file:
            file.write(text + "\\n")

{indented}
"""


def noted(home: Path) -> list[str]:
    """What a toy has noted."""
    path = home / "memory" / "toy" / "notes"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(home: Path, line: str) -> None:
    """Return once a toy has noted the line; fail where it does not for a while."""
    deadline = time.monotonic() + 10
    while line not in noted(home):
        assert time.monotonic() < deadline, f"{line!r} is not in {noted(home)}"
        time.sleep(0.05)


def diary(home: Path) -> list[dict[str, Any]]:
    """What the diary says, line by line."""
    path = home / "memory" / "diary" / "diary.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def new_threads(name: str, *, besides: list[threading.Thread]) -> list[threading.Thread]:
    """The threads of this name that are alive, once those that end had time to."""
    deadline = time.monotonic() + 3
    others = [thread for thread in threading.enumerate() if thread not in besides]
    alive = [thread for thread in others if thread.name.startswith(name)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.02)
        alive = [thread for thread in alive if thread.is_alive()]

    return alive
