"""Forks asked for on the command line are forks that open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pod.desk import Desk


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


@pytest.mark.parametrize("asking", [["sessions", "fork"], ["run", "--fork"]])
def test_no_fork_is_made_of_a_log_damaged_far_from_its_end(desk: Desk, asking: list[str]) -> None:
    manifest = desk.scripted(*({"text": f"answer {n}"} for n in range(6)))
    for turn in range(4):
        assert desk.pod("run", manifest, f"QUESTION-{turn}", "--continue").exit_code == 0
    (log,) = desk.logs()
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b"QUESTION-0", b"QUESTION-X", 1))
    words = [manifest, "--fork", log.stem, "hi"] if asking[0] == "run" else ["fork", log.stem]

    refused = desk.pod(asking[0], *words)

    assert refused.exit_code == 3
    assert "is damaged: entry 1 " in refused.output
    assert desk.logs() == [log], "nothing was made"

    log.write_bytes(whole)
    assert desk.pod(asking[0], *words).exit_code == 0
    assert len(desk.logs()) == 2
