"""Several models in the place of one: who is asked, when, and what is told of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import attrs
import pytest

from worker.errors import (
    BadAnswer,
    ContextOverflow,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamBroken,
)
from worker.items import Text, user_message
from worker.llm import LlmRequest
from worker.llm.fallback import FallbackClient
from worker.llm.types import Answer, Answered, Retrying, StopReason, StreamEvent, TextDelta

pytestmark = pytest.mark.anyio

REQUEST = LlmRequest(system="", items=[user_message("Hi")])


def answer(text: str = "", stop_reason: StopReason = "end") -> Answer:
    return Answer((Text(text),) if text else (), stop_reason, None, "m")


@attrs.define
class Model:
    """A client that says or raises what it is told to, in turn; the last stays."""

    provider: str
    says: list[Answer | Exception]
    model: str = "m"
    context_window: int | None = None
    asked: int = 0
    closed: bool = False
    first: str = ""
    """Text that streams before a failure."""

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamEvent, None]:
        said = self.says[min(self.asked, len(self.says) - 1)]
        self.asked += 1
        if self.first:
            yield TextDelta(self.first)
        if isinstance(said, Exception):
            raise said
        for part in said.parts:
            if isinstance(part, Text):
                yield TextDelta(part.text)
        yield Answered(said)

    async def aclose(self) -> None:
        self.closed = True


@attrs.define
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


async def ask(client: FallbackClient) -> list[StreamEvent]:
    async with aclosing(client.stream(REQUEST)) as stream:
        return [event async for event in stream]


def refused(
    status: int, *, key: bool = False, account: bool = False, policy: bool = False
) -> ProviderRefused:
    error = ProviderRefused("refused", provider="a", status=status)
    error.is_auth = error.is_auth or key
    error.is_account, error.is_policy = account, policy
    return error


@pytest.mark.parametrize(
    "failure",
    [
        ProviderUnavailable("a is overloaded", status=529),
        ProviderUnreachable("no connection to a"),
        BadAnswer("a answered a page"),
        refused(401),
        refused(403),
        refused(404),
        refused(402),
        refused(429, account=True),
        refused(400, key=True),
        refused(400, policy=True),
    ],
)
async def test_the_next_is_asked_where_one_cannot_answer(failure: ProviderError) -> None:
    first, second = Model("a", [failure]), Model("b", [answer("Hello")])
    client = FallbackClient([first, second])

    told, *rest = await ask(client)

    assert isinstance(told, Retrying)
    assert told.delay_s == 0
    assert told.reason == f"{failure.message}; asking b/m instead"
    assert rest == [TextDelta("Hello"), Answered(answer("Hello"))]
    assert (client.provider, client.model) == ("b", "m")


@pytest.mark.parametrize(
    "failure",
    [ContextOverflow("too long", status=400), refused(400), refused(422)],
)
async def test_what_is_wrong_with_the_request_is_wrong_everywhere(failure: ProviderError) -> None:
    first, second = Model("a", [failure]), Model("b", [answer("Hello")])

    with pytest.raises(type(failure)) as caught:
        await ask(FallbackClient([first, second]))

    assert caught.value is failure
    assert second.asked == 0


async def test_an_answer_that_broke_off_is_not_begun_again_elsewhere() -> None:
    first = Model("a", [StreamBroken("broke off")], first="Hel")
    second = Model("b", [answer("Hello")])

    with pytest.raises(StreamBroken, match="broke off"):
        await ask(FallbackClient([first, second]))

    assert second.asked == 0


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
async def test_f04_an_answer_that_only_refuses_is_asked_of_the_next(reason: StopReason) -> None:
    first, second = Model("a", [answer("", reason)]), Model("b", [answer("Hello")])
    client = FallbackClient([first, second])

    told, *rest = await ask(client)

    assert isinstance(told, Retrying)
    assert "a declined to answer" in told.reason
    assert rest[-1] == Answered(answer("Hello"))
    # It answers other questions: it does not rest for it.
    await ask(client)
    assert first.asked == 2


async def test_one_whose_rules_forbid_a_request_does_not_rest_for_it() -> None:
    first = Model("a", [refused(400, policy=True), answer("Hi")])
    client = FallbackClient([first, Model("b", [answer("Hello")])])

    await ask(client)
    assert await ask(client) == [TextDelta("Hi"), Answered(answer("Hi"))]


async def test_a_refusal_of_the_last_one_stands() -> None:
    both = [Model("a", [answer("", "refusal")]), Model("b", [answer("", "refusal")])]

    events = await ask(FallbackClient(both))

    assert events[-1] == Answered(answer("", "refusal"))


async def test_a_refusal_in_words_stands() -> None:
    first, second = Model("a", [answer("I cannot.", "refusal")]), Model("b", [answer("Hello")])

    events = await ask(FallbackClient([first, second]))

    assert events[-1] == Answered(answer("I cannot.", "refusal"))
    assert second.asked == 0


async def test_one_that_failed_rests_and_is_the_first_choice_again_afterwards() -> None:
    clock = Clock()
    first = Model("a", [ProviderUnavailable("down"), answer("back")])
    second = Model("b", [answer("Hello")])
    client = FallbackClient([first, second], rest_s=300, now_s=clock)

    await ask(client)
    clock.now_s = 299
    await ask(client)
    assert (first.asked, second.asked) == (1, 2)

    clock.now_s = 301
    events = await ask(client)
    assert events[-1] == Answered(answer("back"))
    assert (client.provider, second.asked) == ("a", 2)


async def test_one_that_rests_is_still_asked_where_nobody_else_answers() -> None:
    first = Model("a", [ProviderUnavailable("down"), answer("back")])
    second = Model("b", [answer("Hello"), ProviderUnavailable("down too")])
    client = FallbackClient([first, second])

    await ask(client)
    events = await ask(client)

    assert events[-1] == Answered(answer("back"))


async def test_where_all_fail_the_error_names_each() -> None:
    models = [
        Model("a", [ProviderUnavailable("a is overloaded (529)")]),
        Model("b", [ProviderUnreachable("no connection to b")]),
    ]

    with pytest.raises(ProviderUnreachable) as caught:
        await ask(FallbackClient(models))

    assert str(caught.value) == ("no model answered: a is overloaded (529); no connection to b")


async def test_all_are_closed_also_where_one_fails_to() -> None:
    class Stuck(Model):
        async def aclose(self) -> None:
            raise OSError("stuck")

    first, second = Stuck("a", [answer("x")]), Model("b", [answer("x")])

    with pytest.raises(OSError, match="stuck"):
        await FallbackClient([first, second]).aclose()

    assert second.closed


def test_nobody_to_ask_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FallbackClient([])
