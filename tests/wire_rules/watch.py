"""Every request that a test sends is watched: its rules, and the prefix it shares with others.

Requests of this process are seen as httpx sends them; those of processes that a test starts, as the
loopback servers of the tests receive them. What is wrong fails the test once it has ended, so that
nobody's error handling can swallow it. `tests/conftest.py` installs both halves.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from attrs import define, field

from .checker import api_of, check
from .prefix import Prefixes
from .report import BrokenRequest

BROKEN_REQUESTS = "broken_requests"
MOVES_PREFIX = "moves_prefix"
MARKERS = {
    BROKEN_REQUESTS: "this test sends requests that a provider would refuse, and why",
    MOVES_PREFIX: "consecutive requests of this test need not share their prefix, and why",
}


@define
class Watch:
    """What was seen of the requests of one test."""

    requests: int = 0
    broken: list[str] = field(factory=list)
    moved: list[str] = field(factory=list)
    _prefixes: Prefixes = field(factory=Prefixes)
    _lock: threading.Lock = field(factory=threading.Lock)

    def saw(
        self, path: str, body: bytes, headers: Mapping[str, str], client: object | None = None
    ) -> None:
        """Take a request; what is none of a known API is left alone."""
        api = api_of(path)
        if api is None:
            return

        with self._lock:
            self.requests += 1
            try:
                value = check(path, body, headers)
            except BrokenRequest as error:
                self.broken.append(f"request {self.requests}: {error}")
                return

            moved = self._prefixes.check(api, value, client)
            if moved:
                self.moved.append(f"request {self.requests} to {path}: {moved}")

    def verdict(self, reasons: Mapping[str, str | None]) -> str | None:
        """What is wrong, given the markers of the test and their reasons; None: nothing."""
        said = []
        for name, found in ((BROKEN_REQUESTS, self.broken), (MOVES_PREFIX, self.moved)):
            if name not in reasons:
                said += found
            elif not reasons[name]:
                said.append(f"the marker {name} says why: {name}('a reason')")
            elif not found and self.requests:
                said.append(
                    f"the marker {name} is not needed: no request of this test is like that"
                )

        return "\n".join(said) or None


_current = Watch()


def current() -> Watch:
    """The watch of the test that runs now."""
    return _current


@contextmanager
def watching(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """Watch one test; it fails at its end where one of its requests was wrong."""
    global _current  # noqa: PLW0603  one test runs at a time, and servers' threads need to find it
    _current = mine = Watch()
    yield mine

    reasons = {
        mark.name: next(iter(mark.args), mark.kwargs.get("reason"))
        for mark in reversed(list(request.node.iter_markers()))
        if mark.name in MARKERS
    }
    problem = mine.verdict(reasons)
    if problem:
        pytest.fail(problem, pytrace=False)


Send = Callable[..., Awaitable[httpx.Response]]


def watched(send: Send) -> Send:
    """Return `AsyncClient.send` with each request shown to the current watch first."""

    async def shown(self: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        path = request.url.raw_path.decode("ascii")
        if api_of(path):
            current().saw(path, await request.aread(), dict(request.headers), client=self)

        return await send(self, request, **more)

    return shown
