"""The contract of a context engine: an abstract class over OpenAI-format message dicts.

The names, defaults and signatures are those that existing Hermes engines are written against, so
that they run unchanged. Methods may be called on any thread, `compress` beside the others. What
the host does around each of them: `pod.context.host`.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from typing import Any, Self, TypeAlias

from .thresholds import resolve_model_threshold

JsonDict: TypeAlias = dict[str, Any]
"""What plugins pass around: a JSON object as a dict."""
Message: TypeAlias = JsonDict
"""One message as the Chat Completions dialect has it, with our identity fields beside it."""

MEMORY_CONTEXT_MAX_CHARS = 6000
_MEMORY_HEAD_CHARS = 4000
_MEMORY_TAIL_CHARS = 1500


class ContextEngine(ABC):
    """Decides what is sent to a model, and when and how the history is compacted.

    A subclass gives a `name` and the three abstract methods; all else has a default. The
    attributes are read by the host, and `last_prompt_tokens` and `threshold_tokens` also written.
    """

    last_prompt_tokens: int = 0
    """The prompt of the last response; -1 between a compaction and the next response."""
    last_completion_tokens: int = 0
    """The completion of the last response."""
    last_total_tokens: int = 0
    """Both together."""
    threshold_tokens: int = 0
    """The trigger, in tokens; the host may lower it."""
    context_length: int = 0
    """The model's window; 0 while unknown."""
    compression_count: int = 0
    """How many times `compress` has succeeded in this session; counted by the engine."""
    threshold_percent: float = 0.75
    """The trigger as a share of the window."""
    protect_first_n: int = 3
    """How many rows at the head stay, the system prompt not counted."""
    protect_last_n: int = 6
    """How many rows at the tail stay."""
    emit_automatic_compaction_status: bool = True
    """Whether routine compactions are told of; failures always are."""
    model_thresholds: dict[str, float]
    """Trigger by model, assigned by the host before the first `update_model`; absent until then."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The engine's name; a plain class attribute will do."""

    @abstractmethod
    def update_from_response(self, usage: JsonDict) -> None:
        """Take the usage of a response: `prompt_tokens`, `completion_tokens` and more."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Tell whether to compact now; `prompt_tokens` is the host's own reading, if it has one."""

    @abstractmethod
    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002  the contract's signature
        memory_context: str = "",
    ) -> list[Message]:
        """Return the messages that take the place of `messages`.

        The list is the engine's own and has no system row. Rows that stay keep their
        `message_uid`. The same rows back mean that nothing could be done.
        """

    # ------------------------------------------------------------------ when

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Return `should_compress` and, where it is held back, the reason."""
        return self.should_compress(prompt_tokens), None

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Tell whether to compact once at a turn's start although the threshold is not reached."""
        return False

    def pending_compression_operation(self, messages: list[Message]) -> str | None:
        """Return `"sanitize"` to promise that the next automatic `compress` only cleans up."""
        return None

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Tell whether to wait for a real reading instead of acting on an estimate."""
        return False

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether a compaction by hand has anything to do."""
        return True

    # ------------------------------------------------------------------ what is sent

    def select_context(
        self,
        request_messages: list[Message],
        *,
        conversation_messages: list[Message] | None = None,
        incoming_message: Message | None = None,
        budget_tokens: int = 0,
    ) -> list[Message] | None:
        """Return what to send instead of `request_messages` this once, or None to leave them."""
        return None

    def prune_tool_results_only(
        self, messages: list[Message], current_tokens: int | None = None
    ) -> tuple[list[Message], int]:
        """Return the messages with old tool results trimmed, and how many; asks no model."""
        return messages, 0

    def cache_plan(self, *sections: list[Message]) -> list[Message] | None:
        """Return where the prompt cache should break, or None to leave it to the host."""
        return None

    # ------------------------------------------------------------------ lifecycle

    def on_turn_complete(  # noqa: B027  optional: by default nothing
        self,
        messages: list[Message],
        usage: JsonDict | None = None,
        **kwargs: object,
    ) -> None:
        """Look at the history after a turn; nothing is expected back."""

    def on_session_start(  # noqa: B027  optional, like the one above
        self, session_id: str, **kwargs: object
    ) -> None:
        """Take note of a session that begins, or goes on under another id after a compaction."""

    def on_session_end(  # noqa: B027  optional, like the ones above
        self, session_id: str, messages: list[Message]
    ) -> None:
        """Take note of a session's end; also called at each compaction, so be idempotent."""

    def on_session_reset(self) -> None:
        """Forget what belongs to one session."""
        self.last_prompt_tokens = 0
        self.last_completion_tokens = 0
        self.last_total_tokens = 0
        self.compression_count = 0

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: object = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take the model in force; the trigger is set from its window and `model_thresholds`.

        `api_key` is text, or a callable that gives it.
        """
        # The configured share is remembered once: a model without an entry returns to it.
        configured = self.__dict__.setdefault("_configured_percent", self.threshold_percent)
        thresholds = getattr(self, "model_thresholds", None)
        self.threshold_percent = resolve_model_threshold(model, thresholds, configured, provider)
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)

    def clone_for_agent(self) -> Self:
        """Return an engine of its own for another pod. Override where a copy needs more care."""
        return copy.deepcopy(self)

    # ------------------------------------------------------------------ tools and display

    def get_tool_schemas(self) -> list[JsonDict]:
        """Return the tools that the engine offers the model, as bare function objects."""
        return []

    def handle_tool_call(self, name: str, args: JsonDict, **kwargs: object) -> str:
        """Run one of the engine's tools and return JSON text."""
        return json.dumps({"error": f"Unknown context engine tool: {name}"})

    def get_status(self) -> JsonDict:
        """Return the numbers for a status line; `usage_percent` is between 0 and 100."""
        used = max(self.last_prompt_tokens, 0)
        share = 100 * used / self.context_length if self.context_length > 0 else 0
        return {
            "last_prompt_tokens": used,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "usage_percent": min(100, share),
            "compression_count": self.compression_count,
        }

    def get_automatic_compaction_status_message(
        self,
        *,
        phase: str,
        default_message: str,
        **context: object,
    ) -> str | None:
        """Return what is said of a routine compaction; None or blank says nothing."""
        return default_message if self.emit_automatic_compaction_status else None


def automatic_compaction_status_message(
    engine: object, *, phase: str, default_message: str, **context: object
) -> str | None:
    """Return what is said of a routine compaction by `engine`, or None to say nothing.

    An engine that knows no such method gets `default_message`; what it raises passes through.
    """
    if not getattr(engine, "emit_automatic_compaction_status", True):
        return None

    ask = getattr(engine, "get_automatic_compaction_status_message", None)
    if not callable(ask):
        return default_message

    said = ask(phase=phase, default_message=default_message, **context)
    return said if isinstance(said, str) and said.strip() else None


def sanitize_memory_context(text: object) -> str:
    """Return memory text that may be handed to an engine: credentials masked, of bounded length.

    What is over `MEMORY_CONTEXT_MAX_CHARS` keeps its first 4,000 and last 1,500 characters.
    Anything that is no text comes to none, and half of a surrogate pair to a replacement character.
    """
    from session_store.token_shapes import mask_token_shapes
    from worker.text import clean_text

    if not isinstance(text, str):
        return ""

    # Masked before it is cut: half a credential has no shape to know it by.
    masked = mask_token_shapes(clean_text(text.strip()))
    if len(masked) <= MEMORY_CONTEXT_MAX_CHARS:
        return masked

    left_out = len(masked) - _MEMORY_HEAD_CHARS - _MEMORY_TAIL_CHARS
    head, tail = masked[:_MEMORY_HEAD_CHARS], masked[-_MEMORY_TAIL_CHARS:]
    return f"{head}\n[… {left_out:,} characters left out …]\n{tail}"
