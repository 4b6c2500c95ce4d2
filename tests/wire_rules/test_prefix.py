"""What moves a prefix is seen, and what may move it is let pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.wire_rules.checker import Api
from tests.wire_rules.examples import anthropic, gemini, ollama, openai_chat, openai_responses
from tests.wire_rules.examples.request import Sent
from tests.wire_rules.prefix import Prefixes
from worker.llm.schemes.chat.joiner import BRIDGE
from worker.text import SUMMARY_LABEL

SYSTEM = {"role": "system", "content": "You help."}


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def answer(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def called(call_id: str) -> dict[str, Any]:
    return openai_chat.called(openai_chat.call(call_id))


def result(call_id: str, words: str) -> dict[str, Any]:
    return openai_chat.result(call_id, words)


def moved(*requests: list[dict[str, Any]], client: object | None = None) -> list[bool]:
    """For each request to Chat Completions, whether its prefix was found to have moved."""
    prefixes = Prefixes()
    return [
        prefixes.check("chat", {"messages": messages}, client) is not None for messages in requests
    ]


ONE = [SYSTEM, user("one")]
TWO = [*ONE, answer("1"), user("two")]
THREE = [*TWO, called("c1"), result("c1", "read a\nall of it")]
FOUR = [*THREE, answer("2"), user("three")]


def test_a_conversation_that_grows_keeps_its_prefix() -> None:
    assert moved(ONE, TWO, THREE, FOUR) == [False] * 4


def test_forks_retries_and_rewinding_keep_it() -> None:
    other = [*ONE, answer("1"), user("another")]
    assert moved(ONE, TWO, TWO, THREE, other, FOUR) == [False] * 6


def test_a_failed_request_is_followed_by_another() -> None:
    assert moved(ONE, [*ONE, user("again")]) == [False, False]


@pytest.mark.parametrize(
    "changed",
    [
        [SYSTEM, user("one, at noon"), *THREE[2:]],
        [{**SYSTEM, "content": "You help. It is noon."}, *THREE[1:]],
        [*THREE[:2], answer("one"), *THREE[3:]],
        [*THREE[:2], {"content": "1", "role": "assistant", "refusal": "x"}, *THREE[3:]],
        [*THREE[:3], user("two."), *THREE[4:]],
        [*FOUR[:2], *FOUR[4:]],
    ],
    ids=["the task", "the system prompt", "an answer", "a key", "a message", "some are gone"],
)
def test_what_is_changed_is_seen(changed: list[dict[str, Any]]) -> None:
    assert moved(ONE, TWO, changed, client="one client") == [False, False, True]


def test_a_tool_that_changes_is_seen() -> None:
    prefixes = Prefixes()
    for tools in ([openai_chat.tool("a")], [openai_chat.tool("b")]):
        last = prefixes.check("chat", {"tools": tools, "messages": TWO}, "one client")

    assert last is not None
    assert "of tools" in last


def test_a_prune_shortens_results_and_nothing_else() -> None:
    pruned = [*TWO, called("c1"), result("c1", "read a"), answer("2"), user("three")]
    emptied = [*TWO, called("c1"), result("c1", "(an old result, no longer shown)")]
    longer = [*TWO, called("c1"), result("c1", "read a\nall of it and more")]
    tail = [answer("2"), user("three")]
    assert moved(ONE, TWO, THREE, pruned) == [False] * 4
    assert moved(ONE, TWO, THREE, [*emptied, *tail]) == [False] * 4
    assert moved(ONE, TWO, THREE, [*longer, *tail]) == [False, False, False, True]
    shorter_answer = copy.deepcopy(FOUR)
    shorter_answer[1]["content"] = "on"
    assert moved(ONE, TWO, THREE, shorter_answer, client="c") == [False, False, False, True]


def test_a_compaction_starts_with_a_summary_and_is_shorter() -> None:
    compacted = [SYSTEM, user(f"{SUMMARY_LABEL}\n\nIt began."), answer("2"), user("three")]
    again = [*compacted, answer("3"), user("four"), answer("4"), user("five")]
    grown = [SYSTEM, compacted[1], user("x"), *again[2:], answer("5"), user("six")]
    assert moved(ONE, TWO, THREE, compacted, client="c") == [False] * 4
    grows = [compacted, again[:6], again, compacted[:2] + again[4:], grown]
    assert moved(*grows, client="c") == [False, False, False, False, True]


def test_an_answer_of_nothing_leaves_two_users_who_may_be_joined() -> None:
    apart = [*TWO, user("three")]
    joined = [*TWO[:-1], user("two\n\nthree")]
    assert moved(ONE, TWO, apart, client="c") == [False] * 3
    assert moved(ONE, TWO, joined, client="c") == [False] * 3
    other = [*TWO[:-1], user("other\n\nthree"), answer("x"), user("y")]
    assert moved(ONE, TWO, other, client="c") == [False, False, True]


def test_a_bridge_is_no_answer() -> None:
    bridged = [*THREE, answer(BRIDGE), user("What is on the picture?")]
    assert moved(ONE, TWO, bridged, client="c") == [False] * 3


def test_the_first_request_of_another_process_is_taken_as_it_is() -> None:
    assert moved(THREE, FOUR) == [False, False]
    assert moved(ONE, FOUR) == [False, True], "it was begun here, so the rest was seen as well"


HAVE_ANSWERS: list[tuple[Api, Sent]] = [
    ("anthropic", anthropic.TOOLS),
    ("chat", openai_chat.TOOLS),
    ("responses", openai_responses.TOOLS),
    ("gemini", gemini.TOOLS),
    ("ollama", ollama.TOOLS),
]
KEYS: dict[Api, str] = {"responses": "input", "gemini": "contents"}


def before_last_answer(api: Api, sent: Sent) -> dict[str, Any]:
    """The request that the last answer in `sent` was an answer to."""
    body = copy.deepcopy(sent.body)
    key = KEYS.get(api, "messages")
    roles = [m.get("role", m.get("type")) for m in body[key]]
    last = max(i for i, role in enumerate(roles) if role in ("assistant", "model"))
    body[key] = body[key][:last]
    return body


@pytest.mark.parametrize(("api", "sent"), HAVE_ANSWERS, ids=[api for api, _ in HAVE_ANSWERS])
def test_every_api_is_read(api: Api, sent: Sent) -> None:
    """The last answer's request was sent before: right. With an answer changed in it: moved."""
    earlier = before_last_answer(api, sent)
    prefixes = Prefixes()
    assert prefixes.check(api, earlier, "c") is None
    assert prefixes.check(api, sent.body, "c") is None

    prefixes = Prefixes()
    earlier[KEYS.get(api, "messages")].pop(0)
    assert prefixes.check(api, earlier, "c") is None
    assert prefixes.check(api, sent.body, "c") is not None


def test_cache_marks_may_move() -> None:
    earlier = before_last_answer("anthropic", anthropic.TOOLS)
    earlier["messages"][-1]["content"][0]["cache_control"] = anthropic.MARK
    prefixes = Prefixes()
    assert prefixes.check("anthropic", earlier, "c") is None
    assert prefixes.check("anthropic", anthropic.TOOLS.body, "c") is None
