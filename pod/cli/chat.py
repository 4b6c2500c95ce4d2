"""A conversation on a terminal: lines in, answers out, until the person leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pod.pod import Pod
from worker.text import is_blank

from .chat_commands import Leave, carry_out
from .complaints import complaints_on_stderr
from .conversation import Conversation
from .failures import INTERRUPTED
from .line_reader import LineReader
from .listing import say
from .options import RunOptions, chosen_session

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from pod.home import Home

_PROMPT = "> "
_AGAIN = "(Ctrl-C once more leaves)"


def talk(options: RunOptions, loaded: LoadedManifest, home: Home, env: Mapping[str, str]) -> int:
    """Launch the pod, talk until the person leaves, close the pod; return the exit code.

    Raises what launching raises.
    """
    session_id = chosen_session(options, loaded, home)
    with complaints_on_stderr(), asyncio.Runner() as runner:
        pod = Pod(loaded, home=home, env=env, resume=session_id)
        conversation = Conversation(options, home, env, runner, loaded, pod)
        conversation.open()
        if conversation.signal_code is not None:
            say("cancelled", err=True)
            return conversation.signal_code

        try:
            with LineReader(home.root / "chat_history") as reader:
                return _talk(conversation, reader)
        finally:
            conversation.close()


def _talk(conversation: Conversation, reader: LineReader) -> int:
    """Ask and answer until the person leaves; return the exit code."""
    was_interrupted = False
    while True:
        try:
            line = reader.ask(_PROMPT)
        except EOFError:
            say("", err=True)
            return 0
        except KeyboardInterrupt:
            say("", err=True)
            if was_interrupted:
                return INTERRUPTED

            was_interrupted = True
            say(_AGAIN, err=True)
            continue

        try:
            _heed(conversation, line)
        except Leave:
            return 0

        code, conversation.signal_code = conversation.signal_code, None
        was_interrupted = code == INTERRUPTED
        if code is not None and not was_interrupted:
            return code


def _heed(conversation: Conversation, line: str) -> None:
    if line.startswith("/"):
        carry_out(conversation, line)
    elif not is_blank(line):
        conversation.perform(conversation.run(line.strip()))
