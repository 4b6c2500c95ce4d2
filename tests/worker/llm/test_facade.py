from __future__ import annotations

import subprocess
import sys

import pytest

import worker.llm


@pytest.mark.parametrize("name", worker.llm.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(worker.llm, name)
    assert getattr(value, "__name__", name) == name


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        worker.llm.no_such_name  # noqa: B018 - looking is the test


def test_importing_loads_nothing_heavy() -> None:
    program = (
        "import sys, worker, worker.llm, worker.testing\n"
        "heavy = {'httpx', 'httpx_sse', 'tenacity', 'anyio', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
