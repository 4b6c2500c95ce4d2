"""The provider itself: when the notes are read, and what of them the model is shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pod.memory.provider import MemoryProvider
from worker.text import clean_text, cut_middle, utf8_len

from .notes import Note
from .search import search
from .shown import fitting, newest_first, prompt_block, text_of
from .store import MemoryRefused, NoteStore, Shelf
from .tools import schemas

PROMPT_MAX_BYTES = 4_000
RECALL_MAX_BYTES = 2_000
MOST_RECALLED = 8
MOST_FOUND = 50
FOUND_MAX_BYTES = 16_000
TOLD_MAX_BYTES = 8_000
CHANGED_MAX_BYTES = 4_000


def _unheard(_message: str) -> None:
    """Take what there is to tell where nobody listens."""


class FileMemory(MemoryProvider):
    """Notes in Markdown files. What is kept is on the disk when its tool has answered."""

    name = "file"

    def __init__(self, make_store: Callable[[Path], NoteStore] = NoteStore) -> None:
        """Make a memory that `initialize` opens; `make_store` opens a folder."""
        self._make_store = make_store
        self._store: NoteStore | None = None
        self._prompt_max_bytes = PROMPT_MAX_BYTES
        self._recall_max_bytes = RECALL_MAX_BYTES
        self._tell: Callable[[str], None] = _unheard
        self._told: set[str] = set()
        # Session callbacks come in another thread than the rest.
        self._lock = threading.Lock()
        self._seen: dict[str, str] = {}
        """Notes that the model was shown, by id: recalling them again would say nothing new."""
        self._in_prompt: dict[str, str] = {}
        self._changed: dict[str, Note | None] = {}
        """What this session kept and, as None, forgot."""

    def is_available(self) -> bool:
        """Tell that nothing is needed."""
        return True

    def initialize(self, session_id: str, **kwargs: object) -> None:
        """Take the folder: the one that the manifest names, else one of this pod's own."""
        named = kwargs.get("folder")
        home, pod = str(kwargs.get("hermes_home", "")), str(kwargs.get("agent_identity", ""))
        self._store = self._make_store(Path(str(named)) if named else Path(home) / (pod or "pod"))
        options = kwargs.get("options")
        if isinstance(options, Mapping):
            self._prompt_max_bytes = int(options.get("prompt_max_bytes", PROMPT_MAX_BYTES))
            self._recall_max_bytes = int(options.get("recall_max_bytes", RECALL_MAX_BYTES))
        tell = kwargs.get("notice")
        self._tell = tell if callable(tell) else _unheard

    @property
    def store(self) -> NoteStore:
        """The folder of notes. Raises `MemoryRefused` before `initialize`."""
        if self._store is None:
            raise MemoryRefused("the memory is not open yet")

        return self._store

    # ------------------------------------------------------------------ what the model sees

    def system_prompt_block(self) -> str:
        """Return how the memory is used, and the newest notes."""
        shelf = self._read()
        block, shown = prompt_block(shelf.notes, shelf.in_short, self._prompt_max_bytes)
        with self._lock:
            self._in_prompt = {note.id: note.text for note in shown}
            self._seen = dict(self._in_prompt)
        return block

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return the notes that fit a prompt and that this session has not seen yet."""
        notes = self._read().notes
        with self._lock:
            fresh = [note for note in notes if self._seen.get(note.id) != note.text]

        telling = [found.note for found in search(query, fresh) if found.is_telling]
        chosen = fitting(telling[:MOST_RECALLED], self._recall_max_bytes)
        with self._lock:
            self._seen |= {note.id: note.text for note in chosen}

        return text_of(chosen, "Notes that may matter here:", fits=str)

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Return what was kept and forgotten since the system prompt was written."""
        with self._lock:
            kept = [note for note in self._changed.values() if note is not None]
            gone = [note_id for note_id, note in self._changed.items() if note is None]

        text = text_of(
            kept,
            "Kept in the memory in this session; it stays there, under these ids:",
            fits=lambda whole: cut_middle(whole, CHANGED_MAX_BYTES),
        )
        forgotten = f"Forgotten in this session: {', '.join(gone[-100:])}" if gone else ""
        return "\n".join(part for part in (text, forgotten) if part)

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: object,
    ) -> None:
        """Forget what the last session has seen: what was recalled may be gone from its history."""
        with self._lock:
            self._seen = dict(self._in_prompt)
            if reset:
                self._changed.clear()

    # ------------------------------------------------------------------ tools

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools to remember, replace, forget and search."""
        return schemas()

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: object) -> str:
        """Run a tool; what cannot be done is an error that says why."""
        tools = {
            "memory_remember": self._remember,
            "memory_replace": self._replace,
            "memory_forget": self._forget,
            "memory_search": self._search,
        }
        try:
            if tool_name not in tools:
                raise MemoryRefused(f"there is no tool {tool_name}")

            answer = tools[tool_name](args)
        except MemoryRefused as error:
            answer = {"error": str(error)}

        return json.dumps(answer, ensure_ascii=False)

    def _remember(self, args: Mapping[str, object]) -> dict[str, Any]:
        text = _text(args, "text")
        note, is_new = self.store.remember(text, _text(args, "topic", default=""))
        if not is_new:
            return {"known": _told_of(note)}

        self._note_change(note.id, note)
        return {"remembered": _told_of(note)}

    def _replace(self, args: Mapping[str, object]) -> dict[str, Any]:
        old, new = self.store.replace(_text(args, "id"), _text(args, "text"))
        self._note_change(new.id, new)
        return {"replaced": clean_text(old.text), "by": _told_of(new)}

    def _forget(self, args: Mapping[str, object]) -> dict[str, Any]:
        note = self.store.forget(_text(args, "id"))
        self._note_change(note.id, None)
        return {"forgotten": _told_of(note)}

    def _search(self, args: Mapping[str, object]) -> dict[str, Any]:
        query, limit = _text(args, "query", default=""), args.get("limit")
        most = limit if type(limit) is int and limit > 0 else 10
        shelf = self._read()
        if query.strip():
            notes = [found.note for found in search(query, shelf.notes)]
        else:
            notes = newest_first(shelf.notes)

        answer: dict[str, Any] = {"found": len(notes), "notes": _told_within(notes, most)}
        return answer | ({"problems": list(shelf.problems)} if shelf.problems else {})

    # ------------------------------------------------------------------ inside

    def _note_change(self, note_id: str, note: Note | None) -> None:
        with self._lock:
            self._changed[note_id] = note
            if note is not None:
                self._seen[note_id] = note.text

    def _read(self) -> Shelf:
        shelf = self.store.read()
        for problem in shelf.in_short:
            if problem not in self._told:
                self._told.add(problem)
                self._tell(problem)

        return shelf


def _told_of(note: Note) -> dict[str, str]:
    text = cut_middle(clean_text(note.text), TOLD_MAX_BYTES)  # A person's may be of any length.
    told = {"id": note.id, "date": note.date, "topic": clean_text(note.topic), "text": text}
    return {key: value for key, value in told.items() if value}


def _told_within(notes: Sequence[Note], most: int) -> list[dict[str, str]]:
    """Return the first notes for the model, as many as are asked for and fit."""
    told, used = [], 0
    for note in notes[: min(most, MOST_FOUND)]:
        told.append(_told_of(note))
        used += utf8_len(told[-1]["text"]) + 100
        if used > FOUND_MAX_BYTES:
            break

    return told


def _text(args: Mapping[str, object], key: str, *, default: str | None = None) -> str:
    value = args.get(key, default)
    if not isinstance(value, str):
        raise MemoryRefused(f"{key} must be given, as text")

    return value
