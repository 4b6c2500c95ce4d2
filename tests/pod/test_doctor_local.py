from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pod.desk import Desk
from tests.worker.gguf_files import model_file


@pytest.mark.parametrize(
    ("template", "level", "detail"),
    [
        ("{{ tools }}", None, ""),
        ("<|im_start|>{{ m }}<|im_end|>", "ok", "one that does is added"),
        ("[INST] {{ m }} [/INST]", "warn", "so the model never hears of the pod's"),
    ],
)
def test_how_a_local_model_gets_to_know_of_tools_is_said(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    level: str | None,
    detail: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path, home)
    model = model_file(tmp_path, template=template)
    manifest = desk.write(
        "local.toml", f'[pod]\nname = "p"\n[provider]\nkind = "local"\nmodel = "{model}"\n'
    )
    done = desk.pod("doctor", manifest, "--no-try", "--json")
    assert done.exit_code == 0, done.output
    said = [finding for finding in json.loads(done.stdout) if "template" in finding["detail"]]
    assert [finding["level"] for finding in said] == ([level] if level else [])
    for finding in said:
        assert finding["what"] == "model"
        assert finding["detail"].endswith(detail)
        assert ("trained to call them" in finding["advice"]) == (level == "warn")
