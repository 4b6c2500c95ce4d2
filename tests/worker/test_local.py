"""The local model's server: what it promises when all goes well, and above all when it does not.

The child process has a stand-in for the foreign package `xllamacpp`, so that it can hang or abort
on purpose; `test_local_model.py` has the real thing.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker import gguf_files
from tests.worker.gguf_files import header, packed, text, texts
from worker.llm.gguf import GgufInvalid, read_gguf
from worker.llm.local import (
    DEFAULT_WINDOW_CAP,
    LocalExtraMissing,
    LocalModelError,
    LocalServer,
    ModelFileInvalid,
    ModelFileMissing,
    ModelLoadFailed,
)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    return gguf_files.model_file(tmp_path)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Give the child an `xllamacpp` whose `Server(params)` runs `body`; return its notes file."""

    def install(body: str) -> Path:
        folder, notes = tmp_path / "site", tmp_path / "notes.json"
        folder.mkdir()
        source = f"""
        import ctypes, json, os, sys, types
        class CommonParams(types.SimpleNamespace):
            def __init__(self):
                super().__init__(model=types.SimpleNamespace())
                self.cpuparams = types.SimpleNamespace(n_threads=-1)
                self.cpuparams_batch = types.SimpleNamespace(n_threads=-1)
        def note(params):
            told = dict(vars(params), model=params.model.path, threads=params.cpuparams.n_threads)
            told["batch_threads"] = params.cpuparams_batch.n_threads
            told["pid"] = os.getpid()
            del told["cpuparams"], told["cpuparams_batch"]
            with open({str(notes)!r} + ".new", "w") as file:
                json.dump(told, file)
            os.replace({str(notes)!r} + ".new", {str(notes)!r})
        class Server:
            listening_address = "http://127.0.0.1:4242"
            def __init__(self, params):
                note(params)
        """
        (folder / "xllamacpp.py").write_text(
            textwrap.dedent(source) + textwrap.indent(textwrap.dedent(body), " " * 8)
        )
        monkeypatch.setenv("PYTHONPATH", str(folder))
        return notes

    return install


# Holds the interpreter lock, as llama.cpp does while it loads.
HANG = "ctypes.PyDLL(None).sleep(60)"


def wait_for(condition: Callable[[], Any], timeout_s: float = 8.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not so after {timeout_s} s")


def noted_pid(notes: Path) -> int:
    wait_for(notes.exists)
    pid = json.loads(notes.read_text())["pid"]
    assert isinstance(pid, int)
    return pid


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


BROKEN_VOCABULARY = packed(
    [
        *texts(general__architecture="llama"),
        text("llama.context_length") + struct.pack("<II", 4, 512),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + struct.pack("<Q", 9) + b"b",
    ]
)


# --- what the file says ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trained", "asked", "window"),
    [
        (4096, None, 4096),
        (4096, 1000, 1000),
        (4096, 9000, 4096),
        (1_000_000, None, DEFAULT_WINDOW_CAP),
        (1_000_000, 65_536, 65_536),
    ],
)
def test_the_window_is_what_was_asked_for_within_what_the_model_knows(
    tmp_path: Path, trained: int, asked: int | None, window: int
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(trained))
    assert LocalServer(path, context_window=asked).context_window == window


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("qwen-3-IQ3_XXS.gguf", "qwen-3"),
        ("model-f16.gguf", "model"),
        ("plain.gguf", "plain"),
    ],
)
def test_the_name_leaves_the_quantization_out(file_name: str, name: str) -> None:
    assert LocalServer(Path(file_name)).model_name == name


def test_a_header_tells_architecture_name_context_and_template(tmp_path: Path) -> None:
    info = read_gguf(gguf_files.model_file(tmp_path, template="{{ messages }}"))
    assert (info.architecture, info.name, info.context_length) == ("llama", "Tiny", 4096)
    assert (info.chat_template, info.has_tool_template) == ("{{ messages }}", False)
    assert read_gguf(gguf_files.model_file(tmp_path)).chat_template is None


def test_a_text_too_long_to_be_of_use_is_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    long = texts(
        general__architecture="llama",
        general__name="n" * (1 << 20),
        tokenizer__huggingface__json="x" * ((1 << 20) + 1),
        tokenizer__chat_template="t" * ((1 << 20) + 1),
    )
    path.write_bytes(packed([*long, text("llama.context_length") + struct.pack("<II", 4, 512)]))
    info = read_gguf(path)
    assert (info.context_length, len(info.name or ""), info.chat_template) == (512, 1 << 20, None)


@given(data=st.data())
def test_no_damage_to_a_header_escapes_as_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(header(template="{{ tools }}"))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(4, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        info = read_gguf(path)
    except GgufInvalid:
        return
    assert info.context_length >= 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "ends in the middle"),
        (b"PK\x03\x04 a zip archive", "does not begin with the letters GGUF"),
        (header()[:60], "ends in the middle"),
        (header()[:-13], "ends in the middle"),
        (header(template="t")[:-1], "ends in the middle"),
        (BROKEN_VOCABULARY, "ends in the middle"),
        (header(version=1), "version 1"),
        (header(context=0), "context length is 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no language model"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "ends in the middle"),
    ],
)
def test_what_is_no_model_is_named_as_such_before_anything_loads(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileInvalid, match=why) as caught:
        LocalServer(path).start()
    assert "pod models pull" in caught.value.hint


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissing, match="no model file at") as caught:
        LocalServer(tmp_path / "none.gguf").start()
    assert "pod models pull" in caught.value.hint


# --- the child, with a stand-in for the native library --------------------------------------


def test_the_server_is_private_and_gets_what_was_asked(
    model_file: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in("print('chatter on stdout')")
    with LocalServer(model_file, context_window=1000, threads=3) as server:
        assert server.base_url == ""
        assert server.start() == server.base_url == "http://127.0.0.1:4242/v1"
        told = json.loads(notes.read_text())
        assert told["hostnames"] == ["127.0.0.1"]
        assert told["port"] == 0
        assert told["api_keys"] == [server.api_key]
        assert len(server.api_key) >= 32
        assert told["model"] == str(model_file)
        assert (told["n_ctx"], told["threads"], told["batch_threads"]) == (1000, 3, 3)
        assert "tool.function" in told["chat_template"]
        command_line = Path(f"/proc/{told['pid']}/cmdline").read_bytes()
        assert server.api_key.encode() not in command_line
        # Ctrl-C goes to the terminal's foreground group: the model must not be in it.
        assert os.getpgid(told["pid"]) != os.getpgid(0)
    assert is_gone(told["pid"])
    server.close()


def test_a_template_that_is_left_alone_is_not_handed_over(
    tmp_path: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in("pass")
    path = gguf_files.model_file(tmp_path, template="{% for tool in tools %}{{ tool }}{% endfor %}")
    with LocalServer(path) as server:
        assert server.tools_told == "own"
        server.start()
        assert "chat_template" not in json.loads(notes.read_text())


def test_two_servers_have_different_keys(model_file: Path) -> None:
    assert LocalServer(model_file).api_key != LocalServer(model_file).api_key


def test_a_tiny_window_is_not_handed_to_a_library_that_aborts_on_it(
    model_file: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in("pass")
    with LocalServer(model_file, context_window=1) as server:
        server.start()
        assert json.loads(notes.read_text())["n_ctx"] == 256
        assert server.context_window == 1


def test_starting_twice_keeps_the_server_and_a_dead_one_is_replaced(
    model_file: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in("pass")
    with LocalServer(model_file) as server:
        server.start()
        first = noted_pid(notes)
        server.start()
        assert noted_pid(notes) == first
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: is_gone(first))
        server.start()
        assert noted_pid(notes) != first


def test_a_closed_server_stays_closed(model_file: Path) -> None:
    server = LocalServer(model_file)
    server.close()
    with pytest.raises(LocalModelError, match="closed"):
        server.start()


def test_without_the_package_the_extra_is_named(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ModuleNotFoundError('No module named xllamacpp')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LocalExtraMissing, match="extra `local`") as caught:
        LocalServer(model_file).start()
    assert "podworker[local]" in caught.value.hint


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            (
                "sys.stderr.write('0.00.038.626 E srv    load: tensor x is cut off\\nmore\\n')\n"
                "raise RuntimeError('Failed to init server')"
            ),
            "loaded: load: tensor x is cut off$",
        ),
        (
            (
                "sys.stderr.write('/build/llama/model.cpp:12: GGML_ASSERT(n > 0) failed\\n')\n"
                "sys.stderr.flush(); os.abort()"
            ),
            r"loaded: model.cpp:12: GGML_ASSERT\(n > 0\) failed$",
        ),
        ("raise RuntimeError('Failed to init server')", "loaded: Failed to init server$"),
        ("os.kill(os.getpid(), 11)", r"its process ended \(SIGSEGV\)$"),
        ("os.kill(os.getpid(), 9)", "memory runs out$"),
        ("os._exit(7)", r"its process ended \(exit code 7\)$"),
    ],
)
def test_a_load_that_fails_or_takes_its_process_down_is_an_error_with_the_reason(
    model_file: Path, stand_in: Callable[[str], Path], body: str, why: str
) -> None:
    notes = stand_in(body)
    with pytest.raises(ModelLoadFailed, match=why):
        LocalServer(model_file).start()
    assert is_gone(noted_pid(notes))


def test_a_load_that_takes_too_long_is_given_up(
    model_file: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in(HANG)
    server = LocalServer(model_file)
    with pytest.raises(ModelLoadFailed, match="not loaded after 1 s"):
        server.start(timeout_s=1.0)
    # Before the server is closed or forgotten: the failure itself leaves no process.
    assert is_gone(noted_pid(notes))
    server.close()


def test_closing_ends_a_load_under_way_at_once(
    model_file: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in(HANG)
    server = LocalServer(model_file)
    caught: list[BaseException] = []

    def start() -> None:
        try:
            server.start()
        except LocalModelError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    pid = noted_pid(notes)
    began = time.monotonic()
    server.close()
    thread.join(5)
    assert time.monotonic() - began < 1.5
    assert is_gone(pid)
    assert "closed while it loaded" in str(caught[0])


def test_a_forgotten_server_ends_its_process(
    model_file: Path, stand_in: Callable[[str], Path]
) -> None:
    notes = stand_in("pass")
    server: LocalServer | None = LocalServer(model_file)
    assert server is not None
    server.start()
    pid = noted_pid(notes)
    del server
    gc.collect()
    wait_for(lambda: is_gone(pid))


@pytest.mark.parametrize("body", ["pass", HANG], ids=["serving", "loading"])
def test_the_child_ends_with_its_parent_however_that_ends(
    model_file: Path, stand_in: Callable[[str], Path], body: str
) -> None:
    notes = stand_in(body)
    program = (
        "import sys, time; from pathlib import Path; from worker.llm.local import LocalServer\n"
        "LocalServer(Path(sys.argv[1])).start(); time.sleep(60)"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], root])}
    with subprocess.Popen([sys.executable, "-c", program, model_file], env=environment) as parent:
        pid = noted_pid(notes)
        parent.kill()
    wait_for(lambda: is_gone(pid))
