"""Input that no host means to send and some engine is sent some day: nothing may raise."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence

from attrs import evolve

from pod.context.engine import Message

from ..bench import SMALL_WINDOW, Bench
from ..conversations import FIXED, Conversation, Turn
from ..examine import orphan_results, tokens
from ..results import Area, Broken

hostile = Area("hostile input")

HUGE_CHARACTERS = 1_000_000
MANY = 10_000
FEW = 1_000
MOST_TIMES_TRIVIAL = 10
"""How much more than copying and writing the rows a compaction may cost, whatever its growth."""
MOST_TIMES_GROWTH = 4
"""How much faster than the rows the cost may grow, beyond that: 10 would be quadratic."""


def _survives(bench: Bench, rows: Sequence[object]) -> None:
    """Raise `Broken` where compress() raises on `rows`, empties or grows them."""
    engine = bench.started(window=SMALL_WINDOW)
    given: list[Message] = [row for row in rows if isinstance(row, dict)]
    for force in (False, True):
        compressed = bench.compress(engine, given, current_tokens=tokens(given), force=force)
        if given and not compressed.returned:
            raise Broken("compress() returned an empty list", given)
        if tokens(compressed.returned) > tokens(given):
            raise Broken("compress() returned more tokens than it was given", given)


def _talk(*texts: object) -> list[Message]:
    """Return a talk that ends with these contents, long enough to be cut."""
    rows = FIXED["many small calls"].rows()
    for number, text in enumerate(texts):
        role = "user" if number % 2 == 0 else "assistant"
        rows.append({"role": role, "content": text, "message_uid": f"{number:032x}"})

    return [*rows, *evolve(FIXED["a short one"], marker="end").rows()]


@hostile.check("§2.4, §10 #79624")
def _nothing(bench: Bench) -> None:
    """An empty list comes back empty."""
    compressed = bench.compress(bench.started(), [], current_tokens=0, force=True)
    if compressed.returned:
        raise Broken("compress() made messages of an empty list", [])


@hostile.check("§2.4")
def _one_row(bench: Bench) -> None:
    """One row alone survives, whoever says it."""
    rows: list[Message] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": ""},
    ]
    for row in rows:
        _survives(bench, [row])


@hostile.check("§2.4")
def _other_scripts(bench: Bench) -> None:
    """Chinese, Japanese, Arabic, emoji and combining characters survive."""
    texts = (
        "压缩上下文。" * 400,
        "文脈を圧縮する。" * 400,
        "سياق " * 400,
        "👩‍👩‍👧‍👦é̂" * 400,
        "한국어 " * 400,
    )
    _survives(bench, _talk(*texts))


@hostile.check("§2.4, §10 #79624")
def _huge_row(bench: Bench) -> None:
    """A row of a megabyte survives, at the head, in the middle and as a tool's result."""
    text = "one line of a log that never ends\n" * (HUGE_CHARACTERS // 34)
    _survives(bench, _talk(text, "so long"))
    _survives(
        bench, [{"role": "user", "content": text}, *evolve(FIXED["a short one"], marker="x").rows()]
    )
    rows = FIXED["many small calls"].rows()
    next(row for row in rows if row["role"] == "tool")["content"] = text
    _survives(bench, rows)


@hostile.check("§2.4")
def _lone_surrogates(bench: Bench) -> None:
    """Text with halves of surrogate pairs and control characters survives."""
    rows = _talk("half \ud83d of a pair", "\udc00\ud800 and \x00\x1b[31m", "\ufeff\u202e")
    next(row for row in rows if row["role"] == "tool")["content"] = "\ud83d" * 3_000
    _survives(bench, rows)


@hostile.check("§4 U30")
def _unknown_keys(bench: Bench) -> None:
    """Rows with keys that nobody knows survive."""
    rows = FIXED["many small calls"].rows()
    for number, row in enumerate(rows):
        row |= {"timestamp": 1.5, "_row_id": number, "name": "x", "x-vendor": {"deep": [None]}}
        row["reasoning_details"] = [{"type": "thinking", "signature": "s"}]
    _survives(bench, rows)


@hostile.check("§3.3 steps 2 and 16")
def _images(bench: Bench) -> None:
    """Content in parts, images among them, survives; as data, as an address, malformed."""
    url = "data:image/png;base64,iVBORw0KGgo="
    parts: list[object] = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    address = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    rows = _talk(parts, "a picture", address, [{"type": "text", "text": "a part"}], [])
    _survives(bench, [{"role": "user", "content": copy.deepcopy(parts)}, *rows])


@hostile.check("§4 U30, U36")
def _malformed_identities(bench: Bench) -> None:
    """Identity fields of any wrong kind count as absent."""
    odd: tuple[object, ...] = (None, 7, "", [], ["", 3], {"a": None}, {"call_0_0_0": 4}, b"x", True)
    rows = FIXED["many small calls"].rows()
    for number, row in enumerate(rows):
        for key in ("message_uid", "_absorbed_message_uids", "_tool_call_uids", "_tool_call_uid"):
            row[key] = odd[number % len(odd)]
    _survives(bench, rows)


@hostile.check("§3.3 step 2")
def _no_content(bench: Bench) -> None:
    """Rows whose content is None, empty or not there survive."""
    rows = _talk(None, None, "", "")
    for row in rows[::3]:
        if row["role"] != "user":
            row["content"] = None
    rows.insert(0, {"role": "assistant"})
    _survives(bench, rows)


@hostile.check("§3.3 step 15")
def _loose_ends(bench: Bench) -> None:
    """Results without calls and calls without results survive, and are no reason to lose others."""
    rows = FIXED["many small calls"].rows()
    lost = next(n for n, row in enumerate(rows) if row.get("tool_calls"))
    unanswered = next(n for n, row in enumerate(rows) if row["role"] == "tool" and n > 20)
    del rows[unanswered], rows[lost]
    _survives(bench, rows)
    engine = bench.started(window=SMALL_WINDOW)
    compressed = bench.compress(engine, rows, current_tokens=tokens(rows), force=True)
    if len(orphan_results(compressed.returned)) > len(orphan_results(rows)):
        raise Broken("compress() made more results without calls than there were", rows)


@hostile.check("§8 row assumption")
def _odd_roles_and_order(bench: Bench) -> None:
    """System rows at any place, runs of one role, and histories of a single role survive."""
    rows = FIXED["many small calls"].rows()
    note: Message = {"role": "system", "content": "a note"}
    _survives(bench, [note, *rows[:12], note, note, *rows[12:]])
    for role in ("user", "assistant"):
        _survives(bench, [{"role": role, "content": f"line {n} of many"} for n in range(400)])


@hostile.check("§3.3 step 2")
def _malformed_calls(bench: Bench) -> None:
    """Calls whose arguments are no JSON, or no text at all, survive."""
    rows = FIXED["many small calls"].rows()
    odd: tuple[object, ...] = ("{broken", "", "[1, 2", "null", '"text"', "{" * 400)
    number = 0
    for row in rows:
        for call in row.get("tool_calls", ()):
            call["function"]["arguments"] = odd[number % len(odd)]
            number += 1
    _survives(bench, rows)


# ------------------------------------------------------------------ many rows


@hostile.check("§10 #79624, #100602")
def _many_rows(bench: Bench) -> None:
    """Ten thousand rows take about ten times as long as a thousand: measured against copying."""
    few, many = _rows(FEW), _rows(MANY)
    cost, growth = _cost(bench, many), 0.0
    trivial = _trivial(many)
    if cost <= MOST_TIMES_TRIVIAL * trivial:
        return

    growth = cost / max(_cost(bench, few), 1e-6)
    most = MOST_TIMES_GROWTH * trivial / max(_trivial(few), 1e-6)
    if growth > most:
        raise Broken(
            f"{MANY:,} rows took {cost / trivial:,.0f} times as long as copying them, and "
            f"{growth:,.0f} times as long as {FEW:,} rows"
        )


def _rows(count: int) -> list[Message]:
    turn = Turn(12, ((20,), (20,)), 12)  # six rows
    return Conversation((turn,) * (count // 6)).rows()


def _cost(bench: Bench, rows: list[Message]) -> float:
    """Return the processor time that compress() takes in its own thread."""
    engine = bench.started(window=SMALL_WINDOW)
    spent: list[float] = []
    compress: Callable[..., object] = engine.compress
    handed = copy.deepcopy(rows)

    def timed() -> object:
        began = time.thread_time()
        try:
            return compress(handed)
        finally:
            spent.append(time.thread_time() - began)

    bench.call("compress()", timed)
    return spent[0]


def _trivial(rows: list[Message]) -> float:
    began = time.thread_time()
    json.dumps(copy.deepcopy(rows))
    return time.thread_time() - began
