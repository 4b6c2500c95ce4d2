"""What `pod run` was asked for, and which session that means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import frozen

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.home import Home


@frozen(kw_only=True)
class RunOptions:
    """The command line of `pod run`."""

    manifest: str
    words: tuple[str, ...] = ()
    resume: str | None = None
    go_on: bool = False
    fork: str | None = None
    as_json: bool = False
    model: str | None = None
    sets: tuple[str, ...] = ()
    attached: tuple[Path, ...] = ()
    verbose: bool = False

    def check(self, *, stdin_is_terminal: bool) -> None:
        """Refuse what does not go together. Raises `click.UsageError`."""
        if sum((self.resume is not None, self.go_on, self.fork is not None)) > 1:
            raise click.UsageError("give one of --resume, --continue and --fork")

        if not self.words and stdin_is_terminal and (self.as_json or self.attached):
            flag = "--json" if self.as_json else "--attach"
            raise click.UsageError(f"{flag} needs a PROMPT")

    def is_chat(self, *, stdin_is_terminal: bool) -> bool:
        """Tell whether this is the beginning of a conversation."""
        return not self.words and stdin_is_terminal

    @property
    def overrides(self) -> tuple[str, ...]:
        """The manifest keys to set, `--model` among them."""
        return self.sets if self.model is None else (*self.sets, model_override(self.model))


def model_override(model: str) -> str:
    """Return the manifest override that puts a pod on `model`, whatever characters it has."""
    return f"provider.model={json.dumps(model, ensure_ascii=False)}"


def chosen_session(options: RunOptions, loaded: LoadedManifest, home: Home) -> str | None:
    """Return the id of the session to go on with, a fork made now where one is asked for.

    None is a new session: none was asked for, or the pod never had one to continue.

    Raises:
        SessionStoreError: The id is no session's, or the session cannot be forked.
    """
    from pod.launching.preparing import open_store

    from .stored import find_session, sound_fork_point

    store = open_store(loaded, home)
    if options.resume is not None:
        return find_session(store, options.resume)

    if options.fork is not None:
        parent = find_session(store, options.fork)
        return store.fork(parent, sound_fork_point(store, parent).hash)

    return store.pointer(loaded.manifest.pod.name) if options.go_on else None
