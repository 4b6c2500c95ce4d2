"""The contract of a memory provider: an abstract class over OpenAI-format message dicts.

The names, defaults and signatures are those that existing Hermes providers are written against, so
that they run unchanged. What the host does around each method, and in which thread:
`pod.memory.host`. A method is called with the parameters that it declares and no others.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, TypeAlias

from attrs import frozen

JsonDict: TypeAlias = dict[str, Any]
"""What providers pass around: a JSON object as a dict."""

PRE_COMPRESS_CHECKPOINT_API_VERSION = 2
"""The newest version of `on_pre_compress` that a provider may name as its own."""
INDICATOR_GLYPH = "🧠"
"""What a provider that has no sign of its own is shown by."""

_WITHOUT_MATTER = re.compile(
    "y|n|k|yes|no|ok|okay|yep|nope|sure|fine|thanks|thank you|thx|ty|hi|hey|hello|yo|done|next|good"
    "|great|nice|cool|lgtm|continue|proceed|go on|go ahead|do it|got it|stop|ja|nein|danke|weiter"
    "|oui|non|merci|si|sí|gracias|はい|いいえ|好|好的|是|对|继续|谢谢|嗯|네|예|아니요|да|нет"
)


@frozen
class RecallStatus:
    """What a provider's last `prefetch` found; `count` 0 means that it cannot be counted."""

    provider_label: str
    count: int
    glyph: str = INDICATOR_GLYPH


def is_trivial_prompt(text: str | None) -> bool:
    """Tell whether there is nothing in a prompt to remember anything by.

    True for an empty one, a slash command, and a mere word of assent or greeting.
    """
    stripped = (text or "").strip()
    words = " ".join(re.findall(r"\w+", stripped)).casefold()
    return not words or stripped.startswith("/") or bool(_WITHOUT_MATTER.fullmatch(words))


class MemoryProvider(ABC):
    """Remembers things for a pod beyond one session.

    A subclass gives a `name` and the three abstract methods; all else has a default that does
    nothing. One object serves one pod. No two of the calls that read (`prefetch`, the tools,
    `on_pre_compress`) run at once, and no two of those that take note (`sync_turn` and the session
    callbacks); but the ones may run beside the others.
    """

    pre_compress_checkpoint_api_version: int = 1
    """The version of `on_pre_compress` that the provider is written for."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The provider's name; a plain class attribute will do."""

    @abstractmethod
    def is_available(self) -> bool:
        """Tell whether all that is needed is there: packages, keys. Asks no network."""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: object) -> None:
        """Get ready for a session; called once in the life of a pod.

        `kwargs`: `hermes_home` (a folder for the provider's data), `platform`, `model`,
        `agent_context`, `agent_identity` (the pod's name), `agent_workspace`, `options` (the
        manifest's), `notice` (a function that tells people one line, from any thread), and, where
        they apply, `parent_session_id` and `folder` (one that the manifest names; `hermes_home` is
        the same one then).
        """

    @abstractmethod
    def get_tool_schemas(self) -> list[JsonDict]:
        """Return the tools that the provider offers the model, as bare function objects."""

    # ------------------------------------------------------------------ before it is used

    def initialize_for_inspection(self, session_id: str, **kwargs: object) -> None:
        """Get ready only to be looked at; by default as for a session."""
        self.initialize(session_id=session_id, **kwargs)

    def unavailable_reason(self) -> str:
        """Return what would make the provider available; empty where that is not known."""
        return ""

    def get_config_schema(self) -> list[JsonDict]:
        """Return what can be configured, a dict a field, for a program that asks a person."""
        return []

    def save_config(self, values: JsonDict, hermes_home: str) -> None:  # noqa: B027  optional
        """Keep what a person configured where the provider will find it."""

    def backup_paths(self) -> list[str]:
        """Return what the provider keeps outside of its folder."""
        return []

    # ------------------------------------------------------------------ what the model sees

    def system_prompt_block(self) -> str:
        """Return what the system prompt is to say of the memory; asked once a launch."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return what is remembered that fits a prompt, or nothing. Should be quick."""
        return ""

    def queue_prefetch(  # noqa: B027  optional: by default nothing
        self, query: str, *, session_id: str = ""
    ) -> None:
        """Begin to look for what the next prompt may need; `prefetch` will ask for it."""

    def recall_status(self) -> RecallStatus | None:
        """Return what the last `prefetch` found, for people to see; not called in this version."""
        return None

    def handle_tool_call(self, tool_name: str, args: JsonDict, **kwargs: object) -> str:
        """Run one of the provider's tools and return JSON text."""
        raise NotImplementedError(f"the memory provider {self.name} has no tool {tool_name}")

    # ------------------------------------------------------------------ what it takes note of

    def on_turn_start(  # noqa: B027  optional, like those below
        self, turn_number: int, message: str, **kwargs: object
    ) -> None:
        """Take note of a prompt, before anything is recalled for it."""

    def sync_turn(  # noqa: B027  optional, like the others
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[JsonDict] | None = None,
    ) -> None:
        """Keep what there is to keep of a run that finished.

        `messages` is the whole conversation. Of a provider that cannot keep up, several runs come
        at once, their texts joined.
        """

    def on_pre_compress(self, messages: list[JsonDict]) -> str:
        """Return what a summary of `messages` must not lose; it is handed on as data."""
        return ""

    def on_session_switch(  # noqa: B027  optional, like the others
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: object,
    ) -> None:
        """Take note that the pod goes on under another session id.

        `reason` in `kwargs` says why: `compression`, `new_session` (with `reset`), `rewind` (with
        `rewound`), `branch` or `resume`.
        """

    def on_session_end(self, messages: list[JsonDict]) -> None:  # noqa: B027  optional, like the others
        """Take note of a session's end; a compaction is one too, so be idempotent."""

    def on_memory_write(  # noqa: B027  optional, like the others
        self, action: str, target: str, content: str, metadata: JsonDict | None = None
    ) -> None:
        """Take note of what another memory kept; there is no other here, so it is not called."""

    def on_delegation(  # noqa: B027  optional, like the others
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: object
    ) -> None:
        """Take note of what another agent did for this one; not called in this version."""

    def shutdown(self) -> None:  # noqa: B027  optional, like the others
        """Let go of everything; nothing is called after it."""
