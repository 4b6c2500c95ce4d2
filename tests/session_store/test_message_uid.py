"""The rules of message identity, U1 to U36, where no other test shows them: `docs/uids.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from pod.context.bridge import from_messages, to_messages
from pod.protocol import CompactionDone
from session_store import FileSessionStore, Session
from session_store.exchange.exporting import export_session
from session_store.exchange.importing import import_file
from session_store.index import SessionIndex
from tests.fake_provider import Asked, Say, serving
from tests.pod.pods import BIG_TOOL, COMPACT, chat, living, log_of, logs, manifest, pointer, prose
from tests.session_store.builders import a_call, a_store, answer, begun, lines_of, result_of
from worker.items import (
    AssistantMessage,
    Item,
    SummaryMessage,
    Text,
    ToolResult,
    UserMessage,
    new_uid,
    user_message,
)
from worker.tokens import item_tokens

HEX = re.compile(r"[0-9a-f]{32}")
KEYS = ("message_uid", "_absorbed_message_uids", "_tool_call_uids", "_tool_call_uid")


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return a_store(home)


@pytest.fixture
def session(store: FileSessionStore) -> Iterator[Session]:
    with begun(store) as session:
        yield session


def uids(items: Iterator[Item] | list[Item] | tuple[Item, ...]) -> list[str]:
    return [item.uid for item in items]


def logged_items(home: Path, session_id: str) -> list[dict[str, Any]]:
    """Every item of a log, as it is stored."""
    found: list[dict[str, Any]] = []
    for entry in log_of(home, session_id):
        held = [entry.get("history") or [], entry.get("items"), [entry.get("item")]]
        found += [one for each in held if isinstance(each, list) for one in each if one]

    return found


def with_calls(asked: Asked, number: int) -> Say:
    is_result = asked.body["messages"][-1]["role"] == "tool"
    arguments = json.dumps({"n": number})
    return Say("done") if is_result else Say("look", calls=(("big", arguments), ("big", "{}")))


def at_length(_: Asked, number: int) -> Say:
    return Say(f"answer {number} {prose(8_000)}")


# --- identities are made once, and kept ---------------------------------------------------------


@pytest.mark.anyio
async def test_what_enters_a_history_gets_an_identity_that_its_copies_keep(home: Path) -> None:
    """U1, U2, U5, U6, U24: one each, from nothing; the live history and the log have the same."""
    with serving(chat(with_calls)) as served:
        async with living(manifest(home, served.base_url, BIG_TOOL), home) as story:
            await story.turns("the same", "the same", "the same")
            live = list(story.pod.history)

        stored = logged_items(home, pointer(home))

    assert [one["uid"] for one in stored if one["type"] != "tool_result"] == [
        item.uid for item in live if not isinstance(item, ToolResult)
    ]
    assert {one["uid"] for one in stored} == set(uids(live))
    assert len(set(uids(live))) == len(live), "no two have one, however alike they are"
    assert all(HEX.fullmatch(uid) for uid in uids(live))
    calls = [call for i in live if isinstance(i, AssistantMessage) for call in i.tool_calls]
    assert len({call.call_uid for call in calls}) == len(calls) == 6
    assert all(HEX.fullmatch(call.call_uid) for call in calls)
    assert {i.call_uid for i in live if isinstance(i, ToolResult)} == {c.call_uid for c in calls}


def test_a_uid_that_an_item_brings_is_written_verbatim(
    store: FileSessionStore, session: Session
) -> None:
    """U3."""
    odd = ["a b", "Ü", "x" * 200, "7"]
    session.append_items("user_input", [UserMessage(uid, (Text("same"),)) for uid in odd])
    assert uids(store.restore(session.session_id).history) == odd


def test_every_way_to_a_history_gives_the_same_identities(
    store: FileSessionStore, home: Path, session: Session, tmp_path: Path
) -> None:
    """U4, U9, U12, U13, U20: restored, forked, compacted, exported; witnesses come along."""
    call = a_call()
    told: list[Item] = [
        UserMessage(new_uid(), (Text("needle one"),), "user", (new_uid(), new_uid())),
        evolve(answer("I look", call), absorbed_uids=(new_uid(),)),
        result_of(call),
        SummaryMessage(new_uid(), "needle so far", None, 1, (new_uid(),)),
    ]
    session.append_items("user_input", told)
    head, session_id = session.head, session.session_id
    session.close()

    assert store.restore(session_id).history == told
    assert store.restore(session_id, head.hash).history == told
    with store.open(session_id) as again:
        assert again.state.history == told

    fork = store.fork(session_id)
    compacted = store.save_compacted(fork, told)
    again_compacted = store.save_compacted(compacted, told)
    rewound = store.rewind(session_id, head.hash)
    for known in (fork, compacted, again_compacted, rewound, store.fork(again_compacted)):
        assert store.restore(known).history == told

    hits = SessionIndex(home).search("needle")
    assert {hit.uid for hit in hits} == {told[0].uid, told[3].uid}

    exported = tmp_path / "exported.jsonl"
    exported.write_bytes(b"".join(export_session(store, session_id, "podworker")))
    other = a_store(tmp_path / "other")
    (imported,) = import_file(other, exported)
    assert other.restore(imported.session_id).history == told


def test_two_alike_are_two(store: FileSessionStore, session: Session) -> None:
    """U2: equal in role, content and time."""
    still = a_store(store.layout.home, clock=lambda: 1)
    with begun(still) as one:
        one.append_items("user_input", [user_message("x"), user_message("x")])

    first, second = still.restore(one.session_id).history
    assert first.uid != second.uid


# --- versions of one message --------------------------------------------------------------------


def test_new_content_under_a_known_uid_is_a_version(
    store: FileSessionStore, session: Session
) -> None:
    """U10, U11, U22: the item keeps its place and its name; the old version stays in the log."""
    said = user_message("first words")
    session.append_items("user_input", [said, user_message("another")])
    session.append("item_amended", item=evolve(said, parts=(Text("last words"),)))
    history = store.restore(session.session_id).history
    assert (history[0].uid, history[0]) == (
        said.uid,
        evolve(said, parts=(Text("last words"),)),
    )
    assert b"first words" in lines_of(store, session.session_id)[1]


def test_one_uid_may_be_in_many_sessions_and_rows(store: FileSessionStore, home: Path) -> None:
    """U21: nothing demands that it be there once."""
    said = user_message("shared words")
    with begun(store) as one, begun(store) as other:
        for session in (one, other):
            session.append_items("user_input", [said])
            session.append_items("user_input", [evolve(said, parts=(Text("shared later"),))])

    assert len(SessionIndex(home).sessions()) == 2
    assert {hit.uid for hit in SessionIndex(home).search("shared")} == {said.uid}


def test_a_message_that_an_engine_dropped_is_no_witness() -> None:
    """U18, U19: only what a row names was absorbed; what names nothing changes nothing."""
    history: list[Item] = [user_message("one"), user_message("two"), user_message("three")]
    rows = to_messages(history)
    del rows[1]
    kept = from_messages(rows, history)
    assert kept[0] is history[0]
    assert kept[1] is history[2]
    rows = to_messages(history)
    rows[0]["_absorbed_message_uids"] = ["", None, 7, " "]
    assert from_messages(rows, history)[0] is history[0]


def test_what_was_absorbed_is_named_once_in_order_and_never_itself() -> None:
    """U14, U15, U17: as the engine that merged says it, then what was known before."""
    known = UserMessage("k" * 32, (Text("one"),), "user", ("a1", "a2"))
    (row,) = to_messages([known])
    row["content"] = "one\n\ntwo\n\nthree"
    row["_absorbed_message_uids"] = ["b1", known.uid, "a2", "b1", "b2"]
    (merged,) = from_messages([row], [known])
    assert isinstance(merged, UserMessage)
    assert (merged.uid, merged.text) == (known.uid, "one\n\ntwo\n\nthree")
    assert merged.absorbed_uids == ("b1", "a2", "b2", "a1")


def test_calls_keep_their_identities_where_an_engine_lost_them() -> None:
    """U29, U35: the stored one is taken; a call that is dropped takes its own along."""
    calls = [evolve(a_call(), call_id=name) for name in ("c1", "c2", "c3")]
    asked = answer("look", *calls)
    history: list[Item] = [asked, *(result_of(call) for call in calls)]
    rows = to_messages(history)
    for row in rows:
        for key in KEYS[1:]:
            row.pop(key, None)

    rows[0]["content"] = "changed"
    del rows[0]["tool_calls"][1]
    del rows[2]
    found = from_messages(rows, history)
    assert isinstance(found[0], AssistantMessage)
    assert [call.call_uid for call in found[0].tool_calls] == [
        calls[0].call_uid,
        calls[2].call_uid,
    ]
    assert [i.call_uid for i in found if isinstance(i, ToolResult)] == [
        calls[0].call_uid,
        calls[2].call_uid,
    ]
    assert uids(found) == [asked.uid, history[1].uid, history[3].uid]


# --- compaction ---------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_a_compaction_keeps_keeps_its_identity(home: Path) -> None:
    """U7, U8, U9: the tail in the new log, the originals in the old one, the summary its own."""
    with serving(chat(at_length)) as served:
        async with living(manifest(home, served.base_url, COMPACT), home) as story:
            await story.turns("one", "two", "three", "four", "five")
            (done, *_) = story.of(CompactionDone)
            live = list(story.pod.history)

    store = FileSessionStore(home)
    assert store.restore(pointer(home)).history == live
    old = store.restore(done.old_session_id).history
    new = log_of(home, done.new_session_id)[0]["history"]
    summary, *kept = new
    assert HEX.fullmatch(summary["uid"])
    assert summary["uid"] not in uids(old)
    assert [one["uid"] for one in kept] == uids(old)[-len(kept) :]
    assert summary["covers"]["first_uid"] == old[0].uid
    assert summary["covers"]["last_uid"] == old[-len(kept) - 1].uid


ENGINE = '''
import json
from pathlib import Path
from pod.context import ContextEngine

class Namer(ContextEngine):
    """Gives what it makes an identity of its own, and notes down what it is given."""
    threshold_tokens = 4_000

    @property
    def name(self):
        return "namer"

    def update_model(self, model, context_length, **kwargs):
        self.context_length = context_length

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or self.last_prompt_tokens) > self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self._note("compress", messages)
        head = {{"role": "user", "content": "MADE", "message_uid": "engine-made-1"}}
        head |= {{"_compressed_summary": True}}
        head |= {{"_absorbed_message_uids": [messages[0]["message_uid"]]}}
        return [head] + messages[-2:]

    def on_session_end(self, session_id, messages, **kwargs):
        self._note("end", messages)

    def _note(self, what, messages):
        with Path({notes!r}).open("a") as notes:
            rows = [m.get("message_uid") for m in messages if m["role"] != "system"]
            notes.write(json.dumps([what, rows]) + "\\n")
'''


@pytest.mark.anyio
async def test_what_an_engine_made_keeps_the_identity_that_it_was_given(home: Path) -> None:
    """U5, U16, U20, U23: through commit, restart and copies; the engine sees all identities."""
    folder, notes = home / "plugins" / "namer", home / "notes"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__init__.py").write_text(ENGINE.format(notes=str(notes)))
    (folder / "plugin.yaml").write_text("name: namer\nversion: 0.1.0\ndescription: names\n")
    extra = '[context]\nengine = "namer"\n'
    with serving(chat(at_length)) as served:
        path = manifest(home, served.base_url, extra)
        async with living(path, home) as story:
            await story.turns("one", "two", "three")
            assert story.of(CompactionDone)
            live = list(story.pod.history)

        async with living(path, home, resume=pointer(home)) as again:
            assert list(again.pod.history) == live

    made = live[0]
    assert made.uid == "engine-made-1"
    seen = [json.loads(line) for line in notes.read_text().split("\n")[:-1]]
    (given, *_) = [rows for what, rows in seen if what == "compress"]
    assert all(given)
    assert set(given) <= {item["uid"] for known in logs(home) for item in logged_items(home, known)}
    assert isinstance(made, SummaryMessage)
    assert made.absorbed_uids[0] in given
    store = FileSessionStore(home)
    for known in (store.fork(pointer(home)), store.save_compacted(pointer(home), live)):
        assert store.restore(known).history[0] == made


# --- never for a provider -----------------------------------------------------------------------


@pytest.mark.anyio
async def test_no_request_has_an_identity_in_it(home: Path) -> None:
    """U32: neither the keys nor the values."""
    with serving(chat(with_calls)) as served:
        async with living(manifest(home, served.base_url, BIG_TOOL), home) as story:
            await story.turns("one", "two")
            known = uids(story.pod.history)
            known += [
                call.call_uid
                for item in story.pod.history
                if isinstance(item, AssistantMessage)
                for call in item.tool_calls
            ]

        sent = json.dumps([asked.body for asked in served.asked])

    assert len(served.asked) == 4
    assert not [uid for uid in known if uid in sent]
    assert not [key for key in (*KEYS, "absorbed", "call_uid") if f'"{key}"' in sent]


def test_an_identity_weighs_nothing() -> None:
    """U32."""
    call = a_call()
    for item in (user_message("words"), answer("words", call), result_of(call)):
        changed = evolve(item, uid="x" * 5000)
        if not isinstance(changed, ToolResult):
            changed = evolve(changed, absorbed_uids=("y" * 5000,))

        assert item_tokens(changed) == item_tokens(item)
