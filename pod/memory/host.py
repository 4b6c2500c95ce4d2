"""The host of one memory provider: when it is asked and told, from its start to its end.

A provider may be anybody's code: it may block, raise, return anything. Nothing of that reaches the
event loop, the history, a commit or the end of a run; what went wrong is told once, and the pod
goes on without what the provider would have given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, TypeAlias

from pod.context.bridge import to_messages
from pod.context.engine import sanitize_memory_context
from session_store.masking import Masker
from worker.items import Item, SystemNote, UserMessage, is_turn_start
from worker.tools import Tool

from .calls import ProviderCalls
from .provider import is_trivial_prompt
from .settings import Limits, MemorySettings
from .texts import BLOCK_MAX_BYTES, RECALL_MAX_BYTES, recalled, shown
from .tools import provider_tools
from .turns import Turn, TurnQueue

SwitchReason: TypeAlias = Literal["compression", "new_session", "rewind", "branch", "resume"]

NOTE_KIND = "memory"
"""The kind of the notes that hold what was recalled."""


class MemoryHost:
    """Drives a memory provider, or none: then every moment costs nothing.

    It lives as long as a pod. `block` is what the system prompt is to say of the memory, as of the
    last `start`.
    """

    def __init__(
        self,
        settings: MemorySettings | None,
        masker: Masker | None = None,
        *,
        limits: Limits = Limits(),  # noqa: B008  a frozen value
    ) -> None:
        """Make a host that loads nothing before `start`.

        Args:
            settings: Which provider, and what it is told; None for no memory.
            masker: Takes known secrets out of what the provider says, and its tools are given.
            limits: How long the pod waits for the provider.
        """
        self.settings = settings
        self.block = ""
        self._masker = masker or Masker({})
        self._calls = ProviderCalls(self.name, limits)
        self._turns = TurnQueue()
        self._session_id = ""
        self._recalled_for = ""
        # The session that was left and not yet ended: what comes next says whether it is.
        self._left: tuple[str, tuple[Item, ...]] | None = None
        self._leave_place: Callable[[], Awaitable[None]] | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """The provider as the manifest names it; empty where there is none."""
        return self.settings.provider if self.settings is not None else ""

    @property
    def active(self) -> bool:
        """Whether there is a provider, and it could be started."""
        return self._calls.provider is not None

    def settle(
        self,
        around: Callable[[], AbstractContextManager[object]],
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        """Have `around` entered around every call into the provider, and `leave` called at the end.

        To be called before the first `start`.
        """
        self._calls.around, self._leave_place = around, leave

    @property
    def started(self) -> bool:
        """Whether there was a `start`, however it went."""
        return bool(self._session_id)

    def on_notice(self, notice: Callable[[str], None]) -> None:
        """Let `notice` hear, on the event loop, of whatever goes wrong."""
        self._calls.notice = notice

    # ------------------------------------------------------------------ life

    async def start(
        self, session_id: str, *, parent_id: str = "", reason: SwitchReason | None = None
    ) -> None:
        """Get the provider ready for a session, and ask for its block of the system prompt.

        The first time it is loaded and initialized; later it follows to the session. `reason` says
        why the session is not simply a new one, `parent_id` which one it came from. With
        `new_session` the one that was left ends.
        """
        if self.settings is None or self._is_closed:
            return

        left, self._left = self._left, None
        is_first = not self.started
        self._session_id, self._recalled_for = session_id, ""
        if is_first:
            await self._calls.load(self.settings, session_id, self.settings.told(parent_id))
        elif left is not None and reason == "new_session":
            self._end(left[1])

        if reason is not None and self.active:
            await self._switch(session_id, parent_id, reason)

        text = await self._calls.ask("system_prompt_block")
        self.block = self._masker.mask(shown(text, BLOCK_MAX_BYTES))

    @property
    def left_id(self) -> str:
        """The id of the session that was left last, until there is another; else empty."""
        return self._left[0] if self._left is not None else ""

    def leave(self, session_id: str, history: Sequence[Item]) -> None:
        """Note that the pod leaves a session: for another one (`start`), or for good (`aclose`)."""
        if self.active:
            self._left = (session_id, tuple(history))

    async def compacted(self, old_id: str, new_id: str, before: tuple[Item, ...]) -> None:
        """Let the provider follow over a compaction, which is committed already."""
        if self.active:
            self._session_id = new_id
            self._end(before)
            await self._switch(new_id, old_id, "compression")

    def moved(self, old_id: str, new_id: str) -> None:
        """Let the provider follow to a fork that the writing went on in; does not wait."""
        if self.active:
            self._session_id = new_id
            self._calls.post("on_session_switch", lambda: self._follow(new_id, old_id, "branch"))

    async def aclose(self) -> None:
        """Hand over what is still waiting, end the session and shut the provider down, in time.

        Idempotent. What a provider that is stuck did not take in time is given up, and told.
        """
        if self._is_closed:
            return

        self._is_closed = True
        calls = self._calls
        if self.active:
            if self._left is not None:
                self._end(self._left[1])

            calls.post("shutdown", lambda: calls.hook("shutdown"))
            if not await calls.finish():
                calls.warn("close", self._unfinished())

        calls.let_go()
        if self._leave_place is not None:
            await self._leave_place()

    def _unfinished(self) -> str:
        waiting = len(self._turns)
        lost = f"; {waiting} of the last runs were not handed over" if waiting else ""
        limit_s = self._calls.limits.call_s
        return f"was still busy {limit_s:g} s after the end and is left behind{lost}"

    # ------------------------------------------------------------------ around a run

    async def tools(self) -> list[Tool]:
        """Return the provider's tools, wrapped."""
        return await provider_tools(self._calls, self._masker)

    def skipped_tool(self, name: str) -> None:
        """Tell that a tool of the provider is not offered, as another has its name."""
        told = f"its tool {name} is left out: another tool has that name"
        self._calls.warn(f"tool {name}", told)

    async def recall(self, history: Sequence[Item], turn: int) -> str:
        """Return the note to put into the context for the newest prompt, once a prompt, or none.

        None for a prompt that was answered, or has its note already: also after a restart.
        """
        prompt = _unanswered_prompt(history)
        if not self.active or prompt is None or prompt.uid == self._recalled_for:
            return ""

        await self._calls.ask("on_turn_start", turn, prompt.text, platform="cli")
        text: object = None
        if not is_trivial_prompt(prompt.text):
            text = await self._calls.ask("prefetch", prompt.text, session_id=self._session_id)

        self._recalled_for = prompt.uid  # Not before: what was cancelled is asked for again.
        if text is not None and not isinstance(text, str):
            self._calls.warn("prefetch", f"prefetch returned {type(text).__name__}, not text")

        return recalled(self._masker.mask(shown(text, RECALL_MAX_BYTES)))

    def run_finished(self, history: Sequence[Item], answer: str) -> None:
        """Hand a run over to the provider, without waiting."""
        if not self.active or not answer.strip():
            return

        items = tuple(history)
        prompt = next((item for item in reversed(items) if is_turn_start(item)), None)
        if not isinstance(prompt, UserMessage):
            return

        text, session_id, calls = prompt.text, self._session_id, self._calls
        if self._turns.put(Turn(text, answer, session_id, items)):
            calls.post("sync_turn", self._sync)
        else:
            calls.warn("slow", "cannot keep up with sync_turn; it gets several runs at once")

        if not is_trivial_prompt(text):
            calls.post(
                "queue_prefetch", lambda: calls.hook("queue_prefetch", text, session_id=session_id)
            )

    async def before_compaction(self, history: Sequence[Item]) -> str:
        """Return what a summary of `history` must not lose, fit to be handed to an engine."""
        calls = self._calls

        def extract() -> object:
            return calls.hook("on_pre_compress", to_messages(history))

        said = await calls.read("on_pre_compress", calls.limits.long_s, extract)
        return self._masker.mask(sanitize_memory_context(said))

    # ------------------------------------------------------------------ what takes note

    def _sync(self) -> None:
        turn, calls = self._turns.take(), self._calls
        if turn is None:
            return

        more: dict[str, object] = {"session_id": turn.session_id}
        if calls.takes("sync_turn", "messages"):
            more["messages"] = to_messages(turn.history)

        calls.hook("sync_turn", turn.user, turn.assistant, **more)

    def _end(self, history: tuple[Item, ...]) -> None:
        calls = self._calls
        calls.post("on_session_end", lambda: calls.hook("on_session_end", to_messages(history)))

    async def _switch(self, new_id: str, old_id: str, reason: SwitchReason) -> None:
        def follow() -> None:
            self._follow(new_id, old_id, reason)

        await self._calls.post_and_wait("on_session_switch", follow)

    def _follow(self, new_id: str, old_id: str, reason: SwitchReason) -> None:
        kwargs: dict[str, object] = {"parent_session_id": old_id, "reset": reason == "new_session"}
        if reason == "rewind":
            kwargs["rewound"] = True

        kwargs |= {"reason": reason, "platform": "cli"}
        self._calls.hook("on_session_switch", new_id, **kwargs)


def _unanswered_prompt(history: Sequence[Item]) -> UserMessage | None:
    """Return the prompt that waits for its first answer, unless something was recalled for it."""
    for item in reversed(history):
        if isinstance(item, UserMessage) and is_turn_start(item):
            return item

        if not isinstance(item, SystemNote | UserMessage):
            return None

        if isinstance(item, SystemNote) and item.kind == NOTE_KIND:
            return None

    return None
