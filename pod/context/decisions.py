"""Whether an engine wants to compact now: every hook that has a say, in the contract's order.

Made in one go on the engine's thread. A hook that fails has no say; that it failed is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import evolve, frozen

from worker.items import Item

from .bridge import to_messages
from .engine import ContextEngine
from .notices import Failed, Tries
from .signature import overrides
from .words import one_line


@frozen
class Situation:
    """Where a pod stands when its engine is asked. Sizes are tokens."""

    items: tuple[Item, ...]
    tokens: int
    """What the next prompt would take, system prompt and tools included."""
    message_tokens: int
    """The messages' part of it."""
    at_turn_start: bool = False
    """Whether no request of this run has been made yet."""


@frozen
class Decision:
    """What an engine wants, and what people should know of it."""

    compress: bool = False
    below_threshold: bool = False
    """Whether it is for upkeep alone, the threshold not being reached."""
    block_reason: str = ""
    """Why it holds back, where it says so."""
    failed: tuple[Failed, ...] = ()
    """The hooks that raised, and what."""


def decide(engine: ContextEngine, situation: Situation) -> Decision:
    """Ask an engine. Raises only what is no `Exception`."""
    tries = Tries()
    return evolve(_Asked(engine, situation, tries).answer(), failed=tuple(tries.failed))


@frozen
class _Asked:
    engine: ContextEngine
    situation: Situation
    tries: Tries

    def answer(self) -> Decision:
        tokens, is_start = self.situation.tokens, self.situation.at_turn_start
        is_deferred = self._defers(tokens)
        if is_start and not is_deferred and self._is_near_threshold():
            self._raise_last_prompt(tokens)

        cooldown = self._cooldown()
        if is_deferred or cooldown or self._is_blocked():
            return Decision(block_reason=cooldown)

        if len(self.situation.items) < 2:
            return Decision()

        if self._says("should_compress", lambda: self.engine.should_compress(tokens)):
            return Decision(compress=True)

        if is_start and self._wants_upkeep():
            return Decision(compress=True, below_threshold=True)

        return Decision(block_reason=self._block_reason(tokens))

    def _says(self, what: str, function: Callable[[], object]) -> bool:
        """Return what a hook says; one that fails, or cannot be understood, says no."""
        return self.tries(what, lambda: bool(function())) is True

    def _number(self, name: str) -> int:
        value = self.tries(name, lambda: getattr(self.engine, name, 0))
        return value if isinstance(value, int) else 0

    def _defers(self, tokens: int) -> bool:
        hook = getattr(self.engine, "should_defer_preflight_to_real_usage", None)
        if not callable(hook):
            return False

        return self._says("should_defer_preflight_to_real_usage", lambda: hook(tokens))

    def _is_near_threshold(self) -> bool:
        """Tell by cheap signs whether the threshold may be reached."""
        protected = self._number("protect_first_n") + self._number("protect_last_n") + 1
        is_long = len(self.situation.items) > protected
        return is_long or self.situation.message_tokens >= self._number("threshold_tokens")

    def _raise_last_prompt(self, tokens: int) -> None:
        # -1: compacted, and not measured since. An estimate must not pass for a reading then.
        if 0 <= self._number("last_prompt_tokens") < tokens:
            self.tries(
                "last_prompt_tokens", lambda: setattr(self.engine, "last_prompt_tokens", tokens)
            )

    def _cooldown(self) -> str:
        """Return why the engine waits after a failure, in words; empty where it does not."""
        hook = getattr(self.engine, "get_active_compression_failure_cooldown", None)
        cooldown = (
            self.tries("get_active_compression_failure_cooldown", hook) if callable(hook) else None
        )
        if not isinstance(cooldown, Mapping):
            return ""

        left = cooldown.get("remaining_seconds", 1)
        if not isinstance(left, int | float) or left <= 0:
            return ""

        return f"after a failure it compacts nothing by itself for another {left:.0f} s"

    def _is_blocked(self) -> bool:
        # On the class: a stand-in whose attributes are all callable has no say in this.
        hook = getattr(type(self.engine), "_automatic_compression_blocked", None)
        if not callable(hook):
            return False

        return self._says("_automatic_compression_blocked", lambda: hook(self.engine))

    def _wants_upkeep(self) -> bool:
        if not overrides(self.engine, "should_compress_preflight"):
            return False

        messages = to_messages(self.situation.items)
        hook = self.engine.should_compress_preflight
        return self._says("should_compress_preflight", lambda: hook(messages))

    def _block_reason(self, tokens: int) -> str:
        if not overrides(self.engine, "should_compress_info"):
            return ""

        hook = self.engine.should_compress_info
        info = self.tries("should_compress_info", lambda: hook(tokens))
        reason = info[1] if isinstance(info, tuple | list) and len(info) > 1 else None
        return one_line(reason) if isinstance(reason, str) else ""
