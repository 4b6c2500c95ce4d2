"""Every rule refuses what it should, and what the vendors' documents show as right is accepted."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.wire_rules.checker import RULES, api_of, check
from tests.wire_rules.examples import anthropic, gemini, ollama, openai_chat, openai_responses
from tests.wire_rules.examples.request import Bad, Sent, Table
from tests.wire_rules.report import BrokenRequest

TABLES: dict[str, Table] = {
    "anthropic": anthropic.TABLE,
    "chat": openai_chat.TABLE,
    "responses": openai_responses.TABLE,
    "gemini": gemini.TABLE,
    "ollama": ollama.TABLE,
}
_HELLO = anthropic.PLAIN
_HEAD = b'{"model":"claude-sonnet-4-5","max_tokens":1,"stream":true,"messages":'
_USER = b'[{"role":"user","content":"%s"}]}'
TABLES["json"] = Table(
    bad=[
        Bad("json.utf8", "Latin-1", evolve(_HELLO, raw=_HEAD + _USER % b"\xe4")),
        Bad("json.utf8", "a byte order mark", evolve(_HELLO, raw=b"\xef\xbb\xbf{}")),
        Bad("json.syntax", "cut", evolve(_HELLO, raw=_HEAD)),
        Bad("json.syntax", "two values", evolve(_HELLO, raw=_HEAD + _USER % b"a" + b"{}")),
        Bad("json.numbers", "not a number", evolve(_HELLO, raw=_HEAD + b'NaN,"top_p":NaN}')),
        Bad("json.numbers", "a huge number", evolve(_HELLO, raw=b'{"max_tokens":1e999}')),
        Bad("json.surrogates", "half a pair", evolve(_HELLO, raw=_HEAD + _USER % b"\\ud83d")),
        Bad("json.surrogates", "half a pair in a key", evolve(_HELLO, raw=b'{"\\udc00":1}')),
        Bad("json.duplicates", "a key twice", evolve(_HELLO, raw=b'{"model":"a","model":"b"}')),
        Bad("json.object", "a list", evolve(_HELLO, raw=b"[]")),
    ]
)

GOOD = [
    pytest.param(sent, id=f"{name}: {what}")
    for name, table in TABLES.items()
    for what, sent in table.good.items()
]
BAD = [
    pytest.param(bad, id=f"{name}: {bad.rule}: {bad.why}")
    for name, table in TABLES.items()
    for bad in table.bad
]


def checked(sent: Sent) -> None:
    check(sent.path, sent.data, sent.headers, variant=sent.variant)


@pytest.mark.parametrize("sent", GOOD)
def test_what_is_right_is_accepted(sent: Sent) -> None:
    checked(sent)


@pytest.mark.parametrize("bad", BAD)
def test_what_is_wrong_is_refused(bad: Bad) -> None:
    with pytest.raises(BrokenRequest) as caught:
        checked(bad.sent)

    assert bad.rule in caught.value.rules, str(caught.value)


def test_every_rule_has_a_bad_example() -> None:
    shown = {bad.rule for table in TABLES.values() for bad in table.bad}
    assert set(RULES) - shown == set()
    assert shown - set(RULES) == set()


def test_every_rule_says_where_it_is_written() -> None:
    assert [rule.name for rule in RULES.values() if not (rule.says and rule.source)] == []


def test_a_refusal_names_every_broken_rule_with_its_place_and_source() -> None:
    body = {**_HELLO.body, "max_tokens": 0, "seed": 1}
    with pytest.raises(BrokenRequest) as caught:
        checked(evolve(_HELLO, body=body))

    said = str(caught.value)
    assert "breaks 2 rule(s)" in said
    assert "max_tokens: a value is one of those allowed; found 0" in said
    assert "seed: no key that the provider does not know" in said
    assert RULES["shape.value"].source in said


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages", "anthropic"),
        ("/anthropic/v1/messages", "anthropic"),
        ("/v1/chat/completions", "chat"),
        ("/v1/responses", "responses"),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "gemini"),
        ("/api/chat", "ollama"),
        ("/v1/models", None),
        ("/v1/messages/count_tokens", None),
    ],
)
def test_a_path_names_its_api(path: str, api: str | None) -> None:
    assert api_of(path) == api


def test_openais_own_host_is_held_to_openais_own_rules() -> None:
    sent = openai_chat.LENIENT
    check(sent.path, sent.data, {**sent.headers, "Host": "localhost:8080"})
    with pytest.raises(BrokenRequest, match="authorization"):
        check(sent.path, sent.data, {**sent.headers, "Host": "api.openai.com"})
