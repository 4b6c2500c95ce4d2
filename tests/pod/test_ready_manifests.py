"""The manifests that ship, and those of `pod manifest init`: right, fitting, and really run."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifests import PROVIDER_KINDS, LoadedManifest, load_manifest, starter_manifest
from manifests.schema_provider import FallbackProvider
from pod import Pod
from pod.compaction.thresholds import thresholds_for
from pod.model_table import ModelCard
from pod.unbuilt import unbuilt_keys
from session_store import FileSessionStore
from tests.pod.pods import prose, summary
from tests.worker.llm.dialects import CHAT, DIALECTS
from tests.worker.llm.wire import Reply, head, serving

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "manifests").glob("*.toml"))
KEYS = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "sk-made-up-123456")
ENV = {**KEYS, "NO_PROXY": "*"}
SPEAKING = {dialect.provider: dialect for dialect in DIALECTS} | {"openai": CHAT}
STARTED = [kind for kind in PROVIDER_KINDS if kind not in ("scripted", "replay")]
# Of a model on this machine, where nothing is read from its file.
LOCAL_WINDOW = 8192


READY = [
    *(pytest.param(path.read_text(), id=path.stem) for path in SHIPPED),
    *(pytest.param(starter_manifest(kind, "p"), id=f"init-{kind}") for kind in STARTED),
]


def load(home: Path, text: str, *overrides: str) -> LoadedManifest:
    path = home / "ready.toml"
    path.write_text(text)
    return load_manifest(path, overrides=overrides, env=ENV)


def models(loaded: LoadedManifest) -> list[FallbackProvider]:
    compaction = loaded.manifest.compaction
    summaries = compaction.provider if compaction else None
    return [loaded.manifest.provider, *([summaries] if summaries else [])]


@pytest.mark.parametrize("text", READY)
async def test_it_answers_goes_on_and_compacts_at_a_server_of_its_kind(
    home: Path, text: str
) -> None:
    loaded = load(home, text)
    assert unbuilt_keys(loaded.manifest) == []
    kind = loaded.manifest.provider.kind
    dialect = SPEAKING.get(kind, CHAT)
    system = (loaded.manifest.worker.system_prompt or "").encode()
    assert system

    def script(_: int) -> Reply:
        # Only the summarizer is told something else.
        is_summary = system not in server.requests[-1]
        return Reply([head(), dialect.hello(summary()) if is_summary else dialect.hello()])

    async with serving(script) as server:
        places = ("provider", "compaction.provider")[: len(models(loaded))]
        overrides = [f"{place}.base_url={server.base_url}" for place in places]
        if kind == "local":  # the rest of it holds for any server
            overrides.append("provider.kind=openai_compatible")

        pod = Pod.launch(home / "ready.toml", home=home, env=ENV, overrides=tuple(overrides))
        async with pod:
            for _ in range(5):
                result = await pod.run(prose(800))
                assert (result.outcome, result.text) == ("finished", "Hello")
                await pod.idle()

            await pod.compact()
            result = await pod.run("And now?")

    assert (result.outcome, result.text) == ("finished", "Hello")
    assert all((each.model or "").encode() in b"".join(server.requests) for each in models(loaded))
    assert "SUMMARY-MARKER" in str(FileSessionStore(home).restore(result.session_id).history[0])


@pytest.mark.parametrize("text", READY)
def test_its_thresholds_leave_room_for_an_answer(home: Path, text: str) -> None:
    loaded = load(home, text)
    section, manifest = loaded.manifest.provider, loaded.manifest
    window = ModelCard.of(section).context_window
    window = LOCAL_WINDOW if section.kind == "local" else window
    if section.kind == "openai_compatible":
        assert window is None  # its owner knows
        return

    assert window is not None
    sizes = thresholds_for(
        manifest.compaction, provider=section.kind, model=section.model or "", window=window
    )
    largest = max(sizes.compact or 0, sizes.request or 0)
    assert largest + (manifest.worker.max_tokens or 0) < window


@pytest.mark.parametrize("text", READY)
def test_models_that_cost_something_have_a_known_price(home: Path, text: str) -> None:
    paid = [each for each in models(load(home, text)) if each.api_key_env]
    assert all(ModelCard.of(each).has_prices for each in paid)


def test_the_manifests_that_ship_are_those_the_page_names() -> None:
    page = (ROOT / "docs/manifest.md").read_text()
    assert [path.name for path in SHIPPED if f"`{path.name}`" not in page] == []
