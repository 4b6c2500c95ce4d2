"""Where a provider's key is found: a variable, a file or a command. It is never shown."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen
from pydantic import SecretStr

from pod.errors import KeyMissing

if TYPE_CHECKING:
    from manifests import LoadedManifest
    from manifests.schema_provider import FallbackProvider

KEY_COMMAND_TIMEOUT_S = 30


@frozen
class Key:
    """A key and where it came from. The value is never shown."""

    value: SecretStr | None
    source: str


NO_KEY = Key(None, "none")
"""Where a provider needs none, or the manifest names none."""


def read_key(section: FallbackProvider, loaded: LoadedManifest, env: Mapping[str, str]) -> Key:
    """Return the key that a section names, or none where it names none.

    Raises:
        KeyMissing: The variable is not set, the file cannot be read, or the command failed.
    """
    if section.api_key_env:
        value = env.get(section.api_key_env, "").strip()
        source = f"the variable {section.api_key_env}"
        if not value:
            raise _missing(section, loaded, "api_key_env", f"{source} is not set")

        return Key(SecretStr(value), source)

    if section.api_key_file:
        path = loaded.resolve(section.api_key_file)
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            problem = f"the file {path} cannot be read ({reason})"
            raise _missing(section, loaded, "api_key_file", problem) from error

        if not value:
            raise _missing(section, loaded, "api_key_file", f"the file {path} is empty")

        return Key(SecretStr(value), f"the file {path.name}")

    if section.api_key_command:
        command = section.api_key_command
        return Key(SecretStr(_command_output(command, section, loaded)), "api_key_command")

    return NO_KEY


def _command_output(command: str, section: FallbackProvider, loaded: LoadedManifest) -> str:
    try:
        done = subprocess.run(  # noqa: S602  the manifest's author chose the command
            command,
            shell=True,
            capture_output=True,
            text=True,
            timeout=KEY_COMMAND_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            cwd=loaded.base_dir,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        problem = f"the command took over {KEY_COMMAND_TIMEOUT_S} s"
        raise _missing(section, loaded, "api_key_command", problem) from error
    except UnicodeDecodeError:
        # Without its cause, which holds what was printed.
        problem = "the command printed what is not text"
        raise _missing(section, loaded, "api_key_command", problem) from None

    value = done.stdout.strip()
    if done.returncode or not value:
        problem = (
            f"the command ended with status {done.returncode}"
            if done.returncode
            else ("the command printed nothing")
        )
        raise _missing(section, loaded, "api_key_command", problem)

    return value


def _missing(
    section: FallbackProvider, loaded: LoadedManifest, key: str, problem: str
) -> KeyMissing:
    line = loaded.line_of("provider", key)
    where = f"{loaded.path}, line {line}: {key}" if line else f"{loaded.path}: {key}"
    others = [k for k in ("api_key_env", "api_key_file", "api_key_command") if k != key]
    hint = f"{where}\nset it, or use {' or '.join(others)}; `pod doctor {loaded.path}` checks"
    return KeyMissing(f"no key for {section.kind}: {problem}", hint=hint)
