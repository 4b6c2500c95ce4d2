"""The view of a served pod: how it is connected, and what can be done from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from pod.client import Patience, PodClient
from pod.home import Home
from pod.serve.claim import find
from pod.serve.places import Places
from pod.tui.app import View
from pod.tui.blocks import Told, Tone
from pod.tui.commands import Command, Front, not_here

from .failures import FAILED
from .listing import say
from .local_commands import store_commands
from .viewing import Showing, make_view, show

if TYPE_CHECKING:
    from pod.client.link import LinkState

    from .transcript import Place

_PATIENCE = Patience(for_s=None)
"""A person who looks on decides himself when to give up."""


async def watch(name: str, env: Mapping[str, str], *, is_verbose: bool, has_person: bool) -> int:
    """Show the served pod until the person leaves; return the exit code.

    Where nobody is there to be asked, the pod is not told of anybody. Raises what connecting
    raises.
    """
    home = Home.from_env(env)
    places = Places.of(home, name)
    find(places)  # it says which pods there are
    client = PodClient.connect(name, home=home.root, env=env, patience=_PATIENCE)
    with ExitStack() as stack:
        if has_person:
            stack.enter_context(client.attended())

        async with client:
            watching = Watching(client, home, places.socket)
            code = await watching.show(env, is_verbose=is_verbose)

    say(watching.farewell, err=True)
    return code


@define(eq=False)
class Watching:
    """A served pod that is looked at."""

    client: PodClient
    home: Home
    socket: Path
    farewell: str = field(default="", init=False)
    """What is said when the view has ended."""
    _view: View | None = field(default=None, init=False)
    _stop_watching: Callable[[], None] = field(default=lambda: None, init=False)

    async def show(self, env: Mapping[str, str], *, is_verbose: bool) -> int:
        """Show the view until the person leaves; return the exit code."""
        showing = Showing(
            home=self.home.root,
            env=env,
            commands=self._commands(),
            is_verbose=is_verbose,
            by="",
            catch_up=self.client.refresh,
            before_leaving=self._leave,
        )
        self._view = make_view(self.client, showing)
        self._stop_watching = self.client.watch_link(self._on_link)
        return await show(self._view)

    async def _leave(self) -> None:
        """End the connection first: a run that is waited for here is not cancelled by leaving."""
        self._stop_watching()
        name, is_there = self.client.name, self.client.link.phase == "connected"
        if not self.farewell and is_there:
            self.farewell = f"{name} goes on; pod attach {name} comes back to it"
        elif not self.farewell:
            self.farewell = f"{name} was not reached any more; pod ps lists what is served"

        await self.client.aclose()

    def _on_link(self, link: LinkState) -> None:
        view = self._view
        if view is None:
            return

        match link.phase:
            case "connected":
                view.following.is_back()
            case "waiting" if link.attempt == 1 and not self.socket.exists():
                # Whoever stops a pod removes its socket; one that was killed leaves it behind.
                self._end(f"{self.client.name} was stopped", 0)
            case "waiting":
                view.following.is_lost()
            case "closed":
                self._end(link.reason, FAILED)
            case "connecting":
                pass

    def _end(self, farewell: str, code: int) -> None:
        self.farewell = farewell
        if self._view is not None:
            self._view.leave(code)

    # ------------------------------------------------------------------ commands

    def _commands(self) -> Mapping[str, Command]:
        name = self.client.name
        no_model = not_here(
            "a served pod keeps its model",
            f"name another one in its manifest, then pod stop {name} and pod serve MANIFEST;\n"
            "  or work in a copy: /fork, then pod run MANIFEST --resume ID --model M",
        )
        return {
            **store_commands(self._places),
            "fork": Command("", "make a copy of this session", "in turn", self._fork),
            "model": Command("", "how another model is used", "now", no_model),
            "stop": Command("", "end the pod, for everybody", "now", self._stop),
            "detach": Command("", "leave; the pod goes on", "now", _detach),
        }

    def _places(self, session_id: str) -> list[Place]:
        from session_store import FileSessionStore

        from .transcript import places

        store = FileSessionStore(self.home.root)
        return places(store, store.restore(session_id))

    async def _fork(self, view: Front, _: str) -> None:
        fork = await self.client.fork()
        manifest = fork.manifest or "MANIFEST"
        view.tell(
            Told(f"session {fork.session_id}, forked from {self.client.session_id}"),
            Told("the pod stays where it is; to work in the copy, in another terminal:"),
            Told(f"  pod run {manifest} --resume {fork.session_id}"),
        )

    async def _stop(self, view: Front, _: str) -> None:
        name = self.client.name
        view.ask(f"end {name} for everybody who uses it? y · n", lambda: self._shut_down(view))

    async def _shut_down(self, view: Front) -> None:
        name = self.client.name
        view.tell(Told(f"stopping {name} …", Tone.WARNING))
        self._stop_watching()
        self.farewell = f"{name} was stopped"
        await self.client.shutdown()
        view.leave(0)


async def _detach(view: Front, _: str) -> None:
    view.leave(0)
