"""The shape of the tree: facades, imports, size gate, locks, and the suite's own strictness."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("manifests", "worker", "session_store", "pod")
LOCKS = ("core", "local", "dev")

# Runs in an interpreter of its own: imports argv[1] and prints what that loaded and what it did.
IMPORT_PROBE = """
import os, sys
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
FORBIDDEN = {"os.mkdir", "os.rename", "os.remove", "os.putenv", "subprocess.Popen",
             "socket.connect"}
done = []
def watch(event, args):
    if event in FORBIDDEN or (event == "open" and isinstance(args[2], int) and args[2] & WRITES):
        done.append(f"{event} {args!r}")
sys.addaudithook(watch)
__import__(sys.argv[1])
print("\\n".join(f"did {what}" for what in done))
print("\\n".join(f"loaded {name}" for name in sys.modules))
"""


def probe_import(name: str) -> tuple[set[str], list[str]]:
    """The modules that `import name` loads in a fresh interpreter, and its side effects."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", IMPORT_PROBE, name]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "importing prints nothing"
    lines = done.stdout.split("\n")
    loaded = {line.removeprefix("loaded ") for line in lines if line.startswith("loaded ")}
    return loaded, [line for line in lines if line.startswith("did ")]


def tracked_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def run_script(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


# --- facades ------------------------------------------------------------------------------------


def facades() -> list[str]:
    """The four packages, and every package inside them that declares `__all__`.

    But for those that plugins know under another name: they are no facades of ours.
    """
    inner = [
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("__init__.py"))
        if "\n__all__" in path.read_text(encoding="utf-8") and "served" not in path.parts
    ]
    return sorted({*PACKAGES, *inner})


def names_taken_from_ours(facade: str) -> set[str]:
    """Public names that the facade's source takes from our modules, typing blocks included."""
    tree = ast.parse((ROOT / Path(*facade.split("."), "__init__.py")).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.level or (node.module or "").split(".")[0] in PACKAGES)
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }


@pytest.mark.parametrize("facade", facades())
def test_a_facade_offers_what_it_lists_and_lists_what_it_offers(facade: str) -> None:
    module = importlib.import_module(facade)
    listed: list[str] = list(module.__all__)

    missing = [name for name in listed if not hasattr(module, name)]
    assert not missing
    assert len(listed) == len(set(listed))
    assert names_taken_from_ours(facade) <= set(listed)
    assert set(listed) <= set(dir(module)), "lazy names are visible to dir() too"


# --- importing ----------------------------------------------------------------------------------

LIGHT = {
    "manifests": {"click", "httpx", "rich", "sqlite3", "worker", "session_store", "pod"},
    "worker": {"cattrs", "click", "httpx", "pydantic", "rich", "sqlite3", "tenacity", "xllamacpp"},
    "session_store": {"click", "httpx", "pydantic", "rich", "sqlite3", "tenacity"},
    "pod": {"click", "httpx", "mcp", "rich", "sqlite3", "textual", "xllamacpp", "yaml"},
    "pod.cli": {"cattrs", "httpx", "pydantic", "rich", "sqlite3", "textual", "xllamacpp", "yaml"},
}


@pytest.mark.parametrize("name", LIGHT)
def test_importing_loads_nothing_heavy_and_does_nothing(name: str) -> None:
    loaded, side_effects = probe_import(name)

    assert not loaded & LIGHT[name]
    assert side_effects == []


def test_import_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = run_script(str(command), "--no-logo", "--no-cache")
    assert done.returncode == 0, done.stdout


# --- the size gate ------------------------------------------------------------------------------


def test_the_tree_is_within_its_size_limits() -> None:
    done = run_script(sys.executable, "scripts/house")
    assert done.returncode == 0, done.stdout


LONG_FUNCTION = 'def f() -> None:\n    """F."""\n' + "    print()\n" * 61
CAUGHT = {
    "module lines, limit 500": '"""M."""\n' + "A = 1\n" * 501,
    "function lines, limit 60": '"""M."""\n' + LONG_FUNCTION,
    "parameters, limit 6": '"""M."""\ndef f(a, b, c, *, d, e, f, g):\n    """F."""\n',
    "public names without a docstring": '"""M."""\nclass C:\n    """C."""\n    def m(self): ...\n',
    "suppressions without code and reason": '"""M."""\nA = 1  # type: ignore[misc]\n',
    "broad excepts without a reason": '"""M."""\ntry:\n    A = 1\nexcept Exception:\n    A = 2\n',
    "Any per 1000": '"""M."""\nfrom typing import Any\n' + "A: Any = 1\n" * 7,
    "modules in import cycles": '"""M."""\nfrom . import other\n',
    "foreign private imports": '"""M."""\nfrom worker import _inner\n',
}


@pytest.mark.parametrize(("measure", "source"), CAUGHT.items(), ids=CAUGHT)
def test_the_size_gate_catches(measure: str, source: str, tmp_path: Path) -> None:
    lay_tree(tmp_path, {"pod/other.py": '"""O."""\nfrom .made import A\n'})
    lay_tree(tmp_path, {"pod/made.py": source})

    done = run_script(sys.executable, "scripts/house", cwd=tmp_path)

    assert done.returncode == 1
    assert f"past a limit: {measure}" in done.stdout


def test_every_exception_of_the_size_gate_is_of_a_file_that_is_there() -> None:
    exceptions: dict[tuple[str, str], str] = runpy.run_path(str(ROOT / "scripts/house"))[
        "EXCEPTIONS"
    ]
    assert exceptions
    assert all((ROOT / place.partition(" ")[0]).is_file() for _, place in exceptions)


def test_the_size_gate_lets_good_code_pass(tmp_path: Path) -> None:
    good = (
        '"""M."""\n'
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from .other import B\n"
        'def supervise() -> None:\n    """S."""\n    try:\n        print()\n'
        "    # The supervision point of the run: the task's owner reports what is left.\n"
        "    except Exception:\n        raise\n"
        "A = 1  # type: ignore[misc]  # the library's stub lacks this name\n"
        "TEXT = '# type: ignore'\n"
    )
    lay_tree(tmp_path, {"pod/other.py": '"""O."""\nfrom .made import A as B\n'})
    lay_tree(tmp_path, {"pod/made.py": good})

    done = run_script(sys.executable, "scripts/house", cwd=tmp_path)

    assert done.returncode == 0, done.stdout


def test_the_size_gate_names_a_file_that_does_not_parse(tmp_path: Path) -> None:
    lay_tree(tmp_path, {"pod/made.py": "def f(:\n"})

    done = run_script(sys.executable, "scripts/house", cwd=tmp_path)

    assert done.returncode == 1
    assert "pod/made.py" in done.stderr
    assert "Traceback" not in done.stderr


def lay_tree(root: Path, files: dict[str, str]) -> None:
    """A small tree of the four packages with the gate beside it, and these files in it."""
    (root / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts" / "house", root / "scripts" / "house")
    for package in PACKAGES:
        (root / package).mkdir(exist_ok=True)
        (root / package / "__init__.py").write_text('"""P."""\n', encoding="utf-8")
    for name, text in files.items():
        (root / name).write_text(text, encoding="utf-8")


# --- locks and what may not be committed --------------------------------------------------------


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def declared(lock: str) -> list[Requirement]:
    """The requirements of pyproject.toml that a lock must pin."""
    data = project()
    groups = data["dependency-groups"]
    names = [*data["project"]["dependencies"]]
    if lock in {"local", "dev"}:
        names += data["project"]["optional-dependencies"]["local"] + groups["build"]
    if lock == "dev":
        names += [entry for entry in groups["dev"] if isinstance(entry, str)]
    return [Requirement(name) for name in names]


def pinned(lock: str) -> dict[str, str]:
    """Version by name of a lock; fails on a requirement that is not pinned exactly and hashed."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    joined = re.sub(r"\s*#.*", "", text).replace("\\\n", " ")
    pins: dict[str, str] = {}
    for line in filter(None, joined.split("\n")):
        requirement = Requirement(line.partition("--hash=")[0].strip())
        (spec,) = requirement.specifier
        assert spec.operator == "==", line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line
        pins[canonicalize_name(requirement.name)] = spec.version
    return pins


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_and_hashes_every_dependency(lock: str) -> None:
    pins = pinned(lock)
    for requirement in declared(lock):
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_registry_and_no_local_path(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    found = re.findall(r".*(?:://|file:|\s@\s|-index-url|find-links|trusted-host).*", text)
    assert found == []


def test_one_environment_serves_all_locks() -> None:
    dev = pinned("dev")
    for lock in ("core", "local"):
        assert pinned(lock).items() <= dev.items()


def test_no_file_holds_a_path_of_one_machine() -> None:
    # Absolute only: "./work/**" and "{root}/work" are no machine's path.
    machine_path = re.compile(rb"(?<![\w.~}*/-])/(?:work|root)/")
    guilty = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1)
        if machine_path.search(line)
    ]
    assert guilty == []


# --- the suite itself ---------------------------------------------------------------------------


def test_the_suite_cannot_leave_this_machine() -> None:
    with socket.socket() as outside, pytest.raises(PermissionError, match=r"192\.0\.2\.1"):
        outside.connect(("192.0.2.1", 443))  # TEST-NET-1: nobody's address


def test_the_suite_reaches_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_a_home_is_empty_private_and_in_the_environment(home: Path) -> None:
    assert os.environ["POD_HOME"] == str(home)
    assert list(home.iterdir()) == []
    assert home.stat().st_mode & 0o077 == 0
