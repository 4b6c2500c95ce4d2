from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from manifests import load_manifest
from pod.cli.machine_check import file_system_of
from pod.cli.provider_check import ModelCheck
from pod.home import Home
from session_store import FileSessionStore
from tests.fake_provider import Asked, Say, serving
from tests.pod.desk import KEY, Desk
from tests.pod.plugin_folders import install, use


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def found(desk: Desk, *args: str, code: int = 0, **env: str) -> dict[str, dict[str, Any]]:
    done = desk.pod("doctor", *args, "--json", **env)
    assert done.exit_code == code, done.output
    assert KEY not in done.output
    return {finding["what"]: finding for finding in json.loads(done.stdout)}


def test_a_machine_is_told_of_line_by_line(desk: Desk) -> None:
    done = desk.pod("doctor")
    assert done.exit_code == 0, done.output
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert all(level in {"ok", "warn"} for level, _, _ in lines)
    assert {"python", "platform", "extras", "home", "disk", "sqlite", "sessions"} <= {
        what for _, what, _ in lines
    }


def test_looking_makes_nothing(desk: Desk, tmp_path: Path) -> None:
    home = tmp_path / "not" / "yet"
    seen = found(desk, POD_HOME=str(home))
    assert seen["home"]["detail"] == f"{home}, made by the first run"
    assert not home.parent.exists()


def test_a_home_that_others_can_read_is_warned_of(desk: Desk) -> None:
    desk.home.chmod(0o755)
    seen = found(desk)["home"]
    assert (seen["level"], seen["advice"]) == ("warn", f"chmod 700 {desk.home}")


def test_a_home_that_is_a_file_is_a_failure(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert found(desk, code=1, POD_HOME=str(tmp_path / "file"))["home"]["level"] == "fail"


def test_sessions_are_counted_and_damaged_ones_named(desk: Desk) -> None:
    manifest = desk.scripted({"text": "first"})
    desk.pod("run", manifest, "one")
    desk.pod("run", manifest, "two")
    assert found(desk)["sessions"]["detail"] == "2 sessions, indexed"
    log = desk.logs()[0]
    log.write_bytes(log.read_bytes().replace(b"first", b"wrong"))
    seen = found(desk)["sessions"]
    assert seen["level"] == "warn"
    assert log.stem in seen["detail"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/srv/x", "nfs4"), ("/srv", "nfs4"), ("/srvx", "ext4"), ("/a b/c", "tmpfs"), ("/m", "xfs")],
)
def test_the_kind_of_file_system_is_that_of_the_mount_on_top(
    tmp_path: Path, path: str, kind: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\nhost:/x /srv nfs4 rw 0 0\ntmpfs /a\\040b tmpfs rw 0 0\n"
        "/dev/b /m ext4 rw 0 0\n/dev/c /m xfs rw 0 0\nbroken\n"
    )
    assert file_system_of(Path(path), mounts) == kind
    assert file_system_of(Path(path), tmp_path / "none") is None


# --- with a manifest ----------------------------------------------------------------------------


def said_of(desk: Desk, what: str, *args: str, code: int = 0) -> list[tuple[str, str]]:
    """Level and detail of every line about `what`."""
    done = desk.pod("doctor", *args, "--json")
    assert done.exit_code == code, done.output
    lines = json.loads(done.stdout)
    return [(line["level"], line["detail"]) for line in lines if line["what"] == what]


def test_a_model_is_tried_with_an_answer_and_a_tool_call(desk: Desk) -> None:
    def script(asked: Asked, number: int) -> Say:
        return Say("fine") if number == 1 else Say(calls=(("note_colour", '{"colour":"blue"}'),))

    with serving(script) as served:
        manifest = desk.manifest(served.base_url)
        known, answered, usage, called = said_of(desk, "provider", manifest)

    assert len(served.asked) == 2
    assert known == (
        "ok",
        "openai_compatible/fake: window 100,000 tokens (says the manifest); no price is known",
    )
    assert answered[1].startswith("openai_compatible/fake answered in ")
    assert "in 2 pieces" in answered[1]
    assert usage[1].startswith("it tells its usage: ")
    assert called == ("ok", "it calls tools")


def test_what_a_model_cannot_do_is_a_warning(desk: Desk) -> None:
    with serving(Say("I cannot call anything.", measures=False)) as served:
        _, _, usage, called = said_of(desk, "provider", desk.manifest(served.base_url))

    assert usage == ("warn", "it does not tell how many tokens a request took")
    assert called == ("warn", "it was asked to call a tool and did not")


def test_with_no_try_a_model_is_reached_and_not_asked(desk: Desk) -> None:
    with serving(Say("fine")) as served:
        seen = found(desk, desk.manifest(served.base_url), "--no-try")
        assert not served.asked

    assert seen["key"]["detail"] == "from the variable FAKE_KEY (not shown)"
    assert "answers in" in seen["provider"]["detail"]


def test_every_fallback_and_the_summaries_model_are_looked_at(desk: Desk) -> None:
    with serving(Say("fine")) as served:
        other = f'kind = "openai_compatible", model = "other", base_url = "{served.base_url}"'
        extra = (
            f"fallbacks = [{{ {other} }}]\n[compaction.provider]\n"
            f'kind = "openai_compatible"\nmodel = "writer"\nbase_url = "{served.base_url}"\n'
        )
        manifest = desk.manifest(served.base_url, extra)
        for what, model in [("provider", "fake"), ("fallback 1", "other"), ("summaries", "writer")]:
            details = [detail for _, detail in said_of(desk, what, manifest)]
            assert details[0].startswith(f"openai_compatible/{model}: ")
            assert details[1].startswith(f"openai_compatible/{model} answered in ")


def test_a_cost_that_is_limited_and_cannot_be_told_is_a_failure(desk: Desk) -> None:
    with serving(Say("fine")) as served:
        manifest = desk.manifest(served.base_url, "[budgets.run]\ncost = 1.0\n")
        seen = found(desk, manifest, "--no-try", code=1)["budgets"]

    assert "no price is known for openai_compatible/fake" in seen["detail"]
    assert "prices = { input" in seen["advice"]


def test_a_key_that_is_refused_shows_when_it_is_tried(desk: Desk) -> None:
    with serving(Say(status=401, error="bad key")) as served:
        seen = found(desk, desk.manifest(served.base_url), code=1)

    assert "bad key" in seen["provider"]["detail"]


def test_a_model_that_answers_only_when_asked_again_is_warned_of(desk: Desk) -> None:
    def script(_: Asked, number: int) -> Say:
        return Say(status=503, error="busy now") if number == 1 else Say("fine")

    with serving(script) as served:
        told = said_of(desk, "provider", desk.manifest(served.base_url))

    (warned,) = [detail for _, detail in told if "asked again" in detail]
    assert warned.startswith("it was asked again once: ")
    assert warned.endswith("busy now")


def test_who_gives_no_answer_in_time_is_told_of_with_the_last_failure(desk: Desk) -> None:
    with serving(Say(status=429, error="slow down")) as served:
        loaded = load_manifest(desk.work / desk.manifest(served.base_url), env={})
        check = ModelCheck(
            *("provider", loaded.manifest.provider, loaded, Home(desk.home), {"FAKE_KEY": KEY}),
            is_trying=True,
            limit_s=0.3,
        )
        *_, last = check.findings()

    assert (last.level, last.advice) == ("fail", "wait and try again, or use another model")
    assert last.detail.startswith(
        "no answer within 0.3 s: openai_compatible is not available (429)"
    )
    assert last.detail.endswith("slow down")


HEAD = '[pod]\nname = "p"\n[provider]\n'


def test_a_key_that_no_section_names_fails_only_where_one_is_wanted(desk: Desk) -> None:
    claude = f'{HEAD}kind = "anthropic"\nmodel = "m"\nbase_url = "http://127.0.0.1:9"\n'
    manifest = desk.write("claude.toml", claude)
    seen = found(desk, manifest, "--no-try", code=1)["key"]
    assert (seen["level"], seen["detail"]) == ("ok", "the manifest names none")

    # At its own address; behind this proxy nobody is reached.
    desk.write("claude.toml", claude.replace('base_url = "http://127.0.0.1:9"\n', ""))
    seen = found(desk, manifest, "--no-try", code=1, HTTPS_PROXY="http://127.0.0.1:9")["key"]
    assert (seen["level"], seen["detail"]) == ("fail", "anthropic wants one, none is named")
    assert "api_key_env" in seen["advice"]


def test_ollama_without_a_window_is_warned_of(desk: Desk) -> None:
    text = f'{HEAD}kind = "ollama"\nmodel = "m"\nbase_url = "http://127.0.0.1:9"\n'
    manifest = desk.write("o.toml", text)
    level, detail = said_of(desk, "provider", manifest, "--no-try", code=1)[0]
    assert level == "warn"
    assert "window not named" in detail

    desk.write("o.toml", f"{text}context_window = 8192\n")
    level, detail = said_of(desk, "provider", manifest, "--no-try", code=1)[0]
    assert (level, detail) == (
        "ok",
        "ollama/m: window 8,192 tokens (says the manifest); no price is known",
    )


def test_without_the_table_of_models_it_is_offered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = f'{HEAD}kind = "openai_compatible"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    manifest = desk.write("m.toml", unknown)

    def advice(*args: str) -> str:
        done = desk.pod("doctor", manifest, "--no-try", "--json", *args)
        lines = [line for line in json.loads(done.stdout) if line["what"] == "provider"]
        return str(lines[0]["advice"])

    assert advice() == ""
    monkeypatch.setitem(sys.modules, "genai_prices", None)  # as if it were not installed
    assert advice() == "pip install 'podworker[prices]' brings a table"
    assert advice("--set", "provider.kind=ollama", "--set", "provider.context_window=8192") == ""
    own = "provider.prices={ input = 1.0, output = 2.0 }"
    assert advice("--set", "provider.context_window=8192", "--set", own) == ""


@pytest.mark.parametrize(
    ("sizes", "key"),
    [
        ("compact_threshold = 8192", "compact_threshold is 8,192"),
        (
            "compact_threshold = 5000\ncompact_request_threshold = 9000",
            "compact_request_threshold is 9,000",
        ),
        ("compact_threshold = 5000\ncompact_request_threshold = 6000", ""),
        ('compact_threshold = 90000\nmodel_thresholds = { "scripted" = 0.5 }', ""),
    ],
)
def test_a_threshold_that_the_window_never_reaches_is_warned_of(
    desk: Desk, sizes: str, key: str
) -> None:
    manifest = desk.scripted(extra=f"context_window = 8192\n[compaction]\n{sizes}\n")
    told = said_of(desk, "compaction", manifest)
    full = ", and the window of 8,192 is full before that"
    assert told == ([("warn", key + full)] if key else [])


def test_what_is_missing_fails_with_what_to_do(desk: Desk) -> None:
    unreachable = desk.manifest("http://127.0.0.1:9/v1")
    assert "Connection refused" in found(desk, unreachable, code=1)["provider"]["detail"]
    seen = found(desk, unreachable, "--no-try", code=1)["provider"]
    assert "127.0.0.1:9 cannot be reached" in seen["detail"]
    assert seen["advice"]
    assert "FAKE_KEY is not set" in found(desk, unreachable, code=1, FAKE_KEY="")["key"]["detail"]

    local = desk.write("local.toml", f'{HEAD}kind = "local"\nmodel = "SmolLM2-135M-Instruct"\n')
    assert found(desk, local, code=1)["model"]["advice"].startswith("pod models pull")
    unbuilt = desk.write("unbuilt.toml", f'{HEAD}kind = "replay"\nscript = "r.jsonl"\n')
    assert "not built" in found(desk, unbuilt, code=1)["provider"]["detail"]
    tools = desk.scripted(extra='[tools]\npython = ["no_such_module:f"]\n')
    assert "no_such_module" in found(desk, tools, code=1)["tools"]["detail"]


def test_an_engine_that_is_not_there_is_a_warning_as_the_built_in_takes_over(desk: Desk) -> None:
    manifest = desk.scripted(extra='[context]\nengine = "nowhere"\n')
    seen = found(desk, manifest)["engine"]
    assert seen["level"] == "warn"
    assert "nowhere" in seen["detail"]
    assert found(desk, desk.scripted())["engine"]["level"] == "ok"


def test_a_memory_provider_that_cannot_be_had_is_a_warning(desk: Desk) -> None:
    seen = found(desk, desk.scripted(extra='[memory]\nprovider = "nowhere"\n'))["memory"]
    assert seen["level"] == "warn"
    assert "the pod would run without memory" in seen["detail"]
    seen = found(desk, desk.scripted(extra='[memory]\nprovider = "file"\n'))["memory"]
    assert (seen["level"], seen["detail"]) == ("ok", "file (bundled)")
    assert "memory" not in found(desk, desk.scripted())


def test_an_engine_that_does_not_load_is_a_warning_too(desk: Desk) -> None:
    folder = desk.home / "plugins" / "broken"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: broken\n")
    (folder / "__init__.py").write_text("raise RuntimeError('no such luck')\n")
    seen = found(desk, desk.scripted(extra='[context]\nengine = "broken"\n'))["engine"]
    assert seen["level"] == "warn"
    assert "broken: RuntimeError: no such luck; the built-in compressor" in seen["detail"]


@pytest.mark.parametrize(
    ("source", "options", "level", "detail"),
    [
        ("", "", "ok", "calm (plugin)"),
        ("", "depth = 3\n", "warn", "calm: Context engine 'calm' did not take the option 'depth'"),
        ("", "protect_last_n = 3\n", "ok", "calm (plugin)"),
        (
            "class Wanting(Calm):\n    def __init__(self, depth): pass\nCalm = None\n",
            *("depth = 3\n", "ok", "calm (plugin)"),
        ),
        (
            "def register(ctx):\n    ctx.register_skill('x')\n",
            *("", "warn", "calm: Plugin 'calm' registers what has no use here: skill x"),
        ),
        (
            "import hermes_constants as h\nassert 'engines/calm' in str(h.get_hermes_home())",
            *("", "ok", "calm (plugin)"),
        ),
    ],
)
def test_an_engine_is_made_of_its_options_as_a_launch_would(
    desk: Desk, source: str, options: str, level: str, detail: str
) -> None:
    install(desk.home, source)
    extra = use(more=f"[context.options]\n{options}")
    for _ in range(2):
        seen = found(desk, desk.scripted(extra=extra))["engine"]
        assert seen["level"] == level
        assert seen["detail"].startswith(detail)
        assert "built-in" not in seen["detail"]


def test_an_engine_without_a_plugin_yaml_is_used_and_told_of(desk: Desk) -> None:
    (install(desk.home, "") / "plugin.yaml").unlink()
    seen = found(desk, desk.scripted(extra=use()))["engine"]
    assert (seen["level"], seen["detail"]) == ("warn", "calm: plugin.yaml: missing")


def test_options_for_the_built_in_engine_are_a_warning(desk: Desk) -> None:
    seen = found(desk, desk.scripted(extra="[context.options]\ndepth = 3\n"))["engine"]
    assert (seen["level"], "takes no options" in seen["detail"]) == ("warn", True)


def test_the_session_that_the_pod_would_go_on_with_is_looked_at(desk: Desk) -> None:
    manifest = desk.scripted({"text": "first"})
    desk.pod("run", manifest, "one")
    (log,) = desk.logs()
    assert found(desk, manifest)["session"]["level"] == "ok"
    with FileSessionStore(desk.home).open(log.stem):
        assert "in use by pid" in found(desk, manifest)["session"]["detail"]

    log.write_bytes(log.read_bytes().replace(b"first", b"wrong"))
    assert "entry 2" in found(desk, manifest, code=1)["session"]["detail"]


def test_a_wrong_manifest_ends_with_2_before_anything_is_looked_at(desk: Desk) -> None:
    done = desk.pod("doctor", desk.write("bad.toml", '[pod]\nname = "Bad Name!"\n'))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "pod.name" in done.stderr
    assert desk.pod("doctor", "--no-try").exit_code == 2
