"""What every test stands on: asyncio, a home of its own, and no network beyond this machine.

Every request to a model's API is held to that API's rules, and to the prefix of those before it.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings

from tests.wire_rules.watch import Watch, watched, watching

# A loaded machine is no counterexample; pytest's own timeout bounds each test.
settings.register_profile("podworker", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "podworker")

# A run started in the background has Ctrl-C ignored, and so would every process that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the one backend we promise."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the developer's own home, proxies, keys or colours."""
    for name in list(os.environ):
        is_proxy = name.lower() in _PROXY_VARIABLES
        is_key = name.upper().endswith(("_API_KEY", "_AUTH_TOKEN"))
        if is_proxy or is_key:
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost,::1")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost,::1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    # Not the `home` fixture: it makes no folder, so a test that needs none leaves none behind.
    monkeypatch.setenv("POD_HOME", str(tmp_path / "pod-home"))


@pytest.fixture
def home(tmp_path: Path, _plain_environment: None) -> Path:
    """An empty POD_HOME, also set in the environment."""
    path = tmp_path / "pod-home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """Every connect of this process that leaves the machine fails, and says why."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _guarded(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex))
        yield


@pytest.fixture(autouse=True, scope="session")
def _requests_are_seen() -> Iterator[None]:
    """Whatever this process sends to a model's API is shown to the watch of the running test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.AsyncClient, "send", watched(httpx.AsyncClient.send))
        yield


@pytest.fixture(autouse=True)
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """A test fails at its end where it sent a wrong request; the markers are in `watch.py`."""
    with watching(request) as mine:
        yield mine


def _guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guard(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            message = f"tests stay on this machine: connecting to {address[0]} is refused"
            raise PermissionError(message)
        return connect(self, address)

    return guard


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
