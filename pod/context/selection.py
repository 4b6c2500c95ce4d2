"""`select_context`: an engine chooses what one request holds. It fails open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from attrs import frozen

from pod.errors import RequestCancelled
from worker.items import Item, is_turn_start
from worker.ports import Selection

from .bridge import from_selection, to_messages, to_request_messages
from .calls import EngineCalls
from .engine import ContextEngine, Message
from .errors import BridgeError, EngineInterrupted, EngineTimeout
from .notices import said
from .signature import accepted_keywords, overrides

HOOK = "select_context"


@frozen
class Selector:
    """Asks an engine that overrides `select_context`; others cost nothing."""

    engine: ContextEngine
    calls: EngineCalls

    async def select(
        self, history: Sequence[Item], system_prompt: str, items: list[Item]
    ) -> Selection | None:
        """Return what the engine selects of `items`, or None to leave them.

        Raises:
            RequestCancelled: The engine raised what is no `Exception`, to cancel the request.
        """
        if not overrides(self.engine, HOOK):
            return None

        given = tuple(history)
        try:
            return await self.calls.call(
                lambda: self._selected(given, system_prompt, items), timeout_s=self.calls.limit_s
            )
        except EngineTimeout:
            self.calls.tell_stuck(HOOK)
        except BridgeError as error:
            self.calls.notices.once(HOOK, str(error))
        except EngineInterrupted as error:
            name, why = self.calls.notices.engine, said(error.__cause__ or error)
            raise RequestCancelled(f"the context engine {name} cancelled it: {why}") from error
        except Exception as error:  # noqa: BLE001  # supervision point of engine code: fails open
            self.calls.notices.failed(HOOK, error)

        return None

    def _selected(
        self, history: tuple[Item, ...], system_prompt: str, items: list[Item]
    ) -> Selection | None:
        """Ask, and read what is answered: a plugin's objects, on the plugin's thread."""
        chosen = self._ask(history, system_prompt, items)
        if chosen is None:
            return None

        if not is_selection(chosen):
            raise BridgeError(
                "Context engine select_context returned an invalid value (not a non-empty list "
                f"of dicts); ignoring (engine={self.calls.notices.engine})"
            )

        try:
            return from_selection(chosen, system_prompt, items)
        except BridgeError as error:
            message = f"select_context returned messages that hold no: {error}"
            raise BridgeError(message) from error

    def _ask(self, history: tuple[Item, ...], system_prompt: str, items: list[Item]) -> object:
        # All of it is made for this one call: what an engine does to it ends with it.
        newest = next((item for item in reversed(history) if is_turn_start(item)), None)
        incoming: Message | None = to_messages([newest])[0] if newest is not None else None
        keywords: dict[str, object] = {
            "conversation_messages": to_messages(history),
            "incoming_message": incoming,
            "budget_tokens": getattr(self.engine, "context_length", 0) or 0,
        }
        hook: Callable[..., object] = self.engine.select_context
        given = to_request_messages(system_prompt, items)
        return hook(given, **accepted_keywords(hook, keywords, positional=1))


def is_selection(value: object) -> TypeGuard[list[Message]]:
    """Tell whether `value` is what a selection must be: messages, at least one."""
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) for m in value)
