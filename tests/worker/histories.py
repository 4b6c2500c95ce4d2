"""Hypothesis strategies for items: anything that ever happened, valid or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from worker import (
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

texts = st.one_of(st.sampled_from(["", " ", "\n\u200b", "hello"]), st.text(max_size=20))
call_ids = st.sampled_from(["c1", "c2", "c3"])
uids = st.builds(new_uid)
images = st.builds(Image, st.sampled_from(["image/png", "image/jpeg"]), st.binary(max_size=8))
tool_calls = st.builds(ToolCall, call_ids, st.just("touch"), texts, uids)
reasoning = st.builds(
    Reasoning, texts, st.none() | texts, st.none() | texts, st.just("p"), st.just("m")
)
users = st.builds(
    UserMessage,
    uids,
    st.lists(st.builds(Text, texts) | images, max_size=3).map(tuple),
    st.sampled_from(["user", "injected"]),
    st.lists(uids, max_size=2).map(tuple),
)
answers = st.builds(
    AssistantMessage,
    uids,
    st.lists(st.builds(Text, texts) | reasoning | tool_calls, max_size=4).map(tuple),
    st.just("p"),
    st.just("m"),
    st.sampled_from(["end", "tool_calls", "partial"]),
)
results = st.builds(
    ToolResult,
    uids,
    call_ids,
    uids,
    texts,
    st.none() | texts | st.just("x" * 500),
    st.booleans(),
    st.lists(images, max_size=1).map(tuple),
)
summaries = st.builds(
    SummaryMessage,
    uids,
    texts,
    st.none() | st.builds(Covers, uids, uids, uids, texts),
    st.integers(1, 9),
)
notes = st.builds(SystemNote, uids, texts, st.just("hook"))
items: st.SearchStrategy[Any] = st.one_of(users, answers, results, results, summaries, notes)
histories: st.SearchStrategy[list[Item]] = st.lists(items, max_size=14)
