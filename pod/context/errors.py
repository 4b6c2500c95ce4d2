"""What can go wrong between a pod and its context engine."""

from __future__ import annotations

from .words import error_line


class ContextError(Exception):
    """Anything that went wrong with a context engine."""


class EngineUnavailable(ContextError):
    """An engine was named and cannot be had; `notice` is the line for people."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"context engine {name!r}: {reason}")

    @property
    def notice(self) -> str:
        """One line: what failed, why, and what is used instead."""
        return (
            f"Failed to load context engine '{self.name}': {self.reason}"
            " — falling back to built-in compressor"
        )


class EngineNotFound(EngineUnavailable):
    """No engine of that name is bundled, in the plugins folder, or registered by a distribution."""

    @property
    def notice(self) -> str:
        """One line: what is missing, and what is used instead."""
        return f"Context engine '{self.name}' not found — falling back to built-in compressor"


class EngineMissingInPlugin(EngineUnavailable):
    """The plugin loaded, and neither registered an engine nor defines one."""

    @property
    def notice(self) -> str:
        """One line: what happened, and what is used instead."""
        return (
            f"Context engine '{self.name}' loaded but no engine instance found: {self.reason}"
            " — falling back to built-in compressor"
        )


class EngineNotCopied(EngineUnavailable):
    """A plugin hands the same engine to everybody, and it cannot be copied for one more pod."""

    @property
    def notice(self) -> str:
        """One line: what failed and why, what is used instead, and what would help."""
        return (
            f"Context engine '{self.name}' could not be safely copied for this agent "
            f"({self.reason}) — falling back to built-in compressor. An engine that holds a "
            "connection, a lock or a thread should override clone_for_agent()."
        )


class BridgeError(ContextError):
    """An engine returned messages that cannot become a history; the text says which row and why."""


class EngineTimeout(ContextError, TimeoutError):
    """An engine did not answer in time. Its thread goes on; a late result is discarded."""

    def __init__(self, what: str, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(f"{what} after {limit_s:g} s")


class EngineInterrupted(ContextError):
    """An engine raised something that is no `Exception`, such as a `KeyboardInterrupt` of its own.

    It is the cause of this error: raised on the event loop itself it would end the process.
    """

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"the engine raised {error_line(raised)}")


def as_raised(error: BaseException) -> BaseException:
    """Return what a plugin's code raised itself, which is of more interest than who caught it."""
    return error.__cause__ or error if isinstance(error, EngineInterrupted) else error


class FenceClosed(ContextError):
    """A compaction was given up before its commit; its result may not be used any more."""
