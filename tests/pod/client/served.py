"""A pod that is served in this process, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from pod import Pod
from pod.client import PodClient
from session_store import FileSessionStore
from tests.fake_provider import Asked, Script, serving
from tests.pod.pods import chat, manifest
from tests.pod.serve.clients import Scene, serving_pod


@frozen
class Served:
    """The pod, where it is, and what its model was asked."""

    scene: Scene
    home: Path
    asked: list[Asked]

    @property
    def pod(self) -> Pod:
        return self.scene.pod

    @property
    def path(self) -> Path:
        return self.scene.places.socket

    def client(self, **options: Any) -> PodClient:
        return PodClient.connect(self.pod.name, home=self.home, **options)

    def head(self) -> str:
        """The hash of the session's newest entry."""
        return FileSessionStore(self.home).restore(self.pod.session_id).head.hash


async def until(true: Callable[[], bool]) -> None:
    """Return once it is true. Raises `TimeoutError` where it does not become so."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110  what is looked at tells nobody
            await asyncio.sleep(0.005)


@asynccontextmanager
async def served(
    home: Path, script: Script, extra: str = "", *, is_whole_script: bool = False, **options: Any
) -> AsyncIterator[Served]:
    """Serve a pod whose model answers by a script; summaries are answered by themselves."""
    with serving(script if is_whole_script else chat(script)) as model:
        path = manifest(home, model.base_url, extra)
        async with serving_pod(path, home, **options) as scene:
            yield Served(scene, home, model.asked)
