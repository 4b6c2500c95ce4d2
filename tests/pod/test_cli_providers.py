"""What a person sees, and which exit code ends it, when a provider does not do what it should."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import Result

from tests.fake_provider import Asked, Say, Served, serving
from tests.pod.desk import Desk, events, until


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Desk(work, home)


def told(desk: Desk, said: Say, *args: str, extra: str = "") -> Result:
    with serving(said) as served:
        done = desk.pod("run", desk.manifest(served.base_url, extra), *args, "Hello")

    assert "Traceback" not in done.output
    return done


@pytest.mark.parametrize(
    ("said", "code", "what", "advice"),
    [
        (Say(status=401, error="bad key"), 4, "refused the key from the variable FAKE_KEY (401)",
         "check the variable FAKE_KEY"),
        (Say(status=404, error="no model fake"), 4, "no such address or model", "provider.model"),
        (Say(status=402, error="Insufficient Balance"), 4, "refused the request (402)",
         "the account behind the variable FAKE_KEY has no credit left"),
        (Say(status=400, error="prompt is too long: 210000 tokens > 200000 maximum"), 1,
         "the prompt is too long", "compaction.compact_threshold"),
    ],
)  # fmt: skip
def test_a_refusal_is_a_line_what_and_a_line_what_to_do(
    desk: Desk, said: Say, code: int, what: str, advice: str
) -> None:
    done = told(desk, said)
    first, *rest = done.stderr.splitlines()
    assert done.exit_code == code
    assert done.stdout == ""
    assert what in first
    assert advice in " ".join(rest)
    assert all(line.startswith("  ") for line in rest)


def test_no_credit_without_a_key_names_no_key(desk: Desk) -> None:
    with serving(Say(status=402, error="Insufficient Balance")) as served:
        manifest = desk.manifest(served.base_url)
        text = (desk.work / manifest).read_text()
        desk.write(manifest, text.replace('api_key_env = "FAKE_KEY"\n', ""))
        done = desk.pod("run", manifest, "Hello")

    assert "  the account has no credit left\n" in done.stderr


def fallback_to(served: Served) -> str:
    return (
        f'fallbacks = [{{ kind = "openai_compatible", model = "other",'
        f' base_url = "{served.base_url}" }}]\n'
    )


def test_a_model_that_stands_in_is_told_of_and_nothing_is_waited_for(desk: Desk) -> None:
    refused = Say(status=401, error="bad key")
    with serving(Say("I stand in.")) as other:
        done = told(desk, refused, "-v", extra=fallback_to(other))
        as_json = told(desk, refused, "--json", extra=fallback_to(other))

    assert (done.exit_code, done.stdout) == (0, "I stand in.\n")
    (line,) = [line for line in done.stderr.splitlines() if "bad key" in line]
    assert line.endswith("; asking openai_compatible/other instead")
    assert "openai_compatible/other · 1 request" in done.stderr
    (retry,) = [event["data"] for event in events(as_json.stdout) if event["event"] == "retry"]
    assert retry["delay_s"] == 0


def test_an_option_that_is_left_out_is_told_of_once(desk: Desk) -> None:
    def script(asked: Asked, _: int) -> Say:
        if "temperature" in asked.body:
            words = "Unsupported parameter: 'temperature' is not supported with this model."
            return Say(status=400, error=words)

        return Say("Warm enough.")

    with serving(script) as served:
        manifest = desk.manifest(served.base_url, "[worker]\ntemperature = 0.5\n")
        done = desk.pod("run", manifest, "Hello")

    assert (done.exit_code, done.stdout) == (0, "Warm enough.\n")
    (line,) = done.stderr.splitlines()
    assert line.endswith("; temperature is left out from now on")


def test_a_key_that_is_not_there_and_a_price_that_nobody_knows_are_wrong_use(desk: Desk) -> None:
    with serving(Say("never asked")) as served:
        manifest = desk.manifest(served.base_url)
        done = desk.pod("run", manifest, "Hello", FAKE_KEY="")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "the variable FAKE_KEY is not set" in done.stderr

        done = desk.pod("run", manifest, "Hello", "--set", "budgets.run.cost=1.0")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "no price is known for openai_compatible/fake" in done.stderr
        assert "prices = {" in done.stderr

        prices = "provider.prices={ input = 0, output = 0 }"
        both = ("--set", "budgets.run.cost=1.0", "--set", prices)
        assert desk.pod("run", manifest, "Hello", *both).exit_code == 0
        assert len(served.asked) == 1


def test_ctrl_c_ends_a_wait_between_two_tries(desk: Desk) -> None:
    # 429 without Retry-After: the waits grow from half a second on.
    with (
        serving(Say(status=429, error="slow down")) as served,
        desk.start("run", desk.manifest(served.base_url), "Hello") as process,
    ):
        served.wait_for(3)
        process.send_signal(signal.SIGINT)
        until(lambda: process.poll() is not None)
        out, err = process.communicate()

    assert process.returncode == 130
    assert out == b""
    lines = err.decode().splitlines()
    assert lines[-1] == "cancelled"
    assert "slow down; trying again in" in lines[0]
    assert len(served.asked) < 6
