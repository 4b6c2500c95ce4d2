"""How often and after how long a failed request is repeated: the home of tenacity."""

from __future__ import annotations

import tenacity

from worker.llm.attempt import FailedAttempt, NotConnected
from worker.llm.endpoint import RetryPolicy
from worker.llm.types import Retrying


class OptionRefused(FailedAttempt):
    """The request is repeated without something that was refused by name."""

    def __init__(self, failed: FailedAttempt, said: str) -> None:
        super().__init__(failed.failure)
        self.said = said


def attempts(policy: RetryPolicy, waits: list[Retrying]) -> tenacity.AsyncRetrying:
    """Return the attempts of one request; each wait that is due is noted in `waits`, not slept.

    What fails with an `OptionRefused` is repeated at once, and is no failure of the provider: it
    counts for none of the limits.
    """
    first_s = policy.first_wait_s
    backoff = tenacity.wait_exponential(multiplier=first_s) + tenacity.wait_random(0, first_s)

    def wait_s(state: tenacity.RetryCallState) -> float:
        failed = _failed(state)
        asked = failed.failure.retry_after_s
        if isinstance(failed, OptionRefused):
            return 0.0
        if asked is None:
            return min(backoff(state), policy.max_wait_s)
        return min(max(asked, policy.min_wait_s), policy.max_wait_s)

    def must_stop(state: tenacity.RetryCallState) -> bool:
        failed = _failed(state)
        if isinstance(failed, OptionRefused):
            return False

        is_connecting = isinstance(failed, NotConnected)
        limit = policy.max_connect_attempts if is_connecting else policy.max_attempts
        asked = failed.failure.retry_after_s or 0.0
        waited = state.idle_for + state.upcoming_sleep
        return state.attempt_number >= limit or max(asked, waited) > policy.total_wait_s

    def note(state: tenacity.RetryCallState) -> None:
        failed = _failed(state)
        reason = failed.said if isinstance(failed, OptionRefused) else str(failed)
        waits.append(Retrying(state.attempt_number, state.upcoming_sleep, reason))

    async def no_sleep(_: float) -> None:
        """The client waits itself, after it has told of it."""

    return tenacity.AsyncRetrying(
        sleep=no_sleep,
        retry=tenacity.retry_if_exception(_is_repeated),
        wait=wait_s,
        stop=must_stop,
        before_sleep=note,
        reraise=True,
    )


def _is_repeated(error: BaseException) -> bool:
    if isinstance(error, OptionRefused):
        return True
    return isinstance(error, FailedAttempt) and error.failure.is_retryable


def _failed(state: tenacity.RetryCallState) -> FailedAttempt:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, FailedAttempt):
        raise TypeError(f"only a failed request is repeated, not {error!r}")

    return error
