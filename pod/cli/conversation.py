"""The pod of a conversation in this process, and what only its owner can do with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from attrs import define, evolve, field

from manifests import CompactionSection, LoadedManifest, load_manifest
from pod.home import Home
from pod.launching.preparing import open_store
from pod.pod import Pod
from pod.tui.blocks import Told, Tone
from pod.tui.commands import Command, Front
from pod.tui.reports import header

from .failures import explained, is_expected
from .local_commands import store_commands
from .options import RunOptions, model_override
from .transcript import Place, places


@define(eq=False)
class Conversation:
    """Owns the pod that is talked to, and changes it for another one where that is asked for."""

    options: RunOptions
    home: Home
    env: Mapping[str, str]
    loaded: LoadedManifest
    pod: Pod
    _attending: ExitStack = field(factory=ExitStack, init=False)

    def attend(self) -> None:
        """Let the pod know that somebody is there who can be asked about calls."""
        self._attending.close()
        self._attending.enter_context(self.pod.attended())

    async def close(self) -> None:
        """Stop what is going on and close the pod."""
        self._attending.close()
        self.pod.cancel()
        await self.pod.aclose()

    @property
    def retained_turns(self) -> int:
        """How many turns a compaction keeps."""
        settings = self.loaded.manifest.compaction or CompactionSection()
        return settings.compact_retained_turns

    @property
    def commands(self) -> Mapping[str, Command]:
        """The commands that need the pod to be in this process, or its store."""
        return {
            **store_commands(self._places),
            "fork": Command("", "go on in a copy of this session", "in turn", self._fork),
            "model": Command(
                "[name]", "show the model, or go on with another", "in turn", self._model
            ),
        }

    # ------------------------------------------------------------------ inside

    def _places(self, session_id: str) -> list[Place]:
        store = open_store(self.loaded, self.home)
        return places(store, store.restore(session_id))

    async def _fork(self, view: Front, _: str) -> None:
        parent, parent_id = self.pod, self.pod.session_id
        child = await parent.fork()
        self._follow(view, child)
        await parent.aclose()
        view.tell(Told(f"session {child.session_id}, forked from {parent_id}"))

    async def _model(self, view: Front, model: str) -> None:
        if model:
            await self._use_model(view, model)
            return

        status = self.pod.status()
        text = f"{status.provider}/{status.model}; /model NAME goes on with another one"
        view.tell(Told(text))

    async def _use_model(self, view: Front, model: str) -> None:
        """Go on in the same session with another model; where that fails, with the old one."""
        old, old_loaded = self.pod, self.loaded
        options = evolve(self.options, sets=(*self.options.overrides, model_override(model)))
        options = evolve(options, model=None)
        loaded = load_manifest(options.manifest, overrides=options.overrides, env=self.env)
        session_id = old.session_id
        await old.aclose()
        try:
            await self._relaunch(view, loaded, session_id)
        # Whatever keeps the other model from being used, the conversation goes on with this one.
        except Exception as error:
            if not is_expected(error):
                raise

            view.tell(Told(explained(error), Tone.ERROR))
            await self._relaunch(view, old_loaded, session_id)
        else:
            self.options = options

        view.tell(Told(header(self.pod.status())))

    async def _relaunch(self, view: Front, loaded: LoadedManifest, session_id: str) -> None:
        pod = await Pod(loaded, home=self.home, env=self.env, resume=session_id).start()
        self.loaded = loaded
        self._follow(view, pod)

    def _follow(self, view: Front, pod: Pod) -> None:
        self.pod = pod
        self.attend()
        view.adopt(pod, is_new=False)
