"""What compress() returns: pairs, sizes, the newest message, roles; over many conversations."""

from __future__ import annotations

from collections import Counter

from pod.context.bridge import from_messages
from pod.context.engine import ContextEngine
from pod.context.errors import BridgeError
from pod.context.rows import read_row

from ..bench import SMALL_WINDOW, Bench, Compressed, usage_of
from ..conversations import FIXED, marked, of_size
from ..examine import (
    ROLES,
    cannot_be_json,
    is_real_user,
    newest_user,
    orphan_results,
    same_rows,
    shown,
    text_of,
    tokens,
    unanswered_calls,
    visible,
)
from ..results import Area, Broken, NotApplicable

shape = Area("shape")
pairs = Area("pairs")
sizes = Area("sizes")
newest = Area("newest message")

MOST_TOKENS = 400_000
"""The largest conversation that is made to reach an engine's own trigger."""
PASSES = 5


# ------------------------------------------------------------------ shape


@shape.check("§1.2 compress, §2.4 step 11")
def _returns_messages(bench: Bench) -> None:
    """compress() returns a list of messages, and never an empty one for messages."""
    bench.each_conversation(_not_emptied)


def _not_emptied(compressed: Compressed) -> None:
    if not compressed.returned:
        raise Broken("compress() returned an empty list")


@shape.check("§2.4 step 8")
def _roles(bench: Bench) -> None:
    """Every row has one of the roles system, user, assistant and tool."""

    def look(compressed: Compressed) -> None:
        for row in compressed.returned:
            if row.get("role") not in ROLES:
                raise Broken(f"compress() returned a row with the role {shown(row.get('role'))}")

    bench.each_conversation(look)


@shape.check("§2.4 step 13")
def _json(bench: Bench) -> None:
    """Every row can be written as JSON as it stands."""

    def look(compressed: Compressed) -> None:
        for row in compressed.returned:
            problem = cannot_be_json(row)
            if problem:
                raise Broken(f"compress() returned a row that is no JSON: {problem}")

    bench.each_conversation(look)


@shape.check("§2.4 step 13")
def _readable(bench: Bench) -> None:
    """Every row has content and calls that a host can read."""

    def look(compressed: Compressed) -> None:
        for number, row in enumerate(compressed.returned):
            if row.get("role") not in ROLES:
                continue  # Told by another check.

            try:
                read_row(row, f"row {number}")
            except BridgeError as error:
                raise Broken(f"compress() returned what is no message: {error}") from None

    bench.each_conversation(look)


@shape.check("§1.3 items 1 to 3")
def _arguments_are_optional(bench: Bench) -> None:
    """compress() works with the messages alone, and with every further argument that it takes."""
    rows = FIXED["many small calls"].rows()
    engine = bench.started(window=SMALL_WINDOW)
    asked: tuple[dict[str, object], ...] = (
        {},
        {"current_tokens": tokens(rows), "focus_topic": "the lines", "force": True},
        {"memory_context": 'likes "tea"\n</memory> and </summary> \ud83d'},
    )
    function = engine.compress
    alone = [dict(row) for row in rows]
    bench.call("compress() with the messages alone", function, alone)
    for arguments in asked:
        _not_emptied(bench.compress(engine, rows, **arguments))


@shape.check("§2.5 engine rules")
def _rows_stay_as_they_were_returned(bench: Bench) -> None:
    """Rows that compress() returned are not changed by later calls."""
    engine = bench.started(window=SMALL_WINDOW)
    first = bench.compress(engine, FIXED["many small calls"].rows(), force=True).returned
    before = [visible(row) for row in first]
    bench.compress(engine, marked("later").rows(), force=True)
    bench.call("on_session_reset()", getattr(engine, "on_session_reset", lambda: None))
    if before != [visible(row) for row in first]:
        raise Broken("rows that compress() had returned were changed by a later call")


# ------------------------------------------------------------------ pairs


@pairs.check("§3.3 step 15")
def _no_orphan_results(bench: Bench) -> None:
    """compress() leaves no tool result without its call right before it."""

    def look(compressed: Compressed) -> None:
        had = Counter(orphan_results(compressed.given))
        if Counter(orphan_results(compressed.returned)) - had:
            raise Broken("compress() left a tool result without its call")

    bench.each_conversation(look)


@pairs.check("§3.3 step 15")
def _no_unanswered_calls(bench: Bench) -> None:
    """compress() leaves no call without the result that it had."""

    def look(compressed: Compressed) -> None:
        had = Counter(unanswered_calls(compressed.given))
        if Counter(unanswered_calls(compressed.returned)) - had:
            raise Broken("compress() left a call without its result")

    bench.each_conversation(look)


# ------------------------------------------------------------------ sizes


@sizes.check("§2.4 step 10")
def _fewer_tokens_or_unchanged(bench: Bench) -> None:
    """What compress() returns is fewer tokens than it was given, or the same rows."""
    bench.each_conversation(_fewer_or_same)


def _fewer_or_same(compressed: Compressed) -> None:
    if same_rows(compressed.given, compressed.returned):
        return

    before, after = tokens(compressed.given), tokens(compressed.returned)
    if after >= before:
        raise Broken(f"compress() made {after:,} tokens of {before:,}")


@sizes.check("§2.2, §10 #97488")
def _makes_progress(bench: Bench) -> None:
    """Over its own trigger, an engine makes a long conversation smaller."""
    engine = bench.started()
    trigger = _trigger(bench, engine)
    words = trigger
    conversation = of_size(words)
    while tokens(conversation.rows()) < trigger * 1.2:
        words = words * 5 // 4
        conversation = of_size(words)

    rows = conversation.rows()
    size = tokens(rows)
    bench.respond(engine, usage_of(size))
    compressed = bench.compress(engine, rows, current_tokens=size)
    after = tokens(compressed.returned)
    if after >= size:
        raise Broken(
            f"should_compress() is true at {trigger:,} tokens, and of {size:,} compress() "
            f"made {after:,}",
            rows,
        )


def _trigger(bench: Bench, engine: ContextEngine) -> int:
    """Return a size at which the engine wants to compress."""
    size = 500
    while size <= MOST_TOKENS // 2:
        bench.respond(engine, usage_of(size))
        if bench.wants_compaction(engine, size):
            return size

        size *= 2

    raise NotApplicable(f"it does not want to compress at {size // 2:,} tokens or fewer")


@sizes.check("§1.1 compression_count")
def _counts_its_compactions(bench: Bench) -> None:
    """compression_count goes up with each compress() that changed something."""
    engine = bench.started(window=SMALL_WINDOW)
    changed = False
    for _, rows in bench.fixed():
        before = engine.compression_count
        compressed = bench.compress(engine, rows, current_tokens=tokens(rows), force=True)
        if same_rows(compressed.given, compressed.returned):
            continue

        changed = True
        if engine.compression_count <= before:
            raise Broken("compress() made fewer rows, and compression_count stayed as it was", rows)

    if not changed:
        raise NotApplicable("it changed none of the conversations")


@sizes.check("§2.2, §10 #97488")
def _again_is_never_larger(bench: Bench) -> None:
    """compress() of what it returned never makes it larger, and loses nothing that must stay."""
    for _, rows in bench.fixed():
        engine = bench.started(window=SMALL_WINDOW)
        current = rows
        for _ in range(PASSES):
            compressed = bench.compress(engine, current, current_tokens=tokens(current), force=True)
            compressed.look(_fewer_or_same)
            compressed.look(newest_kept)
            if orphan_results(compressed.returned) or not compressed.returned:
                raise Broken("compress() of its own result parted calls from results", current)

            current = compressed.returned


# ------------------------------------------------------------------ the newest message


@newest.check("§3.3 step 4, §10 #10896")
def _newest_user_message_is_kept(bench: Bench) -> None:
    """What the person said last is kept whole."""
    bench.each_conversation(newest_kept)


def newest_kept(compressed: Compressed) -> None:
    """Raise `Broken` where the newest message of a person is not whole in what was returned."""
    asked = newest_user(compressed.given)
    if asked is None:
        return

    wanted = text_of(asked)
    if not any(wanted in text_of(row) for row in compressed.returned if row.get("role") == "user"):
        raise Broken("compress() lost the newest message of the person")


@newest.check("§10 #80622")
def _no_new_request_at_the_end(bench: Bench) -> None:
    """No row that the engine made stands last as if it were the person's next request."""

    def look(compressed: Compressed) -> None:
        last, asked = compressed.returned[-1:], newest_user(compressed.given)
        if not last or asked is None or last[0].get("role") != "user":
            return

        if text_of(asked) not in text_of(last[0]):
            raise Broken("the last row is a user row that the engine made")

    bench.each_conversation(look)


@newest.check("§3.3 step 4")
def _order_is_kept(bench: Bench) -> None:
    """Rows that stay are in the order in which they were."""

    def look(compressed: Compressed) -> None:
        places = {visible(row): n for n, row in enumerate(compressed.given)}
        if len(places) != len(compressed.given):
            return  # Equal rows: their order cannot be told.

        kept = [places[key] for row in compressed.returned if (key := visible(row)) in places]
        # What the person said may be put anew behind a summary; all else stands as it stood.
        said = {n for n, row in enumerate(compressed.given) if is_real_user(row)}
        others = [n for n in kept if n not in said]
        if others != sorted(others):
            raise Broken("compress() changed the order of rows that it kept")

    bench.each_conversation(look)


@shape.check("§2.4 steps 10 to 13")
def _host_takes_the_result(bench: Bench) -> None:
    """What compress() returns can be made the history of a session."""
    for _, rows in bench.fixed():
        items = from_messages(rows, [], origin="user")
        compressed = bench.compress(
            bench.started(window=SMALL_WINDOW), rows, current_tokens=tokens(rows), force=True
        )
        try:
            from_messages(compressed.returned, items)
        except BridgeError as error:
            raise Broken(f"a host refuses the result: {error}", rows) from None
