"""A Worker: the turn loop around a streaming LLM client, with tools, hooks and token accounting.

Everything is loaded on first use, so that a module of tools costs little to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import (
        BadAnswer,
        ContextOverflow,
        HistoryError,
        HookFailed,
        OutputInvalid,
        ProviderError,
        ProviderRefused,
        ProviderUnavailable,
        ProviderUnreachable,
        StreamBroken,
        ToolDefinitionError,
        WorkerError,
    )
    from .hooks import (
        Abort,
        Ask,
        Cancel,
        Continue,
        ContinueWith,
        Hook,
        HookPoint,
        Pause,
        Skip,
        SyntheticResult,
        Yield,
    )
    from .items import (
        AssistantMessage,
        Covers,
        Image,
        Item,
        Reasoning,
        SummaryMessage,
        SystemNote,
        Text,
        ToolCall,
        ToolResult,
        UserMessage,
        new_uid,
        user_message,
    )
    from .llm.types import (
        Answer,
        LlmClient,
        LlmRequest,
        RequestOptions,
        ToolSpec,
        Usage,
    )
    from .ports import Journal, MemoryJournal, Ports, RequestStage
    from .projection import repair
    from .prune import PruneConfig, PrunePlan, apply_prune, plan_prune
    from .tokens import Occupancy, TokenMeter
    from .tools import Tool, ToolOutput, run_command, tool
    from .worker import Worker, WorkerConfig, WorkerResult

_HOMES = {
    "worker.errors": (
        "BadAnswer",
        "ContextOverflow",
        "HistoryError",
        "HookFailed",
        "OutputInvalid",
        "ProviderError",
        "ProviderRefused",
        "ProviderUnavailable",
        "ProviderUnreachable",
        "StreamBroken",
        "ToolDefinitionError",
        "WorkerError",
    ),
    "worker.hooks": (
        "Abort",
        "Ask",
        "Cancel",
        "Continue",
        "ContinueWith",
        "Hook",
        "HookPoint",
        "Pause",
        "Skip",
        "SyntheticResult",
        "Yield",
    ),
    "worker.items": (
        "AssistantMessage",
        "Covers",
        "Image",
        "Item",
        "Reasoning",
        "SummaryMessage",
        "SystemNote",
        "Text",
        "ToolCall",
        "ToolResult",
        "UserMessage",
        "new_uid",
        "user_message",
    ),
    "worker.llm.types": (
        "Answer",
        "LlmClient",
        "LlmRequest",
        "RequestOptions",
        "ToolSpec",
        "Usage",
    ),
    "worker.ports": ("Journal", "MemoryJournal", "Ports", "RequestStage"),
    "worker.projection": ("repair",),
    "worker.prune": ("PruneConfig", "PrunePlan", "apply_prune", "plan_prune"),
    "worker.tokens": ("Occupancy", "TokenMeter"),
    "worker.tools": ("Tool", "ToolOutput", "run_command", "tool"),
    "worker.worker": ("Worker", "WorkerConfig", "WorkerResult"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Abort",
    "Answer",
    "Ask",
    "AssistantMessage",
    "BadAnswer",
    "Cancel",
    "ContextOverflow",
    "Continue",
    "ContinueWith",
    "Covers",
    "HistoryError",
    "Hook",
    "HookFailed",
    "HookPoint",
    "Image",
    "Item",
    "Journal",
    "LlmClient",
    "LlmRequest",
    "MemoryJournal",
    "Occupancy",
    "OutputInvalid",
    "Pause",
    "Ports",
    "ProviderError",
    "ProviderRefused",
    "ProviderUnavailable",
    "ProviderUnreachable",
    "PruneConfig",
    "PrunePlan",
    "Reasoning",
    "RequestOptions",
    "RequestStage",
    "Skip",
    "StreamBroken",
    "SummaryMessage",
    "SyntheticResult",
    "SystemNote",
    "Text",
    "TokenMeter",
    "Tool",
    "ToolCall",
    "ToolDefinitionError",
    "ToolOutput",
    "ToolResult",
    "ToolSpec",
    "Usage",
    "UserMessage",
    "Worker",
    "WorkerConfig",
    "WorkerError",
    "WorkerResult",
    "Yield",
    "apply_prune",
    "new_uid",
    "plan_prune",
    "repair",
    "run_command",
    "tool",
    "user_message",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
