"""The host of one memory provider: every call into it, in threads of its own, within limits.

A provider may be anybody's code: it may block, raise, return anything. Nothing of that reaches the
event loop, the history, a commit or the end of a run; what went wrong is told once, and the pod
goes on without what the provider would have given.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import define, field, frozen

from pod.context.bridge import to_messages
from pod.context.engine import sanitize_memory_context
from pod.context.errors import EngineInterrupted
from pod.context.threads import EngineThread
from session_store.masking import Masker
from worker.items import Item, SystemNote, UserMessage, is_turn_start
from worker.tools import Tool, ToolOutput, render_output

from .errors import MemoryUnavailable
from .loader import load_provider, release_provider
from .provider import MemoryProvider, is_trivial_prompt
from .signature import accepted
from .texts import BLOCK_MAX_BYTES, RECALL_MAX_BYTES, recalled, shown
from .turns import Turn, TurnQueue

SwitchReason: TypeAlias = Literal["compression", "new_session", "rewind", "branch", "resume"]

NOTE_KIND = "memory"
"""The kind of the notes that hold what was recalled."""

_log = logging.getLogger("pod.memory")


@frozen
class MemorySettings:
    """Which provider a pod has, and what it is told of the pod."""

    provider: str
    plugins_dir: Path
    home: Path
    """The folder for the provider's data."""
    pod: str
    model: str
    options: Mapping[str, object] = field(factory=dict)
    is_home_named: bool = False
    """Whether the manifest names the folder, and it is not one that podworker has chosen."""


@frozen
class Limits:
    """How long the pod waits for a provider, in seconds, before it goes on without it."""

    call_s: float = 8.0
    """For what it is asked, to follow to another session, and for all that is left at the end."""

    @property
    def long_s(self) -> float:
        """For its import with its `initialize`, and before a compaction: models may be asked."""
        return 3 * self.call_s

    @property
    def stuck_s(self) -> float:
        """How long it may take note of one thing before it is handed no more."""
        return 30 * self.call_s


def _unheard(message: str) -> None:
    _log.warning("%s", message)


@define(eq=False)
class MemoryHost:
    """Drives a memory provider, or none: then every moment costs nothing.

    `notice` hears of failures, on the event loop. What reads (`prefetch`, tools) has one thread,
    and what takes note (`sync_turn`, the session callbacks) another: recalling does not wait for a
    provider that is still busy with the run before.
    """

    settings: MemorySettings | None
    masker: Masker = field(factory=lambda: Masker({}))
    """Takes known secrets out of what comes from the provider, and of what goes to its tools."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Entered around every call into the provider, in the thread that makes it."""
    limits: Limits = field(factory=Limits)
    notice: Callable[[str], None] = _unheard
    block: str = field(default="", init=False)
    """What the system prompt is to say of the memory, as of the last `start`."""
    _provider: MemoryProvider | None = field(default=None, init=False)
    _session_id: str = field(default="", init=False)
    _left: tuple[str, tuple[Item, ...]] | None = field(default=None, init=False)
    """The session that was left and not yet ended: what comes next says whether it is."""
    _recalled_for: str = field(default="", init=False)
    _reading: EngineThread = field(factory=lambda: EngineThread("memory"), init=False)
    _noting: EngineThread = field(factory=lambda: EngineThread("memory-notes"), init=False)
    _turns: TurnQueue = field(factory=TurnQueue, init=False)
    _said: set[str] = field(factory=set, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The provider as the manifest names it; empty where there is none."""
        return self.settings.provider if self.settings is not None else ""

    @property
    def active(self) -> bool:
        """Whether there is a provider, and it could be started."""
        return self._provider is not None

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
        is_first = not self._session_id
        self._session_id, self._recalled_for = session_id, ""
        if is_first:
            await self._load(self.settings, session_id, parent_id)
        elif left is not None and reason == "new_session":
            self._post("on_session_end", lambda: self._end(left[1]))

        if reason is not None:
            await self._switch(session_id, parent_id, reason)

        text = await self._ask("system_prompt_block", self.limits.call_s)
        self.block = self.masker.mask(shown(text, BLOCK_MAX_BYTES))

    async def _load(self, settings: MemorySettings, session_id: str, parent_id: str) -> None:
        kwargs = {
            "hermes_home": str(settings.home),
            "platform": "pod",
            "model": settings.model,
            "agent_context": "primary",
            "agent_identity": settings.pod,
            "agent_workspace": "pod",
            "options": dict(settings.options),
            "notice": self._hears(),
            **({"parent_session_id": parent_id} if parent_id else {}),
            **({"folder": str(settings.home)} if settings.is_home_named else {}),
        }

        def begin() -> MemoryProvider:
            with self.around():
                return _begun(settings, session_id, kwargs)

        try:
            self._provider = await self._reading.call(begin, timeout_s=self.limits.long_s)
        except MemoryUnavailable as error:
            self.notice(error.notice)
        except TimeoutError:
            slow = f"it was not ready after {self.limits.long_s:g} s"
            self.notice(MemoryUnavailable(settings.provider, slow).notice)
        except Exception as error:  # noqa: BLE001  # supervision point of a provider's code
            self.notice(MemoryUnavailable(settings.provider, said(error)).notice)

    @property
    def left_id(self) -> str:
        """The id of the session that was left last, until there is another; else empty."""
        return self._left[0] if self._left is not None else ""

    def _hears(self) -> Callable[[str], None]:
        """Return what a provider can tell people something by, from any thread."""
        loop = asyncio.get_running_loop()

        def tell(message: str) -> None:
            with suppress(RuntimeError):  # On a closed loop there is nobody to tell.
                loop.call_soon_threadsafe(self._warn, message, message)

        return tell

    def leave(self, session_id: str, history: Sequence[Item]) -> None:
        """Note that the pod leaves a session: for another one (`start`), or for good (`aclose`)."""
        if self._provider is not None:
            self._left = (session_id, tuple(history))

    async def compacted(self, old_id: str, new_id: str, before: tuple[Item, ...]) -> None:
        """Let the provider follow over a compaction, which is committed already."""
        if self._provider is None:
            return

        self._session_id = new_id
        self._post("on_session_end", lambda: self._end(before))
        await self._switch(new_id, old_id, "compression")

    def moved(self, old_id: str, new_id: str) -> None:
        """Let the provider follow to a fork that the writing went on in; does not wait."""
        if self._provider is None:
            return

        self._session_id = new_id
        self._post("on_session_switch", lambda: self._follow(new_id, old_id, "branch"))

    async def _switch(self, new_id: str, old_id: str, reason: SwitchReason) -> None:
        """Post the switch and wait for it, but not for long: it comes in its turn anyway."""
        if self._provider is None:
            return

        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def follow() -> None:
            try:
                self._follow(new_id, old_id, reason)
            finally:
                with suppress(RuntimeError):  # On a closed loop nobody waits any more.
                    loop.call_soon_threadsafe(done.set)

        limit_s = self.limits.call_s
        is_busy = self._noting.busy_s > limit_s
        if not self._post("on_session_switch", follow) or is_busy:
            return

        try:
            async with asyncio.timeout(limit_s):
                await done.wait()
        except TimeoutError:
            self._warn("on_session_switch", f"on_session_switch was not done after {limit_s:g} s")

    async def aclose(self) -> None:
        """Hand over what is still waiting, end the session and shut the provider down, in time.

        Idempotent. What a provider that is stuck did not take in time is given up, and told.
        """
        if self._is_closed:
            return

        self._is_closed = True
        left, provider = self._left, self._provider
        if provider is not None:
            if left is not None:
                self._post("on_session_end", lambda: self._end(left[1]))
            self._post("shutdown", lambda: self._hook("shutdown"))
            if not await self._noting.aclose(self.limits.call_s):
                self._warn("close", self._unfinished())

        self.let_go()

    def let_go(self) -> None:
        """Let the threads end and leave the provider to other pods; waits for nothing."""
        self._is_closed = True
        self._reading.close()
        self._noting.close()
        if self._provider is not None:
            release_provider(self._provider)
            self._provider = None

    def _unfinished(self) -> str:
        waiting = len(self._turns)
        lost = f"; {waiting} of the last runs were not handed over" if waiting else ""
        return f"was still busy {self.limits.call_s:g} s after the end and is left behind{lost}"

    # ------------------------------------------------------------------ around a run

    async def recall(self, history: Sequence[Item], turn: int) -> str:
        """Return the note to put into the context for the newest prompt, once a prompt, or none.

        None for a prompt that was answered, or has its note already: also after a restart.
        """
        prompt = _unanswered_prompt(history)
        if self._provider is None or prompt is None or prompt.uid == self._recalled_for:
            return ""

        self._recalled_for = prompt.uid
        await self._ask("on_turn_start", self.limits.call_s, turn, prompt.text, platform="pod")
        if is_trivial_prompt(prompt.text):
            return ""

        text = await self._ask(
            "prefetch", self.limits.call_s, prompt.text, session_id=self._session_id
        )
        if text is not None and not isinstance(text, str):
            self._warn("prefetch", f"prefetch returned {type(text).__name__}, not text")

        return recalled(self.masker.mask(shown(text, RECALL_MAX_BYTES)))

    def run_finished(self, history: Sequence[Item], answer: str) -> None:
        """Hand a run over to the provider, without waiting."""
        items = tuple(history)
        prompt = next((item for item in reversed(items) if is_turn_start(item)), None)
        if self._provider is None or not answer.strip() or not isinstance(prompt, UserMessage):
            return

        turn = Turn(prompt.text, answer, self._session_id, items)
        if self._turns.put(turn):
            self._post("sync_turn", self._sync)
        else:
            self._warn(
                "slow", "cannot keep up with sync_turn; runs are handed over several at once"
            )

        if not is_trivial_prompt(prompt.text):
            self._post("queue_prefetch", lambda: self._queue(prompt.text, turn.session_id))

    async def before_compaction(self, history: Sequence[Item]) -> str:
        """Return what a summary of `history` must not lose, fit to be handed to an engine."""
        if self._provider is None:
            return ""

        def extract() -> object:
            return self._hook("on_pre_compress", to_messages(history))

        limit_s = self.limits.long_s
        return sanitize_memory_context(await self._read("on_pre_compress", limit_s, extract))

    async def tools(self) -> list[Tool]:
        """Return the provider's tools, wrapped."""
        schemas = await self._ask("get_tool_schemas", self.limits.call_s)
        if not schemas:
            return []

        if not isinstance(schemas, list | tuple):
            self._warn("tools", f"get_tool_schemas returned {type(schemas).__name__}, not a list")
            return []

        made = (self._tool(schema) for schema in schemas)
        return list({tool.name: tool for tool in made if tool is not None}.values())

    def _tool(self, schema: object) -> Tool | None:
        function = schema.get("function", schema) if isinstance(schema, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            self._warn("tools", "one of its tools has no name; it is left out")
            return None

        async def call(arguments: dict[str, Any]) -> ToolOutput:
            masked = json.loads(self.masker.mask_json(json.dumps(arguments)))
            try:
                answer = await self._reading.call(self._hook, "handle_tool_call", name, masked)
            except Exception as error:  # noqa: BLE001  # supervision point of a provider's code
                text = json.dumps({"error": f"Memory tool '{name}' failed: {said(error)}"})
                return ToolOutput(text, is_error=True)

            return _output(answer)

        description, parameters = function.get("description"), function.get("parameters")
        return Tool(
            name,
            description if isinstance(description, str) else "",
            parameters if isinstance(parameters, dict) else {"type": "object", "properties": {}},
            call,
        )

    def skipped_tool(self, name: str) -> None:
        """Tell that a tool of the provider is not offered, as another has its name."""
        self._warn(f"tool {name}", f"its tool {name} is left out: another tool has that name")

    # ------------------------------------------------------------------ in the provider's threads

    def _hook(self, method: str, *args: object, **kwargs: object) -> object:
        """Call a method with as many of `kwargs` as it takes; one that is missing does nothing."""
        function = getattr(self._provider, method, None)
        if not callable(function):
            return None

        with self.around():
            return function(*args, **accepted(function, kwargs))

    def _sync(self) -> None:
        turn = self._turns.take()
        if turn is not None:
            function = getattr(self._provider, "sync_turn", None)
            wants = accepted(function, {"messages": None}) if callable(function) else {}
            more = {"messages": to_messages(turn.history)} if wants else {}
            self._hook("sync_turn", turn.user, turn.assistant, session_id=turn.session_id, **more)

    def _queue(self, query: str, session_id: str) -> None:
        self._hook("queue_prefetch", query, session_id=session_id)

    def _end(self, history: tuple[Item, ...]) -> None:
        self._hook("on_session_end", to_messages(history))

    def _follow(self, new_id: str, old_id: str, reason: SwitchReason) -> None:
        kwargs: dict[str, object] = {"parent_session_id": old_id, "reset": reason == "new_session"}
        if reason == "rewind":
            kwargs["rewound"] = True

        self._hook("on_session_switch", new_id, **kwargs, reason=reason, platform="pod")

    # ------------------------------------------------------------------ supervision

    async def _ask(self, method: str, limit_s: float, *args: object, **kwargs: object) -> object:
        if self._provider is None:
            return None

        return await self._read(method, limit_s, lambda: self._hook(method, *args, **kwargs))

    async def _read(self, method: str, limit_s: float, call: Callable[[], object]) -> object:
        """Make a call that reads; None where it fails, or the call before it is still going on."""
        if self._reading.busy_s > limit_s:
            return None  # Told when the call that blocks it went over its limit.

        try:
            return await self._reading.call(call, timeout_s=limit_s)
        except TimeoutError:
            self._warn(method, f"{method} took over {limit_s:g} s; going on without it")
        except Exception as error:  # noqa: BLE001  # supervision point of a provider's code
            self._warn(method, f"{method} raised {said(error)}; going on without it")

        return None

    def _post(self, method: str, call: Callable[[], object]) -> bool:
        """Have a call made that takes note, in its turn, without waiting; returns whether it will.

        It will not where the provider is stuck, as what waits must not grow without end.
        """
        stuck_s = self.limits.stuck_s
        if self._noting.busy_s > stuck_s:
            self._warn("stuck", f"has been busy for over {stuck_s:g} s; it is told no more")
            return False

        def failed(error: Exception) -> None:
            self._warn(method, f"{method} raised {said(error)}; going on without it")

        self._noting.post(call, on_error=failed)
        return True

    def _warn(self, what: str, message: str) -> None:
        """Tell of a failure, the first time it happens at this place."""
        if what not in self._said:
            self._said.add(what)
            self.notice(f"memory provider {self.name}: {message}")


def _begun(
    settings: MemorySettings, session_id: str, kwargs: Mapping[str, object]
) -> MemoryProvider:
    """Load a provider and initialize it. Raises `MemoryUnavailable`, and what its code raises."""
    provider = load_provider(settings.provider, settings.plugins_dir)
    is_available = getattr(provider, "is_available", None)
    if callable(is_available) and not is_available():
        ask = getattr(provider, "unavailable_reason", None)
        why = ask() if callable(ask) else ""
        detail = f": {why}" if isinstance(why, str) and why.strip() else ""
        raise MemoryUnavailable(settings.provider, f"it says that it is not available{detail}")

    provider.initialize(session_id, **accepted(provider.initialize, kwargs))
    return provider


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


def _output(answer: object) -> ToolOutput:
    """Return a tool's answer as its output; a JSON object that is only an `error` is one."""
    output = render_output(answer)
    if not isinstance(answer, str) or '"error"' not in answer:
        return output

    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return output

    is_error = isinstance(value, dict) and value.keys() == {"error"}
    return ToolOutput(output.summary, output.content, is_error) if is_error else output


def said(error: BaseException) -> str:
    """Return an error's type and what it says, in one line."""
    if isinstance(error, EngineInterrupted) and error.__cause__ is not None:
        error = error.__cause__  # What raised it is of more interest than who caught it.

    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
