"""Loading: overrides, environment, paths and lines; and the manifests that ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tomli

from manifests import LoadedManifest, ManifestError, PodManifest, launch_notes, load_manifest

PACKAGE = Path(__file__).parents[2] / "manifests"
SHIPPED = sorted(PACKAGE.glob("*.toml"))
RIGHT = '[pod]\nname = "p"\n[provider]\nkind = "anthropic"\nmodel = "m"\n'

Load = Callable[..., LoadedManifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(text: str, *overrides: str, **env: str) -> LoadedManifest:
        path = tmp_path / "m.toml"
        path.write_text(text)
        return load_manifest(path, overrides=overrides, env=env)

    return loaded


# --- overrides -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("worker.max_tokens=200", "worker.max_tokens", 200),
        ("worker.temperature = 0.5", "worker.temperature", 0.5),
        ("provider.strict_alternation=false", "provider.strict_alternation", False),
        ("provider.model=gpt-5.5", "provider.model", "gpt-5.5"),
        ('provider.model="4"', "provider.model", "4"),
        ("provider.model=2026-01-01", "provider.model", "2026-01-01"),
        ("provider.model=a = b", "provider.model", "a = b"),
        ("worker.system_prompt=", "worker.system_prompt", ""),
        ("worker.system_prompt=one\ntwo", "worker.system_prompt", "one\ntwo"),
        ("worker.system_prompt=1\nx = 2", "worker.system_prompt", "1\nx = 2"),
        ('permissions.bash=["ls *"]', "permissions.bash", ("ls *",)),
        ("compaction.compact_threshold=5000", "compaction.compact_threshold", 5000),
        ("budgets.run={requests = 3}", "budgets.run.requests", 3),
        ('"pod".name=other', "pod.name", "other"),
    ],
)
def test_an_override_is_read_as_toml_and_else_as_text(
    load: Load, override: str, path: str, value: object
) -> None:
    found: object = load(RIGHT, override).manifest
    for name in path.split("."):
        found = getattr(found, name)

    assert found == value


def test_an_override_reaches_quoted_keys_and_elements_of_lists(load: Load) -> None:
    text = (
        RIGHT + 'fallbacks = [{ kind = "gemini", model = "a" }, { kind = "gemini", model = "b" }]\n'
    )
    loaded = load(text, 'compaction.model_thresholds."gpt-5.5"=0.5', "provider.fallbacks.1.model=c")

    assert loaded.manifest.compaction is not None
    assert loaded.manifest.compaction.model_thresholds == {"gpt-5.5": 0.5}
    assert [f.model for f in loaded.manifest.provider.fallbacks] == ["a", "c"]


@pytest.mark.parametrize("index", ["2", "-1", "x", "²"])
def test_an_element_that_is_not_there_is_a_mistake(load: Load, index: str) -> None:
    text = (
        RIGHT + 'fallbacks = [{ kind = "gemini", model = "a" }, { kind = "gemini", model = "b" }]\n'
    )
    with pytest.raises(ManifestError, match=r"--set .*(0 to 1|not a dotted key)"):
        load(text, f"provider.fallbacks.{index}.model=c")


def test_a_later_override_wins_and_the_file_may_be_wrong_where_it_is_overridden(load: Load) -> None:
    loaded = load(
        RIGHT.replace("anthropic", "nonsense"), "provider.kind=gemini", "provider.kind=ollama"
    )

    assert loaded.manifest.provider.kind == "ollama"


def test_text_that_no_terminal_can_have_meant_is_refused(load: Load) -> None:
    with pytest.raises(ManifestError, match="must be Unicode text"):
        load(RIGHT, "provider.model=\udc80")


# --- ${NAME}, ~ and relative paths ---------------------------------------------------------------


def test_variables_are_expanded_in_addresses_env_tables_and_paths_only(load: Load) -> None:
    manifest = load(
        """
        pod = { name = "p", instructions = ["${D}/AGENTS.md"] }
        provider = { kind = "openai_compatible", model = "m", base_url = "http://${H}:${P}/v1",
                     api_key_file = "${D}/key" }
        worker = { system_prompt = "keep ${D}", max_tokens = 5 }
        tools = { mcp = [{ name = "g", command = "${D}/x", args = ["${D}"],
                            env = { T = "a ${S}" }}]}
        permissions = { read = ["${D}/**"], write = ["${D}/w"], bash = ["echo ${D}"] }
        session = { store = "${D}/logs" }
        """,
        D="/data",
        H="localhost",
        P="8080",
        S="swordfish",
    )
    spec = manifest.manifest

    assert spec.provider.base_url == "http://localhost:8080/v1"
    assert spec.pod.instructions == ("/data/AGENTS.md",)
    assert spec.provider.api_key_file == "/data/key"
    assert (spec.permissions.read, spec.permissions.write) == (("/data/**",), ("/data/w",))
    assert spec.session.store == "/data/logs"
    assert spec.tools is not None
    assert spec.tools.mcp[0].env == {"T": "a swordfish"}

    assert spec.worker.system_prompt == "keep ${D}"
    assert spec.tools.mcp[0].command == "${D}/x"
    assert spec.tools.mcp[0].args == ("${D}",)
    assert spec.permissions.bash == ("echo ${D}",)

    assert manifest.secret_values == {"swordfish"}
    assert "swordfish" not in repr(manifest)


def test_a_local_model_may_be_a_path_with_variables(load: Load) -> None:
    text = RIGHT.replace("anthropic", "local").replace('"m"', '"${MODELS}/tiny.gguf"')

    assert load(text, MODELS="/m").manifest.provider.model == "/m/tiny.gguf"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://${NOPE}/v1", "the variable NOPE is not set"),
        ("http://${}/v1", "must be followed by the name of a variable"),
        ("http://${A", "must be followed by the name of a variable"),
        ("http://${A B}/", "must be followed by the name of a variable"),
    ],
)
def test_a_variable_that_is_not_set_is_a_mistake_with_key_and_line(
    load: Load, address: str, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        load(RIGHT + f'base_url = "{address}"\n', A="a")

    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.key) == (6, "provider.base_url")
    assert message in mistake.message


def test_a_value_brought_in_by_a_variable_is_not_expanded_again(load: Load) -> None:
    loaded = load(RIGHT + 'api_key_file = "${A}"\n', A="${B}", B="no")

    assert loaded.manifest.provider.api_key_file == "${B}"


def test_paths_start_at_the_manifest_and_tilde_at_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.toml").write_text(RIGHT)
    monkeypatch.chdir(tmp_path)
    loaded = load_manifest("sub/m.toml", env={"HOME": "/home/ann"})

    assert loaded.path == Path("sub/m.toml")
    assert loaded.base_dir == tmp_path / "sub"
    assert loaded.resolve("keys/a") == tmp_path / "sub" / "keys" / "a"
    assert loaded.resolve("/etc/a") == Path("/etc/a")
    assert loaded.resolve("~/a") == Path("/home/ann/a")
    assert loaded.resolve("~") == Path("/home/ann")
    assert loaded.resolve("~ann/a") == tmp_path / "sub" / "~ann" / "a"


def test_a_manifest_made_in_python_has_a_place_too(tmp_path: Path) -> None:
    manifest = PodManifest.model_validate(tomli.loads(RIGHT))
    loaded = LoadedManifest(path=tmp_path / "none", manifest=manifest, base_dir=tmp_path)

    assert loaded.resolve("a") == tmp_path / "a"
    assert loaded.line_of("pod") is None


# --- lines ---------------------------------------------------------------------------------------


def test_lines_of_keys_are_known_after_loading(load: Load) -> None:
    loaded = load(RIGHT + 'api_key_env = "K"\nfallbacks = [\n{ kind = "gemini", model = "a" }]\n',
                  "provider.model=x")  # fmt: skip

    assert loaded.line_of("provider") == 3
    assert loaded.line_of("provider", "api_key_env") == 6
    assert loaded.line_of("provider", "fallbacks", 0, "kind") == 8
    assert loaded.line_of("provider", "model") is None, "it was given with --set"
    assert loaded.line_of("worker", "max_tokens") is None


def test_windows_line_ends_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_bytes(b"\xef\xbb\xbf" + RIGHT.replace("\n", "\r\n").encode())

    assert load_manifest(path, env={}).line_of("provider", "model") == 5


# --- what the machine lacks ----------------------------------------------------------------------


def test_notes_name_variables_that_are_not_set_and_files_that_are_not_there(load: Load) -> None:
    loaded = load(
        RIGHT + 'api_key_env = "K1"\nfallbacks = [{ kind = "gemini", model = "m" }]\n'
        '[worker]\nsystem_prompt_file = "prompt.md"\n'
        '[compaction.provider]\nkind = "openai"\nmodel = "m"\napi_key_file = "~/no/key"\n',
        HOME="/nowhere",
    )

    assert [(n.line, n.key, n.message) for n in launch_notes(loaded, {"K1": ""})] == [
        (6, "provider.api_key_env", "the variable K1 is not set"),
        (7, "provider.fallbacks[0]", "names no key: api_key_env, api_key_file or api_key_command"),
        (9, "worker.system_prompt_file", "there is no file prompt.md"),
        (13, "compaction.provider.api_key_file", "there is no file ~/no/key"),
    ]


def test_nothing_is_noted_where_nothing_lacks(load: Load, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("x")
    text = RIGHT.replace('"p"', '"p"\ninstructions = ["AGENTS.md"]') + 'api_key_env = "K1"\n'

    assert launch_notes(load(text), {"K1": "x"}) == ()


# --- what ships ----------------------------------------------------------------------------------


def test_the_manifests_that_ship() -> None:
    assert [p.stem for p in SHIPPED] == ["anthropic", "gemini", "ollama", "openai", "quickstart"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_a_manifest_that_ships_is_right_and_named_like_its_file(path: Path) -> None:
    manifest = load_manifest(path, env={}).manifest

    assert manifest.pod.name == path.stem
    assert manifest.worker.system_prompt
    if path.stem == "quickstart":
        assert (manifest.provider.label, manifest.worker.max_tokens) == (
            "local/SmolLM2-135M-Instruct",
            200,
        )

    assert manifest.compaction is not None
    assert manifest.compaction.compact_threshold


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_a_manifest_that_ships_lacks_nothing_but_its_key(path: Path) -> None:
    notes = launch_notes(load_manifest(path, env={}), {})

    assert all(n.key.endswith("api_key_env") and n.line for n in notes)
