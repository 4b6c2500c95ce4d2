"""Several models in the place of one: the next is asked where one cannot answer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

from worker.errors import (
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    StreamBroken,
)
from worker.llm.types import Answered, LlmClient, LlmRequest, Retrying, StreamEvent

REST_S = 300.0
"""How long, in seconds, a client that failed is left alone before it is the first choice again."""

_REFUSED_AT_THE_DOOR = frozenset({401, 402, 403, 404, 405})
_REFUSED_ANSWERS = frozenset({"refusal", "content_filter"})


class FallbackClient:
    """An `LlmClient` over several: each request goes to the first that can answer it.

    The next one is asked where a client is unavailable or unreachable after its own retries, where
    it answers nonsense, refuses the key, the account or the model, and where it refuses to say
    anything at all; never after content, and never for a prompt that is too long or malformed. A
    client that failed rests for `rest_s`; meanwhile the others go first. What the client is called,
    and its window, are those of the client that was asked last.
    """

    def __init__(
        self,
        clients: Sequence[LlmClient],
        *,
        rest_s: float = REST_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a client of `clients`, in order of preference; raises `ValueError` for none."""
        if not clients:
            raise ValueError("a fallback needs at least one client")

        self._clients = tuple(clients)
        self._rest_s = rest_s
        self._now_s = now_s
        self._active = self._clients[0]
        self._rests_until: dict[int, float] = {}

    @property
    def provider(self) -> str:
        """The kind of the provider that was asked last."""
        return self._active.provider

    @property
    def model(self) -> str:
        """The model that was asked last."""
        return self._active.model

    @property
    def context_window(self) -> int | None:
        """The window of the model that was asked last, where it is known."""
        return self._active.context_window

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send `request` and yield what comes back; `Answered` is the last event.

        A `Retrying` tells of each change of client.

        Raises:
            ProviderError: As the client that was asked last says. Where several failed, the message
                names each.
        """
        failed: list[ProviderError] = []
        order = list(self._in_order())
        for place, number in enumerate(order):
            self._active = self._clients[number]
            is_last = place == len(order) - 1
            try:
                async with aclosing(self._asked(request, may_refuse=is_last)) as stream:
                    async for event in stream:
                        yield event
            except ProviderError as error:
                failed.append(error)
                if is_last or not _may_pass_on(error):
                    raise _together(failed) from error.__cause__

                if not _is_of_the_request(error):
                    self._rests_until[number] = self._now_s() + self._rest_s
                following = self._clients[order[place + 1]]
                reason = f"{error.message}; asking {following.provider}/{following.model} instead"
                yield Retrying(place + 1, 0.0, reason)
            else:
                self._rests_until.pop(number, None)
                return

    async def _asked(
        self, request: LlmRequest, *, may_refuse: bool
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield what the active client says; an answer that only refuses is `_Declined`."""
        said_something = False
        async with aclosing(self._active.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, Answered) and not (said_something or may_refuse):
                    reason = event.answer.stop_reason
                    if reason in _REFUSED_ANSWERS and not event.answer.parts:
                        raise _Declined(
                            f"{self.provider} declined to answer ({reason.replace('_', ' ')})",
                            provider=self.provider,
                        )

                said_something = said_something or not isinstance(event, Retrying)
                yield event

    def _in_order(self) -> Iterator[int]:
        """Yield the places of all clients: those that rest come last, the soonest awake first."""
        now_s = self._now_s()
        resting = {n: until for n, until in self._rests_until.items() if until > now_s}
        yield from (n for n in range(len(self._clients)) if n not in resting)
        yield from sorted(resting, key=resting.__getitem__)

    async def aclose(self) -> None:
        """Close every client; idempotent. Raises the first failure after all were asked."""
        failures: list[Exception] = []
        for client in self._clients:
            try:
                await client.aclose()
            # The supervision point of closing: one that fails must not leave the others open.
            except Exception as error:  # noqa: BLE001  clients may raise anything; raised below
                failures.append(error)

        if failures:
            raise failures[0]


class _Declined(ProviderRefused):
    """A whole answer that says nothing but no."""

    is_policy = True


def _may_pass_on(error: ProviderError) -> bool:
    """Tell whether another model may do better with the same request."""
    match error:
        case StreamBroken() | ContextOverflow():
            return False
        case ProviderRefused():
            is_model = error.status in _REFUSED_AT_THE_DOOR
            return error.is_auth or error.is_account or error.is_policy or is_model
        case _:
            return True  # Unavailable, unreachable or talking nonsense, after its own retries.


def _is_of_the_request(error: ProviderError) -> bool:
    """Tell whether it is what was asked that is not answered: other requests may well be."""
    return isinstance(error, ProviderRefused) and error.is_policy


def _together(failed: Sequence[ProviderError]) -> ProviderError:
    """Return the last failure; where others came before it, its message names them all."""
    last = failed[-1]
    if len(failed) > 1:
        last.message = "no model answered: " + "; ".join(error.message for error in failed)
        last.args = (last.message,)

    return last
