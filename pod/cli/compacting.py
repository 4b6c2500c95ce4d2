"""Compacting a stored session, with its progress on stderr; and what it would come to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from attrs import asdict, define, frozen

from manifests import LoadedManifest, load_manifest
from pod.compaction.plan import CompactionError
from pod.compaction.preview import Preview, preview
from pod.context.discovery import BUILT_IN
from pod.home import Home
from pod.launching.preparing import open_store
from pod.pod import Pod
from pod.protocol import CompactionDone, CompactionFailed, Envelope
from pod.providers import known_window
from pod.tui.text import counted
from pod.tui.wording import compacted, floor

from .complaints import complaints_on_stderr
from .failures import FAILED, WRONG_USE, launching
from .interrupts import Interrupts
from .listing import say, say_json
from .narrator import Narrator
from .oneshot import Launch, scene_of
from .stored import find_session

_NOTHING = "nothing to compact: there is too little history"


@frozen(kw_only=True)
class CompactOptions:
    """The command line of `pod sessions compact`."""

    session: str
    manifest: str
    focus: str | None = None
    is_dry_run: bool = False
    overrides: tuple[str, ...] = ()
    as_json: bool = False


def carry_out(options: CompactOptions, env: Mapping[str, str]) -> int:
    """Compact, or tell what it would come to; return the exit code.

    Raises what loading the manifest, the session and the pod raise.
    """
    loaded = load_manifest(options.manifest, overrides=options.overrides, env=env)
    home = Home.from_env(env)
    session_id = find_session(open_store(loaded, home), options.session)
    if options.is_dry_run:
        return _foretell(loaded, home, session_id, as_json=options.as_json)

    pod = Pod(loaded, home=home, env=env, resume=session_id)
    pod.listen(_Progress(Narrator(scene_of(pod, loaded)), is_quiet=options.as_json))
    with complaints_on_stderr():
        code, done = asyncio.run(_compact(pod, options))

    if not code:
        _say_done(done, as_json=options.as_json)

    return code


# --- really -------------------------------------------------------------------------------------


async def _compact(pod: Pod, options: CompactOptions) -> tuple[int, CompactionDone | None]:
    launch = Launch(pod)
    with Interrupts(launch.cancel) as interrupts:
        try:
            with launching(options.manifest):
                await launch.start()

            async with pod:
                return 0, await pod.compact(options.focus)
        except asyncio.CancelledError:
            if interrupts.exit_code is None:
                raise

            say("cancelled", err=True)
            return interrupts.exit_code, None
        except CompactionError:
            # Its event told it already.
            return interrupts.exit_code or FAILED, None


def _say_done(done: CompactionDone | None, *, as_json: bool) -> None:
    if as_json:
        say_json(None if done is None else done.model_dump(mode="json", exclude_none=True))
    else:
        say(_NOTHING if done is None else compacted(done))


@define
class _Progress:
    """Tells on stderr what goes on, or only failures. What was done is for stdout."""

    narrator: Narrator
    is_quiet: bool

    def __call__(self, envelope: Envelope) -> None:
        if isinstance(envelope.data, CompactionDone):
            self.narrator.erase()
        elif not self.is_quiet or isinstance(envelope.data, CompactionFailed):
            self.narrator.tell(envelope.data)


# --- what it would come to ----------------------------------------------------------------------


def _foretell(loaded: LoadedManifest, home: Home, session_id: str, *, as_json: bool) -> int:
    engine = loaded.manifest.context.engine
    if engine != BUILT_IN:
        say(f"the engine {engine} decides by itself what it compacts: no dry run", err=True)
        say(f"  to see what the built-in would do: --set context.engine={BUILT_IN}", err=True)
        return WRONG_USE

    state = open_store(loaded, home).restore(session_id)
    with launching(loaded.path):
        seen = preview(loaded, state, window=known_window(loaded, home))

    if as_json:
        say_json(None if seen is None else _as_json(seen))
    elif seen is None:
        say(_NOTHING)
    elif seen.is_possible:
        say(foretold(seen))
    else:
        say(floor(seen.sizes.floor_problem(seen.threshold)), err=True)

    return 0 if seen is None or seen.is_possible else FAILED


def foretold(seen: Preview) -> str:
    """Return what a compaction would do, as a line."""
    return (
        f"would summarize {_covered(seen)} ({seen.covered_tokens:,} tokens), "
        f"keep {counted(seen.kept_turns, 'turn')} ({seen.kept_tokens:,}): "
        f"about {seen.tokens_after:,} after"
    )


def _covered(seen: Preview) -> str:
    turns = seen.covered_turns
    earlier = "the earlier summary and " if seen.has_summary else ""
    if not turns:
        return earlier + counted(seen.covered_items - seen.has_summary, "item")

    told = "turn 1" if turns == 1 else f"turns 1–{turns}"
    part = "" if not seen.is_last_in_part else ", in part" if turns == 1 else ", the last in part"
    return earlier + told + part


def _as_json(seen: Preview) -> dict[str, object]:
    sizes = asdict(seen.sizes) | {"tools": dict(seen.sizes.tools)}
    return {
        **asdict(seen, recurse=False),
        "sizes": sizes,
        "floor": seen.sizes.floor,
        "is_possible": seen.is_possible,
    }
