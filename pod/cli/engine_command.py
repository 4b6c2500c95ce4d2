"""`pod engines command`: a slash command that an engine's plugin registers, from the shell."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from attrs import frozen

from .complaints import complaints_on_stderr
from .failures import WRONG_USE, debug_option, launching, reported
from .listing import padded, say, say_json

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.context.plugin_commands import EngineCommand
    from pod.home import Home
    from pod.pod import Pod


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[COMMAND [ARGS]...]")
@click.option("--manifest", "manifest", metavar="FILE", help="Of the pod that FILE describes.")
@click.option("--session", metavar="ID", help="On this session; default: the pod's last one.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    metavar="SECONDS",
    help="How long the command may take [120].",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@debug_option
@click.pass_context
def command(context: click.Context, /, **given: object) -> None:
    """Run a slash command of the engine NAME, or list those it has.

    With --manifest the pod is launched on its last session, without a run, so that the engine
    knows of it; one that is served is asked instead. Without, the engine is loaded by itself and
    knows of no session. What the command says goes to stdout. The engine's code runs either way.
    """
    request = _Request(**given)  # type: ignore[arg-type]  # as the options above declare them
    request.check()
    with reported(), complaints_on_stderr():
        code = request.carry_out(os.environ)

    context.exit(code)


@frozen(kw_only=True)
class _Request:
    """The command line, read."""

    name: str
    words: tuple[str, ...]
    manifest: str | None
    session: str | None
    timeout_s: float
    as_json: bool

    @property
    def asked(self) -> tuple[str, str]:
        """The name of the command and its arguments, where one is named."""
        return self.words[0], " ".join(self.words[1:])

    def check(self) -> None:
        """Refuse what does not go together. Raises `click.UsageError`."""
        if self.session is not None and self.manifest is None:
            raise click.UsageError("--session needs --manifest: it is a session of that pod")

    def carry_out(self, env: Mapping[str, str]) -> int:
        from pod.home import Home

        home = Home.from_env(env)
        if self.manifest is None:
            return self._alone(home, {})

        from manifests import load_manifest

        loaded = load_manifest(self.manifest, env=env)
        named = loaded.manifest.context.engine
        if named != self.name:
            say(f"{self.manifest} names the engine {named!r}, not {self.name!r}", err=True)
            return WRONG_USE

        session_id = self._session(loaded, home)
        if session_id is None:
            name = loaded.manifest.pod.name
            say(f"the pod {name} has no session yet; the engine knows of none", err=True)
            return self._alone(home, loaded.manifest.context.options)

        return asyncio.run(self._in_pod(loaded, home, env, session_id))

    def _session(self, loaded: LoadedManifest, home: Home) -> str | None:
        from pod.launching.preparing import open_store

        from .stored import find_session

        store = open_store(loaded, home)
        if self.session is not None:
            return find_session(store, self.session)

        return store.pointer(loaded.manifest.pod.name)

    # ------------------------------------------------------------------ without a pod

    def _alone(self, home: Home, options: Mapping[str, object]) -> int:
        from pod.context.errors import EngineUnavailable
        from pod.context.plugin_alone import plugin_alone
        from pod.context.plugin_commands import offered, run_alone

        try:
            with plugin_alone(self.name, home, options) as plugin:
                commands = plugin.registration.commands
                if not self.words:
                    return self._list(offered(commands))

                answer = run_alone(self.name, commands, *self.asked, timeout_s=self.timeout_s)
                self._tell(asyncio.run(answer))
        except EngineUnavailable as error:
            say(f"the engine {self.name} cannot be had: {error.reason}", err=True)
            say("  which there are: pod engines list", err=True)
            return WRONG_USE

        return 0

    # ------------------------------------------------------------------ in a pod

    async def _in_pod(
        self, loaded: LoadedManifest, home: Home, env: Mapping[str, str], session_id: str
    ) -> int:
        from pod.journal import in_thread
        from pod.pod import Pod
        from pod.protocol import EngineNotice
        from session_store import SessionInUse

        pod = Pod(loaded, home=home, env=env, resume=session_id)
        pod.on(EngineNotice, lambda notice: say(f"{notice.engine}: {notice.message}", err=True))
        try:
            with launching(str(self.manifest)):
                await pod.start()
        except SessionInUse as error:
            answered = await in_thread(lambda: self._by_the_served(pod.name, home, session_id))
            if answered:
                return 0

            error.hint = self._ask_the_pod(pod.name)
            raise

        async with pod:
            return await self._run(pod)

    def _by_the_served(self, pod: str, home: Home, session_id: str) -> bool:
        """Have the pod that is served on this session answer; False where there is none."""
        from pod.context.plugin_commands import EngineCommand
        from pod.serve.caller import Caller, Unanswered
        from pod.serve.claim import NotServed
        from pod.serve.places import Places

        try:
            caller = Caller.connect(Places.of(home, pod))
        except (NotServed, Unanswered):
            return False

        with caller:
            if caller.call("status")["session_id"] != session_id:
                return False

            if not self.words:
                known = caller.call("engine_commands")
                hints = known.get("hints", {})
                commands = known["commands"].items()
                self._list({n: EngineCommand(n, said, hints.get(n, "")) for n, said in commands})
                return True

            asked = dict(zip(("name", "args"), self.asked, strict=True))
            self._tell(caller.call("engine_command", asked, timeout_s=self.timeout_s)["text"])

        return True

    def _ask_the_pod(self, pod: str) -> str:
        if not self.words:
            return f"ask the pod that has it: pod send {pod} engine_commands"

        asked = dict(zip(("name", "args"), self.asked, strict=True))
        shown = shlex.quote(json.dumps(asked, ensure_ascii=False))
        return f"ask the pod that has it: pod send {pod} engine_command {shown}"

    async def _run(self, pod: Pod) -> int:
        from pod.context.discovery import BUILT_IN

        if pod.status().engine == BUILT_IN and self.name != BUILT_IN:
            return WRONG_USE  # Why it is not there was told when it was to be loaded.

        if not self.words:
            return self._list(pod.engine_commands())

        self._tell(await pod.engine_command(*self.asked, timeout_s=self.timeout_s))
        return 0

    # ------------------------------------------------------------------ what is shown

    def _list(self, commands: Mapping[str, EngineCommand]) -> int:
        if self.as_json:
            fields = ("name", "description", "args_hint")
            say_json([{f: getattr(command, f) for f in fields} for command in commands.values()])
            return 0

        if not commands:
            say(f"the engine {self.name} registers no commands", err=True)
            return 0

        heads = {name: f"/{name} {known.args_hint}".rstrip() for name, known in commands.items()}
        column = max(map(len, heads.values()))
        for name, known in commands.items():
            say(f"{padded(heads[name], column)}   {known.description}".rstrip())

        return 0

    def _tell(self, text: str) -> None:
        if self.as_json:
            say_json({"engine": self.name, "command": self.words[0], "text": text})
        elif text:
            say(text)
