"""What a person is told about each kind of mistake, and that all of them are told at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from manifests import ManifestError, ManifestUnreadable, Mistake, load_manifest

HEAD = '[pod]\nname = "p"\n'
PROVIDER = '[provider]\nkind = "anthropic"\nmodel = "m"\n'
RIGHT = HEAD + PROVIDER

Check = Callable[..., tuple[Mistake, ...]]


@pytest.fixture
def mistakes(tmp_path: Path) -> Check:
    """Write a manifest and return what is said about it; nothing when it is right."""

    def check(text: str, *overrides: str, env: dict[str, str] | None = None) -> tuple[Mistake, ...]:
        path = tmp_path / "m.toml"
        path.write_text(text)
        try:
            load_manifest(path, overrides=overrides, env=env or {})
        except ManifestError as error:
            return error.mistakes
        return ()

    return check


def test_the_listing_has_the_shape_of_the_first_hour(tmp_path: Path) -> None:
    path = tmp_path / "review.toml"
    path.write_text(
        '[pod]\nname = "review"\n\n[provider]\n# which\nkind = "anthropik"\nmodel = "m"\n[worker]\n'
        "max_tokns = 5\n\n[compaction]\nprune_min_savings = -3\n"
    )

    with pytest.raises(ManifestError) as caught:
        load_manifest(path, env={})

    assert str(caught.value).replace(str(tmp_path) + "/", "") == snapshot("""\
review.toml has 3 mistakes
  line 6   provider.kind = "anthropik"          not a provider; did you mean "anthropic"?
                                                (anthropic, openai, openai_responses, gemini, ollama, openai_compatible, local, scripted, replay)
  line 9   worker.max_tokns                     unknown key; did you mean "max_tokens"?
  line 12  compaction.prune_min_savings = -3    must be 0 or more\
""")  # noqa: E501 – rows are as wide as what they say


def test_one_mistake_is_singular_and_wide_rows_push_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(RIGHT + f"[context.options]\na = {'9' * 30}\n")
    with pytest.raises(ManifestError, match=r"m\.toml has 1 mistake\n"):
        load_manifest(path, env={})

    path.write_text(f'{RIGHT}[session]\ndurability = "{"x" * 60}"\n[worker]\nmax_requests = 0\n')
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, env={})
    wide, narrow = str(caught.value).split("\n")[1:]
    assert wide.index("must be") > narrow.index("must be")
    assert narrow.startswith("  line 9  worker.max_requests = 0    must be 1 or more")


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        # names and kinds
        (PROVIDER, None, "pod", "a manifest needs a [pod] section"),
        (HEAD, None, "provider", "a manifest needs a [provider] section"),
        ("[pod]\n" + PROVIDER, 1, "pod.name", "missing"),
        ('[pod]\nname = "Bad Name!"\n' + PROVIDER, 2, "pod.name", 'did you mean "bad-name"?'),
        ('[pod]\nname = ""\n' + PROVIDER, 2, "pod.name", "a-z, 0-9"),
        ('[pod]\nname = "a/../b"\n' + PROVIDER, 2, "pod.name", "a-z, 0-9"),
        ('[pod]\nname = "a\\n"\n' + PROVIDER, 2, "pod.name", "a-z, 0-9"),
        (f'[pod]\nname = "{"a" * 49}"\n' + PROVIDER, 2, "pod.name", "at most 48 characters"),
        ("pod = 3\n" + PROVIDER, 1, "pod", "must be a table"),
        (HEAD + '[provider]\nmodel = "m"', 3, "provider.kind", "missing"),
        (HEAD + '[provider]\nkind = "OpenAI"\nmodel="m"', 4, "provider.kind", '"openai"?'),
        (HEAD + '[provider]\nkind = "zzz"\nmodel="m"', 4, "provider.kind", "not a provider"),
        (HEAD + "[provider]\nkind = 5\nmodel='m'", 4, "provider.kind", "not a provider"),
        (HEAD + '[provider]\nkind = "gemini"', 3, "provider.model", 'kind "gemini" needs the name'),
        (HEAD + '[provider]\nkind = "local"', 3, "provider.model", "needs the name of a model"),
        (HEAD + '[provider]\nkind = "scripted"', 3, "provider.script", "missing"),
        (HEAD + '[provider]\nkind = "replay"', 3, "provider.script", "missing"),
        (RIGHT + 'script = "x"', 6, "provider.script", '"scripted" or "replay" only'),
        (RIGHT + "strict_alternation = true", 6, "provider.strict_alternation", "compatible"),
        (RIGHT.replace('"m"', '""'), 5, "provider.model", "must not be empty"),
        (RIGHT.replace('"m"', '"${M}"'), 5, "provider.model", "expanded only in base_url"),
        # keys
        (RIGHT + 'api_key_env="A"\napi_key_file="b"', 7, "provider.api_key_file", "only one of"),
        (RIGHT + 'api_key = "x"', 6, "provider.api_key", 'api_key_env = "…", api_key_file or'),
        (RIGHT + 'token = "x"', 6, "provider.token", "a key never stands in a manifest"),
        ('api_key = "x"\n' + RIGHT, 1, "api_key", "a key never stands in a manifest"),
        (RIGHT + 'api_key_env = "sk-abc12345678"', 6,
         "provider.api_key_env", "never the key itself"),
        (RIGHT + 'api_key_env = "sk_abc12345678"', 6,
         "provider.api_key_env", "never the key itself"),
        (RIGHT + 'api_key_env = ""', 6, "provider.api_key_env", "name of an environment variable"),
        # addresses
        (RIGHT + 'base_url = "ftp://x"', 6, "provider.base_url", '"http://" or "https://"'),
        (RIGHT + 'base_url = "localhost:1"', 6, "provider.base_url", '"http://" or "https://"'),
        (RIGHT + 'base_url = "http://[x"', 6, "provider.base_url", '"http://" or "https://"'),
        (RIGHT + 'base_url = "http://x:70000"', 6, "provider.base_url", "a port from 1 to 65535"),
        (RIGHT + 'base_url = "http://x:0/v1"', 6, "provider.base_url", "a port from 1 to 65535"),
        (RIGHT + 'base_url = "http://x:y"', 6, "provider.base_url", "a port from 1 to 65535"),
        (RIGHT + 'base_url = "http://a b"', 6, "provider.base_url", '"http://" or "https://"'),
        (RIGHT + 'base_url = "http://u:p@x"', 6, "provider.base_url", "name or password"),
        (RIGHT + 'base_url = "http://x/?a=1"', 6, "provider.base_url", "must end with its path"),
        (RIGHT + 'base_url = "http://x/v1/messages"', 6,
         "provider.base_url", 'must end before "/messages"'),
        (RIGHT.replace("anthropic", "openai") + 'base_url = "http://x/v1/chat/completions/"', 6,
         "provider.base_url", 'must end before "/chat/completions"'),
        (RIGHT.replace("anthropic", "openai_compatible"), 3, "provider.base_url", "missing"),
        # unknown keys, and where they belong
        ('base_url = "http://x"\n' + RIGHT, 1, "base_url", "it belongs in [provider]"),
        (RIGHT + "[worker]\nmodel = 'x'", 7, "worker.model", "it belongs in [provider]"),
        (RIGHT + "on_error = 'fail'", 6, "provider.on_error", "it belongs in [[hooks]]"),
        (RIGHT + "command = 'x'", 6, "provider.command", "it belongs in [[tools.mcp]]"),
        (RIGHT + "[provider.compaction]", 6, "provider.compaction", "top level, as [compaction]"),
        (RIGHT + "[worker]\nmax-tokens = 5", 7, "worker.max-tokens", 'did you mean "max_tokens"?'),
        (RIGHT + "[worker]\nmax_turns = 5", 7, "worker.max_turns", '"max_requests"?'),
        (RIGHT + "[pod2]", 6, "pod2", "unknown section; did you mean [pod]?"),
        (RIGHT + "[[hook]]\nx=1", 6, "hook", "did you mean [[hooks]]?"),
        (RIGHT + "[worker]\nbase_ulr = 1", 7, "worker.base_ulr", '"base_url" in [provider]?'),
        (RIGHT + "[session]\nqqqq = 1", 7, "session.qqqq", "unknown key"),
        (RIGHT + '"q q" = 1', 6, 'provider."q q"', "unknown key"),
        (RIGHT + 'fallbacks = [{kind="gemini", model="x", fallbacks=[]}]', 6,
         "provider.fallbacks[0].fallbacks", "a fallback has no fallbacks"),
        (RIGHT + '[[provider.fallbacks]]\nkind = "gemni"\nmodel = "m"', 7,
         "provider.fallbacks[0].kind", '"gemini"?'),
        # numbers
        (RIGHT + "context_window = 0", 6, "provider.context_window", "must be 1 or more"),
        (RIGHT + '[worker]\nmax_requests = "ten"', 7, "worker.max_requests", "a whole number"),
        (RIGHT + "[worker]\nmax_requests = 1.5", 7, "worker.max_requests", "a whole number"),
        (RIGHT + "[worker]\nmax_requests = true", 7, "worker.max_requests", "a whole number"),
        (RIGHT + "[worker]\ntemperature = 2.5", 7, "worker.temperature", "must be 2 or less"),
        (RIGHT + "[worker]\ntemperature = nan", 7, "worker.temperature", "finite"),
        (RIGHT + "[worker]\ntool_timeout_seconds = 0", 7,
         "worker.tool_timeout_seconds", "more than 0"),
        (RIGHT + "[worker]\nmax_tokens = 99999999999999999999", 7, "worker.max_tokens", "or less"),
        (RIGHT + "[budgets]\nrun = {cost = -1}", 7, "budgets.run.cost", "must be more than 0"),
        (RIGHT + "[budgets.session]\ntokens = 0", 7, "budgets.session.tokens", "1 or more"),
        # worker
        (RIGHT + "[worker]\nsystem_prompt='a'\nsystem_prompt_file='b'", 8,
         "worker.system_prompt_file", "only one of"),
        (RIGHT + "[worker]\nreasoning_effort='hi'", 7, "worker.reasoning_effort", '"medium"'),
        # tools, hooks, permissions
        (RIGHT + "[tools]\nbuiltin = ['reed']", 7, "tools.builtin[0]", 'did you mean "read"?'),
        (RIGHT + "[tools]\nbuiltin = 'read'", 7, "tools.builtin", "must be a list"),
        (RIGHT + "[tools]\nbuiltin = ['read', 'read']", 7, "tools.builtin", 'lists "read" twice'),
        (RIGHT + "[tools]\npython = ['a.b']", 7, "tools.python[0]", "package.module:object"),
        (RIGHT + "[[tools.mcp]]\nname = 'a'", 6, "tools.mcp[0].command", "missing"),
        (RIGHT + "[[tools.mcp]]\nname = 'a b'\ncommand='c'", 7, "tools.mcp[0].name", "letters"),
        (RIGHT + "[[tools.mcp]]\nname='a'\ncommand='c'\n[[tools.mcp]]\nname='a'\ncommand='d'", 6,
         "tools.mcp", 'two servers named "a"'),
        (RIGHT + "[[hooks]]\npoint='PreTool'\npython='a:b'", 7,
         "hooks[0].point", "not a hook point"),
        (RIGHT + "[hooks]\npoint='PreToolCall'", 6, "hooks", "must be a list"),
        (RIGHT + "[permissions]\ntools={x='maybe'}", 7, "permissions.tools.x",
         'must be "allow", "ask" or "deny"'),
        (RIGHT + "[permissions]\nbash='alow'", 7, "permissions.bash", "list of command patterns"),
        (RIGHT + "[permissions]\nbash=['ls *', 3]", 7,
         "permissions.bash", "list of command patterns"),
        (RIGHT + "[permissions]\nread=['']", 7, "permissions.read[0]", "must not be empty"),
        # compaction and context
        (RIGHT + "[compaction]\ncompact_request_threshold=5", 7,
         "compaction.compact_request_threshold", "needs compact_threshold"),
        (RIGHT + "[compaction.model_thresholds]\nopus = 80000", 7,
         "compaction.model_thresholds.opus", "must be 1 or less"),
        (RIGHT + "[compaction.model_thresholds]\n'' = 0.5", 7,
         'compaction.model_thresholds.""', "must not be empty"),
        (RIGHT + "[compaction.provider]\nkind='local'", 6, "compaction.provider.model", "missing"),
        (RIGHT + "[context]\nengine='../x'", 7, "context.engine", "plain name"),
        (RIGHT + "[context]\noptions = {a = {b = [1979-05-27]}}", 7, "context.options", "'a.b[0]'"),
        (RIGHT + "[context]\noptions = {a = inf}", 7, "context.options", "'a'"),
        (RIGHT + f"[context]\noptions = {{a = {'[' * 40}{']' * 40}}}", 7,
         "context.options", "deep"),
        (RIGHT + "[memory]\nprovider='../x'", 7, "memory.provider", "plain name"),
        (RIGHT + "[memory]\nprovider='file'\noptions={size=1}", 8, "memory.options",
         'has "size", and "file" takes prompt_max_bytes and recall_max_bytes only'),
        (RIGHT + "[memory]\nprovider='file'\noptions={prompt_max_bytes='a lot'}", 8,
         "memory.options", 'has "prompt_max_bytes", which must be a whole number from 0 to 65536'),
        (RIGHT + "[memory]\nprovider='mine'\noptions={since=1979-05-27}", 8, "memory.options",
         "'since', which is no plain value"),
        (RIGHT + "[memory]\nfolder='notes'", 7, "memory.folder", "needs provider beside it"),
        (RIGHT + "[memory]\nprovider='file'\ntimeout_seconds=0", 8, "memory.timeout_seconds",
         "must be more than 0"),
        (RIGHT + "[session]\ndurability='sync'", 7, "session.durability", 'did you mean "fsync"?'),
        (RIGHT + '[session]\nstore="a\\u0000b"', 7, "session.store", "must name a path"),
        # TOML itself
        ("a = \n", 1, "", "not TOML: Invalid value"),
        ("[pod]\n[pod]\n", 2, "", "not TOML"),
        ("a = " + "[" * 5000, None, "", "nested too deeply"),
        ("a = " + "9" * 5000, None, "", "too long to read"),
    ],
)  # fmt: skip
def test_each_mistake_names_its_line_its_key_and_a_way_out(
    mistakes: Check, text: str, line: int | None, key: str, words: str
) -> None:
    (mistake,) = mistakes(text)

    assert (mistake.line, mistake.key) == (line, key)
    assert words in mistake.message


def test_a_wrong_key_and_a_broken_rule_are_told_together(mistakes: Check) -> None:
    found = mistakes(
        HEAD + '[provider]\nkind = "gemini"\ncontext_window = "big"\napi_key_env = "A"\n'
        'api_key_command = "b"\nscript = "c"\n'
    )

    assert [(m.line, m.key) for m in found] == [
        (3, "provider.model"),
        (5, "provider.context_window"),
        (7, "provider.api_key_command"),
        (8, "provider.script"),
    ]


def test_closed_lists_are_printed_and_unknown_keys_without_a_likeness_list_all_keys(
    mistakes: Check,
) -> None:
    (kind,) = mistakes(HEAD + '[provider]\nkind = "zzz"\nmodel = "m"')
    assert kind.allowed[:2] == ("anthropic", "openai")
    assert kind.suggestion is None

    (key,) = mistakes(RIGHT + "[session]\nqqqq = 1")
    assert key.allowed == ("store", "durability")


@pytest.mark.parametrize(
    "line",
    [
        'api_key = "sk-SECRET-0123456789"',
        'api_key_env = "sk-SECRET-0123456789"',
        'api_key_env = "SECRET value"',
        'base_url = "http://user:SECRET@host"',
        'model = ["SECRET"]',
        'kind2 = "SECRET"',
        'context_window = "sk-SECRET-0123456789"',
        "api_key_file = { SECRET = 1 }",
    ],
)
def test_what_may_be_a_secret_is_never_shown(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m.toml"
    path.write_text(HEAD + f'[provider]\nkind = "anthropic"\n{line}\n')

    with pytest.raises(ManifestError) as caught:
        load_manifest(path, env={})

    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(caught.value.mistakes)


def test_a_secret_in_an_env_table_is_never_shown_but_counts_of_tokens_are(mistakes: Check) -> None:
    text = RIGHT + '[[tools.mcp]]\nname = "a"\ncommand = "c"\nenv = { GITHUB = 12345 }\n'
    (hidden,) = mistakes(text)
    assert (hidden.key, hidden.found) == ("tools.mcp[0].env.GITHUB", '"…"')

    (shown,) = mistakes(RIGHT + "[worker]\nmax_tokens = -7")
    assert shown.found == "-7"


def test_values_are_shown_short_on_one_line_and_without_control_characters(
    mistakes: Check,
) -> None:
    def found(value: str) -> str | None:
        return mistakes(f"{RIGHT}[session]\ndurability = {value}\n")[0].found

    assert found(r'"a\nb\u001b[31m\u009b\u202e"') == r'"a\nb\u001b[31m\u009b\u202e"'
    assert found(f'"{"x" * 100}"') == f'"{"x" * 39}…"'
    assert found("1979-05-27") == "1979-05-27"
    assert found("true") == "true"
    assert found("[1]") == "[…]"
    assert found("{}") == "{}"
    assert found("0x" + "f" * 6000) == "a number of 24000 bits"


def test_mistakes_in_overrides_say_so(mistakes: Check) -> None:
    found = mistakes(
        RIGHT + "[worker]\nmax_tokens = 5\n",
        "worker.max_tokens=-1",
        "worker.nope=1",
        "nothing",
        "pod.name.x=1",
        "a b=1",
        '"a\nb"=1',
    )

    assert all((m.line, m.origin) == (None, "--set") for m in found)
    assert {m.key: m.message for m in found} == snapshot(
        {
            "worker.max_tokens": "must be 1 or more",
            "worker.nope": "unknown key",
            "nothing": "must be KEY=VALUE, such as worker.max_tokens=200",
            "pod.name.x": "pod.name is a single value, not a table",
            "a b": "is not a dotted key",
            '"a?b"': "is not a key",
        }
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: None, "no such file"),
        (lambda p: p.mkdir(), "it is a folder"),
        (lambda p: p.write_bytes(b'[pod]\nname = "\xff"\n'), "not UTF-8 (line 2)"),
        (lambda p: p.write_bytes(b"#" * (1 << 20) + b"#"), "larger than 1 MiB"),
        (lambda p: p.symlink_to(p), "too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_read_is_one_calm_sentence(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "m.toml"
    make(path)

    with pytest.raises(ManifestUnreadable) as caught:
        load_manifest(path, env={})

    what, hint = str(caught.value).split("\n")
    assert what.startswith(f"cannot read {path}: ")
    assert reason in what
    assert hint.strip()


def test_a_name_with_a_nul_is_no_traceback() -> None:
    with pytest.raises(ManifestUnreadable, match="no file name"):
        load_manifest("a\0b", env={})


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["anthropic", "${X}", "${", "sk-123456789", "a:b", "http://x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "model", "name", "run", "env", "fallbacks", "mcp", "x", ""]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def toml(value: object) -> str:
    match value:
        case None:
            return "1979-05-27T07:32:00Z"
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case str():
            return '"' + "".join(f"\\U{ord(c):08x}" for c in value) + '"'
        case _:
            return repr(value)


SECTIONS = ["pod", "provider", "worker", "tools", "hooks", "permissions", "budgets", "compaction"]


@given(st.dictionaries(st.sampled_from([*SECTIONS, "context", "memory", "session"]), junk))
def test_deep_garbage_gives_mistakes_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]
) -> None:
    text = "\n".join(f"{key} = {toml(value)}" for key, value in document.items())
    path = tmp_path_factory.getbasetemp() / "garbage.toml"
    path.write_text(text)

    with pytest.raises(ManifestError) as caught:
        load_manifest(path, env={"X": "x"})

    assert caught.value.mistakes
    assert all(m.message and "\n" not in m.message + m.key for m in caught.value.mistakes)
    assert str(caught.value)
