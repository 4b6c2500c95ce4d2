"""Keys: found where the manifest says, or told of by name; never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifests import load_manifest
from pod.errors import KeyMissing
from pod.keys import Key, read_key
from tests.pod.pods import manifest


def key_from(home: Path, line: str) -> Key:
    path = manifest(home, "http://127.0.0.1:1/v1")
    path.write_text(path.read_text().replace('api_key_env = "FAKE_KEY"', line))
    loaded = load_manifest(path, env={})
    return read_key(loaded.manifest.provider, loaded, {"THE_KEY": " key-from-variable\n"})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('api_key_env = "THE_KEY"', "key-from-variable"),
        ('api_key_file = "keys/mine"', "key-from-file"),
        ("api_key_command = 'echo key-from-command'", "key-from-command"),
        ("", None),
    ],
)
def test_a_key_is_found_and_not_shown(home: Path, line: str, value: str | None) -> None:
    (home / "keys").mkdir()
    (home / "keys" / "mine").write_text("key-from-file\n")
    key = key_from(home, line)
    assert (key.value and key.value.get_secret_value()) == value
    assert value is None or value not in repr(key)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('api_key_env = "NO_SUCH"', "the variable NO_SUCH is not set"),
        ('api_key_file = "no/such"', "cannot be read (No such file or directory)"),
        ('api_key_file = "empty"', "is empty"),
        ('api_key_file = "bytes"', "cannot be read (not text)"),
        ("api_key_command = 'exit 3'", "ended with status 3"),
        ("api_key_command = 'true'", "printed nothing"),
        ("api_key_command = 'cat bytes'", "printed what is not text"),
    ],
)
def test_a_key_that_is_not_there_is_told_of(home: Path, line: str, problem: str) -> None:
    (home / "empty").write_text(" \n")
    (home / "bytes").write_bytes(b"\xff\xfe key")
    with pytest.raises(KeyMissing) as caught:
        key_from(home, line)

    assert problem in caught.value.message
    assert line.partition(" ")[0] in caught.value.hint
    assert "line 8" in caught.value.hint
