from __future__ import annotations

import base64
import hashlib
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_store.masking import Masker
from session_store.token_shapes import mask_token_shapes
from worker.items import (
    AssistantMessage,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    user_message,
)
from worker.items_json import dump_item

SECRET = 'p4ss/w+rd "ünïcode"\\'
ALNUM = "Ab3" * 40


def masker() -> Masker:
    return Masker({"SERVICE_KEY": SECRET, "SHORT": "12345"})


def base64_inside(before: str, secret: str, after: str) -> str:
    return base64.b64encode(f"{before}{secret}{after}".encode()).decode()


# --- known values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(SECRET)[1:-1].replace("/", "\\/"),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="")
        .replace("%2B", "%2b")
        .replace("%C3", "%c3")
        .replace("%BC", "%bc")
        .replace("%2F", "%2f")
        .replace("%AF", "%af")
        .replace("%5C", "%5c"),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_known_value_is_masked_however_it_is_spelled(spelling: str) -> None:
    masked = masker().mask(f"before {spelling} after")

    assert masked.startswith("before [masked: SERVICE_KEY]")
    assert masked.endswith(" after")
    assert "w+rd" not in masked


@pytest.mark.parametrize("before", ["", "u", "us", "usr", "user:"])
def test_a_known_value_inside_base64_is_masked(before: str) -> None:
    secret = "correct-horse-battery"
    encoded = base64_inside(before, secret, ":tail")

    masked = Masker({"K": secret}).mask(encoded)

    assert "[masked: K]" in masked
    # All that is left of the secret is what its edges share a character with.
    assert len(masked.replace("[masked: K]", "")) <= len(base64_inside(before, "", ":tail")) + 4


def test_a_short_value_is_left_alone_as_is_text_without_secrets() -> None:
    text = "12345 is a number, and so is 123456"

    assert masker().mask(text) is text


def test_white_space_around_a_value_is_not_part_of_it() -> None:
    assert Masker({"FILE": "  abcdef-123\n"}).mask("x abcdef-123 y") == "x [masked: FILE] y"


def test_overlapping_values_leave_no_remainder() -> None:
    both = Masker({"A": "abcdef-123", "B": "123-ghijkl"})

    assert both.mask("<abcdef-123-ghijkl>") == "<[masked: A]>"


def test_the_longer_of_two_values_is_masked_whole() -> None:
    both = Masker({"A": "abcdef", "B": "abcdef-and-more"})

    assert both.mask("abcdef-and-more, abcdef") == "[masked: B], [masked: A]"


def test_a_secret_that_is_part_of_the_marker_does_not_grow_it() -> None:
    odd = Masker({"masked": "masked"})
    once = odd.mask("unmasked")

    assert once == "un[masked: masked]"
    assert odd.mask(once) == once


def test_a_marker_cannot_smuggle_a_value() -> None:
    assert "abcdef-123" not in Masker({"K": "abcdef-123"}).mask("[masked: abcdef-123]")


def test_a_repr_names_secrets_and_shows_none() -> None:
    shown = repr(masker())

    assert "SERVICE_KEY" in shown
    assert "w+rd" not in shown


def test_a_name_cannot_break_the_marker() -> None:
    assert Masker({'a"]\n\\b': "abcdef-123"}).mask("abcdef-123") == "[masked: a_b]"


values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]"), min_size=6)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]"), max_size=30)


@given(value=values, pieces=st.lists(texts, max_size=4))
def test_masking_leaves_no_value_and_is_idempotent(value: str, pieces: list[str]) -> None:
    one = Masker({"K": value})
    once = one.mask(value.join(pieces))

    assert one.mask(once) == once
    if len(value.strip()) >= 6 and value.strip() not in "[masked: K]":
        assert value.strip() not in once


@given(
    text=st.text("abc ", max_size=60),
    sizes=st.lists(st.integers(1, 5), min_size=1),
    secrets=st.lists(st.text("abc", min_size=6, max_size=9), max_size=3),
)
def test_a_stream_shows_what_masking_the_whole_would(
    text: str, sizes: list[int], secrets: list[str]
) -> None:
    one = Masker({f"K{n}": secret for n, secret in enumerate(secrets)})
    stream = one.stream()
    shown, at, turn = "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        shown += stream.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    shown += stream.flush()

    assert shown == one.mask(text)


def test_a_stream_shows_no_part_of_a_secret_and_holds_back_nothing_else() -> None:
    stream = Masker({"K": "SECRET-123"}).stream()

    assert stream.feed("hello S") == "hello "
    assert stream.feed("ECRET-1") == ""
    assert stream.feed("23 and on") == "[masked: K] and on"
    assert stream.feed("SECRET-124") == "SECRET-124"
    assert stream.feed("SEC") == ""
    assert stream.flush() == "SEC"


def test_a_stream_without_secrets_holds_nothing() -> None:
    assert Masker({}).stream().feed("anything") == "anything"


# --- shapes -------------------------------------------------------------------------------------

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gF"
PEM_BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj" + "A" * 24] * 3)
PEM = f"-----BEGIN PRIVATE KEY-----\n{PEM_BODY}\nabcd==\n-----END PRIVATE KEY-----"
AWS = "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEYa"

SHAPES = {
    "sk-ant-api03-" + ALNUM[:80]: "anthropic-key",
    "sk-ant-AAAABBBBCCCC": "anthropic-key",
    "sk-or-v1-" + "0af3" * 16: "openrouter-key",
    "sk-proj-" + ALNUM[:60]: "openai-key",
    "sk-" + ALNUM[:48]: "secret-key",
    "sk-test-0123456789abcdef": "secret-key",
    "ghp_" + ALNUM[:36]: "github-token",
    "gho_" + ALNUM[:36]: "github-token",
    "github_pat_" + ALNUM[:22] + "_" + ALNUM[:59]: "github-token",
    "glpat-" + ALNUM[:20]: "gitlab-token",
    "AKIAIOSFODNN7EXAMPLE": "aws-access-key",
    "AIza" + ALNUM[:35]: "google-key",
    "ya29.a0" + ALNUM[:60]: "google-token",
    "GOCSPX-" + ALNUM[:28]: "google-client-secret",
    "xoxb-123456789012-" + ALNUM[:24]: "slack-token",
    "sk_live_" + ALNUM[:24]: "stripe-key",
    "rk_test_" + ALNUM[:24]: "stripe-key",
    "whsec_" + ALNUM[:32]: "stripe-webhook",
    JWT: "jwt",
    "npm_" + ALNUM[:36]: "npm-token",
    "pypi-AgEIcHlwaS5vcmc" + ALNUM[:60]: "pypi-token",
    "hf_" + ALNUM[:34]: "huggingface-token",
    "gsk_" + ALNUM[:52]: "groq-key",
    "xai-" + ALNUM[:80]: "xai-key",
    "pplx-" + ALNUM[:48]: "perplexity-key",
    "nvapi-" + ALNUM[:64]: "nvidia-key",
    "SG." + ALNUM[:22] + "." + ALNUM[:43]: "sendgrid-key",
    "dckr_pat_" + ALNUM[:27]: "docker-token",
    "AGE-SECRET-KEY-1" + "Q3" * 29: "age-key",
    PEM: "private-key",
    PEM.replace("\n", "\\n"): "private-key",
    PEM.replace("PRIVATE KEY", "RSA PRIVATE KEY"): "private-key",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM_BODY}": "private-key",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00FF\n\n"
    f"{PEM_BODY}\n-----END RSA PRIVATE KEY-----": "private-key",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n"
    f"{PEM_BODY}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----": "private-key",
}


@pytest.mark.parametrize(("secret", "rule"), SHAPES.items(), ids=lambda value: value[:24])
@pytest.mark.parametrize(
    "around",
    ["{}", "token={}", '"{}"', "a {} b", '"line\\n{}\\n"', "?k%3D{}&", "\x1b[32m{}\x1b[0m", "({})"],
)
def test_a_credential_is_masked_wherever_a_token_can_stand(
    secret: str, rule: str, around: str
) -> None:
    masked = mask_token_shapes(around.format(secret))

    assert masked == around.format(f"[masked: {rule}]")
    assert mask_token_shapes(masked) is masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"aws_secret_access_key = {AWS}", "aws_secret_access_key = [masked: aws-secret-key]"),
        (f'"SecretAccessKey": "{AWS}",', '"SecretAccessKey": "[masked: aws-secret-key]",'),
        (f"AWS_SECRET_ACCESS_KEY={AWS}", "AWS_SECRET_ACCESS_KEY=[masked: aws-secret-key]"),
        (f"Authorization: Bearer {ALNUM[:30]}", "Authorization: Bearer [masked: bearer-token]"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [masked: basic-auth]"),
        ("postgres://app:hunter2@db.local/x", "postgres://app:[masked: url-password]@db.local/x"),
        ("redis://:hunter2@127.0.0.1:6379/0", "redis://:[masked: url-password]@127.0.0.1:6379/0"),
        (
            "https://hooks.slack.com/services/T0000AAAA/B0000AAAA/" + ALNUM[:24],
            "https://hooks.slack.com/services/[masked: slack-webhook]",
        ),
        (f"Name=a;AccountKey={ALNUM[:86]}==;", "Name=a;AccountKey=[masked: azure-key];"),
    ],
)  # fmt: skip
def test_only_the_secret_part_of_a_field_is_masked(text: str, masked: str) -> None:
    assert mask_token_shapes(text) == masked
    assert mask_token_shapes(masked) is masked


def test_a_private_key_shown_with_line_numbers_is_masked() -> None:
    numbered = "".join(f"{n:6}\t{line}\n" for n, line in enumerate(PEM.split("\n"), 1))

    assert mask_token_shapes(numbered) == "     1\t[masked: private-key]\n"


NOISE = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(1_000))
NEAR_MISSES = [
    "3f2b8c1e-6c1d-4e0a-9b57-1a2b3c4d5e6f",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256:" + "0123456789abcdef" * 4,
    "sk-learn-contrib-imbalanced-learn and task-runner-with-a-long-name-1234567890",
    "sk-550e8400-e29b-41d4-a716-446655440000",
    "sk-ant-your-key-goes-here",
    "risk-0123456789abcdef0123456789abcdef0123",
    "the ghp_ prefix, github_pat_ and AKIA are how tokens begin",
    "myghp_" + ALNUM[:36],
    "AKIAIOSFODNN7EXAMPLEANDMORE",
    "hf_hub_download(repo_id='a', filename='b')",
    "npm_config_registry npm_lifecycle_event",
    "pypi-server-with-a-long-name-that-goes-on-and-on-and-on-for-ever",
    "Bearer authentication-is-described-in-the-manual",
    "Authorization: Bearer $TOKEN",
    "Basic understanding of things",
    "http://localhost:8080/a@b and git@github.com:org/repo.git",
    "postgres://user:${PASSWORD}@host/db postgres://user:<password>@host/db",
    "https://example.com/path:with@signs",
    "grep for -----BEGIN PRIVATE KEY----- in the tree",
    "-----BEGIN CERTIFICATE-----\n" + PEM_BODY + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + PEM_BODY + "\n-----END PUBLIC KEY-----",
    "eyJhbGciOiJIUzI1NiJ9 alone",
    "secret_access_key is a setting",
    "data:image/png;base64," + base64.b64encode(NOISE).decode(),
    "SG.short.token",
    "[masked: jwt] and [masked: NAME]",
]


@pytest.mark.parametrize("text", NEAR_MISSES, ids=lambda text: text[:30])
def test_what_only_looks_like_a_credential_is_left_alone(text: str) -> None:
    assert mask_token_shapes(text) is text


@pytest.mark.parametrize(
    "unit",
    ["eyJ-", "eyJ.", "sk-ant-", "sk-aa-", "://a:", "-----BEGIN PRIVATE KEY-----", "SG.", "AKIA",
     "-----BEGIN PRIVATE KEY-----Version: ", "Bearer aaaa", "secret_access_key = ", "a", "abcabc"],
)  # fmt: skip
def test_masking_is_linear_in_the_text(unit: str) -> None:
    one = Masker({"K": "abcabcabcx"})
    text = unit * (10_000_000 // len(unit))
    started = time.process_time()
    one.mask_tool_output(text)

    # Measured at 0.6 s; a pattern that looks back or ahead in each place takes hours.
    assert time.process_time() - started < 10


# --- items --------------------------------------------------------------------------------------


def test_every_text_of_an_item_is_masked() -> None:
    one = Masker({"K": "SECRET-123"})
    call = ToolCall("c1", "run", '{"a":"SECRET-123"}', "u1")
    thought = Reasoning("SECRET-123?", "sig SECRET-123", "blob SECRET-123", "p", "m")
    image = Image("image/png", b"SECRET-123")
    items: list[tuple[Item, Item]] = [
        (
            UserMessage("1", (Text("say SECRET-123"), image)),
            UserMessage("1", (Text("say [masked: K]"), image)),
        ),
        (
            AssistantMessage("2", (Text("SECRET-123"), thought, call), "p", "m", "end"),
            AssistantMessage(
                "2",
                (
                    Text("[masked: K]"),
                    Reasoning("[masked: K]?", "sig SECRET-123", "blob SECRET-123", "p", "m"),
                    ToolCall("c1", "run", '{"a":"[masked: K]"}', "u1"),
                ),
                "p",
                "m",
                "end",
            ),
        ),
        (
            ToolResult("3", "c1", "u1", "got SECRET-123", "SECRET-123\n", False, (image,)),
            ToolResult("3", "c1", "u1", "got [masked: K]", "[masked: K]\n", False, (image,)),
        ),
        (
            SummaryMessage("4", "SECRET-123", None, 1),
            SummaryMessage("4", "[masked: K]", None, 1),
        ),
        (SystemNote("5", "SECRET-123", "hook"), SystemNote("5", "[masked: K]", "hook")),
    ]
    for item, expected in items:
        assert one.mask_item(item) == expected


def test_an_item_without_secrets_is_returned_itself() -> None:
    one = Masker({"K": "SECRET-123"})
    items: list[Item] = [
        user_message("hello"),
        AssistantMessage("2", (Text("a"), ToolCall("c", "f", '{"a": 1}', "u")), "p", "m", "end"),
        ToolResult("3", "c", "u", "fine", None, False),
        SummaryMessage("4", "text", None, 1),
        SystemNote("5", "text", "hook"),
    ]
    for item in items:
        assert one.mask_item(item) is item


def test_shapes_are_masked_in_tool_results_and_nowhere_else() -> None:
    token = "sk-ant-api03-" + ALNUM[:80]
    one = Masker({})
    said = user_message(f"use {token}")
    thought = AssistantMessage(
        "2", (Reasoning("x", signature=token, blob=token), Text(token)), "p", "m", "end"
    )

    assert one.mask_item(said) is said
    assert one.mask_item(thought) is thought
    result = one.mask_item(ToolResult("3", "c", "u", token, f"a {token} b", False))
    assert result == ToolResult(
        "3", "c", "u", "[masked: anthropic-key]", "a [masked: anthropic-key] b", False
    )


@pytest.mark.parametrize(
    ("secret", "arguments", "masked"),
    [
        ("SECRET-123", '{"a" : "x SECRET-123", "n": 1e400}', '{"a" : "x [masked: K]", "n": 1e400}'),
        ("SECRET-123", '{"a":"\\u0053ECRET-123 \\u00fc"}', '{"a":"[masked: K] \\u00fc"}'),
        ("nabcdef", '{"a":"x\\nabcdef"}', '{"a":"x\\nabcdef"}'),
        ("123456", '{"pin": 123456, "other": 1}', '{"pin": "[masked: K]", "other": 1}'),
        ('{"type":"account"}', '{"key":{"type":"account"}}', '{"key":"[masked: K]"}'),
        ('"a","b":"c"', '{"x":"a","b":"c"}', '{"x":"[masked: K]"}'),
        ('a","b":', '{"x":"a","b":"c"}', '"[masked: K]"'),
        ("SECRET-123", '{"a": SECRET-123', '{"a": [masked: K]'),
        ("SECRET-123", "SECRET-123", "[masked: K]"),
    ],
)  # fmt: skip
def test_arguments_that_were_json_stay_json(secret: str, arguments: str, masked: str) -> None:
    one = Masker({"K": secret})
    item = AssistantMessage("1", (ToolCall("c", "f", arguments, "u"),), "p", "m", "end")
    result = one.mask_item(item)

    assert isinstance(result, AssistantMessage)
    assert result.tool_calls[0].arguments == masked
    assert one.mask_item(result) == result


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values, secret=st.text('ab":,{1', min_size=6), places=st.integers(0, 2))
def test_any_json_stays_json_without_the_secret(value: object, secret: str, places: int) -> None:
    one = Masker({"K": secret})
    text = json.dumps([value, *[{secret: f"x{secret}y"}] * places])
    masked = one.mask_json(text)

    json.loads(masked)
    assert secret not in masked
    assert one.mask_json(masked) == masked


def test_an_entry_is_masked_whole_but_for_what_is_signed() -> None:
    one = Masker({"K": "SECRET-123"})
    thought = AssistantMessage("2", (Reasoning("x", signature="SECRET-123"),), "p", "m", "end")
    fields = {
        "items": [dump_item(user_message("SECRET-123")), dump_item(thought)],
        "item": {**dump_item(SystemNote("5", "SECRET-123", "hook")), "later": "kept"},
        "history": None,
        "message": "401: SECRET-123",
        "payload": {"a": ["SECRET-123", 1], "signature": "SECRET-123"},
    }

    masked = one.mask_fields(fields)

    assert masked["items"][0]["parts"][0]["text"] == "[masked: K]"
    assert masked["items"][1] == dump_item(thought)
    assert masked["item"]["text"] == "[masked: K]"
    assert masked["item"]["later"] == "kept"
    assert masked["history"] is None
    assert masked["message"] == "401: [masked: K]"
    assert masked["payload"] == {"a": ["[masked: K]", 1], "signature": "SECRET-123"}


def test_arguments_nested_too_deep_to_parse_are_masked_as_text() -> None:
    deep = "[" * 100_000 + '"SECRET-123"' + "]" * 100_000

    assert "SECRET-123" not in Masker({"K": "SECRET-123"}).mask_json(deep)
