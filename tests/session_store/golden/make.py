"""Makes the golden logs of the format that this version writes. Run once for each format.

    python -m tests.session_store.golden.make

A folder `format-<n>` holds a home as that version left it, and `expected.json`: what its sessions
are. Later versions must read it the same. Logs of a format are never made anew: a change that they
would need is a new format.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import attrs

from session_store import FileSessionStore, SessionState
from session_store.chain import FORMAT, START, advanced, encode_entry
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
from worker.items_json import dump_items

HERE = Path(__file__).resolve().parent
AT_MS = 1_796_058_210_123


def main() -> None:
    home = HERE / f"format-{FORMAT}"
    if home.exists():
        raise SystemExit(f"{home.name} is there already, and stays as it is")

    store = FileSessionStore(home, clock=itertools.count(AT_MS).__next__)
    names = make(store)
    expected = {name: expected_of(store, known) for name, known in names.items()}
    for path in store.layout.sessions.glob("*.lock"):
        path.unlink()

    text = json.dumps(expected, indent=1, ensure_ascii=False, sort_keys=True)
    (home / "expected.json").write_text(text + "\n", encoding="utf-8")


def make(store: FileSessionStore) -> dict[str, str]:
    whole = every_kind(store)
    names = {"every kind": whole}
    first_turn = next(entry.hash for entry in store.entries(whole) if entry.kind == "turn_end")
    names["a fork"] = store.fork(whole)
    names["a fork of the past"] = store.fork(whole, first_turn)
    names["compacted"] = store.save_compacted(whole, history(SUMMARY, *LAST))
    names["replaced"] = replaced(store, names["a fork"])
    store.set_pointer("golden", names["replaced"])
    names["rewound"] = store.rewind(names["replaced"], store.restore(names["replaced"]).head.hash)
    names["from the future"] = from_the_future(store)
    names["torn"] = torn(store)
    names["without a newline"] = without_newline(store)
    names["without an anchor"] = without_anchor(store)
    names["large"] = large(store)
    return names


ASKED = UserMessage(
    "a" * 32, (Text("What is in it?\u2028And why? 日本語"), Image("image/png", b"png"))
)
CALLS = (
    ToolCall("call_1", "look", '{"at": "it"}', "c1" * 16),
    ToolCall("call_1", "look", "{not json", "c2" * 16),
)
THOUGHT = Reasoning("Let me see.", "sig==", "blob==", "fake", "m")
CALLED = AssistantMessage("b" * 32, (THOUGHT, Text("I look."), *CALLS), "fake", "m", "tool_calls")
RESULTS = (
    ToolResult("d1" * 16, "call_1", "c1" * 16, "two things", "one\ntwo", is_error=False),
    ToolResult("d2" * 16, "call_1", "c2" * 16, "no JSON", None, True, (Image("image/gif", b"g"),)),
)
ANSWERED = AssistantMessage("e" * 32, (Text("Two things."),), "fake", "m", "end_turn")
NOTE = SystemNote("f" * 32, "The file changed.", "hook")
LAST = (
    UserMessage("1" * 32, (Text("Thanks."),), "injected", ("a1" * 16, "a2" * 16)),
    AssistantMessage("2" * 32, (Text("You are welcome."),), "fake", "m", "end_turn", ("a3" * 16,)),
)
SUMMARY = SummaryMessage(
    "3" * 32,
    "## Original Task\n- look",
    Covers("01a22d69-5f4b-7332-b48e-8bf8884cae90", "a" * 32, "f" * 32, "0" * 64),
    1,
    ("a" * 32,),
)


def history(*items: Item) -> list[Item]:
    return list(items)


def every_kind(store: FileSessionStore) -> str:
    with store.create(pod="golden", system_prompt="Be brief.", config={"model": "m"}) as session:
        session.append_items("user_input", [ASKED])
        session.append_items("assistant_items", [CALLED])
        session.append(
            "usage", history_len=2, input_tokens=90, output_tokens=9, model="m", cost=0.1
        )
        session.append("approval", call_uid="c1" * 16, decision="allow", scope="once", by="user")
        session.append_items("tool_results", RESULTS[1:])
        session.append_items("tool_results", RESULTS[:1])
        session.append("item_amended", item=attrs.evolve(RESULTS[1], summary="it was no JSON"))
        session.append_items("assistant_items", [ANSWERED])
        session.append("usage", history_len=5, input_tokens=None, model="m")
        session.append("turn_end", turn=1)
        session.append("run_outcome", outcome="finished", interrupted=False)
        session.append_items("system_item", [NOTE])
        session.append("prune_advanced", upto_index=4, upto_uid="d1" * 16, items=1, est_savings=9)
        session.append("config_changed", config={"model": "n"})
        session.append("compaction_started", trigger="threshold")
        session.append("compaction_failed", trigger="threshold", consecutive_failures=1, reason="x")
        session.append("extension", domain="todos", payload=[{"text": "later"}])
        session.append_many(
            [("user_input", {"items": [LAST[0]]}), ("assistant_items", {"items": [LAST[1]]})]
        )
        session.append("run_outcome", outcome="limit_reached", message="enough", interrupted=True)
        return session.session_id


def replaced(store: FileSessionStore, known: str) -> str:
    with store.open(known) as old:
        told = {
            "trigger": "manual",
            "engine": "compressor",
            "method": "summary",
            "tokens_before": 9,
        }
        with store.publish_compacted(
            old, history=[SUMMARY, *LAST], watermark=1, compaction=told
        ) as session:
            session.append("turn_end", turn=2)
            return session.session_id


def short(store: FileSessionStore) -> str:
    with store.create(pod="golden", system_prompt="", config={}, history=[ASKED]) as session:
        session.append_items("assistant_items", [ANSWERED])
        return session.session_id


def torn(store: FileSessionStore) -> str:
    known = short(store)
    with store.layout.log(known).open("ab") as log:
        log.write(b'{"hash":"torn')

    return known


def without_newline(store: FileSessionStore) -> str:
    known = short(store)
    path = store.layout.log(known)
    path.write_bytes(path.read_bytes()[:-1])
    return known


def without_anchor(store: FileSessionStore) -> str:
    known = short(store)
    store.layout.anchor(known).unlink()
    return known


def large(store: FileSessionStore) -> str:
    """A payload in a blob of its own."""
    known = short(store)
    with store.open(known) as session:
        result = ToolResult(
            "4" * 32, "call_9", "c9" * 16, "much", "much " * 220_000, is_error=False
        )
        call = ToolCall("call_9", "look", "{}", "c9" * 16)
        asked = AssistantMessage("5" * 32, (call,), "fake", "m", "tool_calls")
        session.append_items("assistant_items", [asked])
        session.append_items("tool_results", [result])

    return known


def from_the_future(store: FileSessionStore) -> str:
    """Kinds and fields that this version does not know, in a log of a format that it does."""
    known = short(store)
    path = store.layout.log(known)
    data = path.read_bytes()
    after = advanced(START, data)
    line, _ = encode_entry(after, AT_MS + 99_000, "telepathy", {"thought": {"deep": [1, None]}})
    items = dump_items([LAST[0]])
    items[0]["mood"] = "bright"
    more, _ = encode_entry(
        advanced(after, line), AT_MS + 99_001, "user_input", {"items": items, "weather": "fine"}
    )
    path.write_bytes(data + line + more)
    store.layout.anchor(known).unlink()
    store.open(known).close()
    return known


def expected_of(store: FileSessionStore, known: str) -> dict[str, Any]:
    """All that a session is, as JSON."""
    state = as_json(store.restore(known))
    return {"session_id": known, "state": state, "lineage": list(map(list, store.lineage(known)))}


def as_json(state: SessionState) -> dict[str, Any]:
    value = {**attrs.asdict(state, recurse=False), "history": dump_items(state.history)}
    for item in value["history"]:
        content = item.get("content")
        if content is not None and len(content) > 1000:
            item["content"] = f"{content[:20]}… {len(content)}"

    for name in ("usage", "approvals"):
        value[name] = [attrs.asdict(one) for one in value[name]]

    value["totals"] = attrs.asdict(state.totals)
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found


if __name__ == "__main__":
    main()
