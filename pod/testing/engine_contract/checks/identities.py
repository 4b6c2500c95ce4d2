"""The identities of rows: kept by what is left alone, never doubled, never on another message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pod.context.engine import Message
from pod.context.rows import ABSORBED_MESSAGE_UIDS, MESSAGE_UID

from ..bench import SMALL_WINDOW, Bench, Compressed
from ..conversations import FIXED
from ..examine import identity, is_real_user, shown, text_of, tokens, uid_of, visible
from ..results import Area, Broken

uids = Area("uids")


@uids.check("§4 U5, U7")
def _uids_are_kept(bench: Bench) -> None:
    """Rows that compress() leaves as they are keep their message_uid and the uids of calls."""

    def look(compressed: Compressed) -> None:
        given: dict[object, list[Message]] = {}
        for row in compressed.given:
            given.setdefault(visible(row), []).append(identity(row))

        for row in compressed.returned:
            known = given.get(visible(row))
            if known and identity(row) not in known and not _adds_absorbed(row, known):
                missing = "lost its identity" if uid_of(row) is None else "has another identity"
                raise Broken(f"a row that compress() left as it was {missing}")

    bench.each_conversation(look)


def _adds_absorbed(row: Message, known: list[Message]) -> bool:
    kept = {key: value for key, value in identity(row).items() if key != ABSORBED_MESSAGE_UIDS}
    return kept in known


@uids.check("§4 U14, U21")
def _no_uid_twice(bench: Bench) -> None:
    """No two rows that compress() returns have one message_uid."""

    def look(compressed: Compressed) -> None:
        counts = Counter(uid for row in compressed.returned if (uid := uid_of(row)))
        if doubled := [uid for uid, count in counts.items() if count > 1]:
            raise Broken(f"{counts[doubled[0]]} rows have one message_uid")

    bench.each_conversation(look)


@uids.check("§4 U3, U22, U23")
def _uids_stay_with_their_messages(bench: Bench) -> None:
    """A message_uid is never put on another message, and a new one is text that is not blank."""

    def look(compressed: Compressed) -> None:
        known = {uid_of(row): row for row in compressed.given}
        for row in compressed.returned:
            if MESSAGE_UID in row and uid_of(row) is None and row[MESSAGE_UID] is not None:
                raise Broken(f"a row has the message_uid {shown(row[MESSAGE_UID])}")

            before = known.get(uid_of(row)) if uid_of(row) else None
            if before is not None and before.get("role") != row.get("role"):
                raise Broken(
                    f"the message_uid of a {before.get('role')} row is on a {row.get('role')} row"
                )

            if before is not None:
                _refuse_stolen(row, before, compressed.given)

    bench.each_conversation(look)


def _refuse_stolen(row: Message, before: Message, given: list[Message]) -> None:
    if visible(row) == visible(before):
        return

    if any(visible(row) == visible(other) for other in given):
        raise Broken("the message_uid of one row is on another row that was left as it was")


@uids.check("§4 U14, U19, U36")
def _absorbed_uids_are_well_formed(bench: Bench) -> None:
    """_absorbed_message_uids names messages that were given, once each, and never its own row."""

    def look(compressed: Compressed) -> None:
        known = set(_every_uid(compressed.given))
        for row in compressed.returned:
            if ABSORBED_MESSAGE_UIDS in row:
                _check_absorbed(row[ABSORBED_MESSAGE_UIDS], uid_of(row), known)

    bench.each_conversation(look)


def _check_absorbed(value: object, own: str | None, known: set[str]) -> None:
    if not isinstance(value, list) or not value:
        raise Broken(f"_absorbed_message_uids is {shown(value)}, not a list of uids")

    odd = [uid for uid in value if not isinstance(uid, str) or not uid.strip()]
    if odd:
        raise Broken(f"_absorbed_message_uids holds {shown(odd[0])}")
    if len(set(value)) != len(value):
        raise Broken("_absorbed_message_uids names a message twice")
    if own in value:
        raise Broken("_absorbed_message_uids names its own row")
    if not known.issuperset(value):
        raise Broken("_absorbed_message_uids names a message that was not given")


def _every_uid(rows: list[Message]) -> Iterator[str]:
    for row in rows:
        uid = uid_of(row)
        if uid is not None:
            yield uid

        absorbed = row.get(ABSORBED_MESSAGE_UIDS)
        if isinstance(absorbed, list):
            yield from (uid for uid in absorbed if isinstance(uid, str))


@uids.check("§4 U14, U16")
def _merged_messages_are_named(bench: Bench) -> None:
    """A row that took in the whole text of another person's message names it as absorbed."""

    def look(compressed: Compressed) -> None:
        said = {uid_of(row): text_of(row) for row in compressed.given if is_real_user(row)}
        for row in compressed.returned:
            own = said.get(uid_of(row))
            if own is None:
                continue

            text = text_of(row)
            taken = {uid for uid, other in said.items() if other in text and other not in own}
            if not taken <= set(row.get(ABSORBED_MESSAGE_UIDS) or ()):
                raise Broken("a row took in another message and does not name its message_uid")

    bench.each_conversation(look)


@uids.check("§4 U35")
def _uids_may_be_missing(bench: Bench) -> None:
    """Rows without any identity are compressed as well."""
    rows = [
        {key: value for key, value in row.items() if key not in identity(row)}
        for row in FIXED["many small calls"].rows()
    ]
    engine = bench.started(window=SMALL_WINDOW)
    compressed = bench.compress(engine, rows, current_tokens=tokens(rows), force=True)
    if not compressed.returned:
        raise Broken("compress() returned an empty list", rows)
