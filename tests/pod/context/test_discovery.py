from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pod.context.discovery import EngineInfo, find_engine, list_engines
from pod.context.plugin_manifest import PluginManifest


def add(folder: Path, name: str, manifest: str | bytes | None = "version: 1.0.0\n") -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    if isinstance(manifest, str):
        manifest = manifest.encode()
    if manifest is not None:
        (path / "plugin.yaml").write_bytes(manifest)
    return path


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    return tmp_path / "bundled"


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    return tmp_path / "plugins"


def listed(plugins: Path, bundled: Path) -> dict[tuple[str, str], EngineInfo]:
    infos = list_engines(plugins, bundled_dir=bundled)
    return {(info.name, info.source): info for info in infos}


def test_engines_are_found_in_the_order_in_which_names_win(plugins: Path, bundled: Path) -> None:
    add(bundled, "lcm")
    add(plugins, "zeta")
    add(plugins, "alpha")
    infos = list_engines(plugins, bundled_dir=bundled)
    names = [(info.name, info.source) for info in infos if info.source != "entry point"]
    assert names == [
        ("compressor", "built in"),
        ("lcm", "bundled"),
        ("alpha", "plugin"),
        ("zeta", "plugin"),
    ]


def test_what_is_no_plugin_is_passed_over(plugins: Path, bundled: Path) -> None:
    add(plugins, "_private")
    add(plugins, ".hidden")
    add(plugins, "with space")
    (plugins / "empty").mkdir()
    (plugins / "file.py").write_text("", encoding="utf-8")
    assert [source for _, source in listed(plugins, bundled)].count("plugin") == 0


def test_folders_that_are_not_there_hold_no_engines(tmp_path: Path) -> None:
    assert find_engine("x", tmp_path / "a", bundled_dir=tmp_path / "b") is None


def test_a_bundled_engine_wins_and_the_other_is_told_of(plugins: Path, bundled: Path) -> None:
    mine, theirs = add(bundled, "lcm"), add(plugins, "lcm")
    add(plugins, "compressor")

    infos = listed(plugins, bundled)

    assert infos["lcm", "bundled"].problem == ""
    assert infos["lcm", "plugin"].path == theirs
    assert infos["lcm", "plugin"].problem == "hidden by the bundled engine of this name"
    assert infos["compressor", "plugin"].problem == "hidden by the built in engine of this name"
    found = find_engine("lcm", plugins, bundled_dir=bundled)
    assert found is not None
    assert found.path == mine


def test_a_name_in_a_plugin_yaml_counts_where_no_folder_has_it(
    plugins: Path, bundled: Path
) -> None:
    add(plugins, "hermes-lcm", "name: lcm\n")
    other = add(plugins, "other", "name: hermes-lcm\n")

    def path_of(name: str) -> Path | None:
        found = find_engine(name, plugins, bundled_dir=bundled)
        return found.path if found else None

    assert path_of("lcm") == path_of("hermes-lcm") == plugins / "hermes-lcm"
    assert path_of("other") == other
    assert path_of("../plugins/other") is None


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (None, "plugin.yaml: missing"),
        ("name: [x\n", "plugin.yaml: line 2: "),
        ("- a\n- b\n", "plugin.yaml: not a mapping"),
        ("", "plugin.yaml: not a mapping"),
        (b"\xff\xfe\xfd", "plugin.yaml: not YAML"),
        ("x" * 70_000, "plugin.yaml: over 65,536 bytes"),
        ("[" * 1_500, "plugin.yaml: "),
        ("a: !!python/object/apply:os.system [x]\n", "plugin.yaml: line 1: "),
    ],
)
def test_a_broken_plugin_yaml_is_a_problem_of_that_engine(
    manifest: str | bytes | None, problem: str, plugins: Path, bundled: Path
) -> None:
    add(plugins, "broken", manifest)
    assert listed(plugins, bundled)["broken", "plugin"].problem.startswith(problem)


def test_values_come_to_one_line_each(plugins: Path, bundled: Path) -> None:
    add(plugins, "x", "version: 1.5\ndescription: |\n  two\n  lines\nname:\n")
    info = listed(plugins, bundled)["x", "plugin"]
    assert (info.version, info.description, info.declared_name) == ("1.5", "two lines", "")


def test_what_a_plugin_says_of_itself_is_read_whole(plugins: Path, bundled: Path) -> None:
    folder = add(
        plugins,
        "x",
        "name: y\nversion: 2\nauthor: me\nkind: exclusive\nprovides_tools: [a, {name: b}, [c]]\n"
        "hooks: [post_llm_call]\nrequires_env: [K, {name: L, description: d}]\n",
    )
    assert listed(plugins, bundled)["x", "plugin"].manifest == PluginManifest(
        name="y",
        version="2",
        author="me",
        kind="exclusive",
        requires_env=("K", "L"),
        provides_tools=("a", "b"),
        provides_hooks=("post_llm_call",),
        path=folder,
        source="plugin",
        key="x",
    )


def test_a_few_bytes_that_stand_for_gigabytes_come_to_nothing(plugins: Path, bundled: Path) -> None:
    steps = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    add(plugins, "bomb", f"a0: &a0 [xxxxxxxxxx]\n{steps}description: *a11\nname: *a11\n")
    info = listed(plugins, bundled)["bomb", "plugin"]
    assert (info.description, info.declared_name, info.problem) == ("", "", "")


def test_a_plugin_of_memory_alone_is_told_to_be_no_engine(plugins: Path, bundled: Path) -> None:
    (add(plugins, "memo") / "__init__.py").write_text(
        "def register(ctx):\n    ctx.register_memory_provider(1)\n"
    )
    (add(plugins, "both") / "__init__.py").write_text("register_memory_provider; ContextEngine\n")
    infos = listed(plugins, bundled)
    assert infos["memo", "plugin"].problem == "brings a memory provider and no engine"
    assert infos["both", "plugin"].problem == ""


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "x/", "a/b", "/x", "x\0"])
def test_a_name_is_never_a_path(name: str, plugins: Path, bundled: Path) -> None:
    add(plugins, "x")
    assert find_engine(name, plugins, bundled_dir=bundled) is None


def test_a_distribution_s_entry_point_is_found_and_not_imported(
    plugins: Path, bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    install(site, "podworker-probe", "probe = probe_engine:Probe\n")
    (site / "probe_engine.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))

    info = listed(plugins, bundled)["probe", "entry point"]

    assert (info.version, info.description) == ("2.0", "A probe.")
    assert info.place == "probe_engine:Probe"
    assert "probe_engine" not in sys.modules


def test_a_distribution_made_for_hermes_is_found_by_name_and_not_listed(
    plugins: Path, bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    install(site, "hermes-probe", "probe = probe_engine\n", group="hermes_agent.plugins")
    monkeypatch.syspath_prepend(str(site))

    info = find_engine("probe", plugins, bundled_dir=bundled)

    assert info is not None
    assert (info.source, info.place) == ("entry point", "probe_engine")
    assert "probe" not in {name for name, _ in listed(plugins, bundled)}
    add(plugins, "probe")
    own = find_engine("probe", plugins, bundled_dir=bundled)
    assert own is not None
    assert own.source == "plugin", "what a user put there wins"


def install(site: Path, name: str, entries: str, *, group: str = "pod.context_engines") -> None:
    dist_info = site / f"{name.replace('-', '_')}-2.0.dist-info"
    dist_info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\nSummary: A probe.\n"
    (dist_info / "METADATA").write_text(metadata, encoding="utf-8")
    text = f"[{group}]\n{entries}"
    (dist_info / "entry_points.txt").write_text(text, encoding="utf-8")
