from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from pod.context.bridge import from_messages, from_selection, to_messages, to_request_messages
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
)

words = st.text(max_size=12) | st.sampled_from(["ok", "a\nb", "[note: x]\n", "", " "])
ids = st.sampled_from(["call_1", "call_2", "call_3"])
fresh = st.uuids().map(lambda uid: uid.hex)
absorbed = st.lists(fresh, max_size=2).map(tuple)
texts = st.builds(Text, words)
images = st.builds(Image, st.just("image/png"), st.binary(max_size=8))
reasonings = st.builds(Reasoning, words, st.none() | words, st.none() | words, words, words)
calls = st.builds(ToolCall, ids, st.just("grep"), words, fresh | st.just(""))
origins = st.sampled_from(["user", "injected"])
covers = st.none() | st.just(Covers("s", "a", "b", "c"))

items: st.SearchStrategy[Item] = st.one_of(
    st.builds(
        UserMessage, fresh, st.lists(texts | images, max_size=3).map(tuple), origins, absorbed
    ),
    st.builds(
        AssistantMessage,
        fresh,
        st.lists(texts | reasonings | calls, max_size=4).map(tuple),
        words,
        words,
        st.just("end"),
        absorbed,
    ),
    st.builds(
        ToolResult,
        fresh | st.just(""),
        ids,
        fresh,
        words,
        st.none() | words,
        st.booleans(),
        st.lists(images, max_size=1).map(tuple),
    ),
    st.builds(SummaryMessage, fresh, words, covers, st.integers(0, 5), absorbed),
    st.builds(SystemNote, fresh, words, words),
)
histories = st.lists(items, max_size=12, unique_by=lambda item: item.uid or id(item))


def through_json(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return json.loads(json.dumps(messages))


def same(left: list[Item], right: list[Item]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


@given(histories)
def test_what_an_engine_leaves_alone_comes_back_as_the_same_objects(history: list[Item]) -> None:
    assert same(from_messages(through_json(to_messages(history)), history), history)


@given(histories, st.data())
def test_rows_that_stay_keep_their_identity_in_any_order(
    history: list[Item], data: st.DataObject
) -> None:
    # Pairs are another matter: here are only rows that need no other.
    alone = [item for item in history if not isinstance(item, ToolResult)]
    chosen = data.draw(st.permutations(range(len(alone))))
    kept = [alone[n] for n in chosen[: data.draw(st.integers(0, len(alone)))]]

    assert same(from_messages(through_json(to_messages(kept)), history), kept)


@given(histories)
def test_an_engine_that_strips_identities_keeps_what_it_keeps_whole(history: list[Item]) -> None:
    stripped = to_request_messages("", history)

    back = from_messages(through_json(stripped), history)

    # Items that look alike to the model may stand for each other, never for anything else.
    assert to_request_messages("", back) == stripped
    assert len({id(item) for item in back}) == len(history)
    assert all(any(item is known for known in history) for item in back)


@given(histories, words)
def test_a_selection_of_everything_is_the_projection_itself(
    history: list[Item], system_prompt: str
) -> None:
    projection = [item for item in history if item.uid]
    if not projection:
        return

    selection = from_selection(
        through_json(to_request_messages(system_prompt, projection)), system_prompt, projection
    )

    assert selection.system is None
    sent = [json.dumps(message) for message in to_request_messages("", projection)]
    assert [json.dumps(message) for message in to_request_messages("", selection.items)] == sent
    if len(set(sent)) == len(sent):
        assert same(selection.items, projection)


@given(histories, st.data())
def test_a_changed_row_is_a_new_version_under_its_uid(
    history: list[Item], data: st.DataObject
) -> None:
    named = [item for item in history if item.uid]
    if not named:
        return

    target = data.draw(st.sampled_from(named))
    messages = to_messages(history)
    for message in messages:
        if message.get("message_uid") == target.uid:
            message["content"] = "rewritten by an engine"

    back = from_messages(through_json(messages), history)

    assert [item.uid for item in back] == [item.uid for item in history]
    changed = next(item for item in back if item.uid == target.uid)
    assert type(changed) is type(target)
    assert "rewritten by an engine" in json.dumps(to_messages([changed]))
    others = [(a, b) for a, b in zip(back, history, strict=True) if a.uid != target.uid]
    assert all(a is b for a, b in others)


@given(
    st.lists(
        st.builds(UserMessage, fresh, st.tuples(texts), origins),
        min_size=2,
        max_size=5,
        unique_by=lambda item: item.uid,
    )
)
def test_merged_user_rows_name_what_they_absorbed(history: list[UserMessage]) -> None:
    first, *rest = to_messages(history)
    first["content"] = "\n\n".join(str(message["content"]) for message in [first, *rest])
    first["_absorbed_message_uids"] = [message["message_uid"] for message in rest]

    (merged,) = from_messages(through_json([first]), history)

    said_by_person = any(item.origin == "user" for item in history)
    assert merged == evolve(
        history[0],
        parts=(Text(first["content"]),),
        origin="user" if said_by_person else "injected",
        absorbed_uids=tuple(item.uid for item in history[1:]),
    )
    again = from_messages(through_json(to_messages([merged])), [merged])
    assert again[0] is merged
