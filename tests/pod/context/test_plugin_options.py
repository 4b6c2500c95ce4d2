"""`[context.options]` on their way into an engine: the first that takes one has it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pod.context.loader import LoadedPlugin, load_plugin
from pod.context.plugin_options import PluginOptions

ENGINE = """
from agent.context_engine import ContextEngine

class Toy(ContextEngine):
    name = "toy"
    depth = 1
    share = 0.5
    words = "few"
    is_on = False
    extra = None
    rows = (1, 2)
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, current_tokens=None): return messages
"""


def load(tmp_path: Path, source: str = "", **options: Any) -> LoadedPlugin:
    folder = tmp_path / "plugins" / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(ENGINE + dedent(source), encoding="utf-8")
    (folder / "plugin.yaml").write_text("name: toy\n", encoding="utf-8")
    return load_plugin("toy", folder.parent, options=options)


# ------------------------------------------------------------------ who takes them


def test_a_constructor_takes_the_keywords_that_it_names(tmp_path: Path) -> None:
    source = """
    class Made(Toy):
        def __init__(self, limit, *, style="plain", **more):
            self.made_of = (limit, style, more)
    Toy = None
    """
    loaded = load(tmp_path, source, limit=3, style="rich", depth=4)
    assert vars(loaded.engine) == {"made_of": (3, "rich", {}), "depth": 4}
    assert loaded.notices == ()


def test_an_option_may_be_what_a_constructor_cannot_do_without(tmp_path: Path) -> None:
    source = """
    class Wanting(Toy):
        def __init__(self, limit): self.limit = limit
    Toy = None
    """
    assert load(tmp_path, source, limit=7).engine.limit == 7  # type: ignore[attr-defined]


def test_register_takes_what_it_asks_for(tmp_path: Path) -> None:
    source = """
    def register(ctx):
        engine = Toy()
        engine.given = (ctx.options["depth"], ctx.options.get("missing", "default"),
                        ctx.get_config("tree.leaf"), ctx.get_config("tree.none", 0))
        ctx.register_context_engine(engine)
    """
    loaded = load(tmp_path, source, depth=5, tree={"leaf": "green"})
    assert vars(loaded.engine) == {"given": (5, "default", "green", 0)}, "taken once, by one"
    assert loaded.notices == ()


def test_what_nobody_took_sets_the_attribute_of_its_name(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "depth": 9,
        "share": 1,
        "words": "many",
        "is_on": True,
        "extra": {"a": 1},
    }
    loaded = load(tmp_path, protect_last_n=2, **options)
    assert vars(loaded.engine) == {**options, "protect_last_n": 2}
    assert loaded.notices == ()
    assert loaded.options == {**options, "protect_last_n": 2}


def test_an_engine_that_is_shared_is_set_on_its_copy_alone(tmp_path: Path) -> None:
    source = "THE_ONE = Toy()\ndef register(ctx): ctx.register_context_engine(THE_ONE)\n"
    first, second = load(tmp_path, source, depth=2), load(tmp_path, source)
    assert (first.engine.depth, second.engine.depth) == (2, 1)  # type: ignore[attr-defined]


# ------------------------------------------------------------------ what is told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"depth": "3"},
            "the option 'depth' cannot be set: it is text, and the engine",
        ),
        ({"depth": 0.5}, "the option 'depth' cannot be set: it is a number, and"),
        ({"depth": True}, "it is true or false, and the engine has a whole number there"),
        ({"is_on": 1}, "it is a whole number, and the engine has true or false there"),
        ({"fixed": 1}, "the option 'fixed' cannot be set: AttributeError"),
        (
            {"tower": 3},
            "did not take the option 'tower': no keyword or attribute",
        ),
        ({"compress": 3}, "did not take the option 'compress'"),
        ({"_hidden": 3}, "did not take the option '_hidden'"),
        ({"name": "other"}, "did not take the option 'name'"),
        ({"last_prompt_tokens": 3}, "did not take the option 'last_prompt_tokens'"),
        ({"tower": 1, "bridge": 2}, "did not take the options 'tower', 'bridge'"),
    ],
)
def test_what_nobody_takes_is_told(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    source = """
    class Fixed(Toy):
        _hidden = 1
        fixed = property(lambda self: 1)
    Toy = None
    """
    loaded = load(tmp_path, source, **options)
    (told,) = loaded.notices
    assert said in told
    assert vars(loaded.engine) == {}


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"dpeth": 2}, "'dpeth' (did you mean 'depth'?)"),
        ({"stlye": "rich"}, "'stlye' (did you mean 'style'?)"),
        ({"tilte": "x", "wrods": "y"}, "'tilte' (did you mean 'title'?), 'wrods' (did you mean"),
        ({"protect_last": 2}, "'protect_last' (did you mean 'protect_last_n'?)"),
        ({"compres": 2}, "'compres':"),
        ({"last_prompt_token": 2}, "'last_prompt_token':"),
    ],
)
def test_an_option_whose_name_is_a_slip_is_asked_about(
    tmp_path: Path, options: dict[str, Any], asked: str
) -> None:
    source = """
    class Made(Toy):
        def __init__(self, style="plain"):
            self._style = style

    def register(ctx):
        ctx.options.get("title", "none")
        ctx.register_context_engine(Made())
    """
    (told,) = load(tmp_path, source, **options).notices
    assert asked in told


def test_a_plugin_that_reads_its_configuration_may_find_them_there(tmp_path: Path) -> None:
    source = "def later():\n    from hermes_cli.config import load_config\n    load_config()\n"
    (told,) = load(tmp_path, source, tower=3).notices
    assert told == (
        "Context engine 'toy' did not take the option 'tower'; it stands in the configuration it "
        "reads"
    )


def test_what_is_laid_over_the_configuration_is_for_that(tmp_path: Path) -> None:
    assert load(tmp_path, hermes={"auxiliary": {}}).notices == ()
    (told,) = load(tmp_path, hermes="text").notices
    assert "'hermes'" in told


def test_no_options_are_nothing_to_tell_of(tmp_path: Path) -> None:
    assert load(tmp_path).notices == ()


# ------------------------------------------------------------------ the view of them


def test_the_options_of_the_manifest_cannot_be_changed() -> None:
    given = {"tree": {"leaf": [1]}}
    options = PluginOptions(given)
    options["tree"]["leaf"].append(2)
    assert options["tree"] == given["tree"] == {"leaf": [1]}
    assert not hasattr(options, "__setitem__")
    assert dict(options) == {**options} == given


def test_to_look_whether_one_is_there_is_not_to_take_it() -> None:
    options = PluginOptions({"a": 1, "b": 2, "c": 3})
    assert "a" in options
    assert options.peek("b") == 2
    assert options.untaken == ("a", "b", "c")
    assert options.get("a") == 1
    assert options.at("c.d") is None
    assert [*options.untaken] == ["b"]
    with pytest.raises(KeyError):
        options["missing"]
