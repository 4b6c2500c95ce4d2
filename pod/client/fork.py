"""A fork of a served pod's session: a session that nobody runs yet."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from attrs import define, field

from pod.errors import PodError

if TYPE_CHECKING:
    from pod.pod import Pod  # noqa: TC004  costs half a second; attrs does not look at it


@define(eq=False)
class Fork:
    """A session that began as a served pod's was. The served pod stays on its own.

    `async with await client.fork() as child:` launches a pod on it in this process, from the
    manifest that the served pod has, as the fork of an in-process pod is one. Its `session_id` is
    enough to go on with it anywhere else: `Pod.launch(manifest, resume=fork.session_id)`.
    """

    session_id: str
    """The new session."""
    manifest: str
    """The path of the manifest that the served pod was launched from; empty where it has none."""
    home: Path | None
    """The home that both share; None: as the environment says."""
    _pod: Pod | None = field(default=None, init=False)

    async def __aenter__(self) -> Pod:
        """Launch a pod on the fork. Raises as `Pod.launch` and `Pod.start` do."""
        from pod.pod import Pod

        if not self.manifest:
            message = f"the manifest of the served pod is not known; its fork is {self.session_id}"
            raise PodError(message, hint="Pod.launch(manifest, resume=fork.session_id)")

        self._pod = Pod.launch(self.manifest, resume=self.session_id, home=self.home)
        return await self._pod.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pod is not None:
            await self._pod.__aexit__(kind, error, trace)
