"""What a plugin brings beside its engine, at work in a pod: hooks at their moments, and tools.

Hooks look on and advise; none of them can stop a run by failing. The one exception is a guard:
where `pre_tool_call` fails, the call is not run, as nobody has said that it may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from attrs import define, evolve, field

from worker.hooks import Ask, ContinueWith, Hook, RequestView, Skip, ToolCallView, ToolResultView
from worker.items import AssistantMessage, ToolCall
from worker.tools import Tool, ToolOutput, render_output

from .bridge import to_messages
from .loader import LoadedPlugin
from .plugin_facts import (
    Scene,
    call_and_result,
    call_facts,
    identity,
    newest_question,
    open_call,
    output_of,
    replaced,
    result_facts,
    turn_facts,
)
from .plugin_hooks import Answer, HookCaller
from .plugin_tools import ToolSurroundings, as_tool, why_unavailable
from .words import one_line

NOTE_KIND = "plugin"
LONGEST_NOTE = 32_768
"""Of what a hook adds to a turn, in characters; a longer text is cut."""


@define(eq=False)
class PluginHost:
    """Calls what one pod's plugin registered beside its engine."""

    plugin: LoadedPlugin
    caller: HookCaller
    scene: Callable[[], Scene]
    clock: Callable[[], float] = time.monotonic
    _turn: str = ""
    """The message that `pre_llm_call` was last called for."""
    _session: str = ""
    """The session that `on_session_start` was last called for."""
    _calls: dict[str, float] = field(factory=dict)
    """How long each call took that has run and was not told of yet, in ms, by its uid."""

    @property
    def name(self) -> str:
        """What the manifest names the plugin by."""
        return self.plugin.info.name

    # ------------------------------------------------------------------ hooks of a run

    def hooks(self) -> list[Hook]:
        """Return the hooks of a Worker that the plugin's own hang on."""
        return [
            Hook("PreLlmRequest", self._before_request, "ignore", f"{self.name}: pre_llm_call"),
            Hook("PreToolCall", self._before_tool, "fail", f"{self.name}: pre_tool_call"),
            Hook("PostToolCall", self._after_tool, "ignore", f"{self.name}: post_tool_call"),
        ]

    async def _before_request(self, _view: RequestView) -> ContinueWith | None:
        """Call `pre_llm_call` once a turn, before its first request."""
        scene = self.scene()
        place = newest_question(scene.history)
        if place is None or scene.history[place].uid == self._turn:
            return None

        self._turn = scene.history[place].uid
        if any(isinstance(item, AssistantMessage) for item in scene.history[place:]):
            return None  # A turn that an earlier launch began: it was called then.

        is_first = not any(isinstance(item, AssistantMessage) for item in scene.history)
        if is_first and scene.session_id != self._session:
            self._session = scene.session_id
            await self.caller.call("on_session_start", lambda: identity(scene))

        answers = await self.caller.call(
            "pre_llm_call",
            lambda: {
                **turn_facts(scene, place),
                "is_first_turn": is_first,
                "parent_session_id": "",
                "sender_id": "",
            },
        )
        texts = [text for text in map(_context_of, answers) if text]
        return ContinueWith(("\n\n".join(texts),), NOTE_KIND) if texts else None

    async def _before_tool(self, view: ToolCallView) -> Skip | Ask | None:
        if not self.caller.has("pre_tool_call"):
            return None

        scene = self.scene()
        call = ToolCall(view.call_id, view.name, view.arguments, view.call_uid)
        answers = await self.caller.call("pre_tool_call", lambda: call_facts(scene, call))
        return _verdict(answers)

    async def _after_tool(self, view: ToolResultView) -> None:
        duration_ms = self._calls.pop(view.call_uid, 0.0)
        if not self.caller.has("post_tool_call"):
            return

        scene = self.scene()
        call, result = call_and_result(scene.history, view.call_uid)
        if call is None or result is None:
            return

        await self.caller.call(
            "post_tool_call", lambda: result_facts(scene, call, output_of(result), duration_ms)
        )

    # ------------------------------------------------------------------ tools

    def watched(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools with their results passed through `transform_tool_result`."""
        return [self._watched(tool) for tool in tools]

    def tools(
        self, taken: AbstractSet[str], same: AbstractSet[str], env: Mapping[str, str]
    ) -> list[Tool]:
        """Return the tools that the plugin registered and that can be had.

        One whose name is `taken` is left out and told of; one that is among the `same` is there
        already. Runs the plugin's own checks: never on the event loop.
        """
        surroundings = ToolSurroundings(self._tool_facts, self.caller.around)
        offered = []
        for name, registered in self.plugin.registration.tools.items():
            if name in same:
                continue

            why = "another tool has its name" if name in taken else why_unavailable(registered, env)
            if why:
                self.caller.tell_once(f"the tool {name} is left out: {why}")
            else:
                offered.append(as_tool(registered, surroundings))

        return offered

    def _tool_facts(self) -> Mapping[str, object]:
        scene = self.scene()
        return identity(scene) | {
            "task_id": scene.session_id,
            "messages": to_messages(scene.history),
        }

    def _watched(self, tool: Tool) -> Tool:
        async def call(arguments: dict[str, Any]) -> ToolOutput:
            if not any(map(self.caller.has, ("transform_tool_result", "post_tool_call"))):
                return await tool.call(arguments)

            began = self.clock()
            # The call that this is; by its name and arguments, as a tool is not told of it.
            scene = self.scene()
            this = open_call(scene.history, tool.name, arguments, self._calls)
            if this is not None:
                self._calls[this.call_uid] = 0.0  # Nobody else is this call.

            output = render_output(await tool.call(arguments))
            duration_ms = 1000 * (self.clock() - began)
            if this is None:
                return output

            self._calls[this.call_uid] = duration_ms
            return await self._transformed(scene, this, output, duration_ms)

        return evolve(tool, call=call)

    async def _transformed(
        self, scene: Scene, call: ToolCall, output: ToolOutput, duration_ms: float
    ) -> ToolOutput:
        if not self.caller.has("transform_tool_result"):
            return output

        answers = await self.caller.call(
            "transform_tool_result", lambda: result_facts(scene, call, output, duration_ms)
        )
        texts = (answer.value for answer in answers if isinstance(answer.value, str))
        text = next(texts, None)
        return output if text is None else replaced(output, text)

    # ------------------------------------------------------------------ ends and beginnings

    async def run_ended(self, outcome: str, text: str) -> None:
        """Tell of a run's end: `post_llm_call` after a whole turn, `on_session_end` after any."""
        scene = self.scene()
        place = newest_question(scene.history)
        if outcome == "finished" and place is not None:
            await self.caller.call(
                "post_llm_call",
                lambda: {**turn_facts(scene, place), "assistant_response": text},
            )

        ending = {
            "task_id": scene.session_id,
            "turn_id": scene.history[place].uid if place is not None else "",
            "completed": outcome == "finished",
            "failed": outcome == "error",
            "interrupted": outcome == "cancelled",
            "turn_exit_reason": outcome,
        }
        await self.caller.call("on_session_end", lambda: identity(scene) | ending)

    async def session_reset(self, old_id: str) -> None:
        """Tell that the pod left a session for the present one."""
        scene = self.scene()
        more = {"old_session_id": old_id, "new_session_id": scene.session_id}
        await self.caller.call("on_session_reset", lambda: identity(scene) | more)

    async def unloaded(self) -> None:
        """Tell that the pod ends: what the plugin wants called then is called."""
        await self.caller.call("on_unload", dict)

    async def session_left(self) -> None:
        """Tell that the pod takes leave of its session."""
        scene = self.scene()
        await self.caller.call("on_session_finalize", lambda: identity(scene))


# ------------------------------------------------------------------ what hooks answer


def _context_of(answer: Answer) -> str:
    value = answer.value
    text = value.get("context") if isinstance(value, Mapping) else value
    if not isinstance(text, str) or not text.strip():
        return ""

    if len(text) <= LONGEST_NOTE:
        return text

    return f"{text[:LONGEST_NOTE]}\n[… {len(text) - LONGEST_NOTE:,} characters left out …]"


def _verdict(answers: Sequence[Answer]) -> Skip | Ask | None:
    """Return what `pre_tool_call` hooks decided: any that blocks wins, then any that asks."""
    asks = None
    for answer in answers:
        if answer.failure:
            return Skip(f"{answer.failure}, and so did not say that the call may run")

        directive = answer.value if isinstance(answer.value, Mapping) else {}
        message = one_line(directive.get("message"))
        match directive.get("action"):
            case "block":
                return Skip(message or "a hook of the engine's plugin blocks it")
            case "modify":
                return Skip(
                    "a hook of the engine's plugin wants to change its arguments, and a call is "
                    "only run as it is in the log"
                )
            case "approve":
                asks = asks or Ask(message)
            case _:
                pass  # It only looked on.

    return asks
