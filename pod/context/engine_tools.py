"""The tools that an engine offers the model, as the pod's own kind of tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from attrs import frozen

from worker.items import Item
from worker.llm.types import ToolSpec
from worker.tools import Tool, ToolOutput, render_output

from .bridge import to_messages
from .calls import EngineCalls
from .engine import ContextEngine
from .foreign_tools import BadToolSchema, spec_of
from .signature import accepted_keywords, overrides


@frozen
class EngineTools:
    """Makes tools of an engine's schemas; a call of one goes to the engine, in its turn."""

    engine: ContextEngine
    calls: EngineCalls

    async def offered(
        self, history: Callable[[], tuple[Item, ...]], taken: Collection[str]
    ) -> list[Tool]:
        """Return the engine's tools. Those that cannot be had are left out, and why is told once.

        `history` gives the live history at the time of a call; names in `taken` stay with whoever
        has them.
        """
        if not overrides(self.engine, "get_tool_schemas"):
            return []

        schemas = await self.calls.guarded("get_tool_schemas", self._schemas)
        if not isinstance(schemas, list | tuple):
            if schemas is not None:
                self._leave_out("get_tool_schemas", f"it gave a {type(schemas).__name__}")
            return []

        names = set(taken)
        tools = []
        for spec in self._specs(schemas):
            if spec.name in names:
                self._leave_out(spec.name, "the pod has a tool of that name already")
                continue

            names.add(spec.name)
            call = self._caller(spec.name, history)
            tools.append(Tool(spec.name, spec.description, spec.parameters, call))

        return tools

    def _schemas(self) -> object:
        return self.engine.get_tool_schemas()

    def _specs(self, schemas: list[object] | tuple[object, ...]) -> Iterator[ToolSpec]:
        for schema in schemas:
            try:
                yield spec_of(schema)
            except BadToolSchema as error:
                self.calls.notices.once(f"tool schema: {error}", f"{error}; it is left out")

    def _leave_out(self, name: str, why: str) -> None:
        self.calls.notices.once(f"tool {name}", f"its tool {name!r} is left out: {why}")

    def _caller(
        self, name: str, history: Callable[[], tuple[Item, ...]]
    ) -> Callable[[dict[str, Any]], Any]:
        async def call(arguments: dict[str, Any]) -> ToolOutput:
            items = history()

            def handle() -> object:
                hook = self.engine.handle_tool_call
                keywords: dict[str, object] = {"messages": to_messages(items)}
                return hook(name, arguments, **accepted_keywords(hook, keywords, positional=2))

            try:
                answer = await self.calls.call(handle)
            except Exception as error:  # noqa: BLE001  # supervision point of engine code
                text = json.dumps({"error": f"Context engine tool '{name}' failed: {error}"})
                return ToolOutput(text, is_error=True)

            return render_output(answer)

        return call
