"""The errors of the worker package.

WorkerError
├── ToolDefinitionError      a tool that cannot be offered: no annotations, a clashing name
├── HistoryError             a history that is not valid: a uid twice, a watermark outside of it
├── OutputInvalid            the answer is not of the type asked for, also after its repair
├── HookFailed               a hook that must not fail raised, or returned no action
└── ProviderError            whatever a provider, or the way to it, did
    ├── ProviderRefused      a refused key, permission or request: repeating will not help
    ├── ContextOverflow      the prompt is longer than the model's window
    ├── ProviderUnavailable  overloaded, limited or failing, after all retries
    ├── ProviderUnreachable  no connection to the host, after all retries
    ├── StreamBroken         the answer stopped in the middle; `partial` holds what had arrived
    └── BadAnswer            the provider answered something that is not its protocol
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .llm.types import Answer


class WorkerError(Exception):
    """Base of every error of this package. `hint` says what can be done, where something can."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ToolDefinitionError(WorkerError):
    """A tool cannot be offered as it is defined."""


class HistoryError(WorkerError):
    """A list of items is not a valid history."""


class OutputInvalid(WorkerError):
    """The answer is not the `output=` model that was asked for, also after one repair."""


class HookFailed(WorkerError):
    """A hook that must not fail raised, or returned something that is not an action."""


class ProviderError(WorkerError):
    """A request failed; `status` (HTTP) and `code` (the provider's word) where they are known."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        code: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider
        self.status = status
        self.code = code


class ProviderRefused(ProviderError):
    """Authentication, permission or an invalid request: the same request will fail again.

    `is_auth` tells that it is the key that was refused; a status of 401 or 403 says so unless the
    provider says otherwise. `is_account` tells that the account behind the key cannot pay: no
    credit, no quota left. `is_policy` tells that what was asked for is against its rules.
    """

    is_account: bool = False
    is_policy: bool = False

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        code: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, provider=provider, status=status, code=code, hint=hint)
        self.is_auth = status in {401, 403}


class ContextOverflow(ProviderError):
    """The prompt does not fit the window; `limit_tokens` is the window, where it was named."""

    limit_tokens: int | None = None


class ProviderUnavailable(ProviderError):
    """The provider is overloaded, limits us or fails, and retrying did not help."""

    retry_after_s: float | None = None


class ProviderUnreachable(ProviderError):
    """No connection could be made, and retrying did not help."""


class StreamBroken(ProviderError):
    """The answer stopped in the middle; `partial` is what had arrived. Never blindly repeated."""

    partial: Answer | None = None


class BadAnswer(ProviderError):
    """The provider's answer is not its protocol: a stray page, a body without choices, no JSON."""
