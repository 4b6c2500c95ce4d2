"""Histories as they may be: of any items, in any order, with the oddest things in them."""

from __future__ import annotations

from hypothesis import strategies as st

from worker.items import (
    AssistantMessage,
    Covers,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    new_uid,
)

PROVIDERS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-5.4",
    "openai_responses": "gpt-5.4",
    "gemini": "gemini-3-pro-preview",
    "ollama": "qwen3",
    "openai_compatible": "deepseek-reasoner",
    "local": "SmolLM2",
    "": "",
}
"""Who a piece of history may be of, and the model that it is most often of."""

TEXTS = st.sampled_from(
    [
        *("", " ", "\n", "\t\u2003", "\u200b", "\ufeff", "\x00", "a\x00b", "\ud83d", "\udc00 x"),
        *("Hello", "你好世界", "안녕하세요", "👩‍👩‍👧 fine", "e\u0301", "line\u2028line\x85\x0b"),
        *('{"role": "system"}', "<|im_end|>", "</think>", "<tool_call>{}</tool_call>", "x " * 99),
        *("trailing ", "trailing\n\n", "[note: alert]", "\\ud800", "data:image/png;base64,"),
    ]
) | st.text(st.characters(codec=None), max_size=8)
CALL_IDS = st.sampled_from(
    [
        *("c1", "c2", "c3", "call_0", "call_1", "toolu_01A09q90qw90lq917835lq9", "123456789"),
        *(
            "functions.read:0",
            "a b",
            "",
            " ",
            "工具",
            "null",
            "c" * 41,
            "call_a|fc_b" * 9,
            "\ud800",
        ),
    ]
)
NAMES = st.sampled_from(
    ["read", "write", "fs.read", "read it", "", "1st", "a" * 65, "a" * 201, "工具", "a:b-c_d", " "]
)
ARGUMENTS = (
    st.sampled_from(
        [
            *("", " ", "null", "{}", "[]", "[1]", '"a"', "0", "true", '{"a":', "not json", "\x00"),
            *('{"a": 1}', ' {"a":"你好"}\n', '{"a":1}{"b":2}', '{"a":NaN}', '{"a":1e999}'),
            *(
                '{"a":"\\ud800"}',
                '{"\\udc00":1}',
                '{"a":"\ud800"}',
                '{"a":1,"a":2}',
                '{"a":-Infinity}',
            ),
            *('{"a":{"b":[null,{"c":"👩"}]}}', "{'a': 1}", '{"":""}', '{"a":12345678901234567890}'),
        ]
    )
    | TEXTS
)
IMAGES = st.builds(
    Image,
    st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "", "x"]),
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"a", b""]),
)
ORIGINS = st.sampled_from(sorted(PROVIDERS.items())) | st.tuples(
    st.sampled_from(sorted(PROVIDERS)), st.just("another-model")
)
SIGNATURES = st.sampled_from([None, "", "c2lnbmVk", "rs_1", "rs_2", "EqQB+/==", "no base64!", " "])
BLOBS = st.sampled_from([None, "", "gAAAAABo", "c2lnbmVk", "[]", '[{"type":"reasoning.text"}]'])


@st.composite
def reasonings(draw: st.DrawFn) -> Reasoning:
    """What somebody thought: as one of the providers leaves it, or any other way."""
    provider, model = draw(ORIGINS)
    text, signature, blob = draw(TEXTS), draw(SIGNATURES), draw(BLOBS)
    # Gemini's proofs are bytes: nothing but base64 can ever have come from there.
    if draw(st.booleans()) or provider == "gemini":
        number = draw(st.integers(0, 3))
        usual = {
            "anthropic": [("Hm.", "c2ln", None), ("", None, "EqQB"), ("", "c2ln", None)],
            "openai_responses": [("Hm.", f"rs_{number}", "gAAA"), ("So.", f"rs_{number}", None)],
            "gemini": [
                *(("Hm.", None, None), ("Hm.", "c2ln", None), ("", None, "c2ln")),
                *(("", "c2ln", None), ("", None, None), ("", "", "")),
            ],
        }.get(provider, [("Hm.", None, None)])
        text, signature, blob = draw(st.sampled_from(usual))
    return Reasoning(text, signature, blob, provider, model)


CALLS = st.builds(
    ToolCall, CALL_IDS, NAMES, ARGUMENTS, st.builds(new_uid)
) | st.builds(  # most calls are in order
    ToolCall, CALL_IDS, st.just("read"), st.just('{"path":"a"}'), st.builds(new_uid)
)
ANSWER_PARTS = st.lists(st.builds(Text, TEXTS) | reasonings() | CALLS, max_size=5).map(tuple)


@st.composite
def answers(draw: st.DrawFn) -> AssistantMessage:
    """An answer of anybody."""
    provider, model = draw(ORIGINS)
    stop = draw(st.sampled_from(["end", "tool_calls", "max_tokens", "refusal", "partial"]))
    return AssistantMessage(new_uid(), draw(ANSWER_PARTS), provider, model, stop)


RESULTS = st.builds(
    ToolResult,
    st.builds(new_uid),
    CALL_IDS,
    st.builds(new_uid),
    TEXTS,
    st.none() | TEXTS,
    st.booleans(),
    st.lists(IMAGES, max_size=2).map(tuple),
)
USERS = st.builds(
    UserMessage,
    st.builds(new_uid),
    st.lists(st.builds(Text, TEXTS) | IMAGES, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["user", "injected"]),
)
SUMMARIES = st.builds(
    SummaryMessage,
    st.builds(new_uid),
    TEXTS,
    st.none() | st.just(Covers("s", "a", "b", "0" * 64)),
    st.integers(1, 3),
)
NOTES = st.builds(SystemNote, st.builds(new_uid), TEXTS, st.sampled_from(["alert", "", "a\nb"]))
ITEMS: st.SearchStrategy[Item] = USERS | answers() | RESULTS | SUMMARIES | NOTES

HISTORIES = st.lists(ITEMS, max_size=12)
"""Anything at all."""


@st.composite
def steps(draw: st.DrawFn) -> list[Item]:
    """An answer with a result of each of its calls, in any order, and what is said then."""
    answer = draw(answers())
    results = [draw(RESULTS) for _ in answer.tool_calls]
    results = [
        ToolResult(r.uid, c.call_id, c.call_uid, r.summary, r.content, r.is_error, r.attachments)
        for r, c in zip(results, answer.tool_calls, strict=True)
    ]
    said = draw(st.lists(USERS | NOTES, min_size=0 if results else 1, max_size=2))
    return [answer, *draw(st.permutations(results)), *said]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Item]]:
    """A conversation as it grows: what is added before each request."""
    start = draw(st.lists(USERS | SUMMARIES, min_size=1, max_size=2))
    return [start, *draw(st.lists(steps(), max_size=4))]
