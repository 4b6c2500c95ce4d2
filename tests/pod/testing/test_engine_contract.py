"""The contract's checks: engines that keep to it pass them all, and every fault is caught."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pod.context import ContextEngine, hermes
from pod.context.discovery import list_engines
from pod.context.hermes.runtime import current_runtime
from pod.context.loader import load_engine
from pod.testing import EngineContract
from pod.testing.engine_contract import (
    CHECKS,
    Terms,
    built_in,
    check_called,
    check_engine,
    name_of,
    run_check,
)
from pod.testing.engine_contract.conversations import FIXED, seeded
from pod.testing.engine_contract.examine import newest_user, orphan_results, unanswered_calls
from pod.testing.engine_contract.results import Broken
from pod.testing.engine_contract.searching import conversations_to_try
from tests.pod.testing.bad_engines import BAD, Bad
from tests.pod.testing.good_engine import Good, Legacy, Locked

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _served() -> None:
    hermes.install()


def ours(plugins: Path) -> dict[str, Callable[[], ContextEngine]]:
    """Every engine that ships with a pod, by its name, and what makes one."""
    bundled = [info.name for info in list_engines(plugins) if info.source == "bundled"]
    makers = {name: lambda name=name: load_engine(name, plugins) for name in bundled}
    return {"compressor": built_in, "ContextCompressor": built_upon, **makers}


def built_upon() -> ContextEngine:
    """What engines of others are built upon."""
    from agent.context_compressor import ContextCompressor

    return ContextCompressor(quiet_mode=True, config_context_length=200_000)


SHIPPED = ours(Path("no plugins"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SHIPPED)
def test_every_engine_that_ships_keeps_the_whole_contract(name: str) -> None:
    report = check_engine(SHIPPED[name], name=name)
    assert [(one.check.id, one.found) for one in report.broken] == []
    assert len(report.holds) > 50


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", [Locked, Legacy])
def test_an_engine_that_keeps_the_contract_passes_every_check(engine: Any) -> None:
    report = check_engine(engine, terms=Terms(examples=8))
    assert [(one.check.id, one.found) for one in report.broken] == []
    assert len(report.holds) + len(report.not_applicable) == len(CHECKS)
    assert len(report.holds) > 50


@pytest.mark.timeout(120)
def test_of_an_engine_that_does_it_all_nothing_is_left_out() -> None:
    report = check_engine(Good, terms=Terms(examples=1))
    assert report.engine == "good"
    assert [result.found for result in report.not_applicable] == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.engine.__name__)
def test_every_fault_is_caught_by_its_check(bad: Bad) -> None:
    terms = Terms(limit_s=bad.limit_s, examples=8, reductions=0)
    report = check_engine(bad.engine, checks=[check_called(bad.check)], terms=terms)
    assert [one.outcome for one in report.results] == ["broken"], report.results
    assert re.search(bad.found, report.broken[0].found), report.broken[0].found


def test_every_check_can_fail() -> None:
    assert {check.id for check in CHECKS} == {bad.check for bad in BAD}


def test_ids_are_words_and_unique_and_statements_are_sentences() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    for check in CHECKS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", check.id)
        assert len(check.statement) > 20
        assert check.source.startswith("§")


# --- what a check is made of


@pytest.mark.parametrize("name", FIXED)
def test_conversations_are_whole_and_equal_each_time(name: str) -> None:
    rows = FIXED[name].rows()
    assert rows == FIXED[name].rows()
    assert len({row["message_uid"] for row in rows}) == len(rows)
    assert orphan_results(rows) == []
    assert unanswered_calls(rows) == []
    assert newest_user(rows) is not None
    json.dumps(rows)


def test_without_hypothesis_the_same_conversations_are_tried_each_time() -> None:
    runs: list[list[object]] = []
    for _ in range(2):
        seen: list[object] = []
        conversations_to_try(seen.append, 30, search=False)
        runs.append(seen)

    assert runs[0] == runs[1] == [seeded(seed) for seed in range(30)]


def test_what_breaks_is_made_smaller() -> None:
    def look(conversation: Any) -> None:
        rows = conversation.rows()
        if sum(row["role"] == "tool" for row in rows) > 2:
            raise Broken("three results", rows)

    with pytest.raises(Broken) as caught:
        conversations_to_try(look, 200, search=True)

    roles = [row["role"] for row in caught.value.rows or ()]
    assert roles.count("tool") == 3
    assert len(roles) <= 8


# --- how it is carried out


class Slow(Good):
    def compress(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        threading.Event().wait(30)


def test_a_call_that_never_returned_is_not_waited_for_as_long_again() -> None:
    checks = [check_called(one) for one in ("returns-messages", "roles", "one-row")]
    report = check_engine(Slow, checks=checks, terms=Terms(limit_s=1.0))
    found = [result.found for result in report.broken]
    assert found == [f"compress() did not return within {limit} s" for limit in ("1", "0.1", "0.1")]


def test_an_engine_that_cannot_be_made_breaks_its_checks_and_nothing_else() -> None:
    def broken() -> ContextEngine:
        raise RuntimeError("no database")

    report = check_engine(broken, checks=CHECKS[:3])
    assert report.engine == "engine"
    assert {one.found for one in report.broken} == {
        "making the engine raised RuntimeError: no database"
    }
    with pytest.raises(RuntimeError, match="no database"):
        name_of(broken)


class Trap(Exception):
    """Raises whatever is done with it."""

    def __repr__(self) -> str:
        raise RuntimeError("do not look")

    __str__ = __eq__ = __hash__ = __bool__ = __len__ = __repr__  # type: ignore[assignment]


class Trapped(Good):
    def compress(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return [{"role": Trap(), "content": Trap(), Trap: Trap()}]

    def get_status(self) -> Any:
        return Trap()

    def get_tool_schemas(self) -> Any:
        raise Trap

    def select_context(self, request_messages: Any, **kwargs: Any) -> Any:
        return [{"role": "user", "content": Trap()}]


@pytest.mark.timeout(60)
def test_nothing_that_an_engine_gives_ends_a_check_but_as_broken() -> None:
    report = check_engine(Trapped, terms=Terms(limit_s=5.0, examples=1, reductions=0))
    broken = {result.check.id: result.found for result in report.broken}
    assert {"roles", "json", "status", "schemas", "selection-can-be-sent"} <= set(broken)
    assert broken["schemas"].startswith("get_tool_schemas() raised")
    assert "do not look" in broken["status"]


def test_input_that_breaks_a_check_is_saved_and_can_be_read(tmp_path: Path) -> None:
    bad = next(one for one in BAD if one.engine.__name__ == "StrictUtf8")
    terms = Terms(save=tmp_path / "saved")
    result = run_check(check_called(bad.check), bad.engine, terms=terms, name="a/b")

    assert result.saved == tmp_path / "saved" / "a_b-lone-surrogates.json"
    kept = json.loads(result.saved.read_text(encoding="ascii"))
    assert kept["found"] == result.found
    assert kept["messages"] == list(result.rows or ())
    assert any("\ud83d" in str(row["content"]) for row in kept["messages"])


def test_nothing_of_a_check_is_left_behind(tmp_path: Path) -> None:
    homes: list[Path] = []

    class Notes(Good):
        def on_session_start(self, session_id: str, **kwargs: Any) -> None:
            super().on_session_start(session_id, **kwargs)
            homes.append(Path(kwargs["hermes_home"]))

    before = threading.active_count()
    report = check_engine(Notes, checks=[check_called("long-session")])
    assert report.broken == []
    assert homes
    assert not any(home.exists() for home in homes)
    assert current_runtime() is None
    assert threading.active_count() <= before + 2


@pytest.mark.timeout(120)
def test_it_needs_neither_pytest_nor_hypothesis() -> None:
    code = """
        import sys
        sys.modules["pytest"] = sys.modules["hypothesis"] = None
        from pod.testing.engine_contract import EngineContract, built_in, check_engine
        report = check_engine(built_in, name="compressor")
        print(len(report.broken), len(report.holds) > 50, EngineContract.test_name.__doc__)
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.stdout.startswith("0 True The name is"), done.stderr


# --- the contract as tests


class TestGood(EngineContract):
    examples = 3

    def engine(self) -> ContextEngine:
        return Good()


TESTS = """
from __future__ import annotations
from pod.testing import EngineContract
from tests.pod.testing.bad_engines import InventsRoles
from tests.pod.testing.good_engine import Legacy


class TestBad(EngineContract):
    examples = 2

    def engine(self):
        return InventsRoles()


class TestOld(EngineContract):
    examples = 2
    waived = {"name": "it is what it is"}

    def engine(self):
        return Legacy()
"""


@pytest.mark.timeout(120)
def test_as_tests_a_fault_fails_and_what_does_not_apply_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "test_engines.py"
    file.write_text(TESTS, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    chosen = "test_name or test_roles or test_status or test_json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(file), "-q", "-rA", "-p", "no:cacheprovider"),
            *("-k", chosen, "-c", os.devnull, "--rootdir", str(tmp_path)),
        ],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 1, done.stderr
    assert "FAILED test_engines.py::TestBad::test_roles" in said
    assert "found: compress() returned a row with the role 'summary'" in said
    assert "[§2.4 step 8]" in said
    assert "PASSED test_engines.py::TestBad::test_json" in said
    assert "PASSED test_engines.py::TestOld::test_roles" in said
    assert "waived: it is what it is" in said
    assert "it has no get_status" in said
