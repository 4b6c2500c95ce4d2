"""Finding and loading a provider: where, whose comes first, and what is said of a broken one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pod.memory.errors import MemoryNotFound, MemoryUnavailable
from pod.memory.loader import LoadedProvider, find_provider, is_bundled, load_provider
from tests.pod.memory.plugins import DIARY, LEGACY, toy


@pytest.fixture
def plugins(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "plugins"
    folder.mkdir()
    yield folder
    for name in [name for name in sys.modules if name.startswith("pod_plugins.")]:
        del sys.modules[name]


def put(plugins: Path, name: str, code: str) -> None:
    (plugins / name).mkdir()
    (plugins / name / "__init__.py").write_text(code)


def test_the_bundled_one_wins_over_a_folder_of_its_name(plugins: Path) -> None:
    put(plugins, "file", "raise SystemExit('imported')")
    info = find_provider("file", plugins)
    assert info is not None
    assert info.source == "bundled"
    assert load_provider("file", plugins).provider.name == "file"
    assert is_bundled("file")
    assert not is_bundled("diary")


def test_finding_imports_nothing(plugins: Path) -> None:
    put(plugins, "diary", "raise SystemExit('imported')")
    info = find_provider("diary", plugins)
    assert info is not None
    assert info.source == "plugin"


def test_registered_or_defined(plugins: Path) -> None:
    put(plugins, "registered", DIARY)
    put(plugins, "defined", toy("pass"))
    put(plugins, "legacy", LEGACY)
    put(
        plugins,
        "late",
        DIARY.replace("DiaryProvider())", "DiaryProvider())\n    raise ValueError('afterwards')"),
    )
    assert load_provider("registered", plugins).provider.name == "diary"
    assert load_provider("defined", plugins).provider.name == "toy"
    assert load_provider("legacy", plugins).provider.name == "toy"
    assert load_provider("late", plugins).provider.name == "diary"


def test_a_relative_import_works(plugins: Path) -> None:
    put(plugins, "parts", "from .inner import Toy\n")
    (plugins / "parts" / "inner.py").write_text(toy("pass"))
    assert load_provider("parts", plugins).provider.name == "toy"


def test_an_installed_one_is_found_by_its_entry_point(
    plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    for name, target in (("cls", "Toy"), ("obj", "ONE"), ("mod", "")):
        info = site / f"installed_{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: installed-{name}\nVersion: 1.2\nSummary: it remembers\n"
        )
        value = "installed_memory" + (f":{target}" if target else "")
        (info / "entry_points.txt").write_text(f"[pod.memory_providers]\n{name} = {value}\n")

    (site / "installed_memory.py").write_text(toy("pass") + "\nONE = Toy()\n")
    monkeypatch.syspath_prepend(str(site))
    try:
        for name in ("cls", "obj", "mod"):
            info_of = find_provider(name, plugins)
            assert info_of is not None
            assert (info_of.source, info_of.version) == ("entry point", "1.2")
            assert load_provider(name, plugins).provider.name == "toy"
    finally:
        sys.modules.pop("installed_memory", None)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module_here", "it needs the module 'no_such_module_here'"),
        ("import agent.no_such", "it needs the Hermes module 'agent.no_such', which is not served"),
        ("def (", "__init__.py, line 1"),
        ("x = 1", "it registers none, and defines no MemoryProvider"),
        ("def register(ctx): raise ValueError('no\\nway')", "ValueError: no way"),
        ("def register(ctx): ctx.register_memory_provider(3)", "it registered a int without name"),
        (toy("pass").replace("class Toy", "class Toy(MemoryProvider):\n    pass\nclass _X"), "x"),
    ],
)
def test_a_broken_one_is_named_with_the_reason(plugins: Path, code: str, said: str) -> None:
    put(plugins, "broken", code)
    if said == "x":  # An abstract class cannot be made, and the next one can.
        assert load_provider("broken", plugins).provider.name == "toy"
        return

    with pytest.raises(MemoryUnavailable) as caught:
        load_provider("broken", plugins)

    assert said in caught.value.reason
    assert caught.value.notice.startswith("Failed to load memory provider 'broken': ")
    assert "\n" not in caught.value.notice


def test_one_that_is_nowhere_is_not_found(plugins: Path) -> None:
    with pytest.raises(MemoryNotFound, match="no provider of that name"):
        load_provider("nowhere", plugins)


SHARED = "\nONE = Toy()\ndef register(ctx): ctx.register_memory_provider(ONE)\n"


def test_one_object_for_everybody_is_copied_for_the_second_pod(plugins: Path) -> None:
    put(plugins, "shared", toy("pass") + SHARED)
    first, second = load_provider("shared", plugins), load_provider("shared", plugins)
    assert first.provider is not second.provider
    first.release()
    second.release()


def test_one_that_cannot_be_copied_is_refused_to_the_second_pod(plugins: Path) -> None:
    put(plugins, "shared", toy("def __deepcopy__(self, memo): raise TypeError('a lock')") + SHARED)
    first = load_provider("shared", plugins)
    with pytest.raises(MemoryUnavailable, match="another pod uses the same object"):
        load_provider("shared", plugins)

    first.release()
    assert load_provider("shared", plugins).provider is first.provider


def test_loads_at_once_all_get_one(plugins: Path) -> None:
    put(plugins, "diary", DIARY)
    got: list[LoadedProvider] = []

    def load() -> None:
        got.extend(load_provider("diary", plugins) for _ in range(8))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(one.provider) for one in got}) == 64


def test_what_has_no_use_here_is_told(plugins: Path) -> None:
    put(
        plugins,
        "busy",
        DIARY
        + "    ctx.register_hook('pre_llm_call', print)\n"
        + "    ctx.register_command('diary', print)\n"
        + "    ctx.register_tool('page', handler=print)\n",
    )
    assert load_provider("busy", plugins).notices == (
        "registers what has no use here: hook pre_llm_call, command diary, tool page",
    )
    assert load_provider("file", plugins).notices == ()


def test_options_reach_it_where_it_asks_for_them(plugins: Path) -> None:
    put(
        plugins,
        "one",
        DIARY.replace("DiaryProvider())", "DiaryProvider()) or seen.update(ctx.options)")
        + "\nseen = {}\n",
    )
    load_provider("one", plugins, options={"depth": 3})
    (module,) = [m for n, m in sys.modules.items() if n.startswith("pod_plugins.one")]
    assert module.seen == {"depth": 3}
    put(plugins, "two", toy("def __init__(self, depth=1): self.depth = depth"))
    made = load_provider("two", plugins, options={"depth": 3}).provider
    assert vars(made) == {"depth": 3}
