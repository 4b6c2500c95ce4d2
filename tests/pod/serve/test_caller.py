"""A blocking connection to what listens where a pod should."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pod.home import Home
from pod.serve.caller import Caller, Unanswered
from pod.serve.places import Places, ensure_run_folder, reachable


@contextmanager
def saying(places: Places, said: bytes) -> Iterator[None]:
    """Have something listen at the pod's socket that says this to whoever comes, and no more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        with reachable(places.socket) as short:
            listening.bind(short)

        listening.listen()

        def greet() -> None:
            client, _ = listening.accept()
            with client:
                client.sendall(said)
                client.recv(1 << 16)

        greeting = threading.Thread(target=greet)
        greeting.start()
        yield
        greeting.join()


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[1]\n", b"\xff\n", b"7\n"])
def test_what_is_no_pod_is_told_as_that(tmp_path: Path, said: bytes) -> None:
    home = Home(tmp_path)
    ensure_run_folder(home)
    places = Places.of(home, "reviewer")
    with (
        saying(places, said),
        pytest.raises(Unanswered, match="no line of a pod's") as told,
        Caller.connect(places) as caller,
    ):
        caller.call("status")

    assert "pod logs reviewer" in told.value.hint
