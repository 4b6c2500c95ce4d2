"""A plugin's engine in whole pods: which one a pod gets, of what options, what is told of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pod.errors import PluginFailed
from pod.protocol import EngineNotice
from tests.fake_provider import counting, serving
from tests.pod.desk import until
from tests.pod.plugin_folders import install, notes, use
from tests.pod.pods import Story, living, manifest

pytestmark = pytest.mark.anyio

SHARED = """
class Shared(Calm):
    def update_model(self, model, context_length, **kwargs):
        super().update_model(model, context_length, **kwargs)
        self.model = f"{{model}} of {{context_length}}"
        note("model", engine=id(self), is_shared=self is THE_ONE, said=self.model)

    def on_turn_complete(self, messages, usage=None, **kwargs):
        note("turn", engine=id(self), said=self.model)

{hook}

THE_ONE = Shared()


def register(ctx):
    ctx.register_context_engine(THE_ONE)
"""


@pytest.fixture
def noted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a plugin writes down what it is told in."""
    monkeypatch.setenv("NOTES", str(home / "notes.jsonl"))
    return home / "notes.jsonl"


def notices(story: Story) -> list[str]:
    return [notice.message for notice in story.of(EngineNotice)]


# ------------------------------------------------------------------ one engine, one pod


@pytest.mark.parametrize(
    "hook", ["", "    def clone_for_agent(self):\n        return type(self)()\n"]
)
async def test_a_childs_model_never_touches_its_parents(home: Path, noted: Path, hook: str) -> None:
    """One object for all, as a plugin has it: fork, let the child have another model, go on."""
    install(home, SHARED.format(hook=hook))
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")
            parent = notes(noted)[-1]
            assert parent["said"] == "fake of 200000"
            other = manifest(home, served.base_url, use(), window=50_000, name="other")
            async with living(other, home, resume=await story.pod.fork_session()) as child:
                await child.turns("two")
                of_child = notes(noted)[-1]
                assert of_child["said"] == "fake of 50000"
                assert of_child["engine"] != parent["engine"]
                assert not notices(child)

            await story.turns("three")
            assert notes(noted)[-1] == parent

    told = [entry for entry in notes(noted) if entry["what"] == "model"]
    assert len({entry["engine"] for entry in told}) == len(told) == 2
    assert not any(entry["is_shared"] for entry in told), "what the plugin holds is left alone"


async def test_a_child_that_can_have_no_engine_of_its_own_is_told_so_once(
    home: Path, noted: Path
) -> None:
    hook = "    def clone_for_agent(self):\n        raise ValueError('only one')\n"
    install(home, SHARED.format(hook=hook))
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            async with await story.pod.fork() as child:
                assert child.status().engine == "compressor"
                assert (await child.run("two")).outcome == "finished"

            second = manifest(home, served.base_url, use(), name="second")
            async with living(second, home) as other:
                (told,) = notices(other)
                assert told.startswith(
                    "Context engine 'calm' could not be safely copied for this agent "
                    "(ValueError: only one) — falling back to built-in compressor."
                )

            assert story.pod.status().engine == "calm"


# ------------------------------------------------------------------ which one, and why not


async def test_the_word_compressor_never_activates_a_plugin(home: Path, noted: Path) -> None:
    install(home, "note('imported')\n", name="compressor")
    with serving(counting) as served:
        path = manifest(home, served.base_url, use("compressor"))
        async with living(path, home) as story:
            assert story.pod.status().engine == "compressor"
            assert not notices(story)

    assert not noted.exists()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (None, "Context engine 'calm' not found — falling back to built-in compressor"),
        (
            "import nothing_like_it",
            (
                "Failed to load context engine 'calm': it needs the module 'nothing_like_it', "
                "which is not installed — falling back to built-in compressor"
            ),
        ),
        (
            "Calm = None\ndef register(ctx): pass",
            (
                "Context engine 'calm' loaded but no engine instance found: it registers none, and "
                "defines no ContextEngine that can be made without arguments"
                " — falling back to built-in compressor"
            ),
        ),
    ],
)
async def test_an_engine_that_cannot_be_had_is_told_with_the_manifests_line(
    home: Path, source: str | None, told: str
) -> None:
    if source is not None:
        install(home, source)
    with serving(counting) as served:
        path = manifest(home, served.base_url, use())
        line = path.read_text().splitlines().index('engine = "calm"') + 1
        async with living(path, home) as story:
            assert notices(story) == [f"{told} ({path}, line {line})"]
            assert (await story.pod.run("one")).outcome == "finished"


@pytest.mark.parametrize("name", ["hermes-calm", "clam", "calm-engine"])
async def test_an_engine_that_is_here_under_another_name_is_asked_about(
    home: Path, name: str
) -> None:
    install(home, "", name=name)
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use("calm")), home) as story:
            (told,) = notices(story)
            assert told.endswith(f"); did you mean {name!r}?")


async def test_what_a_plugin_does_wrong_at_registration_is_told_to_people(home: Path) -> None:
    install(
        home,
        """
        def register(ctx):
            ctx.register_context_engine(object())
            ctx.register_context_engine(Calm())
            ctx.register_context_engine(Calm())
            ctx.register_memory_provider(object())
        """,
    )
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            assert [message.partition(" tried to register ")[2] for message in notices(story)] == [
                "a context engine that does not inherit from ContextEngine. Ignoring.",
                (
                    "a context engine, but one is already registered. Only one context engine "
                    "plugin is allowed."
                ),
                "",
            ]
            assert notices(story)[-1] == (
                "Plugin 'calm' has a memory provider too; [memory] provider = \"calm\" uses it"
            )


# ------------------------------------------------------------------ options


async def test_options_reach_the_engine_and_what_nobody_takes_is_told(home: Path) -> None:
    install(
        home,
        """
        class Deep(Calm):
            def __init__(self, depth=1):
                self.depth = depth

            def get_status(self):
                return {**super().get_status(), "depth": self.depth, "last": self.protect_last_n}

        Calm = None
        """,
    )
    more = "[context.options]\ndepth = 3\nprotect_last_n = 9\nheight = 2\n"
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use(more=more)), home) as story:
            assert notices(story) == [
                (
                    "Context engine 'calm' did not take the option 'height': no keyword or "
                    "attribute of the engine has that name, and its plugin did not ask"
                )
            ]
            status = story.pod.status()
            assert status.engine == "calm"
            assert (status.engine_status["depth"], status.engine_status["last"]) == (3, 9)


async def test_options_for_the_built_in_engine_are_told_to_be_none(home: Path) -> None:
    with serving(counting) as served:
        path = manifest(home, served.base_url, "[context.options]\ndepth = 3\n")
        async with living(path, home) as story:
            assert notices(story) == [
                (
                    "the built-in compressor takes no options, and was given 'depth'; its settings "
                    "are those of [compaction]"
                )
            ]


# ------------------------------------------------------------------ tools that are counted on

TOOLED = """
class Tooled(Calm):
    def get_tool_schemas(self):
        return [{"name": "look", "description": "d", "parameters": {}}]

Calm = None
"""


@pytest.mark.parametrize("word", ["allow", "ask", "deny"])
async def test_a_tool_that_the_manifest_names_and_the_engine_has_is_there(
    home: Path, word: str
) -> None:
    install(home, TOOLED)
    extra = use() + f'[permissions]\ntools = {{ look = "{word}" }}\n'
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, extra), home) as story:
            await story.turns("one")
            assert story.pod.status().engine == "calm"

    offered = [tool["function"]["name"] for tool in served.asked[0].body.get("tools", [])]
    assert offered == ["look"]


async def test_a_tool_that_nobody_brings_is_an_error_at_the_start(home: Path) -> None:
    install(home, TOOLED)
    extra = use() + '[permissions]\ntools = { look = "allow", lok = "ask" }\n'
    with serving(counting) as served:
        path = manifest(home, served.base_url, extra)
        line = path.read_text().splitlines().index("[permissions]") + 2
        with pytest.raises(PluginFailed) as caught:
            async with living(path, home):
                pass

        assert caught.value.message == (
            f"{path}, line {line}: permissions.tools names the tool lok, and neither the manifest "
            "nor the engine 'calm' brings one of that name"
        )
        assert "there are look" in caught.value.hint
        assert not served.asked


# ------------------------------------------------------------------ one that does not end loading

SLEEPY = """
import pathlib
import time

pathlib.Path(os.environ["NOTES"]).with_suffix(".began").touch()
while not pathlib.Path(os.environ["NOTES"]).exists():
    time.sleep(0.01)
"""


async def test_a_plugin_whose_import_never_ends_is_named_and_the_pod_goes_on(
    home: Path, noted: Path
) -> None:
    install(home, SLEEPY, name="sleepy")
    with serving(counting) as served:
        named = manifest(home, served.base_url, use("sleepy", "timeout_seconds = 0.2\n"))
        async with living(named, home) as story:
            await story.turns("one")
            (told,) = notices(story)
            assert told == (
                "Failed to load context engine 'sleepy': it was not loaded after 0.2 s "
                "(context.timeout_seconds) — falling back to built-in compressor "
                f"({named}, line {_line_of(named, 'engine =')})"
            )

    noted.touch()  # Its thread ends.


async def test_a_launch_can_be_cancelled_while_a_plugin_is_imported(
    home: Path, noted: Path
) -> None:
    install(home, SLEEPY, name="drowsy")
    with serving(counting) as served:
        launching = asyncio.create_task(
            _launched(manifest(home, served.base_url, use("drowsy")), home)
        )
        await asyncio.to_thread(until, noted.with_suffix(".began").exists)
        assert not launching.done()
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await launching

    noted.touch()


async def test_an_import_that_is_interrupted_by_itself_ends_no_pod(home: Path) -> None:
    install(home, "raise KeyboardInterrupt", name="breaker")
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use("breaker")), home) as story:
            await story.turns("one")
            (told,) = notices(story)
            assert "'breaker': KeyboardInterrupt — falling back" in told


async def _launched(path: Path, home: Path) -> None:
    async with living(path, home):
        pass


def _line_of(path: Path, start: str) -> int:
    lines = path.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.startswith(start))


@pytest.mark.parametrize("method", ["should_compress", "compress", "update_from_response"])
async def test_an_engine_whose_methods_are_async_is_named(home: Path, method: str) -> None:
    install(
        home,
        f"class Later(Calm):\n    async def {method}(self, *args, **kwargs):\n        return []\n\n"
        "def register(ctx):\n    ctx.register_context_engine(Later())\n",
    )
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one")
            (told,) = notices(story)
            assert f"its {method} is async; it must be a plain function — falling back" in told


async def test_a_tools_check_that_never_ends_is_left_behind_with_the_tools(
    home: Path, noted: Path
) -> None:
    install(
        home,
        """
        import time

        def never():
            while not os.path.exists(os.environ["NOTES"]):
                time.sleep(0.01)

        def register(ctx):
            ctx.register_context_engine(Calm())
            ctx.register_tool(name="t", schema={}, handler=lambda args: "1", check_fn=never)
        """,
    )
    with serving(counting) as served:
        named = manifest(home, served.base_url, use(more="timeout_seconds = 0.3\n"))
        async with living(named, home) as story:
            await story.turns("one")
            (told,) = notices(story)
            assert told.endswith("are left out: their checks took over 0.3 s")

    noted.touch()


_OPTIONAL = (
    *("on_turn_complete", "on_session_start", "on_session_end", "on_session_reset"),
    *("select_context", "update_model", "get_status", "get_tool_schemas", "handle_tool_call"),
    *("should_compress_preflight", "bind_session_state", "carry_over_new_session_context"),
)


@pytest.mark.parametrize("hook", _OPTIONAL)
async def test_a_hook_that_is_async_is_told_of_once_and_left_out(home: Path, hook: str) -> None:
    install(
        home,
        f"class Later(Calm):\n    async def {hook}(self, *args, **kwargs):\n        return []\n\n"
        "def register(ctx):\n    ctx.register_context_engine(Later())\n",
    )
    with serving(counting) as served:
        async with living(manifest(home, served.base_url, use()), home) as story:
            await story.turns("one", "two")
            await story.pod.new()
            await story.turns("three")
            told = f"its {hook} is async; it must be a plain function: going on without it"
            assert notices(story) == [told]
            assert story.pod.status().engine == "calm"
