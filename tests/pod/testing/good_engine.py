"""An engine that keeps to the whole contract: it summarizes, selects, listens and has tools."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from pod.context import ContextEngine

SUMMARY = "[Summary of what was said before]\n"


def text_of(row: dict[str, Any]) -> str:
    content = row.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))

    return content if isinstance(content, str) else ""


def size_of(rows: list[dict[str, Any]]) -> int:
    return sum(20 + len(text_of(row).encode("utf-8", "replace")) for row in rows)


class Good(ContextEngine):
    """Keeps the newest rows, and has the others summarized by the host's model."""

    name = "good"

    def __init__(self) -> None:
        self.notes: Path | None = None

    # --- when

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens < tokens

    # --- compress

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[dict[str, Any]]:
        start = next((n for n, m in enumerate(messages) if m.get("role") != "system"), 0)
        cut = self.cut(messages)
        old = messages[start:cut]
        if not old:
            return messages

        said = self.summary(old)
        if not said:
            return messages

        asked = next((m for m in reversed(messages) if self.is_asked(m)), None)
        kept = [asked] if asked is not None and any(asked is m for m in old) else []
        made = [*messages[:start], self.row(said), *kept, *messages[cut:]]
        if size_of(made) >= size_of(messages):
            return messages

        self.compression_count += 1
        self.remember(said)
        return made

    def cut(self, messages: list[dict[str, Any]]) -> int:
        """Where the rows that stay begin: never between a call and its results."""
        room, cut = 4_000, len(messages)
        while cut > 0 and room > 0:
            cut -= 1
            room -= 20 + len(text_of(messages[cut]))

        while cut < len(messages) and messages[cut].get("role") == "tool":
            cut += 1

        return cut

    def is_asked(self, row: dict[str, Any]) -> bool:
        return row.get("role") == "user" and not row.get("_compressed_summary")

    def summary(self, rows: list[dict[str, Any]]) -> str:
        try:
            return self.ask(rows)
        except Exception:  # noqa: BLE001  whatever a provider's client raises
            return ""

    def ask(self, rows: list[dict[str, Any]]) -> str:
        from agent.auxiliary_client import call_llm

        text = "\n".join(map(text_of, rows))[-2_000:].encode("utf-8", "replace").decode()
        prompt = [{"role": "user", "content": f"Summarize: {text}"}]
        answer = call_llm(task="compression", messages=prompt)
        return (answer.choices[0].message.content or "").strip()

    def row(self, said: str) -> dict[str, Any]:
        return {"role": "user", "content": SUMMARY + said, "_compressed_summary": True}

    # --- sessions

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        home = kwargs.get("hermes_home")
        self.notes = Path(home) / "notes.txt" if home else None

    def remember(self, said: str) -> None:
        if self.notes is not None:
            self.notes.write_text(said, encoding="utf-8")

    # --- around requests

    def select_context(
        self,
        request_messages: list[dict[str, Any]],
        *,
        conversation_messages: list[dict[str, Any]] | None = None,
        incoming_message: dict[str, Any] | None = None,
        budget_tokens: int = 0,
        **kwargs: Any,
    ) -> list[dict[str, Any]] | None:
        if len(request_messages) < 12:
            return None

        head = [m for m in request_messages if m["role"] == "system"]
        return [*head, request_messages[-1]]

    def on_turn_complete(
        self,
        messages: list[dict[str, Any]],
        usage: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.turns = getattr(self, "turns", 0) + 1

    def prune_tool_results_only(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        pruned = [
            {**m, "content": "(pruned)"} if m["role"] == "tool" and len(text_of(m)) > 900 else m
            for m in messages
        ]
        return pruned, sum(a is not b for a, b in zip(messages, pruned, strict=True))

    # --- tools

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        parameters = {
            "type": "object",
            "properties": {"words": {"type": "string", "description": "What to look for"}},
            "required": ["words"],
        }
        return [{"name": "grep", "description": "Look in what was said", "parameters": parameters}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        if name != "grep":
            return json.dumps({"error": f"Unknown context engine tool: {name}"})

        words = args.get("words")
        if not isinstance(words, str):
            return json.dumps({"error": "words must be text"})

        rows = kwargs.get("messages") or []
        return json.dumps({"hits": sum(words in text_of(row) for row in rows)})


class Locked(Good):
    """Holds what cannot be copied, as engines with a database do, and says how it is cloned."""

    name = "locked"

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def clone_for_agent(self) -> Locked:
        return type(self)()


class Legacy:
    """As small as an engine may be, and with a strict old signature; no subclass of ours."""

    name = "legacy"
    last_prompt_tokens = last_completion_tokens = last_total_tokens = 0
    threshold_tokens = context_length = compression_count = 0
    threshold_percent = 0.75
    protect_first_n, protect_last_n = 3, 6

    def update_model(self, model: str, context_length: int, **kwargs: Any) -> None:
        self.context_length = context_length
        self.threshold_tokens = context_length // 2

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0

    def on_session_reset(self) -> None:
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.compression_count = 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or self.last_prompt_tokens) > self.threshold_tokens > 0

    def compress(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        cut = [self._cut(row) for row in messages]
        if cut == messages:
            return messages

        self.compression_count += 1
        return cut

    def _cut(self, row: dict[str, Any]) -> dict[str, Any]:
        text = row.get("content")
        if row.get("role") != "tool" or not isinstance(text, str) or len(text) <= 100:
            return row

        return {**row, "content": text[:90]}
